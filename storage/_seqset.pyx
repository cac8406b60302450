# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A set of sequences kept as ranges: what is deleted or skipped in a stream or block.

Ranges stand in sorted leaves of up to 128, the leaves in one sorted array. Finding is two binary
searches; a change moves at most one leaf and, once per some hundred changes, a piece of the array.
Ranges never overlap nor adjoin, so equal sets have equal ranges and equal encodings.
Sequences run from 0 to 2**64 - 2.

Encoding: the byte 1, the number of ranges, then for each range its distance from the end of the
one before and its length less one; all numbers are LEB128. Whoever stores it adds a checksum.
"""
from libc.stdint cimport UINT64_MAX
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

cdef enum:
    ENCODING_VERSION = 1
    LEAF_MERGE_MAX = 96
    LEAF_SMALL = 32


cdef class SequenceSet:
    def __cinit__(self):
        self.leaves = NULL
        self.leaf_count = 0
        self.leaf_capacity = 0

    def __init__(self, ranges=()):
        for first, last in ranges:
            self.add_range(first, last)

    def __dealloc__(self):
        cdef size_t i
        for i in range(self.leaf_count):
            free(self.leaves[i])
        free(self.leaves)

    cdef bint _seek(self, uint64_t seq, size_t* leaf, uint32_t* at) noexcept nogil:
        """Where the first range stands that ends at or above `seq`; False: there is none."""
        cdef size_t low = 0, high = self.leaf_count, middle
        cdef uint32_t low_at = 0, high_at, middle_at
        cdef Leaf* found
        while low < high:
            middle = (low + high) >> 1
            found = self.leaves[middle]
            if found.last[found.count - 1] < seq:
                low = middle + 1
            else:
                high = middle
        leaf[0] = low
        at[0] = 0
        if low == self.leaf_count:
            return False
        found = self.leaves[low]
        high_at = found.count
        while low_at < high_at:
            middle_at = (low_at + high_at) >> 1
            if found.last[middle_at] < seq:
                low_at = middle_at + 1
            else:
                high_at = middle_at
        at[0] = low_at
        return True

    cdef int _new_leaf(self, size_t at) except -1:
        cdef size_t capacity
        cdef Leaf** leaves
        cdef Leaf* leaf
        if self.leaf_count == self.leaf_capacity:
            capacity = 4 if self.leaf_capacity == 0 else self.leaf_capacity * 2
            leaves = <Leaf**>realloc(self.leaves, capacity * sizeof(Leaf*))
            if leaves == NULL:
                raise MemoryError
            self.leaves = leaves
            self.leaf_capacity = capacity
        leaf = <Leaf*>malloc(sizeof(Leaf))
        if leaf == NULL:
            raise MemoryError
        leaf.count = 0
        memmove(&self.leaves[at + 1], &self.leaves[at], (self.leaf_count - at) * sizeof(Leaf*))
        self.leaves[at] = leaf
        self.leaf_count += 1
        return 0

    cdef void _drop_leaf(self, size_t at) noexcept nogil:
        free(self.leaves[at])
        self.leaf_count -= 1
        memmove(&self.leaves[at], &self.leaves[at + 1], (self.leaf_count - at) * sizeof(Leaf*))

    cdef int _insert(self, size_t leaf, uint32_t at, uint64_t first, uint64_t last) except -1:
        """Put a range at a place that `_seek` gave; it may be the one behind the last leaf."""
        cdef Leaf* target
        cdef Leaf* upper
        cdef uint32_t half
        if leaf == self.leaf_count:
            if leaf > 0 and self.leaves[leaf - 1].count < LEAF_RANGES:
                leaf -= 1
                at = self.leaves[leaf].count
            else:
                self._new_leaf(leaf)
                at = 0
        target = self.leaves[leaf]
        if target.count == LEAF_RANGES:
            self._new_leaf(leaf + 1)
            upper = self.leaves[leaf + 1]
            half = LEAF_RANGES // 2
            upper.count = LEAF_RANGES - half
            memcpy(upper.first, &target.first[half], upper.count * sizeof(uint64_t))
            memcpy(upper.last, &target.last[half], upper.count * sizeof(uint64_t))
            target.count = half
            if at > half:
                target = upper
                at -= half
        memmove(&target.first[at + 1], &target.first[at], (target.count - at) * sizeof(uint64_t))
        memmove(&target.last[at + 1], &target.last[at], (target.count - at) * sizeof(uint64_t))
        target.first[at] = first
        target.last[at] = last
        target.count += 1
        self.range_count += 1
        return 0

    cdef void _delete(self, size_t leaf, uint32_t at) noexcept nogil:
        cdef Leaf* target = self.leaves[leaf]
        cdef Leaf* after
        target.count -= 1
        self.range_count -= 1
        memmove(&target.first[at], &target.first[at + 1], (target.count - at) * sizeof(uint64_t))
        memmove(&target.last[at], &target.last[at + 1], (target.count - at) * sizeof(uint64_t))
        if target.count == 0:
            self._drop_leaf(leaf)
        elif target.count < LEAF_SMALL and leaf + 1 < self.leaf_count:
            after = self.leaves[leaf + 1]
            if target.count + after.count <= LEAF_MERGE_MAX:
                memcpy(&target.first[target.count], after.first, after.count * sizeof(uint64_t))
                memcpy(&target.last[target.count], after.last, after.count * sizeof(uint64_t))
                target.count += after.count
                self._drop_leaf(leaf + 1)

    cdef uint64_t _first_after(self, size_t leaf, uint32_t at) noexcept nogil:
        """Where the range after this one begins."""
        if at + 1 < self.leaves[leaf].count:
            return self.leaves[leaf].first[at + 1]
        return self.leaves[leaf + 1].first[0] if leaf + 1 < self.leaf_count else UINT64_MAX

    cpdef bint add(self, uint64_t seq) except -1:
        """Whether `seq` was not in the set before."""
        return self.add_range(seq, seq) == 1

    cpdef uint64_t add_range(self, uint64_t first, uint64_t last) except? 0:
        """How many sequences of `first` to `last` are new."""
        cdef size_t leaf
        cdef uint32_t at
        cdef uint64_t low = first, high = last, known = 0
        cdef Leaf* found
        if first > last or last == UINT64_MAX:
            raise ValueError(f"no range of sequences: {first} to {last}")
        # Ranges that overlap or adjoin are taken out and go into the one that is put in.
        while self._seek(low - 1 if low else 0, &leaf, &at):
            found = self.leaves[leaf]
            if found.first[at] > high + 1:
                break
            if found.first[at] <= first and found.last[at] >= last:
                return 0
            if found.first[at] < first and self._first_after(leaf, at) > last + 1:
                # The common case: the range before grows and meets no other.
                known = last - found.last[at]
                found.last[at] = last
                self.size += known
                return known
            known += found.last[at] - found.first[at] + 1
            low = min(low, found.first[at])
            high = max(high, found.last[at])
            self._delete(leaf, at)
        self._insert(leaf, at, low, high)
        self.size += high - low + 1 - known
        return high - low + 1 - known

    cpdef bint remove(self, uint64_t seq) except -1:
        """Whether `seq` was in the set."""
        return self.remove_range(seq, seq) == 1

    cpdef uint64_t remove_range(self, uint64_t first, uint64_t last) except? 0:
        """How many sequences of `first` to `last` were in the set."""
        cdef size_t leaf
        cdef uint32_t at
        cdef uint64_t low, high, removed = 0
        cdef Leaf* found
        if first > last or last == UINT64_MAX:
            raise ValueError(f"no range of sequences: {first} to {last}")
        while self._seek(first, &leaf, &at):
            found = self.leaves[leaf]
            low = found.first[at]
            high = found.last[at]
            if low > last:
                break
            removed += min(high, last) - max(low, first) + 1
            if low < first:
                found.last[at] = first - 1
                if high > last:
                    self._insert(leaf, at + 1, last + 1, high)
                    break
            elif high > last:
                found.first[at] = last + 1
                break
            else:
                self._delete(leaf, at)
        self.size -= removed
        return removed

    cdef bint has(self, uint64_t seq) noexcept nogil:
        cdef size_t leaf
        cdef uint32_t at
        return self._seek(seq, &leaf, &at) and self.leaves[leaf].first[at] <= seq

    cdef bint range_from(self, uint64_t seq, uint64_t* first, uint64_t* last) noexcept nogil:
        cdef size_t leaf
        cdef uint32_t at
        if not self._seek(seq, &leaf, &at):
            return False
        first[0] = self.leaves[leaf].first[at]
        last[0] = self.leaves[leaf].last[at]
        return True

    cpdef uint64_t count_between(self, uint64_t first, uint64_t last) noexcept:
        """How many members stand from `first` to `last`; visits the ranges between them."""
        cdef size_t leaf
        cdef uint32_t at
        cdef uint64_t total = 0
        cdef Leaf* found
        if not self._seek(first, &leaf, &at):
            return 0
        while leaf < self.leaf_count:
            found = self.leaves[leaf]
            while at < found.count:
                if found.first[at] > last:
                    return total
                total += min(found.last[at], last) - max(found.first[at], first) + 1
                at += 1
            leaf += 1
            at = 0
        return total

    def __contains__(self, seq):
        return 0 <= seq < UINT64_MAX and self.has(seq)

    def __len__(self):
        return self.size

    def __bool__(self):
        return self.size != 0

    def __iter__(self):
        for first, last in self.ranges():
            yield from range(first, last + 1)

    def ranges(self, uint64_t start=0):
        """(first, last) of each range that ends at or above `start`. Do not change the set meanwhile."""
        cdef uint64_t first = 0, last = 0
        while self.range_from(start, &first, &last):
            yield first, last
            start = last + 1

    def update(self, SequenceSet other not None):
        """Add all members of `other`."""
        cdef size_t i
        cdef uint32_t at
        if other is self:
            return
        for i in range(other.leaf_count):
            for at in range(other.leaves[i].count):
                self.add_range(other.leaves[i].first[at], other.leaves[i].last[at])

    def __or__(self, other):
        if not isinstance(other, SequenceSet):
            return NotImplemented
        union = SequenceSet()
        union.update(self)
        union.update(other)
        return union

    def __eq__(self, other):
        if not isinstance(other, SequenceSet):
            return NotImplemented
        return list(self.ranges()) == list(other.ranges())

    __hash__ = None

    def __repr__(self):
        shown = [f"{first}-{last}" if first != last else f"{first}" for first, last in self.ranges()]
        return f"SequenceSet({', '.join(shown)})"

    def encode(self):
        """The bytes described above, at most 20 for each range."""
        cdef bytearray out = bytearray(1 + 10 + 20 * self.range_count)
        cdef uint8_t* start = out
        cdef uint8_t* at = start
        cdef uint64_t end = 0
        cdef size_t i
        cdef uint32_t k
        cdef Leaf* leaf
        at[0] = ENCODING_VERSION
        at = put_number(at + 1, self.range_count)
        for i in range(self.leaf_count):
            leaf = self.leaves[i]
            for k in range(leaf.count):
                at = put_number(at, leaf.first[k] - end)
                at = put_number(at, leaf.last[k] - leaf.first[k])
                end = leaf.last[k]
        return bytes(out[: at - start])

    @staticmethod
    def decode(const uint8_t[::1] data not None):
        """The set that `encode` wrote; ValueError for anything else."""
        cdef SequenceSet out = SequenceSet()
        cdef const uint8_t* at
        cdef const uint8_t* end
        cdef uint64_t count = 0, gap = 0, length = 0, last = 0, i
        if data.shape[0] < 2 or data[0] != ENCODING_VERSION:
            raise ValueError("not an encoded sequence set of version 1")
        at = &data[1]
        end = &data[0] + data.shape[0]
        at = get_number(at, end, &count)
        for i in range(count):
            if at != NULL:
                at = get_number(at, end, &gap)
            if at != NULL:
                at = get_number(at, end, &length)
            if at == NULL:
                break
            if (i > 0 and gap < 2) or gap > UINT64_MAX - 1 - last:
                raise ValueError("ranges of an encoded sequence set overlap")
            if length > UINT64_MAX - 1 - last - gap:
                raise ValueError("a range of an encoded sequence set ends too high")
            out._insert(out.leaf_count, 0, last + gap, last + gap + length)
            out.size += length + 1
            last += gap + length
        if at != end:
            raise ValueError("an encoded sequence set has the wrong length")
        return out


cdef uint8_t* put_number(uint8_t* at, uint64_t number) noexcept nogil:
    while number >= 0x80:
        at[0] = <uint8_t>(number & 0x7F) | 0x80
        number >>= 7
        at += 1
    at[0] = <uint8_t>number
    return at + 1


cdef const uint8_t* get_number(
    const uint8_t* at, const uint8_t* end, uint64_t* number
) noexcept nogil:
    """The byte behind the number, or NULL when it does not end in time or is too long."""
    cdef uint64_t value = 0
    cdef int shift = 0
    while at < end and shift < 64:
        if shift == 63 and at[0] > 1:
            return NULL
        value |= <uint64_t>(at[0] & 0x7F) << shift
        if at[0] < 0x80:
            number[0] = value
            return at + 1
        shift += 7
        at += 1
    return NULL
