"""The command line of the benchmarks."""

import argparse
import json
import resource
import sys
from itertools import groupby
from pathlib import Path

from bench import report
from bench.compare import LEFT_OUT, Result, measure, tell
from bench.loads import FULL, LOADGEN, SMOKE
from bench.profile import Profiler
from bench.programs import MARTLET, PEER, ROOT, Program
from bench.rows import ROWS, Row, select

DESCRIPTION = """\
Puts the same loads on Martlet and on the genuine nats-server, in turn, best of three, and prints
one JSON line for each row. Exits 1 when a row missed its goal or could not be measured.
Progress goes to stderr. A row named `core` is the whole group; see --list."""


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m bench",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help="row, measurement, group, or all")
    parser.add_argument("--list", action="store_true", help="list the rows with their goals")
    parser.add_argument("--keep", action="store_true", help="append to docs/benchmarks.{jsonl,md}")
    parser.add_argument("--only", choices=["martlet", "peer"], help="leave the other server out")
    parser.add_argument("--rounds", type=int, help="instead of each measurement's own number")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: does each row run at all")
    parser.add_argument(
        "--profile",
        action="store_true",
        help="one round of one server (--only peer: the peer's) under perf or py-spy;"
        " writes build/prof/ROW.txt and prints its top",
    )
    return parser


def list_rows() -> None:
    for row in ROWS:
        goal = row.goal.text(row.better) if row.goal else ""
        print(f"{row.name:30} {row.group:9} {row.unit:7} {goal:10} {row.about}")


def run(rows: list[Row], programs: list[Program], arguments: argparse.Namespace) -> int:
    scale = SMOKE if arguments.smoke else FULL
    lines: list[report.Line] = []
    unmeasured: list[str] = []
    for measurement, group in groupby(rows, key=lambda row: row.measurement):
        rounds = arguments.rounds or (1 if arguments.smoke else measurement.rounds)
        outcomes = measure(measurement, programs, scale, rounds)
        for row in group:
            result = Result(row, outcomes.get("martlet", LEFT_OUT), outcomes.get("peer", LEFT_OUT))
            lines.append(report.line(result, scale, PEER))
            print(json.dumps(lines[-1]), flush=True)
            if result.unmeasured():
                unmeasured.append(row.name)
    if arguments.keep:
        report.keep(lines)
        tell(f"kept {len(lines)} rows in {report.LINES.relative_to(ROOT)}")
    missed = [line["row"] for line in lines if line["pass"] is False]
    for text, names in (("not measured", unmeasured), ("missed", missed)):
        if names:
            tell(f"{text}: {', '.join(map(str, names))}")
    return 1 if unmeasured or missed else 0


def profile(rows: list[Row], program: Program) -> int:
    for measurement in dict.fromkeys(row.measurement for row in rows):
        profiler = Profiler(ROOT / "build" / "prof" / f"{measurement.name}-{program.name}.txt")
        if reason := profiler.missing() or program.missing():
            tell(reason)
            return 1
        numbers = measurement.run(program.profiled(profiler), FULL)
        print(json.dumps({"measurement": measurement.name, program.name: numbers}))
        print("\n".join(profiler.report.read_text().splitlines()[:25]))
        tell(f"the whole report: {profiler.report.relative_to(ROOT)}")
    return 0


def raise_descriptor_limit() -> None:
    """10,000 connections need as many descriptors in the server, which inherits this limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> int:
    arguments = parser().parse_args()
    if arguments.list:
        list_rows()
        return 0
    if not Path(LOADGEN).exists():
        tell(f"{LOADGEN.relative_to(ROOT)} is missing: run `make loadgen`")
        return 1
    try:
        rows = select(arguments.rows or ["core"])
    except LookupError as error:
        tell(str(error))
        return 2
    raise_descriptor_limit()
    if arguments.profile:
        return profile(rows, PEER if arguments.only == "peer" else MARTLET)
    programs = [p for p in (MARTLET, PEER) if arguments.only in (None, p.name)]
    return run(rows, programs, arguments)


if __name__ == "__main__":
    sys.exit(main())
