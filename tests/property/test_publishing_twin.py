"""Publishes of every kind to a real stream and to its plain twin: answers and content are equal.

The stream runs over the simulator's clock, in memory or in a directory on disk; in a directory it
is now and then killed and opened again.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.property.oracles import publishing
from tests.property.oracles.publishing import Headers, Publish, Rules, block_of
from tests.sim.world import SimWorld

SUBJECTS = ("a.x", "a.y", "b")
PAYLOADS = ("", "x", "y" * 40)
RULES = st.builds(
    Rules,
    max_msgs=st.sampled_from([-1, -1, 3, 6]),
    max_msgs_per_subject=st.sampled_from([-1, -1, 1, 2]),
    max_msg_size=st.sampled_from([-1, -1, 70]),
    max_age_s=st.sampled_from([0, 0, 10]),
    duplicate_window_s=st.sampled_from([3, 10]),
    discard=st.sampled_from(["old", "new"]),
    discard_new_per_subject=st.booleans(),
    allow_rollup_hdrs=st.booleans(),
    allow_msg_ttl=st.booleans(),
    allow_msg_counter=st.sampled_from([False, False, True]),
    allow_atomic=st.booleans(),
)
NUMBERS = st.sampled_from(["0", "1", "2", "3", "x", "", "last", "subject"])
IDS = st.sampled_from(["", "m1", "m2", "m3"])
FIELDS: dict[str, st.SearchStrategy[str]] = {
    "Nats-Msg-Id": IDS,
    "Nats-Expected-Stream": st.sampled_from(["S", "T"]),
    "Nats-Expected-Last-Sequence": NUMBERS,
    "Nats-Expected-Last-Subject-Sequence": NUMBERS,
    "Nats-Expected-Last-Subject-Sequence-Subject": st.sampled_from(["a.x", "a.*", "b"]),
    "Nats-Expected-Last-Msg-Id": IDS,
    "Nats-Rollup": st.sampled_from(["sub", "all", "SUB", "none"]),
    "Nats-TTL": st.sampled_from(["1", "5s", "2m", "never", "0", "20ms", "1500ms", "-1", "soon"]),
    "Nats-Incr": st.sampled_from(["1", "+5", "-3", "0", "99999999999999999999", "1.5", "x"]),
    "Nats-Stream-Source": st.just("S 1"),
    "Other": st.just("z"),
}
NAMES = st.lists(st.sampled_from([*FIELDS, "Nats-Msg-Id", "Nats-Incr"]), max_size=3, unique=True)


@st.composite
def publishes(draw: st.DrawFn) -> Publish:
    names = draw(NAMES)
    given = {name: draw(FIELDS[name]) for name in names}
    return Publish(draw(st.sampled_from(SUBJECTS)), draw(st.sampled_from(PAYLOADS)), given)


def settled(rules: Rules) -> Rules:
    """Without what the server refuses together."""
    if rules.discard == "old" or rules.max_msgs_per_subject < 0:
        rules.discard_new_per_subject = False
    if rules.allow_msg_counter:
        rules.discard, rules.discard_new_per_subject = "old", False
        rules.allow_msg_ttl = False
    return rules


def configuration(rules: Rules, storage: str) -> dict[str, Any]:
    return {
        "name": "S",
        "subjects": ["a.*", "b"],
        "storage": storage,
        "max_msgs": rules.max_msgs,
        "max_msgs_per_subject": rules.max_msgs_per_subject,
        "max_msg_size": rules.max_msg_size,
        "max_age": rules.max_age_s * publishing.SECOND_NS,
        "duplicate_window": rules.duplicate_window_s * publishing.SECOND_NS,
        "discard": rules.discard,
        "discard_new_per_subject": rules.discard_new_per_subject,
        "allow_rollup_hdrs": rules.allow_rollup_hdrs,
        "allow_msg_ttl": rules.allow_msg_ttl,
        "allow_msg_counter": rules.allow_msg_counter,
        "allow_atomic": rules.allow_atomic,
    }


class Publishing(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory: Path | None = None
        self.batches = 0

    @initialize(rules=RULES, on_disk=st.booleans())
    def begin(self, rules: Rules, on_disk: bool) -> None:
        if on_disk:
            self.directory = Path(tempfile.mkdtemp())
        self.world = SimWorld(self.directory)
        self.model = publishing.Stream(settled(rules))
        self.config = configuration(rules, "file" if on_disk else "memory")
        answer = self.world.ask("STREAM.CREATE.S", self.config)
        assert "error" not in answer, answer

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.close()
        if self.directory is not None:
            shutil.rmtree(self.directory)

    @property
    def now_ns(self) -> int:
        return self.world.world.now_ns

    # What is asked

    def filled(self, asked: Publish) -> Publish:
        """Numbers that are right at the moment, in place of the words for them."""
        right = {
            "last": str(self.model.last_seq),
            "subject": str(max(self.model.of(asked.subject), default=0)),
        }
        given = {name: right.get(text, text) for name, text in asked.headers.items()}
        return Publish(asked.subject, asked.payload, given)

    def send(self, asked: Publish, more: Headers | None = None) -> dict[str, Any]:
        """The parts of the answer that the model tells as well; nothing for an empty one."""
        head = block_of(asked.headers | (more or {}))
        self.world.publish(asked.subject, asked.payload.encode(), "r.1", head)
        self.world.settle()
        (heard,) = self.world.queues.pop("answers")
        if not heard.payload:
            return {}
        answer: dict[str, Any] = json.loads(heard.payload)
        assert answer.pop("stream") == "S"
        error = answer.pop("error", None)
        if error is None:
            return answer
        assert answer == {"seq": 0}
        return {key: error[key] for key in ("err_code", "description")}

    def same(self, ours: dict[str, Any], expected: dict[str, Any]) -> None:
        assert {key: ours.get(key) for key in expected} == expected, (ours, expected)
        assert ("err_code" in ours) == ("err_code" in expected)
        assert ("duplicate" in ours) == ("duplicate" in expected)

    # Rules

    @rule(asked=publishes())
    def publish(self, asked: Publish) -> None:
        asked = self.filled(asked)
        self.same(self.send(asked), self.model.publish(asked, self.now_ns))

    @rule(asked=st.lists(publishes(), min_size=1, max_size=4))
    def batch(self, asked: list[Publish]) -> None:
        self.batches += 1
        batch_id = f"b{self.batches}"
        asked = [self.filled(each) for each in asked]
        for number, each in enumerate(asked, 1):
            more = {"Nats-Batch-Id": batch_id, "Nats-Batch-Sequence": str(number)}
            if number == len(asked):
                more["Nats-Batch-Commit"] = "1"
            each.headers |= more
            ours = self.send(each)
            if number < len(asked) and "err_code" in ours:
                break
        expected = self.model.batch(asked, batch_id, self.now_ns)
        if ours != {} and number < len(asked):
            # A refusal before the end; the rest was not sent.
            assert ours["err_code"] in (10109, 10054, 10174)
            assert "err_code" in expected
            self.world.pass_time(11)  # what is open of it is forgotten
            self.model.time_is(self.now_ns)
            return
        self.same(ours, expected)

    @rule(seconds=st.sampled_from([0.301, 1.703, 4.011, 11.07]))
    def wait(self, seconds: float) -> None:
        self.world.pass_time(seconds)
        self.model.time_is(self.now_ns)

    @precondition(lambda self: self.directory is not None)
    @rule(is_kill=st.booleans())
    def restart(self, is_kill: bool) -> None:
        self.world.restart(is_kill)
        # What lasts of an id is the message that has it.
        alive = set(self.model.kept)
        self.model.ids = {id: at for id, at in self.model.ids.items() if at[0] in alive}
        last = self.model.kept.get(self.model.last_seq)
        self.model.last_id = last.headers.get("Nats-Msg-Id", "") if last is not None else ""

    @precondition(lambda self: self.model.last_seq > 8 and not self.model.rules.sealed)
    @rule()
    def seal(self) -> None:
        if self.model.rules.max_age_s == 0:
            self.model.rules.sealed = True
            answer = self.world.ask("STREAM.UPDATE.S", self.config | {"sealed": True})
            assert "error" not in answer, answer

    @invariant()
    def what_is_stored_is_equal(self) -> None:
        if not hasattr(self, "world"):
            return
        stream = self.world.stream()
        assert stream.store.last_seq == self.model.last_seq
        found, message = {}, stream.store.load_next(1)
        while message is not None:
            found[message.seq] = (message.subject, message.headers, message.payload)
            message = stream.store.load_next(message.seq + 1)
        assert found == {
            seq: (kept.subject, block_of(kept.headers).encode(), kept.payload.encode())
            for seq, kept in self.model.kept.items()
        }


TestPublishing = pytest.mark.feature("3.006", "3.011", "3.013", "3.017", "3.018", "3.029", "3.042")(
    Publishing.TestCase
)
TestPublishing.settings = settings(
    max_examples=30,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
