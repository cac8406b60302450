# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The message ids of a stream that were seen inside its duplicate window.

Contract: times are arguments and ids come in the order of their times. An id counts while it is
younger than the window. At most `ids_max` are kept: beyond it the oldest is forgotten early and
`forgotten` counts it. No Python object is made for an id. The hash is keyed.
"""
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy

cdef extern from "_xxh64.h" nogil:
    uint64_t martlet_xxh64(const char* data, size_t size, uint64_t seed)

cdef enum:
    IDS_MAX = 8_388_608
    CAPACITY_FIRST = 256


cdef inline const char* text_of(const MessageId* entry) noexcept nogil:
    if entry.length <= ID_BYTES_INSIDE:
        return entry.inside
    return (<char**>entry.inside)[0]


cdef class DedupeWindow:
    def __init__(self, int64_t window_ns, uint32_t ids_max=IDS_MAX, uint64_t seed=0):
        self.window_ns = window_ns
        self.ids_max = max(ids_max, 1)
        self.seed = seed

    def __dealloc__(self):
        while self.head != self.tail:
            self.drop_oldest()
        free(self.ring)
        free(self.buckets)

    def __len__(self):
        return self.tail - self.head

    def set_window(self, int64_t window_ns):
        self.window_ns = window_ns
        if window_ns <= 0:
            self.clear()

    def clear(self):
        while self.head != self.tail:
            self.drop_oldest()

    def seq_of(self, bytes message_id, int64_t now_ns):
        return self.find(message_id, <uint32_t>len(message_id), now_ns)

    def remember(self, bytes message_id, uint64_t seq, int64_t ts_ns):
        self.add(message_id, <uint32_t>len(message_id), seq, ts_ns)

    def expire(self, int64_t now_ns):
        """Now and then: forget what is too old, and give memory back when nothing is left."""
        self.expire_until(now_ns)
        if self.head == self.tail and self.capacity:
            free(self.ring)
            free(self.buckets)
            self.ring, self.buckets, self.capacity = NULL, NULL, 0

    cdef uint32_t* bucket_of(self, const char* text, uint32_t length) noexcept nogil:
        return &self.buckets[martlet_xxh64(text, length, self.seed) & (self.capacity - 1)]

    cdef uint64_t find(self, const char* text, uint32_t length, int64_t now_ns) noexcept nogil:
        cdef uint32_t place
        cdef MessageId* entry
        if self.head == self.tail:
            return 0
        place = self.bucket_of(text, length)[0]
        while place:
            entry = &self.ring[place - 1]
            if entry.length == length and memcmp(text_of(entry), text, length) == 0:
                # The newest of equal ids stands first in its bucket.
                return entry.seq if now_ns - entry.ts_ns < self.window_ns else 0
            place = entry.next
        return 0

    cdef int add(self, const char* text, uint32_t length, uint64_t seq, int64_t ts_ns) except -1 nogil:
        cdef MessageId* entry
        cdef uint32_t* bucket
        cdef uint32_t place
        cdef char* outside
        if self.window_ns <= 0:
            return 0
        self.expire_until(ts_ns)
        if self.tail - self.head >= self.ids_max:
            self.drop_oldest()
            self.forgotten += 1
        if self.tail - self.head == self.capacity:
            self.grow()
        place = <uint32_t>(self.tail & (self.capacity - 1))
        entry = &self.ring[place]
        if length <= ID_BYTES_INSIDE:
            memcpy(entry.inside, text, length)
        else:
            outside = <char*>malloc(length)
            if outside == NULL:
                with gil:
                    raise MemoryError
            memcpy(outside, text, length)
            (<char**>entry.inside)[0] = outside
        bucket = self.bucket_of(text, length)
        entry.seq = seq
        entry.ts_ns = ts_ns
        entry.length = length
        entry.next = bucket[0]
        bucket[0] = place + 1
        self.tail += 1
        return 0

    cdef void expire_until(self, int64_t now_ns) noexcept nogil:
        while self.head != self.tail and (
            now_ns - self.ring[self.head & (self.capacity - 1)].ts_ns >= self.window_ns
        ):
            self.drop_oldest()

    cdef void drop_oldest(self) noexcept nogil:
        """It is the last of its bucket: ids are put in front."""
        cdef uint32_t place = <uint32_t>(self.head & (self.capacity - 1))
        cdef MessageId* entry = &self.ring[place]
        cdef uint32_t* link = self.bucket_of(text_of(entry), entry.length)
        while link[0] != place + 1:
            link = &self.ring[link[0] - 1].next
        link[0] = entry.next
        if entry.length > ID_BYTES_INSIDE:
            free((<char**>entry.inside)[0])
        self.head += 1

    cdef int grow(self) except -1 nogil:
        """Twice the room; ids keep their order and find their new places."""
        cdef uint32_t old = self.capacity
        cdef uint32_t wanted = 2 * old if old else CAPACITY_FIRST
        cdef MessageId* ring = <MessageId*>malloc(wanted * sizeof(MessageId))
        cdef uint32_t* buckets = <uint32_t*>calloc(wanted, sizeof(uint32_t))
        cdef uint32_t* bucket
        cdef MessageId* entry
        cdef uint64_t number
        if ring == NULL or buckets == NULL:
            free(ring)
            free(buckets)
            with gil:
                raise MemoryError
        for number in range(self.head, self.tail):
            ring[number & (wanted - 1)] = self.ring[number & (old - 1)]
        free(self.ring)
        free(self.buckets)
        self.ring, self.buckets, self.capacity = ring, buckets, wanted
        for number in range(self.head, self.tail):
            entry = &ring[number & (wanted - 1)]
            bucket = self.bucket_of(text_of(entry), entry.length)
            entry.next = bucket[0]
            bucket[0] = <uint32_t>(number & (wanted - 1)) + 1
        return 0
