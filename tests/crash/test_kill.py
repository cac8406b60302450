"""A real process, a real kill -9: what it said was durable is there afterwards."""

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from storage._directory import DataDirectory
from tests.crash.workload import VARIANTS
from tests.e2e.server import die_with_parent

WRITER = """
import sys
from storage._directory import DataDirectory
from tests.crash.workload import VARIANTS
directory = DataDirectory(sys.argv[1], segment_size=256 << 10, log_bytes_max=1 << 20,
                          block_size_min=4096, block_size_max=64 << 10, **VARIANTS[sys.argv[2]])
home = directory.homes.get(1) or directory.create_stream({"name": "s"})
seq = home.last_seq
while True:
    home.append_many([(seq + n, 1, b"s", b"", b"%d" % (seq + n) * 20) for n in range(1, 51)])
    seq += 50
    directory.wait(directory.commit())
    directory.maintain()
    print(home.durable_seq, flush=True)
"""


@pytest.mark.parametrize("variant", VARIANTS)
def test_kill_keeps_what_was_acked(tmp_path: Path, variant: str) -> None:
    rng = random.Random(1)
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), variant],
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,
        )
        assert process.stdout is not None
        acked = 0
        for _ in range(rng.randint(1, 200)):
            acked = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        acked = max(
            [acked, *(int(line) for line in process.stdout.read().split("\n")[:-1] if line)]
        )
        process.wait()
        process.stdout.close()
        directory = DataDirectory(tmp_path, **VARIANTS[variant])
        home = directory.homes[1]
        assert home.last_seq >= acked
        assert [message[0] for message in home.get_all()] == list(range(1, home.last_seq + 1))
        assert all(message[4] == b"%d" % message[0] * 20 for message in home.get_all())
        assert (home.lost, home.damage, directory.damage) == ([], [], [])
        directory.close(clean=False)
