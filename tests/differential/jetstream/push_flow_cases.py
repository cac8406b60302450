"""Flows of push consumers and of priority groups, and the events that consumers bring about."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

from tests.differential.jetstream import consumer_cases as api
from tests.differential.jetstream.cases import MS, SECOND
from tests.differential.jetstream.flow import (
    Ack,
    Beat,
    Flow,
    Live,
    Pull,
    Rest,
    Still,
    Sub,
    Take,
    Unsub,
    Until,
    Whole,
)
from tests.differential.jetstream.flow_cases import (
    ACKS,
    FILLED,
    FILTERS,
    INFO,
    LATE,
    LONG,
    NO_WAIT,
    STARTS,
    STATE,
    consumer,
    few,
    filtered,
    message,
    purge,
    remove,
    stream,
)
from tests.differential.jetstream.play import Ask

Steps = tuple[Any, ...]
TO = {"deliver_subject": "to"}
HEARD = Sub("to", "to")
MORE: Steps = tuple(Live(each) for each in LATE)
BEATS = {"idle_heartbeat": 100 * MS}
FLOW = {"idle_heartbeat": 20 * SECOND, "flow_control": True}


def start_flows() -> Iterator[Flow]:
    """Start x filter x ack policy for one who listens from the beginning."""
    for start, heard, ack in product(STARTS, ("everything", "one", "two"), ACKS):
        config = filtered(STARTS[start], FILTERS[heard])
        steps = (*FILLED, HEARD, consumer(TO, config, ACKS[ack]), Rest(), INFO, *MORE, Rest(), INFO)
        yield Flow(f"push {start}, {heard}, ack {ack}", steps)


def interest_flows() -> Iterator[Flow]:
    for ack in ACKS:
        late: Steps = (*few(3), consumer(TO, ACKS[ack]), Rest(), INFO)
        yield Flow(f"listens later, ack {ack}", (*late, HEARD, Take("to", 3), INFO))
        stops: Steps = (
            *late,
            HEARD,
            Take("to", 3),
            Unsub("to"),
            Rest(),
            message("a.b", b"unheard"),
        )
        yield Flow(
            f"stops and listens again, ack {ack}",
            (*stops, Rest(), INFO, Sub("again", "to"), Take("again"), INFO),
        )
        two = (
            *few(1),
            HEARD,
            Sub("too", "to"),
            consumer(TO, ACKS[ack]),
            Take("to"),
            Take("too"),
            INFO,
        )
        yield Flow(
            f"two listen, ack {ack}", (*two, Unsub("to"), message("a.b", b"2"), Take("too"), INFO)
        )
        group = TO | {"deliver_group": "g"}
        alone = (*few(2), consumer(group, ACKS[ack]), HEARD, Rest(), INFO)
        yield Flow(
            f"only a group counts, ack {ack}",
            (*alone, Sub("member", "to", "g"), Take("member", 2), Rest(), INFO),
        )
        yield Flow(
            f"another group does not, ack {ack}",
            (
                *few(2),
                consumer(group, ACKS[ack]),
                Sub("other", "to", "h"),
                Rest(),
                INFO,
                Sub("member", "to", "g"),
                Take("member", 2),
                INFO,
            ),
        )
        yield Flow(
            f"a group where none is asked for, ack {ack}",
            (*few(2), consumer(TO, ACKS[ack]), Sub("member", "to", "g"), Rest(60), INFO),
        )
        yield Flow(
            f"wild interest, ack {ack}",
            (
                *few(2),
                consumer({"deliver_subject": "to.one"}, ACKS[ack]),
                Sub("all", "to.>"),
                Rest(60),
                INFO,
            ),
        )
        yield Flow(
            f"deleted while it delivers, ack {ack}",
            (*few(2), HEARD, consumer(TO, ACKS[ack]), Take("to", 2), api.delete(), *MORE, Rest()),
        )
        yield Flow(
            f"headers only, push, ack {ack}",
            (*FILLED, HEARD, consumer(TO, ACKS[ack], headers_only=True), Rest(), INFO),
        )
        yield Flow(
            f"paused push, ack {ack}",
            (
                *few(2),
                HEARD,
                consumer(TO, ACKS[ack], pause_until=api.FUTURE),
                Rest(),
                INFO,
                api.pause(None),
                Rest(50),
                INFO,
            ),
        )


def heartbeat_flows() -> Iterator[Flow]:
    beating = consumer(TO, BEATS)
    yield Flow(
        "heartbeats, nothing there", (stream(), HEARD, beating, Beat("to"), Beat("to"), INFO), True
    )
    yield Flow(
        "heartbeats after messages",
        (
            *few(3),
            HEARD,
            beating,
            Take("to", 3),
            Beat("to"),
            message("a.b", b"4"),
            Take("to"),
            Beat("to"),
            INFO,
        ),
        True,
    )
    yield Flow(
        "heartbeats under a filter",
        (
            *FILLED,
            HEARD,
            consumer(TO, BEATS, filter_subject="a.1"),
            Take("to", 2),
            Beat("to"),
            INFO,
        ),
        True,
    )
    yield Flow(
        "heartbeats while paused",
        (*few(2), HEARD, consumer(TO, BEATS, pause_until=api.FUTURE), Beat("to"), INFO),
        True,
    )
    yield Flow(
        "heartbeats at the limit of pending",
        (
            *few(3),
            HEARD,
            consumer(TO, BEATS, ACKS["explicit"], max_ack_pending=1),
            Take("to"),
            Beat("to"),
            Ack(1),
            Take("to"),
            Beat("to"),
            INFO,
        ),
        True,
    )
    yield Flow(
        "no heartbeat for nobody",
        (*few(1), beating, Rest(250), HEARD, Take("to"), Beat("to"), INFO),
        True,
    )
    yield Flow(
        "heartbeats, filter of nothing",
        (*few(3), HEARD, consumer(TO, BEATS, filter_subject="a.x"), Beat("to"), INFO),
        True,
    )
    for start in ("last", "new", "seq 3", "last per subject"):
        yield Flow(
            f"heartbeats, start {start}",
            (*FILLED, HEARD, consumer(TO, BEATS, STARTS[start]), Beat("to"), Rest(), INFO),
            True,
        )


BIG = b"x" * 100_000


def flow_control_flows() -> Iterator[Flow]:
    """The window is 2 MiB: asked when half of it is under way, closed when all of it is."""
    controlled = consumer(TO, FLOW)
    many: Steps = tuple(message("a.b", BIG) for _ in range(40))
    yield Flow(
        "flow control, asked once",
        (stream(), *many[:12], HEARD, controlled, Take("to", 12), Rest(50)),
    )
    yield Flow("flow control, closed", (stream(), *many, HEARD, controlled, Rest(120), INFO))
    yield Flow("flow control, small", (*few(5), HEARD, controlled, Take("to", 5), Rest(50), INFO))
    stalled = consumer(TO, BEATS, flow_control=True)
    yield Flow(
        "flow control, stalled heartbeat",
        (stream(), *many, HEARD, stalled, Rest(120), Stalled(), INFO),
        True,
    )
    yield Flow("flow control, answered", (stream(), *many, HEARD, controlled, Opened(), INFO))
    yield Flow(
        "flow control, acked by it",
        (*few(5), HEARD, consumer(TO, {"ack_policy": "flow_control"}), Rest(1300), INFO),
        True,
    )
    yield Flow(
        "flow control, acked by its answer",
        (
            *few(5),
            HEARD,
            consumer(TO, {"ack_policy": "flow_control"}),
            Take("to", 5),
            AnswerWith(3, 3),
            INFO,
        ),
        True,
    )


class Stalled:
    """The next heartbeat that says where it is stalled, without the numbers of the stall."""

    def play(self, player: Any) -> Any:
        for _ in range(10):
            for each in player.wait("to", 1, heartbeats=True):
                if b"Nats-Consumer-Stalled" in each.headers:
                    return each.told()
        return "none"


class Opened:
    """Answers each request of flow control until all messages have come; how they were cut."""

    def play(self, player: Any) -> Any:
        told: list[Any] = []
        count = 0
        while count < 40 and (found := player.wait("to", 1)):
            heard = found[0]
            if b"FlowControl" in heard.headers:
                player.publish(heard.reply, b"")
                told.append(heard.told())
            else:
                count += 1
        return count, told


class AnswerWith:
    """Answers a request of flow control with the sequences that were heard."""

    def __init__(self, consumer_seq: int, stream_seq: int) -> None:
        self._seqs = consumer_seq, stream_seq

    def play(self, player: Any) -> Any:
        found = player.wait("to", 1)
        if not found:
            return "nothing to answer"
        last, stream_last = self._seqs
        headers = f"NATS/1.0\r\nNats-Last-Consumer: {last}\r\nNats-Last-Stream: {stream_last}"
        player.publish(found[0].reply, b"", f"{headers}\r\n\r\n".encode())
        player.barrier()
        return found[0].told()


def push_redelivery_flows() -> Iterator[Flow]:
    for ack in ("all", "explicit"):
        waits = consumer(TO, ACKS[ack], ack_wait=150 * MS)
        yield Flow(
            f"push, ack wait over, ack {ack}",
            (*few(3), HEARD, waits, Take("to", 3), Take("to", 3), INFO),
            True,
        )
        yield Flow(
            f"push, nacked, ack {ack}",
            (
                *few(3),
                HEARD,
                consumer(TO, ACKS[ack]),
                Take("to", 3),
                Ack(2, b"-NAK"),
                Take("to"),
                INFO,
            ),
        )
        yield Flow(
            f"push, terminated, ack {ack}",
            (*few(3), HEARD, consumer(TO, ACKS[ack]), Take("to", 3), Ack(2, b"+TERM"), INFO),
        )
        yield Flow(
            f"push, at most 2, ack {ack}",
            (
                *few(2),
                HEARD,
                consumer(TO, ACKS[ack], ack_wait=100 * MS, max_deliver=2),
                Take("to", 4),
                Until("CONSUMER.INFO.S.C", ("num_ack_pending",), 0),
                INFO,
            ),
            True,
        )
        for most in (1, 2, 3):
            yield Flow(
                f"push, pending {most}, ack {ack}",
                (
                    *few(4),
                    HEARD,
                    consumer(TO, ACKS[ack], max_ack_pending=most),
                    Take("to", most),
                    Rest(),
                    INFO,
                    Ack(1),
                    Rest(),
                    INFO,
                ),
            )
        yield Flow(
            f"push, one deleted, ack {ack}",
            (*few(3), HEARD, consumer(TO, ACKS[ack]), Take("to", 3), remove(2), INFO),
        )
        yield Flow(
            f"push, purged, ack {ack}",
            (
                *few(3),
                HEARD,
                consumer(TO, ACKS[ack]),
                Take("to", 3),
                purge(),
                INFO,
                *MORE,
                Rest(),
                INFO,
            ),
        )
    moved = consumer({"deliver_subject": "other"}, ACKS["explicit"])
    yield Flow(
        "moved while heard",
        (*few(2), HEARD, consumer(TO, ACKS["explicit"]), Take("to", 2), moved, INFO),
    )
    yield Flow(
        "moved when nobody hears",
        (
            *few(2),
            HEARD,
            consumer(TO, ACKS["explicit"]),
            Take("to", 2),
            Unsub("to"),
            moved,
            Sub("other", "other"),
            Rest(60),
            INFO,
        ),
    )
    for rate in (1_000_000, 100_000_000):
        yield Flow(
            f"rate {rate}", (*few(5), HEARD, consumer(TO, rate_limit_bps=rate), Take("to", 5), INFO)
        )
    slow = tuple(message("a.b", b"x" * 1000) for _ in range(4))
    yield Flow(
        "a rate that is felt",
        (stream(), *slow, HEARD, consumer(TO, rate_limit_bps=80_000), Take("to", 4, 150), INFO),
        True,
    )
    yield Flow(
        "original times",
        (*few(3), HEARD, consumer(TO, replay_policy="original"), Take("to", 3), INFO),
    )


ORDERED = {
    "ack_policy": "none", "max_deliver": 1, "mem_storage": True, "num_replicas": 1,
    "flow_control": True, "idle_heartbeat": 5 * SECOND, "inactive_threshold": 300 * SECOND,
}  # fmt: skip


def ordered_flows() -> Iterator[Flow]:
    """Ordered consumers as client libraries make them, and again behind the last message."""
    for start, heard in product(("all", "last", "new", "seq 3", "last per subject"), FILTERS):
        config = ORDERED | filtered(STARTS[start], FILTERS[heard]) | TO
        yield Flow(
            f"ordered {start}, {heard}",
            (*FILLED, HEARD, api.consumer("C", **config), Rest(), INFO, *MORE, Rest(), INFO),
        )
    first = api.consumer("C", **(ORDERED | TO))
    second = api.consumer(
        "D",
        **(
            ORDERED
            | {"deliver_subject": "too", "deliver_policy": "by_start_sequence", "opt_start_seq": 6}
        ),
    )
    yield Flow(
        "ordered, made again",
        (
            *FILLED,
            HEARD,
            first,
            Rest(),
            api.delete(),
            Sub("too", "too"),
            second,
            Rest(),
            *MORE,
            Rest(),
        ),
    )


# Priority groups


def group(policy: str, **more: Any) -> Ask:
    config = {"ack_policy": "explicit", "priority_policy": policy, "priority_groups": ["g"]}
    return consumer(config | more)


def asked(label: str, pin: bool = False, **more: Any) -> Pull:
    return Pull(label, LONG | {"batch": 1, "group": "g"} | more, pin=pin)


def group_request_flows() -> Iterator[Flow]:
    bodies: dict[str, Any] = {
        "without group": {"batch": 1, "no_wait": True},
        "another group": {"batch": 1, "group": "h", "no_wait": True},
        "group": {"batch": 1, "group": "g", "no_wait": True},
        "number": b"1",
        "empty": b"",
        "id": {"batch": 1, "group": "g", "id": "x", "no_wait": True},
        "min pending": {"batch": 1, "group": "g", "min_pending": 1, "no_wait": True},
        "many min pending": {"batch": 1, "group": "g", "min_pending": 9, "no_wait": True},
        "min ack pending": {"batch": 1, "group": "g", "min_ack_pending": 1, "no_wait": True},
        "priority": {"batch": 1, "group": "g", "priority": 9, "no_wait": True},
        "priority too high": {"batch": 1, "group": "g", "priority": 10, "no_wait": True},
        "priority negative": {"batch": 1, "group": "g", "priority": -1, "no_wait": True},
    }
    for (name, body), policy in product(
        bodies.items(), ("overflow", "pinned_client", "prioritized")
    ):
        yield Flow(
            f"{policy}, request {name}", (*few(3), group(policy), Pull("x", body), Rest(20), INFO)
        )


def overflow_flows() -> Iterator[Flow]:
    four = few(4)
    limits: list[dict[str, int]] = [
        {"min_pending": 1}, {"min_pending": 3}, {"min_pending": 4}, {"min_pending": 5},
        {"min_ack_pending": 1}, {"min_ack_pending": 2}, {"min_pending": 9, "min_ack_pending": 2},
    ]  # fmt: skip
    for limit in limits:
        name = " ".join(f"{key} {value}" for key, value in limit.items())
        yield Flow(
            f"overflow {name}",
            (
                *four,
                group("overflow"),
                asked("x", batch=9, **limit),
                Rest(20),
                INFO,
                asked("y", batch=2),
                Rest(20),
                INFO,
            ),
        )
        yield Flow(
            f"overflow {name}, then more",
            (
                *few(2),
                group("overflow"),
                asked("x", batch=9, **limit),
                Rest(),
                *MORE,
                Rest(20),
                INFO,
            ),
        )
    yield Flow(
        "overflow, without limits",
        (*four, group("overflow"), asked("x", batch=2), asked("y", batch=2), Rest(20), INFO),
    )


def pinned_flows() -> Iterator[Flow]:
    pinned = group("pinned_client", priority_timeout=20 * SECOND)
    two = (*few(1), pinned, asked("x"), Take("x"), INFO)
    yield Flow(
        "pinned, stays",
        (
            *two,
            asked("y"),
            Rest(),
            message("a.b", b"2"),
            Rest(20),
            asked("z", pin=True),
            Take("z"),
            Rest(),
            INFO,
        ),
    )
    yield Flow("pinned, wrong id", (*two, asked("y", id="wrong"), Take("y"), INFO))
    yield Flow(
        "pinned, unpinned",
        (
            *two,
            asked("y"),
            Rest(),
            Ask("CONSUMER.UNPIN.S.C", {"group": "g"}),
            message("a.b", b"2"),
            Take("y"),
            INFO,
        ),
    )
    yield Flow(
        "pinned, unpinned, comes back",
        (
            *two,
            Ask("CONSUMER.UNPIN.S.C", {"group": "g"}),
            asked("y"),
            message("a.b", b"2"),
            Take("y"),
            INFO,
        ),
    )
    yield Flow(
        "pinned, old id after unpin",
        (
            *two,
            Ask("CONSUMER.UNPIN.S.C", {"group": "g"}),
            INFO,
            asked("y", pin=True),
            message("a.b", b"2"),
            Rest(20),
            INFO,
        ),
    )
    yield Flow(
        "pinned, old id waits, then unpin",
        (
            *two,
            asked("y", pin=True),
            Rest(),
            Ask("CONSUMER.UNPIN.S.C", {"group": "g"}),
            asked("z"),
            message("a.b", b"2"),
            Take("z"),
            Rest(),
            INFO,
        ),
    )
    yield Flow(
        "pinned, no wait", (*few(2), pinned, asked("x", no_wait=True, batch=9), Rest(20), INFO)
    )
    yield Flow(
        "pinned, standby without wait",
        (
            *two,
            asked("y", no_wait=True),
            Rest(20),
            message("a.b", b"2"),
            asked("z", no_wait=True),
            Rest(20),
            INFO,
        ),
    )
    short = group("pinned_client", priority_timeout=300 * MS)
    events = Sub("events", "$JS.EVENT.ADVISORY.CONSUMER.>")
    yield Flow(
        "pinned, timeout",
        (
            *few(1),
            short,
            asked("x"),
            Take("x"),
            events,
            asked("y"),
            Take("events", 1, 200),
            INFO,
            message("a.b", b"2"),
            Take("y"),
            Take("events"),
            INFO,
        ),
        True,
    )
    yield Flow(
        "pinned, events",
        (
            *few(2),
            events,
            pinned,
            asked("x"),
            Take("x"),
            Ask("CONSUMER.UNPIN.S.C", {"group": "g"}),
            asked("y"),
            Take("y"),
            Rest(),
            INFO,
        ),
    )
    yield Flow("pinned, size", (*few(3), pinned, asked("x", max_bytes=90, batch=5), Rest(20), INFO))


def prioritized_flows() -> Iterator[Flow]:
    orders: dict[str, tuple[int, ...]] = {
        "equal": (1, 1, 1), "falling": (3, 2, 1), "rising": (0, 1, 2), "mixed": (5, 0, 5),
        "none": (0, 0, 0),
    }  # fmt: skip
    for (name, order), batch in product(orders.items(), (1, 2)):
        waiting = tuple(
            asked(f"p{at}", batch=batch, priority=priority) for at, priority in enumerate(order)
        )
        yield Flow(
            f"prioritized {name}, batch {batch}",
            (
                stream(),
                group("prioritized"),
                *waiting,
                *(Live(message("a.b", b"%d" % n)) for n in range(4)),
                Rest(30),
                INFO,
            ),
        )


# Events


def event_flows() -> Iterator[Flow]:
    events = Sub("events", "$JS.EVENT.ADVISORY.CONSUMER.>")
    explicit = ACKS["explicit"]
    pulled = (Pull("x", b"3"), Take("x", 3))
    for ack, (name, body) in product(
        ("explicit", "all"),
        {
            "nak": b"-NAK",
            "nak delayed": b'-NAK {"delay": 9000000000}',
            "term": b"+TERM",
            "term with reason": b"+TERM too bad",
            "ack": b"+ACK",
            "progress": b"+WPI",
        }.items(),
    ):
        yield Flow(
            f"event of {name}, ack {ack}",
            (*few(3), consumer(ACKS[ack]), *pulled, events, Ack(2, body), Rest(20)),
        )
        sampled = consumer(ACKS[ack], sample_freq="100%")
        yield Flow(
            f"metric of {name}, ack {ack}",
            (*few(3), sampled, *pulled, Sub("m", "$JS.EVENT.METRIC.>"), Ack(2, body), Metric()),
        )
    bounded = consumer(explicit, max_deliver=2, ack_wait=100 * MS)
    yield Flow(
        "event of too many deliveries",
        (
            *few(1),
            bounded,
            events,
            Pull("x", LONG | {"batch": 9}),
            Take("x", 2),
            Take("events"),
            INFO,
            Rest(150),
            INFO,
        ),
        True,
    )
    nacked = consumer(explicit, max_deliver=1)
    yield Flow(
        "event of a nak too many",
        (
            *few(1),
            nacked,
            events,
            Pull("x", LONG | {"batch": 9}),
            Take("x"),
            Ack(1, b"-NAK"),
            Rest(30),
            INFO,
        ),
    )
    for name, removal in {"deleted": remove(2), "purged": purge()}.items():
        yield Flow(
            f"event of a pending message {name}",
            (*few(3), consumer(explicit), *pulled, events, removal, Rest(30)),
        )
    yield Flow(
        "events of a life",
        (
            stream(),
            events,
            consumer(explicit),
            consumer(explicit, description="x"),
            api.pause(),
            api.pause(None),
            api.delete(),
            Rest(30),
        ),
    )
    yield Flow(
        "events of a pause that ends by itself",
        (
            *few(1),
            api.durable("C", pause_until=api.FUTURE),
            events,
            ShortPause(300),
            Rest(30),
        ),
        True,
    )
    yield Flow(
        "events of pending messages that limits remove",
        (
            stream(max_msgs=3),
            *few(3)[1:],
            consumer(explicit),
            *pulled,
            events,
            message("a.b", b"4"),
            Rest(30),
            INFO,
        ),
    )
    yield Flow(
        "events of an ephemeral's end",
        (
            stream(),
            api.consumer("C", inactive_threshold=100 * MS),
            events,
            Until("CONSUMER.INFO.S.C", ("error", "err_code"), 10014),
            Rest(20),
        ),
        True,
    )


@dataclass(frozen=True)
class ShortPause:
    """A pause from now on for so long, and the events of its beginning and its end."""

    ms: int

    def play(self, player: Any) -> Any:
        until = datetime.now(UTC) + timedelta(milliseconds=self.ms)
        body = json.dumps({"pause_until": until.isoformat()}).encode()
        player.request("$JS.API.CONSUMER.PAUSE.S.C", body)
        told = [each.told() for each in player.wait("events", 2)]
        for *_, event in told:
            if isinstance(event, dict) and "pause_until" in event:
                event["pause_until"] = "<time>"
        return told


class Metric:
    """The metric of an ack with its times masked."""

    def play(self, player: Any) -> Any:
        player.read_until_quiet()
        told = [each.told() for each in player.queues.pop("m", [])]
        for event in told:
            if isinstance(event[3], dict) and "ack_time" in event[3]:
                event[3]["ack_time"] = event[3]["ack_time"] > 0
        return told


# Key-value buckets and object stores as clients make them

BUCKET = {
    "name": "KV_B", "subjects": ["$KV.B.>"], "max_msgs_per_subject": 3, "discard": "new",
    "allow_rollup_hdrs": True, "deny_delete": True, "allow_direct": True, "storage": "memory",
    "max_msg_size": -1, "max_bytes": -1, "max_consumers": -1, "num_replicas": 1,
}  # fmt: skip


def put(key: str, value: bytes = b"", *fields: str) -> Any:
    headers = "\r\n".join(["NATS/1.0", *fields, "", ""]).encode() if fields else b""
    return message(f"$KV.B.{key}", value, headers)


PUTS: Steps = (
    Ask("STREAM.CREATE.KV_B", BUCKET),
    put("one", b"1"), put("two", b"2"), put("one", b"1.1"), put("a.b", b"3"), put("one", b"1.2"),
    put("one", b"1.3"), put("two", b"", "KV-Operation: DEL"),
    put("a.b", b"", "KV-Operation: PURGE", "Nats-Rollup: sub"), put("last", b"4"),
)  # fmt: skip


def watch(keys: str, **more: Any) -> Ask:
    config = ORDERED | TO | {"filter_subject": f"$KV.B.{keys}", "name": "W"} | more
    return Ask(
        f"CONSUMER.CREATE.KV_B.W.{config['filter_subject']}",
        {"stream_name": "KV_B", "config": config},
    )


LATER: Steps = tuple(
    Live(each)
    for each in (put("one", b"5"), put("x.y", b"6"), put("two", b"", "KV-Operation: DEL"))
)
WATCHES: dict[str, dict[str, Any]] = {
    "latest": {"deliver_policy": "last_per_subject"},
    "history": {"deliver_policy": "all"},
    "updates": {"deliver_policy": "new"},
    "keys": {"deliver_policy": "last_per_subject", "headers_only": True},
    "from a revision": {"deliver_policy": "by_start_sequence", "opt_start_seq": 6},
}


def bucket_flows() -> Iterator[Flow]:
    state = Still("STREAM.INFO.KV_B")
    for (name, how), keys in product(WATCHES.items(), (">", "one", "a.*", "none")):
        yield Flow(
            f"watch {name}, {keys}",
            (
                *PUTS,
                HEARD,
                watch(keys, **how),
                Rest(),
                *LATER,
                Rest(),
                Still("CONSUMER.INFO.KV_B.W"),
            ),
        )
    expected = "Nats-Expected-Last-Subject-Sequence: "
    for revision in ("0", "7", "5", "9", "99"):
        yield Flow(
            f"update at revision {revision}",
            (
                *PUTS,
                put("one", b"x", expected + revision),
                put("new", b"x", expected + revision),
                state,
            ),
        )
    for body in (
        {"filter": "$KV.B.one"},
        {"filter": "$KV.B.one", "keep": 1},
        {"filter": "$KV.B.>"},
    ):
        yield Flow(f"purge {body}", (*PUTS, Ask("STREAM.PURGE.KV_B", body), state))
    yield Flow(
        "watch purged keys",
        (
            *PUTS,
            HEARD,
            watch(">", deliver_policy="last_per_subject"),
            Rest(),
            put("one", b"", "KV-Operation: PURGE", "Nats-Rollup: sub"),
            Ask("STREAM.PURGE.KV_B", {"filter": "$KV.B.two"}),
            put("two", b"again"),
            Rest(),
            state,
        ),
    )


STORE = {
    "name": "OBJ_B", "subjects": ["$O.B.C.>", "$O.B.M.>"], "discard": "new",
    "allow_rollup_hdrs": True, "allow_direct": True, "storage": "memory", "max_consumers": -1,
    "max_msgs_per_subject": -1,
}  # fmt: skip


def object_flows() -> Iterator[Flow]:
    chunks = tuple(message("$O.B.C.one", bytes([65 + at]) * 4000) for at in range(5))
    meta = message("$O.B.M.b25l", b'{"name":"one"}', b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n")
    made: Steps = (Ask("STREAM.CREATE.OBJ_B", STORE), *chunks, meta)
    state = Still("STREAM.INFO.OBJ_B")

    def reader(subject: str, **more: Any) -> Ask:
        config = ORDERED | TO | {"filter_subject": subject, "name": "R"} | more
        return Ask(f"CONSUMER.CREATE.OBJ_B.R.{subject}", {"stream_name": "OBJ_B", "config": config})

    yield Flow("object read", (*made, HEARD, reader("$O.B.C.one"), Take("to", 5), Rest()))
    yield Flow(
        "object watched",
        (*made, HEARD, reader("$O.B.M.>", deliver_policy="last_per_subject"), Rest(), meta, Rest()),
    )
    yield Flow(
        "object deleted",
        (
            *made,
            message(
                "$O.B.M.b25l",
                b'{"name":"one","deleted":true}',
                b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n",
            ),
            Ask("STREAM.PURGE.OBJ_B", {"filter": "$O.B.C.one"}),
            state,
        ),
    )
    yield Flow(
        "object store sealed",
        (
            *made,
            Ask("STREAM.UPDATE.OBJ_B", STORE | {"sealed": True}),
            meta,
            state,
            HEARD,
            reader("$O.B.C.one"),
            Take("to", 5),
        ),
    )


def retention_push_flows() -> Iterator[Flow]:
    for retention, ack in product(("interest", "workqueue"), ACKS):
        yield Flow(
            f"push on {retention}, ack {ack}",
            (
                stream(retention=retention),
                HEARD,
                consumer(TO, ACKS[ack]),
                *(message("a.b", b"%d" % n) for n in range(3)),
                Rest(),
                STATE,
                INFO,
            ),
        )
    yield Flow(
        "push without wait is no pull", (*few(1), consumer(TO), Pull("x", NO_WAIT), Whole("x"))
    )


GROUPS = {
    "starts": start_flows,
    "interest": interest_flows,
    "heartbeats": heartbeat_flows,
    "flow_control": flow_control_flows,
    "redelivery": push_redelivery_flows,
    "ordered": ordered_flows,
    "group_requests": group_request_flows,
    "overflow": overflow_flows,
    "pinned": pinned_flows,
    "prioritized": prioritized_flows,
    "events": event_flows,
    "buckets": bucket_flows,
    "objects": object_flows,
    "retention": retention_push_flows,
}
