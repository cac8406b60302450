"""Events about streams and the API, made only when somebody listens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from server.core._account import Account
from server.core.clientinfo import client_info, client_kind
from server.jetstream.gojson import encode
from server.jetstream.gotime import shown_time, time_text

if TYPE_CHECKING:
    from server.core._client import Client
    from server.jetstream.api.request import Request
    from server.jetstream.consumer import Consumer
    from server.jetstream.engine import Engine
    from server.jetstream.stream import Stream

PREFIX: Final = "$JS.EVENT.ADVISORY"
TYPE_PREFIX: Final = "io.nats.jetstream.advisory.v1"
METRIC: Final = "$JS.EVENT.METRIC.CONSUMER.ACK"
METRIC_TYPE: Final = "io.nats.jetstream.metric.v1.consumer_ack"
ID_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
ID_LENGTH: Final = 22
Asker = dict[str, Any]
"""Who made a request, as events tell it."""

Event = tuple[Account, str, str, dict[str, Any]]
"""Account, subject, kind and what is told."""


class Advisories:
    """Sends the events of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._held: list[Event] | None = None

    def event_id(self) -> str:
        raw = self._engine.random.token_bytes(ID_LENGTH)
        return "".join(ID_DIGITS[byte % len(ID_DIGITS)] for byte in raw)

    def hold(self) -> None:
        """Keep events back until `take`: an answer leaves before what its request caused."""
        self._held = []

    def take(self) -> list[Event]:
        """What was kept back; the caller sends it."""
        held, self._held = self._held or [], None
        return held

    def release(self) -> None:
        for event in self.take():
            self.send(*event)

    def send(self, account: Account, subject: str, kind: str, body: dict[str, Any]) -> None:
        if self._held is not None:
            self._held.append((account, subject, kind, body))
            return
        if not account.has_interest(subject):
            return
        event = {
            "type": f"{TYPE_PREFIX}.{kind}",
            "id": self.event_id(),
            "timestamp": time_text(self._engine.now_ns()),
            **body,
        }
        if self._engine.domain:
            event["domain"] = self._engine.domain
        account.publish(subject, payload=encode(event))

    def stream_action(self, stream: Stream, what: str, action: str) -> None:
        subject = f"{PREFIX}.STREAM.{what}.{stream.name}"
        body = {"stream": stream.name, "action": action}
        self.send(stream.account, subject, "stream_action", body)

    def snapshot_create(self, stream: Stream, state: dict[str, Any], asker: Asker) -> None:
        body = {"stream": stream.name, "state": state, "client": asker}
        subject = f"{PREFIX}.STREAM.SNAPSHOT_CREATE.{stream.name}"
        self.send(stream.account, subject, "snapshot_create", body)

    def snapshot_complete(self, stream: Stream, started_ns: int, asker: Asker, error: str) -> None:
        body: dict[str, Any] = {
            "stream": stream.name,
            "start": time_text(started_ns),
            "end": time_text(self._engine.now_ns()),
            "client": asker,
        }
        if error:
            body["error"] = error
        subject = f"{PREFIX}.STREAM.SNAPSHOT_COMPLETE.{stream.name}"
        self.send(stream.account, subject, "snapshot_complete", body)

    def restore_create(self, account: Account, stream: str, asker: Asker) -> None:
        body = {"stream": stream, "client": asker}
        subject = f"{PREFIX}.STREAM.RESTORE_CREATE.{stream}"
        self.send(account, subject, "restore_create", body)

    def restore_complete(
        self, account: Account, stream: str, started_ns: int, size: int, asker: Asker
    ) -> None:
        body = {
            "stream": stream,
            "start": time_text(started_ns),
            "end": time_text(self._engine.now_ns()),
            "bytes": size,
            "client": asker,
        }
        subject = f"{PREFIX}.STREAM.RESTORE_COMPLETE.{stream}"
        self.send(account, subject, "restore_complete", body)

    def consumer_action(self, consumer: Consumer, what: str, action: str) -> None:
        body = {"stream": consumer.stream.name, "consumer": consumer.name, "action": action}
        self._about(consumer, what, "consumer_action", body)

    def consumer_pause(self, consumer: Consumer) -> None:
        until_ns = consumer.config.pause_until_ns
        body = {
            "stream": consumer.stream.name,
            "consumer": consumer.name,
            "paused": self._engine.now_ns() < until_ns,
            "pause_until": shown_time(until_ns),
        }
        self._about(consumer, "PAUSE", "consumer_pause", body)

    def consumer_pinned(self, consumer: Consumer, group: str, client_id: str) -> None:
        body = self._of_group(consumer, group) | {"pinned_id": client_id}
        self._about(consumer, "PINNED", "consumer_group_pinned", body)

    def consumer_unpinned(self, consumer: Consumer, group: str, reason: str) -> None:
        """`reason` is "admin" or "timeout"."""
        body = self._of_group(consumer, group) | {"reason": reason}
        self._about(consumer, "UNPINNED", "consumer_group_unpinned", body)

    def consumer_max_deliver(self, consumer: Consumer, seq: int, deliveries: int) -> None:
        body = self._of_consumer(consumer) | {"stream_seq": seq, "deliveries": deliveries}
        self._about(consumer, "MAX_DELIVERIES", "max_deliver", body)

    def consumer_terminated(
        self, consumer: Consumer, seq: int, consumer_seq: int, deliveries: int, reason: str
    ) -> None:
        body = self._of_delivery(consumer, seq, consumer_seq, deliveries)
        if reason:
            body["reason"] = reason
        self._about(consumer, "MSG_TERMINATED", "terminated", body)

    def consumer_ack(
        self, consumer: Consumer, seq: int, consumer_seq: int, deliveries: int, took_ns: int
    ) -> None:
        """How long an acknowledgement took."""
        body = self._of_delivery(consumer, seq, consumer_seq, deliveries)
        del body["deliveries"]
        body |= {"type": METRIC_TYPE, "ack_time": took_ns, "deliveries": deliveries}
        subject = f"{METRIC}.{consumer.stream.name}.{consumer.name}"
        self.send(consumer.stream.account, subject, METRIC_TYPE, body)

    def consumer_naked(
        self, consumer: Consumer, seq: int, consumer_seq: int, deliveries: int
    ) -> None:
        body = self._of_delivery(consumer, seq, consumer_seq, deliveries)
        self._about(consumer, "MSG_NAKED", "nak", body)

    def _of_consumer(self, consumer: Consumer) -> dict[str, Any]:
        return {"stream": consumer.stream.name, "consumer": consumer.name}

    def _of_delivery(
        self, consumer: Consumer, seq: int, consumer_seq: int, deliveries: int
    ) -> dict[str, Any]:
        return self._of_consumer(consumer) | {
            "consumer_seq": consumer_seq,
            "stream_seq": seq,
            "deliveries": deliveries,
        }

    def _of_group(self, consumer: Consumer, group: str) -> dict[str, Any]:
        return {
            "account": consumer.stream.account.name,
            "stream": consumer.stream.name,
            "consumer": consumer.name,
            "group": group,
        }

    def _about(self, consumer: Consumer, what: str, kind: str, body: dict[str, Any]) -> None:
        subject = f"{PREFIX}.CONSUMER.{what}.{consumer.stream.name}.{consumer.name}"
        self.send(consumer.stream.account, subject, kind, body)

    def api_audit(self, request: Request, response: bytes) -> None:
        """Tells of an answer and who asked."""
        account, about = request.account, f"{PREFIX}.API"
        if not account.has_interest(about):
            return
        body: dict[str, Any] = {
            "server": self._engine.server_name,
            "client": self.requester(request.client, account),
            "subject": request.subject,
        }
        if request.body:
            body["request"] = request.body.decode("utf-8", "replace")
        body["response"] = response.decode()
        self.send(account, about, "api_audit", body)

    def requester(self, client: Client | None, account: Account) -> dict[str, Any]:
        if client is None:
            return {"acc": account.name}
        shown = client_info(client, time_text(client.start_wall_ns))
        return shown | {"server": self._engine.server_name} | client_kind(client)

    def api_limit_reached(self, dropped: int) -> None:
        system = self._engine.broker.system_account
        body = {"server": self._engine.server_name, "dropped": dropped}
        self.send(system, f"{PREFIX}.API.LIMIT_REACHED", "api_limit_reached", body)

    def out_of_storage(self, server_id: str) -> None:
        """The disk takes nothing more: JetStream of this server has stopped."""
        system = self._engine.broker.system_account
        body = {"server": self._engine.server_name, "server_id": server_id, "cluster": ""}
        subject = f"{PREFIX}.SERVER.OUT_OF_STORAGE"
        self.send(system, subject, "server_out_of_space", body)
