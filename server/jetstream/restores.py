"""Restores: a stream made again from an archive that comes in chunks.

The messages go into a store that nobody sees and that the next start throws away. Only when the
archive was whole and all of it is durable does the stream appear, with its consumers: a bad
archive, a stall or a crash leaves nothing behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from config.limits import SECOND_NS
from server.jetstream import consumers, errors, gojson
from server.jetstream.api.answers import stream_info
from server.jetstream.apierror import ApiError
from server.jetstream.config import StreamConfig
from server.jetstream.restoring import ArchivedState, Contents, Making, RestoreError

if TYPE_CHECKING:
    from server.jetstream.advisory import Asker
    from server.jetstream.engine import Engine, JetStreamAccount

RESTORES_MAX: Final = 16
STALL_NS: Final = 5 * SECOND_NS
ANSWER_TYPE: Final = "io.nats.jetstream.api.v1.stream_create_response"


class Restore:
    """One that is being received."""

    def __init__(
        self,
        restores: Restores,
        owner: JetStreamAccount,
        config: StreamConfig,
        told: ArchivedState,
        asker: Asker,
    ) -> None:
        engine = restores.engine
        self.restores = restores
        self.owner = owner
        self.config = config
        self.asker = asker
        self.making = Making(engine, owner, config)
        self.contents = Contents(self.making, told)
        self.armed_ns: int | None = None
        self.failure: Exception | None = None
        self.started_ns = self._heard_ns = engine.now_ns()
        self.bytes = 0
        token = engine.advisories.event_id()
        self.subject = f"$JS.SNAPSHOT.RESTORE.{config.name}.{token}"
        self._sub = owner.account.subscribe(self.subject, self.on_chunk)
        engine.timers.arm(self, self._heard_ns + STALL_NS)

    @property
    def where(self) -> str:
        return f"{self.owner.name} > {self.config.name}"

    def on_chunk(self, subject: str, reply: str, block: bytes, body: bytes, _: str) -> None:
        engine = self.restores.engine
        self._heard_ns = engine.now_ns()
        if not reply:
            self.fail(f"restore for stream '{self.where}' requires reply subject for each chunk")
            return
        if not body:
            self.finish(reply)
            return
        self.bytes += len(body)
        if self.failure is None:
            try:
                self.contents.feed(body)
            except (RestoreError, ApiError) as error:
                # Told at the end, as the reference does: until then the sender goes on.
                self.failure = error
                self.making.drop()
        self.owner.account.publish(reply)

    def finish(self, reply: str) -> None:
        """The sender has sent all."""
        self.close()
        engine = self.restores.engine
        try:
            if self.failure is not None:
                raise self.failure
            if not self.contents.is_whole:
                raise RestoreError("the archive is truncated")
            answer = self.shown()
        except (RestoreError, ApiError) as error:
            self.making.drop()
            engine.warn(f"Restore failed for stream '{self.where}': {error}")
            refusal = error if isinstance(error, ApiError) else None
            refusal = refusal or errors.STREAM_RESTORE(err=str(error))
            answer = {"type": ANSWER_TYPE, "error": refusal.shown()}
        engine.advisories.restore_complete(
            self.owner.account, self.config.name, self.started_ns, self.bytes, self.asker
        )
        self.owner.account.publish(reply, payload=gojson.encode(answer))

    def shown(self) -> dict[str, Any]:
        """The stream appears: what is told of it."""
        engine, making = self.restores.engine, self.making
        store, making.store = making.filled, None
        try:
            stream = engine.adopt(self.owner, self.config, store, making.created_ns)
        except (ApiError, OSError) as error:
            making.store = store
            raise RestoreError(str(error)) from error
        for found in making.consumers:
            consumer = consumers.add(engine, stream, found.config, found.name)
            consumer.reset(found.resume_seq)
        return {"type": ANSWER_TYPE} | stream_info(stream, with_domain=False)

    def tick(self, now_ns: int) -> None:
        due_ns = self._heard_ns + STALL_NS
        if now_ns >= due_ns:
            self.fail(f"restore for stream '{self.where}' is stalled")
        else:
            self.restores.engine.timers.arm(self, due_ns)

    def fail(self, why: str) -> None:
        """Nobody is there to be told."""
        self.restores.engine.warn(why)
        self.close()
        self.making.drop()

    def close(self) -> None:
        self.armed_ns = None
        self._sub.unsubscribe()
        self.restores.running.discard(self)


class Restores:
    """Those of one server that are on their way."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.running: set[Restore] = set()

    @property
    def is_full(self) -> bool:
        return len(self.running) >= RESTORES_MAX

    def start(
        self, owner: JetStreamAccount, config: StreamConfig, told: ArchivedState, asker: Asker
    ) -> Restore:
        restore = Restore(self, owner, config, told, asker)
        self.running.add(restore)
        return restore

    def end_of(self, owner: JetStreamAccount) -> None:
        """The account has no JetStream any more: what it sends further is nobody's."""
        for restore in [each for each in self.running if each.owner is owner]:
            restore.fail(f"restore for stream '{restore.where}': its account has no JetStream now")

    def close(self) -> None:
        for restore in list(self.running):
            restore.close()
            restore.making.drop()
