"""Streams that copy from another of the same server: how fast they catch up."""

import json
import time
from contextlib import closing

from bench.consumers import MESSAGES_A_SECOND, fill
from bench.jetstream import Requests, running
from bench.loads import Numbers, Run, Scale
from bench.programs import BenchError, Program

LOOK_EVERY_S = 0.002
PATIENCE_S = 60.0


def copied(origin: dict[str, object]) -> Run:
    """From the request that makes the copy to its last message; the origin is in memory, the copy
    in files, with the default sync_interval of each."""

    def run(program: Program, scale: Scale) -> Numbers:
        count = int(MESSAGES_A_SECOND * scale.seconds)
        with running(program) as server:
            fill(server, count, 1)
            with closing(Requests(server.port)) as requests:
                started = time.monotonic()
                config = json.dumps({"name": "C", "storage": "file", **origin}).encode()
                requests.send([("$JS.API.STREAM.CREATE.C", config)])
                last_seq = last_seq_of(requests.answer())
                while last_seq < count:
                    if time.monotonic() - started > PATIENCE_S:
                        raise BenchError(f"{last_seq} of {count} messages were copied")
                    time.sleep(LOOK_EVERY_S)
                    requests.send([("$JS.API.STREAM.INFO.C", b"")])
                    last_seq = last_seq_of(requests.answer())
                seconds = time.monotonic() - started
        return {"messages_per_s": count / seconds, "seconds": seconds}

    return run


def last_seq_of(answer: bytes) -> int:
    told = json.loads(answer)
    if "error" in told:
        raise BenchError(f"no copy: {told['error']}")
    return int(told["state"]["last_seq"])
