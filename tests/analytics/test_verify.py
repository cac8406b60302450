"""What was archived is what is there; what did not change is not put again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_jetstream import cli
from pyspark_jetstream.archive import Uploader
from pyspark_jetstream.objects import Folder
from pyspark_jetstream.verify import verify
from storage._store import StreamStore
from storage.filestore import FileStores
from tests.analytics.stores import SMALL_BLOCKS, settings, settle
from tests.analytics.test_export import fill


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


@pytest.fixture
def target(tmp_path: Path, store: StreamStore) -> Path:
    place = tmp_path / "archive"
    Uploader(str(tmp_path), str(place)).run()
    return place


def test_each_object_is_compared_with_its_digest(
    target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = sorted(target.glob("streams/*/*.blk"))
    found = verify(str(target))
    assert (found.objects, found.wrong) == (len(blocks), [])
    assert found.bytes == sum(block.stat().st_size for block in blocks)
    content = bytearray(blocks[0].read_bytes())
    content[99] ^= 1
    blocks[0].write_bytes(content)
    blocks[1].write_bytes(blocks[1].read_bytes()[:-1])
    blocks[2].unlink()
    assert cli.main(["archive", "--verify", "--to", str(target)]) == 1
    said = capsys.readouterr()
    assert f"{len(blocks) - 1} objects" in said.out
    assert f"{blocks[0].name} has other bytes" in said.err
    assert f"{blocks[1].name} has " in said.err
    assert f"{blocks[2].name} is missing" in said.err
    assert len(said.err.splitlines()) == 3
    next(target.glob("streams/*/manifest.json")).unlink()
    (wrong,) = verify(str(target)).wrong
    assert "manifest.json is missing" in wrong


def test_an_object_replaced_meanwhile_is_not_wrong(
    tmp_path: Path, stores: FileStores, store: StreamStore, target: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """An upload ends between the manifest and the objects."""
    store.delete(3, erase=True)
    settle(stores)
    real, done = Folder.get, []

    def get(self: Folder, key: str) -> bytes | None:
        if key.endswith(".blk") and not done:
            done.append(key)
            Uploader(str(tmp_path), str(target)).run()
        return real(self, key)

    monkeypatch.setattr(Folder, "get", get)
    assert verify(str(target)).wrong == []
    assert not (target / done[0]).exists(), "nothing was replaced"


def test_a_stream_that_did_not_change_is_not_put(
    tmp_path: Path, stores: FileStores, store: StreamStore, target: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    fill(stores.create(settings("T")), 2000)
    settle(stores)
    uploader = Uploader(str(tmp_path), str(target))
    uploader.run()
    real, manifests = Folder.put, []

    def put(self: Folder, key: str, content: bytes) -> None:
        if key.endswith("manifest.json"):
            manifests.append(key)
        real(self, key, content)

    monkeypatch.setattr(Folder, "put", put)
    uploader.run()
    Uploader(str(tmp_path), str(target)).run()
    assert manifests == []
    store.delete(5)
    settle(stores)
    uploader.run()
    assert len(manifests) == 1
