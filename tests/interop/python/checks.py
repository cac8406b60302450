# ruff: noqa: PT017, PT018 (a program, not a pytest file)
"""Ordinary features through nats-py. Prints `ok NAME` or `FAIL NAME: why` for each check."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import MaxPayloadError, NoRespondersError

PLAIN = os.environ["INTEROP_PLAIN"]
LOCKED = os.environ["INTEROP_LOCKED"]
TLS = os.environ["INTEROP_TLS"]
RESTARTED = os.environ["INTEROP_RESTARTED"]
WAIT_SECONDS = 5.0


async def quiet(error: Exception) -> None:
    """nats-py prints errors otherwise."""


async def connect_info() -> None:
    nc = await nats.connect(PLAIN, name="interop")
    assert nc.max_payload == 1048576, nc.max_payload
    assert nc.client_id and nc.connected_server_version.major == 2
    await nc.close()


async def publish_subscribe() -> None:
    nc = await nats.connect(PLAIN)
    sub = await nc.subscribe("pubsub.one")
    await nc.publish("pubsub.one", b"hello", reply="back")
    msg = await sub.next_msg(timeout=WAIT_SECONDS)
    assert (msg.subject, msg.reply, msg.data) == ("pubsub.one", "back", b"hello")
    await nc.close()


async def wildcards() -> None:
    nc = await nats.connect(PLAIN)
    star, tail = await nc.subscribe("wild.*.x"), await nc.subscribe("wild.>")
    await nc.publish("wild.a.x", b"1")
    await nc.publish("wild.a.b.x", b"2")
    assert (await star.next_msg(timeout=WAIT_SECONDS)).data == b"1"
    got = [(await tail.next_msg(timeout=WAIT_SECONDS)).data for _ in range(2)]
    assert got == [b"1", b"2"] and star.pending_msgs == 0
    await nc.close()


async def queue_group() -> None:
    nc = await nats.connect(PLAIN)
    counts = [0, 0, 0]
    done = asyncio.Event()

    def member(index: int) -> Callable[[Msg], Awaitable[None]]:
        async def take(_: Msg) -> None:
            counts[index] += 1
            if sum(counts) == 300:
                done.set()

        return take

    for index in range(3):
        await nc.subscribe("jobs", "workers", cb=member(index))
    for _ in range(300):
        await nc.publish("jobs", b"x")
    await asyncio.wait_for(done.wait(), WAIT_SECONDS)
    await nc.flush()
    assert sum(counts) == 300 and min(counts) > 0, counts
    await nc.close()


async def request_reply() -> None:
    nc = await nats.connect(PLAIN)

    async def answer(msg: Msg) -> None:
        await msg.respond(msg.data.upper())

    await nc.subscribe("service", cb=answer)
    answers = await asyncio.gather(*(nc.request("service", b"q%d" % n) for n in range(50)))
    assert [a.data for a in answers] == [b"Q%d" % n for n in range(50)]
    await nc.close()


async def headers() -> None:
    nc = await nats.connect(PLAIN)
    sub = await nc.subscribe("headed")
    await nc.publish("headed", b"body", headers={"Key": "value", "other-Key": "2"})
    msg = await sub.next_msg(timeout=WAIT_SECONDS)
    assert msg.headers == {"Key": "value", "other-Key": "2"} and msg.data == b"body"
    await nc.close()


async def no_responders() -> None:
    nc = await nats.connect(PLAIN)
    try:
        await nc.request("nobody.here", b"?", timeout=WAIT_SECONDS)
    except NoRespondersError:
        return
    finally:
        await nc.close()
    raise AssertionError("an answer from nobody")


async def unsubscribe_max() -> None:
    nc = await nats.connect(PLAIN)
    sub = await nc.subscribe("limited")
    await sub.unsubscribe(limit=3)
    for _ in range(5):
        await nc.publish("limited", b"x")
    for _ in range(3):
        await sub.next_msg(timeout=WAIT_SECONDS)
    await nc.flush()
    assert sub.pending_msgs == 0
    await nc.close()


async def drain() -> None:
    nc = await nats.connect(PLAIN)
    got = []

    async def take(msg: Msg) -> None:
        got.append(msg.data)

    await nc.subscribe("drained", cb=take)
    for n in range(100):
        await nc.publish("drained", b"%d" % n)
    await nc.drain()
    assert len(got) == 100 and nc.is_closed


async def large_message() -> None:
    nc = await nats.connect(PLAIN)
    sub = await nc.subscribe("large", pending_bytes_limit=1 << 24)
    data = os.urandom(1048576)
    await nc.publish("large", data)
    assert (await sub.next_msg(timeout=WAIT_SECONDS)).data == data
    await nc.close()


async def max_payload() -> None:
    nc = await nats.connect(LOCKED, user="app", password="secret")
    assert nc.max_payload == 1024
    try:
        await nc.publish("app.x", b"x" * 1025)
    except MaxPayloadError:
        return
    finally:
        await nc.close()
    raise AssertionError("more than the limit was taken")


async def flush_rtt() -> None:
    nc = await nats.connect(PLAIN)
    for _ in range(10):
        await nc.publish("flushed", b"x")
        await nc.flush(timeout=WAIT_SECONDS)
    assert await nc.rtt() > 0
    await nc.close()


async def auth_refused() -> None:
    try:
        nc = await nats.connect(
            LOCKED, user="app", password="wrong", allow_reconnect=False, error_cb=quiet
        )
    except nats.errors.Error as error:
        assert "Authorization" in str(error), error
        return
    await nc.close()
    raise AssertionError("a wrong password was taken")


async def permissions() -> None:
    errors: asyncio.Queue[str] = asyncio.Queue()

    async def note(error: Exception) -> None:
        errors.put_nowait(str(error))

    nc = await nats.connect(LOCKED, user="app", password="secret", error_cb=note)
    await nc.publish("other.x", b"x")
    text = await asyncio.wait_for(errors.get(), WAIT_SECONDS)
    assert 'permissions violation for publish to "other.x"' in text.lower(), text
    sub = await nc.subscribe("app.x")
    await nc.publish("app.x", b"still here")
    assert (await sub.next_msg(timeout=WAIT_SECONDS)).data == b"still here"
    await nc.close()


async def tls() -> None:
    context = ssl.create_default_context(cafile=os.environ["INTEROP_CA"])
    nc = await nats.connect(TLS, tls=context, tls_hostname="localhost")
    sub = await nc.subscribe("secret")
    await nc.publish("secret", b"x" * 100_000)
    assert len((await sub.next_msg(timeout=WAIT_SECONDS)).data) == 100_000
    await nc.close()


async def reconnect() -> None:
    again = asyncio.Event()

    async def back(*_: Client) -> None:
        again.set()

    nc = await nats.connect(
        RESTARTED,
        reconnected_cb=back,
        reconnect_time_wait=0.05,
        max_reconnect_attempts=-1,
        error_cb=quiet,
    )
    sub = await nc.subscribe("after.restart")
    await nc.flush()
    print("restart", flush=True)
    await asyncio.wait_for(again.wait(), WAIT_SECONDS)
    await nc.publish("after.restart", b"again")
    assert (await sub.next_msg(timeout=WAIT_SECONDS)).data == b"again"
    await nc.close()


CHECKS = [
    connect_info, publish_subscribe, wildcards, queue_group, request_reply, headers, no_responders,
    unsubscribe_max, drain, large_message, max_payload, flush_rtt, auth_refused, permissions, tls,
    reconnect,
]  # fmt: skip


async def main() -> None:
    for check in CHECKS:
        try:
            await asyncio.wait_for(check(), 3 * WAIT_SECONDS)
        except Exception as error:
            print(f"FAIL {check.__name__}: {type(error).__name__} {error}", flush=True)
        else:
            print(f"ok {check.__name__}", flush=True)


asyncio.run(main())
