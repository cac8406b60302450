"""Subject rules in Python against the definition: the set of literals that a subject names."""

from __future__ import annotations

from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.core import subject as rules
from server.core._sublist import Sublist
from tests.property.oracles import sublist as twin

# The third letter is in no pattern: it stands for every token that is not spelled out.
named = lru_cache(maxsize=None)(lambda pattern: twin.named_by(pattern, "xyz", 4))

tokens = st.sampled_from(["x", "y", "*"])
patterns = st.builds(
    lambda head, last: ".".join([*head, last]),
    st.lists(tokens, max_size=2),
    st.sampled_from(["x", "y", "*", ">"]),
)
texts = st.text(alphabet="ab.*> \t\0éA", max_size=8)


@pytest.mark.feature("1-060")
@settings(max_examples=300)
@given(patterns, patterns)
def test_overlap_and_subset_are_those_of_the_sets_named(one: str, other: str) -> None:
    assert rules.overlaps(one, other) == bool(named(one) & named(other))
    assert rules.overlaps(other, one) == rules.overlaps(one, other)
    assert rules.is_subset(one, other) == (named(one) <= named(other))


@pytest.mark.feature("1-060")
@settings(max_examples=300)
@given(st.lists(st.sampled_from("xy"), min_size=1, max_size=4), patterns)
def test_a_message_reaches_what_names_its_subject(literal: list[str], pattern: str) -> None:
    assert rules.matches(".".join(literal), pattern) == twin.matches(".".join(literal), pattern)


@pytest.mark.feature("1-060", "1-063")
@settings(max_examples=500)
@given(texts)
def test_validity_is_that_of_the_tokens(text: str) -> None:
    blank = any(sign in text for sign in " \t\n\r\f\0")
    assert rules.is_valid_subject(text) == (twin.valid(text) and not blank)
    wild = any(token in ("*", ">") for token in text.split("."))
    assert rules.is_valid_literal(text) == (rules.is_valid_subject(text) and not wild)
    if rules.is_valid_subject(text):
        assert rules.has_wildcards(text) == wild


@settings(max_examples=500)
@given(texts)
def test_the_trie_takes_what_is_valid_but_for_blanks(text: str) -> None:
    trie = Sublist()
    try:
        held = trie.add(text.encode())
    except ValueError:
        held = None
    assert (held is not None) == twin.valid(text)


@pytest.mark.parametrize(
    ("subject", "valid", "literal"),
    [
        ("a", True, True),
        ("a.b.c", True, True),
        ("*", True, False),
        (">", True, False),
        ("a.*.c", True, False),
        ("a.>", True, False),
        ("a*.b", True, True),
        ("a.b>", True, True),
        ("a.**", True, True),
        ("", False, False),
        (".", False, False),
        ("a.", False, False),
        (".a", False, False),
        ("a..b", False, False),
        ("a.>.b", False, False),
        (">.a", False, False),
        ("a b", False, False),
        ("a.\tb", False, False),
        ("größe.ß", True, True),
    ],
)
@pytest.mark.feature("1-060")
def test_validity_by_example(subject: str, valid: bool, literal: bool) -> None:
    assert rules.is_valid_subject(subject) is valid
    assert rules.is_valid_literal(subject) is literal
