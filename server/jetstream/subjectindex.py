"""Which owner has which subject, found by overlap without looking at all of them.

A tree of tokens. A node is a dictionary from token to what follows: a further node, or the owner
itself where nothing else goes on below, so that 100,000 subjects stay small. The owner of a subject
that ends at a node is kept there under the empty token. No walk is recursive: a subject may have
very many tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar

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
