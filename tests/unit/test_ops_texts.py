from collections.abc import Callable

import pytest

from server.ops import arguments, timetext

SECOND = timetext.NS_PER_S


@pytest.mark.parametrize(
    ("unix_ns", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_500_000_000 * SECOND + 120_000_000, "2017-07-14T02:40:00.12Z"),
        (1_500_000_000 * SECOND + 1, "2017-07-14T02:40:00.000000001Z"),
    ],
)
def test_rfc3339(unix_ns: int, text: str) -> None:
    assert timetext.rfc3339(unix_ns) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59, "59s"),
        (61, "1m1s"),
        (3_600, "1h0m0s"),
        (86_400 + 2 * 3_600 + 183, "1d2h3m3s"),
        (366 * 86_400, "1y1d0h0m0s"),
    ],
)
def test_uptime(seconds: int, text: str) -> None:
    assert timetext.uptime(seconds * SECOND) == text


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0s"),
        (3, "3ns"),
        (17_000, "17µs"),
        (17_050, "17.05µs"),
        (2_500_000, "2.5ms"),
        (SECOND, "1s"),
        (90 * SECOND, "1m30s"),
        (3_600 * SECOND, "1h0m0s"),
        (3_723_500_000_000, "1h2m3.5s"),
        (-1_500_000, "-1.5ms"),
    ],
)
def test_duration_reads_like_go(duration_ns: int, text: str) -> None:
    assert timetext.duration(duration_ns) == text


@pytest.mark.feature("5-004")
@pytest.mark.parametrize(
    ("read", "text", "kind", "function", "why"),
    [
        (arguments.boolean, "2", "boolean", "ParseBool", "invalid syntax"),
        (arguments.integer, "a", "int", "Atoi", "invalid syntax"),
        (arguments.integer, "9" * 20, "int", "Atoi", "value out of range"),
        (arguments.unsigned, "-1", "uint64", "ParseUint", "invalid syntax"),
    ],
)
def test_a_bad_argument_is_refused_in_the_references_words(
    read: Callable[[dict[str, str], str], object], text: str, kind: str, function: str, why: str
) -> None:
    with pytest.raises(arguments.BadArgument) as refused:
        read({"x": text}, "x")
    assert (
        str(refused.value)
        == f"Error decoding {kind} for 'x': strconv.{function}: parsing \"{text}\": {why}"
    )


def test_absent_arguments_are_zero() -> None:
    assert arguments.boolean({}, "x") is False
    assert arguments.integer({"x": ""}, "x") == 0
    assert arguments.unsigned({}, "x") == 0
    assert arguments.integer({"x": "-5"}, "x") == -5
