"""`martlet analytics`, `martlet archive`, `martlet export`."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark_jetstream.errors import JetStreamError
from pyspark_jetstream.modest import be_modest
from pyspark_jetstream.trouble import is_ours, words_of

EVERY_MAX_S = 1_000_000

# Without pyarrow, as in the server's image, these cannot be imported, and `main` is to say so.
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_jetstream.options import Options
    from pyspark_jetstream.scan import Tally


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


def given_options(pairs: Sequence[str]) -> dict[str, str]:
    given = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise JetStreamError(f"--option {pair}: NAME=VALUE")
        given[name] = value
    return given


def asked_for_tables(arguments: argparse.Namespace) -> Options:
    from pyspark_jetstream import options

    given = given_options(arguments.option)
    options.check_for_tables(given)
    return options.parse({**given, "path": arguments.data})


def repeat(work: Callable[[], None], every_s: float | None) -> None:
    """Once, or again and again.

    When it went once, a network or disk that fails is told, and tried again: what was asked for
    can be done. What this package refuses itself ends it.
    """
    went = False
    while True:
        try:
            work()
            went = True
        except Exception as error:
            words = words_of(error)
            if not went or every_s is None or words is None or is_ours(error):
                raise
            print(f"{words}; next try in {every_s:g} s", file=sys.stderr, flush=True)
        if every_s is None:
            return
        time.sleep(every_s)


def say(words: str) -> None:
    print(words, flush=True)


def tell_tally(tally: Tally) -> None:
    if tally.notes:
        print(tally.words(), file=sys.stderr, flush=True)
    tally.notes.clear()


def run_export(arguments: argparse.Namespace) -> int:
    from pyspark_jetstream import export
    from pyspark_jetstream.scan import Tally

    tally = Tally()

    def work() -> None:
        sink = export.SINKS[arguments.kind]
        added = sink(asked_for_tables(arguments), arguments.out, say, tally)
        say(f"{added:,} rows added to {arguments.out}")
        tell_tally(tally)

    repeat(work, arguments.every)
    return 1 if tally.damaged else 0


def verify_archive(arguments: argparse.Namespace) -> int:
    from pyspark_jetstream.verify import verify

    found = verify(arguments.to)
    say(f"{found.objects} objects ({found.bytes:,} bytes) read, {len(found.wrong)} wrong")
    for words in found.wrong:
        print(words, file=sys.stderr)
    return 1 if found.wrong else 0


def run_archive(arguments: argparse.Namespace) -> int:
    if arguments.verify:
        return verify_archive(arguments)
    from pyspark_jetstream.archive import Uploader
    from pyspark_jetstream.claim import new_token

    uploader: Uploader | None = None
    token, damaged = new_token(), 0

    def work() -> None:
        nonlocal damaged, uploader
        # One that failed is not used again: it may know of objects that were never put.
        used, uploader = uploader, None
        follow = arguments.follow
        used = used or Uploader(arguments.data, arguments.to, follow=follow, token=token)
        report = used.run()
        uploader = used
        say(
            f"{report.sent} blocks sent ({report.sent_bytes:,} bytes), {report.kept} unchanged, "
            f"{report.found} found there, {report.removed} removed"
        )
        if not (report.sent or report.kept or report.found or report.damaged):
            say("nothing is sealed yet: a stream's last block goes to the archive once it is full")
        for words in report.damaged:
            print(f"not archived: {words}", file=sys.stderr)
        damaged += len(report.damaged)

    repeat(work, arguments.every)
    return 1 if damaged else 0


# -- values on the command line --------------------------------------------------------------------


def count(words: str) -> int:
    number = int(words)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{words}: at least 1")
    return number


def seconds(words: str) -> float:
    number = float(words)
    if not 0 <= number <= EVERY_MAX_S:
        raise argparse.ArgumentTypeError(f"{words}: from 0 to {EVERY_MAX_S}")
    return number


def memory(words: str) -> str:
    if not re.fullmatch(r"[1-9]\d*[mg]", words, re.IGNORECASE):
        raise argparse.ArgumentTypeError(f"{words}: an amount like 512m or 2g")
    return words


# -- analytics -------------------------------------------------------------------------------------


def spark_session(arguments: argparse.Namespace, more: dict[str, str]) -> SparkSession:
    from pyspark_jetstream import launcher

    java = launcher.find_java(arguments.java_home)
    return launcher.session(
        java, master=f"local[{arguments.cores}]", memory=arguments.memory, settings=more
    )


def run_job(arguments: argparse.Namespace) -> int:
    """Interrupted or killed at any moment it goes on where the tables end."""
    from pyspark_jetstream import job
    from pyspark_jetstream.scan import Tally
    from pyspark_jetstream.tables import Tables

    asked, tally = asked_for_tables(arguments), Tally()
    every = None if arguments.once else arguments.every

    def sample(tables: Tables) -> None:
        if not arguments.monitor:
            return
        now = datetime.now(UTC)
        try:
            samples = job.consumer_samples(arguments.monitor, int(now.timestamp() * 1_000_000))
        except JetStreamError as error:
            if every is None:
                raise
            # The server may be restarting: its tables are kept all the same.
            print(f"no sample of the consumers: {error}", file=sys.stderr, flush=True)
            return
        job.add_samples(tables, samples, now.date().isoformat())

    def between(tables: Tables) -> None:
        sample(tables)
        tell_tally(tally)

    def work() -> None:
        job.run_plain(asked, arguments.out, say, tally)
        with Tables(arguments.out) as tables:
            between(tables)

    if arguments.engine == "plain":
        repeat(work, every)
    else:
        try:
            spark = spark_session(arguments, job.SPARK_SETTINGS)
        except JetStreamError as error:
            raise JetStreamError(f"{error}; --engine plain needs neither Spark nor Java") from error
        job.run_spark(asked, arguments.out, say, spark, every, between, tally)
    return 1 if tally.damaged else 0


def seconds_of(words: str) -> float:
    """A time like 2026-11-18 or 2026-11-18T12:00, in UTC unless it says otherwise."""
    try:
        moment = datetime.fromisoformat(words)
    except ValueError:
        raise JetStreamError(f"{words!r} is no time like 2026-11-18 or 2026-11-18T12:00") from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def run_report(arguments: argparse.Namespace) -> int:
    from pyspark_jetstream import reports, show
    from pyspark_jetstream.objects import local_folder
    from pyspark_jetstream.tables import PLACE

    asked = reports.Asked(
        streams=tuple(arguments.stream),
        since_s=seconds_of(arguments.since) if arguments.since else None,
        until_s=seconds_of(arguments.until) if arguments.until else None,
        depth=arguments.depth,
        bucket_s=arguments.bucket,
        top=arguments.top,
    )
    if asked.since_s is not None and asked.until_s is not None and asked.since_s >= asked.until_s:
        raise JetStreamError(
            f"--since {arguments.since} is not before --until {arguments.until}: no time is between"
        )
    report = reports.make(local_folder(arguments.tables, PLACE), asked, time.time())
    if arguments.json:
        say(json.dumps(asdict(report), indent=2))
    else:
        say(show.as_text(report))
    if arguments.html:
        Path(arguments.html).write_text(show.as_page(report))
        print(f"page written to {arguments.html}", file=sys.stderr)
    return 0


def run_sql(arguments: argparse.Namespace) -> int:
    """Views: `messages` over the tables, or straight over the blocks with --data."""
    return sql_over_data(arguments) if arguments.data else sql_over_tables(arguments)


def sql_over_data(arguments: argparse.Namespace) -> int:
    from pyspark_jetstream import options

    given = {"includeHeaders": "true", **given_options(arguments.option)}
    options.check_for_batch(options.parse({**given, "path": arguments.data}))
    spark = spark_session(arguments, {})
    reader = spark.read.format("jetstream").options(**given)
    reader.load(arguments.data).createOrReplaceTempView("messages")
    return show_query(spark, arguments)


def sql_over_tables(arguments: argparse.Namespace) -> int:
    from pyspark_jetstream import job, tables
    from pyspark_jetstream.objects import local_folder

    root = local_folder(arguments.tables, tables.PLACE)
    tables.check_tables(root)
    with tables.held_files(root) as found:
        spark = spark_session(arguments, {})
        job.show_tables(spark, found)
        return show_query(spark, arguments)


def show_query(spark: SparkSession, arguments: argparse.Namespace) -> int:
    rows = spark.sql(arguments.query)
    if arguments.json:
        for row in rows.toJSON().toLocalIterator():
            say(str(row))
    else:
        rows.show(arguments.rows, truncate=80)
    spark.stop()
    return 0


def run_package(arguments: argparse.Namespace) -> int:
    from pyspark_jetstream import packed

    count = packed.write_zip(Path(arguments.zip))
    say(f"{count} files in {arguments.zip}: spark-submit --py-files {arguments.zip}")
    return 0


def add_spark(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--java-home", help="a Java 17 or newer, instead of JAVA_HOME and PATH")
    parser.add_argument("--cores", type=count, default=1, help="how many tasks at once")
    parser.add_argument("--memory", type=memory, default="1g", help="the JVM's heap")


def add_analytics(commands: Any) -> None:
    analytics = commands.add_parser("analytics", help="tables, reports and SQL beside a server")
    tasks = analytics.add_subparsers(dest="task", required=True)
    run = tasks.add_parser("run", help="keep Parquet tables up to date")
    add_source(run)
    run.add_argument("--out", required=True, help="the folder of the tables")
    run.add_argument("--once", action="store_true", help="up to what is there now, then end")
    run.add_argument(
        "--every", type=seconds, default=60.0, metavar="SECONDS",
        help="the pause between two rounds (60)",
    )  # fmt: skip
    run.add_argument(
        "--engine", choices=("spark", "plain"), default="spark",
        help="spark (Java 17 or newer) or plain, which needs no JVM; the tables are the same",
    )  # fmt: skip
    run.add_argument("--monitor", metavar="URL", help="the server's monitoring, for consumer lag")
    add_spark(run)
    run.set_defaults(run=run_job)
    report = tasks.add_parser("report", help="volume, sizes, gaps, duplicates, lag")
    report.add_argument("tables", help="the folder that `run` or `export parquet` keeps")
    report.add_argument("--stream", action="append", default=[], help="STREAM or ACCOUNT/STREAM")
    report.add_argument("--since", help="2026-11-18 or 2026-11-18T12:00 (UTC)")
    report.add_argument("--until", help="the time that is just too late")
    report.add_argument("--depth", type=count, default=2, help="tokens of a subject's pattern")
    report.add_argument("--bucket", type=count, metavar="SECONDS", help="width of a point in time")
    report.add_argument("--top", type=count, default=20, help="how many lines a list may have")
    report.add_argument("--json", action="store_true", help="for programs")
    report.add_argument("--html", metavar="FILE", help="also as a page with plots")
    report.set_defaults(run=run_report)
    package = tasks.add_parser("package", help="the data source as a zip for --py-files")
    package.add_argument("zip", help="the file to write, such as jetstream.zip")
    package.set_defaults(run=run_package)
    sql = tasks.add_parser("sql", help="a query of your own over `messages`")
    sql.add_argument("query", help="SELECT ... FROM messages (with --tables also consumers)")
    sql.add_argument("--tables", help="the folder that `run` or `export parquet` keeps")
    sql.add_argument("--data", help="a store directory or archive, read as it is now")
    sql.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE",
        help="with --data an option of the data source, such as subject=orders.>",
    )  # fmt: skip
    sql.add_argument("--rows", type=count, default=100, help="how many to show")
    sql.add_argument("--json", action="store_true", help="one JSON object a line, all rows")
    add_spark(sql)
    sql.set_defaults(run=run_sql)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="martlet", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    export = commands.add_parser("export", help="tables of messages, exactly once, without a JVM")
    export.add_argument(
        "kind", choices=("parquet", "iceberg", "delta"),
        help="parquet: what `analytics report` and `sql` read",
    )  # fmt: skip
    add_source(export)
    export.add_argument("--out", required=True, help="the folder of the tables")
    export.add_argument("--every", type=seconds, metavar="SECONDS", help="run on and on")
    export.set_defaults(run=run_export)
    archive = commands.add_parser("archive", help="copy sealed blocks to an object store")
    archive.add_argument("--data", help="the server's store directory")
    archive.add_argument("--to", required=True, help="s3://..., gs://..., az://... or a folder")
    archive.add_argument(
        "--follow", action="store_true", help="remove what the server's limits dropped"
    )
    archive.add_argument("--every", type=seconds, metavar="SECONDS", help="run on and on")
    archive.add_argument(
        "--verify", action="store_true",
        help="send nothing: read all objects and compare them with their digests",
    )  # fmt: skip
    archive.set_defaults(run=run_archive)
    add_analytics(commands)
    return parser


def main(words: Sequence[str] | None = None, *, modest: bool = False) -> int:
    """`modest`: the process takes only what others, such as a server, leave of the machine."""
    if modest:
        be_modest()
    parser = build_parser()
    arguments = parser.parse_args(words)
    if getattr(arguments, "task", "") == "sql":
        if bool(arguments.data) == bool(arguments.tables):
            parser.error("give --tables or --data")
        if arguments.tables and arguments.option:
            parser.error("--option is for --data: what the tables hold was chosen when they grew")
    if arguments.command == "archive":
        sends = [arguments.data, arguments.follow or None, arguments.every]
        if arguments.verify and any(one is not None for one in sends):
            parser.error("--verify goes with --to alone")
        if not arguments.verify and not arguments.data:
            parser.error("archive needs --data (or --verify)")
    try:
        status: int = arguments.run(arguments)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our lines has gone
        sys.stdout = None
        return 0
    except Exception as error:
        words = words_of(error)
        if words is None:
            raise
        print(f"martlet {arguments.command}: {words}", file=sys.stderr)
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
