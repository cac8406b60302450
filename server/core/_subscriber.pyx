# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What a connection is subscribed to and how a message becomes its bytes.

Contract: subscriptions are owned here: in a table by sid and in the account's trie; a removal marks
the Sub closed, takes it out of both, and its memory goes at the end of the turn. `deliver` makes no
Python object unless something rare is on (`care`): small payloads are copied behind their line,
large ones are referenced.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from server.core._connection cimport Connection
from server.core._outbox cimport outbox_refer, outbox_room
from server.core._permissions cimport Permissions
from server.core._sink cimport TAIL_BYTES, Msg
from server.core._subject cimport (
    SUBJECT_LITERAL, subject_is_subset, subject_kind, subjects_overlap,
)
from server.core._sublist cimport MatchResult, Sub
from server.wire._build cimport copy_short, put_decimal

from typing import NamedTuple

from server.core import msgtrace
from server.core.quote import quote

cdef enum:
    REFERENCE_MIN = 3072         # payloads from here on are not copied behind their line
    REFERENCE_FLUSH_BYTES = 262144
    REPLIES_MAX = 65536
    REPLIES_PRUNE = 4096


class SubInfo(NamedTuple):
    subject: str
    queue: str
    sid: str
    delivered: int
    max: int


cdef inline uint32_t hash_sid(const char* sid, size_t length) noexcept nogil:
    cdef uint32_t h = 2166136261u
    cdef size_t i
    for i in range(length):
        h = (h ^ <uint8_t> sid[i]) * 16777619u
    return h ^ (h >> 15)


cdef Question question(bytes subject, bytes queue):
    """Valid as long as both texts. A literal subject reaches what it matches, another one what it
    names entirely, an empty one everything."""
    cdef Question asked
    asked.how = EVERY
    if subject:
        literal = subject_kind(subject, len(subject)) == SUBJECT_LITERAL
        asked.how = REACHED if literal else NAMED
    asked.subject, asked.subject_len = subject, len(subject)
    asked.queue, asked.queue_len = queue, len(queue)
    asked.skip = asked.until = 0
    asked.enough = -1
    return asked


cdef bint answers(const Sub* sub, const Question* asked) noexcept nogil:
    if asked.queue_len and (
            sub.queue_len != asked.queue_len or memcmp(sub.queue, asked.queue, sub.queue_len) != 0):
        return False
    if asked.how == REACHED:
        return subject_is_subset(asked.subject, asked.subject_len, sub.subject, sub.subject_len)
    if asked.how == NAMED:
        return subject_is_subset(sub.subject, sub.subject_len, asked.subject, asked.subject_len)
    if asked.how == OVERLAPPING:
        return subjects_overlap(sub.subject, sub.subject_len, asked.subject, asked.subject_len)
    return True


cdef described(const Sub* sub):
    return SubInfo(
        sub.subject[:sub.subject_len].decode("utf-8", "replace"),
        sub.queue[:sub.queue_len].decode("utf-8", "replace") if sub.queue_len else "",
        sub.sid[:sub.sid_len].decode("utf-8", "replace"), sub.delivered, sub.max)


# Its attributes are needed while it is taken down.
@cython.no_gc_clear
cdef class Subscriber(Connection):
    def __dealloc__(self):
        if self.sid_table != NULL:
            self.remove_all_subs()
            free(self.sid_table)

    # ---- subscriptions

    cdef Sub** find_sid(self, const char* sid, size_t sid_len) noexcept:
        """The link that points at the subscription with this sid, or NULL."""
        cdef uint32_t h
        cdef Sub** link
        if self.sid_buckets == 0:
            return NULL
        h = hash_sid(sid, sid_len)
        link = &self.sid_table[h & (self.sid_buckets - 1)]
        while link[0] != NULL:
            if link[0].sid_hash == h and link[0].sid_len == sid_len and memcmp(
                    link[0].sid, sid, sid_len) == 0:
                return link
            link = &link[0].sid_next
        return NULL

    cdef bint add_sid(self, Sub* sub) noexcept:
        cdef uint32_t i, wanted
        cdef Sub** bigger
        cdef Sub* each
        cdef Sub* following
        if self.subscription_count >= self.sid_buckets:
            wanted = 2 * self.sid_buckets if self.sid_buckets else 4
            bigger = <Sub**> calloc(wanted, sizeof(Sub*))
            if bigger == NULL:
                return False
            for i in range(self.sid_buckets):
                each = self.sid_table[i]
                while each != NULL:
                    following = each.sid_next
                    each.sid_next = bigger[each.sid_hash & (wanted - 1)]
                    bigger[each.sid_hash & (wanted - 1)] = each
                    each = following
            free(self.sid_table)
            self.sid_table = bigger
            self.sid_buckets = wanted
        sub.sid_hash = hash_sid(sub.sid, sub.sid_len)
        i = sub.sid_hash & (self.sid_buckets - 1)
        sub.sid_next = self.sid_table[i]
        self.sid_table[i] = sub
        self.subscription_count += 1
        return True

    cdef void remove_sub(self, Sub* sub) noexcept:
        cdef Sub** link = self.find_sid(sub.sid, sub.sid_len)
        if link == NULL:
            return
        link[0] = sub.sid_next
        self.subscription_count -= 1
        self.account.sublist.remove(sub)
        self.account.subscriptions -= 1
        sub.closed = 1
        if self.head_sub == sub:
            self.head_sub = NULL
        if self._trace:
            sid = sub.sid[:sub.sid_len].decode("utf-8", "replace")
            self.trace_line(f"<-> [DELSUB {sid}]")
        self.broker.turn.bury(sub)

    cdef void remove_all_subs(self) noexcept:
        cdef uint32_t i
        for i in range(self.sid_buckets):
            while self.sid_table[i] != NULL:
                self.remove_sub(self.sid_table[i])

    cdef int64_t look_through(self, Question* asked, list found) except -1:
        """Counts the subscriptions that are asked for; those of the page are put into `found`."""
        cdef uint32_t i
        cdef int64_t count = 0
        cdef Sub* sub
        for i in range(self.sid_buckets):
            sub = self.sid_table[i]
            while sub != NULL:
                if answers(sub, asked):
                    if asked.skip <= count < asked.until:
                        found.append(described(sub))
                    count += 1
                    if count == asked.enough:
                        return count
                sub = sub.sid_next
        return count

    def subscriptions(self, int64_t skip=0, int64_t limit=INT64_MAX, bytes reached_by not None=b""):
        cdef Question asked = question(reached_by, b"")
        cdef list found = []
        asked.skip = skip
        asked.until = asked.enough = skip + min(limit, INT64_MAX - skip)
        if asked.until > skip:
            self.look_through(&asked, found)
        return found

    def reached_count(self, bytes subject not None, bytes queue not None=b""):
        cdef Question asked = question(subject, queue)
        return self.look_through(&asked, None)

    def overlaps(self, bytes subject not None):
        cdef Question asked = question(subject, b"")
        asked.how = OVERLAPPING
        asked.enough = 1
        return self.look_through(&asked, None) != 0

    # ---- receiving

    cdef void set_care(self, uint8_t why, bint on) noexcept:
        if on:
            self.care |= why
        else:
            self.care &= <uint8_t> ~why

    def on_mark(self):
        self.set_care(CARE_MARK, self.above_mark)

    def on_slow(self, str text):
        self.set_care(CARE_GONE, self.doom is not None)
        if self.account is not None:
            self.account.slow_consumers += 1
        self.log("info", text)

    cdef bint careful_deliver(self, Msg* message, Sub* sub) noexcept:
        """Whether the message may be queued, with everything that is rarely the case."""
        cdef Connection producer
        if self.closed or self.doom is not None:
            return False
        if self.care & CARE_ECHO and message.origin == <void*> self:
            return False
        if self.care & CARE_DENY and self.permissions.denies_delivery(
                message.subject, message.subject_len, sub.queue, sub.queue_len):
            return False
        if self.care & CARE_MARK and message.origin != NULL:
            if self.broker.no_fast_producer_stall:
                return False
            producer = <Connection> message.origin
            if producer is not self and not producer.holds:
                producer.stall(<int64_t> self.pending_bytes >= self.max_pending)
                self.stalls += 1
                self.broker.stalls += 1
        if self.care & CARE_REPLIES and message.reply_len:
            self.note_reply(message.reply[:message.reply_len])
        return True

    cdef int deliver(self, Msg* message, Sub* sub) noexcept:
        cdef const char* payload = message.payload
        cdef size_t size = message.size
        cdef size_t line
        cdef char* begin
        cdef char* to
        cdef bint with_headers = message.header_size > 0
        if self.care and not self.careful_deliver(message, sub):
            return 0
        sub.delivered += 1
        if sub.max and sub.delivered >= sub.max:
            self.remove_sub(sub)
        if with_headers and not self.headers:
            payload += message.header_size
            size -= message.header_size
            with_headers = False
        self.out_msgs += 1
        self.out_bytes += size
        line = HEAD_BYTES + TAIL_BYTES + message.subject_len + sub.sid_len + message.reply_len
        begin = outbox_room(&self.out, line + (size + 2 if size < REFERENCE_MIN else 0))
        if begin == NULL:
            self.slow_pending()
            return 0
        if self.head_line_id == message.line_id and self.head_sub == sub:
            memcpy(begin, self.head, HEAD_BYTES)
            to = begin + self.head_len
        else:
            to = write_head(begin, message, sub, size, with_headers)
            if to - begin <= HEAD_BYTES and not sub.closed:
                memcpy(self.head, begin, HEAD_BYTES)
                self.head_len = <uint8_t> (to - begin)
                self.head_sub = sub
                self.head_line_id = message.line_id
        if self.care & CARE_TRACE:
            self.trace_delivery(begin[:to - begin - 2], payload[:size], message.header_size)
        if size < REFERENCE_MIN:
            copy_short(to, payload, size + 2)
            self.out.end += (to - begin) + size + 2
        else:
            self.out.end += to - begin
            if not outbox_refer(&self.out, payload, size + 2, message.owner):
                self.slow_pending()
                return 0
            if message.owner == NULL and not self.borrowing:
                self.borrowing = True
                self.broker.turn.add_borrower(self)
            if self.out.reference_bytes > REFERENCE_FLUSH_BYTES:
                self.after_put()
        if not self.dirty:
            self.mark_dirty()
        if <int64_t> (self.out.end - self.out.start) > self.early_mark:
            self.after_put()
        return 1

    # ---- receiving what is traced

    cdef str obstacle(self, Msg* message, Sub* sub):
        if self.care & CARE_ECHO and message.origin == <void*> self:
            return msgtrace.NO_ECHO
        if self.care & CARE_DENY and self.permissions.denies_delivery(
                message.subject, message.subject_len, sub.queue, sub.queue_len):
            return msgtrace.SUB_DENIED
        if sub.closed:
            return msgtrace.SUB_CLOSED
        return None

    cdef int deliver_traced(self, Msg* message, Sub* sub, object trace) noexcept:
        cdef str error
        cdef bint taken
        cdef bytes subject = sub.subject[:sub.subject_len]
        cdef bytes queue = sub.queue[:sub.queue_len]
        try:
            error = self.obstacle(message, sub)
            if error is None and not trace.only:
                if self.care & CARE_MARK and self.broker.no_fast_producer_stall:
                    error = msgtrace.NOT_STALLED
                elif self.closed or self.doom is not None or not self.deliver(message, sub):
                    error = msgtrace.CLIENT_CLOSED
            trace.reached(self, subject, queue, error or "")
            return error is None
        except Exception as failure:
            self.log("error", f"Internal error: {failure!r}")
            return 0

    cdef tell_refused(self, str text):
        """What it published is not allowed."""
        if self.broker.tracing is not None:
            self.broker.tracing.refused(text)
        self.send_error(text)

    cdef void tell_no_responders(self, bytes subject, bytes reply) noexcept:
        """503 to the publisher, on its own subscription to the reply subject."""
        cdef MatchResult* result = self.account.sublist.match(reply, len(reply))
        cdef uint32_t i
        cdef Sub* sub
        for i in range(result.plain_count):
            sub = result.plain[i]
            if sub.sink == <void*> self and not sub.closed:
                status = b"NATS/1.0 503\r\nNats-Subject: %b\r\n\r\n" % subject
                line = b"HMSG %b %b %d %d\r\n%b\r\n" % (
                    reply, sub.sid[:sub.sid_len], len(status), len(status), status)
                self.put(line, len(line))
                break

    # ---- replies that may be published to

    cdef bint use_reply(self, bytes subject):
        """Spend one of the publishes that a received reply subject allows."""
        entry = self.replies.get(subject)
        if entry is None:
            return False
        entry[0] += 1
        maximum = self.permissions.responses_max
        if (0 < maximum < entry[0]) or (entry[1] and self.broker.clock() > entry[1]):
            del self.replies[subject]
            return False
        return True

    cdef note_reply(self, bytes reply):
        cdef int64_t expires = self.permissions.responses_expires_ns
        if self.permissions.allows_publish(reply, len(reply)):
            return
        self.replies.pop(reply, None)
        self.replies[reply] = [0, self.broker.clock() + expires if expires > 0 else 0]
        self.replies_since_prune += 1
        if self.replies_since_prune > REPLIES_PRUNE:
            self.prune_replies()

    cdef prune_replies(self):
        now = self.broker.clock()
        maximum = self.permissions.responses_max
        self.replies_since_prune = 0
        kept = {reply: entry for reply, entry in self.replies.items()
                if not (entry[1] and now > entry[1]) and not (0 < maximum <= entry[0])}
        while len(kept) > REPLIES_MAX:
            del kept[next(iter(kept))]
        self.replies = kept

    # ---- output

    cdef void send_ok(self) noexcept:
        if self._trace:
            self.trace_line("->> [OK]")
        self.put(b"+OK\r\n", 5)

    def send(self, bytes data):
        self.put(data, len(data))

    def send_info(self, bytes info_json):
        self.send(b"INFO " + info_json + b" \r\n")

    def send_error(self, str text):
        if self._trace:
            self.trace_line(f"->> [-ERR {text}]")
        self.send(f"-ERR '{text}'\r\n".encode("utf-8", "surrogateescape"))

    def close(self, str reason, str error=""):
        if self.closed:
            return
        if error:
            self.send_error(error)
        self.finish(reason, True)

    def flush(self):
        self.write_out()

    # ---- log and trace

    cdef log(self, str level, str text):
        try:
            self.broker.hooks.log(level, text, self)
        except Exception:
            # A log that fails must not take a connection with it; it has its own reporting.
            return

    cdef trace_line(self, str text):
        self.log("trace", text)

    cdef trace_payload(self, str arrow, bytes payload, int header_size):
        limit = self.broker.max_traced_msg_len
        if self.broker.trace_headers_only:
            if header_size <= 0:
                return
            payload = payload[:max(header_size - 4, 0)]
        if not payload:
            return
        if limit > 0 and len(payload) > limit:
            text = quote(payload[:limit])
            self.trace_line(f'{arrow} MSG_PAYLOAD: [{text[:len(text) - 1]}..."]')
        else:
            self.trace_line(f"{arrow} MSG_PAYLOAD: [{quote(payload)}]")

    cdef trace_delivery(self, bytes line, bytes payload, int header_size):
        self.trace_line(f"->> [{line.decode('utf-8', 'replace')}]")
        self.trace_payload("->>", payload, header_size if self.headers else 0)


cdef inline char* write_head(char* to, Msg* message, Sub* sub, size_t size, bint with_headers) noexcept nogil:
    """The MSG or HMSG line; returns behind it."""
    if with_headers:
        to[0] = c'H'
        to += 1
    copy_short(to, b"MSG ", 4)
    to += 4
    copy_short(to, message.subject, message.subject_len)
    to += message.subject_len
    to[0] = c' '
    to += 1
    copy_short(to, sub.sid, sub.sid_len)
    to += sub.sid_len
    to[0] = c' '
    to += 1
    if message.reply_len:
        copy_short(to, message.reply, message.reply_len)
        to += message.reply_len
        to[0] = c' '
        to += 1
    if size == <size_t> message.size:
        if message.tail_len == 0:
            message.tail_len = build_tail(
                message.tail, message.header_size if with_headers else 0, size)
        copy_short(to, message.tail, message.tail_len)
        return to + message.tail_len
    if message.plain_tail_len == 0:
        message.plain_tail_len = build_tail(message.plain_tail, 0, size)
    copy_short(to, message.plain_tail, message.plain_tail_len)
    return to + message.plain_tail_len


cdef uint8_t build_tail(char* out, int header_size, size_t size) noexcept nogil:
    """The sizes and CRLF that end a MSG or HMSG line."""
    cdef char* to = out
    if header_size > 0:
        to += put_decimal(to, <uint32_t> header_size)
        to[0] = c' '
        to += 1
    to += put_decimal(to, <uint32_t> size)
    to[0] = c'\r'
    to[1] = c'\n'
    return <uint8_t> (to + 2 - out)
