"""Power loss at any byte of the log around a dead letter: given up and not told of is nobody.

What the log holds is written in order, so each prefix of it, with the blocks as they were before,
is what a power loss may leave.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.sim.world import SimWorld

MS = 1_000_000
MESSAGES = 3
CUTS = 16
SEGMENT_BYTES = 1 << 16  # of the copies: a preallocated one is mostly zeros
WAIT_MS = 400


def prepare(world: SimWorld, retention: str, letters: dict[str, Any]) -> None:
    stream = {"name": "S", "subjects": ["s.>"], "retention": retention}
    config = {
        "durable_name": "C", "ack_policy": "explicit", "ack_wait": WAIT_MS * MS, "max_deliver": 1,
        "metadata": {"martlet.dead_letter_subject": "dead.orders"},
    }  # fmt: skip
    asked: list[tuple[str, dict[str, Any]]] = [
        ("STREAM.CREATE.S", stream),
        ("STREAM.CREATE.DEAD", {"name": "DEAD", "subjects": ["dead.>"], **letters}),
        ("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config}),
    ]
    for subject, body in asked:
        answer = world.ask(subject, body)
        assert "error" not in answer, answer
    for number in range(MESSAGES):
        world.publish("s.x", b"%d" % number)
    world.settle()


def pull(world: SimWorld) -> list[str]:
    """Asks for all there is; the subjects for acknowledgements."""
    world.listen("pulled", "p.1")
    body = json.dumps({"batch": 10, "no_wait": True}).encode()
    world.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", body, reply="p.1")
    world.settle()
    world.unlisten("pulled")
    return [heard.reply for heard in world.queues.pop("pulled", []) if heard.place]


def give_up(world: SimWorld, how: str) -> None:
    """All that was or can be delivered is given up."""
    for reply in pull(world):
        world.publish(reply, how.encode())
        world.settle()
    if how == "":
        world.pass_time(2 * WAIT_MS / 1000)


def letters(world: SimWorld) -> list[bytes]:
    store, found = world.stream("DEAD").store, []
    message = store.load_next(1)
    while message is not None:
        found.append(message.payload)
        message = store.load_next(message.seq + 1)
    return sorted(found)


def logs(directory: Path) -> dict[Path, bytes]:
    """The start of each log segment."""
    found = {}
    for path in directory.rglob("*.seg"):
        with path.open("rb") as segment:
            found[path.relative_to(directory)] = segment.read(SEGMENT_BYTES)
    assert found
    assert all(data.endswith(bytes(1024)) for data in found.values())
    return found


def copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.seg"))
    for path, data in logs(source).items():
        (target / path).write_bytes(data)


def torn(before: dict[Path, bytes], after: dict[Path, bytes]) -> list[tuple[Path, int]]:
    """Where in which log a power loss may come."""
    cuts = []
    for path, data in after.items():
        old = before.get(path, b"").ljust(len(data), b"\0")
        if data != old:
            first = next(at for at in range(len(data)) if data[at] != old[at])
            last = len(data.rstrip(b"\0"))
            steps = {first + (last - first) * step // CUTS for step in range(CUTS + 1)}
            cuts += [(path, at) for at in sorted(steps)]
    return cuts


WAYS = [("limits", ""), ("limits", "-NAK"), ("limits", "+TERM no"), ("workqueue", "+TERM no"),
        ("interest", "+TERM no")]  # fmt: skip


@pytest.mark.feature("5.040")
@pytest.mark.parametrize(("retention", "how"), WAYS)
def test_no_power_loss_leaves_a_message_given_up_without_its_letter(
    tmp_path: Path, retention: str, how: str
) -> None:
    home, base = tmp_path / "home", tmp_path / "base"
    home.mkdir()
    world = SimWorld(home)
    prepare(world, retention, {})
    if how != "":
        copy(home, base)
        before = logs(home)
        give_up(world, how)
    else:
        replies = pull(world)
        assert len(replies) == MESSAGES
        world.engine.hub.keep_soon()
        world.settle()
        copy(home, base)
        before = logs(home)
        world.pass_time(2 * WAIT_MS / 1000)
    assert letters(world) == [b"0", b"1", b"2"]
    after = logs(home)
    world.close(is_kill=True)
    cuts = torn(before, after)
    assert len(cuts) >= CUTS // 2
    for number, (path, at) in enumerate(cuts):
        again = tmp_path / f"again{number}"
        copy(base, again)
        old = before.get(path, b"").ljust(len(after[path]), b"\0")
        (again / path).write_bytes(after[path][:at] + old[at:])
        world = SimWorld(again)
        # Whoever was delivered and not given up is overdue; the others are asked for once more.
        world.pass_time(2 * WAIT_MS / 1000)
        give_up(world, how)
        world.pass_time(2 * WAIT_MS / 1000)
        found = letters(world)
        left = world.stream().state().messages
        world.close(is_kill=True)
        assert found == [b"0", b"1", b"2"], f"{path} cut at {at}"
        assert left == (MESSAGES if retention == "limits" else 0)
        shutil.rmtree(again)
