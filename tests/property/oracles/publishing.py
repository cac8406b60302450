"""A stream as a publisher sees it, in plain Python: every check in its order, every limit by hand.

Nothing here is fast or clever. Headers are a mapping; a message is kept in a dictionary by its
sequence. Left out: schedules, fast batches, sizes of records, sources.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

SECOND_NS = 1_000_000_000
Headers = dict[str, str]
NOT_WITH_INCREMENT = ("Nats-Rollup", "Nats-Expected-")


class Refused(Exception):
    def __init__(self, err_code: int, text: str = "") -> None:
        super().__init__(err_code)
        self.told = {"err_code": err_code} | ({"description": text} if text else {})


@dataclass
class Rules:
    """The part of a stream's configuration that publishing looks at."""

    max_msgs: int = -1
    max_msgs_per_subject: int = -1
    max_msg_size: int = -1
    max_age_s: int = 0
    duplicate_window_s: int = 120
    discard: str = "old"
    discard_new_per_subject: bool = False
    allow_rollup_hdrs: bool = False
    allow_msg_ttl: bool = False
    allow_msg_counter: bool = False
    allow_atomic: bool = False
    sealed: bool = False


@dataclass
class Kept:
    subject: str
    headers: Headers
    payload: str
    at_ns: int
    ends_ns: int | None


@dataclass
class Batch:
    """What a batch has done so far, while it is checked."""

    ids: set[str] = field(default_factory=set)
    totals: dict[str, int] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)


@dataclass
class Publish:
    subject: str
    payload: str
    headers: Headers


class Stream:
    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.kept: dict[int, Kept] = {}
        self.last_seq = 0
        self.last_id = ""
        self.ids: dict[str, tuple[int, int]] = {}

    # Looking

    def of(self, subject: str) -> list[int]:
        return [seq for seq, kept in self.kept.items() if kept.subject == subject]

    def matching(self, pattern: str) -> list[int]:
        wanted = re.compile(re.escape(pattern).replace(r"\*", r"[^.]+"))
        return [seq for seq, kept in self.kept.items() if wanted.fullmatch(kept.subject)]

    def total(self, subject: str) -> int:
        found = self.of(subject)
        if not found:
            return 0
        text = re.search(r'"val":"(-?\d+)"', self.kept[found[-1]].payload)
        assert text is not None
        return int(text[1])

    # Time

    def time_is(self, now_ns: int) -> None:
        """What is over leaves."""
        for seq, kept in list(self.kept.items()):
            if kept.ends_ns is not None and kept.ends_ns <= now_ns:
                del self.kept[seq]

    def seen(self, message_id: str, now_ns: int) -> int:
        seq, at_ns = self.ids.get(message_id, (0, 0))
        is_old = now_ns - at_ns >= self.rules.duplicate_window_s * SECOND_NS
        return 0 if is_old else seq

    # Publishing

    def publish(self, asked: Publish, now_ns: int) -> dict[str, Any]:
        try:
            return self.plain(asked, now_ns)
        except Refused as refused:
            return refused.told

    def plain(self, asked: Publish, now_ns: int) -> dict[str, Any]:
        rules, given = self.rules, asked.headers
        if rules.sealed:
            raise Refused(10109)
        self.check_increment(asked)
        self.check_stream(given)
        ttl = ttl_of(given)
        if ttl not in (None, "bad") and not rules.allow_msg_ttl:
            raise Refused(10166)
        self.check_subject_seq(asked, None)
        self.check_last_seq(given, None)
        if given.get("Nats-Stream-Source"):
            raise Refused(10227)
        message_id = given.get("Nats-Msg-Id", "")
        if message_id and (seq := self.seen(message_id, now_ns)):
            return {"seq": seq, "duplicate": True}
        wanted = given.get("Nats-Expected-Last-Msg-Id")
        if wanted and wanted != self.last_id:
            raise Refused(10070, f"wrong last msg ID: {self.last_id}")
        self.check_rollup(asked, None)
        payload, told = self.counted(asked, None)
        self.check_size(asked, payload)
        if ttl == "bad":
            raise Refused(10165)
        return {"seq": self.keep(asked, payload, ttl, now_ns)} | told

    def batch(self, asked: list[Publish], batch_id: str, now_ns: int) -> dict[str, Any]:
        """All of them, or what the first one is refused with."""
        try:
            return self.whole(asked, batch_id, now_ns)
        except Refused as refused:
            return refused.told

    def whole(self, asked: list[Publish], batch_id: str, now_ns: int) -> dict[str, Any]:
        for at, each in enumerate(asked):
            if self.rules.sealed:
                raise Refused(10109)
            if self.too_long(each, each.payload):
                # The message is none of the batch's: what follows it has a gap before it.
                raise Refused(10054 if at == len(asked) - 1 else 10176)
            if not self.rules.allow_atomic:
                raise Refused(10174)
        state, payloads = Batch(), []
        for each in asked:
            if each.headers.get("Nats-Expected-Last-Msg-Id"):
                raise Refused(10177)
            payloads.append(self.check_in_batch(each, state, now_ns))
        seq = 0
        for each, payload in zip(asked, payloads, strict=True):
            ttl = ttl_of(each.headers)
            assert ttl != "bad"
            seq = self.keep(each, payload, ttl, now_ns)
        return {"seq": seq, "batch": batch_id, "count": len(asked)}

    def check_in_batch(self, asked: Publish, state: Batch, now_ns: int) -> str:
        """The order of checks is another one; the payload to store."""
        given = asked.headers
        self.check_increment(asked)
        self.check_stream(given)
        ttl = ttl_of(given)
        if ttl is not None and not self.rules.allow_msg_ttl:
            raise Refused(10166)
        if ttl == "bad":
            raise Refused(10165)
        message_id = given.get("Nats-Msg-Id", "")
        if message_id and (message_id in state.ids or self.seen(message_id, now_ns)):
            raise Refused(10201)
        state.ids.add(message_id)
        if given.get("Nats-Stream-Source"):
            raise Refused(10227)
        payload, _ = self.counted(asked, state)
        self.check_last_seq(given, state)
        self.check_subject_seq(asked, state)
        self.check_rollup(asked, state)
        state.written.append(asked.subject)
        self.check_room(asked, state)
        return payload

    # Checks

    def check_increment(self, asked: Publish) -> None:
        text = asked.headers.get("Nats-Incr")
        if not text:
            return
        if not re.fullmatch(r"[+-]?\d+", text):
            raise Refused(10171)
        if not self.rules.allow_msg_counter:
            raise Refused(10168)
        if asked.payload:
            raise Refused(10170)
        if any(
            name.startswith(NOT_WITH_INCREMENT) and asked.headers[name] for name in asked.headers
        ):
            raise Refused(10171)

    def check_stream(self, given: Headers) -> None:
        if given.get("Nats-Expected-Stream", "S") != "S":
            raise Refused(10060)

    def check_subject_seq(self, asked: Publish, state: Batch | None) -> None:
        text = asked.headers.get("Nats-Expected-Last-Subject-Sequence")
        other = asked.headers.get("Nats-Expected-Last-Subject-Sequence-Subject")
        if not text:
            if other:
                raise Refused(10193)
            return
        subject = other or asked.subject
        if state is not None and subject in state.written:
            raise Refused(10164)
        found = max(self.matching(subject), default=0)
        if not text.isdigit() or int(text) != found:
            raise Refused(10071, f"wrong last sequence: {found}")

    def check_last_seq(self, given: Headers, state: Batch | None) -> None:
        text = given.get("Nats-Expected-Last-Sequence")
        if not text:
            return
        before = len(state.written) if state is not None else 0
        if not text.isdigit() or int(text) != self.last_seq + before:
            raise Refused(10071, f"wrong last sequence: {self.last_seq + before}")
        if before:
            raise Refused(10164)

    def check_rollup(self, asked: Publish, state: Batch | None) -> None:
        word = asked.headers.get("Nats-Rollup", "").lower()
        if not word:
            return
        if not self.rules.allow_rollup_hdrs:
            raise Refused(10111, "rollup not permitted")
        if word not in ("sub", "all"):
            raise Refused(10111, f'rollup value invalid: "{word}"')
        if state is None:
            return
        if word == "sub" and asked.subject in state.written:
            raise Refused(10111, "batch rollup sub invalid")
        if word == "all" and state.written:
            raise Refused(10111, "batch rollup all invalid")

    def counted(self, asked: Publish, state: Batch | None) -> tuple[str, dict[str, str]]:
        """The payload to store; of a counter its new total."""
        if not self.rules.allow_msg_counter:
            return asked.payload, {}
        if "Nats-Incr" not in asked.headers:
            raise Refused(10169)
        before = self.total(asked.subject)
        if state is not None:
            before = state.totals.get(asked.subject, before)
        after = before + int(asked.headers["Nats-Incr"])
        payload = f'{{"val":"{after}"}}'
        if state is not None:
            state.totals[asked.subject] = after
            if self.too_long(asked, payload):
                raise Refused(10054)
        return payload, {"val": str(after)}

    def too_long(self, asked: Publish, payload: str) -> bool:
        return 0 <= self.rules.max_msg_size < len(block_of(asked.headers)) + len(payload)

    def check_size(self, asked: Publish, payload: str) -> None:
        if self.too_long(asked, payload):
            raise Refused(10054)

    def check_room(self, asked: Publish, state: Batch) -> None:
        """A batch must fit as a whole into a stream that discards what is new."""
        rules = self.rules
        if rules.discard != "new":
            return
        if 0 < rules.max_msgs < len(self.kept) + len(state.written):
            raise Refused(10077, "maximum messages exceeded")
        if rules.discard_new_per_subject and not asked.headers.get("Nats-Rollup"):
            held = len(self.of(asked.subject)) + state.written.count(asked.subject)
            if held > rules.max_msgs_per_subject:
                raise Refused(10077, "maximum messages per subject exceeded")

    # Storing

    def keep(self, asked: Publish, payload: str, ttl: int | str | None, now_ns: int) -> int:
        rules, given = self.rules, asked.headers
        same, most = self.of(asked.subject), rules.max_msgs_per_subject
        replaces = 0 < most <= len(same)
        if rules.discard == "new":
            if replaces and rules.discard_new_per_subject and not given.get("Nats-Rollup"):
                raise Refused(10077, "maximum messages per subject exceeded")
            if 0 < rules.max_msgs <= len(self.kept) and not replaces:
                raise Refused(10077, "maximum messages exceeded")
        self.last_seq += 1
        ends_ns = None if ttl == "never" else self.end_of(ttl, now_ns)
        self.kept[self.last_seq] = Kept(asked.subject, given, payload, now_ns, ends_ns)
        self.last_id = given.get("Nats-Msg-Id", "")
        if self.last_id:
            self.ids[self.last_id] = (self.last_seq, now_ns)
        self.drop(self.of(asked.subject), most)
        self.drop(list(self.kept), rules.max_msgs)
        word = given.get("Nats-Rollup", "").lower()
        self.drop(self.of(asked.subject) if word == "sub" else [], 1)
        self.drop(list(self.kept) if word == "all" else [], 1)
        return self.last_seq

    def end_of(self, ttl: int | str | None, now_ns: int) -> int | None:
        lives = [s for s in (ttl, self.rules.max_age_s or None) if isinstance(s, int)]
        return now_ns + min(lives) * SECOND_NS if lives else None

    def drop(self, seqs: list[int], most: int) -> None:
        """The oldest of them, until there are no more than `most`."""
        if most > 0:
            for seq in seqs[: max(len(seqs) - most, 0)]:
                del self.kept[seq]


def ttl_of(given: Headers) -> int | str | None:
    """Seconds, "never", "bad", or None for no time to live."""
    text = given.get("Nats-TTL")
    if not text:
        return None
    if text == "never":
        return text
    found = re.fullmatch(r"(\d+)(s|m|ms)?", text)
    if found is None:
        return "bad"
    number, unit = int(found[1]), found[2]
    if unit == "ms":
        return number // 1000 if number >= 1000 else "bad"
    if unit is None:
        return number or None if number else "bad"
    return (number * (60 if unit == "m" else 1)) or "bad"


def block_of(given: Headers) -> str:
    """The header block as it is published."""
    lines = [f"{name}: {text}\r\n" for name, text in given.items()]
    return "NATS/1.0\r\n" + "".join(lines) + "\r\n" if given else ""
