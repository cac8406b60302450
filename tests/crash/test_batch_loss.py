"""Power goes while a whole is on its way to the disk: all of it is there, or what it replaced.

A whole here is every key of a store written once, over blocks, frames and segments; each key keeps
its newest message only.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from storage._store import StreamStore
from storage.filestore import FileStores
from storage.ports import StoreLimits
from tests.crash.faulty import FaultyFiles
from tests.crash.workload import TINY, synced_ticket
from tests.sim.world import SimWorld

KEYS = [f"k.{number}" for number in range(12)]
LIMITS = StoreLimits(messages_per_subject_max=1)
ROUNDS = 14


def opened(path: Path, files: FaultyFiles | None, durable: bool) -> FileStores:
    return FileStores(
        path, lambda settings: LIMITS, files=files, threaded=False, durable=durable, **TINY
    )


def write_whole(store: StreamStore, other: StreamStore, number: int, rng: random.Random) -> None:
    """A whole under `number`; sometimes another store writes in between."""
    store.begin_whole()
    for key in KEYS:
        store.store(key, b"", b"%d " % number + rng.randbytes(rng.choice((10, 300, 3000))), 1)
        if rng.random() < 0.2:
            other.store("x", b"", rng.randbytes(100), 1)
    store.end_whole()


def numbers_of(store: StreamStore) -> list[int]:
    """The whole that each key is of; 0 before the first."""
    while not store.enforce():
        pass
    found = [store.load_last(key) for key in KEYS]
    return [int(each.payload.split()[0]) if each is not None else 0 for each in found]


def run(path: Path, files: FaultyFiles, seed: int, durable: bool) -> tuple[int, int]:
    """The last whole that is durable for certain, the last one that was begun."""
    rng = random.Random(seed)
    waiting: list[tuple[int, int]] = []
    acked = tried = 0
    stores = None
    try:
        stores = opened(path, files, durable)
        store, other = (stores.create({"name": name}) for name in ("one", "two"))
        for tried in range(1, ROUNDS + 1):
            if rng.random() < 0.4:
                store.store("single", b"", b"before", 1)
            write_whole(store, other, tried, rng)
            waiting.append((stores.commit(), tried))
            ticket = stores.poll()
            ticket = ticket if durable else synced_ticket(stores.directory, rng)
            while waiting and waiting[0][0] <= ticket:
                acked = waiting.pop(0)[1]
            if stores.directory.failure:
                break
    except OSError:
        pass
    finally:
        if stores is not None:
            stores.close(clean=False)
    return acked, tried


def check(path: Path, acked: int, tried: int, where: str, durable: bool) -> None:
    """Twice: the second time sees what the first recovery wrote, and one more whole."""
    for attempt in (1, 2):
        stores = opened(path, None, durable)
        try:
            assert stores.directory.damage == [], where
            if 1 not in stores.stores:
                assert acked == 0, where
                return
            store = stores.stores[1]
            found = numbers_of(store)
            assert len(set(found)) == 1, f"{where}, open {attempt}: {found}"
            assert acked <= found[0] <= tried, f"{where}, open {attempt}: {acked} {found[0]}"
            acked = tried = found[0] + 1
            write_whole(store, stores.stores.get(2, store), tried, random.Random(attempt))
            stores.wait(stores.commit())
        finally:
            stores.close(clean=attempt == 2)


@pytest.mark.feature("3.042", "3.044", "9.024")
@pytest.mark.parametrize("durable", [True, False], ids=["always", "lazy"])
@pytest.mark.parametrize("seed", range(3))
def test_power_loss_leaves_all_of_a_whole_or_nothing(
    tmp_path: Path, seed: int, durable: bool
) -> None:
    probe = FaultyFiles()
    with patch("os.urandom", random.Random(seed).randbytes):
        acked, tried = run(tmp_path / "whole", probe, seed, durable)
        probe.release()
        check(tmp_path / "whole", acked, tried, f"seed {seed}, no crash", durable)
    for stop_at in range(1 + seed, probe.syncs + 1, 5):
        files = FaultyFiles(stop_at=stop_at)
        path = tmp_path / f"stop {stop_at}"
        with patch("os.urandom", random.Random(f"{seed} {stop_at}").randbytes):
            acked, tried = run(path, files, seed, durable)
            files.crash(random.Random(seed * 1000 + stop_at))
            check(path, acked, tried, f"seed {seed}, sync {stop_at}", durable)


def cut_log(path: Path, size_bytes: int) -> bool:
    """Zeros from there on, as in a log that was not written further; whether that changed it."""
    segments = sorted((path / "log").glob("*.seg"))
    assert len(segments) == 1
    content = segments[0].read_bytes()
    segments[0].write_bytes(content[:size_bytes] + bytes(len(content) - size_bytes))
    return any(content[size_bytes:])


SIZES: dict[str, Any] = {"segment_size": 16 << 20, "block_size_max": 1 << 20}


@pytest.mark.feature("3.044")
def test_a_large_whole_that_the_log_has_in_part(tmp_path: Path) -> None:
    """Several MiB, wherever the log ends: killed between two pieces that the disk was given."""
    for at in range(100_000, 6 << 20, 400_000):
        path = tmp_path / str(at)
        stores = FileStores(path, lambda settings: LIMITS, threaded=False, **SIZES)
        store = stores.create({"name": "one"})
        store.store("k.1", b"", b"before", 1)
        stores.wait(stores.commit())
        store.begin_whole()
        for number in range(40):
            store.store(f"k.{number}", b"", b"w" * 100_000, 1)
        store.end_whole()
        stores.commit()
        stores.close(clean=False)
        for blocks in path.glob("streams/*/*.blk"):
            blocks.unlink()  # nothing reaches them before the log has all
        was_cut = cut_log(path, at)
        stores = FileStores(path, lambda settings: LIMITS, threaded=False, **SIZES)
        found = stores.stores[1].load_last("k.1")
        assert found is not None
        assert (found.payload == b"before", stores.stores[1].last_seq) == (
            (True, 1) if was_cut else (False, 41)
        ), at
        stores.close()


def test_a_group_whose_whole_was_taken_back_goes_on(tmp_path: Path) -> None:
    """What was stored before it failed comes back from the log no more; the next messages do."""
    stores = FileStores(tmp_path, threaded=False, **TINY)
    store = stores.create({"name": "one"})
    store.store("a", b"", b"1", 1)
    store.begin_whole()
    for _ in range(20):
        store.store("a", b"", b"x" * 1000, 1)
    store.truncate(1)
    store.end_whole()
    store.store("a", b"", b"2", 1)
    stores.wait(stores.commit())
    stores.close(clean=False)
    stores = FileStores(tmp_path, threaded=False, **TINY)
    again = stores.stores[1]
    assert [again.load(seq).payload for seq in (1, 2)] == [b"1", b"2"]  # type: ignore[union-attr]
    assert again.last_seq == 2
    stores.close()


def batch(size: int) -> Iterator[bytes]:
    """The lines of an atomic batch of large messages, one for each key."""
    for number in range(1, size + 1):
        commit = "Nats-Batch-Commit: 1\r\n" if number == size else ""
        block = (
            f"NATS/1.0\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: {number}\r\n{commit}\r\n"
        ).encode()
        sizes = f"{len(block)} {len(block) + 60_000}"
        yield f"HPUB s.{number} r.1 {sizes}\r\n".encode() + block + b"z" * 60_000 + b"\r\n"


@pytest.mark.feature("3.042", "3.044")
@pytest.mark.parametrize("part", [0.3, 0.6, 0.95, 1])
def test_a_server_killed_within_a_commit_has_the_messages_of_before(
    tmp_path: Path, part: float
) -> None:
    world = SimWorld(tmp_path)
    config = {"name": "S", "subjects": ["s.>"], "max_msgs_per_subject": 1, "allow_atomic": True}
    world.ask("STREAM.CREATE.S", config)
    for number in range(1, 31):
        world.publish(f"s.{number}", b"before")
    world.settle()
    (segment,) = (tmp_path / "data" / "log").glob("*.seg")
    begun = len(segment.read_bytes().rstrip(b"\0"))
    world.say_many(b"".join(batch(30)))
    world.settle()
    ended = len(segment.read_bytes().rstrip(b"\0"))
    shutil.copytree(tmp_path, tmp_path / "killed")
    world.close()
    for blocks in (tmp_path / "killed").glob("data/streams/*/*.blk"):
        blocks.unlink()  # nothing reaches them before the log has all
    cut_log(tmp_path / "killed" / "data", begun + int((ended - begun) * part))
    again = SimWorld(tmp_path / "killed")
    store = again.stream().store
    found = [store.load_last(f"s.{number}") for number in range(1, 31)]
    sizes = [len(message.payload) for message in found if message is not None]
    assert sizes == [60_000 if part == 1 else len(b"before")] * 30
    again.publish("s.1", b"after", reply="r.2")
    again.settle()
    assert store.last_seq == (61 if part == 1 else 31)
    again.close()
