"""A live server: a publisher, deletes, purges and compaction, and a streaming query beside them."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import StreamConfig

from pyspark_jetstream import export
from pyspark_jetstream.directory import Directory
from tests.analytics.stores import parsed
from tests.analytics.test_export import exported, silent
from tests.e2e.server import WAIT_S, ServerProcess, wait_for

PUBLISHED = 12_000
DELETED_EVERY = 7
PURGED_SUBJECT = "soak.junk"
KEPT_SUBJECTS = 5
BATCH = 200


class Publisher:
    """Publishes, deletes single messages and purges one subject, until all is published."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.deleted: set[int] = set()
        self.purged: set[int] = set()
        self.sent: dict[int, bytes] = {}
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:
            self.failed = error

    async def _run(self) -> None:
        client = await nats.connect(self._url, connect_timeout=WAIT_S)
        stream = client.jetstream(timeout=WAIT_S)
        await stream.add_stream(StreamConfig(name="SOAK", subjects=["soak.>"]))
        rng, junk = random.Random(1), set()
        for first in range(0, PUBLISHED, BATCH):
            wanted = [
                (PURGED_SUBJECT if at % 3 else f"soak.{at % KEPT_SUBJECTS}", b"%d" % at * 40)
                for at in range(first, first + BATCH)
            ]
            acks = await asyncio.gather(*(stream.publish(*one, timeout=WAIT_S) for one in wanted))
            for ack, (subject, payload) in zip(acks, wanted, strict=True):
                self.sent[ack.seq] = payload
                if subject == PURGED_SUBJECT:
                    junk.add(ack.seq)
            fresh = [ack.seq for ack in acks if ack.seq not in junk]
            for seq in rng.sample(fresh, len(fresh) // DELETED_EVERY):
                await stream.delete_msg("SOAK", seq)
                self.deleted.add(seq)
            if first % (BATCH * 10) == 0:
                await stream.purge_stream("SOAK", subject=PURGED_SUBJECT)
                self.purged |= junk
        await client.close()

    def check(self, rows: list[tuple[int, bytes]]) -> None:
        """Each row once; all that were never removed; none that was never sent."""
        times = Counter(seq for seq, _ in rows)
        assert max(times.values()) == 1, [seq for seq, count in times.items() if count > 1][:10]
        assert all(self.sent[seq] == payload for seq, payload in rows)
        missing = set(self.sent) - self.deleted - self.purged - set(times)
        assert not missing, sorted(missing)[:10]


@pytest.fixture
def server(tmp_path: Path) -> Any:
    with ServerProcess(tmp_path, "-js", "-sd", str(tmp_path / "store")) as process:
        yield process


def compacted(store: Path) -> bool:
    """Whether the server has rewritten a block."""
    (view,) = Directory(str(store)).views()
    return any(block.generation for block in view.blocks)


def beside(publisher: Publisher) -> threading.Thread:
    thread = threading.Thread(target=publisher.run)
    thread.start()
    return thread


def test_exports_beside_a_live_server(server: ServerProcess, tmp_path: Path) -> None:
    publisher, root = Publisher(server.url), str(tmp_path / "tables")
    thread = beside(publisher)
    wait_for(lambda: publisher.sent or publisher.failed, "the first messages", 120)
    rounds = 0
    while thread.is_alive():
        export.to_parquet(parsed(tmp_path / "store"), root, silent)
        rounds += 1
    thread.join()
    if publisher.failed is not None:
        raise publisher.failed

    def complete() -> bool:
        export.to_parquet(parsed(tmp_path / "store"), root, silent)
        last = max(set(publisher.sent) - publisher.deleted - publisher.purged)
        return exported(Path(root))[-1][1] >= last

    wait_for(complete, "the last message in the tables", 120)
    assert rounds > 1, "nothing was exported while messages came and went"
    wait_for(lambda: compacted(tmp_path / "store"), "a compaction", 120)
    publisher.check([(seq, payload) for _, seq, payload in exported(Path(root))])


def test_a_streaming_query_beside_a_live_server(
    server: ServerProcess, tmp_path: Path, spark: Any
) -> None:
    publisher = Publisher(server.url)
    thread = beside(publisher)
    wait_for(lambda: publisher.sent or publisher.failed, "the first messages", 120)
    rows: list[tuple[int, bytes]] = []

    def take(frame: Any, _: int) -> None:
        rows.extend((row.seq, bytes(row.payload)) for row in frame.collect())

    query = (
        spark.readStream.format("jetstream")
        .options(startingOffsets="earliest", columns="seq,payload", maxOffsetsPerTrigger="3000")
        .load(str(tmp_path / "store"))
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        thread.join()
        if publisher.failed is not None:
            raise publisher.failed
        last = max(set(publisher.sent) - publisher.deleted - publisher.purged)
        wait_for(lambda: query.exception() or (rows and rows[-1][0] >= last), "the last row", 120)
        assert query.exception() is None
    finally:
        query.stop()
    publisher.check(rows)
