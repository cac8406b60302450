"""A standard client library against the real process."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from tests.e2e.certificates import Authority
from tests.e2e.server import WAIT_S, ServerProcess

Talk = Callable[[Client], Awaitable[None]]


def talk(tmp_path: Path, conversation: Talk, config: str | None = None, **options: object) -> None:
    """Connects to a fresh server and holds the conversation."""

    async def hold(url: str) -> None:
        client = await nats.connect(  # type: ignore[arg-type]
            url, allow_reconnect=False, connect_timeout=WAIT_S, **options
        )
        await conversation(client)
        if not client.is_closed:
            await client.close()

    with ServerProcess(tmp_path, config=config) as server:
        asyncio.run(asyncio.wait_for(hold(server.url), WAIT_S))


@pytest.mark.feature("1-060", "1-067")
def test_wildcards(tmp_path: Path) -> None:
    async def conversation(client: Client) -> None:
        star = await client.subscribe("a.*.c")
        rest = await client.subscribe("a.>")
        await client.publish("a.b.c", b"1")
        await client.publish("a.b.d", b"2")
        assert (await star.next_msg(WAIT_S)).data == b"1"
        assert [(await rest.next_msg(WAIT_S)).data for _ in range(2)] == [b"1", b"2"]

    talk(tmp_path, conversation)


@pytest.mark.feature("1-068", "1-069")
def test_queue_groups_share_the_work(tmp_path: Path) -> None:
    async def conversation(client: Client) -> None:
        counts = [0, 0, 0]

        def member(index: int) -> Callable[[Msg], Awaitable[None]]:
            async def take(_: Msg) -> None:
                counts[index] += 1

            return take

        for index in range(3):
            await client.subscribe("jobs", queue="workers", cb=member(index))
        for _ in range(300):
            await client.publish("jobs", b"x")
        await client.flush()
        while sum(counts) < 300:
            await asyncio.sleep(0.01)
        assert sum(counts) == 300
        assert min(counts) > 40

    talk(tmp_path, conversation)


@pytest.mark.feature("1-057", "1-058")
def test_requests_and_no_responders(tmp_path: Path) -> None:
    async def conversation(client: Client) -> None:
        async def answer(message: Msg) -> None:
            await message.respond(message.data.upper())

        await client.subscribe("shout", cb=answer)
        assert (await client.request("shout", b"hi", WAIT_S)).data == b"HI"
        with pytest.raises(NoRespondersError):
            await client.request("nobody", b"hi", WAIT_S)

    talk(tmp_path, conversation)


@pytest.mark.feature("1-054")
def test_headers(tmp_path: Path) -> None:
    async def conversation(client: Client) -> None:
        sub = await client.subscribe("h")
        await client.publish("h", b"x", headers={"One": "1", "two-Two": "2"})
        message = await sub.next_msg(WAIT_S)
        assert message.headers == {"One": "1", "two-Two": "2"}

    talk(tmp_path, conversation)


def test_drain(tmp_path: Path) -> None:
    async def conversation(client: Client) -> None:
        seen = 0

        async def take(_: Msg) -> None:
            nonlocal seen
            seen += 1

        await client.subscribe("d", cb=take)
        for _ in range(1000):
            await client.publish("d", b"x")
        await client.drain()
        assert seen == 1000
        assert client.is_closed

    talk(tmp_path, conversation)


@pytest.mark.feature("4-003")
def test_a_user_with_a_password(tmp_path: Path) -> None:
    async def conversation(client: Client) -> None:
        sub = await client.subscribe("x")
        await client.publish("x", b"1")
        assert (await sub.next_msg(WAIT_S)).data == b"1"

    config = "authorization { user: ann, password: secret }"
    talk(tmp_path, conversation, config, user="ann", password="secret")


@pytest.mark.feature("4-011", "4-012")
@pytest.mark.parametrize("first", [False, True])
def test_tls(tmp_path: Path, first: bool) -> None:
    authority = Authority(tmp_path)
    cert = authority.issue("server")
    config = (
        f'tls {{ cert_file: "{cert.cert_file}", key_file: "{cert.key_file}", '
        f"handshake_first: {str(first).lower()} }}"
    )

    async def conversation(client: Client) -> None:
        sub = await client.subscribe("x")
        await client.publish("x", b"1" * 100_000)
        assert len((await sub.next_msg(WAIT_S)).data) == 100_000

    context = ssl.create_default_context(cafile=str(authority.ca_file))
    talk(
        tmp_path,
        conversation,
        config,
        tls=context,
        tls_hostname="localhost",
        tls_handshake_first=first,
    )
