"""Which owner has which subject, found by overlap without looking at all of them.

A tree of tokens. A node is a dictionary from token to what follows: a further node, or the owner
itself where nothing else goes on below, so that 100,000 subjects stay small. The owner of a subject
that ends at a node is kept there under the empty token. No walk is recursive: a subject may have
very many tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

from server.core.subject import has_wildcards

Owner = TypeVar("Owner")
Node = dict[str, Any]
END: Final = ""


class SubjectIndex(Generic[Owner]):
    """One owner for each subject; adding a subject again replaces its owner."""

    def __init__(self) -> None:
        self._root: Node = {}

    def add(self, subject: str, owner: Owner) -> None:
        node = self._root
        *path, last = subject.split(".")
        for token in path:
            below = node.get(token)
            if not isinstance(below, dict):
                below = node[token] = {} if below is None else {END: below}
            node = below
        below = node.get(last)
        if isinstance(below, dict):
            below[END] = owner
        else:
            node[last] = owner

    def remove(self, subject: str) -> None:
        """Forgets a subject that is there."""
        node = self._root
        way: list[tuple[Node, str]] = []
        for token in subject.split("."):
            way.append((node, token))
            below = node[token]
            node = below if isinstance(below, dict) else {}
        parent, token = way.pop()
        if isinstance(parent[token], dict):
            way.append((parent, token))
            parent, token = parent[token], END
        del parent[token]
        while way and not parent:
            parent, token = way.pop()
            del parent[token]

    def overlapping(self, subject: str) -> Iterator[Owner]:
        """The owner of each subject that shares one with `subject`; an owner may come again."""
        tokens = subject.split(".")
        waiting: list[tuple[Any, int]] = [(self._root, 0)]
        while waiting:
            node, at = waiting.pop()
            if not isinstance(node, dict):
                if at == len(tokens):
                    yield node
                continue
            if at == len(tokens):
                if END in node:
                    yield node[END]
                continue
            token = tokens[at]
            if token == ">":
                yield from below(node)
                continue
            if ">" in node:
                yield from everything(node[">"])
            if token == "*":
                waiting += [(n, at + 1) for key, n in node.items() if key not in (END, ">")]
            else:
                waiting += [(node[key], at + 1) for key in (token, "*") if key in node]

    def covering(self, subject: str) -> Iterator[Owner]:
        """The owner of each subject that names all that `subject` names."""
        tokens = subject.split(".")
        waiting: list[tuple[Any, int]] = [(self._root, 0)]
        while waiting:
            node, at = waiting.pop()
            if not isinstance(node, dict):
                if at == len(tokens):
                    yield node
                continue
            if at == len(tokens):
                if END in node:
                    yield node[END]
                continue
            if ">" in node:
                yield from everything(node[">"])
            if tokens[at] != ">":
                keys = {tokens[at], "*"}
                waiting += [(node[key], at + 1) for key in keys if key in node]


def any_overlap(subjects: Sequence[str]) -> bool:
    """Whether two of them name a subject that is the same; all must be valid.

    Only wildcards are in the index: to find what overlaps with a wildcard among many literals
    would look at all of them.
    """
    if len(set(subjects)) < len(subjects):
        return True
    wildcards: SubjectIndex[str] = SubjectIndex()
    for subject in subjects:
        if has_wildcards(subject):
            wildcards.add(subject, subject)
    return any(
        found != subject
        for subject in subjects
        for found in (
            wildcards.overlapping(subject)
            if has_wildcards(subject)
            else wildcards.covering(subject)
        )
    )


def first_overlap(subjects: Sequence[str]) -> tuple[int, int] | None:
    """The place of the first that overlaps with a later one, and of the first such one."""
    if not any_overlap(subjects):
        return None
    places: dict[str, list[int]] = {}
    for at, subject in enumerate(subjects):
        places.setdefault(subject, []).append(at)
    index: SubjectIndex[list[int]] = SubjectIndex()
    for subject, own in places.items():
        index.add(subject, own)
    for at, subject in enumerate(subjects):
        later = [place for own in index.overlapping(subject) for place in own if place > at]
        if later:
            return at, min(later)
    return None


def any_covered(subjects: Sequence[str]) -> bool:
    """Whether one of them names nothing that another does not name, too; all must be valid."""
    if len(set(subjects)) < len(subjects):
        return True
    index: SubjectIndex[str] = SubjectIndex()
    for subject in subjects:
        index.add(subject, subject)
    return any(found != subject for subject in subjects for found in index.covering(subject))


def below(node: Node) -> Iterator[Any]:
    """Owners of what has at least one token more than `node`."""
    for key, child in node.items():
        if key != END:
            yield from everything(child)


def everything(node: Any) -> Iterator[Any]:
    waiting = [node]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            waiting.extend(found.values())
        else:
            yield found
