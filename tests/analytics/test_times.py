"""A range of time reads the part of a block that may hold it, in whatever order times are."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from pyspark_jetstream import reading, scan
from pyspark_jetstream.archive import Uploader
from pyspark_jetstream.blockfile import Block, LocalSource
from pyspark_jetstream.options import Options
from storage._store import StreamStore
from storage.filestore import FileStores
from storage.keys import ServerKeys
from tests.analytics.stores import live, parsed, settings, settle

MS_NS = 1_000_000
BASE_MS = 1_700_000_000_000
COUNT = 6000
SIZES: dict[str, Any] = {
    "threaded": False,
    "block_size_min": 64 << 10,
    "block_size_max": 256 << 10,
    "segment_size": 1 << 20,
}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "compressed": {"codec_of": lambda settings: "zstd"},
    "encrypted": {"keys": ServerKeys("the key")},
    "both": {"codec_of": lambda settings: "zstd", "keys": ServerKeys("the key")},
}


def fill(store: StreamStore, jitter_ms: int) -> None:
    """One message a millisecond, give or take; some deleted, erased, or never there."""
    rng = random.Random(1)
    while store.last_seq < COUNT:
        at = store.last_seq + 1
        now = (BASE_MS + at + rng.randint(0, jitter_ms)) * MS_NS
        if at % 700 == 0:
            store.skip(300, now)
        else:
            store.store(f"a.{at % 7}", b"", rng.randbytes(60) * 2, now)
    store.delete_many(range(1000, 1100))
    for seq in (2500, 2501, 4000):
        store.delete(seq, erase=True)


@pytest.fixture(params=KINDS)
def stores(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MARTLET_ENCRYPTION_KEY", "the key")
    made = FileStores(tmp_path / "data", **SIZES, **KINDS[request.param])
    yield made
    made.close()


def settled(stores: FileStores) -> None:
    settle(stores)
    stores.directory.wait_rewritten()
    settle(stores)


def asked(place: Path | str, first_ms: int, end_ms: int) -> Options:
    low, high = str(BASE_MS + first_ms), str(BASE_MS + end_ms)
    return parsed(place, columns="seq", startingTimestamp=low, endingTimestamp=high)


def found(place: Path | str, first_ms: int, end_ms: int) -> tuple[list[int], int]:
    """Sequences within the range, and how many bytes were read for them."""
    tally = scan.Tally()
    table = reading.read_table(asked(place, first_ms, end_ms), tally)
    return table.column("seq").to_pylist(), tally.bytes_read


Times = list[tuple[int, int]]


def times(store: StreamStore) -> Times:
    return [(seq, ts_ns) for seq, _, ts_ns, *_ in live(store)]


def wanted(rows: Times, first_ms: int, end_ms: int) -> list[int]:
    low, high = (BASE_MS + first_ms) * MS_NS, (BASE_MS + end_ms) * MS_NS
    return [seq for seq, ts_ns in rows if low <= ts_ns < high]


@pytest.mark.parametrize("jitter_ms", [0, 40, 3000])
def test_every_range_is_exact(tmp_path: Path, stores: FileStores, jitter_ms: int) -> None:
    store = stores.create(settings("S"))
    fill(store, jitter_ms)
    settled(stores)
    rows = times(store)
    ranges = [(0, 1), (1000, 1100), (2450, 2550), (0, COUNT + jitter_ms + 1), (COUNT, COUNT + 5)]
    rng = random.Random(2)
    for _ in range(25):
        first = rng.randint(0, COUNT)
        ranges.append((first, first + rng.choice((1, 10, 300, 2000))))
    for span in ranges:
        assert found(tmp_path, *span)[0] == wanted(rows, *span), span


def test_little_more_is_read_than_was_asked_for(tmp_path: Path, stores: FileStores) -> None:
    store = stores.create(settings("S"))
    fill(store, 0)
    settled(stores)
    largest = max(path.stat().st_size for path in tmp_path.rglob("*.blk"))
    seqs, size = found(tmp_path, 3200, 3210)
    assert seqs == list(range(3200, 3210))
    # 10 of about 1,200 messages: the footer, 1 or 2 runs of 256 slots, whole frames around them.
    assert size < largest * 0.75


def test_compaction_and_archives_keep_the_times(tmp_path: Path, stores: FileStores) -> None:
    store = stores.create(settings("S"))
    fill(store, 40)
    settled(stores)
    for home in stores.directory.homes.values():
        stores.directory.checkpoint_now(home, False)
    rng = random.Random(3)
    store.delete_many(sorted(rng.sample(range(1, 5000), 3500)))
    settled(stores)
    for _ in range(30):
        stores.directory.maintain()
        settled(stores)
    (view,) = reading.open_store(parsed(tmp_path)).views(lambda account, stream: True)
    assert any(block.messages < 900 for block in view.blocks if block.sealed), "none was compacted"
    rows = times(store)
    Uploader(str(tmp_path), f"file://{tmp_path}/archive").run()
    sealed = max(block.last_seq for block in view.blocks if block.sealed)
    for first in range(0, COUNT, 450):
        span = (first, first + 100)
        assert found(tmp_path, *span)[0] == wanted(rows, *span), span
        archived = [seq for seq in wanted(rows, *span) if seq <= sealed]
        assert found(f"file://{tmp_path}/archive", *span)[0] == archived, span


def test_a_block_without_times_is_read_as_before(
    tmp_path: Path, stores: FileStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.create(settings("S"))
    fill(store, 40)
    settled(stores)
    asked_before = found(tmp_path, 3200, 3210)
    monkeypatch.setattr("pyspark_jetstream.blockfile.FOOTER_TIMES", 1 << 30)
    asked_now = found(tmp_path, 3200, 3210)
    assert asked_now[0] == asked_before[0] == wanted(times(store), 3200, 3210)
    assert asked_now[1] > asked_before[1]


def test_damage_within_the_range_is_told(tmp_path: Path) -> None:
    stores = FileStores(tmp_path / "data", **SIZES)
    store = stores.create(settings("S"))
    fill(store, 0)
    settled(stores)
    (view,) = reading.open_store(parsed(tmp_path)).views(lambda account, stream: True)
    block = next(one for one in view.blocks if one.first_seq <= 3205 <= one.last_seq)
    with Block(LocalSource(block.location), view.salt, view.group) as opened:
        index = opened.index()
    assert index is not None
    path, at = Path(block.location), index.offset_from(3205)
    assert at is not None
    content = bytearray(path.read_bytes())
    content[at + 50] ^= 1
    path.write_bytes(content)
    with pytest.raises(Exception, match=f"at byte {at}: the checksum of the record"):
        found(tmp_path, 3200, 3210)
    stores.close()
