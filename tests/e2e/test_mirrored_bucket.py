"""A mirrored key-value bucket through a standard client library."""

from __future__ import annotations

import asyncio
from pathlib import Path

import nats
import pytest
from nats.js import JetStreamContext
from nats.js.api import StreamConfig, StreamSource
from nats.js.errors import KeyNotFoundError
from nats.js.kv import KeyValue

from tests.e2e.server import WAIT_S, ServerProcess


async def until_copied(js: JetStreamContext, stream: str, last_seq: int) -> None:
    while (await js.stream_info(stream)).state.last_seq < last_seq:
        await asyncio.sleep(0.005)


def read_by_origin_prefix(mirror: KeyValue) -> KeyValue:
    """This library reads a bucket by its own prefix; a mirror's keys have that of its origin."""
    mirror._pre = "$KV.B."
    return mirror


async def conversation(url: str) -> None:
    client = await nats.connect(url, connect_timeout=WAIT_S)
    js = client.jetstream(timeout=WAIT_S)
    bucket = await js.create_key_value(bucket="B", history=3, direct=True)
    await bucket.put("one", b"1")
    await bucket.put("two", b"2")
    await js.add_stream(
        StreamConfig(
            name="KV_M",
            mirror=StreamSource(name="KV_B"),
            max_msgs_per_subject=3,
            allow_rollup_hdrs=True,
            deny_delete=True,
            allow_direct=True,
        )
    )
    await until_copied(js, "KV_M", 2)
    assert (await js.stream_info("KV_M")).config.mirror_direct
    mirror = read_by_origin_prefix(await js.key_value("M"))
    entry = await mirror.get("one")
    assert (entry.value, entry.revision) == (b"1", 1)
    await bucket.put("one", b"1 again")
    await bucket.purge("two")
    await until_copied(js, "KV_M", 4)
    assert (await mirror.get("one")).revision == 3
    with pytest.raises(KeyNotFoundError):
        await mirror.get("two")
    info = await js.stream_info("KV_M")
    assert info.state.messages == 3, "a purge of a key empties it in the mirror as well"
    # The mirror answers for its origin, under its own name.
    streams = set()
    for _ in range(50):
        answer = await client.request("$JS.API.DIRECT.GET.KV_B.$KV.B.one", timeout=WAIT_S)
        assert answer.data == b"1 again"
        streams.add((answer.headers or {})["Nats-Stream"])
    assert streams == {"KV_B", "KV_M"}
    await client.close()


@pytest.mark.feature("6.012", "7.023", "4.008")
def test_a_mirrored_bucket_is_read_by_its_origins_prefix(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "-js", "-sd", str(tmp_path)) as server:
        asyncio.run(asyncio.wait_for(conversation(server.url), WAIT_S))
