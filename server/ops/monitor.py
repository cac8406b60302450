"""The monitoring service: an HTTP request in, a page out.

One handler for each path; each request is counted under its path (`http_req_stats`). All pages
but the root, the stacks and the metrics are JSON with two blanks of indent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from server.net.http import Request, Response
from server.ops import arguments, metrics, pages
from server.ops.arguments import BadArgument
from server.ops.connz import STATES, ConnzOptions, connz
from server.ops.jsz import jsz
from server.ops.pages import HealthAsked, SubszOptions
from server.ops.usage import CpuMeter
from server.ops.varz import varz

if TYPE_CHECKING:
    from server.ops.view import ServerView

JSON_HEADERS = {"Access-Control-Allow-Origin": "*"}
ALIASES = {"/subscriptionsz": "/subsz"}
ROOT_LINKS = {
    "/varz": "General",
    "/jsz": "JetStream",
    "/connz": "Connections",
    "/accountz": "Accounts",
    "/accstatz": "Account Stats",
    "/subsz": "Subscriptions",
    "/routez": "Routes",
    "/leafz": "LeafNodes",
    "/gatewayz": "Gateways",
    "/raftz": "Raft Groups",
    "/healthz": "Health Probe",
    "/metrics": "Prometheus metrics",
    "/stacksz": "Stacks",
    "/debug/vars": "Runtime",
}

Page = Callable[[Mapping[str, str]], Response]


class Monitor:
    def __init__(self, view: ServerView, warn: Callable[[str], None]) -> None:
        self._view = view
        self._warn = warn
        self._cpu = CpuMeter()
        self._base = view.options.http.base_path.rstrip("/")
        self._pages: dict[str, Page] = {
            "/": self._root,
            "/varz": lambda query: self._json(self._varz()),
            "/connz": self._connz,
            "/subsz": self._subsz,
            "/accountz": lambda query: self._json(pages.accountz(view, query.get("acc", ""))),
            "/accstatz": self._accstatz,
            "/routez": lambda query: self._json(pages.routez(view)),
            "/gatewayz": lambda query: self._json(pages.gatewayz(view)),
            "/leafz": lambda query: self._json(pages.leafz(view)),
            "/jsz": lambda query: self._json(jsz(view, query)),
            "/healthz": self._healthz,
            "/ipqueuesz": lambda query: self._json({}),
            "/raftz": lambda query: Response(b"No Raft nodes registered", 404),
            "/stacksz": lambda query: Response(pages.stacks()),
            "/debug/vars": lambda query: self._json(pages.expvar()),
            "/metrics": self._metrics,
        }
        self.requests: dict[str, int] = {}

    def handle(self, request: Request) -> Response:
        path = request.path
        if not path.startswith(self._base):
            return Response(b"404 page not found\n", 404)
        path = path.removeprefix(self._base) or "/"
        path = ALIASES.get(path, path)
        page = self._pages.get(path)
        if page is None:
            return Response(b"404 page not found\n", 404)
        self.requests[path] = self.requests.get(path, 0) + 1
        try:
            return page(request.query)
        except BadArgument as refusal:
            return Response(str(refusal).encode(), 400)

    @staticmethod
    def _json(content: Any, status: int = 200, indent: int = 2) -> Response:
        body = msgspec.json.encode(content)
        if indent:
            body = msgspec.json.format(body, indent=indent)
        return Response(body, status, "application/json", dict(JSON_HEADERS))

    def _root(self, query: Mapping[str, str]) -> Response:
        links = "".join(
            f'<li><a href="{self._base}{path}">{title}</a> <code>{path}</code></li>'
            for path, title in ROOT_LINKS.items()
        )
        page = (
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Martlet</title>'
            "<style>body{font-family:system-ui,sans-serif;margin:2rem;color:#234}"
            "li{margin:.4rem 0}code{color:#889}a{color:#07c;text-decoration:none}</style></head>"
            f"<body><h1>Martlet {self._view.martlet_version}</h1>"
            f"<p>{self._view.server_name}</p><ul>{links}</ul></body></html>\n"
        )
        return Response(page.encode(), content_type="text/html; charset=utf-8")

    def _varz(self) -> dict[str, Any]:
        return varz(self._view, self._cpu, self.requests)

    def _connz(self, query: Mapping[str, str]) -> Response:
        with_detail = query.get("subs", "").lower() == "detail"
        state = query.get("state", "").lower()
        options = ConnzOptions(
            sort=query.get("sort", ""),
            auth=arguments.boolean(query, "auth"),
            subscriptions=not with_detail and arguments.boolean(query, "subs"),
            subscriptions_detail=with_detail,
            offset=arguments.integer(query, "offset"),
            limit=arguments.integer(query, "limit"),
            cid=arguments.unsigned(query, "cid"),
            state=STATES.get(state, -1),
            user=query.get("user", ""),
            acc=query.get("acc", ""),
            mqtt_client=query.get("mqtt_client", ""),
        )
        if options.state < 0:
            raise BadArgument(f"Error decoding state for {query['state']}")
        return self._json(connz(self._view, options))

    def _subsz(self, query: Mapping[str, str]) -> Response:
        options = SubszOptions(
            subscriptions=arguments.boolean(query, "subs"),
            offset=arguments.integer(query, "offset"),
            limit=arguments.integer(query, "limit"),
            acc=query.get("acc", ""),
            test=query.get("test", ""),
        )
        return self._json(pages.subsz(self._view, options))

    def _accstatz(self, query: Mapping[str, str]) -> Response:
        with_unused = arguments.boolean(query, "unused")
        return self._json(pages.accstatz(self._view, with_unused))

    def _healthz(self, query: Mapping[str, str]) -> Response:
        js_enabled = arguments.boolean(query, "js-enabled")
        if js_enabled:
            self._warn("Healthcheck: js-enabled deprecated, use js-enabled-only instead")
        asked = HealthAsked(
            js_enabled_only=arguments.boolean(query, "js-enabled-only") or js_enabled,
            js_server_only=arguments.boolean(query, "js-server-only"),
            account=query.get("account", ""),
            stream=query.get("stream", ""),
            consumer=query.get("consumer", ""),
            details=arguments.boolean(query, "details"),
        )
        # One server has no meta group: all that it knows is checked without it.
        arguments.boolean(query, "js-meta-only")
        status, page = pages.healthz(self._view, asked)
        if status != 200:
            self._warn(f"Healthcheck failed: {page.get('error') or page['errors']}")
        return self._json(page, status, indent=0)

    def _metrics(self, query: Mapping[str, str]) -> Response:
        prefix = query.get("prefix", metrics.DEFAULT_PREFIX)
        if not metrics.PREFIX_PATTERN.fullmatch(prefix):
            raise BadArgument(f"prefix must be a Prometheus name, not {prefix!r}")
        _, health = pages.healthz(self._view, HealthAsked())
        connections = metrics.connection_totals(self._view.broker.clients.values())
        subscriptions = pages.subsz(self._view, SubszOptions())
        text = metrics.text(prefix, self._varz(), connections, subscriptions, health)
        return Response(text.encode(), content_type=metrics.CONTENT_TYPE)
