"""From a request's subject to its handler, and from what the handler says to the answer.

A request with an unknown subject gets no answer, one without a reply is executed in silence. An
answer leaves when what it tells of is on stable storage; the loop does not wait for that.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import partial
from traceback import format_exc
from typing import TYPE_CHECKING, Final

from server.core._account import Account, PySub
from server.jetstream import errors
from server.jetstream.advisory import Event
from server.jetstream.api import backups, consumers, messages, streams, system
from server.jetstream.api.queue import RequestQueue
from server.jetstream.api.request import Answer, Endpoint, Request, Unanswered
from server.jetstream.apierror import ApiError, ErrorKind
from server.jetstream.apilevel import needs_newer_level
from server.jetstream.engine import Engine
from server.jetstream.gojson import encode

if TYPE_CHECKING:
    from server.core._client import Client
    from server.core.msgtrace import MessageTrace

PREFIX: Final = "$JS.API."
TYPE_PREFIX: Final = "io.nats.jetstream.api.v1."
NOT_KEPT: Final[dict[tuple[str, ...], ErrorKind]] = {
    ("STREAM", "CREATE"): errors.STREAM_CREATE,
    ("STREAM", "UPDATE"): errors.STREAM_UPDATE,
    ("STREAM", "DELETE"): errors.STREAM_DELETE,
}
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

ENDPOINTS: Final = (
    *streams.ENDPOINTS,
    *messages.ENDPOINTS,
    *backups.ENDPOINTS,
    *consumers.ENDPOINTS,
)


def by_words(endpoints: tuple[Endpoint, ...]) -> dict[tuple[str, ...], Endpoint]:
    return {endpoint.words: endpoint for endpoint in endpoints}


@dataclass(slots=True)
class Answered:
    """An answer on its way, and the events that its request caused."""

    endpoint: Endpoint
    request: Request
    failed: bool
    answer: Answer
    events: list[Event]
    changes: bool = False  # what outlives the process

    def refuse(self, error: ApiError) -> None:
        self.failed, self.answer, self.events = True, refused(self.endpoint, error), []


def refused(endpoint: Endpoint, error: ApiError) -> Answer:
    return {"type": TYPE_PREFIX + endpoint.kind, "error": error.shown(), **endpoint.on_error}


class Api:
    """Answers the API of every account of the server."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._endpoints = by_words(ENDPOINTS)
        self._system_endpoints = by_words(system.ENDPOINTS)
        self._subs: dict[str, list[PySub]] = {}
        self._queue = RequestQueue(engine.broker.turn, engine.clock, self._send)
        self._answers: list[Answered] = []

    def listen(self) -> None:
        """Hear the requests of all accounts there are; called again when there may be more."""
        for account in list(self._engine.broker.accounts.values()):
            if account.name not in self._subs:
                self._subs[account.name] = self._subscribe(account)

    def forget(self, name: str) -> None:
        """An account that is no more; one of that name later is another one."""
        for sub in self._subs.pop(name, ()):
            sub.unsubscribe()

    def _subscribe(self, account: Account) -> list[PySub]:
        subs = self._hear(account, PREFIX)
        domain = self._engine.domain
        if domain:
            subs += self._subscribe_domain(account, f"$JS.{domain}.API.")
        return subs

    def _hear(self, account: Account, prefix: str) -> list[PySub]:
        def hear(subject: str, reply: str, block: bytes, body: bytes, who: Client | None) -> None:
            self.enqueue(account, subject.removeprefix(prefix), reply, block, body, who)

        def note(trace: MessageTrace, subject: str) -> None:
            """Requests are a service of the system account."""
            plain = PREFIX + subject.removeprefix(prefix)
            if plain != subject:
                trace.mapped(plain)
            trace.imported(owner.name, plain, plain)

        owner = self._engine.broker.system_account
        subs = [account.serve(prefix + tail, hear) for tail in HEARD]
        for sub in subs:
            sub.on_traced = note if account is not owner else None
        return subs

    def _subscribe_domain(self, account: Account, prefix: str) -> list[PySub]:
        def pass_on(subject: str, reply: str, headers: bytes, body: bytes, _: str) -> None:
            tail = subject.removeprefix(prefix)
            target = tail if tail.startswith(("$KV.", "$OBJ.")) else PREFIX + tail
            if not account.publish(target, reply, headers, body) and reply:
                account.publish(reply, headers=NO_RESPONDERS % target.encode())

        return self._hear(account, prefix) + [
            account.subscribe(prefix + tail, pass_on) for tail in PASSED_ON
        ]

    def close(self) -> None:
        for subs in self._subs.values():
            for sub in subs:
                sub.unsubscribe()
        self._subs.clear()
        self._queue.close()

    def enqueue(
        self,
        account: Account,
        tail: str,
        reply: str,
        headers: bytes,
        body: bytes,
        client: Client | None = None,
    ) -> None:
        """Answer at the end of this turn, or soon after; `tail` is the subject without prefix."""
        engine = self._engine
        is_system = account is engine.broker.system_account
        endpoint, names = self._find(tail, is_system)
        if endpoint is None:
            return
        request = Request(
            engine,
            account,
            engine.accounts.get(account.name),
            PREFIX + tail,
            names,
            reply,
            headers,
            body,
            client,
        )
        options = engine.options
        entries_max = options.info_queue_limit if endpoint.info else options.request_queue_limit
        work = self._work(endpoint, request, is_system)
        dropped = self._queue.push(work, endpoint.info, entries_max)
        engine.api.inflight = len(self._queue)
        if dropped:
            kind = "info" if endpoint.info else "API"
            engine.warn(
                f"JetStream {kind} request queue limit reached, dropping {dropped} requests"
            )
            engine.advisories.api_limit_reached(dropped)

    def _work(self, endpoint: Endpoint, request: Request, is_system: bool) -> Iterator[None]:
        engine = self._engine
        changes = engine.stores.changes
        engine.advisories.hold()
        try:
            failed, answer = yield from self._handle(endpoint, request, is_system)
        except Unanswered:
            engine.advisories.release()
            return
        answered = Answered(endpoint, request, failed, answer, engine.advisories.take())
        answered.changes = engine.stores.changes > changes
        self._answers.append(answered)

    def _send(self) -> None:
        """What was answered in this slice leaves, when all that it tells of lasts."""
        engine = self._engine
        engine.api.inflight = len(self._queue)
        answers, self._answers = self._answers, []
        book = engine.stores.book
        if book is not None and book.is_dirty:
            book.when_durable(lambda: self._respond_all(answers))
        else:
            self._respond_all(answers)

    def _respond_all(self, answers: list[Answered]) -> None:
        for answered in answers:
            takes_away = answered.endpoint.lasting and not answered.failed
            if takes_away or self._engine.stores.unsettled:
                self._engine.when_settled(partial(self._respond_settled, answered, takes_away))
            else:
                self._respond(answered)

    def _respond_settled(self, answered: Answered, takes_away: bool, why_not: str | None) -> None:
        if why_not is not None and answered.changes:
            self._engine.warn(f"{answered.request.subject} could not be kept: {why_not}")
            kind = NOT_KEPT.get(answered.endpoint.words, errors.STREAM_STORE_FAILED)
            answered.refuse(kind(err=why_not))
        elif why_not is not None and takes_away:
            answered.refuse(errors.STREAM_STORE_FAILED(err=why_not))
        self._respond(answered)

    def _respond(self, answered: Answered) -> None:
        endpoint, request, failed = answered.endpoint, answered.request, answered.failed
        text = encode(answered.answer)
        if request.reply:
            request.account.publish(request.reply, payload=text)
        advisories = self._engine.advisories
        if not endpoint.unseen:
            self._count(request, endpoint, failed)
            if failed or not endpoint.silent:
                advisories.api_audit(request, text)
        for event in answered.events:
            advisories.send(*event)

    def _find(self, tail: str, is_system: bool) -> tuple[Endpoint | None, list[str]]:
        tokens = tail.split(".")
        for table in (self._system_endpoints, self._endpoints):
            for size in range(min(len(tokens), 3), 0, -1):
                endpoint = table.get(tuple(tokens[:size]))
                rest = tokens[size:]
                if endpoint is not None and fits(endpoint, rest):
                    for_others = table is self._system_endpoints and not is_system
                    return (None if for_others else endpoint), rest
        return None, []

    def _handle(
        self, endpoint: Endpoint, request: Request, is_system: bool
    ) -> Generator[None, None, tuple[bool, Answer]]:
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
            answer = endpoint.handler(request)
            if not isinstance(answer, dict):
                # A long answer only tells: what happens while it is made is no consequence of it.
                request.engine.advisories.release()
                answer = yield from answer
            return False, kind | answer
        except ApiError as error:
            return True, refused(endpoint, error)
        except Unanswered:
            raise
        except Exception as error:
            # A fault of ours: who asked is told so, and the others are answered.
            engine = self._engine
            engine.warn(
                f"Request on {request.subject!r} failed: {error!r}\n{format_exc()}".rstrip()
            )
            return True, refused(endpoint, errors.STREAM_GENERAL_ERROR(err="internal error"))

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
    if needs_newer_level(request.headers):
        raise errors.REQUIRED_API_LEVEL()
