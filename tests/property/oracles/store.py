"""The store as a plain list of messages: slow, and obviously right."""

from __future__ import annotations

from dataclasses import dataclass, field

from storage.ports import (
    BytesLimitError,
    Discard,
    Expired,
    MessagesLimitError,
    StoredMessage,
    StoreLimits,
    SubjectMessagesLimitError,
    SubjectState,
)


def matches(subject: str, filters: str | list[str] | None) -> bool:
    if filters is None:
        return True
    if isinstance(filters, str):
        filters = [filters]
    return any(one_matches(subject.split("."), one.split(".")) for one in filters)


def one_matches(tokens: list[str], wanted: list[str]) -> bool:
    for i, want in enumerate(wanted):
        if want == ">" and i == len(wanted) - 1:
            return len(tokens) > i
        if i >= len(tokens) or want not in ("*", tokens[i]):
            return False
    return len(tokens) == len(wanted)


@dataclass
class StoreTwin:
    limits: StoreLimits
    overhead: int
    """Counted bytes of a message beyond its subject, headers and payload."""
    header_overhead: int = 0
    messages: dict[int, StoredMessage] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    last_seq: int = 0
    last_ts_ns: int = 0

    def size(self, message: StoredMessage) -> int:
        body = len(message.subject) + len(message.headers) + len(message.payload)
        return body + self.overhead + (self.header_overhead if message.headers else 0)

    @property
    def bytes(self) -> int:
        return sum(self.size(message) for message in self.messages.values())

    @property
    def first_seq(self) -> int:
        if self.messages:
            return min(self.messages)
        return self.floor

    floor: int = 0

    def settle(self) -> None:
        """An empty stream begins behind its last sequence."""
        if not self.messages and self.last_seq:
            self.floor = self.last_seq + 1

    def of(self, subject: str) -> list[int]:
        return [seq for seq, message in sorted(self.messages.items()) if message.subject == subject]

    def matching(self, filters: str | list[str] | None, seq: int = 0) -> list[int]:
        return [
            at
            for at, message in sorted(self.messages.items())
            if at >= seq and matches(message.subject, filters)
        ]

    def check(self, message: StoredMessage) -> None:
        if self.limits.discard is Discard.OLD:
            return
        most, own = self.limits.messages_per_subject_max, self.of(message.subject)
        replaces = 0 < most <= len(own)
        if replaces and self.limits.discard_new_per_subject:
            raise SubjectMessagesLimitError
        if 0 < self.limits.messages_max <= len(self.messages) and not replaces:
            raise MessagesLimitError
        if 0 < self.limits.bytes_max < self.bytes + self.size(message) and (
            not replaces or self.size(self.messages[own[0]]) < self.size(message)
        ):
            raise BytesLimitError

    def store(
        self, subject: str, headers: bytes, payload: bytes, ts_ns: int, ttl_ns: int = 0
    ) -> int:
        message = StoredMessage(self.last_seq + 1, ts_ns, subject, headers, payload)
        self.check(message)
        self.last_seq += 1
        self.last_ts_ns = ts_ns
        self.messages[self.last_seq] = message
        if ttl_ns > 0 and self.limits.allow_ttl:
            self.ends[self.last_seq] = ts_ns + ttl_ns
        self.trim(subject)
        self.settle()
        return self.last_seq

    def trim(self, subject: str) -> None:
        most = self.limits.messages_per_subject_max
        while 0 < most < len(self.of(subject)):
            del self.messages[self.of(subject)[0]]
        while self.messages and (
            0 < self.limits.messages_max < len(self.messages)
            or 0 < self.limits.bytes_max < self.bytes
        ):
            del self.messages[min(self.messages)]

    def set_limits(self, limits: StoreLimits) -> None:
        self.limits = limits

    def enforce(self) -> None:
        for message in list(self.messages.values()):
            self.trim(message.subject)
        self.settle()

    def skip(self, count: int) -> None:
        self.last_seq += count
        self.settle()

    def delete(self, seq: int) -> bool:
        found = self.messages.pop(seq, None) is not None
        self.settle()
        return found

    def purge(self, filters: str | list[str] | None, seq: int, keep: int) -> int:
        if seq == 1:
            return 0
        going = self.matching(filters)
        if keep:
            going = going[: max(len(going) - keep, 0)]
        going = [at for at in going if seq == 0 or at < seq]
        for at in going:
            del self.messages[at]
        self.settle()
        return len(going)

    def compact(self, seq: int) -> int:
        if self.first_seq > seq:
            return 0
        purged = self.purge(None, seq, 0) if seq > 1 else 0
        if seq > self.last_seq:
            self.last_seq = seq - 1
            self.floor = seq
        return purged

    def truncate(self, seq: int) -> None:
        if seq >= self.last_seq:
            return
        self.messages = {at: m for at, m in self.messages.items() if at <= seq}
        self.ends = {at: end for at, end in self.ends.items() if at <= seq}
        self.last_seq = seq
        if seq in self.messages:
            self.last_ts_ns = self.messages[seq].ts_ns
        if seq == 0:
            self.floor = self.last_ts_ns = 0
        self.settle()

    def expire(self, now_ns: int) -> Expired:
        removed: list[int] = []
        if self.limits.age_max_ns:
            for seq, message in sorted(self.messages.items()):
                if message.ts_ns > now_ns - self.limits.age_max_ns:
                    break
                if not (self.limits.allow_ttl and b"never" in message.headers):
                    removed.append(seq)
        for seq in removed:
            del self.messages[seq]
        ended = [seq for seq, end in self.ends.items() if end <= now_ns and seq in self.messages]
        for seq in ended:
            del self.messages[seq]
        self.settle()
        return Expired(len(removed) + len(ended), False)

    def load_next(self, seq: int, filters: str | list[str] | None) -> StoredMessage | None:
        found = self.matching(filters, seq)
        return self.messages[found[0]] if found else None

    def load_previous(self, seq: int, filters: str | list[str] | None) -> StoredMessage | None:
        found = [at for at in self.matching(filters) if at <= seq]
        return self.messages[found[-1]] if found else None

    def subject_states(self, filters: str | list[str] | None) -> dict[str, SubjectState]:
        out = {}
        for subject in {self.messages[seq].subject for seq in self.matching(filters)}:
            own = self.of(subject)
            out[subject] = SubjectState(len(own), own[0], own[-1])
        return out

    def multi_last(self, filters: str | list[str] | None, up_to_seq: int) -> list[int]:
        last = {}
        for seq in self.matching(filters):
            if up_to_seq == 0 or seq <= up_to_seq:
                last[self.messages[seq].subject] = seq
        return sorted(last.values())

    def count_last(self, filters: str | list[str] | None, seq: int) -> int:
        return sum(state.last_seq >= seq for state in self.subject_states(filters).values())

    def deleted(self) -> list[int]:
        if not self.messages:
            return []
        return [s for s in range(self.first_seq, self.last_seq + 1) if s not in self.messages]

    def first_seq_from_time(self, ts_ns: int) -> int:
        found = [seq for seq, m in sorted(self.messages.items()) if m.ts_ns >= ts_ns]
        return found[0] if found else self.last_seq + 1
