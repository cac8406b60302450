"""Erasures in compressed blocks that overlap: what one owes to the file outlives another."""

import random
from pathlib import Path
from typing import Any

import pytest

from storage._directory import DataDirectory
from tests.crash.faulty import FaultyFiles
from tests.unit.test_storage_erase import holders

SIZES: dict[str, Any] = {"block_size_min": 1 << 20, "block_size_max": 1 << 20, "threaded": False}
COUNT = 300


def body(seq: int) -> bytes:
    """Nothing that could be compressed: it is in the file as it is."""
    return random.Random(seq).randbytes(1000)


class OneMoment(FaultyFiles):
    """Calls `at_sync` when the new file has its name, and its job has not ended."""

    def at_sync(self) -> None:
        pass

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        if path.endswith(f"{1:016x}"):
            self.at_sync()


def framed(path: Path, files: FaultyFiles) -> DataDirectory:
    directory = DataDirectory(path, files, **SIZES, codec_of=lambda settings: "s2")
    home = directory.create_stream({"name": "s"})
    for seq in range(1, 3 * COUNT + 1):
        home.append_many([(seq, seq, b"a.b", b"", body(seq) * 8)])
        directory.wait(directory.commit())
    directory.wait_applied()
    directory.wait_rewritten()
    assert home.describe_blocks()[0]["framed"]
    return directory


@pytest.mark.feature("4.005")
def test_what_an_erasure_owes_to_the_file_outlives_the_one_before(tmp_path: Path) -> None:
    """Of three records the last two share a frame, which is not the first one's."""
    files = FaultyFiles()
    directory = framed(tmp_path, files)
    home = directory.homes[1]
    assert home.delete(2, erase=True)
    directory.commit()
    assert home.delete(40, erase=True)
    directory.poll()  # the file with the first one erased is in its place
    assert home.delete(41, erase=True)
    directory.wait(directory.commit())
    directory.wait_applied()
    assert [holders(tmp_path, body(seq)) for seq in (2, 40, 41)] == [[], [], []]
    assert holders(tmp_path, body(42))
    assert [entry[0] for entry in home.get_all()][:3] == [1, 3, 4]
    assert home.lost == []
    directory.close()
    files.release()


@pytest.mark.feature("4.005")
def test_a_record_beside_an_erased_one_is_read_while_the_file_is_replaced_again(
    tmp_path: Path,
) -> None:
    """From the frame in memory: that of the file which is mapped is zeroed."""
    files = OneMoment()
    directory = framed(tmp_path, files)
    home = directory.homes[1]
    seen = []
    assert home.delete(2, erase=True)
    directory.commit()
    assert home.delete(40, erase=True)
    directory.poll()
    directory.commit()
    wipe = files.sync

    def sync(fd: int) -> None:
        wipe(fd)
        if files.paths[fd].endswith(".blk"):
            seen.append(home.get(41) is not None)

    files.sync = sync  # type: ignore[method-assign]
    directory.wait_applied()
    assert seen
    assert all(seen)
    assert home.lost == []
    directory.close()
    files.release()


def test_the_map_of_a_compressed_block_without_a_footer_stays(tmp_path: Path) -> None:
    """Where its frames are is known of the file that is mapped, not of one that has replaced it."""
    files = OneMoment()
    framed(tmp_path, files).close()
    files.release()
    block = min(tmp_path.glob("streams/*/*.blk"))
    content = bytearray(block.read_bytes())
    content[-1] ^= 1
    block.write_bytes(content)
    files = OneMoment()
    directory = DataDirectory(
        tmp_path, files, **SIZES, codec_of=lambda settings: "s2", maps_open_max=0
    )
    home = directory.homes[1]
    assert home.delete(2, erase=True)
    seen = []

    def look() -> None:
        for _ in range(3):
            directory.maintain()
        seen.append(home.get(100) is not None)

    files.at_sync = look  # type: ignore[method-assign]
    directory.wait(directory.commit())
    directory.wait_applied()
    assert seen == [True]
    assert home.lost == []
    directory.close()
    files.release()
