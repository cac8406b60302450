"""The report's figures, counted once more by hand; its page; the command."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_jetstream import cli, duplicates, export, job, reports, show, tables
from pyspark_jetstream.errors import JetStreamError
from storage.filestore import FileStores
from tests.analytics.stores import SMALL_BLOCKS, parsed, settings, settle

HOUR_NS = 3_600_000_000_000
START_NS = 1_700_000_000_000_000_000 // HOUR_NS * HOUR_NS


def silent(words: str) -> None:
    pass


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """240 orders in four hours, some deleted, one id twice; 60 lines of another stream."""
    folder = tmp_path_factory.mktemp("reports")
    stores = FileStores(folder / "data", **SMALL_BLOCKS)
    orders, lines = stores.create(settings("ORDERS")), stores.create(settings("LINES", "PLANT"))
    for at in range(1, 241):
        header = b"NATS/1.0\r\nNats-Msg-Id: o%d\r\n\r\n" % (100 if at == 200 else at)
        subject = f"orders.{'eu' if at % 3 else 'us'}.{at % 5}.new"
        orders.store(subject, header, b"x" * (at % 10 + 1), START_NS + at * HOUR_NS // 60)
    for at in range(60):
        lines.store("line<1>", b"", b"", START_NS + at * HOUR_NS // 60)
    orders.delete_many([50, 51, 52, 60])
    settle(stores)
    out = folder / "out"
    export.to_parquet(parsed(folder), str(out), silent)
    stores.close()
    return out


def test_figures(root: Path) -> None:
    report = reports.make(root, reports.Asked(bucket_s=3600), now_s=0)
    assert (report.messages, report.bytes) == (296, sum(at % 10 + 1 for at in range(1, 241)) - 7)
    assert [(row["stream"], row["messages"]) for row in report.streams] == [
        ("$G/ORDERS", 236),
        ("PLANT/LINES", 60),
    ]
    volume = {(row["pattern"], (row["time"] * 10**9 - START_NS) // HOUR_NS): row["messages"]
              for row in report.volume}  # fmt: skip
    assert volume["orders.eu.>", 1] == 40
    assert volume["orders.us.>", 0] == 18
    assert volume["line<1>", 0] == 60
    assert report.size_percentiles == {"p50": 4, "p90": 9, "p99": 10, "max": 10}
    assert sum(row["messages"] for row in report.sizes) == 296
    assert [(gap["first"], gap["last"]) for gap in report.gaps] == [(50, 52), (60, 60)]
    assert (report.gap_count, report.gap_sequences) == (2, 4)
    assert [(row["msg_id"], row["count"]) for row in report.duplicates] == [("o100", 2)]


def test_times_and_streams_cut(root: Path) -> None:
    since = START_NS / 1e9 + 3600
    asked = reports.Asked(streams=("ORDERS",), since_s=since, until_s=since + 3600)
    report = reports.make(root, asked, now_s=0)
    assert [row["stream"] for row in report.streams] == ["$G/ORDERS"]
    assert report.messages == 60 - 1
    empty = reports.make(root, reports.Asked(since_s=since + 90_000), now_s=0)
    assert "no messages" in show.as_text(empty)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)


def test_the_page_has_plots_and_no_foreign_markup(root: Path) -> None:
    report = reports.make(root, reports.Asked(), now_s=0)
    page = show.as_page(report)
    tags = Tags()
    tags.feed(page)
    assert tags.seen.count("svg") == 3
    assert tags.seen.count("polyline") == 6
    assert "line<1>" not in page
    assert "line&lt;1&gt;" in page


def test_lines_of_one_moment_are_columns_side_by_side() -> None:
    """As dots they would lie upon each other."""
    chart = show.figure("rates", {"a.*": [(1700000000.0, 5.0)], "<b>": [(1700000000.0, 5.0)]})
    tags = Tags()
    tags.feed(chart)
    assert (tags.seen.count("rect"), tags.seen.count("polyline")) == (2, 0)
    assert len(set(re.findall(r"<rect x=([\d.]+)", chart))) == 2
    assert "rates, at 2023-11-14 22:13:20" in chart
    assert "&lt;b&gt;" in chart


def test_axes_are_round_and_labels_do_not_touch() -> None:
    assert [show.nice(top) for top in (0.03, 0.7, 7, 101, 1070)] == [0.05, 1, 10, 200, 2000]
    ticks = [show.amount(show.nice(1_500_000, in_bytes=True) * at / 4) for at in range(5)]
    assert ticks == ["0 B", "512 KiB", "1 MiB", "1.5 MiB", "2 MiB"]
    rows = [{"up_to": 1 << power, "messages": 1} for power in range(2, 24)]
    places = [float(x) for x in re.findall(r"<text x=([\d.]+) y=228", show.bars("sizes", rows))]
    assert min(b - a for a, b in itertools.pairwise(places)) >= show.LABEL_WIDTH


def test_batches_that_overlap_make_no_gaps() -> None:
    arrays = [
        pa.array([*range(1, 101), *range(300, 401)]),
        pa.array(range(101, 290)),
        pa.array([7]),
    ]
    (gap,) = reports.gaps_of("S", reports.disjoint(arrays))
    assert (gap.first, gap.last) == (290, 299)


def test_too_many_points_are_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "POINTS_MAX", 1000)
    with pytest.raises(JetStreamError, match="--bucket 1 makes more than"):
        reports.make(root, reports.Asked(bucket_s=1), now_s=0)


def test_consumers_lag_over_time(root: Path, tmp_path: Path) -> None:
    with tables.Tables(str(root)) as open_tables:
        for at, pending in enumerate((5, 9, 2)):
            sample = {
                "time": START_NS // 1000 + at * 60_000_000,
                "account": "$G",
                "stream": "ORDERS",
                "consumer": "billing",
                "pending": pending,
                "ack_pending": 1,
                "delivered_seq": 10,
                "ack_floor_seq": 9,
            }
            job.add_samples(open_tables, [sample], "2023-11-14")
    report = reports.make(root, reports.Asked(), now_s=0)
    assert [row["pending"] for row in report.lag] == [5, 9, 2]
    assert "ORDERS > billing" in show.as_text(report)
    assert "Messages pending for consumers" in show.as_page(report)


def test_the_command(root: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = ["analytics", "report", str(root), "--json", "--html", str(page), "--stream", "LINES"]
    done = subprocess.run(
        [sys.executable, "-m", "pyspark_jetstream.cli", *words],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["messages"] == 60
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["export", "parquet", "--data", "/nowhere", "--out", "x"], "no Martlet data directory"),
        (["export", "parquet", "--data", ".", "--option", "a=b", "--out", "x"], "unknown option"),
        (["analytics", "report", "/nowhere"], "has no tables yet"),
        (["analytics", "report", ".", "--since", "soon"], "no time like"),
    ],
)
def test_what_cannot_be_done_is_said(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 1
    assert says in capsys.readouterr().err


def test_one_message_has_no_rate_of_a_billion(tmp_path: Path) -> None:
    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    stores.create(settings("S")).store("a", b"", b"x", START_NS)
    settle(stores)
    export.to_parquet(parsed(tmp_path), str(tmp_path / "out"), silent)
    stores.close()
    report = reports.make(tmp_path / "out", reports.Asked(), now_s=0)
    assert [row["per_second"] for row in report.top_subjects] == [1]


def samples(*rows: tuple[int, str, str]) -> list[dict[str, Any]]:
    """(second, account, stream)"""
    return [
        {
            "time": START_NS // 1000 + second * 1_000_000,
            "account": account,
            "stream": stream,
            "consumer": "c",
            "pending": second,
            "ack_pending": 0,
            "delivered_seq": 0,
            "ack_floor_seq": 0,
        }
        for second, account, stream in rows
    ]


def test_lag_is_of_the_streams_and_times_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = [(at * 60, account, name) for at in range(100)
              for account, name in (("$G", "A"), ("$G", "B"), ("X", "A"))]  # fmt: skip
    with tables.Tables(str(tmp_path)) as open_tables:
        job.add_samples(open_tables, samples(*rounds), "2023-11-14")

    def lag(**asked: Any) -> list[tuple[str, int]]:
        report = reports.make(tmp_path, reports.Asked(**asked), now_s=0)
        assert report.messages == 0
        return [(row["consumer"], row["pending"]) for row in report.lag]

    start = START_NS / 1e9
    assert len(lag()) == 300
    assert {name for name, _ in lag(streams=("A",))} == {"A > c", "X/A > c"}
    assert {name for name, _ in lag(streams=("X/A", "B"))} == {"X/A > c", "B > c"}
    cut = lag(streams=("B",), since_s=start + 120, until_s=start + 300)
    assert cut == [("B > c", 120), ("B > c", 180), ("B > c", 240)]
    assert lag(since_s=start + 10 * 86_400) == []
    monkeypatch.setattr(reports, "LAG_POINTS_MAX", 30)
    few = [pending for name, pending in lag() if name == "B > c"]
    assert few == [60 * at for at in range(9, 100, 10)]


def test_groups_are_merged_again_when_they_have_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "GROUPS_MAX", 10)
    sums, merges = reports.Sums(["subject"]), []
    real = sums.table
    monkeypatch.setattr(sums, "table", lambda: merges.append(1) or real())
    for at in range(100):
        sums.add(pa.table({"subject": [f"s{at}.{each}" for each in range(10)], "size": [1] * 10}))
    assert 4 <= len(merges) <= 10
    assert real().num_rows == 1000


@pytest.mark.parametrize("at_once", [duplicates.IDS_AT_ONCE, 50])
def test_duplicates_of_more_ids_than_fit(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "IDS_AT_ONCE", at_once)
    with duplicates.Duplicates(1000) as found:
        for stream in ("A", "B"):
            for first in range(0, 500, 100):
                numbers = range(first, first + 120)  # 20 of them again in the next batch
                ids = [None if number % 10 == 9 else f"id{number}" for number in numbers]
                found.add(stream, pa.table({"msg_id": ids, "ts_ns": numbers}))
        count, rows = found.most(3)
    assert count == 2 * 4 * 18
    assert [(row["msg_id"], row["count"], row["first_ns"]) for row in rows] == [
        ("id100", 2, 100), ("id100", 2, 100), ("id101", 2, 101),
    ]  # fmt: skip


def test_no_ids_are_no_duplicates() -> None:
    with duplicates.Duplicates(0) as found:
        found.add("S", pa.table({"msg_id": pa.array([None], pa.string()), "ts_ns": [1]}))
        assert found.most(5) == (0, [])
