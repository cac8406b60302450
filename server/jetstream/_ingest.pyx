# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A stream's `Sink`: checks a published message, stores it and answers when it is durable.

Contract. `deliver` does all for a plain message without a Python object: checks in the reference's
order, store (which copies), duplicate window, the answer noted in the arena. Messages with headers
that need more, and all messages of streams with such a feature, go to `publisher` inside `deliver`,
so that order is kept. Answers leave by `release`, in the order in which they were noted, each when
all that was accepted before it is durable. What is accepted and not durable is bounded, and what is
to be said of it; beyond it a publish is refused with 429. That, and that the stream is down, is
said at once: it tells of nothing that is stored, and waits for no disk.
"""
from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memmove

from server.core._account cimport Account
from server.core._subject cimport SUBJECT_LITERAL, subject_kind
from server.core._sublist cimport Sub, sub_free, sub_new
from server.jetstream._answering cimport RAW
from server.jetstream._fields cimport (
    HAS_OTHER,
    HAS_ROLLUP,
    HAS_TTL,
    ROLL_ALL,
    ROLL_NOTHING,
    ROLL_SUBJECT,
    Field,
    Fields,
    number_of,
    read_fields,
    rollup_of,
)
from storage._index cimport SUBJECT_LEN_MAX
from storage._record cimport Record
from storage._store cimport (
    ACCEPTED,
    BYTES_LIMIT,
    MESSAGES_LIMIT,
    SUBJECT_MESSAGES_LIMIT,
    SUBJECT_TOO_LONG,
    Refusal,
    StreamStore,
)

from server.jetstream import answers, errors
from storage.ports import (
    BytesLimitError,
    MessagesLimitError,
    StoreError,
    SubjectMessagesLimitError,
)

cdef enum:
    HEADER_BYTES_MAX = 65535
    RECORD_BYTES_MAX = 33_554_432

cdef dict REFUSALS = {
    MESSAGES_LIMIT: MessagesLimitError("maximum messages exceeded"),
    BYTES_LIMIT: BytesLimitError("maximum bytes exceeded"),
    SUBJECT_MESSAGES_LIMIT: SubjectMessagesLimitError("maximum messages per subject exceeded"),
    SUBJECT_TOO_LONG: StoreError("subject is too long"),
}


cdef class Usage:
    def __init__(self, int64_t max=-1, Usage parent=None):
        self.max = max
        self.parent = parent


cdef inline bint is_batch_reply(const Msg* message) noexcept nogil:
    """A fast batch's state is in its reply subject; a service's reply may hide one."""
    cdef uint32_t length = message.reply_len
    if message.reply == NULL:
        return False
    return (length > 4 and memcmp(message.reply + length - 4, b".$FI", 4) == 0) or (
        length > 4 and memcmp(message.reply, b"_R_.", 4) == 0
    )


# The turn's message is not to be read as text: subjects and ids may be any bytes.
cdef inline str text_of(const char* text, size_t length):
    return text[:length].decode("utf-8", "surrogateescape")


cdef class StreamSink(Answering):
    def __init__(
        self, Account account not None, StreamStore store not None, str name, commit, publisher,
        on_stored, *, bint in_memory, str domain="", int64_t window_ns=0,
    ):
        Answering.__init__(self, account, store, name, in_memory, domain)
        self.commit = commit
        self.publisher = publisher
        self.on_stored = on_stored
        self.subs = []
        self.window = DedupeWindow(window_ns, seed=account.broker.random)
        self.message_bytes_max = -1
        self.waiting_messages_max = 100_000
        self.waiting_bytes_max = self.answer_bytes_max = 128 << 20
        self.shown_seq = store.last_seq
        self.listeners = []
        self.ttls = {}
        self.told = True

    def __dealloc__(self):
        free(self.last_id)
        free(self.marks)

    # Subscriptions

    @property
    def account_name(self):
        return self.account.name

    @property
    def subjects(self):
        return [text_of((<Sub*><size_t>address).subject, (<Sub*><size_t>address).subject_len)
                for address in self.subs]

    def listen(self, subjects):
        wanted = set(subjects)
        for address, subject in list(zip(self.subs, self.subjects)):
            if subject not in wanted:
                self.drop_sub(address)
        for subject in sorted(wanted.difference(self.subjects)):
            self.open_ears(subject)

    cdef int open_ears(self, str subject) except -1:
        cdef bytes text = subject.encode("utf-8", "surrogateescape")
        cdef Sub* sub = sub_new(<void*>self, text, len(text), NULL, 0, b"", 0)
        if sub == NULL:
            raise MemoryError
        if self.account.sublist.insert(sub):
            sub_free(sub)
            raise ValueError(f"not a subject: {subject!r}")
        self.account.subscriptions += 1
        self.subs.append(<size_t>sub)
        return 0

    cdef int drop_sub(self, size_t address) except -1:
        cdef Sub* sub = <Sub*>address
        self.account.sublist.remove(sub)
        self.account.subscriptions -= 1
        sub.closed = 1
        sub.sink = NULL
        self.account.broker.turn.bury(sub)
        self.subs.remove(address)
        return 0

    def close(self):
        for address in list(self.subs):
            self.drop_sub(address)
        self.answer_head = self.answer_tail = 0
        if self.usage is not None:
            self.usage.used -= self.usage_counted
            if self.usage.parent is not None:
                self.usage.parent.used -= self.usage_counted
            self.usage_counted = 0
            self.usage = None
        self.window.clear()
        self.window.expire(0)   # its memory, too

    # A message comes

    cdef void foresee(self, int step) noexcept:
        if self.store is not None:
            self.store.foresee(step)

    cdef int deliver(self, Msg* message, Sub* sub) noexcept:
        sub.delivered += 1
        try:
            self.accept(message)
            if self.pressure is not None and self.pressure.is_on and message.origin != NULL:
                self.pressure.hold(message.origin)
        except BaseException as error:
            self.fail(message, error)
        return 1

    cdef int deliver_traced(self, Msg* message, Sub* sub, object trace) noexcept:
        """All traced messages go to the publisher, which tells what becomes of them."""
        cdef int header_size = message.header_size if message.header_size > 0 else 0
        sub.delivered += 1
        try:
            if self.is_flooded():
                self.too_many(message)
            else:
                self.publisher(
                    message.subject[:message.subject_len],
                    b"" if message.reply == NULL else message.reply[:message.reply_len],
                    message.payload[:header_size],
                    message.payload[header_size:message.size],
                    trace,
                )
        except BaseException as error:
            self.fail(message, error)
        return 1

    cdef bint is_flooded(self) noexcept:
        # What waits for a disk that failed never leaves; nothing joins it, and who asks hears why.
        return self.down is None and (
            self.waiting_messages >= self.waiting_messages_max
            or self.waiting_bytes >= self.waiting_bytes_max
            or self.answer_tail - self.answer_head >= self.answer_bytes_max
        )

    cdef int fail(self, Msg* message, error) noexcept:
        """The message that broke the stream is refused like those behind it."""
        self.commit.broken(self, error)
        try:
            return self.refuse(message, errors.STREAM_STORE_FAILED, {"err": self.down})
        except MemoryError as further:
            self.commit.broken(self, further)

    cdef int accept(self, Msg* message) except -1:
        cdef Fields fields
        cdef Msg renamed
        if self.is_flooded():
            return self.too_many(message)
        if self.all_unusual or is_batch_reply(message):
            return self.hand_over(message)
        read_fields(message.payload, max(message.header_size, 0), &fields)
        if fields.unusual and not self.understands(&fields):
            return self.hand_over(message)
        if self.renames is not None and self.renames.apply(message.subject, message.subject_len):
            renamed = message[0]
            renamed.subject = self.renames.text
            renamed.subject_len = <uint32_t>self.renames.text_len
            message = &renamed
        return self.check_and_store(message, &fields)

    cdef bint understands(self, Fields* fields) except -1:
        """What is unusual and yet done here: a known time to live, a rollup that is allowed."""
        if fields.unusual & HAS_OTHER:
            return False
        if fields.unusual & HAS_TTL:
            fields.ttl_ns = self.ttl_of(fields)
            if fields.ttl_ns == 0:
                return False
        if fields.unusual & HAS_ROLLUP:
            fields.rolls_up = rollup_of(&fields.rollup)
            return self.allow_rollup and fields.rolls_up != ROLL_NOTHING
        return True

    cdef int64_t ttl_of(self, const Fields* fields) except? 0:
        """A time to live that Python has checked before; 0: it has to look at this one."""
        found = self.ttls.get(fields.ttl.text[:fields.ttl.length])
        return 0 if found is None else found

    cdef int hand_over(self, Msg* message) except -1:
        cdef int header_size = message.header_size if message.header_size > 0 else 0
        self.publisher(
            message.subject[:message.subject_len],
            b"" if message.reply == NULL else message.reply[:message.reply_len],
            message.payload[:header_size],
            message.payload[header_size:message.size],
        )
        return 0

    cdef int check_and_store(self, Msg* message, const Fields* fields) except -1:
        cdef Record record
        cdef Refusal refusal
        cdef uint64_t size, before = 0
        cdef bint wanted
        record.subject = message.subject
        record.subject_len = <uint16_t>message.subject_len
        record.hdr_len = message.header_size if message.header_size > 0 else 0
        record.hdr = message.payload if record.hdr_len else NULL
        record.msg = message.payload + record.hdr_len
        record.msg_len = message.size - record.hdr_len
        record.skip_count = 0
        size = self.store.home.counted_size(&record)
        if self.down is not None:
            return self.refuse(message, errors.STREAM_STORE_FAILED, {"err": self.down})
        if not self.in_memory and size > RECORD_BYTES_MAX:
            return self.refuse(message, errors.STREAM_STORE_FAILED, {"err": "message too large"})
        if message.subject_len > SUBJECT_LEN_MAX:
            return self.refuse(message, errors.STREAM_STORE_FAILED, {"err": "subject is too long"})
        if self.sealed:
            return self.refuse(message, errors.STREAM_SEALED, {})
        if record.hdr_len and self.check_fields(message, fields):
            return 0
        if self.message_bytes_max >= 0 and message.size > self.message_bytes_max:
            return self.refuse(message, errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM, {})
        if record.hdr_len > HEADER_BYTES_MAX:
            return self.refuse(message, errors.STREAM_HEADER_EXCEEDS_MAXIMUM, {})
        if self.usage is not None and self.usage.parent is not None and (
            0 <= self.usage.parent.max < self.usage.parent.used
        ):
            return self.refuse(message, errors.INSUFFICIENT_RESOURCES, {})
        self.touch()
        wanted = not self.skip_unwanted or (
            self.interest is not None
            and self.interest.has_interest(message.subject, message.subject_len)
        )
        if not wanted:
            self.skip()
        else:
            if self.usage is not None and self.usage.max >= 0 and (
                self.usage.used + <int64_t>size > self.usage.max
            ):
                return self.refuse(message, errors.ACCOUNT_RESOURCES_EXCEEDED, {})
            record.ts_ns = self.turn_ns
            if self.copies is not None:
                before = self.store.last_seq_of(record.subject, record.subject_len)
            refusal = self.store.store_record(&record, fields.ttl_ns)
            if refusal != ACCEPTED:
                return self.refuse(
                    message, errors.STREAM_STORE_FAILED, {"err": str(REFUSALS[refusal])}
                )
        self.stored(fields.message_id.text, fields.message_id.length, size)
        if fields.rolls_up != ROLL_NOTHING:
            self.roll_up(message, fields.rolls_up, wanted)
        if self.copies is not None and wanted:
            self.send_copy(&record, before)
        return self.answer_ack(message.reply, message.reply_len, self.store.last_seq, b"}", 1)

    cdef int roll_up(self, const Msg* message, int what, bint keep) except -1:
        """Only what was just stored stays of its subject or of the stream."""
        if what == ROLL_ALL:
            if self.on_rollup is not None:
                self.on_rollup(keep)
            else:
                self.store.purge(None, keep=keep)
        elif keep and subject_kind(message.subject, message.subject_len) == SUBJECT_LITERAL:
            self.store.trim_subject(self.store.last_subject, keep, <uint64_t>-1)
        else:
            self.store.purge(text_of(message.subject, message.subject_len), keep=keep)
        if self.usage is not None:
            self.count_usage()
        return 0

    cdef int check_fields(self, Msg* message, const Fields* fields) except -1:
        """What a publisher expects; 1: the message was answered."""
        cdef uint64_t found
        cdef const Field* field
        field = &fields.expected_stream
        if field.text != NULL and field.length and (
            field.length != len(self.name)
            or memcmp(field.text, <const char*>self.name, field.length) != 0
        ):
            self.refuse(message, errors.STREAM_NOT_MATCH, {})
            return 1
        field = &fields.expected_last_subject_seq
        if field.text != NULL and field.length:
            found = self.store.last_seq_of(
                message.subject, <uint16_t>message.subject_len
            )
            if found != number_of(field):
                self.refuse(message, errors.STREAM_WRONG_LAST_SEQUENCE, {"seq": found})
                return 1
        field = &fields.expected_last_seq
        if field.text != NULL and field.length and number_of(field) != self.store.last_seq:
            self.refuse(
                message, errors.STREAM_WRONG_LAST_SEQUENCE, {"seq": self.store.last_seq}
            )
            return 1
        field = &fields.message_id
        if field.text != NULL and field.length:
            self.touch()
            found = self.window.find(field.text, field.length, self.turn_ns)
            if found:
                self.answer_ack(
                    message.reply, message.reply_len, found, b',"duplicate": true}', 19
                )
                return 1
        field = &fields.expected_last_message_id
        if field.text != NULL and field.length and (
            field.length != self.last_id_len
            or memcmp(field.text, self.last_id, field.length) != 0
        ):
            self.refuse(
                message, errors.STREAM_WRONG_LAST_MSG_ID,
                {"id": text_of(self.last_id, self.last_id_len)},
            )
            return 1
        return 0

    cdef int skip(self) except -1:
        self.store.skip(1, self.turn_ns)
        return 0

    cdef int stored(self, const char* message_id, uint32_t id_len, uint64_t size) except -1:
        """The store gave out a sequence: what later checks and the answer need."""
        if message_id == NULL:
            id_len = 0
        self.set_last_id(message_id, id_len)
        if id_len:
            self.window.add(message_id, id_len, self.store.last_seq, self.turn_ns)
            if self.window.tail - self.window.head == 1 and self.on_first_id is not None:
                self.on_first_id()
        self.waiting_messages += 1
        self.waiting_bytes += size
        self.turn_mark.messages += 1
        self.turn_mark.bytes += size
        if self.usage is not None:
            self.count_usage()
        return 0

    cdef int set_last_id(self, const char* text, uint32_t length) except -1:
        cdef char* bigger
        if length > self.last_id_room:
            bigger = <char*>realloc(self.last_id, 2 * length)
            if bigger == NULL:
                raise MemoryError
            self.last_id = bigger
            self.last_id_room = 2 * length
        if length:
            memcpy(self.last_id, text, length)
        self.last_id_len = length
        return 0

    cdef int count_usage(self) noexcept:
        cdef int64_t change = <int64_t>self.store.bytes - self.usage_counted
        self.usage.used += change
        if self.usage.parent is not None:
            self.usage.parent.used += change
        self.usage_counted += change
        return 0

    cdef int touch(self) except -1:
        """The first work of a turn: one time for all its messages, and the commit knows."""
        if not self.dirty:
            self.dirty = True
            self.turn_ns = self.account.broker.wall()
            self.commit.dirty(self)
        return 0

    # Refusals

    cdef int refuse(self, Msg* message, object kind, dict parts) except -1:
        cdef bytes body
        if message.reply == NULL or self.no_ack:
            return 0
        body = answers.refusal(text_of(self.name, len(self.name)), kind(**parts))
        if self.down is not None:
            return self.say_now(message.reply, message.reply_len, b"", body)
        return self.add_answer(
            message.reply, message.reply_len, 0, body, <uint32_t>len(body), RAW
        )

    cdef int too_many(self, Msg* message) except -1:
        if message.reply == NULL:
            return 0
        return self.say_now(
            message.reply,
            message.reply_len,
            b"NATS/1.0 429 Too Many Requests\r\n\r\n",
            answers.refusal(
                text_of(self.name, len(self.name)), errors.STREAM_TOO_MANY_REQUESTS()
            ),
        )

    cdef int say_now(
        self, const char* reply, uint32_t reply_len, bytes headers, bytes body
    ) except -1:
        """Past all that waits for the disk. The text is its own: `line` may be on its way."""
        cdef bytes text = headers + body + b"\r\n"
        return self.route_body(reply, reply_len, <int32_t>len(headers), text, len(text) - 2)

    # For publish.py

    @property
    def now_ns(self):
        self.touch()
        return self.turn_ns

    @property
    def last_message_id(self):
        return self.last_id[:self.last_id_len] if self.last_id_len else b""

    @last_message_id.setter
    def last_message_id(self, bytes message_id not None):
        self.set_last_id(message_id, <uint32_t>len(message_id))

    def store_message(
        self, bytes subject, bytes headers, bytes payload, int64_t ttl_ns=0, bytes message_id=b"",
        int64_t ts_ns=0,
    ):
        cdef Record record
        cdef Refusal refusal
        self.touch()
        if len(subject) > SUBJECT_LEN_MAX:
            raise REFUSALS[SUBJECT_TOO_LONG]
        record.subject = subject
        record.subject_len = <uint16_t>len(subject)
        record.hdr = headers
        record.hdr_len = <uint32_t>len(headers)
        record.msg = payload
        record.msg_len = <uint32_t>len(payload)
        record.ts_ns = ts_ns if ts_ns else self.turn_ns
        record.skip_count = 0
        refusal = self.store.store_record(&record, ttl_ns)
        if refusal != ACCEPTED:
            raise REFUSALS[refusal]
        self.stored(message_id, <uint32_t>len(message_id), self.store.home.counted_size(&record))
        return record.seq

    def skip_message(self, bytes message_id=b""):
        self.touch()
        self.skip()
        self.stored(message_id, <uint32_t>len(message_id), 0)
        return self.store.last_seq

    def skip_to(self, uint64_t seq):
        self.touch()
        self.store.skip(seq - self.store.last_seq)
        self.stored(NULL, 0, 0)

    def ack(self, bytes reply, uint64_t seq, bytes tail=b"}"):
        self.answer_ack(
            <const char*>reply if reply else NULL, <uint32_t>len(reply), seq,
            tail, <uint32_t>len(tail)
        )

    def answer(self, bytes reply, bytes body, bytes headers=b""):
        cdef bytes whole = headers + body
        if reply and self.down is not None:
            self.say_now(reply, <uint32_t>len(reply), headers, body)
        elif reply:
            self.add_answer(
                reply, <uint32_t>len(reply), 0, whole, <uint32_t>len(whole), <int32_t>len(headers)
            )

    def republish(
        self, bytes subject, bytes headers, bytes payload, uint64_t seq, int64_t ts_ns, uint64_t before
    ):
        cdef Record record
        record.subject, record.subject_len = subject, <uint16_t>len(subject)
        record.hdr, record.hdr_len = headers, <uint32_t>len(headers)
        record.msg, record.msg_len = payload, <uint32_t>len(payload)
        record.seq, record.ts_ns, record.skip_count = seq, ts_ns if ts_ns else self.turn_ns, 0
        self.send_copy(&record, before)

    def removed(self):
        self.touch()
        if self.usage is not None:
            self.count_usage()

    # Turns

    cdef bint is_awaited(self) noexcept:
        return self.answer_head < self.answer_tail or self.watched or len(self.listeners) > 0

    cpdef close_turn(self):
        cdef size_t wanted
        cdef Mark* bigger
        self.dirty = False
        if self.turn_mark.messages == 0:
            return
        if self.mark_head and self.mark_tail == self.mark_capacity:
            memmove(self.marks, self.marks + self.mark_head,
                    (self.mark_tail - self.mark_head) * sizeof(Mark))
            self.mark_tail -= self.mark_head
            self.mark_head = 0
        if self.mark_tail == self.mark_capacity:
            wanted = max(2 * self.mark_capacity, <size_t>4)
            bigger = <Mark*>realloc(self.marks, wanted * sizeof(Mark))
            if bigger == NULL:
                raise MemoryError
            self.marks = bigger
            self.mark_capacity = wanted
        self.turn_mark.last_seq = self.store.last_seq
        self.marks[self.mark_tail] = self.turn_mark
        self.mark_tail += 1
        self.turn_mark.messages = self.turn_mark.bytes = 0

    cpdef bint release(self, uint64_t seq) except -1:
        cdef uint64_t before = self.durable_seq
        while self.mark_head < self.mark_tail and self.marks[self.mark_head].last_seq <= seq:
            self.waiting_messages -= self.marks[self.mark_head].messages
            self.waiting_bytes -= self.marks[self.mark_head].bytes
            self.mark_head += 1
        if self.mark_head == self.mark_tail:
            self.mark_head = self.mark_tail = 0
        if seq > before:
            self.durable_seq = seq
            if seq > self.shown_seq:
                self.shown_seq = seq
            if self.told or self.listeners:
                self.on_stored(before + 1, seq)
        if self.answer_head < self.answer_tail and self.send_answers():
            return True
        return self.mark_head < self.mark_tail
