"""What the system account may ask and hears, and what every account may ask about itself."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import cramjam
import pytest

from tests.e2e.server import RawClient, ServerProcess

CONFIG = """
server_name: s1
server_tags: [red, blue]
accounts {
  A { jetstream: enabled, users: [
    {user: a, password: a, permissions: {subscribe: {allow: ["x.>", "_INBOX.>"], deny: "y"}}}
    {user: b, password: b}
  ] }
  SYS { users: [{user: s, password: s}] }
}
system_account: SYS
jetstream { store_dir: "STORE" }
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path, config=CONFIG.replace("STORE", str(tmp_path / "js"))) as running:
        yield running


class Asker:
    """A client that asks and reads one answer, or hears what is published."""

    def __init__(self, server: ServerProcess, user: str) -> None:
        self.raw: RawClient = server.connect()
        who = {"user": user, "pass": user, "name": user, "no_responders": True, "protocol": 1}
        self.raw.handshake(**who)
        self.raw.expect("INFO ")
        self.numbers = 0

    def listen(self, subject: str) -> None:
        self.raw.send(f"SUB {subject} e\r\nPING\r\n")
        self.raw.expect("PONG")

    def ask(self, subject: str, body: str = "", headers: str = "") -> bytes:
        """The whole answer: header block and payload."""
        self.numbers += 1
        inbox = f"_INBOX.{self.numbers}"
        block = f"NATS/1.0\r\n{headers}\r\n\r\n"
        sizes = f"{len(block)} {len(block) + len(body)}"
        verb = f"HPUB {subject} {inbox} {sizes}\r\n{block}" if headers else ""
        verb = verb or f"PUB {subject} {inbox} {len(body)}\r\n"
        self.raw.send(f"SUB {inbox} {self.numbers}\r\n{verb}{body}\r\n")
        return self.message(inbox)

    def message(self, subject: str) -> bytes:
        """The next message on a subject; others are passed over."""
        while True:
            line = self.raw.line()
            if line.startswith(("MSG ", "HMSG ")):
                payload = self._payload(int(line.split()[-1]))
                if line.split()[1] == subject:
                    return payload
            else:
                assert line, f"the server closed before a message on {subject}"

    def _payload(self, size: int) -> bytes:
        while len(self.raw.buffer) < size + 2:
            self.raw.buffer += self.raw.socket.recv(65536)
        payload, self.raw.buffer = self.raw.buffer[:size], self.raw.buffer[size + 2 :]
        return payload

    def asked(self, subject: str, body: str = "") -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.ask(subject, body))
        return answer

    def is_silent(self, subject: str, body: str = "") -> bool:
        """Nothing comes before the answer to a later question."""
        self.raw.send(f"SUB _INBOX.q q\r\nPUB {subject} _INBOX.q {len(body)}\r\n{body}\r\n")
        self.raw.send("SUB _INBOX.late l\r\nPUB $SYS.REQ.USER.INFO _INBOX.late 0\r\n\r\n")
        line = self.raw.line()
        self._payload(int(line.split()[-1]))
        return line.split()[1] == "_INBOX.late"

    def event(self, subject: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.message(subject))
        return told


SignIn = Callable[[str], Asker]


@pytest.fixture
def sign_in(server: ServerProcess) -> Iterator[SignIn]:
    with ExitStack() as opened:

        def open_client(user: str) -> Asker:
            client = Asker(server, user)
            opened.enter_context(client.raw)
            return client

        yield open_client


@pytest.fixture
def system(sign_in: SignIn) -> Asker:
    return sign_in("s")


PAGES = (
    "VARZ SUBSZ CONNZ ROUTEZ GATEWAYZ LEAFZ ACCOUNTZ JSZ HEALTHZ PROFILEZ EXPVARZ IPQUEUESZ RAFTZ"
)


@pytest.mark.feature("5-034", "5-036", "5-038", "1.067")
def test_every_page_is_asked_of_all_servers_or_of_one(system: Asker) -> None:
    who = system.asked("$SYS.REQ.SERVER.PING.IDZ")
    assert set(who) == {"name", "host", "id"}
    assert who["name"] == "s1"
    for page in PAGES.split():
        for prefix in ("PING", who["id"]):
            answer = system.asked(f"$SYS.REQ.SERVER.{prefix}.{page}")
            assert set(answer) == {"server", "data"}
            assert answer["server"]["id"] == who["id"]
    server = answer["server"]
    assert (server["jetstream"], server["flags"]) == (True, 3)
    assert server["tags"] == ["red", "blue"]
    assert answer["server"]["seq"] >= 2 * len(PAGES.split())
    for subject in ("PING", "PING.STATSZ", f"{who['id']}.STATSZ"):
        answer = system.asked(f"$SYS.REQ.SERVER.{subject}")
        assert set(answer) == {"server", "statsz"}
        assert answer["statsz"]["connections"] == 1
        assert "store_dir" not in answer["statsz"]["jetstream"]["config"]
    assert b"503" in system.ask(f"$SYS.REQ.SERVER.{who['id']}.NOPE")


@pytest.mark.feature("5-035")
def test_filters_and_options_of_a_request(system: Asker) -> None:
    for body in (
        '{"server_name":"nobody"}',
        '{"server_name":"s","exact_match":true}',
        '{"host":"elsewhere"}',
        '{"cluster":"c"}',
        '{"tags":["red","green"]}',
        '{"domain":"d"}',
    ):
        assert system.is_silent("$SYS.REQ.SERVER.PING.VARZ", body), body
        assert system.is_silent("$SYS.REQ.SERVER.PING.STATSZ", body), body
    for body in (
        '{"server_name":"s"}',
        '{"tags":["RED","blue"]}',
        '{"server_name":"s1","exact_match":true}',
    ):
        assert "data" in system.asked("$SYS.REQ.SERVER.PING.VARZ", body), body
    page = system.asked(
        "$SYS.REQ.SERVER.PING.CONNZ",
        '{"limit":1,"sort":"cid","auth":true,"subscriptions":true,"acc":"SYS","user":"s","state":2}',
    )["data"]
    assert (page["limit"], page["connections"][0]["account"]) == (1, "SYS")
    assert page["connections"][0]["subscriptions_list"]
    refused = system.asked("$SYS.REQ.SERVER.PING.CONNZ", '{"sort":"bogus"}')
    assert refused["error"] == {"code": 500, "description": "invalid sorting option: bogus"}
    assert refused["data"] is None
    for body in ("nope", '{"sort":1}', "[]", '"x"'):
        refused = system.asked("$SYS.REQ.SERVER.PING.CONNZ", body)
        assert refused["error"]["code"] == 400
        assert "data" not in refused


@pytest.mark.feature("5-037")
def test_an_answer_is_compressed_as_its_requester_accepts_it(system: Asker) -> None:
    subject = "$SYS.REQ.SERVER.PING.HEALTHZ"
    for asked, told in (
        ("gzip", "gzip"),
        ("snappy", "snappy"),
        ("s2", "snappy"),
        ("br", "identity"),
    ):
        block, _, body = system.ask(subject, headers=f"Accept-Encoding: {asked}").partition(
            b"\r\n\r\n"
        )
        assert f"Content-Encoding: {told}".encode() in block
        if told == "gzip":
            body = gzip.decompress(body)
        elif told == "snappy":
            body = bytes(cramjam.snappy.decompress(body))
        assert json.loads(body)["data"] == {"status": "ok", "status_code": 200}


@pytest.mark.feature("5-039", "1.067", "1.068")
def test_an_account_is_asked_about_by_name(system: Asker, sign_in: SignIn) -> None:
    client = sign_in("b")
    made = client.asked("$JS.API.STREAM.CREATE.S", '{"name":"S","storage":"memory"}')
    assert made["did_create"]
    about = "$SYS.REQ.ACCOUNT.A."
    assert system.asked(about + "CONNZ")["data"]["total"] == 1
    assert system.asked(about + "SUBSZ")["data"]["subscriptions_list"]
    assert system.asked(about + "LEAFZ")["data"]["leafs"] == []
    assert system.asked(about + "INFO")["data"]["jetstream_enabled"] is True
    assert system.asked(about + "STATZ")["data"]["account_statz"][0]["conns"] == 1
    assert system.asked(about + "CONNS")["total_conns"] == 1
    detail = system.asked(about + "JSZ", '{"streams":true,"config":true}')["data"]
    assert detail["stream_detail"][0]["config"]["name"] == "S"
    whole = system.asked("$SYS.REQ.SERVER.PING.JSZ", '{"accounts":true,"streams":true}')["data"]
    assert whole["account_details"][0]["stream_detail"][0]["name"] == "S"
    assert (whole["streams"], whole["total"]) == (1, 1)
    missing = "$SYS.REQ.ACCOUNT.NOBODY."
    assert system.asked(missing + "JSZ")["error"]["description"] == 'account "NOBODY" not found'
    assert system.asked(missing + "INFO")["error"]["description"] == "Account NOBODY does not exist"
    assert system.is_silent(missing + "STATZ")
    assert system.is_silent(missing + "CONNS")
    every = system.asked("$SYS.REQ.ACCOUNT.PING.STATZ")["data"]["account_statz"]
    assert {each["acc"] for each in every} == {"A", "SYS"}
    body = '{"accounts":["$G"],"include_unused":true}'
    unused = system.asked("$SYS.REQ.ACCOUNT.PING.STATZ", body)["data"]["account_statz"]
    assert [each["acc"] for each in unused] == ["$G"]


@pytest.mark.feature("1.069")
def test_health_of_a_stream_is_asked_over_nats(system: Asker, sign_in: SignIn) -> None:
    client = sign_in("b")
    client.asked("$JS.API.STREAM.CREATE.S", '{"name":"S","storage":"memory"}')
    client.asked("$JS.API.CONSUMER.CREATE.S.C", '{"stream_name":"S","config":{"name":"C"}}')
    subject = "$SYS.REQ.SERVER.PING.HEALTHZ"
    for body, status in (
        ('{"account":"A","stream":"S"}', 200),
        ('{"account":"A","stream":"S","consumer":"C"}', 200),
        ('{"account":"A","stream":"S","consumer":"D"}', 404),
        ('{"account":"A","stream":"T"}', 404),
        ('{"account":"B"}', 404),
        ('{"account":"B","js-meta-only":true}', 404),
        ('{"account":"B","js-enabled":true}', 200),
        ('{"account":"B","js-enabled-only":true}', 200),
        ('{"account":"B","js-server-only":true}', 200),
        ('{"stream":"S","js-server-only":true}', 400),
        ('{"stream":"S"}', 400),
        ('{"js-enabled-only":true,"js-server-only":true,"js-meta-only":true}', 200),
    ):
        assert system.asked(subject, body)["data"]["status_code"] == status, body


@pytest.mark.feature("5-040", "5-041")
def test_every_account_asks_about_itself_only(sign_in: SignIn) -> None:
    client, other = sign_in("a"), sign_in("b")
    told = client.asked("$SYS.REQ.USER.INFO")["data"]
    assert told == {
        "user": "a",
        "account": "A",
        "account_name": "A",
        "permissions": {"subscribe": {"allow": ["x.>", "_INBOX.>"], "deny": ["y"]}},
    }
    assert "permissions" not in other.asked("$SYS.REQ.USER.INFO")["data"]
    sign_in("s")
    for subject in ("$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.SERVER.PING.CONNZ"):
        page = other.asked(subject, '{"acc":"SYS"}')["data"]
        assert sorted(each["name"] for each in page["connections"]) == ["a", "b"]
    counts = other.asked("$SYS.REQ.ACCOUNT.PING.STATZ")["data"]["account_statz"]
    assert [each["acc"] for each in counts] == ["A"]
    for subject in (
        "$SYS.REQ.SERVER.PING.VARZ",
        "$SYS.REQ.ACCOUNT.A.INFO",
        "$SYS.DEBUG.SUBSCRIBERS",
    ):
        assert b"503" in other.ask(subject)


@pytest.mark.feature("5-042", "5-043", "5-044")
def test_a_client_is_sent_away_and_the_configuration_read_again(
    system: Asker, sign_in: SignIn
) -> None:
    own = f"$SYS.REQ.SERVER.{system.asked('$SYS.REQ.SERVER.PING.IDZ')['id']}."
    client = sign_in("b")
    client.listen("news")
    assert set(system.asked(own + "RELOAD")) == {"server"}
    cid = system.asked("$SYS.REQ.ACCOUNT.A.CONNZ")["data"]["connections"][0]["cid"]
    for what, text in (("KICK", "no such client or leafnode id"), ("LDM", "no such client id")):
        refused = system.asked(own + what, '{"cid":9999}')["error"]
        assert refused == {"code": 500, "description": text}
    assert set(system.asked(own + "LDM", json.dumps({"cid": cid}))) == {"server"}
    assert client.raw.info()["ldm"] is True
    assert set(system.asked(own + "KICK", json.dumps({"cid": cid}))) == {"server"}
    assert client.raw.closed()
    system.listen("count.it")
    assert system.ask("$SYS.DEBUG.SUBSCRIBERS", "count.it") == b"1"
    assert system.ask("$SYS.DEBUG.SUBSCRIBERS", "count.>") == b"1"
    assert system.ask("$SYS.DEBUG.SUBSCRIBERS", "count.it group") == b"0"


@pytest.mark.feature("5-046", "5-047", "5-048", "5-050")
def test_connections_are_announced(system: Asker, server: ServerProcess, sign_in: SignIn) -> None:
    system.listen("$SYS.>")
    client = sign_in("b")
    conns = system.event("$SYS.SERVER.ACCOUNT.A.CONNS")
    assert conns["type"] == "io.nats.server.advisory.v1.account_connections"
    assert (conns["acc"], conns["conns"], conns["total_conns"]) == ("A", 1, 1)
    begun = system.event("$SYS.ACCOUNT.A.CONNECT")
    assert begun["type"] == "io.nats.server.advisory.v1.client_connect"
    assert len(begun["id"]) == 22
    assert begun["server"]["name"] == "s1"
    expected = {"host": "127.0.0.1", "acc": "A", "user": "b", "name": "b", "kind": "Client"}
    assert begun["client"].items() >= expected.items()
    client.raw.send("PUB x 5\r\nhello\r\n")
    client.raw.socket.close()
    conns = system.event("$SYS.ACCOUNT.A.SERVER.CONNS")
    ended = system.event("$SYS.ACCOUNT.A.DISCONNECT")
    assert conns["conns"] in (0, 1)
    assert ended["type"] == "io.nats.server.advisory.v1.client_disconnect"
    assert (ended["sent"], ended["reason"]) == ({"msgs": 1, "bytes": 5}, "Client Closed")
    assert ended["client"]["stop"] == ended["timestamp"]
    with server.connect() as stranger:
        stranger.info()
        stranger.connect_with(user="b", **{"pass": "wrong"})
        who = begun["server"]["id"]
        failed = system.event(f"$SYS.SERVER.{who}.CLIENT.AUTH.ERR")
    assert (failed["reason"], failed["client"]["user"]) == ("Authentication Failure", "b")
    assert system.event("$SYS.ACCOUNT.$G.DISCONNECT")["reason"] == "Authentication Failure"


@pytest.mark.feature("5-048")
def test_a_failed_login_is_told_in_the_global_account(tmp_path: Path) -> None:
    config = "authorization { users: [ {user: a, password: a} ] }"
    with ServerProcess(tmp_path, config=config) as server, server.connect() as stranger:
        owner = Asker(server, "a")
        owner.listen("$SYS.ACCOUNT.CLIENT.AUTH.ERR")
        stranger.info()
        stranger.connect_with(user="b", **{"pass": "wrong"})
        failed = owner.event("$SYS.ACCOUNT.CLIENT.AUTH.ERR")
        owner.raw.socket.close()
    assert failed["reason"] == "Authentication Failure"
    assert (failed["client"]["acc"], failed["client"]["user"]) == ("$G", "b")


@pytest.mark.feature("5-049")
def test_statistics_come_by_themselves_while_somebody_listens(system: Asker) -> None:
    who = system.asked("$SYS.REQ.SERVER.PING.IDZ")["id"]
    system.listen(f"$SYS.SERVER.{who}.STATSZ")
    told = system.event(f"$SYS.SERVER.{who}.STATSZ")
    assert told["server"]["id"] == who
    assert told["statsz"]["start"]
    assert told["statsz"]["received"]["msgs"] >= 1
