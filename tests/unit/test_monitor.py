"""The monitoring pages over a broker with in-memory clients; e2e compares them with the peer's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from config.options import Options
from server.core._broker import Broker
from server.core._client import Client
from server.net.http import Request, Response
from server.ops import closed
from server.ops.closed import ClosedConnections
from server.ops.events import ServerEvents
from server.ops.monitor import Monitor
from server.ops.pages import subscriber_count

SECOND_NS = 1_000_000_000
NOW_NS = 1_700_000_000 * SECOND_NS


class View:
    jetstream = None
    """A server that has just started, with `Broker`'s own hooks but the closed ring."""

    server_id = "NSERVER"
    server_name = "test"
    version = "2.14.0"
    martlet_version = "0.1.0"
    runtime = "python3"
    port = 4222
    http_port = 8222
    https_port = 0
    connect_urls: Sequence[str] = ()
    start_wall_ns = config_loaded_wall_ns = NOW_NS - 61 * SECOND_NS
    tls_not_after = ""
    listening = True

    def __init__(self, options: Options) -> None:
        self.options = options
        self.time_ns = NOW_NS
        self.broker = Broker(clock_ns=lambda: self.time_ns, wall_ns=lambda: self.time_ns)
        self.closed = ClosedConnections(options.max_closed_clients)
        self.errors: list[dict[str, str]] = []

    def health_errors(self) -> Sequence[Mapping[str, str]]:
        return self.errors

    def wall_ns(self) -> int:
        return self.time_ns

    def connect(self, name: str, port: int = 5000) -> Client:
        client = Client(self.broker, write=lambda data: None, ip="127.0.0.1", port=port)
        client.start()
        client.feed(b'CONNECT {"verbose":false,"name":"%s","lang":"c"}\r\n' % name.encode())
        self.broker.turn.run()
        return client


class Pages:
    def __init__(self, options: Options | None = None) -> None:
        self.view = View(options or Options())
        self.warnings: list[str] = []
        self.monitor = Monitor(self.view, self.warnings.append)

    def get(self, path: str, **query: str) -> Response:
        return self.monitor.handle(Request("GET", path, query, {}))

    def json(self, path: str, **query: str) -> Any:
        response = self.get(path, **query)
        assert response.status == 200, response.body
        assert response.content_type == "application/json"
        return json.loads(response.body)


@pytest.fixture
def pages() -> Pages:
    return Pages()


@pytest.mark.feature("5-002")
def test_json_is_indented_and_open_to_browsers(pages: Pages) -> None:
    response = pages.get("/varz")
    assert response.headers["Access-Control-Allow-Origin"] == "*"
    assert response.body.startswith(b'{\n  "server_id": "NSERVER",\n')


@pytest.mark.feature("5-005", "7-023")
def test_each_path_is_counted_below_the_base_path() -> None:
    pages = Pages(Options(http=Options().http.__class__(base_path="/nats")))
    assert pages.get("/varz").status == 404
    assert pages.get("/nats/nothing").status == 404
    pages.get("/nats/connz")
    pages.get("/nats/subscriptionsz")
    assert b"/nats/varz" in pages.get("/nats").body
    counted = pages.json("/nats/varz")["http_req_stats"]
    assert counted == {"/connz": 1, "/subsz": 1, "/": 1, "/varz": 1}


@pytest.mark.feature("5-011", "5-012")
def test_varz_counts_connections_messages_and_subscriptions(pages: Pages) -> None:
    one = pages.view.connect("one")
    one.feed(b"SUB a 1\r\nSUB b.* q 2\r\nPUB a 2\r\nhi\r\nPUB nobody 3\r\nabc\r\n")
    pages.view.broker.turn.run()
    varz = pages.json("/varz")
    assert varz["uptime"] == "1m1s"
    assert (varz["connections"], varz["total_connections"]) == (1, 1)
    assert (varz["in_msgs"], varz["in_bytes"]) == (2, 5)
    assert (varz["out_msgs"], varz["out_bytes"]) == (1, 2)
    assert varz["subscriptions"] == 2
    assert varz["mem"] > 1_000_000


@pytest.mark.feature("5-019", "5-020", "5-022")
def test_connz_tells_a_connection(pages: Pages) -> None:
    one = pages.view.connect("one", port=4001)
    one.feed(b"SUB a.> q 7\r\nUNSUB 7 5\r\nPUB a.b 2\r\nhi\r\n")
    pages.view.broker.turn.run()
    pages.view.time_ns += 5 * SECOND_NS
    page = pages.json("/connz", subs="detail", auth="1")
    assert (page["num_connections"], page["total"], page["limit"]) == (1, 1, 1024)
    entry = page["connections"][0]
    told = {key: entry[key] for key in ("cid", "kind", "type", "ip", "port", "name", "lang")}
    assert told == {
        "cid": one.cid,
        "kind": "Client",
        "type": "nats",
        "ip": "127.0.0.1",
        "port": 4001,
        "name": "one",
        "lang": "c",
    }
    assert (entry["in_msgs"], entry["out_msgs"], entry["subscriptions"]) == (1, 1, 1)
    assert (entry["uptime"], entry["idle"]) == ("5s", "5s")
    detail = {"subject": "a.>", "qgroup": "q", "sid": "7", "msgs": 1, "max": 5, "cid": one.cid}
    assert entry["subscriptions_list_detail"] == [detail]
    assert pages.json("/connz", subs="1")["connections"][0]["subscriptions_list"] == ["a.>"]


@pytest.mark.feature("5-017", "5-018")
def test_connz_sorts_pages_and_filters(pages: Pages) -> None:
    clients = [pages.view.connect(name, port) for name, port in (("a", 1), ("b", 2), ("c", 3))]
    for client, count in zip(clients, (2, 3, 1), strict=True):
        client.feed(b"PUB x 0\r\n\r\n" * count)
    pages.view.broker.turn.run()

    def names(**query: str) -> list[str]:
        return [c["name"] for c in pages.json("/connz", **query)["connections"]]

    assert names() == ["a", "b", "c"]
    assert names(sort="msgs_from") == ["b", "a", "c"]
    assert names(offset="1", limit="1") == ["b"]
    assert names(offset="9") == []
    assert names(cid=str(clients[2].cid)) == ["c"]
    assert names(acc="$G") == ["a", "b", "c"]
    assert names(user="nobody") == []
    unknown = pages.json("/connz", acc="none")
    assert (unknown["server_id"], unknown["connections"]) == ("", None)


@pytest.mark.feature("5-018")
@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"sort": "xx"}, b"invalid sorting option: xx"),
        ({"sort": "stop"}, b"sort by stop only valid on closed connections"),
        ({"sort": "reason", "state": "any"}, b"sort by reason only valid on closed connections"),
        ({"state": "foo"}, b"Error decoding state for foo"),
    ],
)
def test_connz_refuses(pages: Pages, query: dict[str, str], text: bytes) -> None:
    response = pages.get("/connz", **query)
    assert (response.status, response.body) == (400, text)


@pytest.mark.feature("5-024")
def test_closed_connections_keep_their_reason_up_to_the_limit() -> None:
    pages = Pages(Options(max_closed_clients=2))
    for name in ("a", "b", "c"):
        client = pages.view.connect(name)
        client.feed(b"SUB s 1\r\n")
        client.peer_closed()
        pages.view.closed.add(client)
        pages.view.time_ns += SECOND_NS
    page = pages.json("/connz", state="closed", sort="stop")
    assert [(c["name"], c["reason"]) for c in page["connections"]] == [
        ("c", "Client Closed"),
        ("b", "Client Closed"),
    ]
    assert pages.json("/connz")["total"] == 0
    assert pages.json("/connz", state="any")["total"] == 2


@pytest.mark.feature("5-028")
def test_subsz_lists_matches_of_a_test_subject(pages: Pages) -> None:
    one = pages.view.connect("one")
    one.feed(b"SUB a.* 1\r\nSUB b 2\r\n")
    two = pages.view.connect("two")
    two.feed(b"SUB > 3\r\n")
    pages.view.broker.turn.run()
    page = pages.json("/subsz", subs="1", test="a.x")
    assert page["total"] == 2
    assert [s["subject"] for s in page["subscriptions_list"]] == ["a.*", ">"]
    assert page["subscriptions_list"][0]["account"] == "$G"
    listed = [
        pages.json("/subsz", subs="1", offset=str(offset), limit="1")["subscriptions_list"][0]
        for offset in range(3)
    ]
    assert sorted(s["subject"] for s in listed) == [">", "a.*", "b"]
    beyond = pages.json("/subsz", subs="1", offset="3")
    assert (beyond["total"], "subscriptions_list" in beyond) == (3, False)
    assert (page["num_subscriptions"], page["num_inserts"], page["num_removes"]) == (3, 3, 0)
    refused = pages.get("/subsz", test="a..b")
    assert refused.status == 400
    assert refused.body == b"invalid test subject, must be valid publish subject: a..b"


@pytest.mark.feature("5-029", "5-030")
def test_account_pages(pages: Pages) -> None:
    pages.view.connect("one").feed(b"PUB a 2\r\nhi\r\n")
    assert pages.json("/accountz")["accounts"] == ["$G", "$SYS"]
    detail = pages.json("/accountz", acc="$G")["account_detail"]
    assert (detail["client_connections"], detail["account_name"]) == (1, "$G")
    assert pages.json("/accountz", acc="$SYS")["account_detail"]["is_system"] is True
    assert pages.get("/accountz", acc="none").body == b"Account none does not exist"
    used = pages.json("/accstatz")["account_statz"]
    assert [(a["acc"], a["received"]["msgs"]) for a in used] == [("$G", 1)]
    everyone = pages.json("/accstatz", unused="1")["account_statz"]
    assert [a["acc"] for a in everyone] == ["$G", "$SYS"]


@pytest.mark.feature("5-031")
def test_healthz_says_what_is_wrong(pages: Pages) -> None:
    assert pages.get("/healthz").body == b'{"status":"ok"}'
    refused = pages.get("/healthz", stream="x")
    assert refused.status == 400
    assert json.loads(refused.body) == {
        "status": "error",
        "error": '"account" must not be empty when checking stream health',
    }
    pages.view.errors = [{"type": "JETSTREAM", "error": "disk full"}]
    broken = pages.get("/healthz")
    assert (broken.status, json.loads(broken.body)) == (
        503,
        {"status": "unavailable", "error": "disk full"},
    )
    assert json.loads(pages.get("/healthz", details="1").body)["errors"] == pages.view.errors
    assert pages.warnings[-1].startswith("Healthcheck failed: ")


@pytest.mark.feature("5-031", "1.069")
def test_healthz_leaves_out_what_is_not_asked(pages: Pages) -> None:
    pages.view.errors = [{"type": "STREAM", "error": "lost"}]
    assert pages.get("/healthz", **{"js-meta-only": "true"}).status == 503
    for word in ("js-enabled-only", "js-server-only", "js-enabled"):
        assert pages.get("/healthz", **{word: "true"}).status == 200
        assert pages.get("/healthz", **{word: "x"}).status == 400
    assert "Healthcheck: js-enabled deprecated, use js-enabled-only instead" in pages.warnings
    pages.view.errors = [{"type": "JETSTREAM", "error": "disk full"}]
    assert pages.get("/healthz", **{"js-enabled-only": "true"}).status == 503
    assert pages.get("/healthz", **{"js-server-only": "true"}).status == 200


@pytest.mark.feature("5-007")
def test_runtime_pages(pages: Pages) -> None:
    assert pages.get("/raftz").status == 404
    assert pages.json("/ipqueuesz") == {}
    assert b"test_runtime_pages" in pages.get("/stacksz").body
    assert pages.json("/debug/vars")["memstats"]["Sys"] > 0


def test_metrics_have_the_exporters_names(pages: Pages) -> None:
    pages.view.connect("one").feed(b"SUB a 1\r\n")
    text = pages.get("/metrics").body.decode()
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    label = '{server_id="NSERVER"}'
    assert samples[f"gnatsd_varz_connections{label}"] == "1"
    assert samples[f"gnatsd_varz_slow_consumer_stats_clients{label}"] == "0"
    assert samples[f"gnatsd_varz_start{label}"] == str((NOW_NS // SECOND_NS - 61) * 1000)
    assert samples['gnatsd_varz_version{server_id="NSERVER",value="2.14.0"}'] == "1"
    assert samples[f"gnatsd_connz_subscriptions{label}"] == "1"
    assert samples[f"gnatsd_subsz_num_subscriptions{label}"] == "1"
    assert samples[f"gnatsd_healthz_status{label}"] == "0"
    types = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    assert "nats_varz_cpu{" in pages.get("/metrics", prefix="nats").body.decode()
    assert pages.get("/metrics", prefix="a b").status == 400


@pytest.mark.feature("5-028")
def test_a_page_of_subscriptions_lies_anywhere(pages: Pages) -> None:
    for name, count in (("one", 3), ("two", 5)):
        client = pages.view.connect(name)
        for sid in range(count):
            client.feed(b"SUB %s.%d %d\r\n" % (name.encode(), sid, sid))
        client.feed(b"SUB common.* 9\r\n")
    seen = []
    for offset in range(0, 10, 4):
        page = pages.json("/subsz", subs="1", offset=str(offset), limit="4")
        assert page["total"] == 10
        seen += [(sub["subject"], sub["cid"]) for sub in page["subscriptions_list"]]
    assert len(seen) == len(set(seen)) == 10
    found = pages.json("/subsz", subs="1", test="common.x", offset="1", limit="1")
    assert found["total"] == 2
    assert [(sub["subject"], sub["cid"]) for sub in found["subscriptions_list"]] == [
        ("common.*", 2)
    ]


def test_subscribers_are_counted_by_subject_and_queue(pages: Pages) -> None:
    client = pages.view.connect("one")
    client.feed(b"SUB a.b 1\r\nSUB a.* q 2\r\nSUB a.> r 3\r\nSUB b 4\r\n")
    account = pages.view.broker.default_account

    def count(subject: str, queue: str = "") -> int:
        return subscriber_count(pages.view, account, subject, queue)

    assert [count("a.b"), count("a.b", "q"), count("a.b.c"), count("b", "q")] == [3, 1, 1, 0]
    assert [count("a.*"), count("a.>"), count(">"), count("*")] == [2, 3, 4, 1]


def test_subscriptions_of_closed_connections_are_bounded(pages: Pages) -> None:
    ring = ClosedConnections(3)
    clients = [pages.view.connect(str(number)) for number in range(5)]
    for client in clients:
        client.feed(b"".join(b"SUB s.%d %d\r\n" % (sid, sid) for sid in range(10)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(closed, "SUBSCRIPTIONS_OF_ONE_MAX", 8)
        patch.setattr(closed, "SUBSCRIPTIONS_MAX", 16)
        for client in clients:
            ring.add(client)
    kept = [(each.cid, each.subscription_count, len(each.subscriptions)) for each in ring]
    assert kept == [(3, 10, 0), (4, 10, 8), (5, 10, 8)]


def test_forgotten_connections_leave_their_room_to_others(pages: Pages) -> None:
    ring = ClosedConnections(2)
    for number in range(50):
        client = pages.view.connect(str(number))
        client.feed(b"".join(b"SUB s.%d %d\r\n" % (sid, sid) for sid in range(4_000)))
        ring.add(client)
        client.close("Client Closed")
    assert [len(each.subscriptions) for each in ring] == [4_000, 4_000]


@pytest.mark.feature("5-004")
def test_numbers_beyond_all_bounds_are_refused(pages: Pages) -> None:
    for number in ("9" * 5_000, "-" + "1" * 5_000, str(2**63)):
        assert pages.get("/connz", limit=number).status == 400
    for number in ("9" * 5_000, str(2**64)):
        assert pages.get("/connz", cid=number).status == 400
    assert pages.json("/connz", limit="0" * 5_000 + "3")["limit"] == 3


class Listening:
    """ServerEvents beside a subscription in the system account, and a wall clock of its own."""

    def __init__(self) -> None:
        self.view = View(Options())
        self.view.time_ns = 0
        self.wall_ns = NOW_NS
        self.view.wall_ns = lambda: self.wall_ns  # type: ignore[method-assign]
        self.events = ServerEvents(self.view, Told())  # type: ignore[arg-type]
        self.heard: list[str] = []
        self.view.broker.system_account.subscribe(
            "$SYS.SERVER.>", lambda subject, *_: self.heard.append(subject)
        )

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.view.time_ns += SECOND_NS
            self.wall_ns += SECOND_NS
            self.events.tick()
            self.view.broker.turn.run()


class Told:
    def server(self) -> dict[str, str]:
        return {}

    def event(self, kind: str) -> dict[str, str]:
        return {"type": kind}


def test_a_clock_set_back_silences_no_event() -> None:
    world = Listening()
    world.pass_time(30)
    before = len(world.heard)
    world.wall_ns -= 3_600 * SECOND_NS
    world.pass_time(30)
    assert len(world.heard) - before == 3
