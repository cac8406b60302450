"""One JSON line for a row; a table of the newest kept line of each row."""

import json
import os
import platform
import time
from pathlib import Path

from bench.compare import NOISE_KEY, Outcome, Result, cpu_ns
from bench.loads import Scale
from bench.programs import BIN, ROOT, Program
from bench.rows import ROWS

LINES = ROOT / "docs" / "benchmarks.jsonl"
TABLE = ROOT / "docs" / "benchmarks.md"
Line = dict[str, object]


def machine() -> str:
    model = "unknown processor"
    for text in Path("/proc/cpuinfo").read_text().splitlines():
        if text.startswith("model name"):
            model = text.partition(":")[2].strip()
            break
    return f"{os.cpu_count()} cores, {model}, Linux {platform.release()}"


def build_mode() -> str:
    mode = BIN.parent / "mode"
    return mode.read_text().strip() if mode.exists() else "unknown"


def rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def sides(outcome: Outcome, result: Result) -> list[float | None]:
    return [rounded(value) for value in outcome.values(result.row.key)]


def details(outcome: Outcome, result: Result) -> dict[str, float | None]:
    """All that the generator told of the best round."""
    if not outcome.values(result.row.key):
        return {}
    best = outcome.best_round(result.row.key, result.row.better)
    return {key: rounded(value) for key, value in best.items()}


def noise(result: Result) -> float | None:
    """What other programs took of one core while the best rounds ran, the worse of the two."""
    shares = [
        outcome.best_round(result.row.key, result.row.better).get(NOISE_KEY)
        for outcome in (result.martlet, result.peer)
        if outcome.values(result.row.key)
    ]
    return max((share for share in shares if share is not None), default=None)


def line(result: Result, scale: Scale, peer: Program) -> Line:
    row = result.row
    fields: Line = {
        "row": row.name,
        "martlet": rounded(result.martlet.best(row.key, row.better)),
        "peer": rounded(result.peer.best(row.key, row.better)),
        "ratio": rounded(result.ratio()),
        "goal": row.goal.text(row.better) if row.goal else None,
        "pass": result.passed(),
        "unit": row.unit,
        "martlet_cpu_ns": rounded(cpu_ns(result.martlet)),
        "peer_cpu_ns": rounded(cpu_ns(result.peer)),
        "martlet_rounds": sides(result.martlet, result),
        "peer_rounds": sides(result.peer, result),
        "martlet_best": details(result.martlet, result),
        "peer_best": details(result.peer, result),
        "noise": rounded(noise(result)),
        "machine": machine(),
        "mode": f"{build_mode()}, {scale.name}",
        "peer_version": peer.version() if not peer.missing() else None,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    for name, outcome in (("martlet", result.martlet), ("peer", result.peer)):
        if outcome.skipped:
            fields[f"{name}_skipped"] = outcome.skipped
        if outcome.failed:
            fields[f"{name}_failed"] = outcome.failed
    return fields


def keep(lines: list[Line], jsonl: Path = LINES, table: Path = TABLE) -> None:
    """Appends the lines and writes the table anew."""
    with jsonl.open("a") as file:
        file.writelines(json.dumps(fields) + "\n" for fields in lines)
    newest: dict[object, Line] = {}
    for text in jsonl.read_text().splitlines():
        fields = json.loads(text)
        newest[fields["row"]] = fields
    table.write_text(render(newest))


def render(newest: dict[object, Line]) -> str:
    head = (ROOT / "bench" / "benchmarks.head.md").read_text()
    table = [
        "| Row | What | Martlet | nats-server | Ratio | Goal | | CPU ns | its CPU ns | When |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        fields = newest.get(row.name)
        if fields is None:
            continue
        verdict = {True: "met", False: "**missed**", None: ""}[fields["pass"]]  # type: ignore[index]
        table.append(
            f"| {row.name} | {row.about} | {figure(fields['martlet'])} {row.unit} |"
            f" {figure(fields['peer'])} {row.unit} | {figure(fields['ratio'])} |"
            f" {fields['goal'] or ''} | {verdict} | {figure(fields['martlet_cpu_ns'])} |"
            f" {figure(fields['peer_cpu_ns'])} | {str(fields['at'])[:10]} |"
        )
    machines = sorted({f"{fields['machine']}; {fields['mode']}" for fields in newest.values()})
    return head + "\n".join(table) + "\n\nMeasured on: " + "; ".join(machines) + ".\n"


def figure(value: object) -> str:
    if not isinstance(value, int | float):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
