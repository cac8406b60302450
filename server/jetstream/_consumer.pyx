# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""One consumer of a stream: what was delivered, what is acknowledged, what comes next.

Contract. A `ConsumerCore` is told of pull requests by its `PullSink` and of acknowledgements by
its account's `AckSink`; `_sending` sends for it, in the hub's phase (5 of the turn) only. It sends
what is durable and nothing else, redeliveries first. State moves after a message was taken
by somebody: a message that nobody took leaves no trace. `num_pending` is exact at all times: the
stream's `StreamFeed` counts what becomes durable and what goes. Times are the broker's clock that
only grows; what outlives the process is told in the time of day.
"""
cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from server.core._sink cimport Sink
from server.core._sublist cimport MatchResult, Sub, sub_free
from server.jetstream._acksink cimport AckSink
from server.jetstream._feed cimport StreamFeed
from server.jetstream._keeper cimport Keeper, Place
from server.jetstream._kinds cimport (
    ACK_ALL, ACK_EXPLICIT, ACK_FLOW_CONTROL, ACK_NONE, ENDED_MAX_DELIVER, ENDED_REMOVED,
    ENDED_TERMINATED, Ending,
)
from server.jetstream._listening cimport new_sub
from server.jetstream._outlet cimport Outlet
from server.jetstream._pending cimport PENDING, QUEUED, Entry, PendingTable
from server.jetstream._pullsink cimport PullSink
from server.jetstream._sweeps cimport change_waits, end_up_to, settle_stale
from server.jetstream._waiting cimport WaitingQueue
from server.jetstream._waits cimport Waits

cdef enum:
    DUE_AT_ONCE = 256
    OVERDUE_AT_ONCE = 4096      # then others have their chance
    LAST_OVERDUE_AT_ONCE = 256  # the same where each of them may be told of

cdef int64_t OVERDUE_GAP_NS = 1_000_000
cdef str REMOVED_REASON = "Unacknowledged message was deleted"
cdef dict POLICIES = {
    "none": ACK_NONE, "all": ACK_ALL, "explicit": ACK_EXPLICIT, "flow_control": ACK_FLOW_CONTROL,
}


@cython.no_gc_clear
cdef class ConsumerCore(Sink):
    def __init__(self, StreamFeed feed not None, owner, str name, config, uint64_t next_seq):
        self.hub = feed.hub
        self.feed = feed
        self.owner = owner
        self.account = feed.account
        self.store = feed.store
        self.interest_subs = []
        self.table = PendingTable()
        self.waiting = WaitingQueue(0)
        self.ack_key = feed.name + b"." + name.encode()
        self.reply_key = self.hub.place_of(self.account) + self.ack_key
        self.outlet = Outlet(self.hub, self.account, b"$JS.ACK." + self.reply_key + b".")
        self.pulls = PullSink(self)
        self.next_consumer_seq = 1
        self.start_at(next_seq)
        self.configure(config)
        self.used_ns = self.hub.now()

    def __dealloc__(self):
        free(self.skip)

    # Configuration and life

    def configure(self, config):
        """Live with another configuration: at the start, and when it was changed."""
        cdef bytes before = self.deliver_subject
        filters = config.filters
        waits = (self.config.ack_wait, self.config.backoff) if self.config is not None else None
        changed = self.config is not None and filters != self.filters
        self.config = config
        self.ack_policy = POLICIES[config.ack_policy]
        self.is_push = config.is_push
        self.outlet.headers_only = config.headers_only
        self.deliveries_max = max(config.max_deliver, 0)
        self.ack_pending_max = max(config.max_ack_pending, 0) if self.ack_policy != ACK_NONE else 0
        self.deliver_subject = config.deliver_subject.encode()
        self.deliver_group = config.deliver_group.encode()
        self.waiting.most = max(config.max_waiting, 0)
        self.waiting.by_priority = config.priority_policy == "prioritized"
        if waits is None or waits != (config.ack_wait, config.backoff):
            change_waits(self, Waits(config))
        if self.filters is None or changed:
            had_filters = bool(self.filters)
            self.filters = filters
            self.wanted = self.store.own_filter(filters or None)
            if self.interest_subs:
                self.drop_interest()
                self.raise_interest()
                self.feed.changed_filters(had_filters, bool(filters))
                self.search_seq = self.next_seq
                self.recount()
        if self.is_started:
            if before != self.deliver_subject:
                self.redeliver_all()
            self.look_for_listeners()
            self.wake()

    cdef int64_t wait_of(self, int32_t redeliveries) noexcept nogil:
        """How long an ack is waited for after so many redeliveries."""
        return self.waits.after(redeliveries)

    def start_at(self, uint64_t seq):
        """Where a consumer that knows nothing begins."""
        self.next_seq = self.search_seq = max(seq, 1)
        self.delivered_seq = self.floor_seq = self.next_seq - 1
        self.floor_consumer_seq = self.next_consumer_seq - 1

    def skip_to(self, sequences, uint64_t resume_seq):
        """Deliver these first, then go on from `resume_seq`."""
        cdef size_t i
        free(self.skip)
        self.skip = NULL
        self.skip_at = self.skip_count = 0
        if not sequences:
            return
        self.skip = <uint64_t*>malloc(len(sequences) * sizeof(uint64_t))
        if self.skip == NULL:
            raise MemoryError
        for i, seq in enumerate(sequences):
            self.skip[i] = seq
        self.skip_count = len(sequences)
        self.resume_seq = resume_seq

    def start_behind(self, uint64_t seq):
        """It was among the last of each subject, and none of them is left."""
        self.next_seq = self.search_seq = seq

    def replay_until(self, uint64_t seq):
        """Keep the gaps between messages up to this one."""
        self.replay_original = True
        self.replay_end_seq = seq

    def start(self):
        """Listen, count, and deliver from the next turn on."""
        self.feed.add(self)
        self.recount()
        self.raise_interest()
        if self.ack_policy != ACK_NONE:
            self.hub.acks_of(self.account).cores[self.ack_key] = self
        self.pulls.listen()
        self.is_started = True
        if self.table.pending:
            self.arm(self.table.next_due())
        self.look_for_listeners()
        self.wake()

    def stop(self):
        """Hear and deliver nothing any more. Whoever waits is forgotten."""
        cdef AckSink acks
        if self.closed:
            return
        self.closed = True
        if self.flow is not None:
            self.flow.stopped()
        if self.is_started:
            self.is_started = False
            self.pulls.close()
            acks = self.hub.acks_of(self.account)
            acks.cores.pop(self.ack_key, None)
            acks.last = None
        self.drop_interest()
        self.hub.dormant.discard(self)
        self.feed.drop(self)
        self.waiting = WaitingQueue(0)
        self.armed_at_ns = 0

    cdef int raise_interest(self) except -1:
        cdef Sub* sub
        for text in self.filters or [">"]:
            sub = new_sub(self, text.encode("utf-8", "surrogateescape"))
            if self.feed.interest.insert(sub):
                sub_free(sub)
                continue
            self.interest_subs.append(<size_t>sub)
        return 0

    cdef int drop_interest(self) except -1:
        cdef Sub* sub
        for address in self.interest_subs:
            sub = <Sub*><size_t>address
            self.feed.interest.remove(sub)
            sub.closed = 1
            sub.sink = NULL
            self.account.broker.turn.bury(sub)
        self.interest_subs = []
        return 0

    def recount(self):
        """Count anew what is left to deliver."""
        cdef uint64_t after = max(self.next_seq, self.feed.durable_seq + 1)
        if self.skip_at < self.skip_count:
            self.num_pending = sum(
                1 for i in range(self.skip_at, self.skip_count) if self.store.spans.slot(self.skip[i])
            )
            self.num_pending += self.store.pending_from(self.wanted, self.resume_seq)
        else:
            self.num_pending = self.store.pending_from(self.wanted, self.next_seq)
        self.num_pending -= self.store.pending_from(self.wanted, after)

    def send_heartbeat(self, bytes to, bytes more=b""):
        """`more`: lines that stand behind the two sequences."""
        cdef uint64_t seen = self.next_seq - 1
        if self.num_pending == 0:
            seen = max(seen, self.feed.durable_seq)
        self.outlet.send_status(to, (
            b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n%b\r\n"
            % (self.next_consumer_seq - 1, seen, more)
        ))

    # What is done with

    cdef bint acked_up_to(self, uint64_t seq, uint64_t consumer_seq) except -1:
        """All that was delivered up to `seq`."""
        return end_up_to(self, seq, consumer_seq)

    cdef bint is_acked(self, uint64_t seq) noexcept:
        """Whether it is among those that a sweep has not come to yet."""
        return self.acked is not None and not self.acked.is_over and seq <= self.acked.seq

    cdef int end_entry(self, Entry* entry, Ending why, str reason) except -1:
        """A message is done with; nothing is left of it but the floor that it moves."""
        cdef uint64_t seq = entry.seq, consumer_seq = entry.consumer_seq
        cdef uint32_t deliveries = <uint32_t>max(entry.redeliveries + 1, 1)
        cdef bint was_pending = entry.flags & PENDING
        if was_pending:
            if self.flow is not None:
                # As in `overdue`.
                self.flow.ended(seq, consumer_seq, deliveries, why, reason)
                entry = self.table.find(seq)
                if entry == NULL:
                    return 0
            if (why == ENDED_TERMINATED or why == ENDED_REMOVED) and self.hub.is_heard(
                self, b"MSG_TERMINATED"
            ):
                self.hub.tell(self.owner.terminated, (seq, consumer_seq, deliveries, reason))
        self.table.settle(entry)
        if self.keeper is not None:
            self.note()
            self.keeper.acked(seq)
        if was_pending:
            self.move_floor(consumer_seq, seq)
        return 0

    cdef int note(self) except -1:
        """A change for the keeper follows."""
        if not self.keeper.is_dirty:
            self.hub.unkept.append(self)
        return 0

    cdef int note_moved(self) except -1:
        """More changed than single changes tell."""
        if self.keeper is not None:
            self.note()
            self.keeper.moved()
        return 0

    cdef void move_floor(self, uint64_t consumer_seq, uint64_t seq) noexcept nogil:
        """A message left the pending ones: the floor goes on to what is still missing."""
        cdef Entry* oldest = self.table.oldest()
        if oldest == NULL:
            self.floor_consumer_seq = self.next_consumer_seq - 1
            self.floor_seq = self.delivered_seq
        elif self.ack_policy != ACK_EXPLICIT:
            # What is older and still awaited must stay above the floor, or no ack reaches it.
            if self.floor_seq < seq < oldest.seq:
                self.floor_consumer_seq = consumer_seq
                self.floor_seq = seq
        elif consumer_seq == self.floor_consumer_seq + 1:
            self.floor_consumer_seq = oldest.consumer_seq - 1
            self.floor_seq = oldest.seq - 1

    cdef int overdue(self, uint64_t seq) except -1:
        """It is to be delivered again, unless it was delivered as often as it may be."""
        cdef Entry* entry = self.table.find(seq)
        cdef uint64_t consumer_seq = entry.consumer_seq
        cdef uint32_t deliveries = <uint32_t>max(entry.redeliveries + 1, 1)
        if self.is_acked(seq):
            return 0
        if self.deliveries_max == 0 or deliveries < self.deliveries_max:
            self.table.requeue(entry)
            return 0
        if self.flow is not None:
            # A letter may be stored in this stream, and its limits may end the entry.
            self.flow.ended(seq, consumer_seq, deliveries, ENDED_MAX_DELIVER, "")
            entry = self.table.find(seq)
            if entry == NULL:
                return 0
        self.hub.tell(self.owner.max_delivered, (seq, deliveries))
        self.table.retire(entry)
        if self.keeper is not None:
            self.note()
            self.keeper.retired(seq)
        self.move_floor(consumer_seq, seq)
        return 0

    cdef bint needs_ack(self, uint64_t seq) noexcept nogil:
        """Whether a message of the stream that the filters let through is still waited for."""
        cdef Entry* entry
        if seq >= self.next_seq:
            return True
        entry = self.table.find(seq)
        if entry != NULL:
            return True
        return self.ack_policy != ACK_EXPLICIT and self.ack_policy != ACK_NONE and (
            seq > self.floor_seq
        )

    # What is due

    def tick(self, int64_t now_ns):
        """The time that was armed has come."""
        cdef int64_t next_ns = 0
        if self.closed:
            return
        self.arm(now_ns + OVERDUE_GAP_NS if self.take_overdue(now_ns) else self.table.next_due())
        if self.is_held:
            self.is_held = False
            self.wake()
        elif self.waiting.count:
            self.pulls.check(not self.is_full(), now_ns, NULL)
        if self.replay_due_ns and not self.is_ready:
            if now_ns >= self.replay_due_ns:
                self.wake()
            else:
                self.arm(self.replay_due_ns)
        if self.flow is not None:
            next_ns = self.flow.tick(now_ns)
            self.arm(next_ns)

    cdef bint take_overdue(self, int64_t now_ns) except -1:
        """Those whose ack wait is over, in the order of the stream; whether there may be more."""
        cdef uint64_t[DUE_AT_ONCE] due
        cdef uint32_t count = DUE_AT_ONCE, i
        cdef size_t most = LAST_OVERDUE_AT_ONCE if self.deliveries_max else OVERDUE_AT_ONCE
        cdef list many = []
        while count == DUE_AT_ONCE and <size_t>len(many) < most:
            count = self.table.take_due(now_ns, due, DUE_AT_ONCE)
            many.extend([due[i] for i in range(count)])
        for seq in sorted(many):
            self.overdue(seq)
        if many:
            self.wake()
        return count == DUE_AT_ONCE

    @property
    def armed_ns(self):
        return self.armed_at_ns if self.armed_at_ns else None

    @armed_ns.setter
    def armed_ns(self, value):
        self.armed_at_ns = 0 if value is None else value

    cdef int arm(self, int64_t at_ns) except -1:
        """Be called then or earlier; 0: never."""
        if at_ns and not self.closed and (self.armed_at_ns == 0 or at_ns < self.armed_at_ns):
            self.hub.timers.arm(self, at_ns)
        return 0

    cdef bint is_full(self) noexcept nogil:
        return self.ack_pending_max != 0 and self.table.pending >= self.ack_pending_max

    cdef int wake(self) except -1:
        """Something changed: look whether something can be sent."""
        if not self.is_ready and not self.closed and (self.active or self.waiting.count):
            self.hub.add_ready(self)
        return 0

    # Push: who listens

    def look_for_listeners(self):
        """Whether somebody listens on the deliver subject; if nobody does, look again soon."""
        if not self.is_push or self.closed:
            return
        self.active = self.has_listeners()
        if self.active:
            self.hub.dormant.discard(self)
            self.wake()
        else:
            self.hub.add_dormant(self)

    def has_listeners(self):
        cdef MatchResult* result = self.account.sublist.match(
            self.deliver_subject, len(self.deliver_subject)
        )
        cdef uint32_t i, k
        if not self.deliver_group:
            for i in range(result.plain_count):
                if self.is_deliver_subject(result.plain[i]):
                    return True
            return False
        for i in range(result.group_count):
            if result.groups[i].name[:result.groups[i].name_len] != self.deliver_group:
                continue
            for k in range(result.groups[i].count):
                if self.is_deliver_subject(result.groups[i].members[k]):
                    return True
        return False

    cdef bint is_deliver_subject(self, const Sub* sub) noexcept:
        """Whoever listens with a wildcard does not count, as with the reference."""
        return sub.subject_len == <uint32_t>len(self.deliver_subject) and memcmp(
            sub.subject, <const char*>self.deliver_subject, sub.subject_len
        ) == 0

    def redeliver_all(self):
        """Whoever got them is not who listens now."""
        cdef Entry* entry = self.table.oldest()
        cdef list pending = []
        while entry != NULL:
            if not entry.flags & QUEUED:
                pending.append(entry.seq)
            entry = &self.table.entries[entry.newer] if entry.newer else NULL
        for seq in pending:
            self.overdue(seq)

    # What the stream tells

    cdef int appended(self, uint64_t seq, uint64_t count) except -1:
        """`count` messages that the filters let through became durable, the first is `seq`."""
        if seq < self.next_seq:
            return 0
        if self.num_pending == 0 and self.skip_count == 0:
            self.search_seq = max(self.search_seq, seq)
        self.num_pending += count
        if not self.is_ready and (self.active or self.waiting.count) and not self.is_full():
            self.hub.add_ready(self)
        return 0

    cdef bint in_skip(self, uint64_t seq) noexcept nogil:
        cdef size_t low = self.skip_at, high = self.skip_count, middle
        while low < high:
            middle = (low + high) // 2
            if self.skip[middle] < seq:
                low = middle + 1
            else:
                high = middle
        return low < self.skip_count and self.skip[low] == seq

    cdef int gone(self, uint64_t seq) except -1:
        """A message that was counted is about to leave the stream."""
        cdef Entry* entry = self.table.find(seq)
        cdef bint ahead = seq >= self.next_seq
        if self.skip_count:
            ahead = seq >= self.resume_seq or self.in_skip(seq)
        if ahead and self.num_pending:
            self.num_pending -= 1
        if entry != NULL:
            if entry.flags & PENDING:
                self.acked_wall_ns = self.hub.now_ns + self.hub.wall_offset_ns
            self.end_entry(entry, ENDED_REMOVED, REMOVED_REASON)
            self.wake()
        return 0

    def purged(self, uint64_t first_seq, uint64_t last_seq, bint is_wider):
        """Messages went by a purge; `first_seq` is the first that may be left, 0: none is."""
        if first_seq == 0 and not is_wider:
            first_seq = last_seq + 1
        if self.next_seq < first_seq:
            self.next_seq = self.search_seq = first_seq
            self.drop_skipped()
        settle_stale(self, first_seq)
        self.recount()
        self.wake()

    cdef int drop_skipped(self) except -1:
        free(self.skip)
        self.skip = NULL
        self.skip_at = self.skip_count = 0
        return 0

    def reset(self, uint64_t seq):
        """Deliver from `seq` on, as if nothing had been delivered."""
        self.table.clear()
        self.drop_skipped()
        self.next_consumer_seq = 1
        self.start_at(seq)
        self.delivered_wall_ns = self.acked_wall_ns = 0
        self.note_moved()
        self.recount()
        self.wake()

    # What outlives the process

    def keep(self, Keeper keeper not None):
        """Keep the state from now on."""
        self.keeper = keeper
        self.note_moved()

    cdef int write_place(self, Place* place) except -1:
        place.next_seq = self.next_seq
        place.next_consumer_seq = self.next_consumer_seq
        place.delivered_seq = self.delivered_seq
        place.floor_seq = self.floor_seq
        place.floor_consumer_seq = self.floor_consumer_seq
        place.resume_seq = self.resume_seq if self.skip_at < self.skip_count else 0
        place.delivered_wall_ns = self.delivered_wall_ns
        place.acked_wall_ns = self.acked_wall_ns
        return 0

    @property
    def kept_resume_seq(self):
        """Where it goes on behind the last of each subject, when it was stopped among them."""
        return self.resume_seq

    def forget(self):
        """The consumer is gone: so is what was kept of it."""
        if self.keeper is not None and self.hub.book is not None:
            self.hub.book.forget(self.keeper.records)
            self.keeper = None
        self.table = PendingTable()     # a million entries should not wait for the collector

    # What an answer tells

    @property
    def ack_pending(self):
        return self.table.pending

    @property
    def redelivered(self):
        return self.table.redelivered

    @property
    def passed_seq(self):
        """Up to where nothing was found for it yet."""
        return self.search_seq - 1

    @property
    def is_retiming(self):
        """Whether some of those pending are still waited for as they were before a change."""
        return self.retimed is not None

    def waiting_count(self):
        """After those are gone that nobody listens for."""
        self.pulls.check(False, self.hub.now(), NULL)
        return self.waiting.count

    @property
    def is_waited_for(self):
        return self.waiting.count > 0

    @property
    def memory_bytes(self):
        return self.table.memory_bytes()
