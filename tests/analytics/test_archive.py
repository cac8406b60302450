"""The uploader sends each sealed block once; an archive holds what was in the blocks."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_jetstream import archive, export, plan, reading, scan
from pyspark_jetstream.archive import Uploader
from pyspark_jetstream.claim import Claim
from pyspark_jetstream.directory import Directory
from pyspark_jetstream.errors import BlockDamaged, DataLoss, JetStreamError, NotUsable
from pyspark_jetstream.objects import Folder, ObjectSource
from pyspark_jetstream.options import Options
from pyspark_jetstream.view import StreamView
from storage._store import StreamStore
from storage.filestore import FileStores
from storage.keys import ServerKeys
from tests.analytics.pauses import instead_of_pauses
from tests.analytics.stores import SMALL_BLOCKS, checkpoint, live, parsed, settings, settle

SECOND_NS = 1_000_000_000
START_NS = 1_700_000_000 * SECOND_NS


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[FileStores]:
    made = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    yield made
    made.close()


@pytest.fixture
def store(stores: FileStores) -> StreamStore:
    made = stores.create(settings("S"))
    fill(made, 2000)
    settle(stores)
    return made


def fill(store: StreamStore, count: int) -> None:
    for _ in range(count):
        at = store.last_seq + 1
        store.store(f"a.{at // 500}", b"", b"p%d" % at, START_NS + at * SECOND_NS)


def sealed_through(path: Path) -> int:
    (view,) = reading.open_store(parsed(path)).views(lambda account, stream: True)
    return max(block.last_seq for block in view.blocks if block.sealed)


def seqs(place: Path, **more: str) -> list[int]:
    found: list[int] = reading.read_table(parsed(place, **more)).column("seq").to_pylist()
    return found


def test_each_sealed_block_is_sent_once(
    tmp_path: Path, stores: FileStores, store: StreamStore
) -> None:
    target = tmp_path / "archive"
    first = Uploader(str(tmp_path), str(target)).run()
    assert first.sent > 5
    assert first.damaged == []
    end = sealed_through(tmp_path)
    assert seqs(target) == list(range(1, end + 1))
    again = Uploader(str(tmp_path), str(target)).run()
    assert (again.sent, again.kept) == (0, first.sent)
    fill(store, 500)
    settle(stores)
    more = Uploader(str(tmp_path), str(target)).run()
    assert (more.sent > 0, more.kept) == (True, first.sent)
    manifest = json.loads(next(target.glob("streams/*/manifest.json")).read_text())
    assert len(manifest["blocks"]) == first.sent + more.sent == len(list(target.rglob("*.blk")))


def test_a_killed_upload_goes_on_without_sending_again(
    tmp_path: Path, store: StreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "archive"
    put, sent = Folder.put, []

    def counted(folder: Folder, key: str, content: bytes) -> None:
        if key.endswith(".blk"):
            if len(sent) == 4:
                raise KeyboardInterrupt
            sent.append(key)
        put(folder, key, content)

    monkeypatch.setattr(Folder, "put", counted)
    with pytest.raises(KeyboardInterrupt):
        Uploader(str(tmp_path), str(target)).run()
    monkeypatch.setattr(Folder, "put", put)
    report = Uploader(str(tmp_path), str(target)).run()
    assert report.found == 4
    assert seqs(target) == list(range(1, sealed_through(tmp_path) + 1))


def test_deletes_and_erases_reach_the_archive(
    tmp_path: Path, stores: FileStores, store: StreamStore
) -> None:
    target = tmp_path / "archive"
    Uploader(str(tmp_path), str(target)).run()
    store.delete(7)
    store.delete(499, erase=True)
    settle(stores)
    report = Uploader(str(tmp_path), str(target)).run()
    assert report.sent == 1, "only the block with the erased message"
    assert {7, 499}.isdisjoint(seqs(target))
    assert not any(b"a.0p499" in path.read_bytes() for path in target.rglob("*.blk"))


def test_what_limits_dropped_stays_unless_followed(
    tmp_path: Path, stores: FileStores, store: StreamStore
) -> None:
    target = tmp_path / "archive"
    Uploader(str(tmp_path), str(target)).run()
    end = sealed_through(tmp_path)
    store.compact(1500)
    settle(stores)
    Uploader(str(tmp_path), str(target)).run()
    assert seqs(target) == list(range(1, end + 1))
    report = Uploader(str(tmp_path), str(target), follow=True).run()
    assert report.removed > 0
    assert seqs(target)[0] > 1000


def made_anew(stores: FileStores, store: StreamStore, count: int) -> StreamStore:
    stores.delete(store)
    made = stores.create(settings("S"))
    fill(made, count)
    settle(stores)
    return made


def test_of_a_stream_made_anew_the_archive_shows_the_last(
    tmp_path: Path, stores: FileStores, store: StreamStore
) -> None:
    target = tmp_path / "archive"
    Uploader(str(tmp_path), str(target)).run()
    before = set(target.rglob("*.blk"))
    made_anew(stores, store, 3000)
    report = Uploader(str(tmp_path), str(target)).run()
    assert report.removed == 0
    assert seqs(target) == list(range(1, sealed_through(tmp_path) + 1))
    assert before < set(target.rglob("*.blk")), "what was there stays"
    report = Uploader(str(tmp_path), str(target), follow=True).run()
    assert report.removed == len(before)
    assert before.isdisjoint(target.rglob("*.blk"))
    assert seqs(target) == list(range(1, sealed_through(tmp_path) + 1))


def test_a_group_that_is_given_again_has_a_folder_of_its_own(
    tmp_path: Path, stores: FileStores, store: StreamStore
) -> None:
    target, (group,) = tmp_path / "archive", stores.stores
    Uploader(str(tmp_path), str(target)).run()
    before = set(target.rglob("*.blk"))
    stores.delete(store)
    stores.close()
    FileStores(tmp_path / "data", **SMALL_BLOCKS).close()  # the log tells of it until now
    opened = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    made = opened.create(settings("OTHER"))
    assert list(opened.stores) == [group], "the case at hand"
    fill(made, 1000)
    settle(opened)
    Uploader(str(tmp_path), str(target)).run()
    assert before < set(target.rglob("*.blk"))
    assert seqs(target, streams="S")[:3] == [1, 2, 3]
    assert seqs(target, streams="OTHER") == list(range(1, sealed_through(tmp_path) + 1))
    assert Uploader(str(tmp_path), str(target), follow=True).run().removed == len(before)
    assert seqs(target) == list(range(1, sealed_through(tmp_path) + 1))
    opened.close()


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_an_object_replaced_between_planning_and_reading(
    tmp_path: Path, stores: FileStores, store: StreamStore, scheme: str
) -> None:
    target = f"{scheme}{tmp_path}/archive"
    Uploader(str(tmp_path), target).run()
    asked = parsed(target, batchBytes="512")
    pieces = plan_of(asked)
    batches = scan.read_pieces(pieces, reading.scan_of(asked))
    found = next(batches).column("seq").to_pylist()
    store.delete(30, erase=True)
    store.delete(900, erase=True)
    settle(stores)
    assert Uploader(str(tmp_path), target).run().sent == 2
    found += [seq for batch in batches for seq in batch.column("seq").to_pylist()]
    assert set(found) >= set(seqs(tmp_path / "archive"))
    assert len(set(found)) == len(found)
    assert 900 not in found


def test_an_object_that_is_gone_is_a_loss(
    tmp_path: Path, stores: FileStores, store: StreamStore
) -> None:
    target = tmp_path / "archive"
    Uploader(str(tmp_path), str(target)).run()
    asked = parsed(target)
    pieces = plan_of(asked)
    store.compact(1000)
    settle(stores)
    Uploader(str(tmp_path), str(target), follow=True).run()
    with pytest.raises(DataLoss, match="was removed between planning and reading"):
        list(scan.read_pieces(pieces, reading.scan_of(asked)))


def test_a_stream_that_is_deleted_while_it_is_looked_at(
    tmp_path: Path, stores: FileStores, store: StreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploader = Uploader(str(tmp_path), str(tmp_path / "archive"))
    real = uploader._directory.views

    def views(**more: bool) -> list[StreamView]:
        found = real(**more)
        stores.delete(store)
        settle(stores)
        return found

    monkeypatch.setattr(uploader._directory, "views", views)
    assert uploader.run().damaged == []


def test_reading_makes_nothing(tmp_path: Path, store: StreamStore) -> None:
    with pytest.raises(NotUsable, match="no Martlet data directory"):
        reading.read_table(parsed(f"file://{tmp_path}/nowhere"))
    assert not (tmp_path / "nowhere").exists()
    rows = reading.read_table(parsed(f"file://{tmp_path}"))
    assert rows.num_rows == 2000, "a data directory by URL"


def test_halves_of_killed_puts_are_swept(tmp_path: Path, store: StreamStore) -> None:
    target = tmp_path / "archive"
    Uploader(str(tmp_path), str(target)).run()
    block = min(target.rglob("*.blk"))
    old, fresh = (block.with_name(f"{block.name}#{at}") for at in (1, 2))
    old.write_bytes(b"half")
    fresh.write_bytes(b"half")
    os.utime(old, (1, 1))
    Uploader(str(tmp_path), str(target)).run()
    assert (old.exists(), fresh.exists(), block.exists()) == (False, True, True)


def test_a_time_range_reads_little(tmp_path: Path, stores: FileStores, store: StreamStore) -> None:
    fill(store, 12_000)
    settle(stores)
    target = tmp_path / "archive"
    sent = Uploader(str(tmp_path), str(target)).run().sent_bytes
    ms = (START_NS + 7000 * SECOND_NS) // 1_000_000
    asked = parsed(target, startingTimestamp=str(ms), endingTimestamp=str(ms + 10_000))
    assert read_bytes(asked) == (list(range(7000, 7010)), pytest.approx(0, abs=0.02 * sent))
    subject = parsed(target, subject="a.14")
    assert read_bytes(subject)[0] == [seq for seq, name, *_ in live(store) if name == "a.14"][:500]


def read_bytes(asked: Options) -> tuple[list[int], int]:
    tally = scan.Tally()
    found: list[int] = reading.read_table(asked, tally).column("seq").to_pylist()
    return found, tally.bytes_read


def test_by_url_with_ranges(tmp_path: Path, store: StreamStore) -> None:
    target = tmp_path / "archive"
    Uploader(str(tmp_path), f"file://{target}").run()
    asked = parsed(target)
    url = parsed(f"file://{target}", startingOffsets="900", endingOffsets="910")
    pieces = plan_of(url)
    assert all(piece.location.startswith("file://") for piece in pieces)
    tally = scan.Tally()
    rows = list(scan.read_pieces(pieces, reading.scan_of(url), tally))
    assert [seq for batch in rows for seq in batch.column("seq").to_pylist()] == list(
        range(900, 910)
    )
    size = sum(ObjectSource(piece.location, whole=False).size for piece in pieces)
    assert tally.bytes_read < size
    assert plan_of(asked) != []


def plan_of(asked: Options) -> list[plan.Piece]:
    return reading.plan_batch(reading.open_store(asked), asked)


def test_damage_is_not_archived(tmp_path: Path, store: StreamStore) -> None:
    block = min((tmp_path / "data" / "streams").glob("*/*.blk"))
    sound = block.read_bytes()
    content = bytearray(sound)
    content[content.index(b"p7")] ^= 1
    block.write_bytes(content)
    report = Uploader(str(tmp_path), str(tmp_path / "archive")).run()
    assert len(report.damaged) == 1
    assert block.name in report.damaged[0]
    with pytest.raises(DataLoss, match=r"block 0+1 \(1 to \d+\) is not in the archive"):
        seqs(tmp_path / "archive")
    found = seqs(tmp_path / "archive", failOnDataLoss="false")
    assert found == list(range(found[0], sealed_through(tmp_path) + 1))
    block.write_bytes(sound)
    assert Uploader(str(tmp_path), str(tmp_path / "archive")).run().sent == 1
    assert seqs(tmp_path / "archive") == list(range(1, sealed_through(tmp_path) + 1))


def test_a_block_that_is_damaged_later_stays_as_it_was_sent(
    tmp_path: Path, stores: FileStores, store: StreamStore
) -> None:
    target = tmp_path / "archive"
    checkpoint(stores)
    Uploader(str(tmp_path), str(target)).run()
    wanted = seqs(target)
    first, second, third, *_ = sorted((tmp_path / "data" / "streams").glob("*/*.blk"))
    first.write_bytes(b"x" + first.read_bytes()[1:])
    second.write_bytes(second.read_bytes()[:-1] + b"x")
    third.unlink()
    report = Uploader(str(tmp_path), str(target), follow=True).run()
    assert report.removed == 0
    assert seqs(target) == wanted


@pytest.mark.parametrize("how", ["gone", "another"])
def test_a_copy_from_before_the_server_noticed_the_damage_is_read(
    tmp_path: Path, stores: FileStores, store: StreamStore, how: str
) -> None:
    target = tmp_path / "archive"
    checkpoint(stores)
    Uploader(str(tmp_path), str(target)).run()
    wanted = seqs(target)
    stores.close()
    blocks = sorted((tmp_path / "data" / "streams").glob("*/*.blk"))
    before, broken = blocks[1], blocks[2]
    broken.unlink()
    if how == "another":
        shutil.copy(blocks[4], broken)
    opened = noticed(tmp_path)
    (view,) = Directory(str(tmp_path)).views()
    assert view.lost, "the case at hand"
    with pytest.raises(DataLoss, match="to damage"):
        seqs(tmp_path)
    for follow in (False, True):
        assert Uploader(str(tmp_path), str(target), follow=follow).run().removed == 0
        assert seqs(target) == wanted
    fresh = tmp_path / "fresh"
    Uploader(str(tmp_path), str(fresh)).run()
    with pytest.raises(DataLoss, match="to damage"):
        seqs(fresh)
    opened.close()
    before.unlink()
    opened = noticed(tmp_path)
    Uploader(str(tmp_path), str(fresh)).run()
    (lost,) = manifest_of(fresh)["lost"]
    assert lost == list(view.lost[0]), "but not what is in a copy"
    opened.close()


def noticed(path: Path) -> FileStores:
    """A server that has met all damage."""
    opened = FileStores(path / "data", **SMALL_BLOCKS)
    (store,) = opened.stores.values()
    live(store)
    checkpoint(opened)
    return opened


def manifest_of(target: Path) -> dict[str, Any]:
    (path,) = target.glob("streams/*/manifest.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_what_limits_dropped_before_it_was_sent_is_told_to_who_reads_on(
    tmp_path: Path, stores: FileStores, store: StreamStore
) -> None:
    target = tmp_path / "archive"
    Uploader(str(tmp_path), str(target)).run()
    through = sealed_through(tmp_path)
    tables, taken = str(tmp_path / "out"), parsed(target)
    export.to_parquet(taken, tables, lambda words: None)
    fill(store, 1000)
    store.compact(2701)
    settle(stores)
    for _ in range(2):
        assert Uploader(str(tmp_path), str(target)).run().damaged == []
        assert manifest_of(target)["dropped"] == [[through + 1, 2700]]
    end = sealed_through(tmp_path)
    there = [*range(1, through + 1), *range(2701, end + 1)]
    assert seqs(target) == there
    assert seqs(target, startingOffsets="2701") == there[through:]
    words = f"goes on at 2701, not at {through + 1}"
    with pytest.raises(DataLoss, match=words):
        seqs(target, startingOffsets="350")
    with pytest.raises(DataLoss, match=words):
        export.to_parquet(taken, tables, lambda words: None)
    export.to_parquet(taken, str(tmp_path / "whole"), lambda words: None)
    with pytest.raises(DataLoss, match=words):
        export.to_parquet(parsed(target, startingOffsets="350"), str(tmp_path / "late"), print)
    tally, asked = scan.Tally(), parsed(target, failOnDataLoss="false", startingOffsets="350")
    assert reading.read_table(asked, tally).column("seq").to_pylist() == there[349:]
    assert (tally.lost, tally.damaged) == (1, 0)
    fill(store, 1000)
    store.compact(2901)
    settle(stores)
    Uploader(str(tmp_path), str(target)).run()
    assert manifest_of(target)["dropped"] == [[through + 1, 2700]], "the rest was sent"
    Uploader(str(tmp_path), str(target), follow=True).run()
    assert manifest_of(target)["dropped"] == []
    assert seqs(target, startingOffsets="2901")[0] == 2901


def test_a_block_that_goes_while_it_is_sent_is_no_damage(
    tmp_path: Path, stores: FileStores, store: StreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "archive"
    uploader = Uploader(str(tmp_path), str(target))
    real = uploader._directory.views

    def views(**more: bool) -> list[StreamView]:
        found = real(**more)
        store.compact(1000)
        settle(stores)
        return found

    monkeypatch.setattr(uploader._directory, "views", views)
    uploader.run()
    assert manifest_of(target)["unsent"] == []
    assert seqs(target) == list(range(min(seqs(target)), sealed_through(tmp_path) + 1))
    uploader.run()
    ((first, last),) = manifest_of(target)["dropped"]
    assert (first, last) == (1, seqs(target)[0] - 1)


def test_a_framed_block_with_a_damaged_frame_is_not_archived(tmp_path: Path) -> None:
    """No key is needed to see it."""
    keys = ServerKeys("correct horse")
    stores = FileStores(tmp_path / "data", keys=keys, codec_of=lambda said: "zstd", **SMALL_BLOCKS)
    fill(stores.create(settings("S")), 2000)
    settle(stores)
    stores.directory.wait_rewritten()
    checkpoint(stores)
    stores.close()
    block = min((tmp_path / "data" / "streams").glob("*/*.blk"))
    content = bytearray(block.read_bytes())
    content[content.index(b"FRM1") + 40] ^= 1
    block.write_bytes(content)
    report = Uploader(str(tmp_path), str(tmp_path / "archive")).run()
    assert [block.name in words for words in report.damaged] == [True]
    assert report.sent > 5
    assert not list((tmp_path / "archive").rglob(f"{block.stem}-*"))


def test_a_block_that_is_torn_for_a_moment_is_sent(
    tmp_path: Path, store: StreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = min((tmp_path / "data" / "streams").glob("*/*.blk"))
    sound = block.read_bytes()
    torn = bytearray(sound)
    torn[torn.index(b"p7")] ^= 1
    block.write_bytes(torn)
    instead_of_pauses(monkeypatch, lambda seconds: block.write_bytes(sound))
    assert Uploader(str(tmp_path), str(tmp_path / "archive")).run().damaged == []
    assert 7 in seqs(tmp_path / "archive")


def test_a_stream_with_a_damaged_meta_stops_no_other(
    tmp_path: Path, stores: FileStores, store: StreamStore
) -> None:
    fill(stores.create(settings("OTHER")), 2000)
    checkpoint(stores)
    target = tmp_path / "archive"
    sent = Uploader(str(tmp_path), str(target)).run().sent
    (meta,) = [path for path in tmp_path.rglob("meta") if b"OTHER" in path.read_bytes()]
    meta.write_bytes(meta.read_bytes()[:-1] + b"x")
    fill(store, 1000)
    settle(stores)
    report = Uploader(str(tmp_path), str(target), follow=True).run()
    assert [str(meta) in words for words in report.damaged] == [True]
    assert (report.sent > 1, report.removed) == (True, 0)
    assert len(seqs(target, streams="OTHER")) > 1000
    assert len(list(target.rglob("*.blk"))) == sent + report.sent


@pytest.mark.parametrize("at", ["delete", "put of the manifest"])
def test_what_was_erased_goes_after_a_kill(
    tmp_path: Path, stores: FileStores, store: StreamStore, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Killed before the old object is removed, or before the manifest names what was sent."""
    target = tmp_path / "archive"

    def killed(folder: Folder, key: str, *more: object) -> None:
        if at == "delete" or key.endswith("manifest.json"):
            raise KeyboardInterrupt
        put(folder, key, *more)

    put = Folder.put
    if at == "delete":
        Uploader(str(tmp_path), str(target)).run()
        store.delete(499, erase=True)
        settle(stores)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Folder, "delete" if at == "delete" else "put", killed)
        Uploader(str(tmp_path), str(target)).run()
    store.delete(499, erase=True)
    settle(stores)
    assert any(b"a.0p499" in path.read_bytes() for path in target.rglob("*.blk"))
    Uploader(str(tmp_path), str(target)).run()
    assert not any(b"a.0p499" in path.read_bytes() for path in target.rglob("*.blk"))
    assert 499 not in seqs(target)
    assert seqs(target, startingOffsets="498") == [
        498, *range(500, sealed_through(tmp_path) + 1)
    ]  # fmt: skip


def test_a_block_compacted_to_nothing_goes(
    tmp_path: Path, stores: FileStores, store: StreamStore
) -> None:
    """The server keeps such a block for its skips."""
    target = tmp_path / "archive"
    store.skip(3, START_NS)
    fill(store, 2000)
    checkpoint(stores)
    Uploader(str(tmp_path), str(target)).run()
    (view,) = reading.open_store(parsed(tmp_path)).views(lambda account, stream: True)
    block = next(block for block in view.blocks if block.first_seq <= 2001 <= block.last_seq)
    gone = range(block.first_seq, block.last_seq + 1)
    store.delete_many([seq for seq in gone if not 2001 <= seq <= 2003])
    checkpoint(stores)
    (view,) = reading.open_store(parsed(tmp_path)).views(lambda account, stream: True)
    assert [one.messages for one in view.blocks if one.number == block.number] == [0]
    Uploader(str(tmp_path), str(target)).run()
    assert not list(target.rglob(f"{block.number:016x}-*"))
    assert set(gone).isdisjoint(seqs(target))


def test_a_second_uploader_is_told(tmp_path: Path, store: StreamStore) -> None:
    target = tmp_path / "archive"
    with Claim(Folder(str(target), make=True)):
        with pytest.raises(JetStreamError, match="another uploader is at work there"):
            Uploader(str(tmp_path), str(target)).run()
    assert Uploader(str(tmp_path), str(target)).run().sent > 5


def test_damage_in_an_archive_is_told(tmp_path: Path, store: StreamStore) -> None:
    target = tmp_path / "archive"
    Uploader(str(tmp_path), str(target)).run()
    block = min(target.rglob("*.blk"))
    block.write_bytes(block.read_bytes()[:500])
    with pytest.raises(BlockDamaged, match=block.name):
        seqs(target)
    tally = scan.Tally()
    reading.read_table(parsed(target, failOnDataLoss="false"), tally)
    assert tally.damaged > 0


def test_what_is_not_for_this_program(tmp_path: Path, store: StreamStore) -> None:
    target = tmp_path / "archive"
    Uploader(str(tmp_path), str(target)).run()
    root: dict[str, Any] = json.loads((target / archive.ROOT).read_text())
    (target / archive.ROOT).write_text(json.dumps({**root, "identity": "00" * 16}))
    with pytest.raises(NotUsable, match="another data directory"):
        Uploader(str(tmp_path), str(target))
    (target / archive.ROOT).write_text(json.dumps({**root, "version": 99}))
    with pytest.raises(NotUsable, match="version 99"):
        seqs(target)
