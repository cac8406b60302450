"""Every measurement runs, tiny, on every server that is there; the table of rows is sound."""

import importlib.util
import json

import pytest

from bench import report, rows
from bench.compare import LEFT_OUT, Outcome, Result, measure
from bench.loads import LOADGEN, SMOKE
from bench.programs import MARTLET, PEER
from bench.rows import ROWS, Better, Row, absolute, times
from pyspark_jetstream import launcher

MEASUREMENTS = list(dict.fromkeys(row.measurement for row in ROWS))
RUNS = [(m, p) for m in MEASUREMENTS for p in (MARTLET, PEER) if m.has_peer or p is MARTLET]


ON_SPARK = {"analytics_spark", "analytics_beside_spark"}


def why_no_spark():
    """None: it can run here."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed"
    try:
        launcher.find_java()
    except launcher.NoJava as missing:
        return str(missing)
    return None


@pytest.mark.skipif(not LOADGEN.exists(), reason="run `make loadgen`")
@pytest.mark.parametrize(("measurement", "program"), RUNS, ids=lambda each: each.name)
def test_each_row_runs(measurement, program):
    if reason := program.missing():
        pytest.skip(reason)
    if measurement.name in ON_SPARK and (reason := why_no_spark()):
        pytest.skip(reason)
    outcome = measure(measurement, [program], SMOKE, rounds=1)[program.name]
    assert outcome.failed is None
    for row in ROWS:
        if row.measurement is measurement:
            assert outcome.best(row.key, row.better) is not None, row.name


def test_a_row_without_a_peer_is_measured_without_one():
    alone = next(row for row in ROWS if not row.measurement.has_peer)
    result = Result(alone, Outcome(({alone.key: 1.0},)), LEFT_OUT)
    assert not result.unmeasured()
    assert Result(alone, Outcome(failed="lost"), LEFT_OUT).unmeasured()
    with_peer = ROWS[0]
    assert Result(with_peer, Outcome(({with_peer.key: 1.0},)), Outcome()).unmeasured()
    outcome = measure(alone.measurement, [PEER], SMOKE, rounds=1)["peer"]
    assert outcome.skipped == "this row has no peer"


def test_rows_have_names_of_their_own():
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert rows.select(["core"])
    assert [row.name for row in rows.select(["request", "request_p50"])] == [
        "request_p50",
        "request_p99",
        "request_p999",
    ]
    with pytest.raises(LookupError, match="no row is called"):
        rows.select(["nonsense"])


def row_with(better: Better, goal: rows.Goal | None) -> Row:
    return Row("row", "core", MEASUREMENTS[0], "x", "u", better, goal, "about")


@pytest.mark.parametrize(
    ("better", "goal", "martlet", "peer", "passed"),
    [
        (Better.HIGHER, times(4), 40.0, 10.0, True),
        (Better.HIGHER, times(4), 39.0, 10.0, False),
        (Better.LOWER, times(0.9), 9.0, 10.0, True),
        (Better.LOWER, times(0.9), 9.1, 10.0, False),
        (Better.LOWER, absolute(60), 59.0, 10.0, True),
        (Better.LOWER, absolute(60), 61.0, 100.0, False),
        (Better.LOWER, None, 61.0, 100.0, None),
    ],
)
def test_a_goal_judges_the_number_or_the_ratio(better, goal, martlet, peer, passed):
    result = Result(row_with(better, goal), Outcome(({"x": martlet},)), Outcome(({"x": peer},)))
    assert result.passed() is passed


def test_the_best_round_counts_and_a_failure_is_no_pass():
    outcome = Outcome(({"x": 1.0}, {"x": 3.0}, {"x": 2.0}))
    assert outcome.best("x", Better.HIGHER) == 3.0
    assert outcome.best("x", Better.LOWER) == 1.0
    peer = Outcome(({"x": 1.0},))
    row = row_with(Better.HIGHER, times(1))
    assert Result(row, Outcome(failed="lost"), peer).passed() is False
    assert Result(row, Outcome(skipped="not built"), peer).passed() is None


def test_kept_lines_make_a_table_of_the_newest(tmp_path):
    row = ROWS[0]
    jsonl, table = tmp_path / "lines.jsonl", tmp_path / "table.md"
    for rate in (1000.0, 5000.0):
        result = Result(row, Outcome(({row.key: rate},)), Outcome(({row.key: 1000.0},)))
        report.keep([report.line(result, SMOKE, PEER)], jsonl, table)
    assert [json.loads(text)["ratio"] for text in jsonl.read_text().splitlines()] == [1.0, 5.0]
    rendered = table.read_text()
    assert "5,000 msg/s" in rendered
    assert rendered.count(row.name) == 1
