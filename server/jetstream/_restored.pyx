# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The state of a consumer, made again from what was kept of it.

Contract. Wholes and changes are taken in the order in which they were written; those of a namesake
that was there before are not. What was due while nobody ran is due now. Afterwards
`fit_to_stream` settles what the stream has lost.
"""
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from server.jetstream._consumer cimport ConsumerCore
from server.jetstream._keeper cimport (
    CHANGES,
    OP_ACKED,
    OP_DELIVERED,
    OP_POSTPONED,
    OP_REDELIVERED,
    WHOLE,
    Keeper,
    Reader,
)
from server.jetstream._kinds cimport ACK_EXPLICIT, KEEP_UNTIL_ACKED
from server.jetstream._pending cimport PENDING, Entry


def has_record(Keeper keeper not None, list records):
    """Whether one of them is of this consumer and not of a namesake before it."""
    cdef Reader reader
    for _, record in records:
        reader = Reader(record)
        reader.get()
        if reader.get() == keeper.identity:
            return True
    return False


def restore(ConsumerCore core not None, Keeper keeper not None, list records):
    """`records` are what was kept of it, oldest first."""
    cdef bytes record
    for seq, record in records:
        keeper.records.append(seq)
        take_record(core, keeper, Reader(record))


cdef int take_record(ConsumerCore core, Keeper keeper, Reader reader) except -1:
    cdef uint64_t kind = reader.get()
    cdef int64_t passed_ns
    if reader.get() != keeper.identity:
        return 0
    if kind == WHOLE:
        take_place(core, reader)
    passed_ns = core.hub.broker.wall() - <int64_t>reader.get() * 1_000_000
    if kind == WHOLE:
        take_retired(core, reader)
    if kind == CHANGES:
        while reader.at < reader.end:
            take_change(core, reader, passed_ns)
    else:
        take_entries(core, reader, passed_ns)
    return 0


cdef int take_place(ConsumerCore core, Reader reader) except -1:
    core.table.clear()
    core.drop_skipped()
    core.next_seq = core.search_seq = reader.get()
    core.next_consumer_seq = reader.get()
    core.delivered_seq = reader.get()
    core.floor_seq = reader.get()
    core.floor_consumer_seq = reader.get()
    core.resume_seq = reader.get()
    core.delivered_wall_ns = <int64_t>reader.get()
    core.acked_wall_ns = <int64_t>reader.get()
    return 0


cdef int take_retired(ConsumerCore core, Reader reader) except -1:
    cdef Entry* entry
    cdef uint64_t seq, consumer_seq
    for _ in range(reader.get()):
        seq = reader.get()
        consumer_seq = reader.get()
        entry = core.table.delivered(seq, consumer_seq, 0)
        entry.redeliveries = <int32_t>reader.get_signed()
        core.table.retire(entry)
    return 0


cdef int take_entries(ConsumerCore core, Reader reader, int64_t passed_ns) except -1:
    cdef Entry* entry
    cdef uint64_t seq = 0, consumer_seq = 0
    cdef int64_t due_ns, now_ns = core.hub.now()
    cdef int32_t redeliveries
    while reader.at < reader.end:
        seq += reader.get()
        consumer_seq += reader.get()
        redeliveries = <int32_t>reader.get_signed()
        due_ns = now_ns + reader.get_signed() * 1_000_000 - passed_ns
        entry = core.table.delivered(seq, consumer_seq, due_ns)
        entry.redeliveries = redeliveries
        if redeliveries > 0:
            core.table.count(entry)
    return 0


cdef int take_change(ConsumerCore core, Reader reader, int64_t passed_ns) except -1:
    cdef uint64_t op = reader.get()
    cdef uint64_t seq = core.delivered_seq + <uint64_t>reader.get_signed()
    cdef int64_t now_ns = core.hub.now()
    cdef int32_t redeliveries
    cdef uint64_t consumer_seq
    cdef Entry* entry
    if op == OP_DELIVERED:
        core.next_consumer_seq += <uint64_t>reader.get_signed()
        core.delivered_seq = seq
        core.next_seq = core.search_seq = seq + 1
        core.table.delivered(
            seq, core.next_consumer_seq - 1, now_ns + core.wait_of(0) - passed_ns
        )
        return 0
    entry = core.table.find(seq)
    if op == OP_REDELIVERED:
        core.next_consumer_seq += <uint64_t>reader.get_signed()
        redeliveries = <int32_t>reader.get_signed()
        if entry != NULL:
            entry = core.table.delivered(
                seq, 0, now_ns + core.wait_of(redeliveries) - passed_ns)
            entry.redeliveries = redeliveries
    elif op == OP_POSTPONED:
        redeliveries = 0
        passed_ns -= reader.get_signed() * 1_000_000
        if entry != NULL and entry.flags & PENDING:
            core.table.postpone(entry, now_ns - passed_ns)
    elif entry != NULL:
        consumer_seq = entry.consumer_seq
        if op == OP_ACKED:
            was_pending = entry.flags & PENDING
            core.table.settle(entry)
        else:
            was_pending = True
            core.table.retire(entry)
        if was_pending:
            core.move_floor(consumer_seq, seq)
    return 0


def fit_to_stream(ConsumerCore core):
    """The stream may have lost its tail, and messages that were pending."""
    cdef uint64_t last = core.store.last_seq, seq, consumer_seq
    cdef uint32_t number
    cdef Entry* entry
    for number in range(1, core.table.top):
        entry = &core.table.entries[number]
        if entry.seq and core.ack_policy != ACK_EXPLICIT and entry.seq <= core.floor_seq and (
            entry.flags & PENDING
        ):
            # An acknowledgement of all was kept before it was carried out.
            if core.feed.retention == KEEP_UNTIL_ACKED:
                core.feed.remove(entry.seq)
            core.table.settle(entry)
            if core.table.known == 0:
                break
        elif entry.seq and not core.store.spans.slot(entry.seq):
            seq, consumer_seq = entry.seq, entry.consumer_seq
            was_pending = entry.flags & PENDING
            core.table.settle(entry)
            if was_pending:
                core.move_floor(consumer_seq, seq)
            if core.table.known == 0:
                break
    core.next_seq = core.search_seq = min(core.next_seq, last + 1)
    core.delivered_seq = min(core.delivered_seq, last)
    core.floor_seq = min(core.floor_seq, last)
