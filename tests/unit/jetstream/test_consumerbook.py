"""The journal of consumers' configurations: what comes back, and what a crash may leave behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.jetstream import consumerbook
from server.jetstream.consumer_config import ConsumerConfig
from server.jetstream.consumerbook import ConsumerBook


def opened(path: Path) -> ConsumerBook:
    return ConsumerBook(path / "consumers.jsonl", durable=True)


def names(book: ConsumerBook, stream: str = "S") -> list[str]:
    return [kept.name for kept in book.of_stream("A", stream)]


def test_comes_back(tmp_path: Path) -> None:
    book = opened(tmp_path)
    config = ConsumerConfig(durable_name="C", backoff=[1, 2], metadata={"k": "é"})
    book.save("A", "S", "C", config, 7)
    book.save("A", "T", "D", ConsumerConfig(), 8)
    book.save("A", "S", "C", ConsumerConfig(durable_name="C", description="new"), 7)
    book.save("A", "S", "E", config, 9)
    book.remove("A", "S", ["E", "unknown"])
    book.close()
    again = opened(tmp_path)
    (kept,) = again.of_stream("A", "S")
    assert (kept.name, kept.created_ns, kept.config.description) == ("C", 7, "new")
    assert names(again, "T") == ["D"]
    assert again.of_stream("B", "S") == []
    again.close()


def test_half_a_line_was_never_answered(tmp_path: Path) -> None:
    book = opened(tmp_path)
    book.save("A", "S", "C", ConsumerConfig(), 1)
    book.close()
    path = tmp_path / "consumers.jsonl"
    path.write_bytes(path.read_bytes() + b'{"account":"A","str')
    again = opened(tmp_path)
    again.save("A", "S", "D", ConsumerConfig(), 2)
    again.close()
    last = opened(tmp_path)
    assert names(last) == ["C", "D"]
    last.close()


def test_dead_lines_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumerbook, "DEAD_LINES_MAX", 10)
    book = opened(tmp_path)
    for number in range(200):
        book.save("A", "S", "C", ConsumerConfig(description=str(number)), 1)
    assert len((tmp_path / "consumers.jsonl").read_bytes().splitlines()) < 20
    assert [kept.config.description for kept in book.of_stream("A", "S")] == ["199"]
    book.close()
