"""All feeds of a server: which stream copies from which, and whose turn it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.jetstream import errors
from server.jetstream.apierror import ApiError
from server.jetstream.feed import Feed
from server.jetstream.mirrors import MirrorFeed
from server.jetstream.origins import index_name
from server.jetstream.positions import Positions
from server.jetstream.sources import SourceFeed

if TYPE_CHECKING:
    from server.jetstream.engine import Engine
    from server.jetstream.stream import Stream

FEED_PHASE: Final = 3
"""Before the disk: what is copied in a turn is part of the turn's commit."""

OriginKey = tuple[str, str]


class Inflow:
    """The feeds of one stream, by index name, and where its sources are."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.mirror: MirrorFeed | None = None
        self.sources: dict[str, SourceFeed] = {}
        self.positions: Positions | None = None

    def feeds(self) -> list[Feed]:
        return [*([self.mirror] if self.mirror is not None else ()), *self.sources.values()]

    def on_durable(self, first: int, last: int) -> None:
        if self.positions is not None:
            self.positions.on_target_durable(last)
        for feed in self.feeds():
            feed.on_target_durable(last)


class Feeds:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._phase = engine.broker.turn.phase(FEED_PHASE, self.run)
        self._dirty: dict[Feed, None] = {}
        self._by_origin: dict[OriginKey, dict[Feed, None]] = {}

    # Streams

    def follow(self, stream: Stream) -> None:
        """A stream was made or found, or its configuration changed: what it copies."""
        config, inflow = stream.config, stream.inflow
        if inflow is None:
            if config.mirror is None and not config.sources:
                return
            if stream.ingest is None:
                return
            inflow = stream.inflow = Inflow(stream)
            stream.interest.append(inflow.on_durable)
        if config.mirror is None and inflow.mirror is not None:
            self._drop(inflow.mirror)
            inflow.mirror = None
        elif config.mirror is not None and inflow.mirror is None:
            inflow.mirror = MirrorFeed(self, stream, config.mirror)
            self._add(inflow.mirror)
        self._follow_sources(stream, inflow)

    def _follow_sources(self, stream: Stream, inflow: Inflow) -> None:
        wanted = {index_name(source): source for source in stream.config.sources}
        for index in [index for index in inflow.sources if index not in wanted]:
            self._drop(inflow.sources.pop(index))
        if wanted and inflow.positions is None:
            inflow.positions = Positions(stream)
        for index, source in wanted.items():
            if index not in inflow.sources:
                assert inflow.positions is not None
                feed = SourceFeed(self, stream, source, inflow.positions)
                inflow.sources[index] = feed
                self._add(feed)

    def leave(self, stream: Stream) -> None:
        """The stream closes: nothing flows into it or out of it any more."""
        inflow, stream.inflow = stream.inflow, None
        if inflow is not None:
            stream.interest.remove(inflow.on_durable)
            for feed in inflow.feeds():
                self._drop(feed)
            if inflow.positions is not None:
                inflow.positions.close()
        for feed in self._of_origin(stream):
            if feed.origin is stream:
                feed.detach(errors.STREAM_NOT_FOUND())

    def appeared(self, stream: Stream) -> None:
        """A stream is there that was not: whoever waits for it goes on."""
        for feed in self._of_origin(stream):
            if feed.origin is None:
                self.mark(feed)

    def removed(self, stream: Stream) -> None:
        """Messages of a stream are being removed: its sources' positions may be in them."""
        if stream.inflow is not None and stream.inflow.positions is not None:
            stream.inflow.positions.save()

    def _of_origin(self, stream: Stream) -> list[Feed]:
        return list(self._by_origin.get((stream.account.name, stream.name), ()))

    # Feeds

    def _add(self, feed: Feed) -> None:
        self._by_origin.setdefault(key_of(feed), {})[feed] = None
        self.mark(feed)

    def _drop(self, feed: Feed) -> None:
        feed.close()
        self._dirty.pop(feed, None)
        others = self._by_origin[key_of(feed)]
        del others[feed]
        if not others:
            del self._by_origin[key_of(feed)]

    def mark(self, feed: Feed) -> None:
        self._dirty[feed] = None
        self._phase.mark()

    def run(self) -> None:
        dirty, self._dirty = self._dirty, {}
        for feed in dirty:
            feed.run()

    def find(self, feed: Feed) -> Stream:
        """The stream that a feed reads; ApiError when it is not here."""
        source, account = feed.source, feed.target.account
        external = source.external
        if external is not None and external.api and not self._is_own_prefix(external.api):
            raise errors.STREAM_NOT_FOUND()
        found = self.engine.accounts[account.name].streams.get(source.name)
        if found is None:
            raise errors.STREAM_NOT_FOUND()
        return found

    def _is_own_prefix(self, prefix: str) -> bool:
        return prefix == f"$JS.{self.engine.domain}.API"

    # What is worth a line in the log

    def warn_of(self, feed: Feed, error: ApiError) -> None:
        target, origin = feed.target, feed.source.name
        self.engine.warn(
            f"Stream '{target.account.name} > {target.name}' cannot take a message of "
            f"'{origin}': {error.description}"
        )

    def warn_of_recreated(self, feed: Feed) -> None:
        target, origin = feed.target, feed.source.name
        self.engine.warn(
            f"Source stream '{origin}' of '{target.account.name} > {target.name}' was made again: "
            "it is copied from its beginning"
        )


def key_of(feed: Feed) -> OriginKey:
    return feed.target.account.name, feed.source.name
