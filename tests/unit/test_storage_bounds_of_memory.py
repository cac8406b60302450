"""Maps, states in one turn, reserved disk: none grows with time. What of a new directory lasts."""

from pathlib import Path
from typing import Any

import pytest

from storage._directory import DataDirectory
from storage.fs import make_directory, syncfs_tells_errors


def test_maps_are_let_go_between_two_ticks(tmp_path: Path) -> None:
    """Those of active blocks too: a start looks at the first message of every stream."""
    directory = DataDirectory(tmp_path, threaded=False, maps_open_max=4)
    homes = [directory.create_stream({"n": number}) for number in range(30)]
    for home in homes:
        home.append_many([(1, 1, b"a.b", b"", b"one")])
    directory.wait(directory.commit())
    directory.wait_applied()
    largest = 0
    for home in homes:
        assert home.get(1) is not None
        directory.poll()
        largest = max(largest, directory.stats["maps"])
    assert largest <= 9
    assert [home.get(1) is not None for home in homes] == [True] * 30
    directory.maintain()
    directory.maintain()
    directory.maintain()
    assert directory.stats["maps"] <= 4
    directory.close()


def test_the_states_of_one_turn_are_few_when_they_are_large(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path, threaded=False)
    homes = [directory.create_stream({"n": number}) for number in range(6)]
    made: list[int] = []

    def snapshot_of(group: int) -> Any:
        def snapshot(clean: bool) -> bytes:
            made.append(group)
            return bytes(3 << 20)

        return snapshot

    for home in homes:
        home.append_many([(1, 1, b"a.b", b"", b"one")])
        home.snapshot_source = snapshot_of(home.group)
        home.checkpoint_wanted = True
    counts = []
    for _ in range(5):
        before = len(made)
        directory.wait(directory.commit())
        directory.wait_applied()
        counts.append(len(made) - before)
    assert counts == [2, 2, 2, 0, 0]
    assert sorted(made) == [home.group for home in homes]
    directory.close(clean=False)


def test_a_cut_gives_back_what_its_block_had_reserved(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path, threaded=False, block_size_max=16 << 20)
    home = directory.create_stream({"name": "s"})
    reserved = []
    for _ in range(20):
        first = home.last_seq + 1
        home.append_many([(seq, seq, b"a.b", b"", b"x" * 100) for seq in range(first, first + 20)])
        directory.wait(directory.commit())
        home.cut(home.last_seq - 5)
        directory.wait(directory.commit())
        directory.wait_applied()
        reserved = [block.stat().st_size for block in Path(home.path).glob("*.blk")]
    assert len(reserved) == 20
    assert max(reserved) <= 64 << 10
    assert len(home.get_all()) == 20 * 15
    directory.close(clean=False)
    directory = DataDirectory(tmp_path, threaded=False)
    assert len(directory.homes[1].get_all()) == 20 * 15
    assert directory.homes[1].lost == []
    directory.close()


def test_names_above_a_new_directory_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("storage.fs.sync_directory", synced.append)
    make_directory(tmp_path / "a" / "b" / "c")
    assert synced == [tmp_path / "a" / "b", tmp_path / "a", tmp_path]
    make_directory(tmp_path / "a" / "b")
    assert len(synced) == 3


@pytest.mark.parametrize(
    ("release", "told"),
    [("5.7.19", False), ("4.19.0-amd64", False), ("5.8", True), ("6.1.0-13-amd64", True)],
)
def test_old_kernels_say_nothing_of_a_whole_file_systems_errors(release: str, told: bool) -> None:
    assert syncfs_tells_errors(release) is told
