"""A bucket's puts and gets, as every client library sends them, many under way."""

from bench.consumers import ask
from bench.jetstream import PAYLOAD_BYTES, running
from bench.loads import Numbers, Scale, generate
from bench.programs import Program, Server

IN_FLIGHT = 256
BUCKET: dict[str, object] = {
    "name": "KV_B",
    "subjects": ["$KV.B.>"],
    "max_msgs_per_subject": 1,
    "discard": "new",
    "allow_rollup_hdrs": True,
    "deny_delete": True,
    "allow_direct": True,
}


def keys_of(scale: Scale) -> int:
    return 10 * scale.connections


def put(server: Server, scale: Scale, seconds: float, warmup_s: float) -> Numbers:
    return generate(
        server,
        "acked",
        keys=keys_of(scale),
        in_flight=IN_FLIGHT,
        size=PAYLOAD_BYTES,
        seconds=seconds,
        warmup=warmup_s,
    )


def puts(program: Program, scale: Scale) -> Numbers:
    """Each key in turn: new ones first, then again. Both with their default sync_interval."""
    with running(program) as server:
        ask(server, "STREAM.CREATE.KV_B", BUCKET)
        return put(server, scale, scale.seconds, scale.warmup_s)


def gets(program: Program, scale: Scale) -> Numbers:
    """The last value of each key in turn, asked for directly; in memory: it is filled sooner."""
    with running(program) as server:
        ask(server, "STREAM.CREATE.KV_B", BUCKET | {"storage": "memory"})
        while messages_of(server) < keys_of(scale):
            put(server, scale, scale.seconds, 0)
        return generate(
            server,
            "acked",
            get=True,
            keys=keys_of(scale),
            in_flight=IN_FLIGHT,
            size=PAYLOAD_BYTES,
            seconds=scale.seconds,
            warmup=scale.warmup_s,
        )


def messages_of(server: Server) -> int:
    state = ask(server, "STREAM.INFO.KV_B", {})["state"]
    assert isinstance(state, dict)
    return int(state["messages"])
