# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Pull requests of one consumer: taken or refused, served in order, told when they are over.

Contract. A request is worked off inside `deliver`. One that is refused is told why; one that is
taken waits in the core's queue, bounded by max_waiting, until it got what it asked for, is over,
or nobody listens for it any more. Nothing is sent to a request that was not charged with it.
"""
cimport cython
from libc.stdint cimport int64_t, uint64_t

from server.core._sink cimport Msg, Sink
from server.core._sublist cimport Sub
from server.jetstream._consumer cimport ConsumerCore
from server.jetstream._listening cimport listen, unlisten
from server.jetstream._waiting cimport Waiting

from server.jetstream import pull
from server.jetstream.apilevel import needs_newer_level

cdef int64_t SECOND_NS = 1_000_000_000


cdef inline int64_t earlier(int64_t one_ns, int64_t other_ns) noexcept nogil:
    if one_ns == 0 or (other_ns and other_ns < one_ns):
        return other_ns
    return one_ns


@cython.no_gc_clear
cdef class PullSink(Sink):
    def __init__(self, ConsumerCore core not None):
        self.core = core

    def listen(self):
        cdef ConsumerCore core = self.core
        self.sub = listen(self, core.account, b"$JS.API.CONSUMER.MSG.NEXT." + core.ack_key)

    def close(self):
        if self.sub != NULL:
            unlisten(self.core.account, self.sub)
            self.sub = NULL

    cdef int deliver(self, Msg* message, Sub* sub) noexcept:
        """A pull request."""
        cdef ConsumerCore core = self.core
        cdef int header_size = message.header_size if message.header_size > 0 else 0
        sub.delivered += 1
        if message.reply == NULL:
            return 1
        try:
            self.request(
                message.reply[:message.reply_len],
                message.payload[header_size:message.size],
                message.payload[:header_size],
                core.hub.now(),
            )
        except Exception as error:
            core.owner.broken(error)
        return 1

    cdef int request(self, bytes reply, bytes body, bytes headers, int64_t now_ns) except -1:
        cdef ConsumerCore core = self.core
        try:
            if headers and needs_newer_level(headers):
                raise pull.Refused(412, "Required Api Level")
            self.take_request(reply, body, now_ns)
        except pull.Refused as refusal:
            core.outlet.send_status(reply, pull.status(refusal.code, refusal.text))
        return 0

    cdef int take_request(self, bytes reply, bytes body, int64_t now_ns) except -1:
        cdef ConsumerCore core = self.core
        cdef Waiting waiting
        cdef uint64_t there
        cdef int64_t batch = 0
        asked = pull.parse(body)
        if core.is_push:
            raise pull.Refused(409, "Consumer is push based")
        pull.check_limits(asked, core.config)
        waiting = Waiting(reply, asked, now_ns)
        # A request that is no JSON names no group, and the reference lets it pass.
        if body.lstrip().startswith(b"{"):
            pull.check_group(asked, core.config, "")
            if core.flow is not None:
                core.flow.accept(waiting, now_ns)
        core.used_ns = now_ns
        if core.waiting.count >= core.waiting.most and now_ns - self.looked_ns > SECOND_NS:
            self.check(False, now_ns, NULL)
        if waiting.no_wait:
            there = core.num_pending + core.table.queued
            if there == 0 and asked.expires == 0:
                raise pull.Refused(404, "No Messages")
            if there > 0:
                self.check(False, now_ns, &batch)
                if <int64_t>there < batch:
                    raise pull.Refused(408, "Requests Pending")
        if not core.waiting.add(waiting):
            if waiting.heartbeat_ns == 0:
                raise pull.Refused(409, "Exceeded MaxWaiting")
            return 0
        core.arm(waiting.expires_ns)
        core.arm(waiting.next_heartbeat_ns)
        core.wake()
        return 0

    cdef int check(self, bint at_end, int64_t now_ns, int64_t* batch) except -1:
        """Requests that are over leave, heartbeats are sent. `batch`: what the others still want."""
        cdef ConsumerCore core = self.core
        cdef Waiting each = core.waiting.head, before = None, after
        cdef int64_t next_ns = 0
        self.looked_ns = now_ns
        while each is not None:
            after = each.next
            if each.expires_ns and now_ns >= each.expires_ns:
                core.waiting.remove(before, each)
                core.outlet.send_status(each.reply, pull.status(
                    408, "Request Timeout", each.messages, each.size))
            elif at_end and each.no_wait and (each.expires_ns == 0 or each.delivered > 0):
                core.waiting.remove(before, each)
                core.outlet.send_status(each.reply, pull.status(404, "No Messages"))
            elif not core.outlet.has_interest(each.reply):
                core.waiting.remove(before, each)
            else:
                if batch != NULL:
                    batch[0] += each.messages
                if each.next_heartbeat_ns:
                    if now_ns >= each.next_heartbeat_ns:
                        core.send_heartbeat(each.reply)
                        each.next_heartbeat_ns = now_ns + each.heartbeat_ns
                    next_ns = earlier(next_ns, each.next_heartbeat_ns)
                next_ns = earlier(next_ns, each.expires_ns)
                before = each
            each = after
        return core.arm(next_ns)

    def refuse_all(self, int code, str text, bint with_rest=False):
        """Tell all that wait that they get nothing more, and forget them."""
        cdef ConsumerCore core = self.core
        cdef Waiting each
        while core.waiting.head is not None:
            each = core.waiting.head
            core.waiting.drop_head()
            if with_rest:
                block = pull.status(code, text, each.messages, each.size)
            else:
                block = pull.status(code, text)
            core.outlet.send_status(each.reply, block)

    cdef Waiting pick(self, int64_t size, int64_t now_ns):
        """The request that gets a message of this size; those that are over are told so."""
        cdef ConsumerCore core = self.core
        cdef Waiting each
        while core.waiting.head is not None:
            each = core.waiting.head
            if each.expires_ns and now_ns >= each.expires_ns:
                self.drop_first(408, "Request Timeout")
            elif each.size > 0 and size > each.size:
                self.drop_first(409, "Message Size Exceeds MaxBytes")
            elif not core.outlet.has_interest(each.reply):
                core.waiting.drop_head()
            else:
                self.charge(size)
                return each
        return None

    cdef int drop_first(self, int code, str text) except -1:
        """The request that is first is over, and told what it did not get."""
        cdef ConsumerCore core = self.core
        cdef Waiting first = core.waiting.head
        core.waiting.drop_head()
        return core.outlet.send_status(first.reply, pull.status(code, text, first.messages, first.size))

    cdef int charge(self, int64_t size) except -1:
        """The request that is first gets a message of this size."""
        cdef ConsumerCore core = self.core
        cdef Waiting first = core.waiting.head
        if first.size > 0:
            first.size -= size
            if first.size == 0:
                first.messages = 1
        core.waiting.take()
        return 0
