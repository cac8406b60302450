# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Acknowledgements: read, and done to the consumer that they name.

Contract. One `AckSink` for each account hears `$JS.ACK.>`; what an acknowledgement says is done
inside `deliver`, in the order in which they come. One that names no consumer, or what was never
delivered, does nothing and is not answered. An answer leaves when what it says is kept.
"""
cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp

from server.core._account cimport Account
from server.core._sink cimport Msg, Sink
from server.core._sublist cimport Sub
from server.jetstream._acks cimport AckSubject, read_ack_subject, read_delay
from server.jetstream._consumer cimport ConsumerCore
from server.jetstream._hub cimport ConsumerHub
from server.jetstream._kinds cimport (
    ACK_EXPLICIT,
    ACK_NONE,
    ENDED_ACKED,
    ENDED_TERMINATED,
    Ending,
)
from server.jetstream._listening cimport listen, unlisten
from server.jetstream._pending cimport PENDING, QUEUED, Entry

from server.jetstream.acks import ack_place, nak_delay_ns


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
        self.acknowledge(core, message, subject.seq, subject.consumer_seq, self.hub.now())
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

    # What they say

    cdef int acknowledge(
        self, ConsumerCore core, Msg* message, uint64_t seq, uint64_t consumer_seq, int64_t now_ns
    ) except -1:
        cdef int header_size = message.header_size if message.header_size > 0 else 0
        cdef const char* body = message.payload + header_size
        cdef int size = message.size - header_size
        cdef bint answered = seq != 0
        if size == 0 or (size == 4 and memcmp(body, b"+ACK", 4) == 0) or (
            size == 3 and memcmp(body, b"+OK", 3) == 0
        ):
            answered = self.acked(core, seq, consumer_seq, ENDED_ACKED, "")
        elif size >= 4 and memcmp(body, b"+NXT", 4) == 0:
            self.acked(core, seq, consumer_seq, ENDED_ACKED, "")
            if message.reply != NULL:
                core.pulls.request(message.reply[:message.reply_len], body[4:size], b"", now_ns)
            return 0
        elif size >= 4 and memcmp(body, b"-NAK", 4) == 0:
            self.nak(core, seq, consumer_seq, body[4:size], now_ns)
        elif size == 4 and memcmp(body, b"+WPI", 4) == 0:
            self.in_progress(core, seq, now_ns)
        elif size >= 5 and memcmp(body, b"+TERM", 5) == 0:
            reason = body[5:size].strip().decode("utf-8", "replace")
            answered = self.acked(core, seq, consumer_seq, ENDED_TERMINATED, reason)
        if answered and message.reply != NULL:
            self.answer_ack(core, message)
        return 0

    cdef int answer_ack(self, ConsumerCore core, Msg* message) except -1:
        """The answer to an ack that asked for one: when what it did is kept."""
        cdef bytes reply = message.reply[:message.reply_len]
        if core.keeper is None:
            return core.hub.tell(core.outlet.send_empty, (reply,))
        return core.hub.answer_when_kept(core, reply)

    cdef bint acked(
        self, ConsumerCore core, uint64_t seq, uint64_t consumer_seq, Ending why, str reason
    ) except -1:
        """Whether the ack is answered: it is not where it names what was never delivered."""
        cdef Entry* entry
        cdef bint was_full
        if seq >= core.next_seq:
            return False
        core.used_ns = core.hub.now_ns
        was_full = core.ack_pending_max and core.table.pending >= core.ack_pending_max
        if core.ack_policy != ACK_EXPLICIT:
            if why == ENDED_TERMINATED:
                self.tell_terminated(core, seq, consumer_seq, reason)
            core.acked_up_to(seq, consumer_seq)
        else:
            core.acked_wall_ns = core.hub.now_ns + core.hub.wall_offset_ns
            entry = core.table.find(seq)
            if entry != NULL:
                core.end_entry(entry, why, reason)
                core.feed.settled(seq)
        if was_full:
            core.wake()
        return seq != 0

    cdef int tell_terminated(
        self, ConsumerCore core, uint64_t seq, uint64_t consumer_seq, str reason
    ) except -1:
        """One that goes with all before it: those are acknowledged, this one is given up."""
        cdef Entry* entry = core.table.find(seq)
        cdef uint32_t deliveries
        if entry == NULL or not entry.flags & PENDING:
            return 0
        deliveries = <uint32_t>max(entry.redeliveries + 1, 1)
        if core.flow is not None:
            core.flow.ended(seq, consumer_seq, deliveries, ENDED_TERMINATED, reason)
        return core.hub.tell(core.owner.terminated, (seq, consumer_seq, deliveries, reason))

    cdef int nak(
        self, ConsumerCore core, uint64_t seq, uint64_t consumer_seq, bytes argument, int64_t now_ns
    ) except -1:
        cdef Entry* entry = core.table.find(seq)
        cdef int64_t delay_ns = 0
        if entry == NULL or not entry.flags & PENDING:
            return 0
        if consumer_seq <= core.floor_consumer_seq or consumer_seq >= core.next_consumer_seq:
            return 0
        if core.hub.is_heard(core, b"MSG_NAKED"):
            core.hub.tell(core.owner.naked, (seq, consumer_seq, entry.redeliveries + 1))
        argument = argument.strip()
        if argument:
            if read_delay(argument, len(argument), &delay_ns):
                return self.put_off(core, entry, delay_ns, now_ns)
            delay = nak_delay_ns(argument)
            if delay is not None:
                return self.put_off(core, entry, <int64_t>delay, now_ns)
            core.owner.warn_of_delay(argument)
        core.overdue(seq)
        return core.wake()

    cdef int put_off(
        self, ConsumerCore core, Entry* entry, int64_t delay_ns, int64_t now_ns
    ) except -1:
        """It comes again after `delay_ns`."""
        core.table.postpone(entry, now_ns + delay_ns)
        if core.keeper is not None:
            core.note()
            core.keeper.postponed(entry.seq, delay_ns)
        return core.arm(now_ns + delay_ns)

    cdef int in_progress(self, ConsumerCore core, uint64_t seq, int64_t now_ns) except -1:
        cdef Entry* entry = core.table.find(seq)
        core.used_ns = now_ns
        if entry == NULL or not entry.flags & PENDING or entry.flags & QUEUED:
            return 0
        return self.put_off(core, entry, core.wait_of(entry.redeliveries), now_ns)
