"""Secure erase: when the ticket is settled no file of the directory holds the bytes any more."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage._blockhome import BlockHome
from storage._directory import DataDirectory

SEGMENT = 8 << 10


def holders(path: Path, secret: bytes) -> list[str]:
    """Read again from the start when the disk's thread renamed a segment meanwhile."""
    while True:
        try:
            return [
                str(file.relative_to(path))
                for file in path.rglob("*")
                if file.is_file() and secret in file.read_bytes()
            ]
        except FileNotFoundError:
            continue


def store(
    directory: DataDirectory,
    home: BlockHome,
    first: int,
    last: int,
    size: int,
    text: bytes = b"<%06d>",
) -> None:
    for seq in range(first, last + 1):
        home.append_many([(seq, seq, b"a.b", b"", (text % seq) * (size // 8))])
    directory.wait(directory.commit())


def settle(directory: DataDirectory) -> None:
    ticket = directory.commit()
    while directory.settled_ticket < ticket:
        directory.wait_applied()
    assert directory.failure is None


@pytest.fixture(params=[True, False], ids=["always", "lazy"])
def directory(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[DataDirectory]:
    made = DataDirectory(
        tmp_path / "data",
        durable=request.param,
        segment_size=SEGMENT,
        log_bytes_max=4 * SEGMENT,
        block_size_min=4096,
        block_size_max=16 << 10,
    )
    yield made
    made.close()


def test_in_the_block_and_in_the_log(directory: DataDirectory) -> None:
    path = Path(directory.path)
    home = directory.create_stream({"name": "s"})
    store(directory, home, 1, 9, 80)
    directory.wait_applied()
    assert len(holders(path, b"<000005>")) == 2
    assert home.delete(5, erase=True)
    settle(directory)
    assert holders(path, b"<000005>") == []
    assert len(holders(path, b"<000006>")) == 2
    assert [entry[0] for entry in home.get_all()] == [1, 2, 3, 4, 6, 7, 8, 9]


def test_in_the_batch_that_stores_it(directory: DataDirectory) -> None:
    home = directory.create_stream({"name": "s"})
    for seq in (1, 2, 3):
        home.append_many([(seq, seq, b"a.b", b"", b"<%06d>" % seq)])
    assert home.delete(2, erase=True)
    settle(directory)
    assert holders(Path(directory.path), b"<000002>") == []
    assert [entry[0] for entry in home.get_all()] == [1, 3]


def test_wherever_the_log_has_it_by_now(directory: DataDirectory) -> None:
    """Each record is erased when many more were stored: in a live, spare or half reused segment."""
    path = Path(directory.path)
    home = directory.create_stream({"name": "s"})
    other = directory.create_stream({"name": "t"})
    in_log = 0
    for distance in range(1, 160, 8):
        start = home.last_seq + 1
        store(directory, home, start, start + 3, 200)
        store(directory, other, other.last_seq + 1, other.last_seq + distance, 240, b"[%06d]")
        directory.wait_applied()
        secret = b"<%06d>" % (start + 1)
        found = [name for name in holders(path, secret) if name.startswith("log/")]
        in_log += len(found)
        assert home.delete(start + 1, erase=True)
        settle(directory)
        assert holders(path, secret) == [], f"stored {distance} messages ago, then in {found}"
    assert in_log > 5


def test_many_in_one_batch_of_a_reused_sequence(directory: DataDirectory) -> None:
    path = Path(directory.path)
    home = directory.create_stream({"name": "s"})
    store(directory, home, 1, 20, 40)
    home.cut(10)
    for seq in range(11, 21):
        home.append_many([(seq, seq, b"a.b", b"", b"{%06d}" % seq)])
    directory.wait(directory.commit())
    for seq in range(5, 16):
        home.delete(seq, erase=True)
    settle(directory)
    for seq in range(5, 11):
        assert holders(path, b"<%06d>" % seq) == []
    for seq in range(11, 16):
        assert holders(path, b"{%06d}" % seq) == []
    assert [entry[0] for entry in home.get_all()] == [1, 2, 3, 4, 16, 17, 18, 19, 20]


def test_what_took_the_sequence_since_stays(tmp_path: Path) -> None:
    """The log has the erased record, and behind it another one of its sequence."""
    directory = DataDirectory(tmp_path / "data", threaded=False)
    home = directory.create_stream({"name": "s"})
    store(directory, home, 1, 4, 80)
    assert home.delete(4, erase=True)
    home.cut(3)
    home.append_many([(4, 4, b"a.b", b"", b"anew")])
    settle(directory)
    directory.close(clean=False)
    assert holders(tmp_path, b"<000004>") == []
    directory = DataDirectory(tmp_path / "data", threaded=False)
    home = next(iter(directory.homes.values()))
    assert [entry[4] for entry in home.get_all() if entry[0] == 4] == [b"anew"]
    directory.close()


@pytest.mark.parametrize("clean", [True, False])
def test_nothing_comes_back_at_the_next_start(tmp_path: Path, clean: bool) -> None:
    directory = DataDirectory(tmp_path / "data", segment_size=SEGMENT)
    home = directory.create_stream({"name": "s"})
    store(directory, home, 1, 9, 80)
    home.delete(5, erase=True)
    directory.wait(directory.commit())  # durable, perhaps not overwritten yet
    directory.close(clean=clean)
    directory = DataDirectory(tmp_path / "data", segment_size=SEGMENT)
    try:
        home = directory.homes[home.group]
        assert holders(tmp_path, b"<000005>") == []
        assert [entry[0] for entry in home.get_all()] == [1, 2, 3, 4, 6, 7, 8, 9]
        assert (home.lost, home.damage, directory.damage) == ([], [], [])
    finally:
        directory.close()


def test_a_torn_overwriting_in_the_log_is_finished_by_the_next_start(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "data", segment_size=SEGMENT)
    home = directory.create_stream({"name": "s"})
    store(directory, home, 1, 9, 80)
    home.delete(5, erase=True)
    home.delete(7, erase=True)
    settle(directory)
    directory.close(clean=False)
    segment = next((tmp_path / "data" / "log").glob("*.seg"))
    whole = segment.read_bytes()
    for secret_seq in (5, 7):
        at = whole.index(b"<%06d>" % (secret_seq - 1)) + 80 + 8 + 28 + 3
        for torn_at in range(at, at + 40, 8):
            torn = bytearray(whole)
            torn[torn_at] ^= 0x55
            segment.write_bytes(torn)
            (block,) = Path(home.path).glob("*.blk")
            block.unlink(missing_ok=True)
            again = DataDirectory(tmp_path / "data", segment_size=SEGMENT)
            found = [entry[0] for entry in again.homes[home.group].get_all()]
            damage = (again.homes[home.group].lost, again.damage)
            again.close(clean=False)
            for state in Path(home.path).glob("state.*"):
                state.unlink()
            assert (found, damage) == ([1, 2, 3, 4, 6, 8, 9], ([], []))


def random_text(seq: int) -> bytes:
    return hashlib.sha512(b"%d" % seq).digest() + hashlib.sha512(b"-%d" % seq).digest()


def test_in_a_framed_block_whose_footer_does_not_hold(tmp_path: Path) -> None:
    """What does not repeat is stored as it is, so that it can be seen in the file."""
    options: dict[str, Any] = {
        "block_size_min": 256 << 10,
        "codec_of": lambda settings: "s2",
        "threaded": False,
    }
    directory = DataDirectory(tmp_path, **options)
    home = directory.create_stream({"name": "s"})
    home.append_many([(seq, seq, b"a.b", b"", random_text(seq)) for seq in range(1, 3000)])
    directory.wait(directory.commit())
    directory.wait_rewritten()
    directory.close()
    block = min(Path(home.path).glob("*.blk"))
    content = bytearray(block.read_bytes())
    rows = int.from_bytes(content[-20:-16], "little")
    seen = [seq for seq in range(1, 1500, 100) if random_text(seq) in content]
    assert rows > 2
    assert len(seen) > 5
    content[-128 - 8 * rows + 2] ^= 0x40  # where the first frame is: 4 MiB further on
    block.write_bytes(content)
    directory = DataDirectory(tmp_path, **options)
    home = directory.homes[1]
    for seq in seen:
        assert [name[:7] for name in holders(tmp_path, random_text(seq))] == ["streams"]
        assert home.delete(seq, erase=True)
        settle(directory)
        assert holders(tmp_path, random_text(seq)) == []
    directory.close(clean=False)
    directory = DataDirectory(tmp_path, **options)
    found = [entry[0] for entry in directory.homes[1].get_all()]
    assert found == sorted(set(range(1, 3000)) - set(seen))
    directory.close()


def test_a_segment_that_is_kept_for_another_stream_has_nothing_of_this_one(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path, threaded=False)
    home = directory.create_stream({"name": "s"})
    other = directory.create_stream({"name": "t"})
    for seq in range(1, 20):
        home.append_many([(seq, seq, b"a.b", b"", b"<%06d>" % seq)])
        other.append_many([(seq, seq, b"a.b", b"", b"[%06d]" % seq)])
    directory.wait(directory.commit())
    directory.wait_applied()
    directory.checkpoint_now(home, False)
    directory.checkpoint_now(other, False)
    other.append_many([(20, 20, b"a.b", b"", b"[000020]")])
    home.append_many([(20, 20, b"a.b", b"", b"<000020>")])
    directory.wait(directory.commit())
    directory.wait_applied()
    directory.close(clean=False)
    meta = Path(other.path, "meta")
    whole = meta.read_bytes()
    for segment in (tmp_path / "log").glob("*.seg"):
        # As if the log that told of the meta was retired long ago.
        content = bytearray(segment.read_bytes())
        at = content.find(whole)
        while at >= 0:
            content[at] ^= 1
            at = content.find(whole, at + 1)
        segment.write_bytes(content)
    meta.write_bytes(whole[:-1])
    directory = DataDirectory(tmp_path, threaded=False)
    home = directory.homes[home.group]
    assert [name[-5:] for name in holders(tmp_path, b"[000020]")[:1]]
    assert all(name.startswith("streams/") for name in holders(tmp_path, b"<000007>"))
    assert home.delete(7, erase=True)
    settle(directory)
    assert holders(tmp_path, b"<000007>") == []
    directory.close()
    meta.write_bytes(whole)
    directory = DataDirectory(tmp_path, threaded=False)
    assert [entry[0] for entry in directory.homes[other.group].get_all()] == list(range(1, 21))
    assert [entry[0] for entry in directory.homes[home.group].get_all()] == sorted(
        set(range(1, 21)) - {7}
    )
    directory.close()
    assert not list((tmp_path / "log").glob("*.kept"))


def test_a_record_that_does_not_hold_stays_deleted(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path, threaded=False)
    home = directory.create_stream({"name": "s"})
    store(directory, home, 1, 9, 80)
    directory.wait_applied()
    directory.checkpoint_now(home, False)
    (block,) = Path(home.path).glob("*.blk")
    content = block.read_bytes()
    block.write_bytes(content.replace(b"<000005>", b"<00x005>", 1))
    assert home.get(5) is None
    assert home.delete(5, erase=True)
    settle(directory)
    assert "record of 5 does not hold, it is deleted and was not overwritten" in home.damage[-1]
    directory.close(clean=False)
    block.write_bytes(content)
    directory = DataDirectory(tmp_path, threaded=False)
    assert [entry[0] for entry in directory.homes[1].get_all()] == [1, 2, 3, 4, 6, 7, 8, 9]
    directory.close()
