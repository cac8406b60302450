"""A disk that is really full: a small file system in memory, mounted for one process.

What was acked is there afterwards, whichever write was the first without room, and the server
serves what needs no disk.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.differential.jetstream.client import Client
from tests.e2e.server import BIN, ServerProcess

MOUNT = 'mount -t tmpfs -o size=$1k none "$2" && echo mounted && read end'
ENTER = """#!/bin/sh
exec nsenter --target {pid} --user --mount --preserve-credentials "{program}" "$@"
"""
LOG_KB = 64 << 10  # a segment of the log
PAYLOAD = b"x" * (256 << 10)

FILLER = """
import sys
from pathlib import Path
from storage._directory import DataDirectory, StoreDown
place, size, start = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
sizes = dict(segment_size=1 << 20, log_bytes_max=2 << 20,
             block_size_min=64 << 10, block_size_max=256 << 10)
ballast = place / "ballast"
if start:
    ballast.unlink()
else:
    ballast.write_bytes(bytes(2 << 20))
acked, told = 0, ""
try:
    directory = DataDirectory(place / "data", **sizes)
    if start:
        home = directory.homes[1]
        print(home.last_seq, len(home.get_all()), home.lost)
        home.append_many([(home.last_seq + 1, 1, b"s", b"", b"after it")])
        directory.wait(directory.commit())
        directory.close()
        raise SystemExit
    home = directory.create_stream({"name": "s"})
    while True:
        home.append_many([(home.last_seq + 1, 1, b"s", b"", b"x" * size)])
        directory.wait(directory.commit())
        acked = home.durable_seq
except StoreDown as error:
    told = str(error)
print(acked, "No space left on device" in told)
directory.close()
"""


@dataclass
class SmallDisk:
    """Seen at `place` by processes that `enter` starts, and by nobody else."""

    place: Path
    pid: int

    def enter(self, program: str) -> str:
        """A program that starts the given one there."""
        script = self.place.with_name(f"enter-{Path(program).name}")
        script.write_text(ENTER.format(pid=self.pid, program=program))
        script.chmod(0o755)
        return str(script)

    def python(self, text: str, *words: object) -> list[str]:
        done = subprocess.run(
            [self.enter(sys.executable), "-c", text, str(self.place), *map(str, words)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split(maxsplit=2)


@contextmanager
def small_disk(folder: Path, size_kb: int) -> Iterator[SmallDisk]:
    place = folder / "disk"
    place.mkdir()
    words = ["unshare", "--map-root-user", "--mount", "sh", "-c", MOUNT, "sh"]
    with subprocess.Popen(
        [*words, str(size_kb), str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stderr is not None
        if holder.stdout.readline() != "mounted\n":
            pytest.skip(f"no file system can be mounted here: {holder.stderr.read().strip()}")
        yield SmallDisk(place, holder.pid)


@pytest.mark.parametrize("size_kb", range(6144, 8192, 256))
def test_what_was_acked_outlives_a_full_disk(tmp_path: Path, size_kb: int) -> None:
    """Each size ends in another write: of the log, of a block, of a state, or a new file."""
    with small_disk(tmp_path, size_kb) as disk:
        acked, told = disk.python(FILLER, 2000 + size_kb % 1000, 0)
        assert told == "True"
        last, count, lost = disk.python(FILLER, 0, 1)
        assert int(last) == int(count) >= int(acked) > 200
        assert lost.strip() == "[]"


def test_a_server_on_a_full_disk(tmp_path: Path) -> None:
    """Everybody is answered, also who was waiting when it happened; with some room all goes on."""
    store = tmp_path / "disk" / "js"
    config = f'listen: "127.0.0.1:-1"\njetstream {{ max_file: 1G, store_dir: "{store}" }}\n'
    with small_disk(tmp_path, 5 * LOG_KB) as disk:
        disk.python(BALLAST, "wb")
        command = disk.enter(str(BIN / "martlet"))
        with ServerProcess(tmp_path, config=config, command=command) as server:
            client = Client(server.port)
            client.request("$JS.API.STREAM.CREATE.K", b'{"name":"K","subjects":["k"]}')
            acked, refusal = publish_until_refused(client)
            assert acked > 100
            assert "No space left on device" in refusal["description"]
            assert still_serves(client, acked) == acked
            stop(server, client)
        disk.python(BALLAST, "rb")
        with ServerProcess(tmp_path, config=config, command=command) as server:
            client = Client(server.port)
            assert still_serves(client, acked) in (acked, acked + 1)
            assert publish_until_refused(client, 10) == (10, {})
            stop(server, client)


BALLAST = """
import sys
from pathlib import Path
ballast = Path(sys.argv[1]) / "ballast"
ballast.write_bytes(bytes(160 << 20)) if sys.argv[2] == "wb" else ballast.unlink()
"""


def publish_until_refused(client: Client, at_most: int = 10_000) -> tuple[int, dict[str, str]]:
    for acked in range(at_most):
        answer = json.loads(client.request("k", PAYLOAD))
        if "error" in answer:
            assert answer["error"]["err_code"] == 10077
            return acked, answer["error"]
    return at_most, {}


def still_serves(client: Client, acked: int) -> int:
    """What needs no room is served; how many messages there are."""
    found = json.loads(client.request("$JS.API.STREAM.MSG.GET.K", b'{"seq":%d}' % acked))
    assert found["message"]["seq"] == acked
    client.subscribe("plain", 7)
    client.publish("plain", b"core")
    assert [message[2] for message in client.settled()] == [b"core"]
    info = json.loads(client.request("$JS.API.STREAM.INFO.K"))
    return int(info["state"]["messages"])


def stop(server: ServerProcess, client: Client) -> None:
    client.close()
    server.process.terminate()
    assert server.process.wait(30) == 0
