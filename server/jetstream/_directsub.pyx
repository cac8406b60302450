# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Direct gets: what reading a bucket asks is answered inside `deliver`, without a Python object.

Contract. A request for the last message of one subject, by the subject it is sent to or by a body
of nothing but `last_by_subj`, is answered at once when that message is durable. Every other request
(and one whose subject has nothing, or whose last message cannot be shown or read) goes to the
callback as with any `PySub`, at the end of the turn.
"""
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy
from libc.time cimport gmtime_r, time_t, tm

from server.core._account cimport Account, PySub
from server.core._outbox cimport Chunk, chunk_new, chunk_release
from server.core._router cimport route
from server.core._sink cimport Msg
from server.core._sublist cimport MatchResult, Sub, Sublist
from server.core._table cimport hash_bytes
from server.jetstream._acks cimport NUMBER_MAX, put_number
from server.jetstream._ingest cimport StreamSink
from storage._index cimport SUBJECT_LEN_MAX
from storage._record cimport Record

cdef enum:
    PREFIX_LEN = 19             # $JS.API.DIRECT.GET.
    COPIED_BODY_MAX = 2048
    TIME_MAX = 30               # 2006-01-02T15:04:05.123456789Z

cdef int64_t SECOND_NS = 1_000_000_000
cdef bytes BODY_START = b'{"last_by_subj":"'
cdef bytes BODY_END = b'"}'
cdef bytes NO_HEADERS = b"NATS/1.0\r\n"
cdef bytes STREAM_FIELD = b"Nats-Stream: "
cdef bytes SUBJECT_FIELD = b"\r\nNats-Subject: "
cdef bytes SEQUENCE_FIELD = b"\r\nNats-Sequence: "
cdef bytes TIME_FIELD = b"\r\nNats-Time-Stamp: "
cdef bytes END = b"\r\n\r\n"


cdef inline char* put(char* to, bytes text) noexcept:
    memcpy(to, <const char*>text, len(text))
    return to + len(text)


cdef inline char* put_digits(char* to, int64_t number, int count) noexcept nogil:
    cdef int i
    for i in range(count - 1, -1, -1):
        to[i] = <char>(48 + number % 10)
        number //= 10
    return to + count


cdef char* put_time(char* to, int64_t ns) noexcept nogil:
    """As `gotime.time_text`: UTC with as many digits as needed."""
    cdef time_t seconds = ns // SECOND_NS
    cdef int64_t rest = ns % SECOND_NS
    cdef tm moment
    if rest < 0:
        rest += SECOND_NS
        seconds -= 1
    gmtime_r(&seconds, &moment)
    to = put_digits(to, moment.tm_year + 1900, 4)
    to[0] = c"-"
    to = put_digits(to + 1, moment.tm_mon + 1, 2)
    to[0] = c"-"
    to = put_digits(to + 1, moment.tm_mday, 2)
    to[0] = c"T"
    to = put_digits(to + 1, moment.tm_hour, 2)
    to[0] = c":"
    to = put_digits(to + 1, moment.tm_min, 2)
    to[0] = c":"
    to = put_digits(to + 1, moment.tm_sec, 2)
    if rest:
        to[0] = c"."
        to = put_digits(to + 1, rest, 9)
        while (to - 1)[0] == c"0":
            to -= 1
    to[0] = c"Z"
    return to + 1


cdef inline bint is_plain(const char* text, size_t length) noexcept nogil:
    """One subject, in letters that JSON leaves as they are."""
    cdef size_t i
    cdef uint8_t letter
    for i in range(length):
        letter = <uint8_t>text[i]
        if letter <= 32 or letter >= 127 or letter in (c"*", c">", c'"', c"\\"):
            return False
    return 0 < length <= SUBJECT_LEN_MAX


cdef bint key_of(const Msg* message, const char** key, size_t* length) noexcept:
    """Whose last message a request asks for; False when it asks for something else, or for more."""
    cdef const char* end = message.subject + message.subject_len
    cdef const char* dot
    cdef size_t start = len(BODY_START), tail = len(BODY_END)
    if message.header_size > 0:
        return False
    dot = <const char*>memchr(message.subject + PREFIX_LEN, c".", message.subject_len - PREFIX_LEN)
    if dot != NULL:
        key[0] = dot + 1
        length[0] = end - key[0]
        return message.size == 0 and is_plain(key[0], length[0])
    if <size_t>message.size <= start + tail or (
        memcmp(message.payload, <const char*>BODY_START, start) != 0
        or memcmp(message.payload + message.size - tail, <const char*>BODY_END, tail) != 0
    ):
        return False
    key[0] = message.payload + start
    length[0] = message.size - start - tail
    return is_plain(key[0], length[0])


@cython.no_gc_clear
cdef class DirectSub(PySub):
    def __init__(
        self, Account account not None, str subject, callback, str queue, StreamSink source not None
    ):
        PySub.__init__(self, account, subject, callback, queue)
        self.source = source
        account.callbacks.add(self)

    @property
    def answered_at_once(self):
        return self.answered

    cdef int deliver(self, Msg* message, Sub* sub) noexcept:
        try:
            if message.reply != NULL and self.answer_last(message):
                sub.delivered += 1
                self.answered += 1
                return 1
        except Exception as error:
            self.account.broker.hooks.log("error", f"A direct get failed: {error!r}")
            return 1
        return PySub.deliver(self, message, sub)

    cdef bint answer_last(self, Msg* message) except -1:
        """Whether the request was answered."""
        cdef const char* key = NULL
        cdef size_t length = 0
        cdef uint64_t seq
        cdef Record record
        if not key_of(message, &key, &length):
            return False
        seq = self.source.store.last_seq_of(key, <uint16_t>length)
        if seq == 0 or seq > self.source.shown_seq or not self.source.store.read(seq, &record):
            return False
        self.answer(message, &record)
        return True

    cdef int answer(self, Msg* request, const Record* record) except -1:
        """Everything is copied before it is routed: whoever hears it may change the store."""
        cdef char[COPIED_BODY_MAX + 2] room
        cdef char* to = room
        cdef char* at
        cdef Msg answer
        cdef Chunk* chunk = NULL
        cdef size_t wanted = self.head_bytes_max(record) + record.msg_len
        if wanted > COPIED_BODY_MAX:
            chunk = chunk_new(wanted + 2)
            if chunk == NULL:
                raise MemoryError
            to = chunk.data
        at = self.write_head(to, record)
        answer.header_size = <int>(at - to)
        if record.msg_len:
            memcpy(at, record.msg, record.msg_len)
        at += record.msg_len
        answer.size = <int>(at - to)
        at[0] = 13
        at[1] = 10
        answer.payload = to
        answer.owner = chunk
        answer.subject = request.reply
        answer.subject_len = request.reply_len
        self.send(&answer)
        if chunk != NULL:
            chunk_release(chunk)
        return 0

    cdef size_t head_bytes_max(self, const Record* record) noexcept:
        return (
            record.hdr_len + len(NO_HEADERS) + len(STREAM_FIELD) + len(self.source.name)
            + len(SUBJECT_FIELD) + record.subject_len + len(SEQUENCE_FIELD) + NUMBER_MAX
            + len(TIME_FIELD) + TIME_MAX + len(END)
        )

    cdef char* write_head(self, char* to, const Record* record) noexcept:
        """The message's headers and where it stands in the stream."""
        if record.hdr_len:
            memcpy(to, record.hdr, record.hdr_len - 2)
            to += record.hdr_len - 2
        else:
            to = put(to, NO_HEADERS)
        to = put(put(to, STREAM_FIELD), self.source.name)
        to = put(to, SUBJECT_FIELD)
        memcpy(to, record.subject, record.subject_len)
        to = put_number(put(to + record.subject_len, SEQUENCE_FIELD), record.seq)
        return put(put_time(put(to, TIME_FIELD), record.ts_ns), END)

    cdef int send(self, Msg* answer) except -1:
        cdef Account account = self.account
        cdef Sublist sublist = account.sublist
        cdef int taken
        # A reply subject is rarely used again: to remember it would push out what is.
        cdef MatchResult* result = sublist.fill(
            answer.subject, answer.subject_len,
            hash_bytes(answer.subject, answer.subject_len, sublist.seed), False,
        )
        answer.reply = NULL
        answer.reply_len = 0
        answer.origin = NULL
        answer.tail_len = answer.plain_tail_len = 0
        account.broker.last_line_id += 1
        answer.line_id = account.broker.last_line_id
        taken = route(sublist, result, answer, &account.broker.random)
        account.out_msgs += taken
        account.out_bytes += <int64_t>taken * answer.size
        account.broker.out_msgs += taken
        account.broker.out_bytes += <int64_t>taken * answer.size
        return 0
