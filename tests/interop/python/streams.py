# ruff: noqa: PT018 (a program, not a pytest file)
"""Consumers, key-value buckets and object stores through nats-py. Prints `ok NAME` or `FAIL NAME:
why` for each check."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import nats
from nats.js.api import AckPolicy, ConsumerConfig, KeyValueConfig, StorageType
from nats.js.errors import BucketNotFoundError, KeyNotFoundError, KeyWrongLastSequenceError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.js import JetStreamContext

URL = os.environ["INTEROP_STREAMS"]
WAIT_S = 5.0


async def quiet(error: Exception) -> None:
    """nats-py prints errors otherwise."""


@asynccontextmanager
async def stream(name: str, count: int, **more: Any) -> AsyncIterator[JetStreamContext]:
    nc = await nats.connect(
        URL, reconnect_time_wait=0.05, max_reconnect_attempts=-1, error_cb=quiet
    )
    js = nc.jetstream()
    await js.add_stream(name=name, subjects=[f"{name}.>"], **more)
    for number in range(count):
        await js.publish(f"{name}.{number % 3}", b"%d" % number)
    yield js
    await js.delete_stream(name)
    await nc.close()


async def fetch() -> None:
    async with stream("fetch", 25) as js:
        sub = await js.pull_subscribe("fetch.>", "worker")
        got: list[bytes] = []
        while len(got) < 25:
            for msg in await sub.fetch(10, timeout=WAIT_S):
                await msg.ack_sync(timeout=WAIT_S)
                got.append(msg.data)
        assert got == [b"%d" % n for n in range(25)]
        info = await sub.consumer_info()
        assert (info.num_pending, info.num_ack_pending) == (0, 0)
        assert info.ack_floor is not None and info.ack_floor.stream_seq == 25
        try:
            await sub.fetch(1, timeout=0.1)
        except nats.errors.TimeoutError:
            return
    raise AssertionError("a message from an empty consumer")


async def consume() -> None:
    """Somebody asks before the messages come."""
    async with stream("consume", 0) as js:
        sub = await js.pull_subscribe("consume.>", "worker")
        waiting = asyncio.create_task(sub.fetch(100, timeout=WAIT_S, heartbeat=0.5))
        for number in range(100):
            await js.publish("consume.x", b"%d" % number)
        got = await waiting
        assert [msg.data for msg in got] == [b"%d" % n for n in range(100)][: len(got)]


async def push() -> None:
    async with stream("push", 10) as js:
        heard: asyncio.Queue[int] = asyncio.Queue()

        async def take(msg: nats.aio.msg.Msg) -> None:
            heard.put_nowait(msg.metadata.sequence.stream)

        await js.subscribe("push.>", durable="d", cb=take)
        got = [await asyncio.wait_for(heard.get(), WAIT_S) for _ in range(10)]
        await js.publish("push.x", b"later")
        got.append(await asyncio.wait_for(heard.get(), WAIT_S))
        assert got == list(range(1, 12)), got


async def push_group() -> None:
    async with stream("group", 0) as js:
        subs = [await js.subscribe("group.>", queue="workers") for _ in range(2)]
        for number in range(40):
            await js.publish("group.x", b"%d" % number)
        counts = [0, 0]
        async with asyncio.timeout(WAIT_S):
            while sum(counts) < 40:
                for at, sub in enumerate(subs):
                    if sub.pending_msgs:
                        await (await sub.next_msg(timeout=WAIT_S)).ack()
                        counts[at] += 1
                await asyncio.sleep(0)
        assert min(counts) > 0, counts


async def redelivery() -> None:
    async with stream("again", 2) as js:
        config = ConsumerConfig(ack_wait=0.3, max_deliver=3, ack_policy=AckPolicy.EXPLICIT)
        sub = await js.pull_subscribe("again.>", "worker", config=config)
        one, two = await sub.fetch(2, timeout=WAIT_S)
        await one.nak()
        await two.term()
        (again,) = await sub.fetch(1, timeout=WAIT_S)
        assert again.metadata.num_delivered == 2 and again.data == b"0"
        (last,) = await sub.fetch(1, timeout=WAIT_S)  # its ack wait is over
        assert last.metadata.num_delivered == 3
        await last.ack_sync(timeout=WAIT_S)
        assert (await sub.consumer_info()).num_ack_pending == 0


async def ordered() -> None:
    async with stream("ordered", 500) as js:
        sub = await js.subscribe("ordered.>", ordered_consumer=True)
        got = [await sub.next_msg(timeout=WAIT_S) for _ in range(500)]
        assert [msg.data for msg in got] == [b"%d" % n for n in range(500)]


async def ordered_restart() -> None:
    """The client makes its consumer again when the server has forgotten it."""
    async with stream("restarted", 10) as js:
        sub = await js.subscribe("restarted.>", ordered_consumer=True, idle_heartbeat=0.5)
        got = [(await sub.next_msg(timeout=WAIT_S)).data for _ in range(10)]
        print("restart streams", flush=True)
        for number in range(10, 20):
            for _ in range(50):
                try:
                    await js.publish(
                        "restarted.x",
                        b"%d" % number,
                        timeout=1,
                        headers={"Nats-Msg-Id": str(number)},
                    )
                    break
                except (nats.errors.Error, nats.js.errors.Error):
                    await asyncio.sleep(0.1)
        got += [(await sub.next_msg(timeout=2 * WAIT_S)).data for _ in range(10)]
        assert got == [b"%d" % n for n in range(20)], got


async def kv() -> None:
    nc = await nats.connect(URL)
    js = nc.jetstream()
    bucket = await js.create_key_value(bucket="kv", history=3, storage=StorageType.FILE)
    assert await bucket.put("a", b"1") == 1
    assert await bucket.update("a", b"2", last=1) == 2
    try:
        await bucket.update("a", b"x", last=1)
        raise AssertionError("an old revision was taken")
    except KeyWrongLastSequenceError:
        pass
    await bucket.create("b", b"new")
    entry = await bucket.get("a")
    assert (entry.value, entry.revision) == (b"2", 2)
    assert (await bucket.get("a", revision=1)).value == b"1"
    await bucket.put("a", b"3")
    await bucket.put("a", b"4")
    assert [each.value for each in await bucket.history("a")] == [b"2", b"3", b"4"]
    await bucket.delete("b")
    try:
        await bucket.get("b")
        raise AssertionError("a deleted key is there")
    except KeyNotFoundError:
        pass
    await bucket.create("b", b"again")
    await bucket.purge("a")
    assert sorted(await bucket.keys()) == ["b"]
    status = await bucket.status()
    assert status.bucket == "kv" and status.history == 3
    await js.delete_key_value("kv")
    try:
        await js.key_value("kv")
        raise AssertionError("the bucket is still there")
    except BucketNotFoundError:
        await nc.close()


async def kv_watch() -> None:
    nc = await nats.connect(URL)
    js = nc.jetstream()
    bucket = await js.create_key_value(KeyValueConfig(bucket="watched", history=5))
    for key in ("a", "b.c", "b.d", "a"):
        await bucket.put(key, key.encode())
    watcher = await bucket.watch("b.*")
    first = [await watcher.updates(timeout=WAIT_S) for _ in range(3)]
    assert [each and each.key for each in first] == ["b.c", "b.d", None], first
    await bucket.put("a", b"unheard")
    await bucket.delete("b.c")
    update = await watcher.updates(timeout=WAIT_S)
    assert update is not None and (update.key, update.operation) == ("b.c", "DEL")
    await watcher.stop()
    history = await bucket.watchall(include_history=True)
    got = [await history.updates(timeout=WAIT_S) for _ in range(7)]
    assert [each and each.key for each in got] == ["a", "b.c", "b.d", "a", "a", "b.c", None]
    await history.stop()
    await js.delete_key_value("watched")
    await nc.close()


async def objects() -> None:
    nc = await nats.connect(URL)
    js = nc.jetstream()
    store = await js.create_object_store("objects")
    data = os.urandom(700_000)
    info = await store.put("file", data)
    assert info.size == len(data) and info.chunks == 6, info
    assert (await store.get("file")).data == data
    await store.put("other", b"small")
    assert sorted(each.name for each in await store.list()) == ["file", "other"]
    watcher = await store.watch()
    names = [await watcher.updates(timeout=WAIT_S) for _ in range(3)]
    assert [each and each.name for each in names] == ["file", "other", None]
    await store.delete("file")
    update = await watcher.updates(timeout=WAIT_S)
    assert update is not None and update.deleted
    await watcher.stop()
    assert [each.name for each in await store.list(ignore_deletes=True)] == ["other"]
    await store.seal()
    assert (await store.status()).sealed
    await js.delete_object_store("objects")
    await nc.close()


CHECKS = [
    fetch,
    consume,
    push,
    push_group,
    redelivery,
    ordered,
    ordered_restart,
    kv,
    kv_watch,
    objects,
]


async def main() -> None:
    for check in CHECKS:
        try:
            await asyncio.wait_for(check(), 5 * WAIT_S)
        except Exception as error:
            print(f"FAIL {check.__name__}: {type(error).__name__} {error}", flush=True)
        else:
            print(f"ok {check.__name__}", flush=True)


asyncio.run(main())
