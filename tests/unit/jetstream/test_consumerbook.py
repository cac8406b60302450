"""The consumers' book: what comes back, what is forgotten, who waits until something is durable."""

from __future__ import annotations

from server.core._turn import Turn
from server.jetstream._commit import LocalCommit, Writer
from server.jetstream.consumer_config import ConsumerConfig
from server.jetstream.consumerbook import ConsumerBook, key_of
from storage._store import StreamStore
from storage.memstore import open_memory_store


class Commits(LocalCommit):
    def __init__(self) -> None:
        super().__init__(Turn())
        self.marked: list[Writer] = []

    def dirty(self, writer: Writer) -> None:
        self.marked.append(writer)


def opened(store: StreamStore) -> ConsumerBook:
    """The book as after a restart: it has what the store has."""
    return ConsumerBook(lambda: store, store)


def names(book: ConsumerBook, stream: str = "S") -> list[str]:
    return [kept.name for kept in book.of_stream("A", stream)]


def test_configurations_come_back() -> None:
    store = open_memory_store()
    book = opened(store)
    config = ConsumerConfig(durable_name="C", backoff=[1, 2], metadata={"k": "é"})
    book.save("A", "S", "C", config, 7)
    book.save("A", "T", "D", ConsumerConfig(), 8)
    book.save("A", "S", "C", ConsumerConfig(durable_name="C", description="new"), 7)
    book.save("A", "S", "E", config, 9)
    book.remove("A", "S", ["E", "unknown"])
    again = opened(store)
    (kept,) = again.of_stream("A", "S")
    assert (kept.name, kept.created_ns, kept.config.description) == ("C", 7, "new")
    assert names(again, "T") == ["D"]
    assert again.of_stream("B", "S") == []


def test_what_says_nothing_any_more_goes() -> None:
    store = open_memory_store()
    book = opened(store)
    for number in range(200):
        book.save("A", "S", "C", ConsumerConfig(description=str(number)), 1)
    assert store.messages == 1
    assert [kept.config.description for kept in opened(store).of_stream("A", "S")] == ["199"]


def test_states_are_told_once_and_strays_go() -> None:
    store = open_memory_store()
    book = opened(store)
    mine, other = key_of("A.B", "S", "C"), key_of("A.B", "S", "D")
    sequences = book.write(mine, [b"1", b"2"]) + book.write(mine, [b"3"])
    book.write(other, [b"x"])
    book.forget(sequences[:1])
    again = opened(store)
    assert [record for _, record in again.state(mine)] == [b"2", b"3"]
    assert again.state(mine) == []
    again.drop_strays()
    assert [store.load(seq) is not None for seq in (2, 3, 4)] == [True, True, False]


def test_who_asks_is_called_when_all_is_durable() -> None:
    store, commits, called = open_memory_store(), Commits(), list[str]()
    book = opened(store)
    book.when_durable(lambda: called.append("nothing to wait for"))
    book.attach(commits)
    book.write("k", [b"1"])
    book.when_durable(lambda: called.append("first"))
    book.write("k", [b"2"])
    book.when_durable(lambda: called.append("second"))
    assert commits.marked == [book]
    assert book.release(1)
    assert called == ["nothing to wait for", "first"]
    assert not book.release(2)
    assert called[-1] == "second"
