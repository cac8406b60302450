"""Publishing with what a stream or a publish may ask for beside storing: what each costs."""

from bench.consumers import ask
from bench.jetstream import PAYLOAD_BYTES, running
from bench.loads import Numbers, Run, Scale, generate
from bench.programs import Program

IN_FLIGHT = 4096


def published(header: str = "", settings: dict[str, object] | None = None) -> Run:
    """One publisher to one stream in memory, each publish acknowledged; `#` is its number."""

    def run(program: Program, scale: Scale) -> Numbers:
        stream: dict[str, object] = {"name": "B", "subjects": ["bench.js"], "storage": "memory"}
        with running(program) as server:
            ask(server, "STREAM.CREATE.B", stream | (settings or {}))
            return generate(
                server,
                "acked",
                in_flight=IN_FLIGHT,
                size=PAYLOAD_BYTES,
                seconds=scale.seconds,
                warmup=scale.warmup_s,
                **({"header": header} if header else {}),
            )

    return run


MSG_ID = published("Nats-Msg-Id: #")
LAST_SEQ = published("Nats-Expected-Last-Sequence: #")
LAST_SUBJECT_SEQ = published("Nats-Expected-Last-Subject-Sequence: #")
OTHER_HEADER = published("Trace: #")
TTL = published("Nats-TTL: 1h", {"allow_msg_ttl": True})
ROLLUP = published("Nats-Rollup: sub", {"allow_rollup_hdrs": True})
REPUBLISH = published(settings={"republish": {"src": "bench.js", "dest": "again.js"}})
TRANSFORM = published(settings={"subject_transform": {"src": "bench.js", "dest": "other.js"}})
