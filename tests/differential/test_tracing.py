"""Message tracing: the same messages to both servers, and what each tells of their way."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cramjam
import pytest

from tests.e2e.server import MARTLET, NATS_SERVER, RawClient, ServerProcess, wait_for

CONFIG = """
jetstream { store_dir: "%s", domain: hub }
no_auth_user: free
accounts {
  A {
    jetstream: enabled
    msg_trace: { dest: "parents", sampling: "100%%" }
    mappings: { open.mapped: open.a, mapped.closed: closed.a, s.mapped: s.a }
    users: [
      { user: free, password: x }
      { user: bound, password: x, permissions: {
          publish: { allow: ["open.>", "trace.>"], deny: ["trace.no"] }
          subscribe: { deny: "open.secret" }
      } }
    ]
  }
  B { jetstream: enabled, users: [ { user: other, password: x } ] }
  $SYS { users: [ { user: sys, password: x } ] }
}
"""
DEST = "Nats-Trace-Dest"
ONLY = "Nats-Trace-Only"
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-%s"
pytestmark = pytest.mark.peer


class Talker:
    """A connection that sends lines and gathers what comes."""

    def __init__(self, server: ServerProcess, **options: Any) -> None:
        self._raw = RawClient("127.0.0.1", server.port)
        self.cid = self._raw.info()["client_id"]
        self._raw.connect_with(**({"name": "talker", "no_responders": True} | options))
        self.seen: list[Any] = []
        self._pongs = 0
        self.is_closed = False
        self._read_until(lambda: self._pongs == 1)

    def send(self, text: str) -> None:
        self._raw.send(text)

    def publish(
        self, subject: str, fields: str | dict[str, str], payload: str = "x", reply: str = ""
    ) -> None:
        if isinstance(fields, dict):
            fields = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        block = f"NATS/1.0\r\n{fields}\r\n"
        size = len(block.encode())
        head = f"HPUB {subject} {reply} {size} {size + len(payload)}\r\n"
        self.send(head + block + payload + "\r\n")

    def settle(self) -> list[Any]:
        """What came before the answer to a PING, and is not taken yet."""
        wanted = self._pongs + 1
        if not self.is_closed:
            self.send("PING\r\n")
        self._read_until(lambda: self.is_closed or self._pongs == wanted)
        found, self.seen = self.seen, []
        return found

    def wait(self, count: int) -> list[Any]:
        found: list[Any] = []

        def enough() -> bool:
            found.extend(self.settle())
            return len(found) >= count

        wait_for(enough, f"{count} messages")
        return found

    def last_words(self) -> list[Any]:
        """All that comes before the server closes."""
        self._read_until(lambda: self.is_closed)
        return self.seen

    def _read_until(self, done: Any) -> None:
        while not done():
            line = self._raw.line()
            words = line.split(" ")
            if words[0] in ("MSG", "HMSG"):
                data = self._take(int(words[-1]) + 2)[:-2]
                size = int(words[-2]) if words[0] == "HMSG" else 0
                self.seen.append((words[1], data[:size], data[size:]))
            elif words[0] == "PONG":
                self._pongs += 1
            elif not line:
                self.seen.append("closed")
                self.is_closed = True
            elif words[0] != "INFO":
                self.seen.append(line)

    def _take(self, size: int) -> bytes:
        while len(self._raw.buffer) < size:
            data = self._raw.socket.recv(65536)
            assert data
            self._raw.buffer += data
        data, self._raw.buffer = self._raw.buffer[:size], self._raw.buffer[size:]
        return data

    def close(self) -> None:
        self._raw.socket.close()


class Stage:
    """A server with a publisher, a subscriber and who watches the traces."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self._talkers: list[Talker] = []
        self.watcher = self.talker(name="watcher")
        self.watcher.send("SUB trace.> 1\r\nSUB parents 2\r\n")
        self.watcher.settle()

    def talker(self, **options: Any) -> Talker:
        made = Talker(self.server, **({"user": "free", "pass": "x"} | options))
        self._talkers.append(made)
        return made

    def events(self, at_least: int = 0) -> list[Any]:
        """The traces so far, and all that come before one that is asked for now."""
        found = self.watcher.wait(at_least) if at_least else []
        asker = self.talker(name="last")
        asker.publish("nobody.hears", {DEST: "trace.last"})
        while not any(each[0] == "trace.last" for each in found):
            found += self.watcher.wait(1)
        asker.close()
        return [self.shown(each) for each in found if each[0] != "trace.last"]

    def shown(self, message: tuple[str, bytes, bytes]) -> Any:
        subject, block, payload = message
        if b"gzip" in block:
            payload = gzip.decompress(payload)
        elif b"snappy" in block:
            payload = bytes(cramjam.snappy.decompress(payload))
        event = json.loads(payload)
        assert {"name", "host", "id", "ver", "jetstream", "seq", "time"} <= set(event["server"])
        event["server"] = "<server>"
        numbers = {talker.cid: number for number, talker in enumerate(self._talkers)}
        for each in event["events"]:
            assert each.pop("ts").startswith("20")
            if "cid" in each:
                each["cid"] = numbers[each["cid"]]
        return subject, block, event

    def close(self) -> None:
        for talker in self._talkers:
            talker.close()


@contextmanager
def both_servers(home: Path) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    with ExitStack() as stack:
        servers = []
        for name, command in (("genuine", NATS_SERVER), ("martlet", MARTLET)):
            own = home / name
            own.mkdir()
            server = ServerProcess(own, config=CONFIG % own, command=command)
            servers.append(stack.enter_context(server))
        yield servers[0], servers[1]


@pytest.fixture(scope="module")
def servers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    with both_servers(tmp_path_factory.mktemp("tracing")) as pair:
        yield pair


@pytest.fixture
def stages(servers: tuple[ServerProcess, ServerProcess]) -> Iterator[tuple[Stage, Stage]]:
    genuine, ours = (Stage(server) for server in servers)
    yield genuine, ours
    genuine.close()
    ours.close()


@dataclass
class Case:
    """One message, who listens, and how many traces must come."""

    fields: str | dict[str, str]
    subs: list[str] = field(default_factory=list)
    subject: str = "open.a"
    payload: str = "x"
    reply: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    listener: dict[str, Any] = field(default_factory=dict)
    own_subs: list[str] = field(default_factory=list)
    traces: int = 1


def play(stage: Stage, case: Case) -> Any:
    listener = stage.talker(**({"name": "listener"} | case.listener))
    for line in case.subs:
        listener.send(line + "\r\n")
    listener.settle()
    publisher = stage.talker(**({"name": "publisher"} | case.options))
    for line in case.own_subs:
        publisher.send(line + "\r\n")
    publisher.settle()
    publisher.publish(case.subject, case.fields, case.payload, case.reply)
    told = publisher.wait(1) if case.subject.startswith(("$JS.API", "$SYS")) else []
    told += publisher.settle() + publisher.settle()
    return told, stage.events(case.traces), listener.settle()


TO = {DEST: "trace.here"}
BOUND = {"user": "bound"}
CASES = {
    "nobody": Case(TO),
    "one": Case(TO, ["SUB open.a 1"]),
    "several": Case(TO, ["SUB open.a 1", "SUB open.* 2", "SUB > 3"]),
    "queue": Case(TO, ["SUB open.a workers 1"]),
    "queue-of-two": Case(TO, ["SUB open.a workers 1", "SUB open.a workers 2", "SUB open.> q 3"]),
    "own": Case(TO, own_subs=["SUB open.a 1"]),
    "no-echo": Case(TO, own_subs=["SUB open.a 1"], options={"echo": False}),
    "no-echo-queue": Case(TO, own_subs=["SUB open.a q 1"], options={"echo": False}),
    "no-name": Case(TO, options={"name": ""}, own_subs=["SUB open.a 1"]),
    "reply": Case(TO, ["SUB open.a 1"], reply="open.answer"),
    "no-responders": Case(TO, own_subs=["SUB open.r 1"], reply="open.r"),
    "last-of-a-sub": Case(TO, ["SUB open.a 1", "UNSUB 1 1"]),
    "no-headers": Case(TO, ["SUB open.a 1"], listener={"headers": False, "no_responders": False}),
    "verbose": Case(TO, ["SUB open.a 1"], options={"verbose": True}),
    "wildcard-subject": Case(TO, ["SUB open.a 1"], subject="open.*"),
    "pedantic-subject": Case(TO, ["SUB open.> 1"], subject="open.*", options={"pedantic": True}),
    "empty-payload": Case(TO, ["SUB open.a 1"], payload=""),
    "large-payload": Case(TO, ["SUB open.a 1"], payload="y" * 100_000),
    # only
    **{
        f"only-{word}": Case(TO | {ONLY: word}, ["SUB open.a 1"])
        for word in ("true", "TRUE", "1", "on", "On", "false", "yes", "0", "tru")
    },
    "only-nobody": Case(TO | {ONLY: "true"}),
    "only-queue": Case(TO | {ONLY: "true"}, ["SUB open.a q 1"]),
    "only-no-echo": Case(TO | {ONLY: "true"}, own_subs=["SUB open.a 1"], options={"echo": False}),
    "only-without-destination": Case({ONLY: "true"}, ["SUB open.a 1"], traces=0),
    "only-request": Case(
        TO | {ONLY: "true"}, ["SUB open.a 1"], own_subs=["SUB open.r 1"], reply="open.r"
    ),
    "only-request-nobody": Case(TO | {ONLY: "true"}, own_subs=["SUB open.r 1"], reply="open.r"),
    "only-sub-with-a-limit": Case(TO | {ONLY: "true"}, ["SUB open.a 1", "UNSUB 1 1"]),
    "mapped": Case(TO, ["SUB open.> 1"], subject="open.mapped"),
    "only-mapped": Case(TO | {ONLY: "1"}, ["SUB open.> 1"], subject="open.mapped"),
    "mapped-parent-disabled": Case(
        {"traceparent": PARENT % "01", DEST: "trace disabled"},
        ["SUB open.> 1"],
        subject="open.mapped",
        traces=0,
    ),
    "mapped-not-allowed": Case(TO, subject="mapped.closed", options={"user": "bound"}),
    # headers
    "more-headers": Case(TO | {"B": "2", "a": "1", "Zed": "<&>"}, ["SUB open.a 1"]),
    "equal-names": Case("A: 1\r\nA: 2\r\nNats-Trace-Dest: trace.here\r\nA:   3  \r\n"),
    "empty-header": Case("A:\r\nNats-Trace-Dest: trace.here\r\n: x\r\n"),
    "two-destinations": Case("Nats-Trace-Dest: trace.a\r\nNats-Trace-Dest: trace.b\r\n"),
    "blanks": Case("Nats-Trace-Dest: \t trace.here \t\r\n"),
    "no-blank": Case("Nats-Trace-Dest:trace.here\r\n"),
    "blank-before-colon": Case("Nats-Trace-Dest : trace.here\r\n", ["SUB open.a 1"], traces=0),
    "other-case": Case("nats-trace-dest: trace.here\r\n", ["SUB open.a 1"], traces=0),
    "longer-name": Case("Nats-Trace-Destination: trace.here\r\n", ["SUB open.a 1"], traces=0),
    "line-without-colon": Case("plain\r\nNats-Trace-Dest: trace.here\r\n", traces=0),
    "empty-destination": Case({DEST: ""}, ["SUB open.a 1"], traces=0),
    "umlauts": Case(TO | {"Ä": "ö"}, ["SUB open.a 1"]),
    "disabled": Case({DEST: "trace disabled"}, ["SUB open.a 1"], traces=0),
    "disabled-only": Case({DEST: "trace disabled", ONLY: "1"}, ["SUB open.a 1"], traces=0),
    "wildcard-destination": Case({DEST: "trace.*"}, ["SUB open.a 1"], traces=0),
    "wildcard-destination-only": Case({DEST: "trace.>", ONLY: "1"}, ["SUB open.a 1"], traces=0),
    "bad-destination": Case({DEST: "trace..x"}, ["SUB open.a 1"], traces=0),
    "blank-destination": Case({DEST: "trace x"}, ["SUB open.a 1"], traces=0),
    "reserved-destination": Case({DEST: "$NRG.x"}, ["SUB open.a 1"], traces=0),
    "routed-destination": Case({DEST: "_GR_.x"}, ["SUB open.a 1"], traces=0),
    "origin-account": Case(TO | {"Nats-Trace-Origin-Account": "A"}, ["SUB open.a 1"], traces=0),
    "origin-account-only": Case(
        TO | {"Nats-Trace-Origin-Account": "A", ONLY: "1"}, ["SUB open.a 1"], traces=0
    ),
    "origin-account-large": Case(
        TO | {"Nats-Trace-Origin-Account": "A"}, ["SUB open.a 1"], payload="z" * 9000, traces=0
    ),
    "hop": Case(TO | {"Nats-Trace-Hop": "1.2"}, ["SUB open.a 1"]),
    "status": Case(" 503 text\r\nNats-Trace-Dest: trace.here\r\n", ["SUB open.a 1"], traces=0),
    **{
        f"encoding-{word}": Case(TO | {"Accept-Encoding": word})
        for word in ("gzip", "snappy", "s2", "S2", "br", "gzip, snappy", "identity")
    },
    # permissions
    "allowed": Case(TO, ["SUB open.a 1"], options=BOUND),
    "not-allowed": Case(TO, ["SUB closed.a 1"], subject="closed.a", options=BOUND),
    "only-not-allowed": Case(TO | {ONLY: "1"}, subject="closed.a", options=BOUND),
    "bad-reply": Case(TO, ["SUB open.a 1"], reply="$JS.ACK.x"),
    "destination-denied": Case({DEST: "trace.no"}, ["SUB open.a 1"], options=BOUND, traces=0),
    "destination-not-allowed": Case({DEST: "else"}, ["SUB open.a 1"], options=BOUND, traces=0),
    "sub-denied": Case(
        TO, ["SUB open.* 1", "SUB open.* q 2"], subject="open.secret", listener=BOUND
    ),
    "only-sub-denied": Case(
        TO | {ONLY: "1"}, ["SUB open.* 1"], subject="open.secret", listener=BOUND
    ),
    # traceparent
    "parent": Case({"traceparent": PARENT % "01"}, ["SUB open.a 1"]),
    "parent-case": Case({"TraceParent": PARENT % "03"}, ["SUB open.a 1"]),
    "parent-only": Case({"Traceparent": PARENT % "01", ONLY: "1"}, ["SUB open.a 1"]),
    "parent-and-destination": Case({"traceparent": PARENT % "01"} | TO, ["SUB open.a 1"]),
    "parent-and-disabled": Case(
        {"traceparent": PARENT % "01", DEST: "trace disabled"}, ["SUB open.a 1"], traces=0
    ),
    "parent-origin-account": Case(
        {"traceparent": PARENT % "01", "Nats-Trace-Origin-Account": "A"}, ["SUB open.a 1"], traces=0
    ),
    "parent-twice": Case(f"traceparent: {PARENT % '00'}\r\ntraceparent: {PARENT % '01'}\r\n"),
    **{
        f"parent-{flags or 'none'}": Case(
            {"traceparent": PARENT % flags}, ["SUB open.a 1"], traces=traces
        )
        for flags, traces in (
            ("00", 0),
            ("02", 0),
            ("1", 0),
            ("001", 0),
            ("xx", 0),
            ("", 0),
            ("01-x", 0),
            ("7f", 1),
            ("81", 0),
            ("ff", 0),
            ("+1", 1),
            ("-1", 0),
            ("0F", 1),
        )
    },
    "parent-of-an-account-without": Case(
        {"traceparent": PARENT % "01"}, options={"user": "other"}, traces=0
    ),
    # what is no stream of messages
    "api": Case(TO, subject="$JS.API.INFO", own_subs=["SUB open.r 1"], reply="open.r"),
    "api-only": Case(
        TO | {ONLY: "1"}, subject="$JS.API.INFO", own_subs=["SUB open.r 1"], reply="open.r"
    ),
    "api-of-the-domain": Case(
        TO, subject="$JS.hub.API.INFO", own_subs=["SUB open.r 1"], reply="open.r"
    ),
    "api-unknown-stream": Case(
        TO, subject="$JS.API.STREAM.INFO.NONE", own_subs=["SUB open.r 1"], reply="open.r"
    ),
    **{
        f"{kind}-{subject}": Case(
            TO | more, subject=subject, own_subs=["SUB open.r 1"], reply="open.r"
        )
        for subject in (
            "$SYS.REQ.USER.INFO",
            "$SYS.REQ.ACCOUNT.PING.STATZ",
            "$SYS.REQ.ACCOUNT.PING.CONNZ",
            "$SYS.REQ.SERVER.PING.CONNZ",
        )
        for kind, more in (("request", {}), ("only", {ONLY: "1"}))
    },
    "ack-of-nothing": Case(TO, subject="$JS.ACK.S.C.1.1.1.1700000000000000000.0"),
}


@pytest.mark.feature("7-001", "7-002", "7-004", "7-005", "7-007", "7-008", "3-080", "4-027")
@pytest.mark.parametrize("name", CASES)
def test_a_message(stages: tuple[Stage, Stage], name: str) -> None:
    genuine, ours = (masked(play(stage, CASES[name])) for stage in stages)
    assert ours == genuine
    assert len(genuine[1]) == CASES[name].traces


@pytest.mark.feature("7-007")
@pytest.mark.parametrize("only", [{}, {ONLY: "1"}])
def test_a_message_that_is_too_large(stages: tuple[Stage, Stage], only: dict[str, str]) -> None:
    """Its payload is never sent, so that what the server says is not lost with the connection."""
    found = []
    for stage in stages:
        publisher = stage.talker(name="publisher")
        fields = "".join(f"{name}: {value}\r\n" for name, value in (TO | only).items())
        block = f"NATS/1.0\r\n{fields}\r\n"
        publisher.send(f"HPUB open.a {len(block)} 1100000\r\n{block}")
        found.append((publisher.last_words(), stage.events(1)))
    assert found[1] == found[0]
    assert found[0][1][0][2]["events"][0]["error"] == "maximum payload exceeded"


def masked(found: Any) -> Any:
    """Without the answers of services, which other tests compare; in an order of our own where
    the servers have one of chance: that of the subscriptions."""
    told, events, heard = found
    for _, _, event in events:
        event["events"].sort(key=lambda each: each.get("sub", ""))
    return (
        [mask_answer(each) for each in told],
        events,
        sorted(each for each in heard if not each[0].startswith(("trace.", "nobody."))),
    )


def mask_answer(message: Any) -> Any:
    if isinstance(message, tuple) and message[0] == "open.r" and message[2].startswith(b"{"):
        return "<answer>"
    return message


STREAM = {"name": "S", "subjects": ["s.>"], "storage": "memory"}
RULES = STREAM | {"max_msg_size": 1000, "allow_msg_ttl": True}
NO_INTEREST = STREAM | {"retention": "interest"}


@dataclass
class Stored:
    """A message to a stream that has two already (ids `one` and `two`, on `s.a`)."""

    fields: dict[str, str]
    config: dict[str, Any] = field(default_factory=dict)
    payload: str = "x"
    subject: str = "s.a"


STORED = {
    "plain": Stored({}),
    "mapped": Stored({}, subject="s.mapped"),
    "id": Stored({"Nats-Msg-Id": "new"}),
    "duplicate": Stored({"Nats-Msg-Id": "two"}),
    "last-sequence": Stored({"Nats-Expected-Last-Sequence": "2"}),
    "wrong-last-sequence": Stored({"Nats-Expected-Last-Sequence": "7"}),
    "wrong-subject-sequence": Stored({"Nats-Expected-Last-Subject-Sequence": "1"}),
    "subject-of-no-sequence": Stored({"Nats-Expected-Last-Subject-Sequence-Subject": "s.b"}),
    "wrong-last-id": Stored({"Nats-Expected-Last-Msg-Id": "one"}),
    "wrong-stream": Stored({"Nats-Expected-Stream": "T"}),
    "rollup-not-allowed": Stored({"Nats-Rollup": "sub"}),
    "rollup": Stored({"Nats-Rollup": "sub"}, {"allow_rollup_hdrs": True}),
    "rollup-invalid": Stored({"Nats-Rollup": "some"}, {"allow_rollup_hdrs": True}),
    "no-ttl": Stored({"Nats-TTL": "10s"}),
    "ttl": Stored({"Nats-TTL": "10s"}, {"allow_msg_ttl": True}),
    "increment-without-counter": Stored({"Nats-Incr": "1"}),
    "too-large": Stored({}, {"max_msg_size": 200}, payload="x" * 300),
    "no-more": Stored({}, {"max_msgs": 2, "discard": "new"}),
    "schedule-disabled": Stored({"Nats-Schedule": "@at 2099-01-01T00:00:00Z"}),
    "source-header": Stored({"Nats-Stream-Source": "x 1"}),
    "no-interest": Stored({}, {"retention": "interest"}),
    "transformed": Stored({}, {"subject_transform": {"src": "s.*", "dest": "s.to.$1"}}),
    "no-ack": Stored({}, {"no_ack": True}),
    "batch-disabled": Stored({"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1"}),
}


def ask(talker: Talker, subject: str, body: dict[str, Any]) -> Any:
    talker.send(f"PUB $JS.API.{subject} open.r {len(json.dumps(body))}\r\n{json.dumps(body)}\r\n")
    answer = json.loads(talker.wait(1)[0][2])
    assert "error" not in answer, answer
    return answer


def store(stage: Stage, case: Stored, more: dict[str, str]) -> Any:
    publisher = stage.talker(name="publisher")
    publisher.send("SUB open.r 1\r\n")
    ask(publisher, "STREAM.CREATE.S", STREAM | case.config)
    for name in ("one", "two"):
        publisher.publish("s.a", {"Nats-Msg-Id": name}, reply="open.r")
        if not case.config.get("no_ack"):
            publisher.wait(1)
    publisher.publish(case.subject, more | case.fields, case.payload, "open.r")
    events = stage.events(1)
    told = [json.loads(payload) if payload else block for _, block, payload in publisher.settle()]
    info = ask(publisher, "STREAM.INFO.S", {})
    found = (
        ask(publisher, "STREAM.MSG.GET.S", {"last_by_subj": ">"})
        if (info["state"]["messages"])
        else {"message": {}}
    )
    ask(publisher, "STREAM.DELETE.S", {})
    message = {key: found["message"].get(key) for key in ("subject", "seq", "hdrs", "data")}
    return events, told, info["state"]["last_seq"], message


@pytest.mark.feature("3.010")
def test_a_batch_that_is_traced(stages: tuple[Stage, Stage]) -> None:
    """The reference tells of the message that commits; here each message is told of."""
    found = []
    for stage in stages:
        publisher = stage.talker(name="publisher")
        publisher.send("SUB open.r 1\r\n")
        ask(publisher, "STREAM.CREATE.S", STREAM | {"allow_atomic": True})
        batch = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1"}
        publisher.publish("s.a", TO | batch, reply="open.r")
        publisher.wait(1)
        last = {"Nats-Batch-Sequence": "2", "Nats-Batch-Commit": "1"}
        publisher.publish("s.b", TO | batch | last, reply="open.r")
        ack = json.loads(publisher.wait(1)[0][2])
        events = [each["events"][1] for _, _, each in stage.events(1)]
        ask(publisher, "STREAM.DELETE.S", {})
        found.append((ack, events))
    (genuine_ack, genuine_events), (our_ack, our_events) = found
    assert our_ack == genuine_ack
    assert our_events[-1:] == genuine_events
    assert our_events[0] == {"type": "js", "stream": "S", "subject": "s.a"}


@pytest.mark.feature("3.010", "7-001", "7-002")
@pytest.mark.parametrize("only", [False, True], ids=["stored", "only"])
@pytest.mark.parametrize("name", STORED)
def test_a_message_to_a_stream(stages: tuple[Stage, Stage], name: str, only: bool) -> None:
    more = TO | ({ONLY: "true"} if only else {})
    genuine, ours = (store(stage, STORED[name], more) for stage in stages)
    assert ours == genuine
    kinds = [each["type"] for each in genuine[0][0][2]["events"]]
    assert kinds == (["in", "sm", "js"] if name == "mapped" else ["in", "js"])
