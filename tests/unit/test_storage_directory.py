"""A data directory from the outside: write, read, delete, reopen, refuse."""

import errno
import select
from pathlib import Path

import pytest

from storage._directory import DataDirectory, StoreDown
from storage.fs import NotUsable
from tests.crash.faulty import FaultyFiles

Message = tuple[int, int, bytes, bytes, bytes]


def messages(first: int, last: int, size: int = 50) -> list[Message]:
    return [
        (seq, seq * 1000, b"s.%d" % (seq % 7), b"H" * (seq % 3), b"%d" % seq + b"x" * (seq % size))
        for seq in range(first, last + 1)
    ]


def test_reads_before_and_after_the_disk(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    home = directory.create_stream({"name": "s"})
    wanted = messages(1, 5000)
    for start in range(0, 5000, 250):
        home.append_many(wanted[start : start + 250])
        ticket = directory.commit()
        assert home.get(start + 3) == wanted[start + 2]
    directory.wait(ticket)
    assert home.durable_seq == 5000
    assert home.get_all() == wanted
    directory.wait_applied()
    assert home.get_all() == wanted
    assert [home.get(0), home.get(5001)] == [None, None]
    assert home.first_at(2_000_500) == 2001
    directory.close()


@pytest.mark.parametrize("clean", [True, False])
def test_reopen_shows_the_same(tmp_path: Path, clean: bool) -> None:
    directory = DataDirectory(tmp_path, block_size_min=4096, block_size_max=65536)
    home = directory.create_stream({"name": "s", "replicas": 1})
    home.append_many(messages(1, 3000))
    home.reserve(3001, 500)
    home.append_many(messages(3501, 3600))
    directory.wait(directory.commit())
    for seq in (5, 700, 3550):
        assert home.delete(seq)
    assert not home.delete(5)
    assert home.delete(701, erase=True)
    home.drop(100)
    directory.wait(directory.commit())
    wanted = home.get_all()
    directory.close(clean=clean)

    directory = DataDirectory(tmp_path, block_size_min=4096, block_size_max=65536)
    home = directory.homes[1]
    assert directory.settings_of(home) == {"name": "s", "replicas": 1}
    assert home.get_all() == wanted
    assert (3001, 500) in wanted
    assert (home.last_seq, home.floor, home.lost, directory.damage) == (3600, 100, [], [])
    home.append_many(messages(3601, 3700))
    directory.wait(directory.commit())
    assert home.get_all() == wanted + messages(3601, 3700)
    directory.close()


def test_cut_takes_back_the_tail_and_sequences_are_used_again(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path, block_size_min=4096, block_size_max=8192)
    home = directory.create_stream({"name": "s"})
    home.append_many(messages(1, 1000))
    directory.wait(directory.commit())
    home.cut(400)
    home.append_many([(401, 1, b"new", b"", b"new")])
    directory.wait(directory.commit())
    wanted = [*messages(1, 400), (401, 1, b"new", b"", b"new")]
    assert home.get_all() == wanted
    directory.close(clean=False)
    directory = DataDirectory(tmp_path, block_size_min=4096, block_size_max=8192)
    assert directory.homes[1].get_all() == wanted
    directory.close()


def test_a_small_batch_is_held_while_another_is_under_way(tmp_path: Path) -> None:
    """However much is under way, a batch of a few messages is not worth a write of its own."""
    directory = DataDirectory(tmp_path)
    home = directory.create_stream({"name": "s"})
    directory.wait(directory.commit())
    assert not directory.is_busy
    home.append_many([(seq, 1, b"s", b"", b"x" * 1000) for seq in range(1, 100)])
    directory.commit()
    home.append_many([(100, 1, b"s", b"", b"x" * 1000)])
    assert directory.is_busy
    home.append_many([(seq, 1, b"s", b"", b"x" * 1000) for seq in range(101, 140)])
    assert not directory.is_busy, "enough for a write of its own"
    directory.wait(directory.commit())
    assert not directory.is_busy
    directory.close()


def test_dead_blocks_leave_the_disk(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path, block_size_min=4096, block_size_max=8192)
    home = directory.create_stream({"name": "s"})
    home.append_many(messages(1, 2000))
    directory.wait(directory.commit())
    home.drop(1900)
    directory.wait(directory.commit())
    directory.wait_applied()
    assert len(list(Path(home.path).glob("*.blk"))) == len(home.describe_blocks()) <= 5
    assert home.get_all() == messages(1900, 2000)
    directory.close()


def test_secure_erase_leaves_no_bytes_in_the_block(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    home = directory.create_stream({"name": "s"})
    home.append_many(
        [
            (1, 1, b"a", b"", b"keep"),
            (2, 1, b"a", b"", b"very secret bytes"),
            (3, 1, b"a", b"", b"keep"),
        ]
    )
    directory.wait(directory.commit())
    home.delete(2, erase=True)
    directory.wait(directory.commit())
    directory.wait_applied()
    block = next(Path(home.path).glob("*.blk"))
    assert b"very secret" not in block.read_bytes()
    assert home.get_all() == [(1, 1, b"a", b"", b"keep"), (3, 1, b"a", b"", b"keep")]
    directory.close()


def test_a_pin_outlives_the_block(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path, block_size_min=4096, block_size_max=8192)
    home = directory.create_stream({"name": "s"})
    home.append_many(messages(1, 500))
    directory.wait(directory.commit())
    directory.wait_applied()
    wanted, pin = home.pinned(3)
    home.drop(400)
    directory.wait(directory.commit())
    directory.wait_applied()
    assert home.get(3) is None
    assert wanted[4] in bytes(memoryview(pin))  # type: ignore[arg-type]
    directory.close()


def test_sparse_sequences(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path, block_size_min=4096, block_size_max=65536)
    home = directory.create_stream({"name": "s"})
    wanted = [(seq, seq, b"s", b"", b"m") for seq in range(10, 10_000_000, 99_991)]
    home.append_many(wanted)
    home.append_many([(2**40, 1, b"s", b"", b"far")])
    directory.wait(directory.commit())
    wanted.append((2**40, 1, b"s", b"", b"far"))
    for _ in range(2):
        assert home.get_all() == wanted
        assert home.get(wanted[50][0]) == wanted[50]
        assert home.get(wanted[50][0] + 1) is None
        assert home.get_next(wanted[50][0] + 1) == wanted[51]
        directory.close()
        directory = DataDirectory(tmp_path)
        home = directory.homes[1]
    directory.close()


def test_two_processes_are_refused(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    with pytest.raises(NotUsable, match="in use"):
        DataDirectory(tmp_path)
    directory.close()


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    DataDirectory(tmp_path).close()
    from storage._codec import checksum

    identity = bytearray((tmp_path / "directory").read_bytes())
    identity[8] = 3
    identity[56:] = checksum(bytes(identity[:56])).to_bytes(8, "little")
    (tmp_path / "directory").write_bytes(identity)
    with pytest.raises(NotUsable, match="version 3"):
        DataDirectory(tmp_path)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failed_call_takes_the_store_down_and_keeps_what_was_acked(
    tmp_path: Path, code: int
) -> None:
    fail_at = 1
    while True:
        path = tmp_path / str(fail_at)
        files = FaultyFiles(fail_at=fail_at, fail_errno=code)
        acked = 0
        try:
            directory = DataDirectory(
                path, files, threaded=False, block_size_min=4096, block_size_max=8192
            )
            home = directory.create_stream({"name": "s"})
            for first in range(1, 60, 20):
                home.append_many(messages(first, first + 19))
                directory.wait(directory.commit())
                acked = home.durable_seq
            directory.close()
        except OSError as error:
            if code != error.errno and not isinstance(error, StoreDown):
                raise
            directory.close(clean=False)
        whole = files.calls_made < fail_at
        files.release()
        directory = DataDirectory(path, threaded=False)
        if acked:
            assert directory.homes[1].get_all()[:acked] == messages(1, acked)
        directory.close()
        if whole:
            break
        fail_at += 1
    assert fail_at > 20


def test_delete_stream(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    first, second = directory.create_stream({"name": "a"}), directory.create_stream({"name": "b"})
    first.append_many(messages(1, 100))
    second.append_many(messages(1, 100))
    directory.delete_stream(first)
    directory.wait_applied()
    assert not Path(first.path).exists()
    assert second.get_all() == messages(1, 100)
    directory.close()
    directory = DataDirectory(tmp_path)
    assert list(directory.homes) == [2]
    assert directory.create_stream({"name": "c"}).group == 3
    directory.close()


@pytest.mark.feature("9.015")
def test_a_half_finished_delete_is_finished_at_the_next_start(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    stays = directory.create_stream({"name": "a"})
    directory.close()
    hidden = Path(stays.path).with_name(".00000000000000ff")
    hidden.mkdir()
    (hidden / "00000001.blk").write_bytes(b"what was left")
    directory = DataDirectory(tmp_path)
    assert not hidden.exists()
    assert list(directory.homes) == [1]
    directory.close()


@pytest.mark.feature("9.014")
def test_nobody_else_may_read(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "data")
    directory.create_stream({"name": "a"}).append_many(messages(1, 100))
    directory.close()
    modes = {(path.is_dir(), path.stat().st_mode & 0o777) for path in tmp_path.rglob("*")}
    assert modes == {(True, 0o700), (False, 0o600)}


@pytest.mark.feature("9.020")
def test_a_mostly_dead_block_is_rewritten(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path, block_size_min=16384, block_size_max=16384)
    home = directory.create_stream({"name": "s"})
    home.append_many(messages(1, 1000))
    directory.wait(directory.commit())
    directory.wait_applied()
    before = home.describe_blocks()[0]
    kept = messages(1, before["last"])[::10]
    for seq in range(before["first"], before["last"] + 1):
        if seq % 10 != 1:
            home.delete(seq)
    for _ in range(2):  # a checkpoint first, then the rewriting
        directory.wait(directory.commit())
        directory.wait_applied()
        directory.maintain()
    home.delete(11, erase=True)
    directory.wait(directory.commit())
    directory.wait_applied()
    after = home.describe_blocks()[0]
    assert (after["generation"], after["sparse"]) == (1, True)
    assert after["bytes"] < before["bytes"] // 5
    wanted = [message for message in kept if message[0] != 11]
    assert home.get_all()[: len(wanted)] == wanted
    content = (Path(home.path) / f"{before['number']:016x}.blk").read_bytes()
    assert b"\0\0s.4HH" + messages(11, 11)[0][4] not in content
    everything = home.get_all()
    directory.close(clean=False)
    directory = DataDirectory(tmp_path)
    assert directory.homes[1].get_all() == everything
    assert (directory.damage, directory.homes[1].lost) == ([], [])
    directory.close()


def test_a_wait_inside_leaves_the_loop_something_to_look_at(tmp_path: Path) -> None:
    """Deleting a stream reaps what the loop would have been told of: it is told all the same."""
    directory = DataDirectory(tmp_path)
    home, other = (directory.create_stream({"name": name}) for name in "st")
    home.append_many(messages(1, 5))
    directory.commit()
    directory.delete_stream(other)
    listener = select.poll()
    listener.register(directory.log_event_fd, select.POLLIN)
    assert listener.poll(0), "what became durable meanwhile is never released"
    directory.poll()
    assert home.durable_seq == 5
    assert not listener.poll(0)
    directory.close()


def test_a_small_lazy_batch_is_written_at_once_and_waits_for_its_block(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path, durable=False)
    home = directory.create_stream({"name": "s"})
    home.append_many([(1, 1, b"s", b"", b"first")])
    directory.wait(directory.commit())
    directory.wait_applied()
    home.append_many([(2, 1, b"s", b"", b"later")])
    ticket = directory.commit()
    assert directory.poll() == ticket
    assert directory.applied_ticket == ticket - 1
    assert [message[0] for message in home.get_all()] == [1, 2]
    directory.catch_up()
    directory.wait_applied()
    assert directory.applied_ticket == ticket
    assert [message[4] for message in home.get_all()] == [b"first", b"later"]
    directory.close()
