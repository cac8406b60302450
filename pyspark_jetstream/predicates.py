"""Filters that a query engine hands down: taken only when they can be kept exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark_jetstream import subjects
from pyspark_jetstream.subjects import Accepts

Test = tuple[str, tuple[str, ...]]
"""What a column's text must satisfy: (word, values)."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TESTS: dict[str, Callable[[str, tuple[str, ...]], bool]] = {
    "in": lambda text, values: text in values,
    "starts": lambda text, values: text.startswith(values),
    "ends": lambda text, values: text.endswith(values),
    "contains": lambda text, values: any(value in text for value in values),
}


def holds(tests: Sequence[Test], text: str) -> bool:
    return all(TESTS[word](text, values) for word, values in tests)


@dataclass(frozen=True)
class Predicates:
    """Bounds that are met by exactly the rows wanted. Bounds are inclusive."""

    first: int = 0
    last: int = (1 << 63) - 1
    low_ns: int = -(1 << 63)
    high_ns: int = (1 << 63) - 1
    subject: tuple[Test, ...] = ()
    account: tuple[Test, ...] = ()
    stream: tuple[Test, ...] = ()

    def wants_stream(self, account: str, stream: str) -> bool:
        return holds(self.account, account) and holds(self.stream, stream)

    def accepts(self, patterns: Sequence[str]) -> Accepts | None:
        """For the decoder: whether a subject is wanted. None: all are."""
        if not self.subject:
            return subjects.matcher(patterns)

        def as_shown(subject: bytes) -> bool:
            return holds(self.subject, subject.decode("utf-8", "replace"))

        return subjects.both(subjects.matcher(patterns), as_shown)

    def with_test(self, column: str, test: Test) -> Predicates | None:
        if column == "subject":
            return replace(self, subject=(*self.subject, test))
        if column == "account":
            return replace(self, account=(*self.account, test))
        if column == "stream":
            return replace(self, stream=(*self.stream, test))
        return None

    def with_bound(self, column: str, word: str, value: Any) -> Predicates | None:
        """`column word value` with word one of = < <= > >=; None: cannot be kept exactly."""
        number = as_number(column, value)
        if number is None:
            return None
        low = number + (word == ">") if word in ("=", ">", ">=") else None
        high = number - (word == "<") if word in ("=", "<", "<=") else None
        if column in ("seq", "offset"):
            return self._with_seqs(low, high)
        if column == "timestamp":  # a microsecond holds a thousand of ours
            low = None if low is None else low * 1000
            high = None if high is None else high * 1000 + 999
        return self._with_times(low, high)

    def _with_seqs(self, low: int | None, high: int | None) -> Predicates:
        return replace(
            self,
            first=self.first if low is None else max(self.first, low),
            last=self.last if high is None else min(self.last, high),
        )

    def _with_times(self, low: int | None, high: int | None) -> Predicates:
        return replace(
            self,
            low_ns=self.low_ns if low is None else max(self.low_ns, low),
            high_ns=self.high_ns if high is None else min(self.high_ns, high),
        )


def as_number(column: str, value: Any) -> int | None:
    """Sequences and nanoseconds as they are, timestamps in microseconds."""
    if column in ("seq", "offset", "ts_ns"):
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    if column == "timestamp" and isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.astimezone(UTC)
        elapsed = moment - EPOCH
        return (elapsed.days * 86400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds
    return None
