# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What a stream has to say, kept until what it tells of is durable: PubAcks, refusals, copies.

Contract. Answers leave in the order in which they were added, each when all that the store had
accepted by then is durable. They stand behind each other in one arena, which goes when it is
empty and was large. Nothing here bounds it: the ingest takes nothing more when it is full. What
tells of nothing that is stored may be sent past it, by `route_body`. When the disk is down, nobody
knows what it has kept of the rest: `give_up` says that to all who wait.
"""
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

from server.core._outbox cimport Chunk, chunk_new, chunk_release
from server.core._router cimport route
from server.core._sink cimport Msg
from server.core._sublist cimport MatchResult, Sublist
from server.core._table cimport hash_bytes
from server.jetstream._acks cimport put_number
from server.jetstream._republish cimport Republisher
from storage._store cimport StreamStore

from server.jetstream import answers, errors

cdef enum:
    COPIED_BODY_MAX = 2048
    ARENA_KEPT_MAX = 1 << 20
    NUMBER_BYTES = 21

cdef uint64_t COPY = <uint64_t>-1       # instead of a sequence: a republished message, no answer

cdef class Answering(Writer):
    def __init__(
        self, Account account not None, StreamStore store not None, str name, bint in_memory, str domain,
    ):
        Writer.__init__(self, name.encode(), store, in_memory)
        self.account = account
        self.pub_ack = answers.pub_ack_prefix(name, domain)

    def __dealloc__(self):
        free(self.answers)
        free(self.line)

    cdef int touch(self) except -1:
        return 0

    cdef int answer_ack(
        self, const char* reply, uint32_t reply_len, uint64_t seq, const char* tail, uint32_t tail_len
    ) except -1:
        if reply == NULL or self.no_ack:
            return 0
        return self.add_answer(reply, reply_len, seq, tail, tail_len, PUB_ACK)

    cdef int add_answer(
        self, const char* reply, uint32_t reply_len, uint64_t seq, const char* body,
        uint32_t body_len, int32_t header_size
    ) except -1:
        cdef char* to = self.open_answer(reply, reply_len, seq, body_len, header_size)
        memcpy(to, body, body_len)
        return 0

    cdef char* open_answer(
        self, const char* reply, uint32_t reply_len, uint64_t seq, size_t body_len,
        int32_t header_size
    ) except NULL:
        """An answer whose body the caller writes to where this points."""
        cdef size_t room = (sizeof(Answer) + reply_len + body_len + 7) & ~<size_t>7
        cdef Answer* answer
        self.touch()
        if self.answer_capacity - self.answer_tail < room:
            self.make_room(room)
        answer = <Answer*>(self.answers + self.answer_tail)
        answer.gate = self.store.last_seq
        answer.seq = seq
        answer.reply_len = reply_len
        answer.body_len = <uint32_t>body_len
        answer.header_size = header_size
        answer.room = <uint32_t>room
        memcpy(<char*>answer + sizeof(Answer), reply, reply_len)
        self.answer_tail += room
        return <char*>answer + sizeof(Answer) + reply_len

    cdef int make_room(self, size_t room) except -1:
        cdef size_t wanted
        cdef char* bigger
        if self.answer_head >= self.answer_capacity // 2:
            memmove(self.answers, self.answers + self.answer_head,
                    self.answer_tail - self.answer_head)
            self.answer_tail -= self.answer_head
            self.answer_head = 0
        if self.answer_capacity - self.answer_tail < room:
            wanted = max(2 * self.answer_capacity, self.answer_tail + room, <size_t>1024)
            bigger = <char*>realloc(self.answers, wanted)
            if bigger == NULL:
                raise MemoryError
            self.answers = bigger
            self.answer_capacity = wanted
        return 0

    cdef int send_copy(self, const Record* record, uint64_t before) except -1:
        """Republish what was stored, headers in front that tell of it."""
        cdef Republisher copies = self.copies
        cdef size_t body_len
        cdef char* to
        if not copies.prepare(record, before):
            return 0
        body_len = 0 if copies.headers_only else record.msg_len
        to = self.open_answer(
            copies.plan.text, <uint32_t>copies.plan.text_len, COPY, copies.block_len + body_len,
            <int32_t>copies.block_len,
        )
        memcpy(to, copies.block, copies.block_len)
        memcpy(to + copies.block_len, record.msg, body_len)
        return 0

    cdef bint send_answers(self) except -1:
        """Those whose time has come; whether others are left."""
        cdef Answer* answer
        while self.answer_head < self.answer_tail:
            answer = <Answer*>(self.answers + self.answer_head)
            if answer.gate > self.durable_seq:
                return True
            # Before it is sent: a delivery may publish to this stream and move the arena.
            self.answer_head += answer.room
            self.send(answer)
        if self.answer_capacity > ARENA_KEPT_MAX:
            free(self.answers)
            self.answers = NULL
            self.answer_capacity = 0
        self.answer_head = self.answer_tail = 0
        return False

    cdef int give_up(self) except -1:
        cdef Answer* answer
        cdef bytes reply
        cdef str why = f"{self.down}; a restart will show whether this message was kept"
        cdef bytes text = answers.refusal(
            self.name.decode("utf-8", "surrogateescape"), errors.STREAM_STORE_FAILED(err=why)
        ) + b"\r\n"
        while self.answer_head < self.answer_tail:
            answer = <Answer*>(self.answers + self.answer_head)
            self.answer_head += answer.room
            if answer.seq != COPY:
                reply = (<char*>answer + sizeof(Answer))[:answer.reply_len]
                self.route_body(reply, <uint32_t>len(reply), 0, text, len(text) - 2)
        self.answer_head = self.answer_tail = 0
        return 0

    cdef size_t fill_line(self, Answer* answer) except? 0:
        """Reply, body and CRLF in memory that stays; the size of the body."""
        cdef const char* reply = <const char*>answer + sizeof(Answer)
        cdef const char* body = reply + answer.reply_len
        cdef size_t prefix = len(self.pub_ack) if answer.header_size == PUB_ACK else 0
        cdef size_t wanted = answer.reply_len + prefix + NUMBER_BYTES + answer.body_len + 2
        cdef char* bigger
        cdef char* to
        if wanted > self.line_capacity:
            bigger = <char*>realloc(self.line, 2 * wanted)
            if bigger == NULL:
                raise MemoryError
            self.line = bigger
            self.line_capacity = 2 * wanted
        memcpy(self.line, reply, answer.reply_len)
        to = self.line + answer.reply_len
        if answer.header_size == PUB_ACK:
            memcpy(to, <const char*>self.pub_ack, prefix)
            to += prefix
            to = put_number(to, answer.seq)
        memcpy(to, body, answer.body_len)
        to += answer.body_len
        to[0] = 13
        to[1] = 10
        return to - self.line - answer.reply_len

    cdef int send(self, Answer* answer) except -1:
        cdef size_t size = self.fill_line(answer)
        return self.route_body(
            self.line, answer.reply_len, max(answer.header_size, 0), self.line + answer.reply_len,
            size,
        )

    cdef int route_body(
        self, const char* reply, uint32_t reply_len, int32_t header_size, const char* body,
        size_t size
    ) except -1:
        """`body` ends in CRLF, which `size` does not count."""
        cdef Msg message
        cdef Sublist sublist = self.account.sublist
        cdef MatchResult* result
        cdef Chunk* chunk = NULL
        cdef int taken
        message.subject = reply
        message.subject_len = reply_len
        message.header_size = header_size
        message.payload = body
        message.size = <int32_t>size
        message.reply = NULL
        message.reply_len = 0
        message.owner = NULL
        message.origin = NULL
        message.tail_len = message.plain_tail_len = 0
        self.account.broker.last_line_id += 1
        message.line_id = self.account.broker.last_line_id
        # A reply subject is rarely used again: to remember it would push out what is.
        result = sublist.fill(
            message.subject, message.subject_len,
            hash_bytes(message.subject, message.subject_len, sublist.seed), False,
        )
        if result.plain_count == 0 and result.group_count == 0:
            return 0
        if size > COPIED_BODY_MAX:
            chunk = chunk_new(size + 2)
            if chunk == NULL:
                raise MemoryError
            memcpy(chunk.data, message.payload, size + 2)
            message.owner = chunk
            message.payload = chunk.data
        taken = route(sublist, result, &message, &self.account.broker.random)
        if chunk != NULL:
            chunk_release(chunk)
        self.account.out_msgs += taken
        self.account.out_bytes += <int64_t>taken * <int64_t>size
        self.account.broker.out_msgs += taken
        self.account.broker.out_bytes += <int64_t>taken * <int64_t>size
        return 0
