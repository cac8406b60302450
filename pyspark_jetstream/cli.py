"""`martlet analytics`, `martlet archive`, `martlet export`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

from pyspark_jetstream import options
from pyspark_jetstream.errors import JetStreamError
from pyspark_jetstream.options import Options
from pyspark_jetstream.scan import Tally

COMMANDS = ("analytics", "archive", "export")


def add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", required=True, help="the server's store directory, or an archive's URL or folder"
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the data source, such as streams=ORDERS (docs/analytics.md)",
    )


def asked_of(arguments: argparse.Namespace) -> Options:
    given = {"path": arguments.data}
    for pair in arguments.option:
        name, equals, value = pair.partition("=")
        if not equals:
            raise JetStreamError(f"--option {pair}: NAME=VALUE")
        given[name] = value
    return options.parse(given)


def repeat(work: Callable[[], None], every_s: float | None) -> None:
    """Once, or again and again."""
    while True:
        work()
        if every_s is None:
            return
        time.sleep(every_s)


def say(words: str) -> None:
    print(words, flush=True)


def tell_tally(tally: Tally) -> None:
    if tally.damaged or tally.vanished:
        print(
            f"left out: {tally.damaged} that did not hold, {tally.vanished} blocks that were gone",
            file=sys.stderr,
        )
    for note in tally.notes:
        print(f"  {note}", file=sys.stderr)
    tally.notes.clear()


def run_export(arguments: argparse.Namespace) -> int:
    from pyspark_jetstream import export

    tally = Tally()

    def work() -> None:
        sink = export.SINKS[arguments.kind]
        added = sink(asked_of(arguments), arguments.out, say, tally)
        say(f"{added:,} rows added to {arguments.out}")
        tell_tally(tally)

    repeat(work, arguments.every)
    return 1 if tally.damaged else 0


def run_archive(arguments: argparse.Namespace) -> int:
    from pyspark_jetstream.archive import Uploader

    uploader = Uploader(arguments.data, arguments.to, follow=arguments.follow)
    damaged = 0

    def work() -> None:
        nonlocal damaged
        report = uploader.run()
        say(
            f"{report.sent} blocks sent ({report.sent_bytes:,} bytes), {report.kept} unchanged, "
            f"{report.found} found there, {report.removed} removed"
        )
        for words in report.damaged:
            print(f"not archived: {words}", file=sys.stderr)
        damaged += len(report.damaged)

    repeat(work, arguments.every)
    return 1 if damaged else 0


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="martlet", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    export = commands.add_parser("export", help="tables of messages, exactly once, without a JVM")
    export.add_argument("kind", choices=("parquet", "iceberg", "delta"))
    add_source(export)
    export.add_argument("--out", required=True, help="the folder of the tables")
    export.add_argument("--every", type=float, metavar="SECONDS", help="run on and on")
    export.set_defaults(run=run_export)
    archive = commands.add_parser("archive", help="copy sealed blocks to an object store")
    archive.add_argument("--data", required=True, help="the server's store directory")
    archive.add_argument("--to", required=True, help="s3://..., gs://..., az://... or a folder")
    archive.add_argument(
        "--follow", action="store_true", help="remove what the server's limits dropped"
    )
    archive.add_argument("--every", type=float, metavar="SECONDS", help="run on and on")
    archive.set_defaults(run=run_archive)
    return parser


def main(words: Sequence[str] | None = None) -> int:
    arguments = build_parser().parse_args(words)
    try:
        status: int = arguments.run(arguments)
    except JetStreamError as error:
        print(f"martlet {arguments.command}: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        print(
            f"martlet {arguments.command}: {error}; pip install 'martlet[analytics]'",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
