# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Records of message blocks as Arrow buffers, and the commit log's frames as facts (storage/FORMAT.md).

Contract: a `Decoder` walks bytes that it was given (a whole unframed block, or a part of one that
begins at a record) and believes nothing before its checksum held. `next_batch` returns the
buffers of one batch, for `columns.py` to make Arrow arrays of, and None at the end. A record that
does not hold raises Damage, or, when the decoder is tolerant, is counted and stepped over.
So nobody may change the bytes meanwhile: they are a copy, not a map of a file in which a secure erase
may overwrite a record between its check and the copying of its columns.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset

from pyspark_jetstream._bytes cimport (
    KIND_MESSAGE, KIND_SKIP, RECORD_FIXED, RECORD_HEAD, check, load16, load32, load64, shape_of, xxh64)

cdef enum:
    SUBJECTS_REMEMBERED = 65536
    FIELDS_COMPARED = 32    # of more headers than that the keys are hashed
    ROWS_MAX = 131072

# What a batch is to hold.
SUBJECT = 1
SEQ = 2
TIME = 4
PAYLOAD = 8
HEADERS = 16
MSG_ID = 32
SIZE = 64
DELETED = 128


class Damage(Exception):
    """`Damage(offset, reason)`: what stands at `offset` does not hold."""

    @property
    def offset(self) -> int:
        return self.args[0]

    @property
    def reason(self) -> str:
        return self.args[1]


class Encrypted(Exception):
    """`Encrypted(offset)`: this record has to be opened first, by `open_records`."""


cdef class Bytes:
    """Bytes that grow at their end; for columns whose size is not known before."""
    cdef char* data
    cdef size_t used
    cdef size_t room

    def __dealloc__(self):
        free(self.data)

    cdef char* extend(self, size_t size) except NULL:
        cdef char* grown
        cdef size_t room = self.room or 4096
        if self.used + size > self.room:
            while room < self.used + size:
                room *= 2
            grown = <char*>realloc(self.data, room)
            if grown == NULL:
                raise MemoryError
            self.data = grown
            self.room = room
        self.used += size
        return self.data + self.used - size

    cdef int add(self, const char* data, size_t size) except -1:
        if size:
            memcpy(self.extend(size), data, size)
        return 0

    cdef int add32(self, uint64_t value) except -1:
        cdef int32_t number = <int32_t>value
        if value > 0x7FFFFFFF:
            raise OverflowError("a batch with more than 2 GiB in one column")
        memcpy(self.extend(4), &number, 4)
        return 0

    cdef bytes take(self):
        return PyBytes_FromStringAndSize(self.data, self.used)


cdef bint is_ascii(const char* at, size_t size) noexcept nogil:
    cdef uint64_t all_bits = 0
    while size >= 8:
        all_bits |= load64(at)
        at += 8
        size -= 8
    while size:
        all_bits |= <uint8_t>at[0]
        at += 1
        size -= 1
    return all_bits & <uint64_t>0x8080808080808080 == 0


cdef int add_text(Bytes out, const char* at, size_t size) except -1:
    """Text of the wire: what is not UTF-8 gets U+FFFD, for Arrow promises UTF-8 to its readers."""
    cdef bytes text
    if is_ascii(at, size):
        return out.add(at, size)
    text = at[:size].decode("utf-8", "replace").encode()
    return out.add(PyBytes_AS_STRING(text), len(text))


cdef struct Field:
    const char* key
    const char* value
    uint32_t key_size
    uint32_t value_size


cdef class FieldList:
    """The fields of one record's headers."""
    cdef Field* items
    cdef size_t count
    cdef size_t room

    def __dealloc__(self):
        free(self.items)

    cdef int parse(self, const char* at, size_t size) except -1:
        """Behind the status line, `key:value` up to each line's end; blanks around values go."""
        cdef const char* end = at + size
        cdef const char* line_end
        cdef const char* colon
        cdef bint first = True
        self.count = 0
        while at < end:
            line_end = at
            while line_end < end and line_end[0] != 13 and line_end[0] != 10:
                line_end += 1
            if not first and line_end > at:
                colon = at
                while colon < line_end and colon[0] != 58:
                    colon += 1
                if colon < line_end:
                    self.add(at, colon, line_end)
            first = False
            at = line_end
            while at < end and (at[0] == 13 or at[0] == 10):
                at += 1
        return 0

    cdef int add(self, const char* key, const char* colon, const char* end) except -1:
        cdef Field* grown
        cdef const char* value = colon + 1
        while value < end and (value[0] == 32 or value[0] == 9):
            value += 1
        while end > value and ((end - 1)[0] == 32 or (end - 1)[0] == 9):
            end -= 1
        if self.count == self.room:
            self.room = self.room * 2 or 16
            grown = <Field*>realloc(self.items, self.room * sizeof(Field))
            if grown == NULL:
                raise MemoryError
            self.items = grown
        self.items[self.count] = Field(key, value, <uint32_t>(colon - key), <uint32_t>(end - value))
        self.count += 1
        return 0


cdef inline bint same_key(const Field* one, const Field* other) noexcept nogil:
    return one.key_size == other.key_size and memcmp(one.key, other.key, one.key_size) == 0


cdef class Decoder:
    """See the module.

    `data` begins at byte `base` of the unframed block; `first` to `last` are the sequences wanted,
    `low_ns` to `high_ns` the times; `dead` holds deleted sequences, ascending, 8 bytes each;
    `accepts(subject)` is asked once per distinct subject; `known` are offsets of records, for
    stepping over damage.
    """
    cdef readonly int64_t damaged      # records (or ends) that were stepped over
    cdef readonly object first_damage  # the first of them, (offset, reason)
    cdef readonly uint64_t last_seen   # the highest sequence that was walked over
    cdef readonly uint64_t rows_read
    cdef const unsigned char[::1] data
    cdef const char* start
    cdef size_t at, size
    cdef uint64_t salt, first, last, base
    cdef int64_t low_ns, high_ns
    cdef bytes dead
    cdef const char* dead_at
    cdef const char* dead_end
    cdef object accepts
    cdef dict remembered
    cdef const char* subject_before
    cdef uint16_t subject_before_size
    cdef bint subject_before_accepted, tolerant, show_dead
    cdef int columns
    cdef size_t batch_bytes
    cdef object known
    cdef uint32_t* rows
    cdef uint8_t* row_dead

    def __cinit__(self, const unsigned char[::1] data, uint64_t salt, *, uint64_t base=64, size_t end=0, uint64_t first=0,
                  uint64_t last=0xFFFFFFFFFFFFFFFF, int64_t low_ns=INT64_MIN,
                  int64_t high_ns=INT64_MAX, bytes dead=b"", accepts=None, int columns=0,
                  size_t batch_bytes=8 << 20, bint tolerant=False, bint show_dead=False, known=None):
        self.data = data
        self.start = <const char*>&data[0] if len(data) else NULL
        self.size = end or <size_t>len(data)
        self.salt, self.base, self.first, self.last = salt, base, first, last
        self.low_ns, self.high_ns = low_ns, high_ns
        self.dead = dead
        self.dead_at = PyBytes_AS_STRING(dead)
        self.dead_end = self.dead_at + len(dead)
        self.accepts = accepts
        self.remembered = {}
        self.columns = columns
        self.batch_bytes = batch_bytes
        self.tolerant, self.show_dead = tolerant, show_dead
        self.known = known
        self.rows = <uint32_t*>realloc(NULL, ROWS_MAX * sizeof(uint32_t))
        self.row_dead = <uint8_t*>realloc(NULL, ROWS_MAX)
        if self.size > <size_t>len(data) or self.size > 0xFFFFFFFF:
            raise ValueError("the end is behind the data")
        if self.rows == NULL or self.row_dead == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.rows)
        free(self.row_dead)

    cdef bint wanted_subject(self, const char* at, uint16_t size) except -1:
        cdef bytes subject
        if size == self.subject_before_size and self.subject_before != NULL and (
                memcmp(at, self.subject_before, size) == 0):
            return self.subject_before_accepted
        subject = at[:size]
        accepted = self.remembered.get(subject)
        if accepted is None:
            accepted = bool(self.accepts(subject))
            if len(self.remembered) >= SUBJECTS_REMEMBERED:
                self.remembered.clear()
            self.remembered[subject] = accepted
        self.subject_before, self.subject_before_size = at, size
        self.subject_before_accepted = accepted
        return accepted

    cdef bint is_dead(self, uint64_t seq) noexcept nogil:
        while self.dead_at < self.dead_end and load64(self.dead_at) < seq:
            self.dead_at += 8
        return self.dead_at < self.dead_end and load64(self.dead_at) == seq

    cdef bint step_over(self) except -1:
        """Note damage at `at` and go on behind it; False: there is nothing to go on with."""
        cdef uint64_t offset = self.base + self.at
        if self.size - self.at < RECORD_FIXED:
            reason = "the block ends within a record"
        elif not shape_of(self.start + self.at, self.size - self.at):
            reason = "no record"
        else:
            reason = "the checksum of the record does not hold"
        if not self.tolerant:
            raise Damage(offset, reason)
        self.damaged += 1
        if self.first_damage is None:
            self.first_damage = (offset, reason)
        following = self.known(offset) if self.known is not None else None
        if following is None or following <= offset or following - self.base >= self.size:
            return False
        self.at = following - self.base
        return True

    cdef bint wanted(self, const char* at, uint64_t seq, bint* dead) except -1:
        cdef int64_t ts_ns
        dead[0] = False
        if seq < self.first or at[4] != KIND_MESSAGE:
            return False
        ts_ns = <int64_t>load64(at + 16)
        if ts_ns < self.low_ns or ts_ns > self.high_ns:
            return False
        if self.dead_at < self.dead_end:
            dead[0] = self.is_dead(seq)
            if dead[0] and not self.show_dead:
                return False
        if self.accepts is not None and not self.wanted_subject(at + RECORD_HEAD, load16(at + 6)):
            return False
        return True

    cdef uint32_t gather(self) except? 0xFFFFFFFF:
        """Pick the rows of the next batch."""
        cdef uint32_t size, count = 0
        cdef size_t taken = 0
        cdef const char* at
        cdef uint64_t seq
        cdef bint dead
        while self.at < self.size and count < ROWS_MAX and taken < self.batch_bytes and self.last_seen < self.last:
            at = self.start + self.at
            size = check(at, self.size - self.at, self.salt)
            if size == 0:
                if not self.step_over():
                    self.at = self.size
                continue
            if at[5]:
                raise Encrypted(self.base + self.at)
            seq = load64(at + 8)
            if seq > self.last:
                self.at = self.size
                break
            if seq > self.last_seen:
                self.last_seen = seq + (load64(at + RECORD_HEAD) - 1 if at[4] == KIND_SKIP else 0)
            if self.wanted(at, seq, &dead):
                self.rows[count] = <uint32_t>self.at
                self.row_dead[count] = dead
                count += 1
                taken += 64 + (size if self.columns & (PAYLOAD_ | HEADERS_) else load16(at + 6))
            self.at += size
        self.rows_read += count
        return count

    def next_batch(self) -> dict | None:
        """`rows` and, of each column wanted, its Arrow buffers; None at the end."""
        cdef uint32_t count = self.gather()
        if count == 0:
            return None
        out = {"rows": count}
        if self.columns & SUBJECT_:
            out["subject"] = self.subjects(count)
        if self.columns & SEQ_:
            out["seq"] = self.numbers(count, 8)
        if self.columns & TIME_:
            out["ts_ns"] = self.numbers(count, 16)
        if self.columns & PAYLOAD_:
            out["payload"] = self.payloads(count)
        if self.columns & SIZE_:
            out["size"] = self.sizes(count)
        if self.columns & HEADERS_:
            out["headers"] = self.headers(count)
        if self.columns & MSG_ID_:
            out["msg_id"] = self.message_ids(count)
        if self.columns & DELETED_:
            out["deleted"] = self.deletions(count)
        return out

    cdef bytes numbers(self, uint32_t count, size_t field):
        cdef bytes out = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>count * 8)
        cdef char* to = PyBytes_AS_STRING(out)
        cdef uint32_t row
        for row in range(count):
            memcpy(to + <size_t>row * 8, self.start + self.rows[row] + field, 8)
        return out

    cdef bytes sizes(self, uint32_t count):
        cdef bytes out = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>count * 4)
        cdef uint32_t* to = <uint32_t*>PyBytes_AS_STRING(out)
        cdef const char* at
        cdef uint32_t row
        for row in range(count):
            at = self.start + self.rows[row]
            to[row] = load32(at) - RECORD_FIXED - load16(at + 6) - load32(at + 24)
        return out

    cdef tuple subjects(self, uint32_t count):
        cdef bytes offsets = PyBytes_FromStringAndSize(NULL, (<Py_ssize_t>count + 1) * 4)
        cdef int32_t* ends = <int32_t*>PyBytes_AS_STRING(offsets)
        cdef bytes content
        cdef char* to
        cdef uint32_t row
        ends[0] = 0
        for row in range(count):
            ends[row + 1] = ends[row] + load16(self.start + self.rows[row] + 6)
        content = PyBytes_FromStringAndSize(NULL, ends[count])
        to = PyBytes_AS_STRING(content)
        for row in range(count):
            memcpy(to + ends[row], self.start + self.rows[row] + RECORD_HEAD, ends[row + 1] - ends[row])
        if is_ascii(to, ends[count]):
            return offsets, content
        return self.subjects_one_by_one(count)

    cdef tuple subjects_one_by_one(self, uint32_t count):
        """With care for bytes that are not UTF-8."""
        cdef Bytes offsets = Bytes()
        cdef Bytes text = Bytes()
        cdef const char* at
        cdef uint32_t row
        offsets.add32(0)
        for row in range(count):
            at = self.start + self.rows[row]
            add_text(text, at + RECORD_HEAD, load16(at + 6))
            offsets.add32(text.used)
        return offsets.take(), text.take()

    cdef tuple payloads(self, uint32_t count):
        cdef bytes offsets = PyBytes_FromStringAndSize(NULL, (<Py_ssize_t>count + 1) * 4)
        cdef int32_t* ends = <int32_t*>PyBytes_AS_STRING(offsets)
        cdef bytes content
        cdef char* to
        cdef const char* at
        cdef uint32_t row, head
        cdef uint64_t total = 0
        ends[0] = 0
        for row in range(count):
            at = self.start + self.rows[row]
            total += load32(at) - RECORD_FIXED - load16(at + 6) - load32(at + 24)
            if total > 0x7FFFFFFF:
                raise OverflowError("a batch with more than 2 GiB of payload: lower batchBytes")
            ends[row + 1] = <int32_t>total
        content = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>total)
        to = PyBytes_AS_STRING(content)
        for row in range(count):
            at = self.start + self.rows[row]
            head = RECORD_HEAD + load16(at + 6) + load32(at + 24)
            memcpy(to + ends[row], at + head, ends[row + 1] - ends[row])
        return offsets, content

    cdef tuple headers(self, uint32_t count):
        """(validity, map offsets, key offsets, keys, list offsets, value offsets, values)."""
        cdef Bytes maps = Bytes(), keys = Bytes(), key_ends = Bytes()
        cdef Bytes lists = Bytes(), values = Bytes(), value_ends = Bytes()
        cdef FieldList fields = FieldList()
        cdef bytearray validity = bytearray((count + 7) // 8)
        cdef char* bits = validity
        cdef const char* at
        cdef uint32_t row, size
        cdef uint64_t key_count = 0, value_count = 0
        for out in (maps, key_ends, lists, value_ends):
            (<Bytes>out).add32(0)
        for row in range(count):
            at = self.start + self.rows[row]
            size = load32(at + 24)
            if size:
                bits[row >> 3] |= 1 << (row & 7)
                fields.parse(at + RECORD_HEAD + load16(at + 6), size)
                self.add_fields(fields, keys, key_ends, lists, values, value_ends, &key_count, &value_count)
            maps.add32(key_count)
        return (bytes(validity), maps.take(), key_ends.take(), keys.take(), lists.take(),
                value_ends.take(), values.take(), key_count, value_count)

    cdef int add_fields(self, FieldList fields, Bytes keys, Bytes key_ends, Bytes lists, Bytes values,
                        Bytes value_ends, uint64_t* key_count, uint64_t* value_count) except -1:
        """Each key once, with all of its values in order."""
        cdef size_t index, other, before
        cdef bint repeated
        if fields.count > FIELDS_COMPARED:
            return self.add_many_fields(fields, keys, key_ends, lists, values, value_ends, key_count, value_count)
        for index in range(fields.count):
            repeated = False
            for before in range(index):
                repeated = repeated or same_key(&fields.items[before], &fields.items[index])
            if repeated:
                continue
            add_text(keys, fields.items[index].key, fields.items[index].key_size)
            key_ends.add32(keys.used)
            key_count[0] += 1
            for other in range(index, fields.count):
                if same_key(&fields.items[other], &fields.items[index]):
                    add_text(values, fields.items[other].value, fields.items[other].value_size)
                    value_ends.add32(values.used)
                    value_count[0] += 1
            lists.add32(value_count[0])
        return 0

    cdef int add_many_fields(self, FieldList fields, Bytes keys, Bytes key_ends, Bytes lists, Bytes values,
                             Bytes value_ends, uint64_t* key_count, uint64_t* value_count) except -1:
        """The same in a time that grows as the fields do."""
        cdef dict found = {}
        cdef size_t index
        cdef bytes key
        for index in range(fields.count):
            key = fields.items[index].key[:fields.items[index].key_size]
            found.setdefault(key, []).append(index)
        for key, indexes in found.items():
            add_text(keys, PyBytes_AS_STRING(key), len(key))
            key_ends.add32(keys.used)
            key_count[0] += 1
            for index in indexes:
                add_text(values, fields.items[index].value, fields.items[index].value_size)
                value_ends.add32(values.used)
                value_count[0] += 1
            lists.add32(value_count[0])
        return 0

    cdef tuple message_ids(self, uint32_t count):
        """(validity, offsets, text) of the header Nats-Msg-Id."""
        cdef Bytes offsets = Bytes(), text = Bytes()
        cdef FieldList fields = FieldList()
        cdef bytearray validity = bytearray((count + 7) // 8)
        cdef char* bits = validity
        cdef const char* at
        cdef uint32_t row
        cdef size_t index
        offsets.add32(0)
        for row in range(count):
            at = self.start + self.rows[row]
            if load32(at + 24):
                fields.parse(at + RECORD_HEAD + load16(at + 6), load32(at + 24))
                for index in range(fields.count):
                    if fields.items[index].key_size == 11 and memcmp(fields.items[index].key, b"Nats-Msg-Id", 11) == 0:
                        bits[row >> 3] |= 1 << (row & 7)
                        add_text(text, fields.items[index].value, fields.items[index].value_size)
                        break
            offsets.add32(text.used)
        return bytes(validity), offsets.take(), text.take()

    cdef bytes deletions(self, uint32_t count):
        cdef bytearray out = bytearray((count + 7) // 8)
        cdef char* bits = out
        cdef uint32_t row
        for row in range(count):
            if self.row_dead[row]:
                bits[row >> 3] |= 1 << (row & 7)
        return bytes(out)


cdef enum:
    SUBJECT_ = 1
    SEQ_ = 2
    TIME_ = 4
    PAYLOAD_ = 8
    HEADERS_ = 16
    MSG_ID_ = 32
    SIZE_ = 64
    DELETED_ = 128


def repeat_text(text: bytes, rows: int) -> tuple[bytes, bytes]:
    """Offsets and bytes of an Arrow string column that says the same in every row."""
    cdef bytes offsets = PyBytes_FromStringAndSize(NULL, (<Py_ssize_t>rows + 1) * 4)
    cdef int32_t* ends = <int32_t*>PyBytes_AS_STRING(offsets)
    cdef Py_ssize_t row, size = len(text)
    for row in range(rows + 1):
        ends[row] = <int32_t>(row * size)
    return offsets, text * rows


def to_micros(nanos: bytes) -> bytes:
    """Whole microseconds, rounded towards the past."""
    cdef Py_ssize_t count = len(nanos) // 8, row
    cdef bytes out = PyBytes_FromStringAndSize(NULL, count * 8)
    cdef const char* source = nanos
    cdef int64_t* to = <int64_t*>PyBytes_AS_STRING(out)
    cdef int64_t value
    for row in range(count):
        value = <int64_t>load64(source + row * 8)
        to[row] = value // 1000 - (value % 1000 < 0)
    return out


def open_records(const unsigned char[::1] data, uint64_t salt, size_t at, uint64_t last, opener) -> tuple[bytes, int]:
    """The records from byte `at` to sequence `last`, their bodies decrypted by `opener(cipher, head, body)`.

    And where the first is that does not hold; the size of `data` when all do.
    """
    cdef const char* start = <const char*>&data[0] if len(data) else NULL
    cdef size_t size = len(data)
    cdef uint32_t length
    cdef Bytes out = Bytes()
    cdef bytes head, body
    cdef char* to
    while at < size:
        length = check(start + at, size - at, salt)
        if length == 0:
            return out.take(), at
        if load64(start + at + 8) > last:
            break
        if start[at + 5] == 0 or start[at + 4] != KIND_MESSAGE:
            to = out.extend(length)
            memcpy(to, start + at, length)
            to[5] = 0
        else:
            head = start[at:at + RECORD_HEAD]
            body = opener(<int>start[at + 5], head, start[at + RECORD_HEAD:at + length - 8])
            to = out.extend(RECORD_FIXED + len(body))
            memcpy(to, PyBytes_AS_STRING(head), RECORD_HEAD)
            to[5] = 0
            (<uint32_t*>to)[0] = <uint32_t>(RECORD_FIXED + len(body))
            memcpy(to + RECORD_HEAD, PyBytes_AS_STRING(body), len(body))
        store_checksum(to, salt)
        at += length
    return out.take(), size


cdef void store_checksum(char* record, uint64_t salt) noexcept nogil:
    cdef uint32_t size = load32(record)
    cdef uint64_t value = xxh64(record, size - 8, salt)
    memcpy(record + size - 8, &value, 8)
