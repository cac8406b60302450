"""Flows of pull consumers: where they start, what they deliver, how they are answered.

Each generator crosses what changes the outcome; a flow is a stream with messages, one consumer, and
what happens to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from tests.differential.jetstream import consumer_cases as api
from tests.differential.jetstream.cases import MS, SECOND, create
from tests.differential.jetstream.flow import (
    Ack,
    Flow,
    Forge,
    Live,
    Next,
    Pull,
    Rest,
    Still,
    Take,
    Unsub,
    Until,
    Whole,
)
from tests.differential.jetstream.play import Ask, Publish

Steps = tuple[Any, ...]
INFO = Still("CONSUMER.INFO.S.C")
STATE = Still("STREAM.INFO.S")
NO_WAIT = {"batch": 100, "no_wait": True}
PAUSE_MS = 60


def stream(**more: Any) -> Ask:
    return create(**({"subjects": ["a.>"], "storage": "memory"} | more))


def message(subject: str, payload: bytes, headers: bytes = b"") -> Publish:
    return Publish(subject, payload, headers)


def remove(seq: int) -> Ask:
    return Ask("STREAM.MSG.DELETE.S", {"seq": seq})


def purge(**body: Any) -> Ask:
    return Ask("STREAM.PURGE.S", body or b"")


# Nine messages on three subjects, a hole in the middle, one with headers.
MESSAGES: Steps = (
    *(message(f"a.{number % 3}", b"%d" % number) for number in range(8)),
    message("a.2", b"headed", b"NATS/1.0\r\nKey: value\r\n\r\n"),
    remove(4),
)
FILLED: Steps = (stream(), *MESSAGES)
LATE: tuple[Publish, ...] = (
    message("a.0", b"more"),
    message("a.1", b"more"),
    message("a.9", b"more"),
)


def few(count: int) -> Steps:
    return (stream(), *(message("a.b", b"%d" % number) for number in range(1, count + 1)))


STARTS: dict[str, dict[str, Any]] = {
    "all": {},
    "last": {"deliver_policy": "last"},
    "new": {"deliver_policy": "new"},
    "seq 3": {"deliver_policy": "by_start_sequence", "opt_start_seq": 3},
    "seq in the hole": {"deliver_policy": "by_start_sequence", "opt_start_seq": 4},
    "seq ahead": {"deliver_policy": "by_start_sequence", "opt_start_seq": 11},
    "time past": {"deliver_policy": "by_start_time", "opt_start_time": api.PAST},
    "time ahead": {"deliver_policy": "by_start_time", "opt_start_time": api.FUTURE},
    "last per subject": {"deliver_policy": "last_per_subject", "filter_subject": "a.>"},
}
FILTERS: dict[str, dict[str, Any]] = {
    "everything": {},
    "one": {"filter_subject": "a.1"},
    "wild": {"filter_subject": "a.*"},
    "two": {"filter_subjects": ["a.0", "a.2"]},
    "nothing": {"filter_subject": "a.x"},
}
ACKS: dict[str, dict[str, Any]] = {
    "none": {"ack_policy": "none"},
    "all": {"ack_policy": "all"},
    "explicit": {"ack_policy": "explicit"},
}


def consumer(*settings: dict[str, Any], name: str = "C", **more: Any) -> Ask:
    together: dict[str, Any] = {}
    for each in settings:
        together |= each
    return api.durable(name, **(together | more))


def filtered(start: dict[str, Any], heard: dict[str, Any]) -> dict[str, Any]:
    """A start with a filter; every start may have the filter of its own replaced."""
    both = start | heard
    if "filter_subjects" in heard:
        both.pop("filter_subject", None)
    return both


def start_flows() -> Iterator[Flow]:
    """Start x filter x ack policy: everything there is, then what comes later."""
    for start, heard, ack in product(STARTS, FILTERS, ACKS):
        config = filtered(STARTS[start], FILTERS[heard])
        steps: Steps = (
            *FILLED,
            consumer(config, ACKS[ack]),
            Pull("first", NO_WAIT),
            Whole("first"),
            INFO,
            *LATE,
            Pull("then", NO_WAIT),
            Whole("then"),
            INFO,
        )
        yield Flow(f"start {start}, {heard}, ack {ack}", steps)


def one_by_one_flows() -> Iterator[Flow]:
    """The numbers in the ack subjects, one request for each message."""
    for start, heard in product(("all", "seq 3", "last per subject"), FILTERS):
        config = filtered(STARTS[start], FILTERS[heard])
        steps: list[Any] = [*FILLED, consumer(config, ACKS["explicit"])]
        for at in range(4):
            steps += [Pull(f"p{at}", {"batch": 1, "no_wait": True}), Rest(), INFO]
        yield Flow(f"one by one, {start}, {heard}", tuple(steps))


# Requests and statuses

BODIES: dict[str, Any] = {
    "empty": b"",
    "blank": b"  ",
    "number": b"2",
    "number signed": b"+2",
    "word": b"two",
    "batch": {"batch": 2, "no_wait": True},
    "batch 0": {"batch": 0, "no_wait": True},
    "no batch": {"no_wait": True},
    "no wait": {"batch": 10, "no_wait": True},
    "no wait with expiry": {"batch": 10, "no_wait": True, "expires": 80 * MS},
    "expiry": {"batch": 10, "expires": 80 * MS},
    "expiry of one": {"expires": 80 * MS, "batch": 1},
    "bytes": {"batch": 10, "max_bytes": 150, "expires": 80 * MS},
    "bytes for none": {"batch": 10, "max_bytes": 10, "expires": 80 * MS},
    "bytes to spare": {"batch": 2, "max_bytes": 4000, "expires": 80 * MS},
    "bytes, no wait": {"batch": 10, "max_bytes": 150, "no_wait": True},
    "heartbeat too large": {"batch": 1, "expires": 80 * MS, "idle_heartbeat": 50 * MS},
    "heartbeat without expiry": {"batch": 1, "idle_heartbeat": 50 * MS},
    "heartbeat negative": {"batch": 1, "idle_heartbeat": -1, "no_wait": True},
    "not JSON": b"{",
    "wrong type": b'{"batch":"1"}',
    "wrong type of expiry": b'{"expires":"1s"}',
    "array": b"[1]",
    "unknown key": {"batch": 1, "no_wait": True, "what": 1},
    "batch negative": {"batch": -1, "no_wait": True},
    "bytes negative": {"batch": 1, "max_bytes": -5, "no_wait": True},
    "group": {"batch": 1, "group": "g", "no_wait": True},
    "id": {"batch": 1, "id": "x", "no_wait": True},
    "priority": {"batch": 1, "priority": 3, "no_wait": True},
    "priority too high": {"batch": 1, "priority": 10, "no_wait": True},
    "min pending": {"batch": 1, "min_pending": 1, "no_wait": True},
    "min ack pending": {"batch": 1, "min_ack_pending": 1, "no_wait": True},
    "too many": {"batch": 51, "no_wait": True},
    "too long": {"batch": 1, "expires": 30 * SECOND},
    "too big": {"batch": 1, "max_bytes": 5001, "no_wait": True},
}
CAPS = {"max_batch": 50, "max_expires": 20 * SECOND, "max_bytes": 5000}


def request_flows() -> Iterator[Flow]:
    """Every body to a consumer with three messages, and to one with none."""
    for (name, body), count in product(BODIES.items(), (0, 3)):
        steps: Steps = (
            *few(count),
            consumer(ACKS["explicit"], CAPS),
            Pull("p", body),
            Rest(130 if has_expiry(body) else 0),
            INFO,
        )
        yield Flow(f"request {name}, {count} messages", steps, timed=True)


def has_expiry(body: Any) -> bool:
    return isinstance(body, dict) and "expires" in body


LONG = {"expires": 20 * SECOND}


def waiting_flows() -> Iterator[Flow]:
    """Requests that wait: their order, what ends them, what the consumer tells of them."""
    explicit = consumer(ACKS["explicit"])
    two: Steps = (
        stream(),
        explicit,
        Pull("x", LONG | {"batch": 2}),
        Pull("y", LONG | {"batch": 2}),
    )
    one_each = tuple(Live(message("a.b", b"%d" % n)) for n in range(4))
    yield Flow("waiting, round robin", (*two, INFO, *one_each, Take("x", 2), Take("y", 2), INFO))
    yield Flow("waiting, one gone", (*two, Unsub("x"), *one_each, Take("y", 2), Rest(), INFO))
    yield Flow("waiting, deleted", (*two, api.delete(), Take("x"), Take("y")))
    yield Flow("waiting, stream deleted", (*two, Ask("STREAM.DELETE.S"), Take("x"), Take("y")))
    yield Flow(
        "waiting, request of a number",
        (*few(0), explicit, Pull("x", b"2"), INFO, *one_each, Take("x", 2), INFO),
    )
    busy = (*few(2), explicit, Pull("x", LONG | {"batch": 5}), Take("x", 2))
    yield Flow("waiting, no wait behind it", (*busy, Pull("y", NO_WAIT), Rest(), INFO))
    full = consumer(ACKS["explicit"], max_waiting=2)
    three = tuple(Pull(f"p{n}", LONG | {"batch": 1}) for n in range(3))
    yield Flow("waiting, too many", (stream(), full, *three, Take("p2"), INFO))
    beating = Pull("p3", LONG | {"batch": 1, "idle_heartbeat": 5 * SECOND})
    yield Flow("waiting, too many with heartbeat", (stream(), full, *three[:2], beating, Rest()))
    gone = (stream(), full, *three[:2], Unsub("p0"), Unsub("p1"))
    yield Flow(
        "waiting, those without interest count",
        (*gone, Pull("p4", LONG | {"batch": 1}), *one_each, Rest(), INFO),
    )
    for batch in (1, 2, 3, 5):
        asked = Pull("x", {"batch": batch, "expires": 80 * MS})
        yield Flow(
            f"expires, batch {batch} of 2", (*few(2), explicit, asked, Rest(130), INFO), True
        )
        asked = Pull("x", {"batch": batch, "expires": 80 * MS, "no_wait": True})
        yield Flow(
            f"expires at once, batch {batch} of 2",
            (*few(2), explicit, asked, Rest(130), INFO),
            True,
        )
    for size in (30, 60, 61, 62, 70, 120, 180, 1000):
        asked = Pull("x", {"batch": 3, "max_bytes": size, "expires": 60 * MS})
        yield Flow(f"bytes {size}", (*few(5), explicit, asked, Rest(100), INFO), True)
    beats = {"batch": 1, "expires": 300 * MS, "idle_heartbeat": 100 * MS}
    yield Flow(
        "heartbeats, then a message",
        (
            *few(1),
            explicit,
            Pull("x", NO_WAIT),
            Rest(),
            Pull("y", beats),
            HEART,
            *one_each,
            Take("y"),
            INFO,
        ),
        True,
    )
    yield Flow("no such consumer", (stream(), Pull("x", b"", "none"), Take("x")))
    yield Flow("no such stream", (Pull("x", b"", "none"), Take("x")))
    yield Flow("a pull of a push consumer", (*few(1), api.push("C"), Pull("x", b"1"), Take("x")))


class Heart:
    """One heartbeat of the request `y`."""

    def play(self, player: Any) -> Any:
        return [each.told() for each in player.wait("y", 1, heartbeats=True)]


HEART = Heart()


# Acknowledgements

BODIES_OF_ACKS: dict[str, bytes] = {
    "empty": b"",
    "ack": b"+ACK",
    "ok": b"+OK",
    "nak": b"-NAK",
    "term": b"+TERM",
    "term with reason": b"+TERM because of it",
    "progress": b"+WPI",
    "nak delayed": b'-NAK {"delay": 60000000}',
    "nak with a duration": b"-NAK 60ms",
    "nak with nonsense": b"-NAK soon",
    "nak with bad JSON": b'-NAK {"delay": "x"}',
    "unknown": b"+WHAT",
    "lower case": b"+ack",
}


def ack_flows() -> Iterator[Flow]:
    """Each answer x policy x which of three deliveries; then what a second pull gets."""
    request = {"batch": 5, "no_wait": True}
    later: Steps = (Pull("y", request | {"expires": 150 * MS}), Rest(170))
    at_once: Steps = (Pull("y", request | LONG), Rest())
    for (name, body), policy, seq in product(
        BODIES_OF_ACKS.items(), ("all", "explicit"), (1, 2, 3)
    ):
        steps: Steps = (
            *few(3),
            consumer(ACKS[policy]),
            Pull("x", NO_WAIT),
            Take("x", 3),
            Rest(),
            Ack(seq, body),
            INFO,
            *(later if "nak" in name else at_once),
            INFO,
        )
        yield Flow(f"answer {name} to {seq}, ack {policy}", steps, timed=True)


def ack_row_flows() -> Iterator[Flow]:
    """Several answers in a row: floors, doubles, an answer after another."""
    rows: dict[str, Steps] = {
        "in order": (Ack(1), Ack(2), Ack(3)),
        "backwards": (Ack(3), INFO, Ack(2), INFO, Ack(1)),
        "with a hole": (Ack(1), Ack(3), INFO, Ack(2)),
        "twice": (Ack(1), Ack(1), INFO, Ack(2), Ack(2)),
        "nak then ack": (Ack(2, b"-NAK"), Ack(2)),
        "ack then nak": (Ack(2), Ack(2, b"-NAK")),
        "ack then term": (Ack(2), Ack(2, b"+TERM")),
        "term then ack": (Ack(2, b"+TERM"), Ack(2)),
        "nak twice": (Ack(2, b"-NAK"), Ack(2, b"-NAK")),
        "naks": (Ack(3, b"-NAK"), Ack(1, b"-NAK")),
        "all nacked backwards": (Ack(3, b"-NAK"), Ack(2, b"-NAK"), Ack(1, b"-NAK")),
        "progress then ack": (Ack(2, b"+WPI"), Ack(2)),
        "terms": (Ack(1, b"+TERM"), Ack(3, b"+TERM"), INFO, Ack(2, b"+TERM")),
    }
    for (name, row), policy in product(rows.items(), ACKS):
        steps: Steps = (
            *few(4),
            consumer(ACKS[policy]),
            Pull("x", b"3"),
            Take("x", 3),
            *row,
            INFO,
            Pull("y", NO_WAIT),
            Rest(),
            INFO,
        )
        if policy != "none":
            yield Flow(f"answers {name}, ack {policy}", steps)


FORGERIES: dict[str, tuple[tuple[int, str], ...]] = {
    "another sequence": ((4, "3"),),
    "beyond the delivered": ((4, "4"),),
    "beyond the stream": ((4, "99"),),
    "sequence 0": ((4, "0"),),
    "no number": ((4, "x"),),
    "negative": ((4, "-1"),),
    "deliveries 9": ((5, "9"),),
    "deliveries 0": ((5, "0"),),
    "consumer sequence 9": ((3, "9"),),
    "consumer sequence 0": ((3, "0"),),
    "time 0": ((2, "0"),),
    "pending x": ((1, "x"),),
    "another consumer": ((6, "D"),),
    "another stream": ((7, "T"),),
}


def forged_flows() -> Iterator[Flow]:
    for (name, tokens), policy, kind in product(
        FORGERIES.items(), ("all", "explicit"), (b"+ACK", b"-NAK", b"+TERM")
    ):
        steps: Steps = (
            *few(4),
            consumer(ACKS[policy]),
            consumer(ACKS[policy], name="D"),
            Pull("x", b"3"),
            Take("x", 3),
            Forge(2, tokens, kind),
            INFO,
            Still("CONSUMER.INFO.S.D"),
            Pull("y", NO_WAIT),
            Rest(),
            INFO,
        )
        yield Flow(f"forged {name}, ack {policy}, {kind.decode()}", steps)


def next_flows() -> Iterator[Flow]:
    for name, body in {
        "": b"",
        " number": b" 2",
        " JSON": b' {"batch": 2, "no_wait": true}',
        " bad": b" {",
        " too many": b' {"batch": 99}',
    }.items():
        steps = (
            *few(5),
            consumer(ACKS["explicit"], max_batch=50),
            Pull("x", b"1"),
            Take("x"),
            Next(1, "y", body),
            Rest(),
            INFO,
        )
        yield Flow(f"ack and next{name}", steps)


# Redelivery


def redelivery_flows() -> Iterator[Flow]:
    for policy in ("all", "explicit"):
        waits = consumer(ACKS[policy], ack_wait=150 * MS)
        base: Steps = (*few(3), waits, Pull("x", b"3"), Take("x", 3))
        # Asked for no more than what comes once: nothing may come again while INFO is read.
        again = Pull("y", LONG | {"batch": 3})
        left = 2 if policy == "explicit" else 1
        yield Flow(f"ack wait over, ack {policy}", (*base, again, Take("y", 3, 90), INFO), True)
        yield Flow(
            f"ack wait over but one, ack {policy}",
            (*base, Ack(2), Pull("y", LONG | {"batch": left}), Take("y", left, 100), INFO),
            True,
        )
        yield Flow(
            f"progress keeps it, ack {policy}",
            (*base, Rest(90), Ack(1, b"+WPI"), again, Take("y", 3, 90), INFO),
            True,
        )
        for most in (1, 2):
            bounded = consumer(ACKS[policy], ack_wait=120 * MS, max_deliver=most)
            yield Flow(
                f"at most {most}, ack {policy}",
                (
                    *few(2),
                    bounded,
                    Pull("x", LONG | {"batch": 9}),
                    Take("x", 2 * most),
                    Until("CONSUMER.INFO.S.C", ("num_ack_pending",), 0),
                    Pull("y", NO_WAIT),
                    Rest(200),
                    INFO,
                ),
                True,
            )
            yield Flow(
                f"at most {most}, nacked, ack {policy}",
                (
                    *few(2),
                    bounded,
                    Pull("x", b"2"),
                    Take("x", 2),
                    Ack(1, b"-NAK"),
                    INFO,
                    Pull("y", {"batch": 5, "expires": 400 * MS}),
                    Rest(500),
                    INFO,
                ),
                True,
            )
        backoff = consumer(ACKS[policy], backoff=[100 * MS, 250 * MS], max_deliver=4)
        yield Flow(
            f"backoff, ack {policy}",
            (
                *few(1),
                backoff,
                Pull("x", LONG | {"batch": 9}),
                Take("x"),
                Take("x", 1, 90),
                Take("x", 1, 300),
                Take("x", 1, 500),
                INFO,
            ),
            True,
        )
        yield Flow(
            f"backoff and nak, ack {policy}",
            (
                *few(1),
                backoff,
                Pull("x", LONG | {"batch": 9}),
                Take("x"),
                Ack(1, b"-NAK"),
                Take("x"),
                INFO,
            ),
            True,
        )
    explicit = consumer(ACKS["explicit"])
    base = (*few(5), explicit, Pull("x", b"3"), Take("x", 3))
    orders: dict[str, tuple[int, ...]] = {"1 2": (1, 2), "2 1": (2, 1), "3 1 2": (3, 1, 2)}
    for name, order in orders.items():
        naks = tuple(Ack(seq, b"-NAK") for seq in order)
        yield Flow(
            f"nacked {name} go before new ones", (*base, *naks, Pull("y", NO_WAIT), Rest(), INFO)
        )
    nak = b'-NAK {"delay": %d}'
    delayed = tuple(Ack(seq, nak % (ms * MS)) for seq, ms in ((1, 1000), (2, 500)))
    yield Flow(
        "delays of their own",
        (
            *base,
            *delayed,
            Pull("y", LONG | {"batch": 4}),
            Take("y", 2),
            Take("y", 1, 200),
            Take("y", 1, 200),
            INFO,
        ),
        True,
    )
    counts: list[Any] = [*few(1), explicit]
    for at in range(4):
        counts += [Pull(f"p{at}", NO_WAIT), Take(f"p{at}"), Ack(1, b"-NAK"), INFO]
    yield Flow("delivery counts", tuple(counts))


def pending_limit_flows() -> Iterator[Flow]:
    for policy, most in product(("all", "explicit"), (1, 2)):
        bounded = consumer(ACKS[policy], max_ack_pending=most)
        base: Steps = (
            *few(5),
            bounded,
            Pull("x", LONG | {"batch": 10}),
            Take("x", most),
            Rest(),
            INFO,
        )
        yield Flow(
            f"pending {most}, ack {policy}, acked", (*base, Ack(most), Take("x"), Rest(), INFO)
        )
        yield Flow(
            f"pending {most}, ack {policy}, nacked",
            (*base, Ack(1, b"-NAK"), Take("x"), Rest(), INFO),
        )
        yield Flow(
            f"pending {most}, ack {policy}, nacked later",
            (*base, Ack(1, b'-NAK {"delay": 120000000}'), Take("x", 1, 100), Rest(), INFO),
            True,
        )
        yield Flow(
            f"pending {most}, ack {policy}, terminated",
            (*base, Ack(1, b"+TERM"), Take("x"), Rest(), INFO),
        )
        yield Flow(
            f"pending {most}, ack {policy}, one deleted",
            (*base, remove(1), Take("x"), Rest(), INFO),
        )
        yield Flow(
            f"pending {most}, ack {policy}, raised",
            (*base, consumer(ACKS[policy], max_ack_pending=most + 1), Take("x"), Rest(), INFO),
        )
        yield Flow(
            f"pending {most}, ack {policy}, no wait", (*base, Pull("y", NO_WAIT), Rest(), INFO)
        )


# What happens to the stream beneath

REMOVALS: dict[str, Steps] = {
    "first deleted": (remove(1),),
    "second deleted": (remove(2),),
    "next deleted": (remove(4),),
    "last deleted": (remove(6),),
    "purged": (purge(),),
    "purged to 3": (purge(seq=3),),
    "purged to 5": (purge(seq=5),),
    "purged but one": (purge(keep=1),),
    "purged by filter": (purge(filter="a.b"),),
    "limits": (
        Ask(
            "STREAM.UPDATE.S",
            {"name": "S", "subjects": ["a.>"], "storage": "memory", "max_msgs": 2},
        ),
    ),
    "rolled off": (
        *(message("a.z", b"z") for _ in range(3)),
        Ask(
            "STREAM.UPDATE.S",
            {"name": "S", "subjects": ["a.>"], "storage": "memory", "max_msgs": 3},
        ),
    ),
}


def removal_flows() -> Iterator[Flow]:
    for (name, removal), policy, heard in product(REMOVALS.items(), ACKS, ("", "a.c")):
        config = {"filter_subject": heard} if heard else {}
        subjects = ("a.b", "a.c", "a.b", "a.c", "a.b", "a.c")
        steps: Steps = (
            stream(),
            *(message(subject, b"%d" % at) for at, subject in enumerate(subjects)),
            consumer(ACKS[policy], config),
            Pull("x", b"2"),
            Take("x", 2),
            *removal,
            INFO,
            Pull("y", NO_WAIT),
            Rest(),
            INFO,
            message("a.c", b"new"),
            Pull("z", NO_WAIT),
            Rest(),
            INFO,
        )
        yield Flow(f"{name}, ack {policy}, filter {heard or 'none'}", steps)


def retention_flows() -> Iterator[Flow]:
    answers: dict[str, Steps] = {
        "acked": (Ack(1),),
        "second acked": (Ack(2),),
        "both acked": (Ack(2), Ack(1)),
        "terminated": (Ack(1, b"+TERM"),),
        "nacked": (Ack(1, b"-NAK"),),
        "deleted": (api.delete(),),
    }
    for (name, answer), retention, policy in product(
        answers.items(), ("interest", "workqueue"), ("explicit", "all", "none")
    ):
        if retention == "workqueue" and policy != "explicit":
            continue
        if policy == "none" and name != "deleted" and name != "acked":
            continue
        steps: Steps = (
            stream(retention=retention),
            consumer(ACKS[policy]),
            *(message("a.b", b"%d" % number) for number in range(3)),
            Pull("x", b"2"),
            Take("x", 2),
            *answer,
            STATE,
            Still("CONSUMER.INFO.S.C"),
        )
        yield Flow(f"{retention}, {name}, ack {policy}", steps)
    pair: Steps = (
        stream(retention="interest"),
        consumer(ACKS["explicit"]),
        consumer(ACKS["explicit"], name="D", filter_subject="a.d"),
    )
    yield Flow(
        "interest, two consumers",
        (
            *pair,
            message("a.d", b"1"),
            message("a.c", b"2"),
            Pull("x", b"2"),
            Take("x", 2),
            Ack(1),
            STATE,
            Ack(2),
            STATE,
            Pull("y", b"1", "D"),
            Take("y"),
            Ack(1),
            STATE,
        ),
    )
    yield Flow(
        "interest, nobody hears it",
        (
            stream(retention="interest"),
            message("a.b", b"1"),
            STATE,
            consumer(ACKS["explicit"], filter_subject="a.d"),
            message("a.b", b"2"),
            message("a.d", b"3"),
            STATE,
        ),
    )
    yield Flow(
        "interest, one hears it after all",
        (
            *pair,
            message("a.d", b"1"),
            Pull("x", b"1"),
            Take("x"),
            Ack(1),
            STATE,
            api.delete("D"),
            STATE,
        ),
    )
    parts: Steps = (
        stream(retention="workqueue"),
        consumer(ACKS["explicit"], filter_subject="a.c"),
        consumer(ACKS["explicit"], name="D", filter_subject="a.d"),
        message("a.c", b"1"),
        message("a.d", b"2"),
        message("a.e", b"3"),
    )
    yield Flow(
        "workqueue, parts",
        (
            *parts,
            Pull("x", b"1"),
            Take("x"),
            Ack(1),
            STATE,
            Pull("y", b"1", "D"),
            Take("y"),
            Ack(2),
            STATE,
        ),
    )


# Changes while it delivers

CHANGES: dict[str, dict[str, Any]] = {
    "another filter": {"filter_subject": "a.c"},
    "more filters": {"filter_subjects": ["a.b", "a.c"]},
    "no filter": {"filter_subject": ""},
    "ack wait": {"ack_wait": 20 * SECOND},
    "max deliver": {"max_deliver": 1},
    "headers only": {"headers_only": True},
    "max pending": {"max_ack_pending": 1},
    "caps": {"max_batch": 1},
    "description": {"description": "other"},
    "backoff": {"backoff": [20 * SECOND], "max_deliver": 3},
}


def change_flows() -> Iterator[Flow]:
    base = {"filter_subject": "a.b", "ack_policy": "explicit"}
    for name, change in CHANGES.items():
        changed = base | change
        if "filter_subjects" in change:
            changed.pop("filter_subject")
        steps: Steps = (
            stream(),
            *(message(subject, b"%d" % at) for at, subject in enumerate(("a.b", "a.c") * 3)),
            consumer(base),
            Pull("x", b"1"),
            Take("x", 1),
            consumer(changed),
            INFO,
            Pull("y", NO_WAIT),
            Rest(),
            INFO,
            Ack(1, b"-NAK"),
            Pull("z", {"batch": 9, "no_wait": True}),
            Rest(),
            INFO,
        )
        yield Flow(f"changed {name}", steps)
    for policy in ACKS:
        yield Flow(
            f"headers only, ack {policy}",
            (*FILLED, consumer(ACKS[policy], headers_only=True), Pull("x", NO_WAIT), Rest(), INFO),
        )
    for most in (0, 1, 5):
        yield Flow(
            f"sampled {most}",
            (
                *few(1),
                consumer(ACKS["explicit"], sample_freq=str(most)),
                Pull("x", b"1"),
                Take("x"),
                Ack(1),
                INFO,
            ),
        )


def pause_flows() -> Iterator[Flow]:
    explicit = consumer(ACKS["explicit"])
    paused: Steps = (*few(2), explicit, api.pause(), Pull("x", LONG | {"batch": 5}))
    yield Flow("paused, then not", (*paused, Rest(), INFO, api.pause(None), Rest(50), INFO))
    yield Flow(
        "paused, request expires",
        (
            *few(2),
            explicit,
            api.pause(),
            Pull("x", {"batch": 1, "expires": 80 * MS}),
            Take("x", 1, 70),
            INFO,
        ),
        True,
    )
    yield Flow(
        "paused, no wait", (*few(2), explicit, api.pause(), Pull("x", NO_WAIT), Rest(20), INFO)
    )
    yield Flow(
        "paused, empty, no wait",
        (*few(0), explicit, api.pause(), Pull("x", NO_WAIT), Rest(20), INFO),
    )
    yield Flow(
        "paused, acked",
        (
            *few(2),
            explicit,
            Pull("x", b"1"),
            Take("x"),
            api.pause(),
            Ack(1),
            INFO,
            Pull("y", LONG | {"batch": 5}),
            Rest(),
            api.pause(None),
            Rest(50),
            INFO,
        ),
    )
    yield Flow(
        "paused, nacked",
        (
            *few(2),
            explicit,
            Pull("x", b"1"),
            Take("x"),
            api.pause(),
            Ack(1, b"-NAK"),
            INFO,
            Pull("y", LONG | {"batch": 5}),
            Rest(),
            api.pause(None),
            Rest(50),
            INFO,
        ),
    )
    for until in ("0001-01-01T00:00:00Z", api.PAST, "9999-01-01T00:00:00Z"):
        made = consumer(ACKS["explicit"], pause_until=until, sample_freq="1")
        yield Flow(f"made with a pause until {until}", (*few(1), made, Pull("x", NO_WAIT), Rest()))
    yield Flow(
        "paused when made",
        (
            *few(1),
            consumer(ACKS["explicit"], pause_until=api.FUTURE),
            Pull("x", LONG | {"batch": 1}),
            Rest(),
            INFO,
            api.pause(None),
            Rest(50),
            INFO,
        ),
    )


def reset_flows() -> Iterator[Flow]:
    for start, policy, body in product(
        ("all", "new", "seq 3", "time past", "last per subject"),
        ("explicit", "none"),
        (b"", {"seq": 3}, {"seq": 7}, {"seq": 99}, {"seq": 0}, {"seq": 1}),
    ):
        if policy == "none" and start not in ("all", "seq 3"):
            continue
        steps: Steps = (
            *FILLED,
            consumer(STARTS[start], ACKS[policy]),
            Pull("x", NO_WAIT),
            Rest(),
            api.reset(body),
            INFO,
            Pull("y", NO_WAIT),
            Rest(),
            INFO,
        )
        asked = body["seq"] if isinstance(body, dict) else "the floor"
        yield Flow(f"reset to {asked}, start {start}, ack {policy}", steps)
    yield Flow(
        "reset behind acks",
        (
            *few(5),
            consumer(ACKS["explicit"]),
            Pull("x", b"4"),
            Take("x", 4),
            Ack(1),
            Ack(2),
            Ack(4),
            api.reset(),
            INFO,
            Pull("y", NO_WAIT),
            Rest(),
            INFO,
        ),
    )
    yield Flow(
        "reset, an old ack comes",
        (
            *few(5),
            consumer(ACKS["explicit"]),
            Pull("x", b"4"),
            Take("x", 4),
            api.reset(),
            Forge(2),
            INFO,
            Pull("y", NO_WAIT),
            Rest(),
            INFO,
        ),
    )
    yield Flow(
        "reset while one waits",
        (
            *few(2),
            consumer(ACKS["explicit"]),
            Pull("x", LONG | {"batch": 9}),
            Take("x", 2),
            api.reset(),
            Take("x", 2),
            INFO,
        ),
    )


def ephemeral_flows() -> Iterator[Flow]:
    short = {"ack_policy": "explicit", "inactive_threshold": 150 * MS}
    made = api.consumer("C", **short)
    gone = Until("CONSUMER.INFO.S.C", ("error", "err_code"), 10014)
    yield Flow("unused, goes", (*few(1), made, gone), True)
    yield Flow("unused, durable goes too", (*few(1), consumer(short), gone), True)
    yield Flow(
        "unused, a request waits",
        (
            *few(0),
            made,
            Pull("x", {"batch": 1, "expires": 900 * MS}),
            Rest(600),
            INFO,
            Rest(400),
            gone,
        ),
        True,
    )
    yield Flow(
        "nobody hears the deliver subject",
        (*few(1), api.push("C", inactive_threshold=150 * MS), gone),
        True,
    )


GROUPS = {
    "starts": start_flows,
    "one_by_one": one_by_one_flows,
    "requests": request_flows,
    "waiting": waiting_flows,
    "acks": ack_flows,
    "ack_rows": ack_row_flows,
    "forged": forged_flows,
    "next": next_flows,
    "redelivery": redelivery_flows,
    "pending": pending_limit_flows,
    "removals": removal_flows,
    "retention": retention_flows,
    "changes": change_flows,
    "pauses": pause_flows,
    "resets": reset_flows,
    "ephemerals": ephemeral_flows,
}
