"""From a request's subject to its handler, and from what the handler says to the answer.

A request with an unknown subject gets no answer, one without a reply is executed in silence.
"""

from __future__ import annotations

from typing import Final

from server.core._account import Account, PySub
from server.jetstream import errors
from server.jetstream.api import consumers, messages, streams, system
from server.jetstream.api.request import Answer, Endpoint, Request, Unanswered, needs_newer_level
from server.jetstream.apierror import ApiError
from server.jetstream.engine import Engine
from server.jetstream.gojson import encode
from server.version import JETSTREAM_API_LEVEL

PREFIX: Final = "$JS.API."
TYPE_PREFIX: Final = "io.nats.jetstream.api.v1."
NO_RESPONDERS: Final = b"NATS/1.0 503\r\nNats-Subject: %s\r\n\r\n"

# Not `$JS.API.>`: who asks a stream or consumer directly that is not there gets "no responders".
HEARD: Final = (
    "*",
    "STREAM.>",
    "META.>",
    "SERVER.>",
    "ACCOUNT.>",
    *(
        f"CONSUMER.{verb}.>"
        for verb in (
            "CREATE",
            "DURABLE",
            "NAMES",
            "LIST",
            "INFO",
            "DELETE",
            "PAUSE",
            "UNPIN",
            "LEADER",
            "RESET",
        )
    ),
)
# Handed on below a domain's prefix as they are.
PASSED_ON: Final = ("CONSUMER.MSG.NEXT.>", "DIRECT.>", "$KV.>", "$OBJ.>")

ENDPOINTS: Final = (*streams.ENDPOINTS, *messages.ENDPOINTS, *consumers.ENDPOINTS)


def by_words(endpoints: tuple[Endpoint, ...]) -> dict[tuple[str, ...], Endpoint]:
    return {endpoint.words: endpoint for endpoint in endpoints}


class Api:
    """Answers the API of every account of the server."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._endpoints = by_words(ENDPOINTS)
        self._system_endpoints = by_words(system.ENDPOINTS)
        self._subs: dict[str, list[PySub]] = {}

    def listen(self) -> None:
        """Hear the requests of all accounts there are; called again when there may be more."""
        for account in list(self._engine.broker.accounts.values()):
            if account.name not in self._subs:
                self._subs[account.name] = self._subscribe(account)

    def _subscribe(self, account: Account) -> list[PySub]:
        def hear(subject: str, reply: str, headers: bytes, body: bytes, _: str) -> None:
            self.answer(account, subject, reply, headers, body)

        subs = [account.subscribe(PREFIX + tail, hear) for tail in HEARD]
        domain = self._engine.domain
        if domain:
            subs += self._subscribe_domain(account, f"$JS.{domain}.API.")
        return subs

    def _subscribe_domain(self, account: Account, prefix: str) -> list[PySub]:
        def hear(subject: str, reply: str, headers: bytes, body: bytes, _: str) -> None:
            self.answer(account, PREFIX + subject.removeprefix(prefix), reply, headers, body)

        def pass_on(subject: str, reply: str, headers: bytes, body: bytes, _: str) -> None:
            tail = subject.removeprefix(prefix)
            target = tail if tail.startswith(("$KV.", "$OBJ.")) else PREFIX + tail
            if not account.publish(target, reply, headers, body) and reply:
                account.publish(reply, headers=NO_RESPONDERS % target.encode())

        return [account.subscribe(prefix + tail, hear) for tail in HEARD] + [
            account.subscribe(prefix + tail, pass_on) for tail in PASSED_ON
        ]

    def close(self) -> None:
        for subs in self._subs.values():
            for sub in subs:
                sub.unsubscribe()
        self._subs.clear()

    def answer(
        self, account: Account, subject: str, reply: str, headers: bytes, body: bytes
    ) -> None:
        is_system = account is self._engine.broker.system_account
        endpoint, names = self._find(subject, is_system)
        if endpoint is None:
            return
        owner = self._engine.accounts.get(account.name)
        request = Request(self._engine, account, owner, subject, names, reply, headers, body)
        self._engine.advisories.hold()
        try:
            self._respond(endpoint, request, is_system)
        except Unanswered:
            return
        finally:
            self._engine.advisories.release()

    def _respond(self, endpoint: Endpoint, request: Request, is_system: bool) -> None:
        failed, answer = self._handle(endpoint, request, is_system)
        text = encode(answer)
        account = request.account
        if request.reply:
            account.publish(request.reply, payload=text)
        if endpoint.unseen:
            return
        self._count(request, endpoint, failed)
        if failed or not endpoint.silent:
            self._engine.advisories.api_audit(account, request.subject, request.body, text)

    def _find(self, subject: str, is_system: bool) -> tuple[Endpoint | None, list[str]]:
        tokens = subject.removeprefix(PREFIX).split(".")
        for table in (self._system_endpoints, self._endpoints):
            for size in range(min(len(tokens), 3), 0, -1):
                endpoint = table.get(tuple(tokens[:size]))
                rest = tokens[size:]
                if endpoint is not None and fits(endpoint, rest):
                    for_others = table is self._system_endpoints and not is_system
                    return (None if for_others else endpoint), rest
        return None, []

    def _handle(self, endpoint: Endpoint, request: Request, is_system: bool) -> tuple[bool, Answer]:
        """Whether it failed, and the answer."""
        kind = {"type": TYPE_PREFIX + endpoint.kind}
        known = endpoint.words in self._endpoints
        if is_system and known and endpoint.words != ("INFO",):
            refusal = errors.NOT_ENABLED_FOR_ACCOUNT().shown()
            return True, {"type": TYPE_PREFIX + "system_response", "error": refusal}
        try:
            if not endpoint.clustered:
                check_level(request)
                if known and request.owner is None and not endpoint.body_first:
                    raise errors.NOT_ENABLED_FOR_ACCOUNT()
            return False, kind | endpoint.handler(request)
        except ApiError as error:
            return True, {**kind, "error": error.shown(), **endpoint.on_error}

    def _count(self, request: Request, endpoint: Endpoint, failed: bool) -> None:
        if request.owner is None or (endpoint.silent and not failed):
            return
        for counts in (self._engine.api, request.owner.api):
            counts.total += 1
            counts.errors += failed


def fits(endpoint: Endpoint, names: list[str]) -> bool:
    if "" in names:
        return False
    if endpoint.more_names:
        return len(names) >= endpoint.names
    return len(names) == endpoint.names


def check_level(request: Request) -> None:
    if needs_newer_level(request.headers, JETSTREAM_API_LEVEL):
        raise errors.REQUIRED_API_LEVEL()
