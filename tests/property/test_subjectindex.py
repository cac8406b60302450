"""The index of subjects against looking at every one of them."""

from hypothesis import given
from hypothesis import strategies as st

from server.core.subject import overlaps
from server.jetstream.subjectindex import SubjectIndex

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
