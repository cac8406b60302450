"""What hardly any publisher sends: endless numbers, bytes that are no text, times beyond all
clocks, batches that go on where they may not."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.differential.jetstream.publishes import (
    ATOMIC,
    BATCHED,
    COMMIT,
    FIVE,
    PLAIN,
    SCHEDULES,
    TTL,
    Publishes,
    Send,
    block,
    direct,
    member,
    pub,
    step,
)

ENDLESS = "9" * 5000
LONG = "9" * 600
"""As much as a line has room for."""
ZEROS = "0" * 5000 + "1"
LEVEL = "Nats-Required-Api-Level: "
# The stream itself looks at these, not its fast way.
UNUSUAL = "Nats-Trace-Hop: 1"
SUBJECT = b"Nats-Expected-Last-Subject-Sequence-Subject: "


def raw(*fields: bytes, to: str = "s.a") -> Send:
    return Send(to, b"x", b"\r\n".join([b"NATS/1.0", *fields, b"", b""]))


def number_cases() -> Iterator[Publishes]:
    for number, text in enumerate((ENDLESS, ZEROS, "18446744073709551617", "9223372036854775809")):
        for config in (PLAIN, TTL):
            yield Publishes(
                f"ttl-{number}-{len(config)}", config, (pub(f"Nats-TTL: {text}"), pub())
            )
        for name in ("Nats-Expected-Last-Sequence", "Nats-Expected-Last-Subject-Sequence"):
            field = f"{name}: {text}"
            steps = (pub(), pub(field), pub(field, UNUSUAL), pub())
            yield Publishes(f"{name}-{number}", PLAIN, steps)
        steps = (member(text), pub(), member("1", COMMIT))
        yield Publishes(f"batch-sequence-{number}", ATOMIC, steps)
        scheduled = (
            "Nats-Schedule: @hourly",
            "Nats-Schedule-Target: s.t",
            f"Nats-Schedule-TTL: {text}",
        )
        yield Publishes(f"schedule-ttl-{number}", SCHEDULES, (pub(*scheduled, to="s.q"), pub()))
    yield Publishes(
        "fast-numbers",
        BATCHED,
        (
            step(LONG, 1),
            step(1, LONG),
            step(1, 0, flow=LONG),
            step(2, "18446744073709551618", flow="1"),
            pub(),
        ),
    )
    asked = (direct('{"seq":1}', "", 1, LEVEL + ENDLESS), direct("", "s.a", 1, LEVEL + ENDLESS))
    yield Publishes("direct-level", PLAIN, (*FIVE, *asked))
    info = Send("$JS.API.STREAM.NAMES", b"", block(LEVEL + ENDLESS))
    yield Publishes("api-level", PLAIN, (info, pub()))


def byte_cases() -> Iterator[Publishes]:
    for storage in ("memory", "file"):
        config = {**SCHEDULES, "storage": storage, "allow_msg_ttl": True}
        yield Publishes(
            f"bytes-{storage}",
            config,
            (
                raw(SUBJECT + b"s.\xff", b"Nats-Expected-Last-Subject-Sequence: 0"),
                raw(SUBJECT + b"s.\xff", b"Nats-Expected-Last-Subject-Sequence: 7"),
                raw(b"Nats-Expected-Last-Sequence: \xff"),
                raw(b"Nats-TTL: \xff"),
                raw(b"Nats-Rollup: \xff\xfe"),
                raw(b"Nats-Incr: \xff"),
                raw(b"Nats-Schedule: \xff"),
                raw(b"Nats-Schedule: @hourly", b"Nats-Schedule-Target: \xff"),
                raw(b"Nats-Schedule-Next: purge", b"Nats-Scheduler: s.\xff"),
                raw(b"Nats-Expected-Stream: \xff"),
                raw(b"Nats-Batch-Id: \xff", b"Nats-Batch-Sequence: 1"),
                pub(),
            ),
        )


def time_cases() -> Iterator[Publishes]:
    for number, text in enumerate(("0001-01-01T00:00:00Z", "1600-01-01T00:00:00Z")):
        for key in ("start_time", "up_to_time"):
            body = {key: text} | ({"multi_last": ["s.>"]} if key == "up_to_time" else {})
            asked = direct(json.dumps(body))
            got = Send("$JS.API.STREAM.MSG.GET.S", json.dumps({"start_time": text}).encode())
            steps = (*FIVE, asked, got) if key == "start_time" else (*FIVE, asked)
            yield Publishes(f"time-{number}-{key}", PLAIN, steps)


def batch_cases() -> Iterator[Publishes]:
    for kind, first, second in (
        ("atomic", member("1"), member("2", COMMIT)),
        ("batched", step(1, 0), step(2, 2)),
    ):
        config = {**ATOMIC, **BATCHED}
        whole = {"name": "S", "storage": "memory", **config}
        switch = [
            Send("$JS.API.STREAM.UPDATE.S", json.dumps(body).encode(), b"", -1)
            for body in (whole | {f"allow_{kind}": False}, whole)
        ]
        yield Publishes(f"switched-off-{kind}", config, (first, *switch, second))
    yield Publishes(
        "multi-last-behind-all",
        PLAIN,
        (
            *FIVE,
            direct('{"multi_last":["s.a"],"seq":5}'),
            direct('{"multi_last":["s.>"],"seq":9}'),
            direct('{"multi_last":["none"],"seq":9}'),
        ),
    )


def rare_cases() -> Iterator[Publishes]:
    yield from number_cases()
    yield from byte_cases()
    yield from time_cases()
    yield from batch_cases()


GROUPS = {"rare": rare_cases}
