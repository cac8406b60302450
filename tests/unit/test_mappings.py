"""Subject mappings of an account: which destination a subject gets, and how often."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from config.errors import ConfigError
from config.load import load
from config.options import MappedTo, SubjectMapping
from server.core._mappings import Mappings
from server.core.transform import mapping_problem
from tests.unit.config_files import options, write

SEEDS = range(1, 10_000_000_000_000, 2_000_000_000)


def made(source: str, *destinations: tuple[str, int]) -> Mappings:
    mappings = Mappings(None)
    mappings.add(source, {"": destinations})
    return mappings


def shares(mappings: Mappings, subject: bytes) -> dict[bytes | None, int]:
    """In percent, rounded to the next five."""
    found = Counter(mappings.mapped(subject, seed) for seed in SEEDS)
    return {to: 5 * round(20 * count / len(SEEDS)) for to, count in found.items()}


@pytest.mark.feature("3-040")
@pytest.mark.parametrize(
    ("destinations", "expected"),
    [
        ([("b", 100)], {b"b": 100}),
        ([("b", 20), ("c", 50)], {b"b": 20, b"c": 50, b"a": 30}),
        ([("b", 20), ("a", 30)], {b"b": 20, b"a": 30, b"": 50}),
        ([("a", 0)], {b"": 100}),
        ([], {b"a": 100}),
    ],
)
def test_weights(destinations: list[tuple[str, int]], expected: dict[bytes, int]) -> None:
    assert shares(made("a", *destinations), b"a") == expected


@pytest.mark.feature("3-040")
def test_the_first_mapping_that_fits_holds() -> None:
    mappings = made("a.>", ("x.>", 100))
    mappings.add("a.b", {"": [("never", 100)]})
    mappings.add("*.*", {"": [("two.{{wildcard(2)}}.$1", 100)]})
    assert mappings.mapped(b"a.b") == b"x.b"
    assert mappings.mapped(b"b.c") == b"two.c.b"
    assert mappings.mapped(b"b") is None


@pytest.mark.feature("3-040")
def test_destinations_of_other_clusters_are_shown_and_not_used() -> None:
    mappings = Mappings(None)
    mappings.add("a.*", {"east": [("e.$1", 40)]})
    assert mappings.mapped(b"a.b") == b"a.b"
    assert mappings.described == {
        "a.*": [
            {"subject": "a.$1", "weight": 100},
            {"subject": "e.$1", "weight": 40, "cluster": "east"},
            {"subject": "a.$1", "weight": 100, "cluster": "east"},
        ]
    }


@pytest.mark.feature("3-040")
def test_forms_of_a_destination(tmp_path: Path) -> None:
    text = """mappings {
        a: b
        c: { destination: d, weight: "30%" }
        e: [ { dest: f, weight: 10 }, { dest: g, weight: 100, cluster: east } ]
    }"""
    assert options(tmp_path, text).mappings == (
        SubjectMapping("a", (MappedTo("b", 100),)),
        SubjectMapping("c", (MappedTo("d", 30),)),
        SubjectMapping("e", (MappedTo("f", 10), MappedTo("g", 100, "east"))),
    )
    assert options(tmp_path, "accounts { A { maps { a: b } } }").accounts[0].mappings == (
        SubjectMapping("a", (MappedTo("b", 100),)),
    )


@pytest.mark.feature("3-040", "4-053")
@pytest.mark.parametrize(
    ("mapping", "problem"),
    [
        ('"a..b": c', 'Subject "a..b" is not a valid subject'),
        ("a: 5", "expected a map for a mapping's destination, got an integer"),
        ("a: { dest: b }", 'Missing weight for mapping destination "b"'),
        ("a: { dest: b, weight: much }", 'Invalid weight "much" for mapping destination'),
        ("a: { dest: b, weight: 101 }", "Invalid weight 101 for mapping destination"),
        ("a: { dest: b, weight: true }", 'expected 0 to 100, or "30%" for "weight"'),
        ("a: { dset: b, weight: 1 }", 'unknown field "dset"'),
        (
            "a: [ { dest: b, weight: 1 }, { dest: b, weight: 2 } ]",
            'Error adding mapping for "a" : duplicate entry for "b"',
        ),
        (
            "a: [ { dest: b, weight: 60 }, { dest: c, weight: 41 } ]",
            'Error adding mapping for "a" : total weight needs to be <= 100',
        ),
        (
            '"a.*": "b.{{wildcard(2)}}"',
            'Error adding mapping for "a.*" to "b.{{wildcard(2)}}" : invalid mapping destination: '
            "wildcard index out of range",
        ),
        ('"a.*": "b.*"', 'Error adding mapping for "a.*" to "b.*" : invalid subject'),
        ('a: ""', 'Error adding mapping for "a" to "" : invalid mapping destination'),
    ],
)
def test_wrong_mappings_are_refused(tmp_path: Path, mapping: str, problem: str) -> None:
    path = write(tmp_path, f"mappings {{ {mapping} }}")
    with pytest.raises(ConfigError, match=":1:") as caught:
        load(path, {}, {}, mapping_problem)
    assert problem in str(caught.value)
