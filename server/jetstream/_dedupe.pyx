# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The message ids of a stream that were seen inside its duplicate window.

Contract: times are arguments and ids come in the order of their times. An id counts while it is
younger than the window. At most `ids_max` are kept, in 64 bytes each: beyond it the oldest is
forgotten early and `forgotten` counts it. No Python object is made for an id. The hash is keyed.

No call does more than a bounded piece of work. Ids stand in a ring of chunks, which come and go one
by one. Buckets come one at a time too (linear hashing): a new one takes its part of one that was
there. What is too old goes a few with each new id, the rest by `expire`, in slices.

Of an id longer than 40 bytes its length, its first 24 bytes and 128 bits of hash stand for it:
two that differ and agree in all of that are taken for one, which by chance does not happen.
"""
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

cdef extern from "_xxh64.h" nogil:
    uint64_t martlet_xxh64(const char* data, size_t size, uint64_t seed)

cdef extern from *:
    int __builtin_clz(unsigned int number) nogil
    void __builtin_prefetch(const void* address) nogil

cdef enum:
    IDS_MAX = 8_388_608
    PLACE_MASK = 0xFFFFFF       # more than twice as many places as ids
    CHUNK_BITS = 8
    CHUNK_IDS = 256
    FIRST_BUCKETS_BITS = 8
    FIRST_BUCKETS = 256
    KEY_BYTES_KEPT = 24
    FORGOTTEN_WITH_EACH = 8
    SPLITS_AHEAD = 4
    FORGOTTEN_AT_ONCE = 16_384  # about a millisecond


cdef inline uint32_t key_length(uint32_t length) noexcept nogil:
    return length if length <= KEY_BYTES else KEY_BYTES


cdef inline uint32_t place_of(uint64_t number) noexcept nogil:
    return (<uint32_t>number & PLACE_MASK) + 1


cdef class DedupeWindow:
    def __init__(self, int64_t window_ns, uint32_t ids_max=IDS_MAX, uint64_t seed=0):
        self.window_ns = window_ns
        self.ids_max = min(max(ids_max, 1), <uint32_t>IDS_MAX)
        self.seed = seed

    def __dealloc__(self):
        self.free_all()

    def __len__(self):
        return self.tail - self.head

    def set_window(self, int64_t window_ns):
        self.window_ns = window_ns
        if window_ns <= 0:
            self.clear()

    def clear(self):
        self.free_all()

    def seq_of(self, bytes message_id, int64_t now_ns):
        return self.find(message_id, <uint32_t>len(message_id), now_ns)

    def remember(self, bytes message_id, uint64_t seq, int64_t ts_ns):
        self.add(message_id, <uint32_t>len(message_id), seq, ts_ns)

    def expire(self, int64_t now_ns, uint64_t most=FORGOTTEN_AT_ONCE):
        self.expire_some(now_ns, most)
        if self.head == self.tail:
            self.free_all()
        return self.has_ended(now_ns)

    def next_expiry_ns(self):
        if self.head == self.tail:
            return None
        return self.entry_at(place_of(self.head)).ts_ns + self.window_ns

    @property
    def memory_bytes(self):
        cdef uint64_t chunks = (self.tail >> CHUNK_BITS) - (self.head >> CHUNK_BITS) + 1
        if self.chunks == NULL:
            return 0
        return (
            chunks * CHUNK_IDS * sizeof(MessageId) + self.chunk_capacity * sizeof(MessageId*)
            + self.bucket_count * sizeof(uint32_t)
        )

    cdef const char* key_of(self, const char* text, uint32_t length, char* folded) noexcept nogil:
        """What stands for an id; a long one is folded into the caller's `folded`."""
        cdef uint64_t[2] parts
        if length <= KEY_BYTES:
            return text
        parts[0] = martlet_xxh64(text, length, self.seed)
        parts[1] = martlet_xxh64(text, length, ~self.seed)
        memcpy(folded, text, KEY_BYTES_KEPT)
        memcpy(folded + KEY_BYTES_KEPT, parts, sizeof(parts))
        return folded

    cdef MessageId* entry_at(self, uint32_t place) noexcept nogil:
        cdef uint32_t number = place - 1
        return &self.chunks[(number >> CHUNK_BITS) & (self.chunk_capacity - 1)][number & (CHUNK_IDS - 1)]

    cdef uint32_t* bucket(self, uint32_t number) noexcept nogil:
        cdef int segment
        if number < FIRST_BUCKETS:
            return &self.buckets[0][number]
        segment = 31 - __builtin_clz(number) - FIRST_BUCKETS_BITS + 1
        return &self.buckets[segment][number - (1u << (segment + FIRST_BUCKETS_BITS - 1))]

    cdef uint32_t* bucket_of(self, const char* key, uint32_t length) noexcept nogil:
        """Those above `bucket_base` have been made so far for the first hashes only."""
        cdef uint32_t number = <uint32_t>martlet_xxh64(key, length, self.seed) & (2 * self.bucket_base - 1)
        return self.bucket(number if number < self.bucket_count else number - self.bucket_base)

    cdef uint64_t find(self, const char* text, uint32_t length, int64_t now_ns) noexcept nogil:
        cdef char[KEY_BYTES] folded
        cdef const char* key
        cdef uint32_t place, size = key_length(length)
        cdef MessageId* entry
        if self.head == self.tail:
            return 0
        key = self.key_of(text, length, folded)
        place = self.bucket_of(key, size)[0]
        while place:
            entry = self.entry_at(place)
            if entry.length == length and memcmp(entry.key, key, size) == 0:
                # The newest of equal ids stands first in its bucket.
                return entry.seq if now_ns - entry.ts_ns < self.window_ns else 0
            place = entry.older
        return 0

    cdef int add(self, const char* text, uint32_t length, uint64_t seq, int64_t ts_ns) except -1 nogil:
        cdef char[KEY_BYTES] folded
        cdef const char* key
        cdef uint32_t size = key_length(length)
        cdef MessageId* entry
        cdef uint32_t* bucket
        if self.window_ns <= 0:
            return 0
        self.expire_some(ts_ns, FORGOTTEN_WITH_EACH)
        if self.tail - self.head >= self.ids_max:
            self.forgotten += not self.has_ended(ts_ns)
            self.drop_oldest()
        if self.tail - self.head >= self.bucket_count:
            self.add_bucket()
        if self.tail & (CHUNK_IDS - 1) == 0 or self.chunks == NULL:
            self.add_chunk()
        key = self.key_of(text, length, folded)
        entry = self.entry_at(place_of(self.tail))
        memcpy(entry.key, key, size)
        bucket = self.bucket_of(key, size)
        entry.seq = seq
        entry.ts_ns = ts_ns
        entry.length = length
        entry.older = bucket[0]
        bucket[0] = place_of(self.tail)
        self.tail += 1
        return 0

    cdef bint has_ended(self, int64_t now_ns) noexcept nogil:
        """Whether there is an id that is too old."""
        return self.head != self.tail and (
            now_ns - self.entry_at(place_of(self.head)).ts_ns >= self.window_ns
        )

    cdef void expire_some(self, int64_t now_ns, uint64_t most) noexcept nogil:
        while most and self.has_ended(now_ns):
            self.drop_oldest()
            most -= 1

    cdef void drop_oldest(self) noexcept nogil:
        """It is the last of its bucket: ids are put in front."""
        cdef uint32_t place = place_of(self.head)
        cdef MessageId* entry = self.entry_at(place)
        cdef uint32_t* link = self.bucket_of(entry.key, key_length(entry.length))
        cdef MessageId** chunk
        while link[0] != place:
            link = &self.entry_at(link[0]).older
        link[0] = 0
        chunk = &self.chunks[((place - 1) >> CHUNK_BITS) & (self.chunk_capacity - 1)]
        self.head += 1
        if self.head & (CHUNK_IDS - 1) == 0:
            free(chunk[0])
            chunk[0] = NULL

    cdef void free_all(self) noexcept nogil:
        """Forget all, and give the memory back."""
        cdef uint32_t i
        for i in range(self.chunk_capacity):
            free(self.chunks[i])
        free(self.chunks)
        for i in range(SEGMENTS_MAX):
            free(self.buckets[i])
        memset(self.buckets, 0, sizeof(self.buckets))
        self.chunks, self.chunk_capacity = NULL, 0
        self.bucket_count = self.bucket_base = 0
        self.head = self.tail = 0

    # Growing

    cdef int reserve(self, uint64_t ids) except -1 nogil:
        """An empty window is about to get so many: their buckets are made at once, and none is split."""
        cdef uint32_t number = FIRST_BUCKETS
        if self.bucket_count:
            return 0
        self.add_segment(0)
        while number < min(ids, self.ids_max):
            self.add_segment(number)
            number *= 2
        self.bucket_count = self.bucket_base = number
        return 0

    cdef int add_bucket(self) except -1 nogil:
        cdef uint32_t number = self.bucket_count
        if number == 0:
            return self.reserve(1)
        if number & (number - 1) == 0:
            self.add_segment(number)
        self.split(number)
        return 0

    cdef int add_segment(self, uint32_t number) except -1 nogil:
        """For the buckets from `number` on. Its pages are zeros that the kernel gives when they are used."""
        cdef uint32_t wanted = number if number else FIRST_BUCKETS
        cdef int segment = 0
        if number:
            segment = 31 - __builtin_clz(number) - FIRST_BUCKETS_BITS + 1
        self.buckets[segment] = <uint32_t*>calloc(wanted, sizeof(uint32_t))
        if self.buckets[segment] == NULL:
            with gil:
                raise MemoryError
        return 0

    cdef void split(self, uint32_t number) noexcept nogil:
        """The new bucket takes what is its own from the one that had it; both keep their order."""
        cdef uint32_t mask = 2 * self.bucket_base - 1
        cdef uint32_t* kept = self.bucket(number - self.bucket_base)
        cdef uint32_t* moved = self.bucket(number)
        cdef uint32_t place = kept[0]
        cdef uint32_t ahead = min(number + SPLITS_AHEAD - self.bucket_base, self.bucket_base - 1)
        cdef MessageId* entry
        # A few calls later this one is split, and its ids lie anywhere.
        ahead = self.bucket(ahead)[0]
        if ahead:
            __builtin_prefetch(self.entry_at(ahead))
        while place:
            entry = self.entry_at(place)
            if <uint32_t>martlet_xxh64(entry.key, key_length(entry.length), self.seed) & mask == number:
                moved[0] = place
                moved = &entry.older
            else:
                kept[0] = place
                kept = &entry.older
            place = entry.older
        kept[0] = moved[0] = 0
        self.bucket_count += 1
        if self.bucket_count == 2 * self.bucket_base:
            self.bucket_base = self.bucket_count

    cdef int add_chunk(self) except -1 nogil:
        """Room for the id behind the last."""
        cdef MessageId* chunk
        cdef uint64_t number = self.tail >> CHUNK_BITS
        if number - (self.head >> CHUNK_BITS) >= self.chunk_capacity:
            self.add_chunk_places()
        chunk = <MessageId*>malloc(CHUNK_IDS * sizeof(MessageId))
        if chunk == NULL:
            with gil:
                raise MemoryError
        self.chunks[number & (self.chunk_capacity - 1)] = chunk
        return 0

    cdef int add_chunk_places(self) except -1 nogil:
        """Twice as many; only addresses move."""
        cdef uint32_t wanted = max(2 * self.chunk_capacity, 1u)
        cdef MessageId** chunks = <MessageId**>calloc(wanted, sizeof(MessageId*))
        cdef uint64_t number
        if chunks == NULL:
            with gil:
                raise MemoryError
        for number in range(self.head >> CHUNK_BITS, self.tail >> CHUNK_BITS):
            chunks[number & (wanted - 1)] = self.chunks[number & (self.chunk_capacity - 1)]
        free(self.chunks)
        self.chunks, self.chunk_capacity = chunks, wanted
        return 0
