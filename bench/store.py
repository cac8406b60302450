"""The store by itself, without a server around it, so without a peer.

Its loads are `bench.storage` (with a disk) and `bench.storage_index` (the logic, in memory); each
runs in a process of its own, so that one's memory is not the next one's.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from bench.loads import FULL, Numbers, Run, Scale
from bench.programs import ROOT, BenchError, Program

STORE_TIMEOUT_S = 300.0


def with_disk(name: str) -> Run:
    """A row of `bench.storage`, in the folder for temporary files."""
    return _figures_of("bench.storage", name, "--dir", tempfile.gettempdir())


def in_memory(name: str) -> Run:
    """A group of `bench.storage_index`."""
    return _figures_of("bench.storage_index", name)


def _figures_of(module: str, *words: str) -> Run:
    def run(program: Program, scale: Scale) -> Numbers:
        small = [] if scale is FULL else ["--small"]
        done = subprocess.run(
            [sys.executable, "-m", module, *words, *small],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=STORE_TIMEOUT_S,
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
