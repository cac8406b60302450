# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What consumers do beside delivering in order: pause, heartbeats, flow control, rates, priority
groups, samples, dead letters.

Contract. Each class is a `Flow` of one `ConsumerCore`. Whoever says that nothing may be sent has
armed the core for the time at which it may, or is told by an answer that wakes it: no consumer
stays quiet because a policy forgot it. Times are the growing clock's; a pause ends by the time of
day. Nothing is published from where a message ends: it is put off with `hub.tell`.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from server.jetstream._consumer cimport ConsumerCore
from server.jetstream._flow cimport Flow
from server.jetstream._kinds cimport (
    ACK_EXPLICIT,
    ACK_FLOW_CONTROL,
    ENDED_ACKED,
    ENDED_MAX_DELIVER,
    ENDED_TERMINATED,
    Ending,
)
from server.jetstream._waiting cimport Waiting
from storage._record cimport Record

from server.jetstream import pull
from server.jetstream.shorthash import HASH_DIGITS

cdef int64_t WINDOW_MAX = 32 << 20
cdef int64_t WINDOW_FIRST = WINDOW_MAX // 16
cdef double BITS = 8.0
cdef double NS_A_SECOND = 1e9
cdef uint32_t ALL_PERCENT = 100
cdef enum:
    FLOW_ID_LENGTH = 4
cdef bytes DIGITS = HASH_DIGITS.encode()
cdef bytes WRONG_PIN = b"Nats-Wrong-Pin-Id"


cdef class CommonFlow(Flow):
    # Pause

    def pause_until(self, int64_t until_wall_ns):
        """Deliver nothing before this time of day; 0: go on."""
        cdef int64_t left_ns = until_wall_ns - self.core.hub.broker.wall()
        self.paused_until_wall_ns = until_wall_ns if left_ns > 0 else 0
        if self.paused_until_wall_ns:
            self.core.arm(self.core.hub.now() + left_ns)
        else:
            self.core.wake()

    cdef bint is_paused(self) except -1:
        return self.paused_until_wall_ns != 0 and (
            self.core.hub.broker.wall() < self.paused_until_wall_ns
        )

    cdef bint may_send(self, int64_t now_ns) except -1:
        return not self.is_paused()

    cdef int64_t check_pause(self, int64_t now_ns) except -1:
        """When to look again; 0: it is not paused (any more)."""
        cdef int64_t left_ns
        if self.paused_until_wall_ns == 0:
            return 0
        left_ns = self.paused_until_wall_ns - self.core.hub.broker.wall()
        if left_ns > 0:
            return now_ns + left_ns
        self.paused_until_wall_ns = 0
        self.core.hub.tell(self.on_resumed, ())
        self.core.wake()
        return 0

    cdef int64_t tick(self, int64_t now_ns) except -1:
        return self.check_pause(now_ns)

    # What is done with

    cdef int ended(
        self, uint64_t seq, uint64_t consumer_seq, uint32_t deliveries, Ending why, str reason
    ) except -1:
        if why == ENDED_ACKED:
            if self.sample_percent:
                self.sample(seq, consumer_seq, deliveries)
        elif self.on_dead is not None and (why == ENDED_MAX_DELIVER or why == ENDED_TERMINATED):
            self.bury(seq, deliveries, why, reason)
        return 0

    cdef int sample(self, uint64_t seq, uint64_t consumer_seq, uint32_t deliveries) except -1:
        cdef ConsumerCore core = self.core
        cdef int64_t took_ns
        if core.ack_policy != ACK_EXPLICIT:
            return 0
        if self.sample_percent < ALL_PERCENT and (
            core.hub.broker.random_fraction() * ALL_PERCENT >= self.sample_percent
        ):
            return 0
        entry = core.table.find(seq)
        took_ns = core.hub.now() - entry.due_ns + core.wait_of(entry.redeliveries)
        return core.hub.tell(self.on_sampled, (seq, consumer_seq, deliveries, max(took_ns, 0)))

    cdef int bury(self, uint64_t seq, uint32_t deliveries, Ending why, str reason) except -1:
        """At once: no state that says it is given up may be kept before its letter."""
        cdef Record record
        if not self.core.store.read(seq, &record):
            return 0
        letter = (
            record.subject[:record.subject_len],
            record.hdr[:record.hdr_len] if record.hdr_len else b"",
            record.msg[:record.msg_len],
            seq,
            record.ts_ns,
            deliveries,
            "max_deliveries" if why == ENDED_MAX_DELIVER else "terminated",
            reason,
        )
        try:
            self.on_dead(*letter)
        except Exception as error:
            self.core.hub.broker.hooks.log("error", f"A dead letter was not sent: {error!r}")
        return 0


cdef class PushFlow(CommonFlow):
    def configure(self, config, int64_t burst):
        """`burst`: bytes that may go at once in spite of the rate."""
        cdef int64_t now_ns = self.core.hub.now()
        if config.idle_heartbeat != self.beat_ns:
            self.beat_ns = config.idle_heartbeat
            self.next_beat_ns = now_ns + self.beat_ns if self.beat_ns else 0
            self.core.arm(self.next_beat_ns)
        self.acks_by_flow = config.ack_policy == "flow_control"
        if config.flow_control and self.window == 0:
            self.window = WINDOW_FIRST
        self.bytes_a_ns = config.rate_limit_bps / BITS / NS_A_SECOND
        self.burst = self.allowance = <double>burst
        self.refilled_ns = now_ns

    cdef bint may_send(self, int64_t now_ns) except -1:
        if self.is_paused() or (self.window and self.under_way > self.window):
            return False
        if self.bytes_a_ns == 0:
            return True
        self.refill(now_ns)
        if self.allowance >= 0:
            return True
        self.core.arm(now_ns + <int64_t>(-self.allowance / self.bytes_a_ns) + 1)
        return False

    cdef int refill(self, int64_t now_ns) except -1:
        self.allowance += (now_ns - self.refilled_ns) * self.bytes_a_ns
        self.allowance = min(self.allowance, self.burst)
        self.refilled_ns = now_ns
        return 0

    cdef int sent(
        self, const Record* record, uint64_t consumer_seq, int64_t size, int64_t now_ns
    ) except -1:
        if self.bytes_a_ns != 0:
            self.allowance -= size
        if self.beat_ns:
            self.next_beat_ns = now_ns + self.beat_ns
        if self.window == 0:
            return 0
        self.under_way += size
        if self.asked is None:
            if self.under_way > self.window // 2 or (self.acks_by_flow and self.core.is_full()):
                self.ask()
        elif self.under_way - self.asked_size >= self.window:
            self.asked_size += size
        return 0

    cdef int ask(self) except -1:
        """How far is the client? Its answer comes to a subject made for this request."""
        cdef ConsumerCore core = self.core
        self.asked = b"$JS.FC.%b.%b" % (core.reply_key, self.new_id())
        self.asked_size = self.under_way
        return core.outlet.send_request(
            core.deliver_subject, self.asked, b"NATS/1.0 100 FlowControl Request\r\n\r\n"
        )

    cdef bytes new_id(self):
        cdef char[FLOW_ID_LENGTH] digits
        cdef uint32_t rest = <uint32_t>(self.core.hub.broker.random_fraction() * 0xFFFFFFFFu)
        cdef int i
        for i in range(FLOW_ID_LENGTH):
            digits[i] = (<const char*>DIGITS)[rest % 62]
            rest //= 62
        return digits[:FLOW_ID_LENGTH]

    def answered(self, bytes subject, uint64_t consumer_seq, uint64_t seq):
        """The client has come to where it was asked; 0: it did not say which sequences."""
        if subject != self.asked:
            return
        self.window = min(2 * self.window, WINDOW_MAX)
        self.under_way = max(self.under_way - self.asked_size, 0)
        self.asked = None
        self.asked_size = 0
        if self.acks_by_flow and seq:
            self.core.acked_up_to(seq, consumer_seq)
        self.core.wake()

    cdef int64_t tick(self, int64_t now_ns) except -1:
        cdef int64_t next_ns = self.check_pause(now_ns)
        if self.bytes_a_ns != 0:
            self.refill(now_ns)
            if self.allowance >= 0:
                self.core.wake()
            else:
                next_ns = sooner(
                    next_ns, now_ns + <int64_t>(-self.allowance / self.bytes_a_ns) + 1
                )
        if self.beat_ns:
            if now_ns >= self.next_beat_ns:
                self.beat(now_ns)
            next_ns = sooner(next_ns, self.next_beat_ns)
        return next_ns

    cdef int beat(self, int64_t now_ns) except -1:
        cdef ConsumerCore core = self.core
        cdef bytes stalled = b""
        self.next_beat_ns = now_ns + self.beat_ns
        if not core.has_listeners():
            # Who comes next was asked nothing: a request that nobody answers must not hold it up.
            self.asked = None
            self.asked_size = self.under_way = 0
            return 0
        if self.asked is not None:
            stalled = b"Nats-Consumer-Stalled: %b\r\n" % self.asked
        core.send_heartbeat(core.deliver_subject, stalled)
        if self.acks_by_flow and self.asked is None and core.table.pending:
            self.ask()
        return 0


cdef inline int64_t sooner(int64_t one_ns, int64_t other_ns) noexcept nogil:
    """0 is never."""
    if one_ns == 0 or (other_ns and other_ns < one_ns):
        return other_ns
    return one_ns


cdef class GroupFlow(CommonFlow):
    def configure(self, config):
        self.is_overflow = config.priority_policy == "overflow"
        self.is_pinned = config.priority_policy == "pinned_client"
        self.pin_timeout_ns = config.priority_timeout
        if self.pin is None or not self.is_pinned:
            self.pin = ""
        self.group = config.priority_groups[0] if config.priority_groups else ""

    cdef int accept(self, Waiting waiting, int64_t now_ns) except -1:
        if not self.pin or not waiting.request.id:
            return 0
        if waiting.request.id != self.pin:
            raise pull.Refused(423, "Nats-Pin-Id mismatch")
        self.pin_due_ns = now_ns + self.pin_timeout_ns
        return self.core.arm(self.pin_due_ns)

    cdef Waiting pick(self, int64_t size, int64_t now_ns):
        """Requests that are not to be served now go behind the others; each is looked at once."""
        cdef ConsumerCore core = self.core
        cdef Waiting each
        cdef uint32_t cycled = 0
        cdef bint needs_pin = self.is_pinned and not self.pin, is_wrong = False, is_new = False
        while core.waiting.head is not None:
            each = core.waiting.head
            if each.expires_ns and now_ns >= each.expires_ns:
                core.pulls.drop_first(408, "Request Timeout")
                continue
            is_new = False
            if self.is_pinned and not self.may_take(each, needs_pin, &is_wrong):
                if is_wrong:
                    core.pulls.drop_first(423, WRONG_PIN.decode())
                    continue
                core.waiting.cycle()
                cycled += 1
                if cycled >= core.waiting.count:
                    return None
                continue
            if self.is_overflow and not self.is_enough(each):
                core.waiting.cycle()
                cycled += 1
                if cycled >= core.waiting.count:
                    return None
                continue
            if each.size > 0 and size > each.size:
                core.pulls.drop_first(409, "Message Size Exceeds MaxBytes")
            elif not core.outlet.has_interest(each.reply):
                core.waiting.drop_head()
            else:
                if needs_pin:
                    self.assign(each, now_ns)
                core.pulls.charge(size)
                return each
        return None

    cdef bint may_take(self, Waiting waiting, bint needs_pin, bint* is_wrong) except -1:
        """Whether a pin, or that there is none, lets this request have a message."""
        cdef str asked = waiting.request.id
        is_wrong[0] = bool(asked) and (needs_pin or asked != self.pin)
        if is_wrong[0]:
            return False
        return needs_pin or asked == self.pin

    cdef bint is_enough(self, Waiting waiting) except -1:
        cdef int64_t least = waiting.request.min_pending
        cdef int64_t least_acks = waiting.request.min_ack_pending
        if least <= 0 and least_acks <= 0:
            return True
        if 0 < least <= <int64_t>self.core.num_pending:
            return True
        return 0 < least_acks <= <int64_t>self.core.table.pending

    cdef int assign(self, Waiting waiting, int64_t now_ns) except -1:
        if not waiting.request.group:
            return 0
        self.pin = self.new_pin()
        self.pinned_wall_ns = self.core.hub.broker.wall()
        waiting.request.id = self.pin
        self.pin_due_ns = now_ns + self.pin_timeout_ns
        self.core.arm(self.pin_due_ns)
        return self.core.hub.tell(self.on_pinned, (self.group, self.pin))

    def unpin(self):
        """The next request is pinned instead."""
        self.pin = ""
        self.pinned_wall_ns = self.pin_due_ns = 0
        self.core.wake()

    cdef bytes added_header(self):
        if not self.is_pinned:
            return None
        return b"Nats-Pin-Id: %b\r\n" % self.pin.encode()

    cdef int64_t tick(self, int64_t now_ns) except -1:
        cdef int64_t next_ns = self.check_pause(now_ns)
        if self.pin_due_ns and now_ns >= self.pin_due_ns:
            self.unpin()
            self.core.hub.tell(self.on_unpinned, (self.group, "timeout"))
        return sooner(next_ns, self.pin_due_ns)
