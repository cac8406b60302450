"""Many spans of a store: what nobody changes is kept in few bits and answers as before."""

from __future__ import annotations

from random import Random

import pytest

from storage._store import StreamStore
from storage.memstore import open_memory_store
from storage.ports import StoreLimits

SPAN = 65536


def filled(subjects: int, count: int, random: Random) -> tuple[StreamStore, dict[int, str]]:
    store, messages = open_memory_store(StoreLimits(allow_ttl=True)), dict[int, str]()
    for number in range(count):
        subject = f"s.{random.randrange(subjects)}"
        ttl_ns = 10**12 if number % 1000 == 0 else 0
        messages[store.store(subject, b"", b"", number, ttl_ns)] = subject
        if number % 7 == 0:
            gone = random.randrange(max(1, number - 3000), number + 2)
            assert store.delete(gone) == (messages.pop(gone, None) is not None)
    return store, messages


def sequence_bytes(store: StreamStore) -> int:
    return store.index_memory_bytes["sequences"]


def compare(store: StreamStore, messages: dict[int, str], random: Random) -> None:
    alive = sorted(messages)
    for _ in range(20):
        seq = random.randrange(store.last_seq + 2)
        subject = f"s.{random.randrange(40)}"
        own = [at for at in alive if messages[at] == subject]
        found = store.load_next(seq, subject)
        assert (found.seq if found else None) == next((at for at in own if at >= seq), None)
        found = store.load_previous(seq, subject)
        assert (found.seq if found else None) == next((a for a in reversed(own) if a <= seq), None)
        assert store.num_pending(seq, [subject, "s.1"]) == sum(
            at >= seq and messages[at] in (subject, "s.1") for at in alive
        )
        loaded = store.load(seq)
        assert (loaded.subject if loaded else None) == messages.get(seq)
    wanted = store.filter([f"s.{number}" for number in range(20)])
    picked = {f"s.{number}" for number in range(20)}
    first = random.randrange(store.last_seq)
    found_seqs, _ = store.next_sequences(wanted, first, store.last_seq, 500)
    assert found_seqs == [at for at in alive if at >= first and messages[at] in picked][:500]


@pytest.mark.parametrize("subjects", [1, 40, 3000])
def test_cold_spans_answer_as_before(subjects: int) -> None:
    random = Random(subjects)
    store, messages = filled(subjects, 7 * SPAN, random)
    # Most spans are cold; the last ones have all their columns.
    assert sequence_bytes(store) < 4.5 * 8 * SPAN
    compare(store, messages, random)
    for seq in random.sample(range(1, store.last_seq), 2000):
        assert store.delete(seq) == (messages.pop(seq, None) is not None)
    compare(store, messages, random)
    again = StreamStore(store.home, store.limits)
    again.restore(store.snapshot())
    assert sequence_bytes(again) < 4.5 * 8 * SPAN
    assert again.state(deleted=True) == store.state(deleted=True)
    assert again.subject_states() == store.subject_states()
    compare(again, messages, random)
    again.truncate(2 * SPAN + 77)
    messages = {seq: subject for seq, subject in messages.items() if seq <= 2 * SPAN + 77}
    messages[again.store("s.1", b"", b"", 1)] = "s.1"
    compare(again, messages, random)
    assert again.messages == len(messages)


def test_subjects_that_do_not_repeat_stay_as_they_are() -> None:
    store = open_memory_store()
    for number in range(4 * SPAN):
        store.store(f"s.{number}", b"", b"", 1)
    assert sequence_bytes(store) >= 4 * 8 * SPAN
    assert store.num_pending(SPAN, "s.*") == 3 * SPAN + 1
