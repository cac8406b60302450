"""No consumer goes quiet with messages left: plays of one stream and its consumers, from seeds.

A play is a list of operations made beforehand, so that one that fails can be made shorter. After
each operation what is left to deliver is counted anew and compared. At the end everybody is
willing: pauses are over, requests and listeners are there, everything is acknowledged. Then every
message that is left must have been delivered, in a time bounded by the waits of the configuration.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from server.core.subject import matches
from tests.sim.world import Heard, SimWorld

MS, SECOND = 1_000_000, 1_000_000_000
SUBJECTS = ("s.a", "s.b", "s.c.d")
FILTERS: tuple[dict[str, Any], ...] = (
    {}, {"filter_subject": "s.a"}, {"filter_subject": "s.c.>"}, {"filter_subjects": ["s.a", "s.b"]},
)  # fmt: skip
KINDS = (
    b"+ACK", b"+ACK", b"+ACK", b"", b"-NAK", b'-NAK {"delay": 700000000}', b"+WPI", b"+TERM",
    b"+NXT",
)  # fmt: skip
FAR = "2100-01-01T00:00:00Z"
OPERATIONS = 40
# More than the longest wait there can be: backoffs, naks, pins, requests.
ROUNDS = 40
ROUND_S = 1.0
STALLED = re.compile(rb"Nats-Consumer-Stalled: (\S+)")
PIN = re.compile(rb"Nats-Pin-Id: (\S+)")

Operation = tuple[str, int, int, int]
WEIGHTS = {
    "publish": 30, "pull": 25, "answer": 30, "listen": 5, "unlisten": 4, "delete": 4, "purge": 2,
    "update": 5, "pause": 3, "resume": 3, "reset": 2, "unpin": 2, "wait": 12, "restart": 3,
    "limit": 2, "lose": 5, "deafen": 2, "flood": 1, "leave": 1, "age": 2,
}  # fmt: skip
# How a stream lets go of messages beside what is asked of it.
STREAMS: tuple[dict[str, Any], ...] = (
    {}, {}, {}, {"retention": "interest"}, {"retention": "workqueue"},
    {"max_age": 4 * SECOND}, {"max_msgs": 6}, {"max_msgs_per_subject": 2},
    {"max_bytes": 600}, {"retention": "interest", "max_age": 6 * SECOND},
)  # fmt: skip
COPIES = ("", "", "", "mirror", "sources")


class QuietError(AssertionError):
    """A consumer that should go on does not, or does not know what is left."""


@dataclass
class Play:
    seed: int
    config: list[dict[str, Any]]
    operations: list[Operation]
    on_disk: bool
    stream: dict[str, Any] = field(default_factory=dict)
    # How the stream gets its messages from another one; nothing: they are published to it.
    copies: str = ""
    # How many a sweep clears away at once.
    swept: int = 4096


def made(seed: int) -> Play:
    """One play; every fourth has a disk and is restarted."""
    chance = random.Random(seed)
    configs = [consumer_config(chance, number) for number in range(chance.choice((1, 1, 2, 3)))]
    kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
    operations = [
        (kind, chance.randrange(1000), chance.randrange(1000), chance.randrange(1000))
        for kind in chance.choices(kinds, weights, k=OPERATIONS)
    ]
    play = Play(seed, configs, operations, on_disk=seed % 4 == 0)
    play.stream = chance.choice(STREAMS)
    play.swept = chance.choice((1, 2, 4096))
    if "retention" not in play.stream and not any("deliver_subject" in one for one in configs):
        play.copies = chance.choice(COPIES)
    if play.stream.get("retention") == "workqueue":
        play.config = [work_queue_config(one, number) for number, one in enumerate(configs)]
    return play


def work_queue_config(config: dict[str, Any], number: int) -> dict[str, Any]:
    """Consumers of a work queue share its subjects and begin at its beginning."""
    left_out = ("deliver_policy", "opt_start_seq", "filter_subject", "filter_subjects")
    kept = {key: value for key, value in config.items() if key not in left_out}
    acks = {"ack_policy": "explicit"} if config["ack_policy"] != "explicit" else {}
    return kept | acks | {"filter_subject": SUBJECTS[number]}


def consumer_config(chance: random.Random, number: int) -> dict[str, Any]:
    name = f"C{number}"
    config: dict[str, Any] = {
        "durable_name": name,
        "ack_policy": chance.choice(("explicit", "explicit", "explicit", "all", "none")),
    }
    config |= chance.choice(FILTERS)
    config |= chance.choice((
        {}, {}, {}, {"deliver_policy": "last"}, {"deliver_policy": "new"},
        {"deliver_policy": "last_per_subject", "filter_subject": "s.>", "filter_subjects": []},
        {"deliver_policy": "by_start_sequence", "opt_start_seq": chance.choice((1, 3, 9))},
    ))  # fmt: skip
    if config["ack_policy"] != "none":
        config |= chance.choice(({}, {"max_ack_pending": 1}, {"max_ack_pending": 3}))
        config |= chance.choice(
            (
                {"ack_wait": 800 * MS},
                {"ack_wait": 3 * SECOND},
                {"backoff": [300 * MS, 2 * SECOND], "max_deliver": 5},
            )
        )
        config |= chance.choice(({}, {}, {"max_deliver": 3}, {"max_deliver": 2}))
    if chance.random() < 0.15:
        config["headers_only"] = True
    if chance.random() < 0.2:
        config["metadata"] = {"martlet.dead_letter_subject": "dead.letters"}
    if chance.random() < 0.4:
        config |= push_config(chance, name)
    elif chance.random() < 0.45:
        config["priority_groups"] = ["g"]
        config["priority_policy"] = chance.choice(("overflow", "pinned_client", "prioritized"))
        if config["priority_policy"] == "pinned_client":
            config["priority_timeout"] = 2 * SECOND
    else:
        config |= chance.choice(({}, {}, {"max_waiting": 2}))
    return config


def push_config(chance: random.Random, name: str) -> dict[str, Any]:
    config: dict[str, Any] = {"deliver_subject": f"to.{name}"}
    config |= chance.choice(({}, {"deliver_group": "g"}))
    config |= chance.choice((
        {}, {"idle_heartbeat": SECOND}, {"idle_heartbeat": SECOND, "flow_control": True},
        {"rate_limit_bps": 40_000_000},
    ))  # fmt: skip
    return config


@dataclass
class Told:
    """What is known of one consumer from outside."""

    config: dict[str, Any]
    delivered: set[int] = field(default_factory=set)
    pin: str = ""
    # It began anew or heard something else: what it has to have delivered is not known.
    is_moved: bool = False


class Player:
    """Plays operations; its invariants hold after each."""

    def __init__(self, play: Play, directory: Path | None) -> None:
        self.play = play
        self.world = SimWorld(directory)
        self.told = {config["durable_name"]: Told(dict(config)) for config in play.config}
        self.unanswered: list[Heard] = []
        self.asked = 0
        self.listening: set[str] = set()
        # Requests of flow control are not answered while it is so.
        self.is_deaf = False
        self.world.engine.hub.swept_at_once_max = play.swept
        if play.copies:
            self.demand(self.world.ask("STREAM.CREATE.O", self.stream_config("O")))
        self.demand(self.world.ask("STREAM.CREATE.S", self.stream_config("S")))
        for number in range(4):
            self.world.publish(SUBJECTS[number % 3], b"first")
        self.world.settle()
        for config in play.config:
            self.demand(self.create(config))

    def stream_config(self, name: str, **more: Any) -> dict[str, Any]:
        """S is what consumers are made on; O, where there is one, is what S copies."""
        storage = "file" if self.play.on_disk else "memory"
        config: dict[str, Any] = {"name": name, "storage": storage}
        if name == "S" and self.play.copies == "mirror":
            config["mirror"] = {"name": "O"}
        elif name == "S" and self.play.copies == "sources":
            config["sources"] = [{"name": "O"}]
        else:
            config["subjects"] = ["s.>"]
        return config | (self.play.stream if name == "S" else {}) | more

    @staticmethod
    def demand(answer: dict[str, Any]) -> None:
        if "error" in answer:
            raise QuietError(f"refused: {answer['error']}")

    def create(self, config: dict[str, Any]) -> dict[str, Any]:
        name = config["durable_name"]
        return self.world.ask(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})

    def close(self) -> None:
        self.world.close()

    def run(self) -> None:
        for operation in self.play.operations:
            getattr(self, operation[0])(*operation[1:])
            self.world.settle()
            self.collect()
            self.check_counts()
        self.drain()

    def name(self, number: int) -> str:
        return list(self.told)[number % len(self.told)]

    # Operations

    def publish(self, subject: int, count: int, size: int) -> None:
        for _ in range(count % 7 + 1):
            self.world.publish(SUBJECTS[subject % 3], b"x" * (size % 60))

    def pull(self, number: int, how: int, more: int) -> None:
        name = self.name(number)
        body: dict[str, Any] = {"batch": more % 9 + 1}
        body |= (
            {}, {"no_wait": True}, {"expires": 900 * MS}, {"expires": 2 * SECOND},
            {"expires": 2 * SECOND, "idle_heartbeat": 300 * MS},
            {"no_wait": True, "expires": 700 * MS}, {"max_bytes": 150, "expires": SECOND},
        )[how % 7]  # fmt: skip
        self.request(name, body, more)

    def request(self, name: str, body: dict[str, Any], more: int = 0) -> None:
        told = self.told[name]
        policy = told.config.get("priority_policy")
        if policy:
            body["group"] = "g"
        if policy == "pinned_client" and told.pin and more % 3 != 1:
            body["id"] = told.pin
        if policy == "overflow" and more % 3 == 1:
            body["min_pending"] = more % 5 + 1
        if policy == "prioritized":
            body["priority"] = more % 10
        self.asked += 1
        label = f"{name}:{self.asked}"
        self.world.listen(label, f"p.{self.asked}")
        to = f"$JS.API.CONSUMER.MSG.NEXT.S.{name}"
        self.world.publish(to, json.dumps(body).encode(), reply=f"p.{self.asked}")

    def answer(self, which: int, how: int, more: int) -> None:
        if not self.unanswered:
            return
        heard = self.unanswered[which % len(self.unanswered)]
        kind = KINDS[how % len(KINDS)]
        if kind not in (b"+WPI",) and more % 4:
            self.unanswered.remove(heard)
        self.answer_one(heard, kind)

    def answer_one(self, heard: Heard, kind: bytes) -> None:
        self.world.publish(heard.reply, kind, reply="r.ack" if kind == b"+ACK" else "")

    def lose(self, which: int, how: int, more: int) -> None:
        """A client that goes away: its requests and what it got are forgotten."""
        for number in range(max(self.asked - how % 4, 0), self.asked + 1):
            for name in self.told:
                self.world.unlisten(f"{name}:{number}")
        if self.unanswered:
            del self.unanswered[which % len(self.unanswered) :]

    def deafen(self, how: int, more: int, most: int) -> None:
        self.is_deaf = bool(how % 2)

    def flood(self, subject: int, how: int, more: int) -> None:
        """More than a window of flow control."""
        for _ in range(6):
            self.world.publish(SUBJECTS[subject % 3], b"x" * 500_000)

    def listen(self, number: int, how: int, more: int) -> None:
        name = self.name(number)
        config = self.told[name].config
        if "deliver_subject" not in config or name in self.listening:
            return
        self.listening.add(name)
        self.world.listen(name, config["deliver_subject"], config.get("deliver_group", ""))

    def unlisten(self, number: int, how: int, more: int) -> None:
        name = self.name(number)
        if name in self.listening:
            self.listening.discard(name)
            self.world.unlisten(name)

    def delete(self, seq: int, how: int, more: int) -> None:
        last = self.world.stream().state().last_seq
        self.world.ask("STREAM.MSG.DELETE.S", {"seq": seq % (last + 1) + 1})

    def purge(self, how: int, seq: int, more: int) -> None:
        last = self.world.stream().state().last_seq
        body = ({}, {"seq": seq % (last + 2)}, {"keep": seq % 4}, {"filter": SUBJECTS[seq % 3]})
        self.world.ask("STREAM.PURGE.S", body[how % 4])

    def limit(self, most: int, how: int, more: int) -> None:
        body = self.stream_config("S", max_msgs=(-1, 5, 20)[most % 3])
        self.world.ask("STREAM.UPDATE.S", body)

    def age(self, how: int, more: int, most: int) -> None:
        """Messages get old while they are pending."""
        self.world.ask(
            "STREAM.UPDATE.S", self.stream_config("S", max_age=(0, 2 * SECOND, 5 * SECOND)[how % 3])
        )

    def leave(self, number: int, how: int, more: int) -> None:
        """A consumer goes, and comes back: what only it waited for may be gone."""
        name = self.name(number)
        if "deliver_subject" in self.told[name].config or len(self.told) == 1:
            return
        self.world.ask(f"CONSUMER.DELETE.S.{name}")
        self.told[name].is_moved = True
        self.told[name].pin = ""
        self.unanswered = [each for each in self.unanswered if f".{name}." not in each.reply]
        self.world.pass_time((0.0, 0.02, 0.5)[how % 3])
        if "error" in self.create(self.told[name].config):
            # Of a work queue, where the others' filters may have grown by updates.
            del self.told[name]

    def update(self, number: int, how: int, more: int) -> None:
        told = self.told[self.name(number)]
        config = dict(told.config)
        acks = config["ack_policy"] != "none"
        change: dict[str, Any] = (
            {"max_ack_pending": more % 4 + 1} if acks else {},
            {"description": str(more)},
            {"max_deliver": more % 3 + 3} if acks and "backoff" not in config else {},
            {"headers_only": bool(more % 2)},
            FILTERS[more % 4],
        )[how % 5]
        if how % 5 == 4:
            if config.get("deliver_policy") == "last_per_subject":
                return
            config.pop("filter_subject", None)
            config.pop("filter_subjects", None)
            told.is_moved = True
        config |= change
        if "error" not in self.create(config):
            told.config = config

    def pause(self, number: int, how: int, more: int) -> None:
        now_s = self.world.world.now_ns // SECOND + how % 6
        until = FAR if more % 3 == 0 else f"1970-01-01T00:{now_s // 60 % 60:02d}:{now_s % 60:02d}Z"
        self.world.ask(f"CONSUMER.PAUSE.S.{self.name(number)}", {"pause_until": until})

    def resume(self, number: int, how: int, more: int) -> None:
        self.world.ask(f"CONSUMER.PAUSE.S.{self.name(number)}")

    def reset(self, number: int, how: int, more: int) -> None:
        name = self.name(number)
        self.told[name].is_moved = True
        self.world.ask(f"CONSUMER.RESET.S.{name}", {"seq": more % 12} if how % 2 else b"")

    def unpin(self, number: int, how: int, more: int) -> None:
        self.world.ask(f"CONSUMER.UNPIN.S.{self.name(number)}", {"group": "g"})

    def wait(self, how: int, more: int, most: int) -> None:
        self.world.pass_time((0.05, 0.4, 1.0, 2.5)[how % 4])

    def restart(self, how: int, more: int, most: int) -> None:
        if not self.play.on_disk:
            return
        self.world.settle()
        self.collect()
        before = {}
        if how % 2 == 0:
            # An end to what is being cleared away.
            self.world.pass_time(1.0)
            self.collect()
            before = self.kept_states()
        self.world.restart(is_kill=bool(how % 2))
        self.world.engine.hub.swept_at_once_max = self.play.swept
        after = self.kept_states()
        for name, state in before.items():
            if state != after.get(name):
                raise QuietError(f"{name} was {state} and is {after.get(name)} after a restart")
        self.listening.clear()
        for told in self.told.values():
            told.pin = ""

    def kept_states(self) -> dict[str, tuple[int, ...]]:
        """What an orderly restart leaves as it was, where nothing is being cleared away."""
        if self.world.stream().feed.is_sweeping:
            return {}
        return {
            name: (
                consumer.core.ack_pending, consumer.core.redelivered, consumer.core.num_pending,
                consumer.core.delivered_seq, consumer.core.next_consumer_seq,
                consumer.core.floor_seq, consumer.core.floor_consumer_seq,
            )
            for name, consumer in self.world.consumers().items()
        }  # fmt: skip

    # What came

    def collect(self) -> None:
        for label, queue in list(self.world.queues.items()):
            for heard in queue:
                self.take(label.partition(":")[0], heard)
            queue.clear()

    def take(self, name: str, heard: Heard) -> None:
        told = self.told.get(name)
        if told is None:
            return
        if heard.place is not None:
            told.delivered.add(heard.place[1])
            self.unanswered.append(heard)
            if found := PIN.search(heard.headers):
                told.pin = found[1].decode()
        elif heard.headers.startswith(b"NATS/1.0 423"):
            # The place is somebody else's: this client stands by.
            told.pin = ""
        elif b"FlowControl" in heard.headers and not self.is_deaf:
            self.world.publish(heard.reply)
        elif (stalled := STALLED.search(heard.headers)) and not self.is_deaf:
            self.world.publish(stalled[1].decode())

    # What must hold

    def check_counts(self) -> None:
        for name, consumer in self.world.consumers().items():
            counted = consumer.core.num_pending
            consumer.core.recount()
            if counted != consumer.core.num_pending:
                left = consumer.core.num_pending
                raise QuietError(f"{name} counts {counted} where {left} are left")
        if self.world.warnings:
            raise QuietError(f"warned: {self.world.warnings}")

    def drain(self) -> None:
        self.is_deaf = False
        for number in range(len(self.told)):
            self.resume(number, 0, 0)
            self.listen(number, 0, 0)
        for last in (False, True):
            for _ in range(ROUNDS):
                self.help()
                if not self.left():
                    break
            if left := self.left():
                raise QuietError(f"quiet {'at the end' if last else ''}: {left}")
            if not last:
                for subject in SUBJECTS:
                    self.world.publish(subject, b"last")
                self.world.settle()
        self.check_delivered()

    def help(self) -> None:
        """A round in which everybody asks and acknowledges."""
        for name, told in self.told.items():
            if "deliver_subject" not in told.config:
                self.request(name, {"batch": 200, "expires": SECOND})
        self.world.settle()
        for _ in range(3):
            self.collect()
            answers, self.unanswered = self.unanswered, []
            for heard in answers:
                self.answer_one(heard, b"+ACK")
            self.world.settle()
        self.world.pass_time(ROUND_S)
        self.collect()
        self.check_counts()

    def left(self) -> dict[str, str]:
        found = {}
        for name, consumer in self.world.consumers().items():
            core = consumer.core
            if core.num_pending or core.ack_pending:
                found[name] = f"{core.num_pending} to deliver, {core.ack_pending} to acknowledge"
        return found

    def check_delivered(self) -> None:
        """What is in the stream and was there to be heard was heard."""
        stream = self.world.stream()
        message = stream.store.load_next(1)
        while message is not None:
            for name, told in self.told.items():
                config = told.config
                if told.is_moved or config.get("deliver_policy", "all") != "all":
                    continue
                one = config.get("filter_subject")
                filters = [one] if one else config.get("filter_subjects") or [">"]
                heard = any(matches(message.subject, each) for each in filters)
                if heard and message.seq not in told.delivered:
                    raise QuietError(f"{name} never delivered {message.seq}")
            message = stream.store.load_next(message.seq + 1)


def problem(play: Play, directory: Path | None) -> str:
    """Why a play fails; nothing when all is well."""
    player = Player(play, directory if play.on_disk else None)
    try:
        player.run()
    except QuietError as error:
        return str(error)
    finally:
        with contextlib.suppress(Exception):
            player.close()
    return ""


def shorter(play: Play, fresh: Any) -> Play:
    """The play without all operations that it fails without."""
    size = len(play.operations) // 2
    while size:
        at = 0
        while at < len(play.operations):
            less = play.operations[:at] + play.operations[at + size :]
            tried = replace(play, operations=less)
            if problem(tried, fresh()):
                play = tried
            else:
                at += size
        size //= 2
    return play
