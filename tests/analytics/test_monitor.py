"""Consumers' lag as a running server tells it, in the tables and in the report."""

from __future__ import annotations

import asyncio
from pathlib import Path

import nats
from nats.js.api import ConsumerConfig, StreamConfig

from pyspark_jetstream import cli, job, reports, show
from tests.analytics.test_export import exported
from tests.e2e.server import ServerProcess, wait_for

PUBLISHED, FETCHED, ACKED = 30, 10, 4


async def consume(url: str) -> None:
    client = await nats.connect(url)
    stream = client.jetstream()
    await stream.add_stream(StreamConfig(name="ORDERS", subjects=["orders.>"]))
    for name in ("billing", "idle"):
        await stream.add_consumer("ORDERS", ConsumerConfig(durable_name=name))
    for number in range(PUBLISHED):
        await stream.publish(f"orders.{number % 3}", b"order")
    billing = await stream.pull_subscribe("orders.>", durable="billing", stream="ORDERS")
    for message in (await billing.fetch(FETCHED, timeout=20))[:ACKED]:
        await message.ack_sync(timeout=20)
    await client.close()


def added(words: list[str], root: Path) -> bool:
    assert cli.main([*words, "--out", str(root)]) == 0
    return (root / "messages").exists() and len(exported(root)) == PUBLISHED


def test_consumers_of_a_running_server(tmp_path: Path) -> None:
    store, root = tmp_path / "store", tmp_path / "tables"
    with ServerProcess(tmp_path, "-js", "-sd", str(store), "-m", "-1") as server:
        asyncio.run(consume(server.url))
        url = f"http://127.0.0.1:{server.http_port}"
        billing, idle = sorted(job.consumer_samples(url, 1), key=lambda found: found["consumer"])
        words = ["analytics", "run", "--engine", "plain", "--once", "--data", str(store)]
        # What is durable in the log comes to its block within a tenth of a second.
        wait_for(lambda: added(words, root), "rows in the tables")
        assert cli.main([*words, "--out", str(root), "--monitor", url]) == 0
    assert billing == {
        "time": 1,
        "account": "$G",
        "stream": "ORDERS",
        "consumer": "billing",
        "pending": PUBLISHED - FETCHED,
        "ack_pending": FETCHED - ACKED,
        "delivered_seq": FETCHED,
        "ack_floor_seq": ACKED,
    }
    assert (idle["consumer"], idle["pending"], idle["delivered_seq"]) == ("idle", PUBLISHED, 0)
    assert {row[0] for row in exported(root)} == {"orders.0", "orders.1", "orders.2"}
    report = reports.make(root, reports.Asked(), now_s=0)
    assert {(row["consumer"], row["pending"]) for row in report.lag} == {
        ("ORDERS > billing", PUBLISHED - FETCHED),
        ("ORDERS > idle", PUBLISHED),
    }
    assert "ORDERS > billing" in show.as_text(report)
