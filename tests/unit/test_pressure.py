"""Caches go when the kernel says that tasks wait for memory."""

from pathlib import Path

from server.ops.pressure import MemoryPressure, pressure_file
from storage._directory import DataDirectory

SECOND_NS = 1_000_000_000


def say(path: Path, stalled_us: int) -> None:
    path.write_text(
        f"some avg10=0.00 avg60=0.00 avg300=0.00 total={stalled_us}\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=999999999\n"
    )


def test_uncompressed_frames_go_when_memory_is_short(tmp_path: Path) -> None:
    directory = DataDirectory(
        tmp_path / "data",
        threaded=False,
        block_size_min=4096,
        block_size_max=4096,
        codec_of=lambda settings: "zstd",
    )
    home = directory.create_stream({"name": "s"})
    home.append_many([(seq, seq, b"a", b"", b"m" * 1000) for seq in range(1, 21)])
    directory.wait(directory.commit())
    directory.wait_rewritten()
    pressure_path = tmp_path / "memory"
    say(pressure_path, 5_000_000)
    pressure = MemoryPressure(pressure_path, 0)

    def cached_bytes_after(seconds: int, stalled_us: int) -> int:
        assert home.get(1) is not None
        say(pressure_path, stalled_us)
        pressure.relieve(seconds * SECOND_NS, directory.drop_caches)
        cached: int = directory.stats["frame_cache_bytes"]
        return cached

    assert cached_bytes_after(1, 5_000_000) > 0
    assert cached_bytes_after(2, 5_100_000) > 0  # not more than a tenth of the second
    assert cached_bytes_after(3, 5_200_001) == 0
    assert cached_bytes_after(4, 5_200_001) > 0
    directory.close()


def test_a_kernel_that_does_not_count_drops_nothing(tmp_path: Path) -> None:
    dropped: list[int] = []
    for path in (None, tmp_path / "missing", tmp_path):
        pressure = MemoryPressure(path, 0)
        pressure.relieve(SECOND_NS, lambda: dropped.append(1))
    assert dropped == []


def test_the_control_group_is_asked_before_the_machine(tmp_path: Path) -> None:
    machine = tmp_path / "proc/pressure/memory"
    group = tmp_path / "sys/fs/cgroup/system.slice/martlet.service/memory.pressure"
    membership = tmp_path / "proc/self/cgroup"
    assert pressure_file(tmp_path) is None
    for path in (machine, group, membership):
        path.parent.mkdir(parents=True)
    say(machine, 0)
    assert pressure_file(tmp_path) == machine
    membership.write_text("1:cpu:/x\n0::/system.slice/martlet.service\n")
    assert pressure_file(tmp_path) == machine
    say(group, 0)
    assert pressure_file(tmp_path) == group
