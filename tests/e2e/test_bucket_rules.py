"""What buckets ask of the server beyond puts and gets: short lives, markers, sources, domains."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from tests.e2e.server import WAIT_S, ServerProcess

SECOND = 1_000_000_000


async def ask(client: Client, subject: str, **body: Any) -> Any:
    data = json.dumps(body).encode() if body else b""
    answer = await client.request(f"$JS.API.{subject}", data, WAIT_S)
    return json.loads(answer.data)


def bucket(name: str, **fields: Any) -> dict[str, Any]:
    """The stream of a bucket as client libraries make it."""
    return {
        "name": f"KV_{name}",
        "subjects": [f"$KV.{name}.>"],
        "max_msgs_per_subject": 1,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
        "discard": "new",
        **fields,
    }


def played(tmp_path: Path, story: Callable[[Client], Awaitable[None]], *flags: str) -> None:
    async def whole(url: str) -> None:
        client = await nats.connect(url, connect_timeout=WAIT_S)
        await story(client)
        await client.close()

    with ServerProcess(tmp_path, "-js", "-sd", str(tmp_path), *flags) as server:
        asyncio.run(asyncio.wait_for(whole(server.url), WAIT_S))


@pytest.mark.feature("6.003")
def test_a_short_life_bounds_the_duplicate_window(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        config = bucket("S", max_age=30 * SECOND)
        refused = await ask(client, "STREAM.CREATE.KV_S", **config, duplicate_window=120 * SECOND)
        assert refused["error"]["err_code"] == 10052
        assert "duplicates window can not be larger" in refused["error"]["description"]
        made = await ask(client, "STREAM.CREATE.KV_S", **config)
        assert made["config"]["duplicate_window"] == 30 * SECOND

    played(tmp_path, story)


@pytest.mark.feature("6.010")
def test_watchers_see_why_a_key_went(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        config = bucket("T", allow_msg_ttl=True, subject_delete_marker_ttl=60 * SECOND)
        made = await ask(client, "STREAM.CREATE.KV_T", **config)
        assert made["config"]["subject_delete_marker_ttl"] == 60 * SECOND
        heard = await client.subscribe("watched")
        consumer = {"deliver_subject": "watched", "ack_policy": "none", "deliver_policy": "new"}
        await ask(client, "CONSUMER.CREATE.KV_T", stream_name="KV_T", config=consumer)
        put = await client.request("$KV.T.key", b"v", WAIT_S, headers={"Nats-TTL": "1s"})
        assert json.loads(put.data)["seq"] == 1
        value = await heard.next_msg(WAIT_S)
        marker = await heard.next_msg(WAIT_S)
        assert (value.subject, value.data) == ("$KV.T.key", b"v")
        assert (marker.subject, marker.data) == ("$KV.T.key", b"")
        assert (marker.headers or {})["Nats-Marker-Reason"] == "MaxAge"
        assert (marker.headers or {})["Nats-TTL"] == "1m0s"
        level = (await ask(client, "INFO"))["api"]["level"]
        assert level >= 1, "clients ask for markers only at this level"

    played(tmp_path, story)


@pytest.mark.feature("6.013")
def test_a_bucket_takes_another_ones_keys_under_its_own_prefix(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        await ask(client, "STREAM.CREATE.KV_B", **bucket("B"))
        source = {
            "name": "KV_B",
            "subject_transforms": [{"src": "$KV.B.>", "dest": "$KV.A.>"}],
        }
        await ask(client, "STREAM.CREATE.KV_A", **bucket("A", sources=[source]))
        await client.request("$KV.B.one.two", b"from b", WAIT_S)
        while (await ask(client, "STREAM.INFO.KV_A"))["state"]["messages"] < 1:
            await asyncio.sleep(0.005)
        found = await client.request("$JS.API.DIRECT.GET.KV_A.$KV.A.one.two", timeout=WAIT_S)
        assert found.data == b"from b"

    played(tmp_path, story)


@pytest.mark.feature("6.015")
def test_a_bucket_is_written_across_its_domain(tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        made = await client.request(
            "$JS.hub.API.STREAM.CREATE.KV_D", json.dumps(bucket("D")).encode(), WAIT_S
        )
        assert "error" not in json.loads(made.data)
        put = await client.request("$JS.hub.API.$KV.D.key", b"far", WAIT_S)
        assert json.loads(put.data)["seq"] == 1
        found = await client.request("$JS.hub.API.DIRECT.GET.KV_D.$KV.D.key", timeout=WAIT_S)
        assert (found.data, (found.headers or {})["Nats-Subject"]) == (b"far", "$KV.D.key")

    config = tmp_path / "domain.conf"
    config.write_text("jetstream { domain: hub }\n")
    played(tmp_path, story, "-c", str(config))
