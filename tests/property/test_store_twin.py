"""Random work on a store and on its twin: the same answers after every step."""

from __future__ import annotations

from random import Random

import pytest

from storage._store import StreamStore
from storage.ports import Discard, StoreError, StoreLimits
from tests.property.oracles.store import StoreTwin
from tests.property.stores import FOLDER, KINDS, StoreKind

SECOND = 1_000_000_000
TOKENS = ["a", "b", "c", "dd", "eee"]
FILTERS: list[str | list[str] | None] = [
    None, ">", "a", "a.b", "a.*", "*.b", "a.>", "*.*.*", "a.*.c", "*.b.>", "dd.eee.a.b", "none.*",
    ["a.*", "b.*"], ["a.b", "a.c"], ["a.>", "a.b"], ["*.b.*", "dd"],
]  # fmt: skip
LIMITS = [
    StoreLimits(),
    StoreLimits(messages_max=40),
    StoreLimits(bytes_max=2000),
    StoreLimits(messages_per_subject_max=1),
    StoreLimits(messages_per_subject_max=3, messages_max=60),
    StoreLimits(messages_max=30, discard=Discard.NEW),
    StoreLimits(bytes_max=1500, messages_per_subject_max=2, discard=Discard.NEW),
    StoreLimits(messages_per_subject_max=2, discard=Discard.NEW, discard_new_per_subject=True),
    StoreLimits(age_max_ns=30 * SECOND),
    StoreLimits(age_max_ns=60 * SECOND, allow_ttl=True),
    StoreLimits(allow_ttl=True),
]


# As a consumer with many filters has them, literal and not.
MANY = ["none.>", "a.b.c.*", *(f"{x}.{y}" for x in TOKENS for y in TOKENS[:3]), "*.eee.*.a", "dd.*"]


class Follower:
    """A consumer's use of the store: its own filter, a place that goes on and sometimes back."""

    def __init__(self, store: StreamStore, filters: str | list[str] | None) -> None:
        self.store = store
        self.filters = filters
        self.wanted = store.filter(filters)
        self.seq = 0

    def compare(self, twin: StoreTwin, random: Random) -> None:
        if random.random() < 0.1:
            self.seq = random.randrange(twin.last_seq + 2)
        coming = twin.matching(self.filters, self.seq)
        if random.random() < 0.7:
            assert self.store.pending(self.wanted, self.seq) == len(coming), self.filters
        most = random.choice([1, 2, 7, 1000])
        last = random.choice([twin.last_seq, self.seq + random.randrange(20)])
        found, resume = self.store.next_sequences(self.wanted, self.seq, last, most)
        assert found == [seq for seq in coming if seq <= last][:most], self.filters
        if len(found) < most:
            assert resume == max(last + 1, self.seq)
        else:
            assert resume == found[-1] + 1
        self.seq = resume


class Pair:
    """A store and its twin, driven by one random source."""

    def __init__(self, kind: StoreKind, limits: StoreLimits, random: Random) -> None:
        self.random = random
        self.now_ns = 1_000 * SECOND
        self.ours: StreamStore = kind.open(limits, 0)
        self.twin = StoreTwin(limits, kind.overhead, kind.header_overhead)
        self.followers = [Follower(self.ours, filters) for filters in (*FILTERS, MANY)]

    def subject(self) -> str:
        return ".".join(self.random.choices(TOKENS, k=self.random.choice([1, 2, 2, 3, 3, 4])))

    def filters(self) -> str | list[str] | None:
        if self.random.random() < 0.2:
            return self.subject()
        return self.random.choice(FILTERS)

    def seq(self) -> int:
        return self.random.randrange(max(self.twin.first_seq - 2, 0), self.twin.last_seq + 3)

    def both(self, name: str, *args: object) -> None:
        answers = []
        for store in (self.ours, self.twin):
            try:
                answers.append(getattr(store, name)(*args))
            except StoreError as refusal:
                answers.append(type(refusal))
        assert answers[0] == answers[1], (name, args)

    def step(self) -> None:
        name = self.random.choices(
            [
                "store",
                "skip",
                "delete",
                "purge",
                "compact",
                "truncate",
                "expire",
                "limits",
                "snapshot",
            ],
            [60, 2, 15, 3, 2, 1, 10, 1, 3],
        )[0]
        getattr(self, f"step_{name}")()

    def step_store(self) -> None:
        for _ in range(self.random.choice([1, 1, 5, 20])):
            ttl_s = self.random.choice([0, 0, 0, 5, 40, 2000, -1])
            headers = b""
            if ttl_s:
                ttl = "never" if ttl_s < 0 else f"{ttl_s}"
                headers = f"NATS/1.0\r\nNats-TTL: {ttl}\r\n\r\n".encode()
            payload = self.random.randbytes(self.random.randrange(40))
            self.now_ns += self.random.randrange(2 * SECOND)
            ttl_ns = ttl_s * SECOND if ttl_s > 0 else ttl_s
            self.both("store", self.subject(), headers, payload, self.now_ns, ttl_ns)

    def step_skip(self) -> None:
        count = self.random.choice([1, 3, 200_000])
        self.ours.skip(count)
        self.twin.skip(count)

    def step_delete(self) -> None:
        if self.twin.messages:
            self.both("delete", self.random.choice(list(self.twin.messages)))
        self.both("delete", self.seq())

    def step_purge(self) -> None:
        filters = self.filters()
        self.both(
            "purge", filters, self.random.choice([0, 0, self.seq()]), self.random.choice([0, 2])
        )

    def step_compact(self) -> None:
        self.both("compact", max(self.seq() + self.random.choice([0, 0, 50]), 1))

    def step_truncate(self) -> None:
        self.both("truncate", max(self.twin.last_seq - self.random.randrange(10), 0))

    def step_expire(self) -> None:
        self.now_ns += self.random.randrange(30 * SECOND)
        removed = 0
        while True:
            slice_ = self.ours.expire(self.now_ns, 7)
            removed += slice_.messages
            if not slice_.more:
                break
        assert removed == self.twin.expire(self.now_ns).messages
        due = self.ours.next_expiry_ns()
        assert due is None or due > self.now_ns

    def step_limits(self) -> None:
        limits = self.random.choice(LIMITS)
        if limits.allow_ttl != self.twin.limits.allow_ttl:
            return
        self.ours.set_limits(limits)
        self.twin.set_limits(limits)
        while not self.ours.enforce(5):
            pass
        self.twin.enforce()

    def step_snapshot(self) -> None:
        """A store over the same home that starts from the snapshot must go on as if nothing was."""
        restored = StreamStore(self.ours.home, self.twin.limits)
        restored.restore(self.ours.snapshot())
        assert restored.state() == self.ours.state()
        self.ours = restored
        self.followers = [Follower(restored, one.filters) for one in self.followers]

    def compare(self) -> None:
        ours, twin = self.ours, self.twin
        state = ours.state()
        assert (state.messages, state.bytes) == (len(twin.messages), twin.bytes)
        assert (state.first_seq, state.last_seq) == (twin.first_seq, twin.last_seq)
        assert state.last_ts_ns == twin.last_ts_ns
        assert state.subject_count == len(twin.subject_states(None))
        assert state.deleted_count == (
            twin.last_seq + 1 - twin.first_seq - len(twin.messages) if twin.messages else 0
        )
        filters, seq = self.filters(), self.seq()
        assert ours.load(seq) == twin.messages.get(seq)
        assert ours.load_next(seq, filters) == twin.load_next(seq, filters)
        assert ours.load_previous(seq, filters) == twin.load_previous(seq, filters)
        assert ours.num_pending(seq, filters) == len(twin.matching(filters, seq))
        assert ours.num_pending(seq, filters, True) == twin.count_last(filters, seq)
        for follower in self.random.sample(self.followers, 3):
            follower.compare(twin, self.random)

    def compare_all(self) -> None:
        ours, twin = self.ours, self.twin
        deleted = ours.state(deleted=True).deleted
        assert deleted is not None
        if len(deleted) < 10_000:
            assert list(deleted) == twin.deleted()
        for filters in FILTERS:
            states = twin.subject_states(filters)
            assert ours.subject_states(filters) == states
            assert ours.subject_totals(filters) == {s: st.messages for s, st in states.items()}
            assert ours.load_last(filters) == twin.load_previous(twin.last_seq, filters)
            for up_to_seq in (0, self.seq()):
                assert ours.multi_last(filters, up_to_seq) == twin.multi_last(filters, up_to_seq)
            found = twin.matching(filters)
            state = ours.filtered_state(filters)
            assert state.messages == len(found)
            assert (state.first_seq, state.last_seq) == ((found[0], found[-1]) if found else (0, 0))
        ts_ns = self.now_ns - self.random.randrange(100 * SECOND)
        assert ours.first_seq_from_time(ts_ns) == twin.first_seq_from_time(ts_ns)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("limits", LIMITS, ids=range(len(LIMITS)))
@pytest.mark.parametrize("seed", range(2))
def test_store_answers_as_its_twin(kind: StoreKind, limits: StoreLimits, seed: int) -> None:
    pair = Pair(kind, limits, Random(f"{seed} {limits}"))
    for step in range(150):
        pair.step()
        pair.compare()
        if step % 10 == 9:
            FOLDER.settle(pair.ours)
        if step % 25 == 24:
            pair.compare_all()
