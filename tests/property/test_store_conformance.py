"""What every store must do, whatever keeps its bytes. Runs over each kind in `stores.KINDS`."""

from __future__ import annotations

import pytest

from storage._age import marker_headers
from storage._store import StreamStore
from storage.ports import (
    BytesLimitError,
    Discard,
    MessagesLimitError,
    SequenceMismatchError,
    StoreError,
    StoreLimits,
    SubjectMessagesLimitError,
    SubjectState,
    TooManyResultsError,
)
from tests.property.stores import FILE, FOLDER, KINDS, MEMORY, StoreKind

SECOND = 1_000_000_000


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> StoreKind:
    found: StoreKind = request.param
    return found


def open_store(kind: StoreKind, **limits: object) -> StreamStore:
    return kind.open(StoreLimits(**limits), 0)  # type: ignore[arg-type]


def put(store: StreamStore, *subjects: str, at_ns: int = SECOND) -> None:
    for number, subject in enumerate(subjects):
        store.store(subject, b"", f"{subject} {number}".encode(), at_ns + number)
    FOLDER.settle(store)


def live(store: StreamStore) -> list[int]:
    found, seq = [], 0
    while message := store.load_next(seq):
        found.append(message.seq)
        seq = message.seq + 1
    return found


def ttl_headers(text: str) -> bytes:
    return f"NATS/1.0\r\nNats-TTL: {text}\r\n\r\n".encode()


# Storing and reading


def test_store_gives_back_what_was_stored(kind: StoreKind) -> None:
    store = open_store(kind)
    headers = b"NATS/1.0\r\nA: b\r\n\r\n"
    assert store.store("a.b", headers, b"\x00\xff" * 5000, 7) == 1
    assert store.store("a.b", b"", b"", 8) == 2
    first, second = store.load(1), store.load(2)
    assert first is not None
    assert second is not None
    assert (first.subject, first.headers, first.payload, first.ts_ns) == (
        "a.b", headers, b"\x00\xff" * 5000, 7,
    )  # fmt: skip
    assert (second.headers, second.payload) == (b"", b"")
    assert store.load(0) is None
    assert store.load(3) is None


def test_store_refuses_a_subject_that_is_none(kind: StoreKind) -> None:
    store = open_store(kind)
    for subject in ("", "x" * 65535, "x" * 70000):
        with pytest.raises(StoreError):
            store.store(subject, b"", b"", 1)
    assert store.state().messages == 0


def test_store_at_takes_only_the_next_sequence(kind: StoreKind) -> None:
    store = open_store(kind, messages_max=1, discard=Discard.NEW)
    assert store.store_at(1, "a", b"", b"", 1) == 1
    with pytest.raises(SequenceMismatchError):
        store.store_at(1, "a", b"", b"", 1)
    with pytest.raises(SequenceMismatchError):
        store.store_at(3, "a", b"", b"", 1)
    # What a leader accepted a replica does not refuse.
    store.store_at(2, "a", b"", b"", 1)
    assert store.last_seq == 2


@pytest.mark.feature("2.017")
def test_first_sequence_of_a_stream_can_be_chosen(kind: StoreKind) -> None:
    store = kind.open(StoreLimits(), 1000)
    assert (store.first_seq, store.last_seq) == (1000, 999)
    assert store.store("a", b"", b"", 1) == 1000


@pytest.mark.feature("2.069", "2.065")
def test_state_of_an_empty_stream_has_no_times(kind: StoreKind) -> None:
    store = open_store(kind)
    state = store.state(deleted=True)
    assert (state.messages, state.first_seq, state.last_seq) == (0, 0, 0)
    assert (state.first_ts_ns, state.last_ts_ns) == (0, 0)
    put(store, "a", "b", "a", at_ns=50)
    store.delete(2)
    state = store.state(deleted=True)
    assert (state.first_ts_ns, state.last_ts_ns, state.subject_count) == (50, 52, 1)
    assert state.deleted_count == 1
    assert list(state.deleted or []) == [2]


def test_state_of_less_than_all_leaves_out_what_came_later(kind: StoreKind) -> None:
    store = open_store(kind)
    put(store, "a", "b", "a", at_ns=50)
    store.delete(2)
    before = store.state(deleted=True)
    put(store, "a", "c", "b", "c", at_ns=90)
    assert store.state(True, 3) == before
    store.delete(5)
    assert store.state(True, 3) == before
    assert store.state(True, 99) == store.state(True)
    # What a limit took away for messages that nobody may see yet leaves an empty stream.
    store.compact(6)
    state = store.state(True, 3)
    assert (state.messages, state.bytes, state.subject_count) == (0, 0, 0)
    assert (state.first_seq, state.last_seq, state.deleted_count) == (4, 3, 0)


def test_skipped_sequences_are_deleted_ones_until_the_stream_is_empty(kind: StoreKind) -> None:
    store = open_store(kind)
    assert store.skip(3) == 3
    assert (store.first_seq, store.last_seq) == (4, 3)
    put(store, "a")
    store.skip(2)
    put(store, "a")
    assert live(store) == [4, 7]
    assert list(store.deleted()) == [5, 6]


@pytest.mark.feature("4.004")
def test_last_and_next_accept_wildcards(kind: StoreKind) -> None:
    store = open_store(kind)
    put(store, "a.1", "b.1", "a.2", "b.2", "a.1.x")

    def seq(message: object) -> int:
        return message.seq if message else 0  # type: ignore[attr-defined]

    assert seq(store.load_last("a.*")) == 3
    assert seq(store.load_last("a.>")) == 5
    assert seq(store.load_last("*.1")) == 2
    assert seq(store.load_last("c.>")) == 0
    assert seq(store.load_next(2, "a.*")) == 3
    assert seq(store.load_next(4, "a.*")) == 0
    assert seq(store.load_next(2, ["b.2", "a.1.*"])) == 4
    assert seq(store.load_previous(4, "a.>")) == 3


@pytest.mark.feature("4.004")
def test_start_time_picks_the_first_message_at_or_after_it(kind: StoreKind) -> None:
    store = open_store(kind)
    for at in (10, 20, 20, 30):
        store.store("a", b"", b"", at)
    store.delete(2)
    assert [store.first_seq_from_time(at) for at in (1, 10, 11, 20, 30, 31)] == [1, 1, 3, 3, 4, 5]
    assert [store.last_seq_up_to_time(at) for at in (1, 10, 20, 29, 30, 99)] == [0, 1, 3, 3, 4, 4]


@pytest.mark.feature("4.011", "4.012")
def test_multi_last_up_to_a_sequence_and_a_number_of_subjects(kind: StoreKind) -> None:
    store = open_store(kind)
    put(store, "k.a", "k.b", "k.a", "k.c", "k.b")
    assert store.multi_last("k.*") == [3, 4, 5]
    assert store.multi_last("k.*", up_to_seq=3) == [2, 3]
    assert store.multi_last(["k.a", "k.c", "k.a"]) == [3, 4]
    with pytest.raises(TooManyResultsError):
        store.multi_last("k.*", results_max=2)


def test_num_pending_counts_messages_or_last_ones(kind: StoreKind) -> None:
    store = open_store(kind)
    put(store, *["a.1", "a.2", "b.1"] * 10)
    store.delete(29)
    assert store.num_pending(0) == 29
    assert store.num_pending(16, "a.*") == 9
    assert store.num_pending(16, ["a.1", "*.1"]) == 10
    assert store.num_pending(27, "a.*", last_per_subject=True) == 1
    assert store.num_pending(99, ">") == 0


def test_subject_totals_in_pages(kind: StoreKind) -> None:
    store = open_store(kind)
    put(store, *[f"a.{number % 7}" for number in range(50)], "b")
    pages = [store.subject_totals("a.*", offset, 3) for offset in (0, 3, 6, 9)]
    assert [len(page) for page in pages] == [3, 3, 1, 0]
    assert {k: v for page in pages for k, v in page.items()} == store.subject_totals("a.*")
    assert store.subject_states("b") == {"b": SubjectState(1, 51, 51)}


@pytest.mark.feature("1.032")
def test_subjects_come_in_the_order_of_their_bytes(kind: StoreKind) -> None:
    store = open_store(kind)
    subjects = [f"s.{n * 7919 % 1000}" for n in range(300)]
    subjects += [
        "s.a",
        "s.a.b",
        "s.a-b",
        "s.a-b.c",
        "s.A",
        "s.ab",
        "s.é",
        "s.aaaaaaaaaa.1",
        "s.1.x",
    ]
    put(store, *subjects, "t")
    expected = sorted(set(subjects), key=str.encode)
    assert store.matching_subjects("s.>") == len(expected)
    assert list(store.subject_totals("s.>")) == expected
    pages = [list(store.subject_totals("s.>", at, 100)) for at in range(0, 400, 100)]
    assert [subject for page in pages for subject in page] == expected
    store.delete(store.last_seq - 1)
    put(store, "s.0000")
    expected = sorted({*subjects[:-1], "s.0000"}, key=str.encode)
    assert list(store.subject_states("s.>", 0, 5)) == expected[:5]
    assert store.matching_subjects("s.>") == len(expected)
    assert list(store.subject_totals("s.>", 10_000, 5)) == []


# Removing


def test_delete_moves_first_but_never_last(kind: StoreKind) -> None:
    store = open_store(kind)
    put(store, "a", "b", "a", "b")
    assert store.delete(1)
    assert not store.delete(1)
    assert not store.delete(99)
    assert store.delete(4)
    assert (store.first_seq, store.last_seq, live(store)) == (2, 4, [2, 3])
    assert store.subject_states() == {"a": SubjectState(1, 3, 3), "b": SubjectState(1, 2, 2)}
    assert store.delete_many([2, 3, 3]) == 2
    assert (store.first_seq, store.last_seq, store.bytes) == (5, 4, 0)


@pytest.mark.feature("2.060")
def test_purge_of_all_begins_behind_the_last_sequence(kind: StoreKind) -> None:
    store = open_store(kind)
    put(store, "a", "b", "c")
    assert store.purge() == 3
    assert (store.first_seq, store.last_seq, store.messages, store.bytes) == (4, 3, 0, 0)
    assert store.subject_totals() == {}
    put(store, "a")
    assert live(store) == [4]


@pytest.mark.feature("1.035")
def test_purge_by_filter_sequence_and_keep(kind: StoreKind) -> None:
    def filled() -> StreamStore:
        store = open_store(kind)
        put(store, "a.1", "b", "a.2", "a.1", "b", "a.1")
        return store

    for arguments, left in (
        (("a.1",), [2, 3, 5]),
        (("a.*",), [2, 5]),
        (("a.*", 4), [2, 4, 5, 6]),
        (("a.*", 0, 1), [2, 5, 6]),
        (("a.*", 0, 9), [1, 2, 3, 4, 5, 6]),
        ((None, 3), [3, 4, 5, 6]),
        ((None, 0, 2), [5, 6]),
        ((None, 1), [1, 2, 3, 4, 5, 6]),
        (("c",), [1, 2, 3, 4, 5, 6]),
    ):
        store = filled()
        assert store.purge(*arguments) == 6 - len(left), arguments  # type: ignore[arg-type]
        assert live(store) == left, arguments
        assert store.last_seq == 6


def test_purge_in_slices_leaves_what_comes_later(kind: StoreKind) -> None:
    store = open_store(kind)
    put(store, *["a", "b"] * 50)
    job = store.start_purge("a")
    assert not job.step(10)
    put(store, "a", "a")
    while not job.step(10):
        pass
    assert job.purged == 50
    assert store.subject_totals() == {"b": 50, "a": 2}


def test_purge_in_slices_keeps_as_many_when_others_go_meanwhile(kind: StoreKind) -> None:
    store = open_store(kind)
    put(store, *["a", "b"] * 50)
    job = store.start_purge("a", keep=20)
    assert not job.step(10)
    for seq in (*range(21, 41, 2), 99):
        assert store.delete(seq)
    put(store, "a")
    while not job.step(3):
        pass
    # 50 were there: 10 purged, 11 deleted, 9 more to go until 20 are left, and a new one.
    assert job.purged == 19
    assert store.subject_totals() == {"b": 50, "a": 21}


def test_compact_and_truncate(kind: StoreKind) -> None:
    store = open_store(kind)
    put(store, *["a", "b"] * 5)
    store.delete(4)
    assert store.compact(4) == 3
    assert store.first_seq == 5
    assert store.compact(3) == 0
    store.truncate(7)
    assert (store.last_seq, live(store)) == (7, [5, 6, 7])
    put(store, "c")
    assert store.last_seq == 8
    assert store.compact(100) == 4
    assert (store.first_seq, store.last_seq) == (100, 99)
    put(store, "c")
    assert live(store) == [100]
    store.truncate(0)
    assert (store.first_seq, store.last_seq, store.messages) == (0, 0, 0)


# Limits


@pytest.mark.feature("2.051")
def test_discard_old_drops_the_oldest_until_the_limits_hold(kind: StoreKind) -> None:
    store = open_store(kind, messages_max=3)
    put(store, *"abcde")
    assert live(store) == [3, 4, 5]
    one = open_store(kind)
    put(one, "a")
    store = open_store(kind, bytes_max=3 * one.bytes)
    put(store, *"abcde")
    assert live(store) == [3, 4, 5]
    store.store("a", b"", b"x" * (2 * one.bytes), 9)
    assert live(store) == [6]


@pytest.mark.feature("2.051")
def test_limit_per_subject_drops_the_oldest_of_that_subject(kind: StoreKind) -> None:
    store = open_store(kind, messages_per_subject_max=2)
    put(store, "a", "b", "a", "a", "b", "a")
    assert live(store) == [2, 4, 5, 6]


@pytest.mark.feature("2.052", "2.053")
def test_discard_new_refuses(kind: StoreKind) -> None:
    store = open_store(kind, messages_max=2, messages_per_subject_max=1, discard=Discard.NEW)
    put(store, "a", "b")
    with pytest.raises(MessagesLimitError, match="maximum messages exceeded"):
        put(store, "c")
    # At its own limit a subject's new message takes the place of its old one.
    put(store, "a")
    assert live(store) == [2, 3]
    size = store.bytes
    store = open_store(kind, bytes_max=size, discard=Discard.NEW)
    put(store, "a", "b")
    with pytest.raises(BytesLimitError, match="maximum bytes exceeded"):
        put(store, "c")


@pytest.mark.feature("2.052", "2.054")
def test_discard_new_per_subject_refuses_but_not_a_rollup(kind: StoreKind) -> None:
    store = open_store(
        kind, messages_per_subject_max=1, discard=Discard.NEW, discard_new_per_subject=True
    )
    put(store, "a", "b")
    with pytest.raises(SubjectMessagesLimitError, match="maximum messages per subject exceeded"):
        put(store, "a")
    assert store.last_seq == 2
    store.store("a", b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n", b"", 5)
    assert live(store) == [2, 3]


def test_lowered_limits_are_carried_out_in_slices(kind: StoreKind) -> None:
    store = open_store(kind)
    put(store, *["a", "b", "c"] * 10)
    store.set_limits(StoreLimits(messages_max=12, messages_per_subject_max=2))
    slices = 1
    while not store.enforce(5):
        slices += 1
    assert slices == 5
    assert store.subject_totals() == {"a": 2, "b": 2, "c": 2}


# Time


@pytest.mark.feature("2.055")
def test_age_removes_by_the_time_of_the_message(kind: StoreKind) -> None:
    store = open_store(kind, age_max_ns=10 * SECOND)
    for second in range(20):
        store.store("a", b"", b"", second * SECOND)
    assert store.next_expiry_ns() == 10 * SECOND
    expired = store.expire(15 * SECOND, 4)
    assert (expired.messages, expired.more) == (4, True)
    assert not store.expire(15 * SECOND, 4).more
    assert store.first_seq == 7
    assert store.next_expiry_ns() == 16 * SECOND


def test_time_to_live_of_single_messages(kind: StoreKind) -> None:
    store = open_store(kind, allow_ttl=True, age_max_ns=100 * SECOND)
    for text, ttl_ns in (("never", -1), ("5", 5 * SECOND), ("1h", 3600 * SECOND), ("", 0)):
        store.store("a", ttl_headers(text) if text else b"", b"", SECOND, ttl_ns)
    assert store.next_expiry_ns() == 6 * SECOND
    assert store.expire(6 * SECOND - 1).messages == 0
    assert store.expire(6 * SECOND).messages == 1
    assert live(store) == [1, 3, 4]
    # Age ends the long one too; only "never" is spared.
    store.expire(200 * SECOND)
    assert live(store) == [1]
    assert store.expire(10_000 * SECOND).messages == 0


def test_time_to_live_survives_a_rebuild_from_the_home(kind: StoreKind) -> None:
    store = open_store(kind, allow_ttl=True)
    store.store("a", ttl_headers("5s"), b"", SECOND, 5 * SECOND)
    store.store("a", b"", b"", SECOND)
    before = store.state()
    store.rebuild()
    assert store.state() == before
    assert store.expire(6 * SECOND).messages == 1


def test_last_message_of_a_subject_leaves_a_marker(kind: StoreKind) -> None:
    store = open_store(kind, age_max_ns=10 * SECOND, marker_ttl_ns=90 * SECOND, allow_ttl=True)
    put(store, "a", "b", "a", at_ns=0)
    expired = store.expire(11 * SECOND)
    assert (expired.messages, sorted(expired.markers)) == (3, ["a", "b"])
    block = marker_headers(90 * SECOND)
    seq = store.store("a", block, b"", 11 * SECOND, 90 * SECOND)
    marker = store.load(seq)
    assert marker is not None
    assert b"Nats-Marker-Reason: MaxAge\r\n" in marker.headers
    assert b"Nats-TTL: 1m30s\r\n" in marker.headers
    # A marker leaves none behind.
    assert store.expire(500 * SECOND).markers == ()
    assert store.messages == 0


# Erased and lost


@pytest.mark.feature("4.005")
def test_erased_bytes_are_nowhere_and_the_neighbours_stay(kind: StoreKind) -> None:
    store = open_store(kind)
    payloads = [f"<secret {number}>".encode() * 9 for number in range(60)]
    for number, payload in enumerate(payloads):
        store.store("s", b"", payload, SECOND + number)
    FOLDER.settle(store)
    gone = {1, 2, 30, 59, 60}
    for seq in gone:
        assert store.delete(seq, erase=True)
        assert not store.delete(seq, erase=True)
        assert store.load(seq) is None
    FOLDER.settle(store)
    for seq, payload in enumerate(payloads, 1):
        message = store.load(seq)
        assert (message.payload if message else None) == (None if seq in gone else payload)
    assert (store.first_seq, store.last_seq, store.messages) == (3, 60, 55)
    assert list(store.deleted()) == [30, 59, 60]
    if kind is not MEMORY:
        on_disk = FOLDER.content()
        assert not [seq for seq in gone if payloads[seq - 1] in on_disk]
    if kind is FILE:
        assert payloads[9] in on_disk


@pytest.mark.parametrize("headers", ["none", "all", "some"])
def test_bytes_follow_every_kind_of_removal(kind: StoreKind, headers: str) -> None:
    store = open_store(kind)
    sizes = {}
    for seq in range(1, 241):
        with_header = headers == "all" or (headers == "some" and seq % 3 == 0)
        header = b"NATS/1.0\r\nA: b\r\n\r\n" if with_header else b""
        payload = b"x" * (seq * 7 % 90)
        store.store("s", header, payload, SECOND + seq)
        sizes[seq] = kind.overhead + 1 + len(payload) + len(header) + (
            kind.header_overhead if header else 0
        )  # fmt: skip
    total = sum(sizes.values())
    assert store.bytes == total
    for settles in (False, True):
        if settles:
            FOLDER.settle(store)
        left = sorted(sizes)
        for at in [*left[1:60:5], left[-2], left[100], left[0], left[-1], left[99], left[102]]:
            assert store.delete(at, erase=at % 2 == 0)
            total -= sizes.pop(at)
            assert store.bytes == total
        left = sorted(sizes)
        store.compact(left[20])
        sizes = {seq: size for seq, size in sizes.items() if seq >= left[20]}
        total = sum(sizes.values())
        assert store.bytes == total
    store.set_limits(StoreLimits(messages_max=7))
    store.enforce()
    assert store.bytes == sum(sizes[seq] for seq in sorted(sizes)[-7:])
    store.purge()
    assert store.bytes == 0


@pytest.mark.feature("9.027")
def test_what_is_damaged_is_not_served_and_is_told_as_lost(kind: StoreKind) -> None:
    store = open_store(kind)
    put(store, *["s"] * 300)
    damaged = FOLDER.damage_first_block() if kind is not MEMORY else False
    lost = [seq for seq in range(1, 301) if store.load(seq) is None]
    state = store.state()
    assert bool(lost) == damaged
    assert (list(state.lost.sequences) if state.lost else []) == lost
    assert len(lost) < 150
    assert live(store) == [seq for seq in range(1, 301) if seq not in lost]
    store.compact(200)
    assert store.state().lost is None
    assert (store.first_seq, store.last_seq, store.messages) == (200, 300, 101)
    assert len(live(store)) == 101


# Starting again


def test_rebuild_and_restore_give_the_same_store(kind: StoreKind) -> None:
    store = open_store(kind, messages_per_subject_max=3)
    put(store, *[f"s.{number * number % 23}" for number in range(500)])
    store.delete_many(range(450, 480, 3))
    state, subjects = store.state(deleted=True), store.subject_states()
    snapshot = store.snapshot()
    for again in (lambda: store.restore(snapshot), store.rebuild):
        again()
        assert store.state(deleted=True) == state
        assert store.subject_states() == subjects
    put(store, "s.1")
    assert store.last_seq == 501


def test_restore_refuses_what_is_no_snapshot(kind: StoreKind) -> None:
    store = open_store(kind, allow_ttl=True)
    put(store, *[f"s.{number}" for number in range(40)])
    store.store("t", ttl_headers("5s"), b"", SECOND, 5 * SECOND)
    snapshot = store.snapshot()
    for length in range(len(snapshot)):
        with pytest.raises(ValueError, match="snapshot"):
            store.restore(snapshot[:length])
    with pytest.raises(ValueError, match="version"):
        store.restore(b"MIDX\x09" + snapshot[5:])
    store.restore(snapshot)
    assert store.messages == 41
