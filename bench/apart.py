"""Loads that run in a process of their own, so that one's memory is not the next one's."""

import json
import subprocess
import sys
from collections.abc import Iterator

from bench.loads import FULL, Numbers, Run, Scale
from bench.programs import ROOT, BenchError, Program


def figures_of(module: str, *words: str, timeout_s: float) -> Run:
    """All numbers of the JSON lines that `python -m MODULE WORDS` prints; small unless FULL."""

    def run(program: Program, scale: Scale) -> Numbers:
        small = [] if scale is FULL else ["--small"]
        done = subprocess.run(
            [sys.executable, "-m", module, *words, *small],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            raise BenchError(f"{module} {words[0]}: {done.stderr.strip()[-300:]}")
        rows = [json.loads(text) for text in done.stdout.splitlines()]
        return {key: value for row in rows for key, value in _numbers(row.pop("row"), row)}

    return run


def _numbers(prefix: str, figures: dict[str, object]) -> Iterator[tuple[str, float]]:
    """`recovery`, {"after_kill": {"seconds": 1.2}} gives `recovery.after_kill.seconds`."""
    for name, value in figures.items():
        if isinstance(value, dict):
            yield from _numbers(f"{prefix}.{name}", value)
        elif isinstance(value, int | float):
            yield f"{prefix}.{name}", float(value)
