"""The file store as a whole: the same answers as memory, before and after a stop."""

import random
from pathlib import Path
from typing import Any

import pytest

from storage._store import StreamStore
from storage.filestore import FileStores
from storage.memstore import open_memory_store
from storage.ports import StoreLimits

SIZES: dict[str, Any] = {"threaded": False, "block_size_min": 1024, "block_size_max": 8192}


def one_step(stores: tuple[StreamStore, ...], rng: random.Random, now: int) -> None:
    """The same change to every store; they must answer the same."""
    kind, seed = rng.random(), rng.random()
    answers = []
    for store in stores:
        pick = random.Random(seed)
        seq = pick.randint(max(store.first_seq, 1), max(store.last_seq, 1) + 1)
        if kind < 0.75:
            subject = f"a.{pick.randint(0, 20)}.b"
            answers.append(store.store(subject, b"", pick.randbytes(pick.randint(0, 60)), now))
        elif kind < 0.85:
            answers.append(store.delete(seq, pick.random() < 0.3))
        elif kind < 0.90:
            answers.append(store.skip(pick.randint(1, 5), now))
        elif kind < 0.95:
            answers.append(store.purge(f"a.{pick.randint(0, 20)}.*"))
        else:
            answers.append(store.purge(None, min(seq, store.first_seq + 5)))
    assert len(set(answers)) == 1


def same(left: StreamStore, right: StreamStore) -> None:
    names = ("messages", "first_seq", "last_seq", "subject_count")
    assert {n: getattr(left, n) for n in names} == {n: getattr(right, n) for n in names}
    for seq in range(left.first_seq, left.last_seq + 1):
        assert left.load(seq) == right.load(seq)
    assert left.subject_totals("a.*.b") == right.subject_totals("a.*.b")
    assert left.load_last("a.7.b") == right.load_last("a.7.b")


@pytest.mark.feature("9.018")
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_a_reopened_file_store_answers_as_memory(tmp_path: Path, clean: bool, seed: int) -> None:
    rng = random.Random(seed)
    limits = StoreLimits(messages_max=300)
    memory = open_memory_store(limits)
    for life in range(3):
        files = FileStores(tmp_path, lambda settings: limits, **SIZES)
        store = files.stores[1] if files.stores else files.create({"name": "s"})
        same(store, memory)
        for step in range(200):
            one_step((store, memory), rng, life * 1000 + step)
            if rng.random() < 0.3:
                files.commit()
            if rng.random() < 0.3:
                files.poll()
        same(store, memory)
        files.wait(files.commit())
        files.close(clean)


def test_first_sequence_is_kept(tmp_path: Path) -> None:
    files = FileStores(tmp_path, **SIZES)
    files.create({"name": "s"}, first_seq=1000)
    files.wait(files.commit())
    files.close()
    files = FileStores(tmp_path, **SIZES)
    assert files.stores[1].store("s", b"", b"", 1) == 1000
    files.close()


def test_file_counts_what_the_reference_counts(tmp_path: Path) -> None:
    files = FileStores(tmp_path, **SIZES)
    store = files.create({"name": "s"})
    store.store("abc", b"", b"12345", 1)
    assert store.bytes == 30 + 3 + 5
    store.store("abc", b"NATS/1.0\r\n\r\n", b"12345", 1)
    assert store.bytes == 2 * (30 + 3 + 5) + 4 + 12
    files.close()


@pytest.mark.parametrize("damaged", [None, b"", b"no"])
def test_without_states_and_log_messages_come_from_the_blocks(
    tmp_path: Path, damaged: bytes | None
) -> None:
    files = FileStores(tmp_path, **SIZES)
    store = files.create({"name": "s"})
    for number in range(300):
        store.store("a", b"", b"%d" % number, number)
    files.wait(files.commit())
    files.close(clean=False)
    FileStores(tmp_path, **SIZES).close(clean=False)  # the log is empty from here on
    for state in tmp_path.glob("streams/*/state.?"):
        state.unlink()
        if damaged is not None:
            state.write_bytes(damaged)
    for life in range(2):
        files = FileStores(tmp_path, **SIZES)
        store = files.stores[1]
        assert [store.load(seq).payload for seq in (1, 150, 300)] == [b"0", b"149", b"299"]
        assert store.messages == store.last_seq == 300
        told = files.directory.homes[1].damage
        assert any("read again from the blocks" in text for text in told) == (life == 0)
        files.close()
