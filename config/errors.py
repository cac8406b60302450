"""What is wrong with a configuration, and where. Texts never contain secrets."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

_SURROGATES: Final = ("\udc80", "\udcff")


class Source:
    """One configuration text. Positions are computed only when somebody asks."""

    __slots__ = ("name", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text

    def position(self, offset: int) -> tuple[int, int]:
        """Line from 1 and column in bytes: from 0 on the first line and from 1 on the others.

        The uneven start is the reference's, and other people's tools read these positions.
        """
        line = self.text.count("\n", 0, offset) + 1
        start = max(self.text.rfind("\n", 0, offset), 0)
        return line, len(self.text[start:offset].encode("utf-8", "surrogateescape"))


class Problem(Struct, frozen=True):
    """One error or warning; `source` is None when it concerns no place in a file."""

    text: str
    source: Source | None = None
    offset: int = 0

    def __str__(self) -> str:
        if self.source is None:
            return self.text
        line, column = self.source.position(self.offset)
        return f"{self.source.name}:{line}:{column}: {self.text}"


class ConfigError(Exception):
    """Everything wrong with a configuration, in the order of the file; printed a line each."""

    def __init__(self, problems: list[Problem], warnings: list[Problem] | None = None) -> None:
        super().__init__(problems)
        self.problems = problems
        self.warnings = warnings or []

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in [*self.warnings, *self.problems])


def is_text(value: str) -> bool:
    """False if bytes that are not UTF-8 hide in it."""
    return value.isascii() or not any(_SURROGATES[0] <= char <= _SURROGATES[1] for char in value)
