# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What of a consumer outlives the process: changes as they happen, now and then all of it anew.

A record is bytes; whoever has the log stores them in order under the consumer's key. Numbers are
LEB128, signed ones zigzag. A record begins with its kind and the consumer's identity (the time of
its creation).
- WHOLE: the place; then pending entries in order, each the distance from the one before in
  sequence and consumer sequence, redeliveries, milliseconds until its ack is overdue from the time
  in the record; then those that were delivered as often as they may be.
- MORE: further entries of a whole that is too long for one record.
- CHANGES: the time, then operations in the order in which they happened.

A whole makes all records before it worthless (`records` names them). It is written when the changes
since the last have grown to twice its size.
"""
from libc.stdlib cimport free, realloc

from server.jetstream._pending cimport PENDING, TIMED, Entry

cdef enum:
    ENTRIES_A_RECORD = 400_000
    CHANGES_MIN = 4096
    CHANGES_MAX = 1 << 20       # more than this between two records: tell everything
    NUMBER_BYTES = 10
    DUE_NOW = 0
    MS_NS = 1000000


cdef inline char* write_number(char* to, uint64_t value) noexcept nogil:
    """LEB128, in NUMBER_BYTES at most; where the next one goes."""
    while value >= 128:
        to[0] = <char>(value & 127 | 128)
        to += 1
        value >>= 7
    to[0] = <char>value
    return to + 1


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return <uint64_t>((value << 1) ^ (value >> 63))


class DamagedState(Exception):
    """Records that do not fit together; the consumer begins where its floors are known."""


cdef class Keeper:
    def __init__(self, str key not None, uint64_t identity):
        self.key = key
        self.identity = identity
        self.records = []
        self.needs_whole = True

    def __dealloc__(self):
        free(self.changes)

    # Writing

    cdef int reserve(self, size_t size) except -1:
        cdef char* bigger
        cdef size_t wanted = max(2 * self.room, self.size + size)
        if self.room - self.size < size:
            bigger = <char*>realloc(self.changes, wanted)
            if bigger == NULL:
                raise MemoryError
            self.changes = bigger
            self.room = wanted
        return 0

    cdef int put(self, uint64_t value) except -1:
        self.reserve(NUMBER_BYTES)
        self.size = write_number(self.changes + self.size, value) - self.changes
        return 0

    cdef int put_signed(self, int64_t value) except -1:
        return self.put(zigzag(value))

    cdef int op(self, uint8_t which) except -1:
        self.is_dirty = True
        if self.needs_whole:
            return 0
        if self.size > CHANGES_MAX:
            self.needs_whole = True
            return 0
        self.put(which)
        return 1

    cdef int delivered(self, uint64_t seq, uint64_t consumer_seq) except -1:
        if self.op(OP_DELIVERED):
            self.put_signed(<int64_t>(seq - self.seq))
            self.put_signed(<int64_t>(consumer_seq - self.consumer_seq))
            self.seq = seq
            self.consumer_seq = consumer_seq
        return 0

    cdef int redelivered(self, uint64_t seq, uint64_t consumer_seq, int32_t count) except -1:
        if self.op(OP_REDELIVERED):
            self.put_signed(<int64_t>(seq - self.seq))
            self.put_signed(<int64_t>(consumer_seq - self.consumer_seq))
            self.put_signed(count)
            self.consumer_seq = consumer_seq
        return 0

    cdef int acked(self, uint64_t seq) except -1:
        if self.op(OP_ACKED):
            self.put_signed(<int64_t>(seq - self.seq))
        return 0

    cdef int retired(self, uint64_t seq) except -1:
        if self.op(OP_RETIRED):
            self.put_signed(<int64_t>(seq - self.seq))
        return 0

    cdef int postponed(self, uint64_t seq, int64_t delay_ns) except -1:
        if self.op(OP_POSTPONED):
            self.put_signed(<int64_t>(seq - self.seq))
            self.put_signed(delay_ns // MS_NS)
        return 0

    cdef int moved(self) except -1:
        """Something that no operation tells."""
        self.is_dirty = True
        self.needs_whole = True
        return 0

    cdef list take(self, const Place* place, PendingTable table, int64_t now_ns, int64_t wall_ns):
        """The records that say what changed since the last call."""
        cdef bytes changes
        cdef list records
        cdef uint32_t number = table.oldest_entry
        if self.since_whole + self.size > CHANGES_MIN + 2 * self.whole_size:
            self.needs_whole = True
        self.is_dirty = False
        if not self.needs_whole:
            changes = self.changes[:self.size]
            self.size = 0
            self.put(CHANGES)
            self.put(self.identity)
            self.put(wall_ns // MS_NS)
            records = [self.changes[:self.size] + changes]
            self.since_whole += len(records[0])
            self.size = 0
            return records
        records = []
        self.size = 0
        self.put(WHOLE)
        self.put(self.identity)
        self.put_place(place)
        self.put(wall_ns // MS_NS)
        self.put_retired(table)
        while True:
            self.put_entries(table, &number, ENTRIES_A_RECORD, now_ns)
            records.append(self.changes[:self.size])
            self.size = 0
            if number == 0:
                break
            self.put(MORE)
            self.put(self.identity)
            self.put(wall_ns // MS_NS)
        self.whole_size = sum(len(record) for record in records)
        self.since_whole = 0
        self.needs_whole = False
        self.seq = place.delivered_seq
        self.consumer_seq = place.next_consumer_seq - 1
        if self.room > 65536:
            free(self.changes)
            self.changes = NULL
            self.room = 0
        return records

    cdef int put_place(self, const Place* place) except -1:
        self.put(place.next_seq)
        self.put(place.next_consumer_seq)
        self.put(place.delivered_seq)
        self.put(place.floor_seq)
        self.put(place.floor_consumer_seq)
        self.put(place.resume_seq)
        self.put(<uint64_t>place.delivered_wall_ns)
        self.put(<uint64_t>place.acked_wall_ns)
        return 0

    cdef int put_retired(self, PendingTable table) except -1:
        cdef uint32_t number, count = 0
        cdef Entry* entry
        for number in range(1, table.top):
            entry = &table.entries[number]
            if entry.seq and not entry.flags & PENDING:
                count += 1
        self.put(count)
        for number in range(1, table.top):
            entry = &table.entries[number]
            if entry.seq and not entry.flags & PENDING:
                self.put(entry.seq)
                self.put(entry.consumer_seq)
                self.put_signed(entry.redeliveries)
        return 0

    cdef int put_entries(
        self, PendingTable table, uint32_t* number, uint32_t most, int64_t now_ns
    ) except -1:
        cdef Entry* entry
        cdef uint64_t seq = 0, consumer_seq = 0
        cdef int64_t due_ns
        cdef uint32_t count = 0
        cdef char* to
        while number[0] and count < most:
            self.reserve(4 * NUMBER_BYTES)
            entry = &table.entries[number[0]]
            due_ns = entry.due_ns - now_ns if entry.flags & TIMED else DUE_NOW
            to = write_number(self.changes + self.size, entry.seq - seq)
            to = write_number(to, entry.consumer_seq - consumer_seq)
            to = write_number(to, zigzag(entry.redeliveries))
            to = write_number(to, zigzag(due_ns // MS_NS))
            self.size = to - self.changes
            seq, consumer_seq = entry.seq, entry.consumer_seq
            number[0] = entry.newer
            count += 1
        return 0


cdef class Reader:
    def __init__(self, bytes record not None):
        self.record = record
        self.at = <const uint8_t*><const char*>record
        self.end = self.at + len(record)

    cdef uint64_t get(self) except? 0:
        cdef uint64_t value = 0
        cdef uint8_t byte
        cdef int shift = 0
        while True:
            if self.at == self.end or shift > 63:
                raise DamagedState("a record ends within a number")
            byte = self.at[0]
            self.at += 1
            value |= <uint64_t>(byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    cdef int64_t get_signed(self) except? 0:
        cdef uint64_t value = self.get()
        return <int64_t>(value >> 1) ^ -<int64_t>(value & 1)
