"""What a client of the running server reads is what the data source reads from its disk."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import nats
from nats.js.api import ConsumerConfig, StreamConfig
from nats.js.client import JetStreamContext

from pyspark_jetstream import reading
from tests.analytics.stores import parsed
from tests.e2e.server import ServerProcess, wait_for

PUBLISHED = 400
COLUMNS = "stream,subject,seq,ts_ns,payload,headers,msg_id"

Message = tuple[str, str, int, int, bytes, dict[str, str]]
"""Stream, subject, sequence, nanoseconds, payload, headers."""


async def publish(stream: JetStreamContext) -> None:
    """Of all kinds: with headers and without, empty, large, deleted, purged, replaced."""
    await stream.add_stream(StreamConfig(name="ORDERS", subjects=["orders.>"]))
    await stream.add_stream(StreamConfig(name="LAST", subjects=["last.*"], max_msgs_per_subject=1))
    for number in range(PUBLISHED):
        headers = {"Nats-Msg-Id": f"m{number}", "Region": "eu"} if number % 3 == 0 else None
        payload = b"x" * (100_000 if number % 97 == 0 else number % 5)
        await stream.publish(f"orders.{number % 7}.new", payload, headers=headers)
        await stream.publish(f"last.{number % 40}", b"%d" % number)
    for seq in (5, 6, 200, PUBLISHED):
        await stream.delete_msg("ORDERS", seq)
    await stream.purge_stream("ORDERS", subject="orders.3.new")
    await stream.purge_stream("ORDERS", seq=11)


async def by_client(stream: JetStreamContext, name: str) -> list[Message]:
    """By an ordered consumer, up to what the server says there is."""
    count = (await stream.stream_info(name)).state.messages
    subscription = await stream.subscribe(
        ">", stream=name, ordered_consumer=True, config=ConsumerConfig()
    )
    found = []
    for _ in range(count):
        message = await subscription.next_msg(timeout=60)
        ts_ns = int(message.reply.split(".")[-2])  # its metadata rounds
        found.append(
            (
                name,
                message.subject,
                message.metadata.sequence.stream,
                ts_ns,
                message.data,
                dict(message.headers or {}),
            )
        )
    return found


def from_disk(rows: list[dict[str, Any]]) -> list[Message]:
    found = [
        (
            row["stream"],
            row["subject"],
            row["seq"],
            row["ts_ns"],
            bytes(row["payload"]),
            {name: values[0] for name, values in (row["headers"] or {}).items()},
        )
        for row in rows
    ]
    assert all(row["msg_id"] == dict(row["headers"] or {}).get("Nats-Msg-Id", [None])[0]
               for row in rows)  # fmt: skip
    return sorted(found, key=lambda message: (message[0], message[2]))


def rows_on_disk(store: Path) -> list[dict[str, Any]]:
    rows = reading.read_table(parsed(store, columns=COLUMNS, includeHeaders="true"))
    return [{**row, "headers": dict(row["headers"] or [])} for row in rows.to_pylist()]


def test_a_client_and_the_source_read_the_same(spark: Any, tmp_path: Path) -> None:
    async def talk(url: str) -> list[Message]:
        client = await nats.connect(url)
        stream = client.jetstream()
        await publish(stream)
        found = await by_client(stream, "LAST") + await by_client(stream, "ORDERS")
        await client.close()
        return found

    store = tmp_path / "store"
    with ServerProcess(tmp_path, "-js", "-sd", str(store)) as server:
        wanted = asyncio.run(talk(server.url))
        # What is durable in the log comes to its block within a tenth of a second.
        wait_for(lambda: len(rows_on_disk(store)) == len(wanted), "all rows in blocks")
        assert from_disk(rows_on_disk(store)) == wanted
        frame = spark.read.format("jetstream").option("columns", COLUMNS).load(str(store))
        assert from_disk([row.asDict() for row in frame.collect()]) == wanted
    assert 300 < len(wanted) < PUBLISHED + 40
