"""Acks in the longer form, with the domain and a hash of the account: named alike, heard alike."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from server.jetstream.acks import account_hash
from tests.differential.jetstream.flow import Player, remove_streams
from tests.e2e.server import NATS_SERVER, ServerProcess

CONFIG = "feature_flags { js_ack_fc_v2: true }\njetstream { store_dir: %s }\n"
LONG = "$JS.ACK.{place}.S.C.1.{seq}.{seq}.1700000000000000000.0"
pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def long_form(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The genuine server, told to name acks by the longer form."""
    home = tmp_path_factory.mktemp("genuine")
    config: Path = home / "server.conf"
    config.write_text(CONFIG % json.dumps(str(home)))
    with ServerProcess(home, "-c", str(config), command=NATS_SERVER) as server:
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


@pytest.mark.feature("1.071", "1.072")
def test_the_hash_of_an_account_is_the_reference_s(long_form: ServerProcess) -> None:
    with closing(Player(long_form)) as player:
        for seq, reply in enumerate(pulled(player), start=1):
            place, rest = reply.removeprefix("$JS.ACK.").split(".S.C.")
            assert place == f"_.{account_hash('$G')}"
            assert rest.startswith(f"1.{seq}.{seq}.")


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
        places = [f"_.{account_hash('$G')}", f"_.{account_hash('other')}", "hub.xxxxxxxx"]
        for seq, place in enumerate(places, start=1):
            player.publish(LONG.format(place=place, seq=seq) + tail, b"+ACK")
            info = ask(player, "CONSUMER.INFO.S.C", {})
            told.append((info["num_ack_pending"], info["ack_floor"]["stream_seq"]))
        remove_streams(player)
    return told
