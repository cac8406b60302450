# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What a consumer sends next, to whom, and what is known of it afterwards.

Contract: that of `_consumer`. The hub calls `pump` in its phase, for each consumer in turn; nobody
else sends. Nothing of the consumer moves before somebody took the message.
"""
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free

from server.core._sublist cimport MatchResult
from server.jetstream._consumer cimport ConsumerCore
from server.jetstream._kinds cimport (
    ACK_NONE, ENDED_REMOVED, FOUND_AGAIN, FOUND_FULL, FOUND_NEW, FOUND_NOTHING, KEEP_BY_LIMITS, Found,
)
from server.jetstream._pending cimport Entry
from server.jetstream._waiting cimport Waiting
from storage._record cimport Record

from server.jetstream import pull

cdef enum:
    BYTES_AT_ONCE_MAX = 1 << 20

cdef int64_t REPLAY_GAP_NS = 1_000_000      # shorter gaps are not kept
cdef int64_t UNWRITTEN_LOOK_NS = 2_000_000
cdef str REMOVED_REASON = "Unacknowledged message was deleted"


cdef bint pump(ConsumerCore core, int64_t now_ns, uint32_t* budget) except -1:
    """Send while there is something, somebody and a budget. True: there may be more."""
    cdef Record record
    cdef uint32_t deliveries = 1, sent = 0
    cdef Found found = FOUND_NOTHING
    cdef Waiting waiting
    cdef MatchResult* result
    cdef bytes to, added
    cdef size_t reply_len
    cdef int64_t size = 0
    cdef int64_t sent_bytes = 0
    if is_backed_up(core):
        core.is_held = True
        core.arm(now_ns + UNWRITTEN_LOOK_NS)
        return False
    while not core.closed:
        if core.flow is not None and not core.flow.may_send(now_ns):
            break
        if not core.active and core.waiting.head is None:
            return False
        if sent >= core.hub.messages_at_once_max or budget[0] == 0 or (
            sent_bytes > BYTES_AT_ONCE_MAX
        ):
            return True
        found = look(core, &record, &deliveries)
        if found == FOUND_NOTHING or found == FOUND_FULL:
            break
        if core.replay_original and must_wait_for_replay(core, &record, now_ns):
            break
        reply_len = core.outlet.write_reply(
            &record, deliveries, core.next_consumer_seq,
            core.num_pending - (found == FOUND_NEW and core.num_pending > 0),
        )
        size = record.subject_len + reply_len + record.hdr_len + record.msg_len
        if core.outlet.headers_only:
            size = record.subject_len + reply_len + core.outlet.reduced_size(&record)
        waiting = None
        if core.is_push:
            to = core.deliver_subject
        else:
            waiting = core.flow.pick(size, now_ns) if core.flow is not None else (
                core.pulls.pick(size, now_ns))
            if waiting is None:
                break
            to = waiting.reply
        added = core.flow.added_header() if core.flow is not None else None
        result = core.account.sublist.match(to, len(to))
        if not core.outlet.deliver_record(&record, to, result, reply_len, added, &size):
            not_taken(core, waiting)
            break
        sent += 1
        budget[0] -= 1
        sent_bytes += size
        after_delivery(core, &record, found == FOUND_NEW, deliveries, now_ns)
        if waiting is not None:
            if waiting.messages <= 0 and waiting.size > 0:
                core.outlet.send_status(waiting.reply, pull.status(
                    409, "Batch Completed", waiting.messages, waiting.size))
            elif waiting.heartbeat_ns:
                waiting.next_heartbeat_ns = now_ns + waiting.heartbeat_ns
        if core.flow is not None:
            core.flow.sent(&record, core.next_consumer_seq - 1, size, now_ns)
    if core.replay_original and core.next_seq > core.replay_end_seq:
        core.replay_original = False
        core.replay_due_ns = 0
    if core.waiting.count:
        core.pulls.check(found != FOUND_FULL, now_ns, NULL)
    if core.flow is not None:
        core.flow.idle(now_ns)
    return False


cdef bint is_backed_up(ConsumerCore core) except -1:
    """Whether the one connection that would get it has not written what it got before."""
    if core.is_push:
        return core.outlet.is_backed_up(core.deliver_subject)
    if core.waiting.head is None:
        return False
    return core.outlet.is_backed_up(core.waiting.head.reply)


cdef Found look(ConsumerCore core, Record* record, uint32_t* deliveries) except *:
    """The message that comes next, if one may."""
    cdef uint64_t seq
    cdef Found found
    if core.table.queue_head:
        found = look_again(core, record, deliveries)
        if found == FOUND_AGAIN:
            return found
    if core.ack_pending_max and core.table.pending >= core.ack_pending_max:
        return FOUND_FULL
    deliveries[0] = 1
    while True:
        seq = next_new(core)
        if seq == 0:
            return FOUND_NOTHING
        if core.store.read(seq, record):
            return FOUND_NEW
        # It cannot be read any more: the store has said so in its own place.
        step_over(core, seq)


cdef Found look_again(ConsumerCore core, Record* record, uint32_t* deliveries) except *:
    cdef Entry* entry = core.table.next_queued()
    while entry != NULL:
        if core.is_acked(entry.seq):
            core.table.leave(entry)
        elif core.store.read(entry.seq, record):
            deliveries[0] = <uint32_t>max(entry.redeliveries + 2, 1)
            return FOUND_AGAIN
        elif core.stale is not None and not core.stale.is_over:
            core.table.settle(entry)
        else:
            core.end_entry(entry, ENDED_REMOVED, REMOVED_REASON)
        entry = core.table.next_queued()
    return FOUND_NOTHING


cdef uint64_t next_new(ConsumerCore core) except? 0:
    """The next sequence that was never delivered; 0: there is none."""
    cdef uint64_t seq
    while core.skip_at < core.skip_count:
        seq = core.skip[core.skip_at]
        if core.store.spans.slot(seq):
            return seq
        step_over(core, seq)
    if core.num_pending == 0:
        core.search_seq = max(core.search_seq, core.feed.durable_seq + 1)
        return 0
    if core.search_seq > core.feed.durable_seq:
        return 0
    seq = core.store.next_seq(core.wanted, core.search_seq)
    if seq == 0 or seq > core.feed.durable_seq:
        core.search_seq = core.feed.durable_seq + 1
        return 0
    core.search_seq = seq
    return seq


cdef int step_over(ConsumerCore core, uint64_t seq) noexcept:
    """Go on behind `seq`."""
    if core.skip_at < core.skip_count:
        core.skip_at += 1
        core.next_seq = seq + 1
        if core.skip_at == core.skip_count:
            core.next_seq = core.resume_seq
            free(core.skip)
            core.skip = NULL
            core.skip_at = core.skip_count = 0
    else:
        core.next_seq = seq + 1
    core.search_seq = core.next_seq
    return 0


cdef bint must_wait_for_replay(ConsumerCore core, const Record* record, int64_t now_ns) except -1:
    """Whether the gap before this message is not over."""
    cdef int64_t gap_ns = record.ts_ns - core.replay_stored_ns
    if core.replay_stored_ns == 0 or gap_ns <= REPLAY_GAP_NS:
        core.replay_due_ns = 0
        return False
    core.replay_due_ns = core.replay_sent_ns + gap_ns
    if now_ns >= core.replay_due_ns:
        core.replay_due_ns = 0
        return False
    core.arm(core.replay_due_ns)
    return True


cdef int not_taken(ConsumerCore core, Waiting waiting) except -1:
    """Nobody took the message: a request is forgotten, a push goes on when somebody listens."""
    cdef Waiting each = core.waiting.head, before = None
    if waiting is None:
        # Somebody may be there who takes nothing: not before the next look.
        core.active = False
        core.hub.add_dormant(core)
        return 0
    while each is not None:
        if each is waiting:
            core.waiting.remove(before, each)
            break
        before = each
        each = each.next
    return core.wake()


cdef int after_delivery(
    ConsumerCore core, const Record* record, bint is_new, uint32_t deliveries, int64_t now_ns
) except -1:
    """A message was taken: all that is known of it moves."""
    cdef uint64_t consumer_seq = core.next_consumer_seq
    cdef uint64_t seq = record.seq
    cdef Entry* entry
    cdef int32_t redeliveries = 0
    core.next_consumer_seq += 1
    core.used_ns = now_ns
    core.delivered_wall_ns = core.hub.turn_wall_ns
    if core.replay_original:
        core.replay_stored_ns = record.ts_ns
        core.replay_sent_ns = now_ns
    if is_new:
        if core.num_pending:
            core.num_pending -= 1
        core.delivered_seq = seq
        step_over(core, seq)
    if core.ack_policy == ACK_NONE:
        core.floor_consumer_seq = consumer_seq
        core.floor_seq = seq
        core.note_moved()
        if core.feed.retention != KEEP_BY_LIMITS:
            core.feed.settled(seq)
        return 0
    if not is_new:
        redeliveries = <int32_t>deliveries - 1
    if core.keeper is not None:
        core.note()
        if is_new:
            core.keeper.delivered(seq, consumer_seq)
        else:
            core.keeper.redelivered(seq, consumer_seq, redeliveries)
    entry = core.table.delivered(seq, consumer_seq, now_ns + core.wait_of(redeliveries))
    if core.armed_at_ns == 0 or entry.due_ns < core.armed_at_ns:
        core.arm(entry.due_ns + (<int64_t>1 << core.table.shift))
    return 0
