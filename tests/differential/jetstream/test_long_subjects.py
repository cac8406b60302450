"""Acks in the longer form, with the domain and a hash of the account: named alike, heard alike."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from server.jetstream.shorthash import short_hash
from tests.differential.jetstream.flow import Player, remove_streams
from tests.e2e.server import MARTLET, NATS_SERVER, ServerProcess

CONFIG = "feature_flags { js_ack_fc_v2: true }\njetstream { store_dir: %s, domain: %s }\n"
LONG = "$JS.ACK.{place}.S.C.1.{seq}.{seq}.1700000000000000000.0"
pytestmark = pytest.mark.peer


@contextmanager
def long_form(home: Path, command: str, domain: str = "") -> Iterator[ServerProcess]:
    """A server that is told to name acks by the longer form."""
    home.mkdir()
    config = CONFIG % (json.dumps(str(home)), json.dumps(domain))
    with ServerProcess(home, config=config, command=command) as server:
        yield server


def ask(player: Player, subject: str, body: dict[str, Any]) -> dict[str, Any]:
    heard = player.request("$JS.API." + subject, json.dumps(body).encode())
    assert heard is not None
    answer: dict[str, Any] = json.loads(heard.payload)
    assert "error" not in answer, answer
    return answer


def pulled(player: Player) -> list[str]:
    """The replies of three messages of a new stream."""
    remove_streams(player)
    ask(player, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "storage": "memory"})
    for _ in range(3):
        player.request("s", b"x")
    config = {"durable_name": "C", "ack_policy": "explicit"}
    ask(player, "CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
    player.subscribe("x", "here")
    player.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b"3", b"", "here")
    return [each.reply for each in player.wait("x", 3)]


def masked(subject: str) -> str:
    """Without the time of an ack subject, without the id of flow control."""
    return re.sub(r"\.\d{19}\.|[0-9A-Za-z]{4}$", ".<own>.", subject)


@pytest.mark.feature("1.071", "1.072", "7.024")
@pytest.mark.parametrize("domain", ["", "hub"])
def test_acks_are_named_by_the_longer_form(tmp_path: Path, domain: str) -> None:
    told = []
    for name, command in (("genuine", NATS_SERVER), ("martlet", MARTLET)):
        with long_form(tmp_path / name, command, domain) as server:
            with closing(Player(server)) as player:
                replies = pulled(player)
                info = []
                for reply in replies:
                    answer = player.request(reply, b"+ACK")
                    info.append((masked(reply), answer is not None and answer.payload))
                found = ask(player, "CONSUMER.INFO.S.C", {})
                told.append((info, found["num_ack_pending"], found["ack_floor"]["stream_seq"]))
            assert any("js_ack_fc_v2 (opt-in)" in line for line in server.log())
    assert told[0] == told[1]
    assert told[0][0][0][0].startswith(f"$JS.ACK.{domain or '_'}.{short_hash('$G')}.S.C.1.1.1.")
    assert told[0][1:] == (0, 3)


def stalled(player: Player) -> str:
    """A push consumer sends so much that it asks how far its client is: the subject of the ask."""
    remove_streams(player)
    ask(player, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "storage": "memory"})
    for _ in range(120):
        player.request("s", b"x" * 60_000)
    player.subscribe("pushed", "pushed.here")
    player.barrier()
    config = {
        "name": "F",
        "deliver_subject": "pushed.here",
        "ack_policy": "none",
        "flow_control": True,
        "idle_heartbeat": 100_000_000,
    }
    ask(player, "CONSUMER.CREATE.S.F", {"stream_name": "S", "config": config})
    return next_ask(player)


def next_ask(player: Player) -> str:
    while heard := player.wait("pushed", 1):
        if b"FlowControl Request" in heard[0].headers:
            return heard[0].reply
    raise AssertionError("no flow control was asked for")


def is_still_waiting(player: Player, asked: str) -> bool:
    """Whether the next heartbeat tells that the consumer waits for an answer to this."""
    player.queues["pushed"] = [each for each in player.queues["pushed"] if not each.is_heartbeat]
    beats = [each.headers for each in player.wait("pushed", 2, heartbeats=True)]
    return b"Nats-Consumer-Stalled: " + asked.encode() in beats[-1]


@pytest.mark.feature("1.078")
@pytest.mark.parametrize("command", [NATS_SERVER, MARTLET], ids=["genuine", "martlet"])
def test_flow_control_is_named_and_answered_by_the_longer_form(
    tmp_path: Path, command: str
) -> None:
    with long_form(tmp_path / "home", command) as server, closing(Player(server)) as player:
        asked = stalled(player)
        place = f"_.{short_hash('$G')}"
        assert re.fullmatch(re.escape(f"$JS.FC.{place}.S.F.") + "[0-9A-Za-z]{4}", asked)
        short = asked.replace(place + ".", "")
        for other in (short, asked[:-4] + "....", f"$JS.FC.hub.xxxxxxxx.S.F.{asked[-4:]}"):
            player.publish(other, b"")
            assert is_still_waiting(player, asked), other
        player.publish(asked, b"")
        assert not is_still_waiting(player, asked)
        remove_streams(player)


@pytest.mark.feature("1.078")
def test_flow_control_in_the_shorter_form(both: tuple[ServerProcess, ServerProcess]) -> None:
    """Only what was asked last is honoured, and only in the form in which it was asked."""
    for server in both:
        with closing(Player(server)) as player:
            asked = stalled(player)
            assert re.fullmatch(r"\$JS\.FC\.S\.F\.[0-9A-Za-z]{4}", asked)
            longer = asked.replace("$JS.FC.", f"$JS.FC._.{short_hash('$G')}.")
            for other in (longer, asked[:-4] + "zzzz"):
                player.publish(other, b"")
                assert is_still_waiting(player, asked), other
            player.publish(asked, b"")
            newer = next_ask(player)
            assert newer != asked
            player.publish(asked, b"")
            assert is_still_waiting(player, newer)
            player.publish(newer, b"")
            remove_streams(player)


@pytest.mark.feature("1.071")
@pytest.mark.parametrize("tail", ["", ".more", ".more.and.more"])
def test_the_longer_form_is_heard(both: tuple[ServerProcess, ServerProcess], tail: str) -> None:
    genuine, ours = (floors(server, tail) for server in both)
    assert ours == genuine
    assert genuine[0] == (2, 1)


def floors(server: ServerProcess, tail: str) -> list[tuple[int, int]]:
    """How many are pending and what is the floor after each ack."""
    told = []
    with closing(Player(server)) as player:
        pulled(player)
        places = [f"_.{short_hash('$G')}", f"_.{short_hash('other')}", "hub.xxxxxxxx"]
        for seq, place in enumerate(places, start=1):
            player.publish(LONG.format(place=place, seq=seq) + tail, b"+ACK")
            info = ask(player, "CONSUMER.INFO.S.C", {})
            told.append((info["num_ack_pending"], info["ack_floor"]["stream_seq"]))
        remove_streams(player)
    return told
