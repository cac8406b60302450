"""kill -9 under a load of publishes: every acknowledged message is there, in order, once.

The load generator keeps 4,096 publishes in flight, each with an id and its own number as payload,
and writes down what was acknowledged. Only that counts; more may be there, because an ack can be
lost with the process. `MARTLET_KILL_LIVES=20 MARTLET_KILL_ACKS=400000` makes a long evening of it;
the rate of each life is printed. Two cores with other work beside them acknowledged 110,000 to
137,000 a second, 1.8 million in three lives (2026-11-18).
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.differential.jetstream.client import Client
from tests.e2e.server import MARTLET, ServerProcess, wait_for

LOADGEN = Path(sys.executable).parent / "martlet-loadgen"
CONFIG = {
    "name": "K",
    "subjects": ["bench.js"],
    "storage": "file",
    "allow_direct": True,
    "duplicate_window": 3_600_000_000_000,
}
LIVES = int(os.environ.get("MARTLET_KILL_LIVES", "2"))
ACKS = int(os.environ.get("MARTLET_KILL_ACKS", "60000"))
LINE_BYTES = 14  # of a record, about
BATCH = 20_000
IN_FLIGHT = 4_096
LATEST_S = 40.0
STORED = re.compile(rb"\r\nNats-Sequence: (\d+)\r\n[^\0]*?\r\n\r\n(\d{12})\r\n")

pytestmark = pytest.mark.skipif(not LOADGEN.exists(), reason="run `make loadgen`")


def load(port: int, record: Path, first: int) -> subprocess.Popen[bytes]:
    """Publishes until the server goes, or for a minute."""
    options = {"port": port, "in-flight": IN_FLIGHT, "record": record, "first": first}
    given = [f"--{name}={value}" for name, value in options.items()]
    command = [str(LOADGEN), "acked", *given, "--seconds=60", "--warmup=0", "--stall-ms=30000"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def acknowledged(record: Path) -> dict[int, int]:
    """Number to sequence; a line that was not written whole is none."""
    lines = record.read_bytes().split(b"\n")[:-1]
    return {int(number): int(seq) for number, seq in map(bytes.split, lines)}


def read_all(client: Client) -> dict[int, int]:
    """Sequence to the number in its payload, for every message of the stream."""
    found: dict[int, int] = {}
    state = json.loads(client.request("$JS.API.STREAM.INFO.K"))["state"]
    seq = max(state["first_seq"], 1)
    while seq <= state["last_seq"]:
        body = json.dumps({"seq": seq, "batch": BATCH}).encode()
        client.publish("$JS.API.DIRECT.GET.K", body, reply="_R.all")
        data = bytearray()
        while b"NATS/1.0 204 EOB" not in data[-400:]:
            data += client._socket.recv(1 << 20)
        found.update((int(at), int(number)) for at, number in STORED.findall(bytes(data)))
        seq = max(found) + 1
    return found


def check(found: dict[int, int], acked: dict[int, int]) -> None:
    assert sorted(found) == list(range(1, len(found) + 1)), "sequences without holes"
    numbers = [found[seq] for seq in sorted(found)]
    assert numbers == sorted(set(numbers)), "in order, each once"
    missing = {n: seq for n, seq in acked.items() if found.get(seq) != n}
    assert not missing, f"{len(missing)} of {len(acked)} acknowledged messages are gone"


def again(client: Client, acked: dict[int, int], rng: random.Random) -> None:
    """The duplicate window holds over the restart: for the newest, and for any."""
    for number in rng.sample(sorted(acked), min(50, len(acked))) + sorted(acked)[-5:]:
        headers = b"NATS/1.0\r\nNats-Msg-Id: %012d\r\n\r\n" % number
        answer = json.loads(client.request("bench.js", b"again", headers))
        assert answer == {"stream": "K", "seq": acked[number], "duplicate": True}


def one_life(server: ServerProcess, record: Path, first: int, enough: int) -> float:
    """Loads the server, and kills it in the middle of that; acks a second."""
    began = time.monotonic()
    with load(server.port, record, first) as generator:
        try:
            size = enough * LINE_BYTES

            def acked() -> bool:
                """Enough of them, or what a busy machine does before the generator's time is up."""
                found = record.stat().st_size if record.exists() else 0
                return found >= size or (found > 0 and time.monotonic() - began > LATEST_S)

            wait_for(acked, "acks", 50.0)
            seconds = time.monotonic() - began
            server.signal(signal.SIGKILL)
            server.process.wait()
            _, said = generator.communicate(timeout=60)
        finally:
            generator.kill()
    assert b"closed the connection" in said or b"cannot send" in said, said
    return len(acknowledged(record)) / seconds


@pytest.mark.slow
@pytest.mark.feature("3.005", "3.008", "3.011")
@pytest.mark.parametrize("sync", ["always", "10s"])
def test_what_was_acknowledged_survives_kill_9(tmp_path: Path, sync: str) -> None:
    rng = random.Random(3)
    acked: dict[int, int] = {}
    first = 1
    config = f"jetstream {{ store_dir: {str(tmp_path / 'js')!r}, sync_interval: {sync} }}\n"
    for life in range(LIVES + 1):
        with ServerProcess(tmp_path, config=config, command=MARTLET) as server:
            with closing(Client(server.port)) as client:
                if life == 0:
                    client.request("$JS.API.STREAM.CREATE.K", json.dumps(CONFIG).encode())
                found = read_all(client)
                check(found, acked)
                again(client, acked, rng)
                assert json.loads(client.request("$JS.API.STREAM.INFO.K"))["state"][
                    "last_seq"
                ] == len(found)
            if life == LIVES:
                break
            record = tmp_path / f"acked.{life}"
            rate = one_life(server, record, first, rng.randrange(ACKS // 2, ACKS))
            acked.update(acknowledged(record))
            print(f"life {life}: {rate:,.0f} acks a second, {len(acked):,} in all")
            # What was sent and not acknowledged may be stored: its numbers are not used again.
            first = max(acked) + IN_FLIGHT + 1
    assert len(acked) > LIVES * IN_FLIGHT
