"""Message tracing inside one process: what costs a look, what is noted, how often."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.core._tracing import names_a_trace
from server.core.msgtrace import CLIENT_CLOSED, NOT_STALLED, MessageTrace, is_sampled
from tests.unit.config_files import options
from tests.unit.memory_client import MODERN, RecordingHooks, World

PONG = b"PONG\r\n"
DEST = b"Nats-Trace-Dest: t\r\n"
PARENT = b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n"


class TracingHooks(RecordingHooks):
    def __init__(self) -> None:
        super().__init__()
        self.traces: list[MessageTrace] = []

    def on_traced(self, trace: MessageTrace) -> None:
        self.traces.append(trace)

    def errors(self) -> list[str]:
        return [each.get("error", "") for each in self.traces[-1].events if each["type"] == "eg"]


def published(fields: bytes, payload: bytes = b"x", subject: bytes = b"a") -> bytes:
    block = b"NATS/1.0\r\n" + fields + b"\r\n"
    size = len(block)
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (subject, size, size + len(payload), block, payload)


@pytest.mark.parametrize(
    ("fields", "parents", "found"),
    [
        (b"", False, False),
        (b"A: b\r\n", True, False),
        (DEST, False, True),
        (b"A: b\r\nNats-Msg-Id: 1\r\n" + DEST, False, True),
        (b"A: Nats-Trace-Dest: t\r\n", False, False),
        (b"nats-trace-dest: t\r\n", False, False),
        (PARENT, False, False),
        (PARENT, True, True),
        (b"TRACEPARENT: x\r\n", True, True),
        (b"Tracestate: x\r\n", True, False),
    ],
)
def test_which_headers_are_looked_at(fields: bytes, parents: bool, found: bool) -> None:
    block = b"NATS/1.0\r\n" + fields + b"\r\n"
    assert names_a_trace(block, parents) is found
    for size in range(len(block)):
        assert names_a_trace(block[:size], parents) in (False, found)


@pytest.mark.parametrize(
    ("flags", "sampled"),
    [("00", False), ("01", True), ("03", True), ("7f", True), ("80", False), ("ff", False)],
)
def test_the_lowest_bit_is_that_of_sampling(flags: str, sampled: bool) -> None:
    assert is_sampled(b"00-a-b-" + flags.encode()) is sampled


@pytest.mark.feature("7-005")
def test_a_share_of_the_parents_is_traced() -> None:
    """The rest says to the servers behind this one that it is not."""
    hooks = TracingHooks()
    world = World(hooks)
    world.broker.default_account.trace_parents("t", 25)
    client = world.client(MODERN)
    client.say(b"SUB a 1\r\n")
    heard = b"".join(client.say(published(PARENT)) for _ in range(400))
    assert 60 < len(hooks.traces) < 140
    assert heard.count(b"Nats-Trace-Dest: trace disabled\r\n") == 400 - len(hooks.traces)
    world.broker.default_account.trace_parents("", 100)
    assert b"Nats-Trace" not in client.say(published(PARENT))


@pytest.mark.feature("7-004")
def test_a_slow_consumer_is_left_out() -> None:
    hooks = TracingHooks()
    world = World(hooks)
    world.broker.no_fast_producer_stall = True
    world.broker.max_pending = 100_000
    reader, writer = world.client(MODERN), world.client(MODERN)
    reader.say(b"SUB a 1\r\n")
    reader.held = 80_000
    block = b"PUB a 1000\r\n" + b"x" * 1000 + b"\r\n"
    writer.say(block * 100)
    before = reader.server_side.out_msgs
    writer.say(published(DEST))
    assert hooks.errors() == [NOT_STALLED]
    assert reader.server_side.out_msgs == before


@pytest.mark.feature("7-004")
def test_a_client_that_is_about_to_go_gets_nothing() -> None:
    hooks = TracingHooks()
    world = World(hooks)
    world.broker.max_pending = 1000
    reader, writer = world.client(MODERN), world.client(MODERN)
    reader.say(b"SUB a 1\r\n")
    reader.held = 5000
    # All in one read: the subscription is there until the turn ends.
    writer.say(b"PUB a 900\r\n" + b"x" * 900 + b"\r\n" + published(DEST, b"y" * 900) * 2)
    assert hooks.errors() == [CLIENT_CLOSED]


def test_a_repeated_line_is_traced_each_time() -> None:
    hooks = TracingHooks()
    client = World(hooks).client(MODERN)
    client.say(b"SUB a 1\r\n")
    plain = published(b"A: 123456789012345678901\r\n")
    traced = published(DEST + b"B: 1\r\n")
    assert len(plain) == len(traced)
    heard = client.say((plain + traced) * 10)
    assert len(hooks.traces) == 10
    assert heard.count(b"HMSG") == 20


def test_a_message_that_is_changed_leaves_the_next_alone() -> None:
    """An equal line behind a message whose headers grew has its own sizes."""
    client = World(TracingHooks()).client(MODERN)
    client.say(b"SUB a 1\r\n")
    odd = published(b"Nats-Trace-Origin-Account: A\r\n" + DEST)
    even = published(b"X" * (len(odd) - 31) + b"\r\n")
    assert len(even) == len(odd)
    grown = b"Nats-Trace-Dest: trace disabled\r\n"
    for first, second in ((odd, odd), (odd, even), (even, odd)):
        heard = client.say(first + second)
        assert heard.count(b"HMSG a 1 ") == 2
        assert heard.count(grown) == (first is odd) + (second is odd)


def test_what_fails_in_a_trace_costs_its_publisher_only() -> None:
    class Failing(TracingHooks):
        def on_traced(self, trace: MessageTrace) -> None:
            raise RuntimeError("no trace today")

    world = World(Failing())
    reader, writer = world.client(MODERN), world.client(MODERN)
    reader.say(b"SUB a 1\r\n")
    writer.say(published(DEST))
    assert writer.transport_closed
    assert reader.say(b"PING\r\n").endswith(PONG)


@pytest.mark.feature("3-080")
def test_where_accounts_trace_to(tmp_path: Path) -> None:
    text = 'accounts { A { msg_trace: t }\n B { trace_dest { dest: u, sampling: "25%" } }\n C {} }'
    found = [(a.trace_destination, a.trace_percent) for a in options(tmp_path, text).accounts]
    assert found == [("t", 100), ("u", 25), ("", 100)]
