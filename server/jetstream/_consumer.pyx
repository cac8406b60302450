# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Consumers of streams: what was delivered to whom, what is acknowledged, what comes next.

Contract. A `ConsumerCore` hears its pull requests and, through its account's `AckSink`, its
acknowledgements inside `deliver`; it sends only in the hub's phase (5 of the turn). It sends what
is durable and nothing else, redeliveries first. State moves after a message was taken by somebody:
a message that nobody took leaves no trace. `num_pending` is exact at all times: the stream's
`StreamFeed` counts what becomes durable and what goes. Times are the broker's clock that only
grows; what outlives the process is told in the time of day.

Nothing here waits: what is due hangs in `hub.timers`, one entry for each consumer.
"""
cimport cython
from collections import deque

from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from server.core._connection cimport Connection
from server.core._outbox cimport Chunk, chunk_new, chunk_release, outbox_pending
from server.core._router cimport route
from server.core._sublist cimport sub_free, sub_new
from server.jetstream._acks cimport (
    NUMBER_MAX,
    NUMBERS,
    AckSubject,
    put_ack_subject,
    put_number,
    read_ack_subject,
)
from server.jetstream._keeper cimport (
    CHANGES,
    MORE,
    OP_ACKED,
    OP_DELIVERED,
    OP_POSTPONED,
    OP_REDELIVERED,
    OP_RETIRED,
    WHOLE,
    Keeper,
    Place,
    Reader,
)
from server.jetstream._pending cimport PENDING, QUEUED, TIMED
from storage._index cimport SUBJECT_ID_MASK

from server.jetstream import pull
from server.jetstream.acks import ack_place, nak_delay_ns
from server.jetstream.apilevel import needs_newer_level
from server.jetstream.timers import WakingTimers

cdef enum:
    KEEPING_PHASE = 3           # before the commit
    CONSUMER_PHASE = 5
    COPIED_BODY_MAX = 2048
    BYTES_AT_ONCE_MAX = 1 << 20
    UNWRITTEN_MAX = 8 << 20     # a connection with more waiting gets nothing for a moment
    DUE_AT_ONCE = 256

cdef int64_t NEVER_NS = 1 << 60
cdef int64_t SECOND_NS = 1_000_000_000
cdef int64_t REPLAY_GAP_NS = 1_000_000      # shorter gaps are not kept
cdef int64_t DORMANT_LOOK_NS = 20_000_000
cdef int64_t UNWRITTEN_LOOK_NS = 2_000_000
cdef bytes SIZE_FIELD = b"Nats-Msg-Size: "
cdef bytes NO_HEADERS = b"NATS/1.0\r\n"
cdef str REMOVED_REASON = "Unacknowledged message was deleted"
cdef dict POLICIES = {
    "none": ACK_NONE, "all": ACK_ALL, "explicit": ACK_EXPLICIT, "flow_control": ACK_FLOW_CONTROL,
}
cdef dict RETENTIONS = {
    "limits": KEEP_BY_LIMITS, "interest": KEEP_BY_INTEREST, "workqueue": KEEP_UNTIL_ACKED,
}


cdef inline Sub* new_sub(Sink sink, bytes subject) except NULL:
    cdef Sub* sub = sub_new(<void*>sink, subject, len(subject), NULL, 0, b"", 0)
    if sub == NULL:
        raise MemoryError
    return sub


cdef Sub* listen(Sink sink, Account account, bytes subject) except NULL:
    cdef Sub* sub = new_sub(sink, subject)
    if account.sublist.insert(sub):
        sub_free(sub)
        raise ValueError(f"not a subject: {subject!r}")
    account.subscriptions += 1
    return sub


cdef int unlisten(Account account, Sub* sub) except -1:
    account.sublist.remove(sub)
    account.subscriptions -= 1
    sub.closed = 1
    sub.sink = NULL
    account.broker.turn.bury(sub)
    return 0


cdef class Flow:
    def __init__(self, ConsumerCore core not None):
        self.core = core

    cdef bint may_send(self, int64_t now_ns) except -1:
        """Whether the next message may go out; who says no wakes the core when it may."""
        return True

    cdef int accept(self, Waiting waiting, int64_t now_ns) except -1:
        """A pull request that keeps the limits, before it queues; pull.Refused says why not."""
        return 0

    cdef Waiting pick(self, int64_t size, int64_t now_ns):
        """Who gets a message of this size. The request has been charged with it."""
        return self.core.pick_waiting(size, now_ns)

    cdef bytes added_header(self):
        """Lines that all messages carry, each with its CRLF; None or empty: none."""
        return None

    cdef int sent(
        self, const Record* record, uint64_t consumer_seq, int64_t size, int64_t now_ns
    ) except -1:
        """A message left."""
        return 0

    cdef int ended(
        self, uint64_t seq, uint64_t consumer_seq, uint32_t deliveries, Ending why, str reason
    ) except -1:
        """A message that was pending is done with. It can still be read from the store; nothing
        may be published or removed from here: put it off with `hub.tell`."""
        return 0

    cdef int idle(self, int64_t now_ns) except -1:
        """The consumer has nothing that it may send just now."""
        return 0

    cdef int64_t tick(self, int64_t now_ns) except -1:
        """What is due by now; when the next is due, 0: nothing is."""
        return 0

    cdef int stopped(self) except -1:
        """The consumer ends."""
        return 0


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
        self.ack_prefix = b"$JS.ACK." + self.ack_key + b"."
        self.next_consumer_seq = 1
        self.start_at(next_seq)
        self.configure(config)
        self.used_ns = self.hub.now()

    def __dealloc__(self):
        free(self.backoff_ns)
        free(self.skip)

    # Configuration and life

    def configure(self, config):
        """Live with another configuration: at the start, and when it was changed."""
        cdef bytes before = self.deliver_subject
        filters = config.filters
        changed = self.config is not None and filters != self.filters
        self.config = config
        self.ack_policy = POLICIES[config.ack_policy]
        self.is_push = config.is_push
        self.headers_only = config.headers_only
        self.deliveries_max = max(config.max_deliver, 0)
        self.ack_pending_max = max(config.max_ack_pending, 0) if self.ack_policy != ACK_NONE else 0
        self.deliver_subject = config.deliver_subject.encode()
        self.deliver_group = config.deliver_group.encode()
        self.waiting.most = max(config.max_waiting, 0)
        self.waiting.by_priority = config.priority_policy == "prioritized"
        self.take_waits(config)
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
        if self.request_sub != NULL:
            if before != self.deliver_subject:
                self.redeliver_all()
            self.look_for_listeners()
            self.wake()

    def take_waits(self, config):
        cdef int64_t shortest = config.ack_wait
        cdef uint32_t i
        self.shift_waits(-1)
        free(self.backoff_ns)
        self.backoff_ns = NULL
        self.backoff_count = <uint32_t>len(config.backoff)
        self.ack_wait_ns = config.ack_wait
        if self.ack_policy == ACK_FLOW_CONTROL:
            # Answers to flow control come when they come: nothing is ever overdue.
            self.ack_wait_ns = shortest = NEVER_NS
        if self.backoff_count:
            self.backoff_ns = <int64_t*>malloc(self.backoff_count * sizeof(int64_t))
            if self.backoff_ns == NULL:
                raise MemoryError
            for i in range(self.backoff_count):
                self.backoff_ns[i] = config.backoff[i]
            shortest = min(config.backoff)
        self.table.set_shortest_wait(shortest)
        self.shift_waits(1)

    cdef int shift_waits(self, int64_t sign) except -1:
        """Those that are waited for are waited for as long as is configured now."""
        cdef uint32_t number = self.table.oldest_entry
        cdef Entry* entry
        while number:
            entry = &self.table.entries[number]
            number = entry.newer
            if entry.flags & TIMED:
                self.table.postpone(entry, entry.due_ns + sign * self.wait_of(entry.redeliveries))
        return 0 if sign < 0 else self.arm(self.table.next_due())

    cdef int64_t wait_of(self, int32_t redeliveries) noexcept nogil:
        """How long an ack is waited for after so many redeliveries."""
        if self.backoff_count == 0:
            return self.ack_wait_ns
        if redeliveries < 0:
            redeliveries = 0
        return self.backoff_ns[min(<uint32_t>redeliveries, self.backoff_count - 1)]

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
        cdef bytes subject = b"$JS.API.CONSUMER.MSG.NEXT." + self.ack_key
        self.feed.add(self)
        self.recount()
        self.raise_interest()
        if self.ack_policy != ACK_NONE:
            self.hub.acks_of(self.account).cores[self.ack_key] = self
        self.request_sub = listen(self, self.account, subject)
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
        if self.request_sub != NULL:
            unlisten(self.account, self.request_sub)
            self.request_sub = NULL
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

    # Who asks

    cdef int deliver(self, Msg* message, Sub* sub) noexcept:
        """A pull request."""
        cdef int header_size = message.header_size if message.header_size > 0 else 0
        sub.delivered += 1
        if message.reply == NULL:
            return 1
        try:
            self.request(
                message.reply[:message.reply_len],
                message.payload[header_size:message.size],
                message.payload[:header_size],
                self.hub.now(),
            )
        except Exception as error:
            self.owner.broken(error)
        return 1

    cdef int request(self, bytes reply, bytes body, bytes headers, int64_t now_ns) except -1:
        try:
            if headers and needs_newer_level(headers):
                raise pull.Refused(412, "Required Api Level")
            self.take_request(reply, body, now_ns)
        except pull.Refused as refusal:
            self.send_status(reply, pull.status(refusal.code, refusal.text))
        return 0

    cdef int take_request(self, bytes reply, bytes body, int64_t now_ns) except -1:
        cdef Waiting waiting
        cdef uint64_t there
        cdef int64_t batch = 0
        asked = pull.parse(body)
        if self.is_push:
            raise pull.Refused(409, "Consumer is push based")
        pull.check_limits(asked, self.config)
        waiting = Waiting(reply, asked, now_ns)
        # A request that is no JSON names no group, and the reference lets it pass.
        if body.lstrip().startswith(b"{"):
            pull.check_group(asked, self.config, "")
            if self.flow is not None:
                self.flow.accept(waiting, now_ns)
        self.used_ns = now_ns
        if self.waiting.count >= self.waiting.most and now_ns - self.looked_ns > SECOND_NS:
            self.check_waiting(False, now_ns, NULL)
        if waiting.no_wait:
            there = self.num_pending + self.table.queued
            if there == 0 and asked.expires == 0:
                raise pull.Refused(404, "No Messages")
            if there > 0:
                self.check_waiting(False, now_ns, &batch)
                if <int64_t>there < batch:
                    raise pull.Refused(408, "Requests Pending")
        if not self.waiting.add(waiting):
            if waiting.heartbeat_ns == 0:
                raise pull.Refused(409, "Exceeded MaxWaiting")
            return 0
        self.arm(waiting.expires_ns)
        self.arm(waiting.next_heartbeat_ns)
        self.wake()
        return 0

    cdef int check_waiting(self, bint at_end, int64_t now_ns, int64_t* batch) except -1:
        """Requests that are over leave, heartbeats are sent. `batch`: what the others still want."""
        cdef Waiting each = self.waiting.head, before = None, after
        cdef int64_t next_ns = 0
        self.looked_ns = now_ns
        while each is not None:
            after = each.next
            if each.expires_ns and now_ns >= each.expires_ns:
                self.waiting.remove(before, each)
                self.send_status(each.reply, pull.status(
                    408, "Request Timeout", each.messages, each.size))
            elif at_end and each.no_wait and (each.expires_ns == 0 or each.delivered > 0):
                self.waiting.remove(before, each)
                self.send_status(each.reply, pull.status(404, "No Messages"))
            elif not self.has_interest(each.reply):
                self.waiting.remove(before, each)
            else:
                if batch != NULL:
                    batch[0] += each.messages
                if each.next_heartbeat_ns:
                    if now_ns >= each.next_heartbeat_ns:
                        self.send_heartbeat(each.reply)
                        each.next_heartbeat_ns = now_ns + each.heartbeat_ns
                    next_ns = earlier(next_ns, each.next_heartbeat_ns)
                next_ns = earlier(next_ns, each.expires_ns)
                before = each
            each = after
        return self.arm(next_ns)

    def send_heartbeat(self, bytes to, bytes more=b""):
        """`more`: lines that stand behind the two sequences."""
        cdef uint64_t seen = self.next_seq - 1
        if self.num_pending == 0:
            seen = max(seen, self.feed.durable_seq)
        self.send_status(to, (
            b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n%b\r\n"
            % (self.next_consumer_seq - 1, seen, more)
        ))

    def refuse_waiting(self, int code, str text, bint with_rest=False):
        """Tell all that wait that they get nothing more, and forget them."""
        cdef Waiting each
        while self.waiting.head is not None:
            each = self.waiting.head
            self.waiting.drop_head()
            if with_rest:
                block = pull.status(code, text, each.messages, each.size)
            else:
                block = pull.status(code, text)
            self.send_status(each.reply, block)

    # Acknowledgements

    cdef int acknowledge(
        self, Msg* message, uint64_t seq, uint64_t consumer_seq, int64_t now_ns
    ) except -1:
        cdef int header_size = message.header_size if message.header_size > 0 else 0
        cdef const char* body = message.payload + header_size
        cdef int size = message.size - header_size
        cdef bint answered = seq != 0
        if size == 0 or (size == 4 and memcmp(body, b"+ACK", 4) == 0) or (
            size == 3 and memcmp(body, b"+OK", 3) == 0
        ):
            answered = self.acked(seq, consumer_seq, ENDED_ACKED, "")
        elif size >= 4 and memcmp(body, b"+NXT", 4) == 0:
            self.acked(seq, consumer_seq, ENDED_ACKED, "")
            if message.reply != NULL:
                self.request(message.reply[:message.reply_len], body[4:size], b"", now_ns)
            return 0
        elif size >= 4 and memcmp(body, b"-NAK", 4) == 0:
            self.nak(seq, consumer_seq, body[4:size], now_ns)
        elif size == 4 and memcmp(body, b"+WPI", 4) == 0:
            self.in_progress(seq, now_ns)
        elif size >= 5 and memcmp(body, b"+TERM", 5) == 0:
            reason = body[5:size].strip().decode("utf-8", "replace")
            answered = self.acked(seq, consumer_seq, ENDED_TERMINATED, reason)
        if answered and message.reply != NULL:
            self.answer_ack(message)
        return 0

    cdef int answer_ack(self, Msg* message) except -1:
        """The answer to an ack that asked for one: when what it did is kept."""
        cdef bytes reply = message.reply[:message.reply_len]
        if self.keeper is None:
            return self.hub.tell(self.send_empty, (reply,))
        return self.hub.answer_when_kept(self, reply)

    def send_empty(self, bytes to):
        self.send_status(to, b"")

    cdef bint acked(self, uint64_t seq, uint64_t consumer_seq, Ending why, str reason) except -1:
        """Whether the ack is answered: it is not where it names what was never delivered."""
        cdef Entry* entry
        cdef bint was_full
        if seq >= self.next_seq:
            return False
        self.used_ns = self.hub.now_ns
        was_full = self.ack_pending_max and self.table.pending >= self.ack_pending_max
        if self.ack_policy != ACK_EXPLICIT:
            if why == ENDED_TERMINATED:
                self.tell_terminated(seq, consumer_seq, reason)
            self.acked_up_to(seq, consumer_seq)
        else:
            self.acked_wall_ns = self.hub.now_ns + self.hub.wall_offset_ns
            entry = self.table.find(seq)
            if entry != NULL:
                self.end_entry(entry, why, reason)
                self.feed.settled(seq)
        if was_full:
            self.wake()
        return seq != 0

    cdef int tell_terminated(self, uint64_t seq, uint64_t consumer_seq, str reason) except -1:
        """One that goes with all before it: those are acknowledged, this one is given up."""
        cdef Entry* entry = self.table.find(seq)
        cdef uint32_t deliveries
        if entry == NULL or not entry.flags & PENDING:
            return 0
        deliveries = <uint32_t>max(entry.redeliveries + 1, 1)
        if self.flow is not None:
            self.flow.ended(seq, consumer_seq, deliveries, ENDED_TERMINATED, reason)
        return self.hub.tell(self.owner.terminated, (seq, consumer_seq, deliveries, reason))

    cdef bint acked_up_to(self, uint64_t seq, uint64_t consumer_seq) except -1:
        """All that was delivered up to `seq`."""
        cdef Entry* entry
        cdef uint64_t each
        if consumer_seq <= self.floor_consumer_seq or seq <= self.floor_seq:
            return False
        if consumer_seq >= self.next_consumer_seq:
            return False
        self.acked_wall_ns = self.hub.now_ns + self.hub.wall_offset_ns
        entry = self.table.oldest()
        while entry != NULL and entry.seq <= seq:
            each = entry.seq
            self.end_entry(entry, ENDED_ACKED, "")
            self.feed.settled(each)
            entry = self.table.oldest()
        self.floor_seq = seq
        self.floor_consumer_seq = consumer_seq
        return True

    cdef int end_entry(self, Entry* entry, Ending why, str reason) except -1:
        """A message is done with; nothing is left of it but the floor that it moves."""
        cdef uint64_t seq = entry.seq, consumer_seq = entry.consumer_seq
        cdef uint32_t deliveries = <uint32_t>max(entry.redeliveries + 1, 1)
        cdef bint was_pending = entry.flags & PENDING
        if was_pending:
            if self.flow is not None:
                self.flow.ended(seq, consumer_seq, deliveries, why, reason)
            if why == ENDED_TERMINATED or why == ENDED_REMOVED:
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

    cdef int nak(self, uint64_t seq, uint64_t consumer_seq, bytes argument, int64_t now_ns) except -1:
        cdef Entry* entry = self.table.find(seq)
        cdef int64_t delay_ns = 0
        if entry == NULL or not entry.flags & PENDING:
            return 0
        if consumer_seq <= self.floor_consumer_seq or consumer_seq >= self.next_consumer_seq:
            return 0
        self.hub.tell(self.owner.naked, (seq, consumer_seq, entry.redeliveries + 1))
        argument = argument.strip()
        if argument:
            delay = nak_delay_ns(argument)
            if delay is not None:
                self.table.postpone(entry, now_ns + <int64_t>delay)
                if self.keeper is not None:
                    self.note()
                    self.keeper.postponed(seq, delay)
                return self.arm(now_ns + <int64_t>delay)
            self.owner.warn_of_delay(argument)
        self.overdue(seq)
        return self.wake()

    cdef int in_progress(self, uint64_t seq, int64_t now_ns) except -1:
        cdef Entry* entry = self.table.find(seq)
        self.used_ns = now_ns
        if entry == NULL or not entry.flags & PENDING or entry.flags & QUEUED:
            return 0
        self.table.postpone(entry, now_ns + self.wait_of(entry.redeliveries))
        if self.keeper is not None:
            self.note()
            self.keeper.postponed(seq, self.wait_of(entry.redeliveries))
        return 0

    cdef int overdue(self, uint64_t seq) except -1:
        """It is to be delivered again, unless it was delivered as often as it may be."""
        cdef Entry* entry = self.table.find(seq)
        cdef uint64_t consumer_seq = entry.consumer_seq
        cdef uint32_t deliveries = <uint32_t>max(entry.redeliveries + 1, 1)
        if self.deliveries_max == 0 or deliveries < self.deliveries_max:
            self.table.requeue(entry)
            return 0
        if self.flow is not None:
            self.flow.ended(seq, consumer_seq, deliveries, ENDED_MAX_DELIVER, "")
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
        self.take_overdue(now_ns)
        self.arm(self.table.next_due())
        if self.is_held:
            self.is_held = False
            self.wake()
        elif self.waiting.count:
            self.check_waiting(not self.is_full(), now_ns, NULL)
        if self.replay_due_ns and not self.is_ready:
            if now_ns >= self.replay_due_ns:
                self.wake()
            else:
                self.arm(self.replay_due_ns)
        if self.flow is not None:
            next_ns = self.flow.tick(now_ns)
            self.arm(next_ns)

    cdef int take_overdue(self, int64_t now_ns) except -1:
        """Those whose ack wait is over, in the order of the stream."""
        cdef uint64_t[DUE_AT_ONCE] due
        cdef uint32_t count = DUE_AT_ONCE, i
        cdef list many = []
        while count == DUE_AT_ONCE:
            count = self.table.take_due(now_ns, due, DUE_AT_ONCE)
            many.extend([due[i] for i in range(count)])
        for seq in sorted(many):
            self.overdue(seq)
        return self.wake() if many else 0

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

    # Sending

    cdef bint pump(self, int64_t now_ns, uint32_t* budget) except -1:
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
        if self.is_backed_up():
            self.is_held = True
            self.arm(now_ns + UNWRITTEN_LOOK_NS)
            return False
        while not self.closed:
            if self.flow is not None and not self.flow.may_send(now_ns):
                break
            if not self.active and self.waiting.head is None:
                return False
            if sent >= self.hub.messages_at_once_max or budget[0] == 0 or (
                sent_bytes > BYTES_AT_ONCE_MAX
            ):
                return True
            found = self.look(&record, &deliveries)
            if found == FOUND_NOTHING or found == FOUND_FULL:
                break
            if self.replay_original and self.must_wait_for_replay(&record, now_ns):
                break
            reply_len = self.write_reply(&record, found == FOUND_NEW, deliveries)
            size = record.subject_len + reply_len + record.hdr_len + record.msg_len
            if self.headers_only:
                size = record.subject_len + reply_len + self.reduced_size(&record)
            waiting = None
            if self.is_push:
                to = self.deliver_subject
            else:
                waiting = self.flow.pick(size, now_ns) if self.flow is not None else (
                    self.pick_waiting(size, now_ns))
                if waiting is None:
                    break
                to = waiting.reply
            added = self.flow.added_header() if self.flow is not None else None
            result = self.account.sublist.match(to, len(to))
            if not self.deliver_record(&record, to, result, reply_len, added, &size):
                self.not_taken(waiting)
                break
            sent += 1
            budget[0] -= 1
            sent_bytes += size
            self.after_delivery(&record, found == FOUND_NEW, deliveries, now_ns)
            if waiting is not None:
                if waiting.messages <= 0 and waiting.size > 0:
                    self.send_status(waiting.reply, pull.status(
                        409, "Batch Completed", waiting.messages, waiting.size))
                elif waiting.heartbeat_ns:
                    waiting.next_heartbeat_ns = now_ns + waiting.heartbeat_ns
            if self.flow is not None:
                self.flow.sent(&record, self.next_consumer_seq - 1, size, now_ns)
        if self.replay_original and self.next_seq > self.replay_end_seq:
            self.replay_original = False
            self.replay_due_ns = 0
        if self.waiting.count:
            self.check_waiting(found != FOUND_FULL, now_ns, NULL)
        if self.flow is not None:
            self.flow.idle(now_ns)
        return False

    cdef bint is_backed_up(self) except -1:
        """Whether the one connection that would get it has not written what it got before."""
        cdef bytes to
        cdef MatchResult* result
        cdef Connection connection
        if self.is_push:
            to = self.deliver_subject
        elif self.waiting.head is not None:
            to = self.waiting.head.reply
        else:
            return False
        result = self.account.sublist.match(to, len(to))
        if result.plain_count != 1 or result.group_count or result.plain[0].sink == NULL:
            return False
        sink = <object>result.plain[0].sink
        if not isinstance(sink, Connection):
            return False
        connection = <Connection>sink
        return outbox_pending(&connection.out) > UNWRITTEN_MAX

    cdef Found look(self, Record* record, uint32_t* deliveries) except *:
        """The message that comes next, if one may."""
        cdef uint64_t seq
        cdef Found found
        if self.table.queue_head:
            found = self.look_again(record, deliveries)
            if found == FOUND_AGAIN:
                return found
        if self.ack_pending_max and self.table.pending >= self.ack_pending_max:
            return FOUND_FULL
        deliveries[0] = 1
        while True:
            seq = self.next_new()
            if seq == 0:
                return FOUND_NOTHING
            if self.store.read(seq, record):
                return FOUND_NEW
            # It cannot be read any more: the store has said so in its own place.
            self.step_over(seq)

    cdef Found look_again(self, Record* record, uint32_t* deliveries) except *:
        cdef Entry* entry = self.table.next_queued()
        while entry != NULL:
            if self.store.read(entry.seq, record):
                deliveries[0] = <uint32_t>max(entry.redeliveries + 2, 1)
                return FOUND_AGAIN
            self.end_entry(entry, ENDED_REMOVED, REMOVED_REASON)
            entry = self.table.next_queued()
        return FOUND_NOTHING

    cdef uint64_t next_new(self) except? 0:
        """The next sequence that was never delivered; 0: there is none."""
        cdef uint64_t seq
        while self.skip_at < self.skip_count:
            seq = self.skip[self.skip_at]
            if self.store.spans.slot(seq):
                return seq
            self.step_over(seq)
        if self.num_pending == 0:
            self.search_seq = max(self.search_seq, self.feed.durable_seq + 1)
            return 0
        if self.search_seq > self.feed.durable_seq:
            return 0
        seq = self.store.next_seq(self.wanted, self.search_seq)
        if seq == 0 or seq > self.feed.durable_seq:
            self.search_seq = self.feed.durable_seq + 1
            return 0
        self.search_seq = seq
        return seq

    cdef int step_over(self, uint64_t seq) noexcept:
        """Go on behind `seq`."""
        if self.skip_at < self.skip_count:
            self.skip_at += 1
            self.next_seq = seq + 1
            if self.skip_at == self.skip_count:
                self.next_seq = self.resume_seq
                free(self.skip)
                self.skip = NULL
                self.skip_at = self.skip_count = 0
        else:
            self.next_seq = seq + 1
        self.search_seq = self.next_seq
        return 0

    cdef bint must_wait_for_replay(self, const Record* record, int64_t now_ns) except -1:
        """Whether the gap before this message is not over."""
        cdef int64_t gap_ns = record.ts_ns - self.replay_stored_ns
        if self.replay_stored_ns == 0 or gap_ns <= REPLAY_GAP_NS:
            self.replay_due_ns = 0
            return False
        self.replay_due_ns = self.replay_sent_ns + gap_ns
        if now_ns >= self.replay_due_ns:
            self.replay_due_ns = 0
            return False
        self.arm(self.replay_due_ns)
        return True

    cdef size_t write_reply(self, const Record* record, bint is_new, uint32_t deliveries) except? 0:
        """The reply subject, at the start of the hub's room."""
        cdef size_t prefix = len(self.ack_prefix)
        cdef uint64_t pending = self.num_pending
        if is_new and pending:
            pending -= 1
        return put_ack_subject(
            self.hub.reserve(prefix + NUMBERS * (NUMBER_MAX + 1)), <const char*>self.ack_prefix,
            prefix, deliveries, record.seq, self.next_consumer_seq, <uint64_t>record.ts_ns, pending
        )

    cdef int64_t reduced_size(self, const Record* record) noexcept nogil:
        """The headers of a message without its payload."""
        cdef char[NUMBER_MAX] digits
        cdef int64_t number = put_number(digits, record.msg_len) - digits
        return (record.hdr_len - 2 if record.hdr_len else 10) + 15 + number + 4

    cdef Waiting pick_waiting(self, int64_t size, int64_t now_ns):
        """The request that gets a message of this size; those that are over are told so."""
        cdef Waiting each
        while self.waiting.head is not None:
            each = self.waiting.head
            if each.expires_ns and now_ns >= each.expires_ns:
                self.drop_request(408, "Request Timeout")
            elif each.size > 0 and size > each.size:
                self.drop_request(409, "Message Size Exceeds MaxBytes")
            elif not self.has_interest(each.reply):
                self.waiting.drop_head()
            else:
                self.charge(size)
                return each
        return None

    cdef int drop_request(self, int code, str text) except -1:
        """The request that is first is over, and told what it did not get."""
        cdef Waiting first = self.waiting.head
        self.waiting.drop_head()
        return self.send_status(first.reply, pull.status(code, text, first.messages, first.size))

    cdef int charge(self, int64_t size) except -1:
        """The request that is first gets a message of this size."""
        cdef Waiting first = self.waiting.head
        if first.size > 0:
            first.size -= size
            if first.size == 0:
                first.messages = 1
        self.waiting.take()
        return 0

    cdef int not_taken(self, Waiting waiting) except -1:
        """Nobody took the message: a request is forgotten, a push goes on when somebody listens."""
        cdef Waiting each = self.waiting.head, before = None
        if waiting is None:
            # Somebody may be there who takes nothing: not before the next look.
            self.active = False
            self.hub.add_dormant(self)
            return 0
        while each is not None:
            if each is waiting:
                self.waiting.remove(before, each)
                break
            before = each
            each = each.next
        return self.wake()

    cdef bint has_interest(self, bytes subject) except -1:
        cdef MatchResult* result = self.account.sublist.match(subject, len(subject))
        return result.plain_count > 0 or result.group_count > 0

    cdef int deliver_record(
        self, const Record* record, bytes to, MatchResult* result, size_t reply_len,
        bytes added, int64_t* size
    ) except -1:
        """Route a message; how many took it. Its reply subject stands in the hub's room."""
        cdef Msg message
        cdef Chunk* chunk = NULL
        cdef size_t header_size = record.hdr_len, body_size, wanted
        cdef char* at
        cdef int taken
        if self.headers_only:
            header_size = self.reduced_size(record)
        if added is not None and len(added):
            header_size = (header_size if header_size else 12) + len(added)
        body_size = header_size + (0 if self.headers_only else record.msg_len)
        wanted = reply_len + body_size + 2
        self.hub.reserve(wanted)
        if body_size > COPIED_BODY_MAX:
            chunk = chunk_new(body_size + 2)
            if chunk == NULL:
                raise MemoryError
            at = chunk.data
        else:
            at = self.hub.text + reply_len
        message.payload = at
        if self.headers_only or (added is not None and len(added)):
            at = self.write_headers(at, record, added)
        elif record.hdr_len:
            memcpy(at, record.hdr, record.hdr_len)
            at += record.hdr_len
        if not self.headers_only and record.msg_len:
            memcpy(at, record.msg, record.msg_len)
            at += record.msg_len
        at[0] = 13
        at[1] = 10
        message.subject = record.subject
        message.subject_len = record.subject_len
        message.reply = self.hub.text
        message.reply_len = <uint32_t>reply_len
        message.header_size = <int>header_size
        message.size = <int>body_size
        message.owner = chunk
        message.origin = NULL
        message.tail_len = message.plain_tail_len = 0
        taken = self.send(result, &message)
        if chunk != NULL:
            chunk_release(chunk)
        size[0] = record.subject_len + reply_len + body_size
        return taken

    cdef char* write_headers(self, char* at, const Record* record, bytes added) noexcept:
        """The header block with the lines of this consumer."""
        if record.hdr_len:
            memcpy(at, record.hdr, record.hdr_len - 2)
            at += record.hdr_len - 2
        else:
            memcpy(at, <const char*>NO_HEADERS, 10)
            at += 10
        if added is not None:
            memcpy(at, <const char*>added, len(added))
            at += len(added)
        if self.headers_only:
            memcpy(at, <const char*>SIZE_FIELD, 15)
            at = put_number(at + 15, record.msg_len)
            at[0] = 13
            at[1] = 10
            at += 2
        at[0] = 13
        at[1] = 10
        return at + 2

    cdef int send(self, MatchResult* result, Msg* message) noexcept:
        cdef int taken
        cdef Broker broker = self.hub.broker
        broker.last_line_id += 1
        message.line_id = broker.last_line_id
        taken = route(self.account.sublist, result, message, &broker.random)
        self.account.out_msgs += taken
        self.account.out_bytes += <int64_t>taken * message.size
        broker.out_msgs += taken
        broker.out_bytes += <int64_t>taken * message.size
        return taken

    cdef int send_status(self, bytes reply, bytes block) except -1:
        """A message of nothing but headers."""
        return self.send_request(reply, None, block)

    cdef int send_request(self, bytes to, bytes reply, bytes block) except -1:
        """The same with a subject for the answer."""
        cdef Msg message
        cdef bytes body = block + b"\r\n"
        cdef Chunk* chunk
        cdef MatchResult* result = self.account.sublist.match(to, len(to))
        if result.plain_count == 0 and result.group_count == 0:
            return 0
        chunk = chunk_new(len(body))
        if chunk == NULL:
            raise MemoryError
        memcpy(chunk.data, <const char*>body, len(body))
        message.subject = to
        message.subject_len = <uint32_t>len(to)
        message.reply = NULL
        message.reply_len = 0
        if reply is not None:
            message.reply = reply
            message.reply_len = <uint32_t>len(reply)
        message.payload = chunk.data
        message.owner = chunk
        message.origin = NULL
        message.header_size = message.size = <int>len(block)
        message.tail_len = message.plain_tail_len = 0
        self.send(result, &message)
        chunk_release(chunk)
        return 1

    cdef int after_delivery(
        self, const Record* record, bint is_new, uint32_t deliveries, int64_t now_ns
    ) except -1:
        """A message was taken: all that is known of it moves."""
        cdef uint64_t consumer_seq = self.next_consumer_seq
        cdef uint64_t seq = record.seq
        cdef Entry* entry
        cdef int32_t redeliveries = 0
        self.next_consumer_seq += 1
        self.used_ns = now_ns
        self.delivered_wall_ns = self.hub.turn_wall_ns
        if self.replay_original:
            self.replay_stored_ns = record.ts_ns
            self.replay_sent_ns = now_ns
        if is_new:
            if self.num_pending:
                self.num_pending -= 1
            self.delivered_seq = seq
            self.step_over(seq)
        if self.ack_policy == ACK_NONE:
            self.floor_consumer_seq = consumer_seq
            self.floor_seq = seq
            self.note_moved()
            if self.feed.retention != KEEP_BY_LIMITS:
                self.feed.settled(seq)
            return 0
        if not is_new:
            redeliveries = <int32_t>deliveries - 1
        if self.keeper is not None:
            self.note()
            if is_new:
                self.keeper.delivered(seq, consumer_seq)
            else:
                self.keeper.redelivered(seq, consumer_seq, redeliveries)
        entry = self.table.delivered(seq, consumer_seq, now_ns + self.wait_of(redeliveries))
        if self.armed_at_ns == 0 or entry.due_ns < self.armed_at_ns:
            self.arm(entry.due_ns + (<int64_t>1 << self.table.shift))
        return 0

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
        cdef Entry* entry
        cdef uint32_t number
        if first_seq == 0 and not is_wider:
            first_seq = last_seq + 1
        if self.next_seq < first_seq:
            self.next_seq = self.search_seq = first_seq
            self.drop_skipped()
        for number in range(1, self.table.top):
            entry = &self.table.entries[number]
            if entry.seq and (entry.seq < first_seq or not self.store.spans.slot(entry.seq)):
                self.acked_wall_ns = self.hub.now_ns + self.hub.wall_offset_ns
                self.table.settle(entry)
                if self.table.known == 0:
                    break
        if self.floor_seq + 1 < first_seq:
            self.floor_seq = first_seq - 1
        entry = self.table.oldest()
        if entry == NULL:
            self.floor_consumer_seq = self.next_consumer_seq - 1
            self.floor_seq = max(self.next_seq - 1, self.floor_seq)
            self.delivered_seq = max(self.delivered_seq, self.floor_seq)
        self.note_moved()
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

    def keep(self, Keeper keeper not None, list records):
        """Keep the state from now on; `records` are what was kept of it, oldest first."""
        cdef bytes record
        for seq, record in records:
            keeper.records.append(seq)
            self.take_record(keeper, Reader(record))
        self.keeper = keeper
        self.note_moved()

    def has_record(self, Keeper keeper not None, list records):
        """Whether one of them is of this consumer and not of a namesake before it."""
        cdef Reader reader
        for _, record in records:
            reader = Reader(record)
            reader.get()
            if reader.get() == keeper.identity:
                return True
        return False

    def take_record(self, Keeper keeper, Reader reader):
        cdef uint64_t kind = reader.get()
        cdef int64_t passed_ns
        if reader.get() != keeper.identity:
            return
        if kind == WHOLE:
            self.take_place(reader)
        passed_ns = self.hub.broker.wall() - <int64_t>reader.get() * 1_000_000
        if kind == WHOLE:
            self.take_retired(reader)
        if kind == CHANGES:
            while reader.at < reader.end:
                self.take_change(reader, passed_ns)
        else:
            self.take_entries(reader, passed_ns)

    def take_place(self, Reader reader):
        self.table.clear()
        self.drop_skipped()
        self.next_seq = self.search_seq = reader.get()
        self.next_consumer_seq = reader.get()
        self.delivered_seq = reader.get()
        self.floor_seq = reader.get()
        self.floor_consumer_seq = reader.get()
        self.resume_seq = reader.get()
        self.delivered_wall_ns = <int64_t>reader.get()
        self.acked_wall_ns = <int64_t>reader.get()

    def take_retired(self, Reader reader):
        cdef Entry* entry
        cdef uint64_t seq, consumer_seq
        for _ in range(reader.get()):
            seq = reader.get()
            consumer_seq = reader.get()
            entry = self.table.delivered(seq, consumer_seq, 0)
            entry.redeliveries = <int32_t>reader.get_signed()
            self.table.retire(entry)

    def take_entries(self, Reader reader, int64_t passed_ns):
        cdef Entry* entry
        cdef uint64_t seq = 0, consumer_seq = 0
        cdef int64_t due_ns, now_ns = self.hub.now()
        cdef int32_t redeliveries
        while reader.at < reader.end:
            seq += reader.get()
            consumer_seq += reader.get()
            redeliveries = <int32_t>reader.get_signed()
            due_ns = now_ns + reader.get_signed() * 1_000_000 - passed_ns
            entry = self.table.delivered(seq, consumer_seq, due_ns)
            entry.redeliveries = redeliveries
            if redeliveries > 0:
                self.table.count(entry)

    def take_change(self, Reader reader, int64_t passed_ns):
        cdef uint64_t op = reader.get()
        cdef uint64_t seq = self.delivered_seq + <uint64_t>reader.get_signed()
        cdef int64_t now_ns = self.hub.now()
        cdef int32_t redeliveries
        cdef uint64_t consumer_seq
        cdef Entry* entry
        if op == OP_DELIVERED:
            self.next_consumer_seq += <uint64_t>reader.get_signed()
            self.delivered_seq = seq
            self.next_seq = self.search_seq = seq + 1
            self.table.delivered(
                seq, self.next_consumer_seq - 1, now_ns + self.wait_of(0) - passed_ns
            )
            return
        entry = self.table.find(seq)
        if op == OP_REDELIVERED:
            self.next_consumer_seq += <uint64_t>reader.get_signed()
            redeliveries = <int32_t>reader.get_signed()
            if entry != NULL:
                entry = self.table.delivered(
                    seq, 0, now_ns + self.wait_of(redeliveries) - passed_ns)
                entry.redeliveries = redeliveries
        elif op == OP_POSTPONED:
            redeliveries = 0
            passed_ns -= reader.get_signed() * 1_000_000
            if entry != NULL and entry.flags & PENDING:
                self.table.postpone(entry, now_ns - passed_ns)
        elif entry != NULL:
            consumer_seq = entry.consumer_seq
            if op == OP_ACKED:
                was_pending = entry.flags & PENDING
                self.table.settle(entry)
            else:
                was_pending = True
                self.table.retire(entry)
            if was_pending:
                self.move_floor(consumer_seq, seq)

    def fit_to_stream(self):
        """The stream may have lost its tail, and messages that were pending."""
        cdef uint64_t last = self.store.last_seq, seq, consumer_seq
        cdef uint32_t number
        cdef Entry* entry
        for number in range(1, self.table.top):
            entry = &self.table.entries[number]
            if entry.seq and not self.store.spans.slot(entry.seq):
                seq, consumer_seq = entry.seq, entry.consumer_seq
                was_pending = entry.flags & PENDING
                self.table.settle(entry)
                if was_pending:
                    self.move_floor(consumer_seq, seq)
                if self.table.known == 0:
                    break
        self.next_seq = self.search_seq = min(self.next_seq, last + 1)
        self.delivered_seq = min(self.delivered_seq, last)
        self.floor_seq = min(self.floor_seq, last)

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

    def waiting_count(self):
        """After those are gone that nobody listens for."""
        self.check_waiting(False, self.hub.now(), NULL)
        return self.waiting.count

    @property
    def is_waited_for(self):
        return self.waiting.count > 0

    @property
    def memory_bytes(self):
        return self.table.memory_bytes()


cdef inline int64_t earlier(int64_t one_ns, int64_t other_ns) noexcept nogil:
    if one_ns == 0 or (other_ns and other_ns < one_ns):
        return other_ns
    return one_ns


@cython.no_gc_clear
cdef class StreamFeed(StoreEvents):
    def __init__(
        self, ConsumerHub hub not None, Account account not None, StreamStore store not None,
        str name, str retention, uint64_t durable_seq,
    ):
        self.hub = hub
        self.account = account
        self.store = store
        self.name = name.encode()
        self.retention = RETENTIONS[retention]
        self.durable_seq = durable_seq
        self.interest = Sublist(cache=True, seed=hub.broker.random)
        self.cores = {}

    def attach(self, StreamSink sink):
        """What stores the stream's messages asks here whether somebody wants them."""
        self.sink = sink
        if sink is not None:
            sink.interest = self.interest

    def set_retention(self, str retention):
        self.retention = RETENTIONS[retention]

    def add(self, ConsumerCore core not None):
        if not self.cores:
            self.store.set_events(self)
        self.cores[core] = None
        self.filtered += bool(core.filters)

    def drop(self, ConsumerCore core not None):
        if core in self.cores:
            del self.cores[core]
            self.filtered -= bool(core.filters)
        if not self.cores:
            self.store.set_events(None)

    def changed_filters(self, bint had, bint has):
        """One of them has filters now, or has none any more."""
        self.filtered += has - had

    # What happens in the stream

    def appended(self, uint64_t first, uint64_t last):
        """These became durable."""
        cdef uint64_t seq, count = 0, lowest = 0
        cdef uint32_t slot, number, i
        cdef MatchResult* result
        cdef ConsumerCore core
        if last <= self.durable_seq:
            return
        first = max(first, self.durable_seq + 1)
        self.durable_seq = last
        if not self.cores:
            return
        for seq in range(first, last + 1):
            slot = self.store.spans.slot(seq)
            if slot == 0:
                continue
            if self.filtered == 0:
                count += 1
                if lowest == 0:
                    lowest = seq
                continue
            number = slot & SUBJECT_ID_MASK
            result = self.interest.match(
                self.store.subjects.text_of(number), self.store.subjects.subjects[number].text_len
            )
            for i in range(result.plain_count):
                (<ConsumerCore>result.plain[i].sink).appended(seq, 1)
        if count:
            for core in self.cores:
                self.count_for(core, lowest, last, count)

    cdef int count_for(
        self, ConsumerCore core, uint64_t lowest, uint64_t last, uint64_t count
    ) except -1:
        """Some consumers begin in the middle of what was appended, or beyond it."""
        cdef uint64_t seq
        if core.next_seq <= lowest:
            return core.appended(lowest, count)
        for seq in range(core.next_seq, last + 1):
            if self.store.spans.slot(seq):
                core.appended(seq, 1)
        return 0

    cdef int removed(
        self, uint64_t seq, const char* subject, uint16_t subject_len, uint64_t size
    ) except -1:
        cdef MatchResult* result
        cdef ConsumerCore core
        cdef uint32_t i
        if seq > self.durable_seq:
            return 0
        if self.filtered == 0:
            for core in self.cores:
                core.gone(seq)
            return 0
        result = self.interest.match(subject, subject_len)
        for i in range(result.plain_count):
            (<ConsumerCore>result.plain[i].sink).gone(seq)
        return 0

    cdef int purged(self, uint64_t messages, uint64_t size) except -1:
        """All went; `Stream.purge` tells each consumer where it goes on."""
        cdef ConsumerCore core
        for core in self.cores:
            core.num_pending = 0
            core.drop_skipped()
        return 0

    # What consumers are done with

    cdef int settled(self, uint64_t seq) except -1:
        """A consumer is done with this one: nobody may want it any more."""
        if self.retention == KEEP_BY_LIMITS or self.is_wanted(seq, None):
            return 0
        return self.remove(seq)

    cdef bint is_wanted(self, uint64_t seq, ConsumerCore but) except -1:
        cdef uint32_t slot = self.store.spans.slot(seq), number, i
        cdef MatchResult* result
        cdef ConsumerCore core
        if slot == 0:
            return True
        number = slot & SUBJECT_ID_MASK
        result = self.interest.match(
            self.store.subjects.text_of(number), self.store.subjects.subjects[number].text_len
        )
        for i in range(result.plain_count):
            core = <ConsumerCore>result.plain[i].sink
            if core is not but and core.needs_ack(seq):
                return True
        return False

    cdef int remove(self, uint64_t seq) except -1:
        self.store.remove(seq, False)
        if self.sink is not None:
            self.sink.removed()
        return 0

    def remove_unwanted(self, uint64_t first, uint64_t last):
        """Messages in this range that no consumer waits for go; how many."""
        cdef uint64_t seq = self.store.spans.next_live(max(first, self.store.first_seq))
        cdef uint64_t count = 0
        last = min(last, self.durable_seq)
        while seq and seq <= last:
            if not self.is_wanted(seq, None):
                self.remove(seq)
                count += 1
            seq = self.store.spans.next_live(seq + 1)
        return count


@cython.no_gc_clear
cdef class AckSink(Sink):
    def __init__(self, ConsumerHub hub, Account account):
        self.hub = hub
        self.account = account
        self.cores = {}
        self.newer_prefix = ack_place(hub.domain, account.name)
        self.sub = listen(self, account, b"$JS.ACK.>")

    def close(self):
        if self.sub != NULL:
            unlisten(self.account, self.sub)
            self.sub = NULL

    cdef int deliver(self, Msg* message, Sub* sub) noexcept:
        sub.delivered += 1
        try:
            return self.take(message)
        except Exception as error:
            self.hub.broker.hooks.log("error", f"An acknowledgement failed: {error!r}")
        return 1

    cdef int take(self, Msg* message) except -1:
        """0: there is no such consumer."""
        cdef AckSubject subject
        cdef ConsumerCore core
        if not read_ack_subject(message.subject, message.subject_len, &subject):
            return 0
        if subject.place != NULL and (
            subject.place_len != <size_t>len(self.newer_prefix)
            or memcmp(subject.place, <const char*>self.newer_prefix, subject.place_len) != 0
        ):
            return 0
        core = self.find(subject.key, subject.key_len)
        if core is None or core.ack_policy == ACK_NONE:
            return 0
        core.acknowledge(message, subject.seq, subject.consumer_seq, self.hub.now())
        return 1

    cdef ConsumerCore find(self, const char* key, size_t length):
        cdef ConsumerCore core = self.last
        if core is not None and <size_t>len(core.ack_key) == length and memcmp(
            <const char*>core.ack_key, key, length
        ) == 0:
            return core
        core = self.cores.get(key[:length])
        self.last = core
        return core


@cython.no_gc_clear
cdef class ConsumerHub:
    def __init__(self, Broker broker not None, str domain=""):
        self.broker = broker
        self.domain = domain
        self.timers = WakingTimers()
        self.ready = deque()
        self.told = []
        self.ack_sinks = {}
        self.dormant = set()
        self.messages_a_turn_max = 2048
        self.messages_at_once_max = 256
        self.wall_offset_ns = broker.wall() - self.now()
        self.phase = broker.turn.phase(CONSUMER_PHASE, self.run)
        self.keeping = broker.turn.phase(KEEPING_PHASE, self.keep_all)
        self.unkept = []
        self.asking = []
        self.armed_ns = None

    def __dealloc__(self):
        free(self.text)

    cdef int64_t now(self) noexcept:
        self.now_ns = self.broker.clock()
        return self.now_ns

    cdef char* reserve(self, size_t count) except NULL:
        """Room for so many bytes; what stands in it stays."""
        cdef char* bigger
        if count > self.room:
            bigger = <char*>realloc(self.text, 2 * count)
            if bigger == NULL:
                raise MemoryError
            self.text = bigger
            self.room = 2 * count
        return self.text

    cdef int add_ready(self, ConsumerCore core) except -1:
        core.is_ready = True
        self.ready.append(core)
        self.phase.mark()
        return 0

    cdef int tell(self, object call, tuple arguments) except -1:
        """Call it in the next phase: nothing may be published from where something happens."""
        self.told.append((call, arguments))
        self.phase.mark()
        return 0

    cdef AckSink acks_of(self, Account account):
        cdef AckSink found = self.ack_sinks.get(account.name)
        if found is None:
            found = self.ack_sinks[account.name] = AckSink(self, account)
        return found

    def run(self):
        """The phase: each consumer that is ready gets its share, in turn."""
        cdef ConsumerCore core
        cdef uint32_t budget = self.messages_a_turn_max
        cdef int64_t now_ns = self.now()
        self.turn_wall_ns = self.broker.wall()
        self.wall_offset_ns = self.turn_wall_ns - now_ns
        self.run_told()
        for _ in range(len(self.ready)):
            if budget == 0:
                break
            core = self.ready.popleft()
            core.is_ready = False
            try:
                if core.pump(now_ns, &budget) and not core.is_ready and not core.closed:
                    core.is_ready = True
                    self.ready.append(core)
            except Exception as error:
                core.owner.broken(error)
        if self.ready or self.told:
            self.phase.mark()

    def run_told(self):
        told, self.told = self.told, []
        for call, arguments in told:
            try:
                call(*arguments)
            except Exception as error:
                self.broker.hooks.log("error", f"Telling of a consumer failed: {error!r}")

    # What outlives the process

    def set_book(self, book):
        self.book = book

    cdef int answer_when_kept(self, ConsumerCore core, bytes reply) except -1:
        self.asking.append((core, reply))
        self.keeping.mark()
        return 0

    def keep_soon(self):
        """Write what changed with this turn's commit."""
        if self.unkept:
            self.keeping.mark()

    def keep_all(self):
        """Changes go to the book; it is durable with the messages of this turn."""
        cdef int64_t now_ns = self.now(), wall_ns = self.broker.wall()
        unkept, self.unkept = self.unkept, []
        asking, self.asking = self.asking, []
        if self.book is None or self.book.down is not None:
            # The disk is gone, and has said so: nothing is kept, and no ack is said to be.
            return
        for core in unkept:
            try:
                self.keep_one(core, now_ns, wall_ns)
            except Exception as error:
                core.owner.broken(error)
        if asking:
            self.book.when_durable(lambda: self.answer(asking))

    cdef int keep_one(self, ConsumerCore core, int64_t now_ns, int64_t wall_ns) except -1:
        cdef Place place
        cdef Keeper keeper = core.keeper
        cdef bint whole
        if keeper is None:
            return 0
        core.write_place(&place)
        records = keeper.take(&place, core.table, now_ns, wall_ns)
        written = self.book.write(keeper.key, records)
        whole = keeper.since_whole == 0
        if whole:
            self.book.forget(keeper.records)
            keeper.records = written
        else:
            keeper.records += written
        return 0

    def answer(self, asking):
        for core, reply in asking:
            core.send_empty(reply)

    def run_timers(self):
        """What is due by now."""
        self.timers.run(self.now())

    # Push consumers to which nobody listens: the trie tells nobody who comes, so look.

    def add_dormant(self, ConsumerCore core not None):
        self.dormant.add(core)
        self.timers.arm(self, self.now() + DORMANT_LOOK_NS)

    def tick(self, int64_t now_ns):
        for core in list(self.dormant):
            core.look_for_listeners()
        if self.dormant:
            self.timers.arm(self, now_ns + DORMANT_LOOK_NS)

    def close(self):
        for sink in self.ack_sinks.values():
            sink.close()
        self.ack_sinks.clear()
