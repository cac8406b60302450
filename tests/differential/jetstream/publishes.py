"""Publishes: each header valid, at its edge and invalid, limits, duplicates, batches, direct gets.

A case makes one stream, sends in order, and says for each step how many answers to wait for. At the
end the whole stream is read back, so that what was stored is compared too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

SECOND = 1_000_000_000
Config = dict[str, Any]


@dataclass(frozen=True)
class Send:
    """`reply` ends the reply subject; `answers` is how many messages are waited for, -1 one that is
    compared elsewhere."""

    subject: str
    payload: bytes = b""
    headers: bytes = b""
    answers: int = 1
    reply: str = ""


@dataclass(frozen=True)
class Publishes:
    name: str
    config: Config
    steps: tuple[Send, ...]


def block(*fields: str, status: str = "") -> bytes:
    return "\r\n".join([f"NATS/1.0{status}", *fields, "", ""]).encode()


def pub(*fields: str, to: str = "s.a", payload: bytes = b"x") -> Send:
    return Send(to, payload, block(*fields) if fields else b"")


def direct(body: str = "", to: str = "", answers: int = 1, *fields: str) -> Send:
    subject = "$JS.API.DIRECT.GET.S" + (f".{to}" if to else "")
    return Send(subject, body.encode(), block(*fields) if fields else b"", answers)


PLAIN: Config = {"subjects": ["s.>"], "allow_direct": True}
TTL: Config = {**PLAIN, "allow_msg_ttl": True}
ROLLUP: Config = {**PLAIN, "allow_rollup_hdrs": True}
COUNTER: Config = {**PLAIN, "allow_msg_counter": True}
SCHEDULES: Config = {**TTL, "allow_rollup_hdrs": True, "allow_msg_schedules": True}
ATOMIC: Config = {**TTL, "allow_rollup_hdrs": True, "allow_atomic": True}
BATCHED: Config = {**PLAIN, "allow_batched": True}

# One header on a stream with two messages on s.a (ids one, two) and one on s.b.
BEFORE = (pub("Nats-Msg-Id: one"), pub("Nats-Msg-Id: two"), pub(to="s.b"))
EXPECTATIONS = [
    *(f"Nats-Expected-Stream: {text}" for text in ("S", "s", "T", "", " S", "S ")),
    *(
        f"Nats-Expected-Last-Sequence: {text}"
        for text in ("3", "0", "2", "4", "", "x", "-1", "+3", "3 ", "03", "18446744073709551615")
    ),
    *(
        f"Nats-Expected-Last-Subject-Sequence: {text}"
        for text in ("2", "0", "1", "3", "", "x", "-1", "02")
    ),
    *(f"Nats-Expected-Last-Msg-Id: {text}" for text in ("one", "two", "", "x")),
    *(f"Nats-Msg-Id: {text}" for text in ("one", "two", "ONE", "", "three", " one", "x" * 300)),
    "nats-msg-id: one",
    "Nats-Expected-Last-Subject-Sequence-Subject: s.a",
    "Nats-Stream-Source: a 1 b",
    "Nats-Rollup: sub",
    "Nats-TTL: 1",
    "Nats-TTL: x",
    "Nats-TTL: 0",
    "Nats-Incr: 1",
    "Nats-Incr: x",
    "Nats-Incr: ",
    "Nats-Schedule: @at 2099-01-01T00:00:00Z",
    "Nats-Schedule: nonsense",
    "Nats-Schedule-Next: purge",
    "Nats-Scheduler: s.q",
    "Nats-Required-Api-Level: 99",
    "Nats-Batch-Id: b",
    "Nats-Request-Info: {}",
    "Nats-Marker-Reason: MaxAge",
    "Nats-Counter-Sources: {}",
]
TTLS = ["1", "5", "1s", "1.9s", "1m30s", "never", "NEVER", "0", "-1", "-5s", "999ms", "x", "", "00",
        "1h1h", "+5s", "5 s", "1e3s", "9999999999999"]  # fmt: skip
ROLLUPS = ["sub", "SUB", "all", "All", "", "x", 'q"q', "sub "]
INCREMENTS = [
    "1",
    "-5",
    "+7",
    "0",
    "x",
    "1.5",
    "",
    "99999999999999999999999999",
    "1_0",
    "007",
    "-0",
]
NOT_WITH_INCREMENT = [
    "Nats-Rollup: sub",
    "Nats-Expected-Stream: S",
    "Nats-Expected-Last-Msg-Id: x",
    "Nats-Expected-Last-Sequence: 0",
    "Nats-Expected-Last-Subject-Sequence: 0",
    "Nats-Expected-Last-Subject-Sequence-Subject: s.a",
    "Nats-Msg-Id: one",
    "Nats-TTL: 5",
]
PATTERNS = [
    "@at 2099-01-01T00:00:00Z",
    "@at 2099-01-01T00:00:00+02:00",
    "@at 2099-01-01",
    "@at nonsense",
    "@every 1s",
    "@every 1h30m",
    "@every 999ms",
    "@every -5s",
    "@every x",
    "@hourly",
    "@daily",
    "@yearly",
    "@never",
    "0 0 12 * * *",
    "*/5 * * * * *",
    "0 0 0 1 jan mon",
    "0 0 0 ? * SUN-sat",
    "0 0 0 31 2 *",
    "60 * * * * *",
    "* * * * *",
    "1-2-3 * * * * *",
    "1/2/3 * * * * *",
    "5-1 * * * * *",
    "*/0 * * * * *",
]
TARGET = "Nats-Schedule-Target: s.t"
HOURLY = "Nats-Schedule: @hourly"
SCHEDULE_EXTRAS = [
    ("Nats-Schedule-Target: ",),
    ("Nats-Schedule-Target: s.*",),
    ("Nats-Schedule-Target: s.q",),
    ("Nats-Schedule-Target: other",),
    (TARGET, "Nats-Schedule-TTL: 5m"),
    (TARGET, "Nats-Schedule-TTL: x"),
    (TARGET, "Nats-Schedule-Rollup: sub"),
    (TARGET, "Nats-Schedule-Rollup: all"),
    (TARGET, "Nats-Schedule-Source: s.src"),
    (TARGET, "Nats-Schedule-Source: s.t"),
    (TARGET, "Nats-Schedule-Source: s.*"),
    (TARGET, "Nats-Schedule-Source: other"),
    (TARGET, "Nats-Schedule-Time-Zone: Europe/Berlin"),
    (TARGET, "Nats-Schedule-Time-Zone: Nowhere/Land"),
    (TARGET, "Nats-Schedule-Time-Zone: "),
    (TARGET, "Nats-Rollup: sub"),
    (TARGET, "Nats-Rollup: all"),
    (),
]


def header_cases() -> Iterator[Publishes]:
    for storage in ("memory", "file"):
        for number, field in enumerate(EXPECTATIONS):
            steps = (*BEFORE, pub(field), pub(field), pub())
            name = field.partition(":")[0]
            yield Publishes(f"{storage}-{number}-{name}", {**PLAIN, "storage": storage}, steps)
    pairs = [
        ("Nats-Expected-Last-Subject-Sequence: 3", "s.b"),
        ("Nats-Expected-Last-Subject-Sequence: 3", "s.*"),
        ("Nats-Expected-Last-Subject-Sequence: 0", "s.none"),
        ("Nats-Expected-Last-Subject-Sequence: 1", "s.b"),
        ("Nats-Expected-Last-Subject-Sequence: ", "s.b"),
    ]
    for number, (field, subject) in enumerate(pairs):
        extra = f"Nats-Expected-Last-Subject-Sequence-Subject: {subject}"
        yield Publishes(f"subject-{number}", PLAIN, (*BEFORE, pub(field, extra)))
    yield Publishes(
        "status-line",
        PLAIN,
        (
            Send("s.a", b"x", block(status=" 503 Bad")),
            Send("s.a", b"x", block("A: b", status=" 100")),
            Send("s.a", b"x", block()),
            Send("s.a", b"x", b"NATS/1.0\r\nA: b\nNats-Msg-Id: one\r\n\r\n"),
            Send("s.a", b"x", b"NATS/1.0\r\nNats-Msg-Id:   spaced \r\n\r\n"),
            pub("Nats-Request-Info: {}", "A: b"),
            pub("Nats-Request-Info: {}"),
            pub("Nats-Msg-Id: 1", "Nats-Msg-Id: 2"),
            pub("Nats-Msg-Id: 2"),
        ),
    )
    yield Publishes(
        "no-ack",
        {**PLAIN, "no_ack": True},
        tuple(
            Send("s.a", b"x", head, 0)
            for head in (b"", block("Nats-Expected-Last-Sequence: 7"), block("Nats-Msg-Id: a"))
        ),
    )


def value_cases() -> Iterator[Publishes]:
    for number, text in enumerate(TTLS):
        yield Publishes(f"ttl-{number}", TTL, (pub(f"Nats-TTL: {text}"), pub()))
    marked = {**TTL, "subject_delete_marker_ttl": 10 * SECOND, "allow_rollup_hdrs": True}
    for number, text in enumerate(("1", "10", "11s", "never", "1m")):
        yield Publishes(f"ttl-raised-{number}", marked, (pub("A: b", f"Nats-TTL: {text}"),))
    single = {**marked, "max_msgs_per_subject": 1}
    yield Publishes("ttl-not-raised", single, (pub("Nats-TTL: 1"),))
    for number, text in enumerate(ROLLUPS):
        field = f"Nats-Rollup: {text}"
        yield Publishes(f"rollup-{number}", ROLLUP, (*BEFORE, pub(field), pub()))
    for number, text in enumerate(INCREMENTS):
        field = f"Nats-Incr: {text}"
        steps = (pub(field, payload=b""), pub(field, payload=b""), pub(field), pub())
        yield Publishes(f"counter-{number}", COUNTER, steps)
    for number, field in enumerate(NOT_WITH_INCREMENT):
        step = pub("Nats-Incr: 1", field, payload=b"")
        yield Publishes(f"counter-with-{number}", COUNTER, (step, step))


def schedule_cases() -> Iterator[Publishes]:
    for number, pattern in enumerate(PATTERNS):
        step = pub(f"Nats-Schedule: {pattern}", TARGET, to="s.q")
        yield Publishes(f"schedule-{number}", SCHEDULES, (step, step, pub()))
        zoned = pub(
            f"Nats-Schedule: {pattern}", TARGET, "Nats-Schedule-Time-Zone: Asia/Tokyo", to="s.q"
        )
        yield Publishes(f"schedule-zone-{number}", SCHEDULES, (zoned,))
    for number, fields in enumerate(SCHEDULE_EXTRAS):
        yield Publishes(f"schedule-with-{number}", SCHEDULES, (pub(HOURLY, *fields, to="s.q"),))
    stored = pub(HOURLY, TARGET, to="s.q")
    for number, fields in enumerate(
        [
            ("Nats-Schedule-Next: purge", "Nats-Scheduler: s.q"),
            ("Nats-Schedule-Next: purge", "Nats-Scheduler: s.none"),
            ("Nats-Schedule-Next: purge", "Nats-Scheduler: s.a"),
            ("Nats-Schedule-Next: purge", "Nats-Scheduler: s.plain"),
            ("Nats-Schedule-Next: purge", "Nats-Scheduler: s.*"),
            ("Nats-Schedule-Next: purge",),
            ("Nats-Schedule-Next: x", "Nats-Scheduler: s.q"),
            ("Nats-Scheduler: s.q",),
        ]
    ):
        steps = (stored, pub(to="s.plain"), pub(*fields))
        yield Publishes(f"scheduler-{number}", SCHEDULES, steps)


def limit_cases() -> Iterator[Publishes]:
    new = {**PLAIN, "discard": "new"}
    three = (pub(), pub(), pub(to="s.b"), pub())
    for storage in ("memory", "file"):
        for name, config in {
            "messages": {**new, "max_msgs": 2},
            "messages-old": {**PLAIN, "max_msgs": 2},
            "bytes": {**new, "max_bytes": 80},
            "bytes-old": {**PLAIN, "max_bytes": 80},
            "subject": {
                **new,
                "max_msgs": 10,
                "max_msgs_per_subject": 1,
                "discard_new_per_subject": True,
            },
            "subject-old": {**PLAIN, "max_msgs_per_subject": 1},
            "size": {**PLAIN, "max_msg_size": 0},
        }.items():
            yield Publishes(f"limit-{storage}-{name}", {**config, "storage": storage}, three)
    sized = {**PLAIN, "max_msg_size": 20}
    steps = (
        pub(payload=b"x" * 20),
        pub(payload=b"x" * 21),
        Send("s.a", b"x" * 8, block()),
        Send("s.a", b"x" * 9, block()),
    )
    yield Publishes("limit-message-size", sized, steps)
    yield Publishes(
        "limit-header",
        PLAIN,
        (pub("A: " + "x" * 65518), pub("A: " + "x" * 65519), pub("A: " + "x" * 70000)),
    )
    yield Publishes(
        "first-sequence",
        {**PLAIN, "first_seq": 100},
        (pub("Nats-Expected-Last-Sequence: 99"), pub()),
    )
    yield Publishes(
        "sealed", PLAIN, (pub(), Send("$JS.API.STREAM.UPDATE.S", SEALED, b"", -1), pub())
    )
    yield Publishes("interest", {**PLAIN, "retention": "interest"}, (pub(), pub("Nats-Msg-Id: a")))
    yield Publishes(
        "transform",
        {
            **PLAIN,
            "subject_transform": {"src": "s.*", "dest": "s.new.{{wildcard(1)}}"},
            "max_msgs_per_subject": 1,
        },
        (pub(), pub(), pub("Nats-Expected-Last-Subject-Sequence: 2"), pub(to="s.x.y")),
    )
    republish = {**PLAIN, "republish": {"src": "s.>", "dest": "_R.copy.>"}}
    twice = (Send("s.a", b"x", b"", 2), Send("s.a", b"y", block("A: b"), 2))
    yield Publishes("republish", republish, twice)
    only = {**PLAIN, "republish": {"src": "s.>", "dest": "_R.copy.>", "headers_only": True}}
    yield Publishes("republish-headers", only, twice)


SEALED = b'{"name":"S","subjects":["s.>"],"allow_direct":true,"storage":"memory","sealed":true}'


def member(
    number: str, *fields: str, batch: str = "b", to: str = "s.a", payload: bytes = b"x"
) -> Send:
    return pub(
        f"Nats-Batch-Id: {batch}", f"Nats-Batch-Sequence: {number}", *fields, to=to, payload=payload
    )


COMMIT = "Nats-Batch-Commit: 1"
END = "Nats-Batch-Commit: eob"


def atomic_cases() -> Iterator[Publishes]:
    plans: dict[str, tuple[Send, ...]] = {
        "two": (member("1"), member("2", COMMIT)),
        "one": (member("1", COMMIT),),
        "end": (member("1"), member("2"), member("3", END)),
        "end-only": (member("1", END),),
        "gap": (member("1"), member("3", COMMIT), member("2", COMMIT)),
        "not-begun": (member("2"),),
        "commit-x": (member("1"), member("2", "Nats-Batch-Commit: x"), member("2", COMMIT)),
        "commit-empty": (member("1", "Nats-Batch-Commit: "),),
        "no-sequence": (pub("Nats-Batch-Id: b"),),
        "bad-sequence": (member("x"), member("-1"), member("0"), member("18446744073709551616")),
        "long-id": (member("1", batch="b" * 64), member("1", batch="b" * 65)),
        "far": (member("5000"),),
        "interleaved": (
            member("1"),
            member("1", batch="c"),
            pub(),
            member("2", COMMIT, batch="c"),
            member("2", COMMIT),
        ),
        "same-id": (member("1", "Nats-Msg-Id: i"), member("2", "Nats-Msg-Id: i", COMMIT)),
        "known-id": (pub("Nats-Msg-Id: i"), member("1", "Nats-Msg-Id: i", COMMIT)),
        "last-id": (member("1", "Nats-Expected-Last-Msg-Id: i", COMMIT),),
        "expected-first": (
            pub(),
            member("1", "Nats-Expected-Last-Sequence: 1"),
            member("2", COMMIT),
        ),
        "expected-wrong": (member("1", "Nats-Expected-Last-Sequence: 1"), member("2", COMMIT)),
        "expected-second": (member("1"), member("2", "Nats-Expected-Last-Sequence: 1", COMMIT)),
        "expected-second-zero": (
            member("1"),
            member("2", "Nats-Expected-Last-Sequence: 0", COMMIT),
        ),
        "expected-subject": (
            member("1", "Nats-Expected-Last-Subject-Sequence: 0"),
            member("2", "Nats-Expected-Last-Subject-Sequence: 0", COMMIT, to="s.b"),
        ),
        "expected-subject-again": (
            member("1"),
            member("2", "Nats-Expected-Last-Subject-Sequence: 0", COMMIT),
        ),
        "expected-subject-twice": (
            member(
                "1",
                "Nats-Expected-Last-Subject-Sequence: 0",
                "Nats-Expected-Last-Subject-Sequence-Subject: s.z",
            ),
            member(
                "2",
                "Nats-Expected-Last-Subject-Sequence: 0",
                "Nats-Expected-Last-Subject-Sequence-Subject: s.z",
                COMMIT,
            ),
        ),
        "rollup-first": (pub(), member("1", "Nats-Rollup: sub"), member("2", COMMIT)),
        "rollup-second": (member("1"), member("2", "Nats-Rollup: sub", COMMIT)),
        "rollup-all-second": (member("1"), member("2", "Nats-Rollup: all", COMMIT, to="s.b")),
        "rollup-all": (pub(), member("1", "Nats-Rollup: all"), member("2", COMMIT)),
        "ttl": (member("1", "Nats-TTL: 5"), member("2", "Nats-TTL: x", COMMIT)),
        "level": (
            member("1", "Nats-Required-Api-Level: 0"),
            member("2", "Nats-Required-Api-Level: 99", COMMIT),
        ),
        "level-fits": (member("1", "Nats-Required-Api-Level: 1"), member("2", COMMIT)),
        "expected-stream": (member("1", "Nats-Expected-Stream: T", COMMIT),),
        "source": (member("1", "Nats-Stream-Source: T 1", COMMIT),),
    }
    for storage in ("memory", "file"):
        for name, steps in plans.items():
            yield Publishes(f"atomic-{storage}-{name}", {**ATOMIC, "storage": storage}, steps)
    yield Publishes("atomic-disabled", PLAIN, (member("1"), member("1", COMMIT)))
    full = {**ATOMIC, "discard": "new", "max_msgs": 2}
    yield Publishes(
        "atomic-full", full, (member("1"), member("2"), member("3", COMMIT), pub(), pub(), pub())
    )
    many = tuple(member("1", batch=f"b{number}") for number in range(51))
    yield Publishes("atomic-many", ATOMIC, many)
    counters = {**COUNTER, "allow_atomic": True}
    yield Publishes(
        "atomic-counter",
        counters,
        (
            member("1", "Nats-Incr: 2", payload=b""),
            member("2", "Nats-Incr: 3", payload=b""),
            member("3", "Nats-Incr: 4", COMMIT, to="s.b", payload=b""),
        ),
    )


def step(
    seq: int | str,
    operation: int | str,
    answers: int = 1,
    flow: str = "2",
    gap: str = "fail",
    batch: str = "f",
    headers: bytes = b"",
) -> Send:
    return Send("s.a", b"x", headers, answers, f".{batch}.{flow}.{gap}.{seq}.{operation}.$FI")


def fast_cases() -> Iterator[Publishes]:
    plans: dict[str, tuple[Send, ...]] = {
        "plain": (step(1, 0), step(2, 1), step(3, 1, 0), step(4, 1), step(5, 2)),
        "end": (step(1, 0), step(2, 1), step(3, 3)),
        "single": (step(1, 2),),
        "ping": (step(1, 0), step(1, 4), step(2, 1), step(2, 4), step(3, 2)),
        "gap-fail": (step(1, 0), step(3, 1, 2), step(4, 1)),
        "gap-ok": (step(1, 0, gap="ok"), step(3, 1, 2, gap="ok"), step(4, 2, gap="ok")),
        "ping-gap-ok": (step(1, 0, gap="ok"), step(5, 4, 2, gap="ok"), step(6, 2, gap="ok")),
        "ping-gap-fail": (step(1, 0), step(5, 4, 2)),
        "unknown": (step(2, 1),),
        "first-append": (step(1, 1),),
        "start-second": (step(2, 0),),
        "bad-operation": (step(1, 5), step(1, "x")),
        "bad-gap": (step(1, 0, gap="maybe"),),
        "bad-sequence": (step(0, 0), step("x", 0), step("18446744073709551615", 0)),
        "flow-zero": (step(1, 0, flow="0"), step(2, 2, flow="0")),
        "flow-large": (step(1, 0, flow="999999"), step(2, 2, flow="999999")),
        "flow-x": (step(1, 0, flow="x"), step(2, 2)),
        "long-id": (step(1, 0, batch="f" * 65),),
        "first-fails": (step(1, 0, 2, headers=block("Nats-Expected-Last-Sequence: 9")),),
        "first-commit-fails": (step(1, 2, 1, headers=block("Nats-Expected-Last-Sequence: 9")),),
        "later-fails": (
            step(1, 0),
            step(2, 1, 2, headers=block("Nats-Expected-Last-Sequence: 9")),
        ),
        "later-fails-ok": (
            step(1, 0, gap="ok"),
            step(2, 1, 1, gap="ok", headers=block("Nats-Expected-Last-Sequence: 9")),
            step(3, 2, gap="ok"),
        ),
        "duplicates": (
            step(1, 0, headers=block("Nats-Msg-Id: a")),
            step(2, 1, headers=block("Nats-Msg-Id: a")),
            step(3, 2, headers=block("Nats-Msg-Id: b")),
        ),
        "all-duplicate": (pub("Nats-Msg-Id: a"), step(1, 2, headers=block("Nats-Msg-Id: a"))),
        "two": (
            step(1, 0, flow="4"),
            step(1, 0, 2, batch="g", flow="4"),
            step(2, 1, 0, batch="g", flow="4"),
            step(3, 1, 1, batch="g", flow="4"),
            step(4, 2, 1, batch="g", flow="4"),
            step(2, 2, flow="4"),
        ),
        "short-reply": (Send("s.a", b"x", b"", 1, ".$FI"), Send("s.a", b"x", b"", 1, ".1.$FI")),
    }
    for storage in ("memory", "file"):
        for name, steps in plans.items():
            yield Publishes(f"fast-{storage}-{name}", {**BATCHED, "storage": storage}, steps)
    yield Publishes("fast-disabled", PLAIN, (step(1, 0),))


FIVE = (
    pub(payload=b"1"),
    pub("A: b", to="s.b", payload=b"2"),
    pub(payload=b"3"),
    pub(to="s.c.d", payload=b""),
    pub("C: d", to="s.b", payload=b"5"),
)
DIRECTS: list[Send] = [
    direct(""),
    direct("{}"),
    direct("x"),
    direct("[]"),
    direct('{"seq":1}'),
    direct('{"seq":2}'),
    direct('{"seq":4}'),
    direct('{"seq":9}'),
    direct('{"seq":"1"}'),
    direct('{"seq":1,"no_hdr":true}'),
    direct('{"seq":2,"no_hdr":true}'),
    direct('{"last_by_subj":"s.a"}'),
    direct('{"last_by_subj":"s.*"}'),
    direct('{"last_by_subj":"none"}'),
    direct('{"next_by_subj":"s.b"}'),
    direct('{"next_by_subj":"s.b","seq":3}'),
    direct('{"next_by_subj":"s.>","seq":6}'),
    direct('{"seq":1,"last_by_subj":"s.a"}'),
    direct('{"last_by_subj":"s.a","next_by_subj":"s.a"}'),
    direct('{"last_by_subj":"s.a","batch":2}'),
    direct('{"seq":1,"start_time":"2020-01-01T00:00:00Z"}'),
    direct('{"start_time":"2020-01-01T00:00:00Z"}'),
    direct('{"start_time":"2099-01-01T00:00:00Z"}'),
    direct('{"start_time":"2020-01-01T00:00:00Z","next_by_subj":"s.b"}'),
    direct('{"start_time":"x"}'),
    direct('{"seq":1,"batch":2}', "", 3),
    direct('{"seq":1,"batch":9}', "", 6),
    direct('{"seq":5,"batch":1}', "", 2),
    direct('{"seq":9,"batch":2}'),
    direct('{"next_by_subj":"s.a","batch":5}', "", 3),
    direct('{"next_by_subj":"s.a","batch":1}', "", 2),
    direct('{"seq":1,"batch":5,"max_bytes":1}', "", 2),
    direct('{"seq":1,"batch":5,"max_bytes":8}', "", 3),
    direct('{"seq":1,"batch":2,"no_hdr":true}', "", 3),
    direct('{"start_time":"2020-01-01T00:00:00Z","batch":2}', "", 3),
    direct('{"multi_last":["s.>"]}', "", 4),
    direct('{"multi_last":["s.a","s.b"]}', "", 3),
    direct('{"multi_last":["s.a"],"up_to_seq":2}', "", 2),
    direct('{"multi_last":["s.>"],"up_to_seq":99}', "", 4),
    direct('{"multi_last":["none"]}'),
    direct('{"multi_last":["s.>"],"batch":2}', "", 3),
    direct('{"multi_last":["s.>"],"seq":4}', "", 3),
    direct('{"multi_last":["s.>"],"seq":4,"up_to_seq":4}', "", 2),
    direct('{"multi_last":["s.>"],"max_bytes":1}', "", 2),
    direct('{"multi_last":["s.>"],"up_to_time":"2020-01-01T00:00:00Z"}'),
    direct('{"multi_last":["s.>"],"up_to_time":"2099-01-01T00:00:00Z"}', "", 4),
    direct('{"multi_last":["s.>"],"up_to_seq":2,"up_to_time":"2099-01-01T00:00:00Z"}'),
    direct('{"multi_last":["s.>"],"last_by_subj":"s.a"}'),
    direct('{"multi_last":["s.>"],"next_by_subj":"s.a"}'),
    direct('{"multi_last":["s.a"],"no_hdr":true}', "", 2),
    direct("", "s.a"),
    direct("", "s.c.d"),
    direct("", "none"),
    direct("x", "s.a"),
    direct("{}", "s.a"),
    direct('{"no_hdr":true}', "s.b"),
    direct('{"seq":1}', "s.a"),
    direct('{"batch":1}', "s.a"),
    direct('{"seq":1}', "", 1, "Nats-Required-Api-Level: 99"),
    direct('{"seq":1}', "", 1, "Nats-Required-Api-Level: x"),
    direct('{"seq":1}', "", 1, "Nats-Required-Api-Level: 1"),
    direct("", "s.a", 1, "Nats-Required-Api-Level: 99"),
]


def direct_cases() -> Iterator[Publishes]:
    for storage in ("memory", "file"):
        for number, wanted in enumerate(DIRECTS):
            if storage == "file" and b'"up_to_seq":99' in wanted.payload:
                # The genuine file store, unlike its memory store, gives fewer messages then.
                continue
            config = {**PLAIN, "storage": storage}
            yield Publishes(f"direct-{storage}-{number}", config, (*FIVE, wanted))
    off = {"subjects": ["s.>"]}
    yield Publishes("direct-off", off, (*FIVE, direct('{"seq":1}'), direct("", "s.a")))
    deleted = Send("$JS.API.STREAM.MSG.DELETE.S", b'{"seq":3}')
    asked = (direct('{"seq":3}'), direct('{"seq":2,"batch":2}', "", 3), direct("", "s.a"))
    yield Publishes("direct-deleted", PLAIN, (*FIVE, deleted, *asked))


GROUPS = {
    "headers": header_cases,
    "values": value_cases,
    "schedules": schedule_cases,
    "limits": limit_cases,
    "atomic": atomic_cases,
    "fast": fast_cases,
    "direct": direct_cases,
}
