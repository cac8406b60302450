# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A stream's messages in memory: records behind one another in chunks, a pointer for each sequence.

No Python object is made per message; a chunk is one object and owns its memory, so that `pin` can
hold it. A chunk whose records are all dead is freed. Where more memory is held than twice what lives,
those that are mostly dead are emptied a few records at a time, during appends, by copying what lives
to the newest chunk; so the memory held is at most about three times what lives, whatever was deleted
in between.
"""
from libc.stdint cimport INT64_MIN, uint8_t, uint16_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove, memset

from storage._record cimport Record, RecordVisit

cdef enum:
    PAGE_SLOTS = 4096
    PAGE_SLOTS_FIRST = 16
    CHUNK_BYTES_MIN = 4096
    CHUNK_BYTES_MAX = 1 << 20
    COUNTED_OVERHEAD = 16
    SPARSE_KEPT_BYTES = 2 << 20
    EVACUATED_PER_APPEND = 8
    TRIMMED_AHEAD = 16

cdef extern from *:
    """
    #define martlet_prefetch(address) __builtin_prefetch(address)
    """
    void prefetch "martlet_prefetch"(const void* address) noexcept nogil

cdef struct Stored:
    uint64_t seq
    int64_t ts_ns
    void* owner                     # its Chunk
    uint32_t hdr_len
    uint32_t msg_len
    uint16_t subject_len
    uint8_t live


cdef inline size_t stored_length(size_t subject_len, size_t hdr_len, size_t msg_len) noexcept nogil:
    return (sizeof(Stored) + subject_len + hdr_len + msg_len + 7) & ~<size_t>7


cdef class Chunk:
    def __dealloc__(self):
        free(self.memory)


cdef void show(const Stored* stored, Record* out) noexcept nogil:
    cdef const char* at = <const char*>(stored + 1)
    out.seq = stored.seq
    out.ts_ns = stored.ts_ns
    out.skip_count = 0
    out.subject = at
    out.subject_len = stored.subject_len
    out.hdr = at + stored.subject_len
    out.hdr_len = stored.hdr_len
    out.msg = out.hdr + stored.hdr_len
    out.msg_len = stored.msg_len


cdef class MemoryHome(RecordHome):
    def __cinit__(self):
        self.chunks = {}
        self.sparse = {}

    def __dealloc__(self):
        cdef size_t i
        for i in range(self.head, self.tail):
            free(self.pages[i].records)
        free(self.pages)

    # Sequences to records

    cdef size_t page_from(self, uint64_t number) noexcept nogil:
        cdef size_t low = self.head, high = self.tail, middle
        cdef uint64_t guess
        if low == high or self.pages[low].number >= number:
            return low
        guess = low + (number - self.pages[low].number)
        if guess < high and self.pages[guess].number == number:
            return guess
        while low < high:
            middle = (low + high) >> 1
            if self.pages[middle].number < number:
                low = middle + 1
            else:
                high = middle
        return low

    cdef void** place_of(self, uint64_t seq) noexcept nogil:
        """Where the pointer to the record of `seq` stands; NULL: nothing lives there."""
        cdef size_t at = self.page_from(seq // PAGE_SLOTS)
        cdef uint32_t slot = <uint32_t>(seq % PAGE_SLOTS)
        if at == self.tail or self.pages[at].number != seq // PAGE_SLOTS:
            return NULL
        if slot >= self.pages[at].capacity or self.pages[at].records[slot] == NULL:
            return NULL
        return &self.pages[at].records[slot]

    cdef Page* _page_for(self, uint64_t seq) except NULL:
        """The last page, with room for the slot of `seq`."""
        cdef uint64_t number = seq // PAGE_SLOTS
        cdef uint32_t slot = <uint32_t>(seq % PAGE_SLOTS), slots
        cdef size_t count = self.tail - self.head, capacity
        cdef Page* page
        cdef Page* pages
        cdef void** records
        if count == 0 or self.pages[self.tail - 1].number != number:
            if self.head > count and self.tail == self.capacity:
                memmove(self.pages, self.pages + self.head, count * sizeof(Page))
                self.head = 0
                self.tail = count
            if self.tail == self.capacity:
                capacity = 1 if self.capacity == 0 else self.capacity * 2
                pages = <Page*>realloc(self.pages, capacity * sizeof(Page))
                if pages == NULL:
                    raise MemoryError
                self.pages = pages
                self.capacity = capacity
            memset(&self.pages[self.tail], 0, sizeof(Page))
            self.pages[self.tail].number = number
            self.pages[self.tail].latest_ns = INT64_MIN
            self.tail += 1
        page = &self.pages[self.tail - 1]
        if slot >= page.capacity:
            slots = max(page.capacity, <uint32_t>PAGE_SLOTS_FIRST)
            while slots <= slot:
                slots *= 2
            records = <void**>realloc(page.records, slots * sizeof(void*))
            if records == NULL:
                raise MemoryError
            memset(records + page.capacity, 0, (slots - page.capacity) * sizeof(void*))
            page.records = records
            page.capacity = slots
        return page

    # Memory of records

    cdef void* _room(self, size_t length) except NULL:
        cdef Chunk chunk = self.active
        cdef size_t size
        if chunk is None or chunk.size - chunk.used < length:
            size = min(max(<size_t>self.live_bytes // 4, <size_t>CHUNK_BYTES_MIN), <size_t>CHUNK_BYTES_MAX)
            chunk = Chunk()
            chunk.size = max(size, length)
            chunk.memory = <char*>malloc(chunk.size)
            if chunk.memory == NULL:
                raise MemoryError
            self.chunks[<size_t>chunk.memory] = chunk
            self.held_bytes += chunk.size
            if self.active is not None:
                self._retire(self.active)
            self.active = chunk
        chunk.used += length
        chunk.live_bytes += length
        self.live_bytes += length
        return chunk.memory + chunk.used - length

    cdef int _retire(self, Chunk chunk) except -1:
        """A chunk that is not written to any more: free it, or list it to be emptied."""
        if chunk.live_bytes == 0:
            self.held_bytes -= chunk.size
            del self.chunks[<size_t>chunk.memory]
            self.sparse.pop(<size_t>chunk.memory, None)
        elif not chunk.listed and chunk.live_bytes * 3 < chunk.size:
            chunk.listed = True
            self.sparse[<size_t>chunk.memory] = chunk
        return 0

    cdef int _release(self, void* record) except -1:
        cdef Stored* stored = <Stored*>record
        cdef Chunk chunk = <Chunk>stored.owner
        cdef size_t length = stored_length(stored.subject_len, stored.hdr_len, stored.msg_len)
        stored.live = 0
        chunk.live_bytes -= length
        self.live_bytes -= length
        if chunk is not self.active:
            self._retire(chunk)
        return 0

    cdef int _evacuate(self) except -1:
        """Copy a few living records out of a chunk that is mostly dead."""
        cdef Chunk chunk = next(reversed(self.sparse.values()))
        cdef Stored* stored
        cdef Stored* copy
        cdef size_t length
        cdef int copied = 0
        while chunk.live_bytes and copied < EVACUATED_PER_APPEND:
            stored = <Stored*>(chunk.memory + chunk.emptied)
            length = stored_length(stored.subject_len, stored.hdr_len, stored.msg_len)
            chunk.emptied += length
            if stored.live:
                copy = <Stored*>self._room(length)
                memcpy(copy, stored, length)
                copy.owner = <void*>self.active
                self.place_of(stored.seq)[0] = copy
                self._release(stored)
                copied += 1
        return 0

    # The port

    cdef int append(self, const Record* record) except -1:
        cdef Stored* stored
        cdef Page* page
        cdef char* at
        cdef size_t length = stored_length(record.subject_len, record.hdr_len, record.msg_len)
        if record.seq <= self.last_seq:
            raise ValueError(f"sequence {record.seq} is not above {self.last_seq}")
        page = self._page_for(record.seq)
        stored = <Stored*>self._room(length)
        stored.seq = record.seq
        stored.ts_ns = record.ts_ns
        stored.owner = <void*>self.active
        stored.hdr_len = record.hdr_len
        stored.msg_len = record.msg_len
        stored.subject_len = record.subject_len
        stored.live = 1
        at = <char*>(stored + 1)
        memcpy(at, record.subject, record.subject_len)
        at += record.subject_len
        if record.hdr_len:
            memcpy(at, record.hdr, record.hdr_len)
            at += record.hdr_len
        if record.msg_len:
            memcpy(at, record.msg, record.msg_len)
        page.records[record.seq % PAGE_SLOTS] = stored
        page.live += 1
        page.latest_ns = max(page.latest_ns, record.ts_ns)
        self.last_seq = record.seq
        # A stream that only loses its oldest messages frees chunk after chunk without copying.
        if self.sparse and self.held_bytes > 2 * self.live_bytes + SPARSE_KEPT_BYTES:
            self._evacuate()
        return 0

    cdef int skip(self, uint64_t first, uint64_t count) except -1:
        if first <= self.last_seq:
            raise ValueError(f"sequence {first} is not above {self.last_seq}")
        self.last_seq = first + count - 1
        return 0

    cdef int read(self, uint64_t seq, Record* out) except -1:
        cdef void** place = self.place_of(seq)
        if place == NULL:
            return 0
        show(<Stored*>place[0], out)
        return 1

    cdef int read_next(self, uint64_t seq, Record* out) except -1:
        cdef size_t at = self.page_from(seq // PAGE_SLOTS)
        cdef Page* page
        cdef uint32_t slot
        while at < self.tail:
            page = &self.pages[at]
            slot = <uint32_t>(seq % PAGE_SLOTS) if page.number == seq // PAGE_SLOTS else 0
            while page.live and slot < page.capacity:
                if page.records[slot] != NULL:
                    show(<Stored*>page.records[slot], out)
                    return 1
                slot += 1
            at += 1
        return 0

    cdef int forget(self, uint64_t seq, bint erase) except -1:
        cdef void** place = self.place_of(seq)
        cdef Stored* stored
        cdef size_t at
        if place == NULL:
            return 0
        stored = <Stored*>place[0]
        if erase:
            memset(
                <char*>(stored + 1) + stored.subject_len, 0,
                <size_t>stored.hdr_len + stored.msg_len,
            )
        self._release(stored)
        place[0] = NULL
        at = self.page_from(seq // PAGE_SLOTS)
        self.pages[at].live -= 1
        if self.pages[at].live == 0 and at + 1 < self.tail:
            self._drop_page(at)
        return 1

    cdef int _drop_page(self, size_t at) except -1:
        free(self.pages[at].records)
        if at == self.head:
            self.head += 1
            return 0
        memmove(&self.pages[at], &self.pages[at + 1], (self.tail - at - 1) * sizeof(Page))
        self.tail -= 1
        return 0

    cdef int _forget_in(self, Page* page, uint32_t low, uint32_t high) except -1:
        """Release the records in the slots from `low` to below `high`."""
        cdef uint32_t slot
        for slot in range(low, min(high, page.capacity)):
            if page.records[slot] != NULL:
                self._release(page.records[slot])
                page.records[slot] = NULL
                page.live -= 1
        return 0

    cdef int drop_below(self, uint64_t seq) except -1:
        cdef Page* page
        cdef uint64_t base
        while self.head < self.tail:
            page = &self.pages[self.head]
            base = page.number * PAGE_SLOTS
            if base >= seq:
                break
            if seq - base < PAGE_SLOTS:
                if page.live and self.first_seq < seq:
                    self._forget_in(
                        page,
                        <uint32_t>(self.first_seq - base) if self.first_seq > base else 0,
                        <uint32_t>(seq - base),
                    )
                break
            self._forget_in(page, 0, PAGE_SLOTS)
            self._drop_page(self.head)
        self.first_seq = max(self.first_seq, seq)
        return 0

    cdef int cut_above(self, uint64_t seq) except -1:
        cdef Page* page
        cdef uint64_t base
        while self.head < self.tail:
            page = &self.pages[self.tail - 1]
            base = page.number * PAGE_SLOTS
            if base + PAGE_SLOTS - 1 <= seq:
                break
            if base <= seq:
                self._forget_in(page, <uint32_t>(seq - base) + 1, PAGE_SLOTS)
                break
            self._forget_in(page, 0, PAGE_SLOTS)
            free(page.records)
            self.tail -= 1
        self.last_seq = seq
        self.first_seq = min(self.first_seq, seq + 1)
        return 0

    cdef int visit(self, uint64_t first, RecordVisit step, void* context) except -1:
        """Skips leave no trace in memory, so none are shown."""
        cdef Record record
        while self.read_next(first, &record):
            if step(context, &record):
                break
            first = record.seq + 1
        return 0

    cdef uint64_t seek_time(self, int64_t ts_ns) except? 0:
        cdef size_t at
        cdef Page* page
        cdef uint32_t slot
        for at in range(self.head, self.tail):
            page = &self.pages[at]
            if page.live == 0 or page.latest_ns < ts_ns:
                continue
            for slot in range(page.capacity):
                if page.records[slot] != NULL and (<Stored*>page.records[slot]).ts_ns >= ts_ns:
                    return (<Stored*>page.records[slot]).seq
        return 0

    cdef uint64_t counted_size(self, const Record* record) noexcept nogil:
        return <uint64_t>record.subject_len + record.hdr_len + record.msg_len + COUNTED_OVERHEAD

    cdef uint64_t counted_at(self, uint64_t seq) except? 0:
        """Trimming asks for one after the other: the records a little ahead are fetched."""
        cdef size_t at = self.page_from(seq // PAGE_SLOTS)
        cdef uint32_t slot = <uint32_t>(seq % PAGE_SLOTS)
        cdef Page* page = &self.pages[at]
        cdef Stored* stored
        if at == self.tail or page.number != seq // PAGE_SLOTS or slot >= page.capacity:
            return 0
        if slot + TRIMMED_AHEAD < page.capacity:
            prefetch(page.records[slot + TRIMMED_AHEAD])
        stored = <Stored*>page.records[slot]
        if stored == NULL:
            return 0
        return <uint64_t>stored.subject_len + stored.hdr_len + stored.msg_len + COUNTED_OVERHEAD

    cdef object pin(self, const Record* view):
        cdef const Stored* stored = <const Stored*>view.subject - 1
        return <Chunk>stored.owner

    @property
    def held_memory_bytes(self):
        """What the chunks and the table of sequences take."""
        cdef uint64_t total = self.held_bytes + self.capacity * sizeof(Page)
        cdef size_t at
        for at in range(self.head, self.tail):
            total += self.pages[at].capacity * sizeof(void*)
        return total
