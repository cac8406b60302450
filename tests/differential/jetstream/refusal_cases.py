"""Refusals that no other case provokes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.differential.jetstream.cases import SECOND, create, update
from tests.differential.jetstream.consumer_cases import consumer, durable
from tests.differential.jetstream.play import Ask, Case, Publish

HOUR = 3_600 * SECOND
BROKEN = b"NATS/1.0\r\nNats-Incr: 1\r\n\r\n"


def limits(**more: Any) -> Ask:
    return update(consumer_limits=more)


def by_consumer(of: str, name: str = "D", **more: Any) -> dict[str, Any]:
    return {"name": of, "consumer": {"name": name, "deliver_subject": "copy"}, **more}


def consumer_limit_cases() -> Iterator[Case]:
    made = (create(), durable("A"), durable("B", max_ack_pending=10))
    yield Case("limits that a consumer has room in", (*made, limits(max_ack_pending=1000)))
    yield Case("limits below what consumers may have open", (*made, limits(max_ack_pending=5)))
    yield Case("limits below what one consumer may have open", (*made, limits(max_ack_pending=10)))
    lasting = (create(), durable("A", inactive_threshold=HOUR))
    yield Case("a threshold below a consumer's", (*lasting, limits(inactive_threshold=SECOND)))
    yield Case("a threshold above a consumer's", (*lasting, limits(inactive_threshold=2 * HOUR)))
    same = create(consumer_limits={"max_ack_pending": 100})
    yield Case("limits that stay", (same, durable("A"), limits(max_ack_pending=100)))


def consumer_refusal_cases() -> Iterator[Case]:
    yield Case("more replicas than the stream", (create(), consumer(num_replicas=3)))
    queue = create(retention="interest")
    yield Case("replicas of an interest stream", (queue, consumer(num_replicas=1)))
    subject = "CONSUMER.CREATE.S.C"
    body = {"stream_name": "S", "config": {"durable_name": "A", "name": "C"}}
    named = Ask("CONSUMER.DURABLE.CREATE.S.A", body)
    yield Case("a name and another durable name", (create(), named))
    yield Case("names that differ, in the newer form", (create(), Ask(subject, body)))
    yield Case("no configuration", (create(), Ask(subject, {"stream_name": "S"})))
    both = {"stream_name": "S", "config": {"durable_name": "A", "name": "B"}}
    for subject in ("CONSUMER.CREATE.S", "CONSUMER.CREATE.S.A", "CONSUMER.DURABLE.CREATE.S.A"):
        yield Case(f"both names by {subject}", (create(), Ask(subject, both)))
    for policy in ("ack_policy", "replay_policy"):
        yield Case(f"an {policy} of no kind", (create(), consumer(**{policy: "x"})))
    below = {"max_waiting": -1, "max_batch": -1}
    for key, value in below.items():
        yield Case(f"{key} below zero", (create(), consumer(**{key: value})))


def origin_refusal_cases() -> Iterator[Case]:
    external = {"api": "$JS.far.API", "deliver": "o"}
    near = create("O", subjects=["o.>"])
    yield Case(
        "an external delivery over the origin's subjects",
        (near, create("M", subjects=None, mirror={"name": "O", "external": external})),
    )
    sourced = {"subjects": ["o.>"], "sources": [{"name": "O", "external": external}]}
    yield Case("an external delivery over the own subjects", (create("T", **sourced),))
    sourced["subjects"] = ["t"]
    yield Case("an external delivery elsewhere", (create("T", **sourced),))
    twice = [by_consumer("O"), by_consumer("O")]
    yield Case("one consumer for two sources", (near, create("T", sources=twice)))
    other = {"subject_transforms": [{"src": "o.a", "dest": "o.b"}]}
    twice = [by_consumer("O"), by_consumer("O", **other)]
    yield Case("one consumer for two ways", (near, create("T", sources=twice)))
    two = [by_consumer("O"), by_consumer("P")]
    yield Case("consumers of two origins", (near, create("P"), create("T", sources=two)))


def other_refusal_cases() -> Iterator[Case]:
    snapshot: dict[str, Any] = {"deliver_subject": ""}
    yield Case("a snapshot to nobody", (create(), Ask("STREAM.SNAPSHOT.S", snapshot)))
    state = {"messages": 0}
    restore = {"config": {"name": "S", "subjects": ["s"], "storage": "memory"}, "state": state}
    yield Case("a restore over a stream", (create(), Ask("STREAM.RESTORE.S", restore)))
    yield Case("a peer of a stream", (create(), Ask("STREAM.PEER.REMOVE.S", {"peer": "x"})))
    counter = create(allow_msg_counter=True)
    plain = create(subjects=["S"])
    stored = Publish("S", json.dumps({"val": 5}).encode())
    yield Case("a counter that was none", (plain, stored, update(allow_msg_counter=True)))
    yield Case("an increment of nothing", (counter, Publish("S", b"", BROKEN)))
    vast = create(storage="file", max_bytes=2**62)
    yield Case("more bytes than the disk has", (vast,))
    yield Case("more bytes than the memory has", (create(max_bytes=2**62),))


def all_refusals() -> Iterator[Case]:
    yield from consumer_limit_cases()
    yield from consumer_refusal_cases()
    yield from origin_refusal_cases()
    yield from other_refusal_cases()
