"""Mirrors and sources: streams that copy from each other, and what they hold once all is copied."""

# ruff: noqa: RUF005
# Steps are put together with +: a case reads like a script.

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Config = dict[str, Any]
HEADER = "NATS/1.0\r\n{}\r\n\r\n"


@dataclass(frozen=True)
class Make:
    """Creates a stream; the answer is compared. `update` changes it instead."""

    name: str
    config: Config
    update: bool = False


@dataclass(frozen=True)
class Put:
    subject: str
    payload: bytes = b"x"
    fields: tuple[str, ...] = ()
    count: int = 1


@dataclass(frozen=True)
class Ask:
    """Another API request; the answer is compared."""

    subject: str
    body: Any = b""


@dataclass(frozen=True)
class Until:
    """Waits until the stream's last sequence (and its count of messages) is this."""

    name: str
    last_seq: int
    messages: int = -1


@dataclass(frozen=True)
class Gone:
    """Waits until the stream has no consumers."""

    name: str


@dataclass(frozen=True)
class Told:
    """Waits until the stream's information tells this error of an origin."""

    name: str
    err_code: int


@dataclass(frozen=True)
class Look:
    """The stream's information and all its messages are compared."""

    name: str
    info: bool = True


@dataclass(frozen=True)
class Hear:
    """What comes on a subject from now on is compared at the end."""

    subject: str


@dataclass(frozen=True)
class Case:
    name: str
    steps: tuple[Any, ...]


def put(subject: str, *fields: str, payload: bytes = b"x", count: int = 1) -> Put:
    return Put(subject, payload, fields, count)


def origin(**more: Any) -> Make:
    return Make("O", {"subjects": ["o.>"], **more})


def mirror(name: str = "M", of: str = "O", more: Config | None = None, **keys: Any) -> Make:
    return Make(name, {"mirror": {"name": of, **keys}, **(more or {})})


def sourcing(*sources: Config, **more: Any) -> Make:
    return Make("T", {"sources": list(sources), **more})


THREE = (put("o.a"), put("o.b", payload=b"b"), put("o.a", payload=b"c"))


def gone(seq: int) -> Ask:
    return Ask("STREAM.MSG.DELETE.O", {"seq": seq})


def mirrors() -> list[Case]:
    return [
        Case("plain", (origin(), *THREE, mirror(), Until("M", 3), Look("M"))),
        Case("before-the-origin-has-any", (origin(), mirror(), *THREE, Until("M", 3), Look("M"))),
        Case("empty-origin", (origin(), mirror(), Until("M", 0), Look("M"))),
        Case(
            "empty-origin-with-first-seq",
            (origin(first_seq=50), mirror(), Until("M", 49), Look("M")),
        ),
        Case(
            "gaps",
            (origin(), *THREE, *THREE, gone(1), gone(3), gone(6), mirror(), Until("M", 5))
            + (Look("M"), put("o.z"), Until("M", 7), Look("M")),
        ),
        Case(
            "purged-origin",
            (origin(), *THREE, Ask("STREAM.PURGE.O"), mirror(), Until("M", 3), Look("M"))
            + (put("o.a"), Until("M", 4), Look("M")),
        ),
        Case(
            "filter",
            (origin(), *THREE, mirror(filter_subject="o.a"), Until("M", 3), Look("M")),
        ),
        Case(
            "filter-at-the-end",
            (origin(), *THREE, mirror(filter_subject="o.b"), Until("M", 2), Look("M")),
        ),
        Case(
            "filter-of-nothing",
            (origin(), *THREE, mirror(filter_subject="q.>"), Until("M", 0), Look("M")),
        ),
        Case(
            "transform",
            (origin(), *THREE)
            + (mirror(subject_transforms=[{"src": "o.*", "dest": "m.{{wildcard(1)}}.x"}]),)
            + (Until("M", 3), Look("M")),
        ),
        Case(
            "several-transforms",
            (origin(), *THREE, put("o.c"), put("o.d.e"))
            + (
                mirror(
                    subject_transforms=[
                        {"src": "o.a", "dest": "one"},
                        {"src": "o.b", "dest": ""},
                        {"src": "o.d.>", "dest": "two.>"},
                    ]
                ),
            )
            + (Until("M", 5), Look("M")),
        ),
        Case(
            "own-transform",
            (origin(), *THREE)
            + (mirror(more={"subject_transform": {"src": "o.>", "dest": "own.>"}}),)
            + (Until("M", 3), Look("M")),
        ),
        Case("start-seq", (origin(), *THREE, mirror(opt_start_seq=2), Until("M", 3), Look("M"))),
        Case(
            "start-seq-beyond",
            (origin(), *THREE, mirror(opt_start_seq=9), Until("M", 3), Look("M")),
        ),
        Case(
            "start-time-past",
            (origin(), *THREE, mirror(opt_start_time="2020-01-01T00:00:00Z"), Until("M", 3))
            + (Look("M"),),
        ),
        Case(
            "start-time-future",
            (origin(), *THREE, mirror(opt_start_time="2199-01-01T00:00:00Z"), Until("M", 3))
            + (Look("M"), put("o.c"), Until("M", 4), Look("M")),
        ),
        Case(
            "headers",
            (
                origin(allow_rollup_hdrs=True, allow_msg_ttl=True),
                put("o.a", "Nats-Msg-Id: one", "Mine: 1"),
                put("o.a", "Nats-Expected-Last-Sequence: 1"),
                put("o.b", "Nats-Expected-Stream: O", "Mine: 2"),
                put("o.b", "Nats-TTL: 100s"),
                put("o.c", "Nats-Rollup: sub"),
                put("o.a", "Nats-Rollup: sub", "Nats-Msg-Id: two"),
                mirror(),
                Until("M", 6),
                Look("M"),
            ),
        ),
        Case(
            "rollup-mirror",
            (origin(allow_rollup_hdrs=True), mirror(more={"allow_rollup_hdrs": True}))
            + (*THREE, put("o.a", "Nats-Rollup: sub"), Until("M", 4, 2), Look("M"))
            + (put("o.b", "Nats-Rollup: all"), Until("M", 5, 1), Look("M")),
        ),
        Case(
            "batches",
            (
                origin(allow_atomic=True),
                put("o.a", "Nats-Batch-Id: u", "Nats-Batch-Sequence: 1"),
                put("o.b", "Nats-Batch-Id: u", "Nats-Batch-Sequence: 2", "Nats-Batch-Commit: 1"),
                mirror(),
                Until("M", 2),
                Look("M"),
            ),
        ),
        Case(
            "limits-of-its-own",
            (origin(), *THREE, *THREE, mirror(more={"max_msgs": 2}), Until("M", 6), Look("M")),
        ),
        Case(
            "per-subject-limit",
            (origin(), *THREE, *THREE, mirror(more={"max_msgs_per_subject": 1}))
            + (Until("M", 6), Look("M")),
        ),
        Case(
            "republish",
            (Hear("re.>"), origin())
            + (mirror(more={"republish": {"src": "o.>", "dest": "re.>"}}),)
            + (*THREE, Until("M", 3), Look("M")),
        ),
        Case(
            "counter",
            (origin(allow_msg_counter=True), put("o.a", "Nats-Incr: 1", payload=b""))
            + (put("o.a", "Nats-Incr: 2", payload=b""), mirror(), Until("M", 2), Look("M")),
        ),
        Case("no-publish", (origin(), mirror(), Until("M", 0), put("M"), put("m.a"))),
        Case(
            "chain",
            (origin(), *THREE, mirror(), mirror("N", "M"), Until("N", 3), Look("M"), Look("N")),
        ),
        Case(
            "promotion",
            (origin(), *THREE, mirror(), Until("M", 3))
            + (Make("M", {"subjects": ["m.>"]}, update=True), put("m.x"), put("o.z"), Look("M")),
        ),
        Case(
            "update-keeps-it",
            (origin(), *THREE, mirror(), Until("M", 3))
            + (Make("M", {"mirror": {"name": "O"}, "max_msgs": 2}, update=True), put("o.z"))
            + (Until("M", 4), Look("M")),
        ),
        Case(
            "direct",
            (origin(allow_direct=True), *THREE, mirror(), Until("M", 3), Look("M"))
            + (Ask("STREAM.UPDATE.O", {"name": "O", "subjects": ["o.>"]}),)
            + (Ask("DIRECT.GET.O.o.a"), Ask("DIRECT.GET.O", {"seq": 2})),
        ),
        Case(
            "direct-of-its-own",
            (origin(), *THREE, mirror(more={"allow_direct": True}), Until("M", 3), Look("M"))
            + (Ask("DIRECT.GET.M.o.a"), Ask("DIRECT.GET.M", {"seq": 2})),
        ),
        Case(
            "purge-of-the-mirror",
            (origin(), *THREE, mirror(), Until("M", 3), Ask("STREAM.PURGE.M"), put("o.z"))
            + (Until("M", 4), Look("M")),
        ),
        Case(
            "schedules",
            (
                origin(allow_msg_schedules=True, allow_msg_ttl=True),
                put(
                    "o.s", "Nats-Schedule: @at 2099-01-01T00:00:00Z", "Nats-Schedule-Target: o.t"
                ),
                mirror(),
                Until("M", 1),
                Look("M"),
            ),
        ),
        Case("interest", (origin(), *THREE, mirror(more={"retention": "interest"}), Until("M", 3))
             + (Look("M"),)),
        Case("workqueue", (origin(), *THREE, mirror(more={"retention": "workqueue"}), Until("M", 3))
             + (Look("M"),)),
        Case("in-memory", (origin(storage="memory"), *THREE, mirror(more={"storage": "memory"}))
             + (Until("M", 3), Look("M"))),
    ]  # fmt: skip


def sources() -> list[Case]:
    o: Config = {"name": "O"}
    p = Make("P", {"subjects": ["p.>"]})
    return [
        Case("plain", (origin(), *THREE, sourcing(o), Until("T", 3), Look("T"))),
        Case("later", (origin(), sourcing(o), *THREE, Until("T", 3), Look("T"))),
        Case("filter", (origin(), *THREE, sourcing({**o, "filter_subject": "o.a"}), Until("T", 2))
             + (Look("T"),)),
        Case(
            "two-filters-of-one-origin",
            (origin(), *THREE, sourcing({**o, "filter_subject": "o.a"}), Until("T", 2))
            + (Make("T", {"sources": [{**o, "filter_subject": "o.a"},
                                      {**o, "filter_subject": "o.b"}]}, update=True),)
            + (Until("T", 3), Look("T")),
        ),
        Case(
            "transform",
            (origin(), *THREE)
            + (sourcing({**o, "subject_transforms": [{"src": "o.*", "dest": "t.$1"}]}),)
            + (Until("T", 3), Look("T")),
        ),
        Case(
            "several-transforms",
            (origin(), *THREE, put("o.d.e"), put("o.f"))
            + (
                sourcing({**o, "subject_transforms": [
                    {"src": "o.a", "dest": "one"},
                    {"src": "o.b", "dest": ""},
                    {"src": "o.d.>", "dest": "two.>"},
                ]}),
            )
            + (Until("T", 4), Look("T")),
        ),
        Case("start-seq", (origin(), *THREE, sourcing({**o, "opt_start_seq": 2}), Until("T", 2))
             + (Look("T"),)),
        Case(
            "start-time-past",
            (origin(), *THREE, sourcing({**o, "opt_start_time": "2020-01-01T00:00:00Z"}))
            + (Until("T", 3), Look("T")),
        ),
        Case(
            "own-subjects",
            (origin(), *THREE, sourcing(o, subjects=["t.>"]), Until("T", 3), put("t.a"))
            + (put("t.b", "Nats-Stream-Source: O 1 > > x"), Look("T")),
        ),
        Case(
            "two-origins",
            (origin(), p, *THREE, sourcing(o), Until("T", 3))
            + (Make("T", {"sources": [o, {"name": "P"}]}, update=True), put("p.a"), put("p.b"))
            + (Until("T", 5), Look("T")),
        ),
        Case(
            "headers",
            (
                origin(allow_rollup_hdrs=True, allow_msg_ttl=True),
                put("o.a", "Nats-Msg-Id: one", "Mine: 1"),
                put("o.a", "Nats-Expected-Last-Sequence: 1"),
                put("o.b", "Nats-Expected-Stream: O", "Mine: 2"),
                put("o.b", "Nats-TTL: 100s"),
                put("o.c", "Nats-Rollup: sub"),
                sourcing(o),
                Until("T", 5),
                Look("T"),
            ),
        ),
        Case(
            "rollup",
            (origin(allow_rollup_hdrs=True), sourcing(o, allow_rollup_hdrs=True))
             + (Until("T", 0), *THREE)
            + (put("o.a", "Nats-Rollup: sub"), Until("T", 4, 2), Look("T")),
        ),
        Case(
            "duplicates",
            (origin(), put("o.a", "Nats-Msg-Id: one"), put("o.a", "Nats-Msg-Id: two"))
            + (sourcing(o, subjects=["t.>"], duplicate_window=100_000_000_000), Until("T", 2))
            + (put("t.a", "Nats-Msg-Id: one"), put("t.a", "Nats-Msg-Id: three"))
            + (put("o.a", "Nats-Msg-Id: three"), put("o.b"), Until("T", 4), Look("T")),
        ),
        Case(
            "chain",
            (origin(), *THREE, sourcing(o))
            + (Make("U", {"sources": [{"name": "T"}]}), Until("U", 3), Look("T"), Look("U")),
        ),
        Case(
            "gaps",
            (origin(), *THREE, *THREE, gone(1), gone(3), gone(6), sourcing(o), Until("T", 3))
            + (Look("T"),),
        ),
        Case(
            "counters",
            (
                origin(allow_msg_counter=True),
                Make("P", {"subjects": ["p.>"], "allow_msg_counter": True}),
                put("o.a", "Nats-Incr: 1", payload=b""),
                put("o.a", "Nats-Incr: 5", payload=b""),
                put("o.b", "Nats-Incr: -7", payload=b""),
                sourcing(
                    {**o, "subject_transforms": [{"src": "o.>", "dest": "t.>"}]},
                    allow_msg_counter=True, subjects=["t.>"],
                ),
                Until("T", 3),
                put("t.a", "Nats-Incr: 10", payload=b""),
                put("o.a", "Nats-Incr: 2", payload=b""),
                Until("T", 5),
                Look("T"),
                Make("T", {
                    "sources": [
                        {**o, "subject_transforms": [{"src": "o.>", "dest": "t.>"}]},
                        {"name": "P", "subject_transforms": [{"src": "p.>", "dest": "t.>"}]},
                    ],
                    "allow_msg_counter": True, "subjects": ["t.>"],
                }, update=True),
                put("p.a", "Nats-Incr: 100", payload=b""),
                put("p.a", "Nats-Incr: 100", payload=b""),
                Until("T", 7),
                Look("T"),
            ),
        ),
        Case(
            "counter-verbatim",
            (origin(allow_msg_counter=True), put("o.a", "Nats-Incr: 1", payload=b""))
            + (put("o.a", "Nats-Incr: 5", payload=b""), sourcing(o), Until("T", 2), Look("T")),
        ),
        Case(
            "source-removed-and-added-again",
            (origin(), *THREE, sourcing(o, subjects=["t.>"]), Until("T", 3))
            + (Make("T", {"subjects": ["t.>"]}, update=True), put("o.x"), put("t.a"), Look("T"))
            + (Make("T", {"subjects": ["t.>"], "sources": [o]}, update=True), Until("T", 5))
            + (Look("T"),),
        ),
        Case(
            "purge-of-the-target",
            (origin(), *THREE, sourcing(o), Until("T", 3), Ask("STREAM.PURGE.T"), put("o.z"))
            + (Until("T", 4), Look("T")),
        ),
        Case(
            "republish",
            (Hear("re.>"), origin(), sourcing(o, republish={"src": "o.>", "dest": "re.>"}))
            + (*THREE, Until("T", 3), Look("T")),
        ),
        Case(
            "own-transform",
            (origin(), *THREE, sourcing(o, subject_transform={"src": "o.>", "dest": "own.>"}))
            + (Until("T", 3), Look("T")),
        ),
        Case("first-seq", (origin(), *THREE, sourcing(o, first_seq=100), Until("T", 102))
             + (Look("T"),)),
        Case("no-ack", (origin(no_ack=True), Make("Q", {"subjects": ["q"]}), sourcing(o))
             + (put("q"), Until("T", 0), Look("T"))),
        Case("discard-new", (origin(), *THREE, sourcing(o, discard="new", max_msgs=2))
             + (Until("T", 2), Look("T", info=False), Ask("STREAM.MSG.DELETE.T", {"seq": 1}))
             + (Until("T", 3), Look("T", info=False))),
        Case(
            "ttl-and-markers",
            (origin(allow_msg_ttl=True), put("o.a", "Nats-TTL: 100s"))
            + (put("o.b", "Nats-TTL: 3s"),)
            + (sourcing(o, subject_delete_marker_ttl=20_000_000_000),)
            + (Until("T", 2), Look("T")),
        ),
    ]  # fmt: skip


def held(name: str = "C", **more: Any) -> Ask:
    """A consumer that is made beforehand to feed a stream."""
    config = {
        "durable_name": name,
        "deliver_subject": f"deliver.{name}",
        "ack_policy": "flow_control",
        "flow_control": True,
        "idle_heartbeat": 1_000_000_000,
        **more,
    }
    return Ask(f"CONSUMER.CREATE.O.{name}", {"stream_name": "O", "config": config})


def queues() -> list[Case]:
    """Origins that keep messages only until they are consumed."""
    o: Config = {"name": "O"}
    queue, interest = (origin(retention=kind) for kind in ("workqueue", "interest"))
    listed = Ask("CONSUMER.LIST.O")
    pull = Ask("CONSUMER.CREATE.O.P", {"stream_name": "O", "config": {
        "durable_name": "P", "ack_policy": "explicit"}})  # fmt: skip
    by_consumer = {**o, "consumer": {"name": "C", "deliver_subject": "deliver.C"}}
    return [
        Case("queue", (queue, *THREE, sourcing(o), Until("T", 3), Until("O", 3, 0), Look("T"))
             + (listed, Look("O"))),
        Case("queue-filled-later", (queue, sourcing(o), Until("T", 0), *THREE, Until("O", 3, 0))
             + (listed, Look("T"), Look("O"))),
        Case("queue-and-a-filter", (queue, sourcing({**o, "filter_subject": "o.a"}), *THREE)
             + (Until("T", 2), Until("O", 3, 1), listed, Look("T"), Look("O"))),
        Case("queue-in-two-parts", (queue, sourcing({**o, "filter_subject": "o.a"}, {
                 **o, "subject_transforms": [{"src": "o.b", "dest": "t.b"}]}), Until("T", 0))
             + (*THREE, Until("T", 3), Until("O", 3, 0), listed, Look("O"))),
        Case("queue-mirrored", (queue, *THREE, mirror(), Until("M", 3), Until("O", 3, 0))
             + (listed, Look("M"), put("o.x"), Until("M", 4), Until("O", 4, 0), Look("M"))),
        Case("interest", (interest, sourcing(o), Until("T", 0), *THREE, Until("T", 3))
             + (Until("O", 3, 0), listed, Look("T"), Look("O"))),
        Case("interest-of-two", (interest, sourcing(o), Until("T", 0), pull, *THREE)
             + (Until("T", 3), Look("T"), Look("O"))),
        Case("interest-mirrored", (interest, mirror(), Until("M", 0), *THREE, Until("M", 3))
             + (Until("O", 3, 0), listed, Look("M"), Look("O"))),
        Case("target-deleted", (queue, sourcing(o), Until("T", 0), Ask("STREAM.DELETE.T"))
             + (Gone("O"), *THREE, Look("O"))),
        Case("source-removed", (queue, sourcing(o, subjects=["t"]), Until("T", 0))
             + (Make("T", {"subjects": ["t"]}, update=True), Gone("O"), *THREE, Look("O"))),
        Case("mirror-promoted", (queue, mirror(), Until("M", 0))
             + (Make("M", {"subjects": ["m"]}, update=True), Gone("O"), *THREE, Look("O"))),
        Case("consumer-given", (queue, held(), *THREE, sourcing(by_consumer), Until("T", 3))
             + (Until("O", 3, 0), listed, Look("T"))),
        Case("consumer-given-of-limits", (origin(), held(), *THREE, sourcing(by_consumer))
             + (Until("T", 3), Look("T"))),
        Case("consumer-given-filters", (queue, held(filter_subject="o.a"), *THREE)
             + (sourcing(by_consumer), Until("T", 2), Until("O", 3, 1), Look("T"))),
        Case("consumer-given-mirrored", (queue, held(), *THREE)
             + (Make("M", {"mirror": by_consumer}), Until("M", 3), Until("O", 3, 0), Look("M"))),
        Case("consumer-of-another-kind", (
                 origin(), held(ack_policy="none"), sourcing(by_consumer), Told("T", 10217))),
        Case("mirror-of-another-kind", (
                 origin(), held(ack_policy="none"), Make("M", {"mirror": by_consumer}))
             + (Told("M", 10214),)),
        Case("discard-new", (queue, *THREE, sourcing(o, discard="new", max_msgs=2))
             + (Until("T", 2), Ask("STREAM.MSG.DELETE.T", {"seq": 1}), Until("T", 3))
             + (Until("O", 3, 0), Look("T", info=False))),
    ]  # fmt: skip


GROUPS = {"mirrors": mirrors, "sources": sources, "queues": queues}
