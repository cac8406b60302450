"""All copiers of a server: which stream copies from which, and whose turn it is."""

from __future__ import annotations

from traceback import format_exc
from typing import TYPE_CHECKING, Final

from server.jetstream import errors
from server.jetstream.apierror import ApiError
from server.jetstream.copier import Copier
from server.jetstream.mirrors import MirrorCopier
from server.jetstream.origins import index_name
from server.jetstream.positions import Positions
from server.jetstream.sources import SourceCopier

if TYPE_CHECKING:
    from server.jetstream.engine import Engine
    from server.jetstream.stream import Stream

COPY_PHASE: Final = 3
"""Before the disk: what is copied in a turn is part of the turn's commit."""

OriginKey = tuple[str, str]


class Inflow:
    """The copiers of one stream, by index name, and where its sources are."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.mirror: MirrorCopier | None = None
        self.sources: dict[str, SourceCopier] = {}
        self.positions: Positions | None = None

    def copiers(self) -> list[Copier]:
        return [*([self.mirror] if self.mirror is not None else ()), *self.sources.values()]

    def on_durable(self, first: int, last: int) -> None:
        if self.positions is not None:
            self.positions.on_target_durable(last)
        for copier in self.copiers():
            copier.on_target_durable(last)


class Copiers:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._phase = engine.broker.turn.phase(COPY_PHASE, self.run)
        self._dirty: dict[Copier, None] = {}
        self._by_origin: dict[OriginKey, dict[Copier, None]] = {}

    # Streams

    def follow(self, stream: Stream) -> None:
        """A stream was made or found, or its configuration changed: what it copies."""
        config, inflow = stream.config, stream.inflow
        for copier in self._of_origin(stream):
            self.mark(copier)
        if inflow is None:
            if config.mirror is None and not config.sources:
                return
            if stream.ingest is None:
                return
            inflow = stream.inflow = Inflow(stream)
            stream.interest.append(inflow.on_durable)
        if config.mirror is None and inflow.mirror is not None:
            self._drop(inflow.mirror, for_good=True)
            inflow.mirror = None
        elif config.mirror is not None and inflow.mirror is None:
            inflow.mirror = MirrorCopier(self, stream, config.mirror)
            self._add(inflow.mirror)
        self._follow_sources(stream, inflow)

    def _follow_sources(self, stream: Stream, inflow: Inflow) -> None:
        wanted = {index_name(source): source for source in stream.config.sources}
        for index in [index for index in inflow.sources if index not in wanted]:
            self._drop(inflow.sources.pop(index), for_good=True)
        for copier in inflow.sources.values():
            copier.rename()
        if wanted and inflow.positions is None:
            inflow.positions = Positions(stream)
        for index, source in wanted.items():
            if index not in inflow.sources:
                assert inflow.positions is not None
                copier = SourceCopier(self, stream, source, inflow.positions)
                inflow.sources[index] = copier
                self._add(copier)

    def leave(self, stream: Stream) -> None:
        """The stream closes: nothing flows into it or out of it any more."""
        inflow, stream.inflow = stream.inflow, None
        if inflow is not None:
            stream.interest.remove(inflow.on_durable)
            for copier in inflow.copiers():
                self._drop(copier)
            if inflow.positions is not None:
                inflow.positions.close()
        for copier in self._of_origin(stream):
            if copier.origin is stream:
                copier.detach(errors.STREAM_NOT_FOUND())

    def deleted(self, stream: Stream) -> None:
        """Before a stream is deleted: what it copied is not held for it any more."""
        for copier in stream.inflow.copiers() if stream.inflow is not None else ():
            copier.forget()

    def appeared(self, stream: Stream) -> None:
        """A stream is there that was not: whoever waits for it goes on."""
        for copier in self._of_origin(stream):
            if copier.origin is None:
                self.mark(copier)

    def removed(self, stream: Stream) -> None:
        """Messages of a stream are being removed: its sources' positions may be in them."""
        if stream.inflow is not None and stream.inflow.positions is not None:
            stream.inflow.positions.save()

    def _of_origin(self, stream: Stream) -> list[Copier]:
        return list(self._by_origin.get((stream.account.name, stream.name), ()))

    # Copiers

    def _add(self, copier: Copier) -> None:
        self._by_origin.setdefault(key_of(copier), {})[copier] = None
        self.mark(copier)

    def _drop(self, copier: Copier, *, for_good: bool = False) -> None:
        copier.close()
        if for_good:
            copier.forget()
        self._dirty.pop(copier, None)
        others = self._by_origin[key_of(copier)]
        del others[copier]
        if not others:
            del self._by_origin[key_of(copier)]

    def mark(self, copier: Copier) -> None:
        self._dirty[copier] = None
        self._phase.mark()

    def run(self) -> None:
        dirty, self._dirty = self._dirty, {}
        for copier in dirty:
            try:
                copier.run()
            except Exception as error:
                self._failed(copier, error)
            else:
                if not copier.blocked:
                    copier.fault = ""

    def _failed(self, copier: Copier, error: Exception) -> None:
        """A fault of ours: it is tried again later, and keeps nobody else from copying."""
        target, origin = copier.target, copier.source.name
        if copier.fault != repr(error):
            copier.fault = repr(error)
            self.engine.warn(
                f"Stream '{target.account.name} > {target.name}' cannot copy from '{origin}': "
                f"{error!r}\n{format_exc()}".rstrip()
            )
        copier.error = errors.STREAM_GENERAL_ERROR(err="internal error")
        copier.block(copier.error)

    def origin_of(self, copier: Copier) -> Stream | None:
        """The stream that a copier reads, if it is here."""
        source, account = copier.source, copier.target.account
        external = source.external
        if external is not None and external.api and not self._is_own_prefix(external.api):
            return None
        owner = self.engine.accounts.get(account.name)
        return owner.streams.get(source.name) if owner is not None else None

    def find(self, copier: Copier) -> Stream:
        """The same; ApiError when it is not here."""
        found = self.origin_of(copier)
        if found is None:
            raise errors.STREAM_NOT_FOUND()
        return found

    def _is_own_prefix(self, prefix: str) -> bool:
        return prefix == f"$JS.{self.engine.domain}.API"

    def close(self) -> None:
        """All streams are closed."""
        self.engine.broker.turn.forget(self._phase)

    # What is worth a line in the log

    def warn_of(self, copier: Copier, error: ApiError) -> None:
        target, origin = copier.target, copier.source.name
        self.engine.warn(
            f"Stream '{target.account.name} > {target.name}' cannot take a message of "
            f"'{origin}': {error.description}"
        )

    def warn_of_recreated(self, copier: Copier) -> None:
        target, origin = copier.target, copier.source.name
        self.engine.warn(
            f"Source stream '{origin}' of '{target.account.name} > {target.name}' was made again: "
            "it is copied from its beginning"
        )


def key_of(copier: Copier) -> OriginKey:
    return copier.target.account.name, copier.source.name
