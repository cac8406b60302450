"""Streams and consumers that a newer server made: kept, named with the reason, not touched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from server.jetstream import diskstores
from server.jetstream.config import StreamConfig
from server.jetstream.consumer_config import ConsumerConfig
from server.jetstream.diskstores import DiskStores
from tests.differential.jetstream.client import Client
from tests.e2e.server import MARTLET, ServerProcess

NEWER = {"_nats.req.level": "9"}
LEVEL_REASON = "unsupported - required API level: 9, current API level: 4"
KEY_REASON = 'decoding error: json: unknown field "quantum"'
BELOW_REASON = 'decoding error: json: unknown field "spin"'
BOTH_REASON = 'unsupported - config error: unknown field "quantum"'


def stream(name: str, **more: Any) -> StreamConfig:
    limits = {"max_msgs": -1, "max_bytes": -1, "max_msgs_per_subject": -1, "max_consumers": -1}
    return StreamConfig(
        name=name, subjects=[f"{name}.>"], num_replicas=1, max_msg_size=-1, **limits, **more
    )


def make_newer_store(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a server of a later version may have left behind."""
    stores = DiskStores(home / "jetstream", durable=True)

    def create(config: StreamConfig, changed: dict[str, Any]) -> None:
        plain = diskstores.settings_of

        def newer(*args: Any) -> dict[str, Any]:
            settings = plain(*args)
            settings["config"] = json.dumps(json.loads(settings["config"]) | changed)
            return settings

        monkeypatch.setattr(diskstores, "settings_of", newer)
        store = stores.create("$G", config, 1)
        monkeypatch.setattr(diskstores, "settings_of", plain)
        for number in range(3):
            store.store(f"{config.name}.a", b"", b"%d" % number, 0)

    create(stream("LEVEL", metadata=NEWER), {})
    create(stream("KEY"), {"quantum": True})
    create(stream("BELOW"), {"placement": {"cluster": "c", "spin": 1}})
    create(stream("BOTH", metadata=NEWER), {"quantum": True})
    create(stream("MEMORY", storage="memory", metadata=NEWER), {})
    create(stream("CONSUMED"), {})
    create(stream("FINE"), {})
    for name, metadata in (("new", NEWER), ("old", {"_nats.req.level": "1"})):
        config = ConsumerConfig(durable_name=name, name=name, ack_policy="explicit")
        config.metadata = metadata
        stores.save_consumer("$G", "CONSUMED", name, config, 1)
    stores.commit()
    stores.close()


REASONS = {
    "LEVEL": LEVEL_REASON,
    "KEY": KEY_REASON,
    "BELOW": BELOW_REASON,
    "BOTH": BOTH_REASON,
    "MEMORY": LEVEL_REASON,
    "CONSUMED": 'stopped - unsupported consumer "new"',
}


def ask(client: Client, subject: str, body: Any = None) -> dict[str, Any]:
    payload = b"" if body is None else json.dumps(body).encode()
    answer: dict[str, Any] = json.loads(client.request(f"$JS.API.{subject}", payload))
    return answer


def refusal(client: Client, subject: str, body: Any = None) -> tuple[int, str]:
    error = ask(client, subject, body)["error"]
    return error["err_code"], error["description"]


@pytest.mark.feature("2.034", "1.034", "1.050")
def test_what_is_too_new_is_kept_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_newer_store(tmp_path, monkeypatch)
    for _ in range(2):  # the second start finds what the first one did
        with ServerProcess(
            tmp_path, "-js", "-sd", str(tmp_path), "-m", "-1", command=MARTLET
        ) as server:
            client = Client(server.port)
            check_offline(client)
            check_refusals(client)
            # As there: what is too new is no fault of this server.
            with urlopen(f"http://127.0.0.1:{server.http_port}/healthz") as page:
                assert json.load(page) == {"status": "ok"}
            assert any("Detected unsupported stream '$G > LEVEL'" in x for x in server.log())
            assert any("unsupported consumer '$G > CONSUMED > new'" in x for x in server.log())
            client.close()
            server.process.terminate()
            server.wait_exit()


def check_offline(client: Client) -> None:
    listed = ask(client, "STREAM.LIST")
    assert listed["offline"] == REASONS
    assert listed["missing"] == sorted(REASONS)
    assert listed["total"] == len(REASONS) + 1
    assert [each["config"]["name"] for each in listed["streams"]] == ["FINE"]
    assert listed["streams"][0]["state"]["messages"] == 3
    assert ask(client, "STREAM.NAMES")["streams"] == sorted([*REASONS, "FINE"])
    assert ask(client, "STREAM.NAMES", {"subject": "KEY.a"})["streams"] == ["KEY"]
    for name, reason in REASONS.items():
        assert refusal(client, f"STREAM.INFO.{name}") == (10194, f"stream is offline: {reason}")
    found = ask(client, "CONSUMER.LIST.CONSUMED")
    assert found["offline"] == {"new": LEVEL_REASON}
    assert found["missing"] == ["new"]


def check_refusals(client: Client) -> None:
    offline = (10194, f"stream is offline: {KEY_REASON}")
    config = {"name": "KEY", "subjects": ["KEY.>"]}
    assert refusal(client, "STREAM.UPDATE.KEY", config) == offline
    assert refusal(client, "STREAM.CREATE.KEY", config) == offline
    assert refusal(client, "STREAM.PURGE.KEY") == offline
    assert refusal(client, "STREAM.MSG.DELETE.KEY", {"seq": 1}) == offline
    assert refusal(client, "STREAM.SNAPSHOT.KEY", {"deliver_subject": "x"}) == offline
    consumer = {"stream_name": "KEY", "config": {"durable_name": "c", "ack_policy": "none"}}
    assert refusal(client, "CONSUMER.CREATE.KEY.c", consumer) == offline
    gone = (10195, f"consumer is offline: {LEVEL_REASON}")
    assert refusal(client, "CONSUMER.INFO.CONSUMED.new") == gone
    assert refusal(client, "CONSUMER.PAUSE.CONSUMED.new", {}) == gone
    other = {"name": "OTHER", "subjects": ["KEY.a"]}
    assert refusal(client, "STREAM.CREATE.OTHER", other)[0] == 10065
    # As there, a question for a message stays without an answer.
    assert client.exchange("$JS.API.STREAM.MSG.GET.KEY", b'{"seq":1}', b"", "none", 0) == []
    # Nobody takes a message for it, so that its publisher knows.
    assert client.request("KEY.a", b"x").startswith(b"NATS/1.0 503")


@pytest.mark.feature("2.034", "1.031")
def test_what_is_too_new_may_be_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_newer_store(tmp_path, monkeypatch)
    with ServerProcess(tmp_path, "-js", "-sd", str(tmp_path), command=MARTLET) as server:
        client = Client(server.port)
        for name in REASONS:
            assert ask(client, f"STREAM.DELETE.{name}") == {
                "type": "io.nats.jetstream.api.v1.stream_delete_response",
                "success": True,
            }
        made = ask(client, "STREAM.CREATE.KEY", {"name": "KEY", "subjects": ["KEY.>"]})
        assert made["state"]["messages"] == 0
        client.close()
        server.process.terminate()
        server.wait_exit()
    with ServerProcess(tmp_path, "-js", "-sd", str(tmp_path), command=MARTLET) as server:
        client = Client(server.port)
        assert ask(client, "STREAM.NAMES")["streams"] == ["FINE", "KEY"]
        assert ask(client, "CONSUMER.LIST.KEY")["consumers"] == []
        client.close()
