"""Consumers of a real process, as a client library uses them."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from io import BufferedReader
from pathlib import Path

import nats
import pytest
from nats.errors import TimeoutError as NothingCame
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from tests.differential.jetstream.client import Client
from tests.e2e.server import MARTLET, WAIT_S, ServerProcess

Story = Callable[[JetStreamContext], Awaitable[None]]


@asynccontextmanager
async def context(port: int) -> AsyncIterator[JetStreamContext]:
    client = await nats.connect(
        f"nats://127.0.0.1:{port}", allow_reconnect=False, connect_timeout=WAIT_S
    )
    try:
        yield client.jetstream(timeout=WAIT_S)
    finally:
        await client.close()


def tell(directory: Path, story: Story) -> None:
    async def main(port: int) -> None:
        async with context(port) as js:
            await story(js)

    with ServerProcess(directory, "-js", "-sd", str(directory), command=MARTLET) as server:
        asyncio.run(main(server.port))


async def filled(js: JetStreamContext, count: int, **settings: str) -> None:
    await js.add_stream(name="S", subjects=["s.*"], **settings)
    for number in range(count):
        await js.publish(f"s.{number % 3}", str(number).encode())


@pytest.mark.feature("5.037", "5.038", "5.042", "5.054", "1.053", "1.070", "1.073")
def test_fetched_and_acknowledged(tmp_path: Path) -> None:
    async def story(js: JetStreamContext) -> None:
        await filled(js, 30)
        sub = await js.pull_subscribe("s.>", "D")
        first = await sub.fetch(10, WAIT_S)
        assert [int(message.data) for message in first] == list(range(10))
        assert [message.metadata.num_pending for message in first] == list(range(29, 19, -1))
        for message in first[:5]:
            await message.ack_sync()
        await first[5].nak()
        await first[6].term()
        again = await sub.fetch(1, WAIT_S)
        assert int(again[0].data) == 5
        assert again[0].metadata.num_delivered == 2
        info = await js.consumer_info("S", "D")
        assert (info.num_ack_pending, info.num_pending, info.num_redelivered) == (4, 20, 1)
        assert info.ack_floor is not None
        assert info.ack_floor.stream_seq == 5

    tell(tmp_path, story)


@pytest.mark.feature("2.058", "5.039")
def test_a_work_queue_is_emptied_by_acks(tmp_path: Path) -> None:
    async def story(js: JetStreamContext) -> None:
        await filled(js, 12, retention="workqueue")
        sub = await js.pull_subscribe("s.*", "W", config=ConsumerConfig(ack_wait=0.2))
        taken = await sub.fetch(12, WAIT_S)
        for message in taken[3:]:
            await message.ack_sync()
        assert (await js.stream_info("S")).state.messages == 3
        late = [int(message.data) for message in await sub.fetch(3, timeout=WAIT_S)]
        assert late == [0, 1, 2]

    tell(tmp_path, story)


@pytest.mark.feature("2.056", "5.048")
def test_an_interest_stream_keeps_what_somebody_still_wants(tmp_path: Path) -> None:
    async def story(js: JetStreamContext) -> None:
        await js.add_stream(name="S", subjects=["s.*"], retention="interest")
        await js.publish("s.0", b"nobody wants it")
        config = ConsumerConfig(filter_subject="s.1", ack_policy=AckPolicy.EXPLICIT)
        one = await js.pull_subscribe("s.1", "one", config=config)
        other = await js.pull_subscribe("s.1", "other", config=config)
        await js.publish("s.1", b"both want it")
        await js.publish("s.2", b"nobody wants it")
        assert (await js.stream_info("S")).state.messages == 1
        for sub, left in ((one, 1), (other, 0)):
            await (await sub.fetch(1, WAIT_S))[0].ack_sync()
            assert (await js.stream_info("S")).state.messages == left
        await js.publish("s.1", b"one is enough")
        await (await one.fetch(1, WAIT_S))[0].ack_sync()
        await js.delete_consumer("S", "other")
        assert (await js.stream_info("S")).state.messages == 0

    tell(tmp_path, story)


@pytest.mark.feature("5.013", "5.049", "5.052", "6.008")
def test_pushed_to_a_subject_a_group_and_in_order(tmp_path: Path) -> None:
    async def story(js: JetStreamContext) -> None:
        await filled(js, 30)
        ordered = await js.subscribe("s.1", ordered_consumer=True)
        assert [int((await ordered.next_msg(WAIT_S)).data) for _ in range(10)] == list(
            range(1, 30, 3)
        )
        config = ConsumerConfig(deliver_policy=DeliverPolicy.LAST_PER_SUBJECT)
        last = await js.subscribe("s.*", config=config)
        assert [int((await last.next_msg(WAIT_S)).data) for _ in range(3)] == [27, 28, 29]
        members = [await js.subscribe("s.*", queue="workers") for _ in range(3)]
        got: list[int] = []
        while len(got) < 30:
            for member in members:
                try:
                    got.append(int((await member.next_msg(timeout=0.01)).data))
                except NothingCame:
                    continue
        assert sorted(got) == list(range(30))

    tell(tmp_path, story)


@pytest.mark.feature("6.004", "6.006", "6.007", "6.008", "6.009")
def test_a_bucket_is_watched(tmp_path: Path) -> None:
    async def story(js: JetStreamContext) -> None:
        bucket = await js.create_key_value(bucket="B", history=5)
        for number in range(5):
            await bucket.put(f"k{number % 2}", str(number).encode())
        assert sorted(await bucket.keys()) == ["k0", "k1"]
        watcher = await bucket.watchall()
        seen = [await watcher.updates(timeout=WAIT_S) for _ in range(3)]
        assert [(each.key, each.value) if each else None for each in seen] == [
            ("k1", b"3"),
            ("k0", b"4"),
            None,
        ]
        await bucket.delete("k1")
        update = await watcher.updates(timeout=WAIT_S)
        assert update is not None
        assert (update.key, update.operation) == ("k1", "DEL")
        history = [entry.value for entry in await bucket.history("k0")]
        assert history == [b"0", b"2", b"4"]

    tell(tmp_path, story)


@pytest.mark.feature("5.081", "5.003")
def test_a_consumer_goes_on_where_it_was_after_a_restart(tmp_path: Path) -> None:
    async def before(js: JetStreamContext) -> None:
        await filled(js, 9)
        sub = await js.pull_subscribe("s.*", "D", config=ConsumerConfig(ack_wait=60))
        for message in (await sub.fetch(6, WAIT_S))[:4]:
            await message.ack_sync()
        await js.pull_subscribe(
            "s.*", "new", config=ConsumerConfig(deliver_policy=DeliverPolicy.NEW)
        )

    async def after(js: JetStreamContext) -> None:
        info = await js.consumer_info("S", "D")
        assert (info.num_ack_pending, info.num_pending) == (2, 3)
        assert info.delivered is not None
        assert (info.delivered.consumer_seq, info.delivered.stream_seq) == (6, 6)
        assert (await js.consumer_info("S", "new")).num_pending == 0
        sub = await js.pull_subscribe_bind("D", "S")
        assert [int(message.data) for message in await sub.fetch(3, WAIT_S)] == [6, 7, 8]

    tell(tmp_path, before)
    tell(tmp_path, after)


@pytest.mark.feature("5.013")
def test_who_reads_slowly_gets_everything(tmp_path: Path) -> None:
    """More than a connection's buffer may hold: the consumer waits until it was written."""
    count, size = 10_000, 8192
    with ServerProcess(tmp_path, "-js", "-sd", str(tmp_path), command=MARTLET) as server:
        asker, reader = Client(server.port), socket.create_connection(("127.0.0.1", server.port))
        with closing(asker), reader:
            stream = {"name": "S", "subjects": ["s"], "storage": "memory"}
            asker.request("$JS.API.STREAM.CREATE.S", json.dumps(stream).encode())
            line = b"PUB s %d\r\n%b\r\n" % (size, b"x" * size)
            for _ in range(count // 100):
                asker._socket.sendall(100 * line)
                asker.request("$JS.API.STREAM.INFO.S")
            reader.sendall(b'CONNECT {"verbose":false}\r\nSUB to 1\r\nPING\r\n')
            config = {"deliver_subject": "to", "ack_policy": "none"}
            body = json.dumps({"stream_name": "S", "config": config}).encode()
            made = json.loads(asker.request("$JS.API.CONSUMER.CREATE.S", body))
            about = f"$JS.API.CONSUMER.INFO.S.{made['name']}"
            before, sent = -1, 0
            while sent != before:
                before = sent
                sent = json.loads(asker.request(about))["delivered"]["consumer_seq"]
                asker.request("$JS.API.STREAM.INFO.S")
            assert sent < count
            lines = reader.makefile("rb")
            got = 0
            while got < count:
                line = lines.readline()
                assert not line.startswith(b"-ERR"), line
                if line.startswith(b"MSG "):
                    lines.read(size + 2)
                    got += 1
            lines.close()


@pytest.mark.feature("4.010")
def test_a_direct_batch_larger_than_a_connection_may_hold_comes_whole(tmp_path: Path) -> None:
    count, size = 5_000, 8192
    arguments = ("-js", "-sd", str(tmp_path))
    with ServerProcess(tmp_path, *arguments, command=MARTLET, config="max_pending: 12MB") as server:
        asker, reader = Client(server.port), socket.create_connection(("127.0.0.1", server.port))
        with closing(asker), reader:
            reader.settimeout(WAIT_S)
            stream = {"name": "S", "subjects": ["s"], "storage": "memory", "allow_direct": True}
            asker.request("$JS.API.STREAM.CREATE.S", json.dumps(stream).encode())
            line = b"PUB s %d\r\n%b\r\n" % (size, b"x" * size)
            for _ in range(count // 100):
                asker._socket.sendall(100 * line)
                asker.request("$JS.API.STREAM.INFO.S")
            body = json.dumps({"seq": 1, "batch": count, "max_bytes": 1 << 30}).encode()
            reader.sendall(b'CONNECT {"verbose":false,"headers":true}\r\nSUB to 1\r\n')
            reader.sendall(b"PUB $JS.API.DIRECT.GET.S to %d\r\n%b\r\n" % (len(body), body))
            for _ in range(100):
                asker.request("$JS.API.STREAM.INFO.S")
            with reader.makefile("rb") as lines:
                assert messages_to_the_end(lines) == count


def messages_to_the_end(lines: BufferedReader) -> int:
    """How many came before the end of a batch."""
    count = 0
    while True:
        line = lines.readline()
        assert line
        assert not line.startswith(b"-ERR"), line
        if line.startswith(b"HMSG "):
            if b"204 EOB" in lines.read(int(line.split()[-1]) + 2):
                return count
            count += 1
