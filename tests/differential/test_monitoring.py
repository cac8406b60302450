"""The monitoring pages of both servers in the same situation: keys, nesting, types, plain values.

Scrapers turn every number into a gauge by its path, so names, nesting and types are the contract.
Values are compared where the situation decides them; times, ids and sizes are not.
"""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.server import MARTLET, NATS_SERVER, ServerProcess, wait_for

pytestmark = pytest.mark.peer

CONFIG = """
server_name: here
server_tags: ["az:1", "blue"]
server_metadata { zone: west }
http: "127.0.0.1:-1"
http_base_path: "/nats"
listen: "127.0.0.1:-1"
max_subscriptions: 77
accounts {
  A { users: [{user: a, password: a, permissions: {publish: {deny: "no.>"}}}] }
  SYS { users: [{user: s, password: s}] }
}
system_account: SYS
no_auth_user: a
"""

# What we add on purpose.
OURS = {"martlet_version"}
# What only the reference's runtime or rooms that are not here yet can tell.
THEIRS = {
    "git_commit",
    "disk_io_wait_stats",
    "gomemlimit",
    # Go lists its feature flags with their defaults; none of them concerns what is here.
    "js_ack_fc_v2",
    "js_api_reply_v2",
    "js_raft_delete_range",
    "js_snapshot_sources",
}
VOLATILE = {
    "server_id",
    "version",
    "go",
    "port",
    "http_port",
    "now",
    "start",
    "uptime",
    "idle",
    "rtt",
    "mem",
    "cpu",
    "cid",
    # A PONG may be on its way.
    "pending_bytes",
    "last_activity",
    "stop",
    "config_load_time",
    "update_time",
    "http_req_stats",
    # The reference's own subscriptions for its $SYS services are counted with the clients'.
    "num_subscriptions",
    "num_inserts",
    "num_matches",
    "num_cache",
    "cache_hit_rate",
    "avg_fanout",
    "max_fanout",
    "imports",
    "exports",
    "total_conns",
    "code",
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    with ExitStack() as stack:
        servers = []
        for name, command in (("genuine", NATS_SERVER), ("ours", MARTLET)):
            directory = tmp_path_factory.mktemp(name)
            server = ServerProcess(directory, config=CONFIG, command=command)
            stack.enter_context(server)
            talk(stack, server)
            servers.append(server)
        yield servers[0], servers[1]


def talk(stack: ExitStack, server: ServerProcess) -> None:
    """The situation: a publisher, a subscriber with a queue and a limit, and a client that left."""
    with server.connect() as gone:
        gone.expect("INFO ")
        gone.send('CONNECT {"verbose":false,"name":"gone","lang":"c"}\r\nSUB left 1\r\nPING\r\n')
        gone.expect("PONG")
    wait_for(lambda: fetch(server, "/connz?state=closed")[3]["total"] == 1, "the client's end")
    one = stack.enter_context(server.connect())
    one.expect("INFO ")
    # The reference counts messages for the account of the read's beginning, hence the first PING.
    one.send('CONNECT {"verbose":false,"name":"one","lang":"go","version":"1.2"}\r\nPING\r\n')
    one.expect("PONG")
    one.send("SUB a.* q 5\r\nUNSUB 5 9\r\nSUB b 6\r\nPUB a.x 2\r\nhi\r\nPUB b 3\r\nabc\r\nPING\r\n")
    for line in ("MSG a.x 5 2", "hi", "MSG b 6 3", "abc", "PONG"):
        one.expect(line)


def fetch(server: ServerProcess, path: str) -> tuple[int, str, str, Any]:
    url = f"http://127.0.0.1:{server.http_port}/nats{path}"
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            status, headers, body = answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            status, headers, body = error.code, error.headers, error.read()
    kind = headers["Content-Type"]
    page = json.loads(body) if kind == "application/json" else body.decode()
    return status, kind, headers.get("Access-Control-Allow-Origin", ""), page


def masked(value: Any, key: str = "") -> Any:
    """The page with volatile values replaced by their type."""
    if isinstance(value, dict):
        kept = {k: masked(v, k) for k, v in value.items() if k not in OURS | THEIRS}
        return kept if key != "http_req_stats" else "counts"
    if isinstance(value, list):
        items = [masked(v) for v in value] if key not in VOLATILE else "list"
        # The reference lists accounts in no particular order.
        return sorted(items, key=str) if key in ("accounts", "account_statz") else items
    if key in VOLATILE:
        return "number" if isinstance(value, int | float) else type(value).__name__
    return value


def compare(pair: tuple[ServerProcess, ServerProcess], path: str, without: set[str]) -> None:
    genuine, ours = (fetch(server, path) for server in pair)
    assert ours[:3] == genuine[:3]
    theirs_page, our_page = masked(genuine[3]), masked(ours[3])
    for key in without:
        for page in (theirs_page, our_page):
            if isinstance(page, dict):
                page.pop(key, None)
    assert our_page == theirs_page


@pytest.mark.feature(
    "5-002",
    "5-006",
    "5-008",
    "5-009",
    "5-010",
    "5-011",
    "5-012",
    "5-013",
    "5-015",
    "7-017",
    "7-024",
)
def test_varz(pair: tuple[ServerProcess, ServerProcess]) -> None:
    # The reference counts its own subscriptions; its address field needs a bound interface.
    compare(pair, "/varz", {"subscriptions"})


@pytest.mark.feature("5-017", "5-018", "5-019", "5-020", "5-021", "5-022", "5-024")
@pytest.mark.parametrize(
    "query",
    [
        "",
        "?subs=1",
        "?subs=detail",
        "?auth=1",
        "?auth=true&subs=detail&state=any",
        "?state=closed",
        "?state=closed&subs=1&auth=1",
        "?state=all&sort=cid",
        "?state=closed&sort=stop",
        "?state=closed&sort=reason",
        "?sort=bytes_to&limit=1",
        "?offset=1",
        "?offset=-3&limit=-3",
        "?cid=99999",
        "?user=a",
        "?user=nobody",
        "?acc=A",
        "?acc=A&state=closed",
        "?acc=none",
        "?sort=bad",
        "?sort=stop",
        "?state=bad",
        "?subs=2",
        "?auth=maybe",
        "?limit=x",
        "?cid=-1",
        "?mqtt_client=x",
    ],
)
def test_connz(pair: tuple[ServerProcess, ServerProcess], query: str) -> None:
    genuine, ours = (fetch(server, "/connz" + query) for server in pair)
    assert ours[:3] == genuine[:3]
    assert in_order(masked(ours[3])) == in_order(masked(genuine[3]))


def in_order(page: Any) -> Any:
    """Subscriptions of one client come in no particular order."""
    if isinstance(page, dict):
        for connection in page["connections"] or []:
            for key in ("subscriptions_list", "subscriptions_list_detail"):
                if key in connection:
                    connection[key].sort(key=str)
    return page


@pytest.mark.feature("5-004", "5-028")
@pytest.mark.parametrize(
    "query", ["", "?test=a..b", "?test=a.*", "?subs=x", "?acc=none", "?limit=1"]
)
def test_subsz(pair: tuple[ServerProcess, ServerProcess], query: str) -> None:
    compare(pair, "/subsz" + query, set())


@pytest.mark.feature("5-028")
def test_subsz_lists_the_same_client_subscriptions(
    pair: tuple[ServerProcess, ServerProcess],
) -> None:
    for query in ("&test=a.y", "&test=b", "&test=nobody"):
        listed = [
            [
                masked(sub)
                for sub in fetch(server, "/subsz?subs=1&acc=A" + query)[3].get(
                    "subscriptions_list", []
                )
            ]
            for server in pair
        ]
        assert listed[0] == listed[1]


@pytest.mark.feature("5-029", "5-030", "5-031", "5-033")
@pytest.mark.parametrize(
    "path",
    [
        "/routez",
        "/gatewayz",
        "/leafz",
        "/accountz",
        "/accountz?acc=none",
        "/accstatz",
        "/accstatz?unused=1",
        "/healthz",
        "/healthz?details=true",
        "/healthz?js-enabled-only=true",
        "/healthz?js-server-only=1",
        "/healthz?stream=x",
        "/healthz?account=A&consumer=c&details=1",
        "/healthz?details=x",
        "/ipqueuesz",
        "/raftz",
        "/nothing",
        "/jsz",
    ],
)
def test_other_pages(pair: tuple[ServerProcess, ServerProcess], path: str) -> None:
    compare(pair, path, set())


@pytest.mark.feature("5-031", "7-010")
def test_health_in_lame_duck_mode(tmp_path: Path) -> None:
    config = CONFIG + "lame_duck_duration: 60s, lame_duck_grace_period: 50s\n"
    with ExitStack() as stack:
        servers = []
        for name, command in (("genuine", NATS_SERVER), ("ours", MARTLET)):
            (tmp_path / name).mkdir()
            server = ServerProcess(tmp_path / name, config=config, command=command)
            stack.enter_context(server)
            stack.enter_context(server.connect()).handshake()
            server.signal(signal.SIGUSR2)
            server.wait_log("Entering lame duck mode")
            wait_for(lambda server=server: fetch(server, "/healthz")[0] != 200, "bad health")
            servers.append(server)
        for query in ("", "?details=true", "?js-server-only=1", "?stream=x"):
            compare((servers[0], servers[1]), "/healthz" + query, set())


@pytest.mark.feature("5-029")
def test_accountz_detail(pair: tuple[ServerProcess, ServerProcess]) -> None:
    details = [masked(fetch(server, "/accountz?acc=A")[3]["account_detail"]) for server in pair]
    for detail in details:
        detail.pop("imports", None)
        detail.pop("subscriptions")
    assert details[1] == details[0]


@pytest.mark.feature("5-003")
def test_jsonp_is_gone(pair: tuple[ServerProcess, ServerProcess]) -> None:
    compare(pair, "/leafz?callback=f", set())
