"""The log while blocks are rewritten, checkpoints of an idle stream, searching a stale segment."""

import struct
from pathlib import Path
from typing import Any

import pytest

from storage._directory import DataDirectory
from tests.crash.faulty import FaultyFiles

SIZES: dict[str, Any] = {
    "segment_size": 64 << 10,
    "log_bytes_max": 256 << 10,
    "block_size_min": 16 << 10,
    "block_size_max": 16 << 10,
}


def append(directory: DataDirectory, count: int, size: int = 500) -> None:
    home = directory.homes[1]
    first = home.last_seq + 1
    home.append_many([(seq, seq, b"a.b", b"", b"x" * size) for seq in range(first, first + count)])
    directory.wait(directory.commit())


def test_the_log_keeps_its_bound_while_blocks_are_rewritten(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path, **SIZES, codec_of=lambda settings: settings["codec"])
    directory.create_stream({"codec": "none"})
    for _ in range(80):
        append(directory, 100)
    directory.wait_applied()
    while directory.stats["log_bytes"] > SIZES["log_bytes_max"]:
        append(directory, 1)
        directory.wait_applied()
    directory.update_settings(directory.homes[1], {"codec": "zstd"})
    largest = 0
    for _ in range(40):
        append(directory, 100)
        directory.wait_applied()
        largest = max(largest, directory.stats["log_bytes"])
        directory.maintain()
    framed = [block["framed"] for block in directory.homes[1].describe_blocks()]
    assert 5 < sum(framed) < len(framed) // 2
    assert largest <= 2 * SIZES["log_bytes_max"]
    directory.wait_rewritten()
    blocks = directory.homes[1].describe_blocks()
    assert all(block["framed"] for block in blocks[:-2])
    directory.close()


def test_an_idle_stream_is_written_no_more(tmp_path: Path) -> None:
    """Although most of its active block is deleted."""
    files = FaultyFiles()
    directory = DataDirectory(tmp_path, files, threaded=False, **SIZES)
    directory.create_stream({"name": "s"})
    append(directory, 25)
    for seq in range(2, 21):
        directory.homes[1].delete(seq)
    directory.wait(directory.commit())
    for _ in range(3):
        directory.maintain()
        directory.wait(directory.commit())
    syncs = files.syncs
    for _ in range(5):
        directory.maintain()
        directory.wait(directory.commit())
    assert files.syncs == syncs
    append(directory, 40)  # it is full, and small enough by the next checkpoint
    for _ in range(4):
        directory.maintain()
        directory.wait(directory.commit())
    assert directory.homes[1].describe_blocks()[0]["dead"] == 0
    directory.close()
    files.release()


def test_a_damaged_block_is_tried_once(tmp_path: Path) -> None:
    directory = DataDirectory(
        tmp_path, threaded=False, **SIZES, codec_of=lambda settings: settings["codec"]
    )
    home = directory.create_stream({"codec": "none"})
    append(directory, 100)
    directory.wait_applied()
    directory.checkpoint_now(home, False)
    block = min(Path(home.path).glob("*.blk"))
    content = bytearray(block.read_bytes())
    content[2000] ^= 1
    block.write_bytes(content)
    directory.update_settings(home, {"codec": "zstd"})
    for _ in range(5):
        append(directory, 40)
        directory.wait_rewritten()
    assert [sentence.rpartition("/")[2] for sentence in home.damage] == [
        "0000000000000001.blk: not rewritten, the record in slot 3 does not hold"
    ]
    assert not home.describe_blocks()[0]["framed"]
    assert home.describe_blocks()[1]["framed"]
    directory.close()


def stale(path: Path, pattern: bytes) -> None:
    """As if the newest segment's file had been used before, for messages of this pattern."""
    segment = max((path / "log").glob("*.seg"))
    content = bytearray(segment.read_bytes())
    end = (len(content.rstrip(b"\0")) + 64) // 8 * 8
    content[end:] = (pattern * (len(content) // len(pattern) + 1))[: len(content) - end]
    segment.write_bytes(content)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (struct.pack("<IBBH", 16 << 20, 1, 0, 0), []),
        (struct.pack("<IBBHQQQ", 16 << 20, 2, 0, 0, 1, 5, 64) + b"checksum", ["not searched"]),
        (
            struct.pack("<IBBHQQQ8s", 16 << 20, 1, 0, 0, 1, 5, 64, b"checksum")
            + struct.pack("<IBBHQQI", 100, 1, 0, 3, 7, 7, 0)
            + b"abcd",
            ["not searched"],
        ),
    ],
    ids=["words", "frames", "frames of records"],
)
def test_what_looks_like_frames_is_searched_in_no_time(
    tmp_path: Path, pattern: bytes, said: list[str]
) -> None:
    """To try each place of such a segment would take the checksums of some hundred terabytes."""
    sizes = SIZES | {"segment_size": 32 << 20, "log_bytes_max": 128 << 20}
    directory = DataDirectory(tmp_path, threaded=False, **sizes)
    directory.create_stream({"name": "s"})
    append(directory, 10)
    directory.close(clean=False)
    stale(tmp_path, pattern)
    directory = DataDirectory(tmp_path, threaded=False, **sizes)
    assert len(directory.homes[1].get_all()) == 10
    assert [part for part in said if part in str(directory.damage)] == said
    assert len(directory.damage) == len(said)
    directory.close()
