"""The index of subjects against looking at every one of them."""

from hypothesis import given
from hypothesis import strategies as st

from server.core.subject import is_subset, overlaps
from server.jetstream.subjectindex import SubjectIndex, any_covered, any_overlap, first_overlap

TOKENS = st.sampled_from(["a", "b", "*"])
SUBJECTS = st.builds(
    lambda tokens, last: ".".join([*tokens, last]),
    st.lists(TOKENS, max_size=3),
    st.sampled_from(["a", "b", "*", ">"]),
)


@given(st.lists(SUBJECTS, max_size=12), st.lists(SUBJECTS, max_size=6), SUBJECTS)
def test_the_index_finds_what_a_look_at_all_finds(
    added: list[str], removed: list[str], asked: str
) -> None:
    index: SubjectIndex[str] = SubjectIndex()
    known: set[str] = set()
    for subject in added:
        index.add(subject, subject)
        known.add(subject)
    for subject in removed:
        if subject in known:
            index.remove(subject)
            known.discard(subject)
    wanted = {subject for subject in known if overlaps(subject, asked)}
    assert set(index.overlapping(asked)) == wanted
    for subject in known:
        index.remove(subject)
    assert not index._root


def test_a_subject_of_very_many_tokens_is_walked_without_recursion() -> None:
    index: SubjectIndex[str] = SubjectIndex()
    deep = ".".join(["a"] * 50_000)
    index.add(deep, "deep")
    index.add("a", "short")
    assert list(index.overlapping(deep)) == ["deep"]
    assert set(index.overlapping(">")) == {"deep", "short"}
    index.remove(deep)
    assert list(index.overlapping(">")) == ["short"]


@given(st.lists(SUBJECTS, max_size=12), SUBJECTS)
def test_what_covers_a_subject(added: list[str], asked: str) -> None:
    index: SubjectIndex[str] = SubjectIndex()
    for subject in added:
        index.add(subject, subject)
    assert set(index.covering(asked)) == {each for each in added if is_subset(asked, each)}


@given(st.lists(SUBJECTS, max_size=8))
def test_lists_are_compared_as_pair_by_pair(subjects: list[str]) -> None:
    pairs = [
        (at, other)
        for at in range(len(subjects))
        for other in range(at + 1, len(subjects))
        if overlaps(subjects[at], subjects[other])
    ]
    assert first_overlap(subjects) == (pairs[0] if pairs else None)
    assert any_overlap(subjects) == bool(pairs)
    assert any_covered(subjects) == any(
        is_subset(one, other)
        for at, one in enumerate(subjects)
        for other_at, other in enumerate(subjects)
        if at != other_at
    )
