"""A pull consumer under everything at once, held to what must always be true of it.

What is known here is naive: which messages the stream has, what was delivered, acknowledged, asked
to come again, and when an acknowledgement is overdue.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from server.core.subject import matches
from tests.unit.jetstream.engine_world import EngineWorld

SECOND = 1_000_000_000
ACK_WAIT_S = 10
LATE_S = 10.5  # the wheel has come to it by then
SUBJECTS = ("a.x", "a.y", "b")
DELIVERY = re.compile(
    rb"MSG (\S+) 1 (\$JS\.ACK\.S\.C\.(\d+)\.(\d+)\.(\d+)\.\d+\.(\d+)) \d+\r\nx\r\n"
)
STATUS = re.compile(rb"HMSG r\.p\.(\d+) 1 \d+ \d+\r\nNATS/1\.0 (\d+)")


@dataclass
class Sent:
    """A message that waits for its acknowledgement."""

    consumer_seq: int
    sent_ns: int
    deliveries: int = 1
    comes_again: bool = False


class Consumer(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.server = EngineWorld()
        self.server.create("S", subjects=["a.*", "b"])
        self.live: dict[int, str] = {}
        self.last_seq = 0
        self.place = 0  # the last sequence that was delivered for the first time
        self.pending: dict[int, Sent] = {}
        self.done: set[int] = set()
        self.replies: list[tuple[int, str]] = []
        self.consumer_seq = 0
        self.wanted: dict[int, int] = {}  # by request, how many messages it may still get
        self.requests = 0

    @initialize(
        filters=st.sampled_from([[], ["a.*"], ["a.x", "b"]]),
        room=st.sampled_from([3, 1000]),
        deliveries=st.sampled_from([-1, 1, 2]),
        policy=st.sampled_from(["explicit", "all"]),
    )
    def begin(self, filters: list[str], room: int, deliveries: int, policy: str) -> None:
        self.filters, self.room, self.most, self.policy = filters, room, deliveries, policy
        config: dict[str, Any] = {
            "durable_name": "C",
            "ack_policy": policy,
            "ack_wait": ACK_WAIT_S * SECOND,
            "max_ack_pending": room,
            "max_deliver": deliveries,
            "filter_subjects": filters,
        }
        answer = self.server.ask("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
        assert "error" not in answer, answer

    def heard(self, subject: str) -> bool:
        return not self.filters or any(matches(subject, each) for each in self.filters)

    @property
    def left(self) -> list[int]:
        return [
            s for s, subject in sorted(self.live.items()) if s > self.place and self.heard(subject)
        ]

    # What happens

    @rule(subject=st.sampled_from(SUBJECTS), count=st.integers(1, 4))
    def publish(self, subject: str, count: int) -> None:
        for _ in range(count):
            self.server.publish(subject)
            self.last_seq += 1
            self.live[self.last_seq] = subject
            self.settle()

    @rule(batch=st.integers(1, 5), no_wait=st.booleans())
    def pull(self, batch: int, no_wait: bool) -> None:
        self.requests += 1
        self.wanted[self.requests] = batch
        body = {"batch": batch, "no_wait": no_wait}
        self.say("$JS.API.CONSUMER.MSG.NEXT.S.C", json.dumps(body), f"r.p.{self.requests}")

    @precondition(lambda self: self.replies)
    @rule(
        number=st.integers(0, 200),
        body=st.sampled_from(["", "+ACK", "-NAK", "+TERM", "+WPI", "nonsense", "-NAK 5s"]),
    )
    def acknowledge(self, number: int, body: str) -> None:
        """Of any message that ever came: most are late or come twice."""
        seq, subject = self.replies[-1 - number % len(self.replies)]
        named = int(subject.split(".")[6])
        sent = self.pending.get(seq)
        if body in ("", "+ACK", "+TERM"):
            self.acknowledged(seq, named)
        elif sent is not None and body.startswith("-NAK") and named > self.floor:
            sent.comes_again = body == "-NAK"
            sent.sent_ns = self.now_ns - (ACK_WAIT_S - 5) * SECOND
        elif sent is not None and body == "+WPI" and not self.is_overdue(sent):
            sent.sent_ns = self.now_ns
        self.say(subject, body, "")

    def is_overdue(self, sent: Sent) -> bool:
        """It waits to be delivered again; progress does not hold that back."""
        return sent.comes_again or self.now_ns - sent.sent_ns >= ACK_WAIT_S * SECOND

    def acknowledged(self, seq: int, named: int) -> None:
        if self.policy == "explicit":
            gone = [seq]
        elif named <= self.floor or seq <= self.floor_seq:
            gone = []
        else:
            gone = [each for each in self.pending if each <= seq]
        for each in gone:
            if self.pending.pop(each, None) is not None:
                self.done.add(each)

    @rule(seconds=st.sampled_from([0, 1, 6, 11, 30]))
    def time_passes(self, seconds: int) -> None:
        self.server.world.now_ns += seconds * SECOND
        self.server.engine.hub.run_timers()
        self.settle()

    @precondition(lambda self: self.live)
    @rule(number=st.integers(0, 50))
    def delete(self, number: int) -> None:
        seq = sorted(self.live)[number % len(self.live)]
        self.server.ask("STREAM.MSG.DELETE.S", {"seq": seq})
        self.forget([seq])
        self.settle()

    @precondition(lambda self: self.live)
    @rule(number=st.integers(0, 50), which=st.sampled_from(["", "a.x"]))
    def purge(self, number: int, which: str) -> None:
        seq = sorted(self.live)[number % len(self.live)]
        self.server.ask("STREAM.PURGE.S", {"seq": seq, "filter": which})
        self.forget([s for s in self.live if s < seq and (not which or self.live[s] == which)])
        self.settle()

    def forget(self, sequences: list[int]) -> None:
        for seq in sequences:
            del self.live[seq]
            self.pending.pop(seq, None)

    # What is seen of it

    @property
    def now_ns(self) -> int:
        return self.server.world.now_ns

    @property
    def floor(self) -> int:
        return self.core.floor_consumer_seq

    @property
    def floor_seq(self) -> int:
        return self.core.floor_seq

    @property
    def core(self) -> Any:
        return self.server.stream("S").consumers["C"].core

    def say(self, subject: str, body: str, reply: str) -> None:
        line = f"PUB {subject} {reply} {len(body)}\r\n{body}\r\n".replace("  ", " ")
        self.server.seen += self.server.client.say(line.encode())
        self.settle()

    def settle(self) -> None:
        """Turns until nothing moves any more; every delivery is judged."""
        for _ in range(3):
            self.server.run()
            self.server.seen += self.server.client.take()
        self.count_overdue()
        seen, self.server.seen = self.server.seen, b""
        for found in DELIVERY.finditer(seen):
            subject, reply, *numbers = found.groups()
            self.judge(subject.decode(), reply.decode(), *map(int, numbers))
        for status in STATUS.finditer(seen):
            self.wanted.pop(int(status[1]), None)

    def count_overdue(self) -> None:
        """What was delivered as often as it may be is not pending any more."""
        if self.most <= 0:
            return
        for seq, sent in list(self.pending.items()):
            is_over = sent.comes_again or self.now_ns - sent.sent_ns >= LATE_S * SECOND
            if is_over and self.most <= sent.deliveries:
                del self.pending[seq]
                self.done.add(seq)

    @property
    def is_between(self) -> bool:
        """The wheel may have come to some of them, or not yet."""
        return self.most > 0 and any(
            ACK_WAIT_S * SECOND <= self.now_ns - sent.sent_ns < LATE_S * SECOND
            for sent in self.pending.values()
        )

    def judge(
        self, subject: str, reply: str, deliveries: int, seq: int, consumer_seq: int, pending: int
    ) -> None:
        assert self.live[seq] == subject
        assert consumer_seq == self.consumer_seq + 1
        assert seq not in self.done, "done with, and came again"
        self.consumer_seq = consumer_seq
        self.replies.append((seq, reply))
        if deliveries == 1:
            assert seq == self.left[0], "not the next one"
            assert self.is_between or len(self.pending) < self.room
            self.place = seq
            self.pending[seq] = Sent(consumer_seq, self.now_ns)
        else:
            sent = self.pending[seq]
            overdue_ns = self.now_ns - sent.sent_ns
            assert sent.comes_again or overdue_ns >= ACK_WAIT_S * SECOND, "too early"
            sent.deliveries += 1
            assert deliveries == sent.deliveries
            assert not 0 < self.most < deliveries
            sent.sent_ns, sent.comes_again = self.now_ns, False
        assert pending == len(self.left)

    # What is always true

    @invariant()
    def counts_are_exact(self) -> None:
        assert self.core.num_pending == len(self.left)
        assert self.is_between or self.core.ack_pending == len(self.pending)

    @invariant()
    def the_floor_is_below_all_that_is_pending(self) -> None:
        for seq, sent in self.pending.items():
            assert self.floor_seq < seq
            assert self.floor < sent.consumer_seq or self.policy == "all"

    @invariant()
    def nobody_waits_while_something_can_be_sent(self) -> None:
        if self.core.waiting.count == 0:
            return
        assert self.core.table.queued == 0
        assert self.is_between or not self.left or len(self.pending) >= self.room


TestConsumer = pytest.mark.feature("5.037", "5.038", "5.039", "5.040", "5.041", "5.042")(
    Consumer.TestCase
)
TestConsumer.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
