"""A transform on the data path says what `SubjectTransform` says, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.core._subjectplan import SubjectPlan
from server.core.transform import SubjectTransform, TransformError

LITERALS = ("a", "bb", "c-c-c", "äö", "\udcff\udcc3x", "x" * 300)
TOKENS = st.sampled_from(LITERALS)
SOURCES = st.lists(st.sampled_from([*LITERALS[:2], "*", "*", "*"]), min_size=1, max_size=4)
FUNCTIONS = (
    "$1",
    "$2",
    "$0",
    "{{wildcard(3)}}",
    "{{partition(7,1)}}",
    "{{partition(10,2,1)}}",
    "{{partition(1000000007)}}",
    "{{partition(0,1)}}",
    "{{splitFromLeft(1,1)}}",
    "{{sliceFromRight(1,2)}}",
    "{{split(1,-)}}",
    "{{left(2,1)}}",
    "plain",
)
TARGETS = st.lists(st.sampled_from(FUNCTIONS), min_size=1, max_size=5)
SUBJECTS = st.lists(st.one_of(TOKENS, st.sampled_from(["a", "*", ">", ""])), max_size=6)


@pytest.mark.feature("4-050", "4-051", "4-052", "4-055")
@given(SOURCES, TARGETS, st.booleans(), st.lists(SUBJECTS, max_size=8))
def test_the_plan_maps_as_the_transform(
    source: list[str], target: list[str], is_open_ended: bool, subjects: list[list[str]]
) -> None:
    rest = [">"] if is_open_ended else []
    try:
        transform = SubjectTransform(".".join(source + rest), ".".join(target + rest))
    except TransformError:
        return
    plan = SubjectPlan(transform)
    for tokens in [*subjects, source, [*source, "more"]]:
        subject = ".".join(tokens)
        expected = transform.apply(subject)
        found = plan.mapped(subject.encode("utf-8", "surrogateescape"))
        told = None if found is None else found.decode("utf-8", "surrogateescape")
        assert told == expected, (transform.source, transform.destination, subject)


@pytest.mark.feature("4-052")
def test_what_is_random_is_asked_for_each_time() -> None:
    numbers = iter(range(100))
    transform = SubjectTransform("*", "x.{{random(7)}}.$1", random_below=lambda _: next(numbers))
    plan = SubjectPlan(transform)
    assert [plan.mapped(b"a") for _ in range(3)] == [b"x.0.a", b"x.1.a", b"x.2.a"]


def test_many_subjects_are_not_kept_for_ever() -> None:
    plan = SubjectPlan(SubjectTransform("*", "{{left(1,3)}}"))
    for number in range(10_000):
        assert plan.mapped(b"%05d" % number) == b"%03d" % (number // 100)
    assert plan.mapped(b"00000") == b"000"
