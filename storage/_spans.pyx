# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What lives at each sequence of a stream: eight bytes a message, in spans of 65,536 sequences.

A span holds, for each of its sequences, the number of the subject (0: nothing lives there) and the
distance back to the message before of the same subject. Spans without a live message are freed, so
a gap of any size costs nothing. One that nobody changes is kept in few bits (`_cold`): it is read
in place for single places and counts, and warmed for all else. Nothing is ever recomputed over all messages:

- live messages, bytes, the next and the last live sequence: kept per span;
- the next sequence that a filter matches: a walk over subject numbers, about 1 ns each, that skips
  spans known to hold none;
- how many match from a sequence on: whole spans are counted once per filter and version of the
  span, so a second question costs one partial span (at most 65,536 steps) and the changed ones;
- the first or last of one subject: a short walk over the numbers, else along the distances.
"""
from libc.stdint cimport UINT64_MAX
from libc.stdlib cimport abort, free, realloc
from libc.string cimport memmove, memset

from storage._cold cimport cool_span, packed_slot, warm_span
from storage._filter cimport FEW_SUBJECTS, MATCH_ALL, MATCH_NONE, MATCH_ONE, CachedCount
from storage._index cimport FIRST_IS_BOUND, SUBJECT_ID_MASK, Subject
from storage._spanscan cimport count_span, find_down_in_span, find_in_span, next_in_span

cdef enum:
    SLOTS_FIRST = 16
    SCAN_FIRST = 8192               # slots looked at before the chain of distances is tried
    SLOTS_PER_CALL = 1 << 20        # looked at by one search for several: about a millisecond
    CHAIN_STEPS_MAX = 65536
    COOLED_AT_ONCE = 2
    SLOTS_PER_STEP = 64             # what one step along the chain costs, in slots looked at

cdef uint32_t FAR = 0xFFFFFFFFu     # the distance does not fit; look for it


cdef class SpanIndex:
    def __dealloc__(self):
        cdef size_t i
        for i in range(self.head, self.tail):
            self._free(&self.spans[i])
        free(self.spans)

    cdef void _free(self, Span* span) noexcept nogil:
        free(span.subjects)
        free(span.distances)
        free(span.packed)
        free(span.firsts)

    # Cold spans

    cdef void _warm(self, Span* span) noexcept nogil:
        """Somebody reads or changes it. The one that was warmed long before cools again."""
        cdef uint64_t number = self.warmed[self.warmed_at]
        cdef size_t at
        if not warm_span(span):
            abort()                 # no half a megabyte left, and no way on without
        self.warmed[self.warmed_at] = span.number + 1
        self.warmed_at = (self.warmed_at + 1) % WARMED_MAX
        at = self.tail if number == 0 or number - 1 == span.number else self.span_from(number - 1)
        if at + 1 < self.tail and self.spans[at].number == number - 1 and not self.spans[at].cold:
            with gil:
                cool_span(&self.spans[at])

    cdef int _cool_idle(self) except -1:
        """A new span begins: cool a few that nobody has changed since the one before began."""
        cdef size_t at
        cdef Span* span
        cdef int cooled = 0
        for at in range(self.head, self.tail - min(self.tail - self.head, <size_t>2)):
            span = &self.spans[at]
            if span.cold or span.uncoolable == span.version + 1:
                continue
            if span.idle_version != span.version:
                span.idle_version = span.version
            elif cooled < COOLED_AT_ONCE:
                cooled += 1
                span.uncoolable = 0 if cool_span(span) else span.version + 1
        return 0

    cdef size_t span_from(self, uint64_t number) noexcept nogil:
        """The place of the first span numbered `number` or higher; `tail` when there is none."""
        cdef size_t low = self.head, high = self.tail, middle
        cdef uint64_t guess
        if low == high or self.spans[low].number >= number:
            return low
        guess = low + (number - self.spans[low].number)
        if guess < high and self.spans[guess].number == number:
            return guess
        while low < high:
            middle = (low + high) >> 1
            if self.spans[middle].number < number:
                low = middle + 1
            else:
                high = middle
        return low

    cdef Span* _add(self, uint64_t number) except NULL:
        """A new span behind all others."""
        cdef size_t count = self.tail - self.head, capacity
        cdef Span* spans
        cdef Span* span
        if self.head > count and self.tail == self.capacity:
            memmove(self.spans, self.spans + self.head, count * sizeof(Span))
            self.head = 0
            self.tail = count
        if self.tail == self.capacity:
            capacity = 1 if self.capacity == 0 else self.capacity * 2
            spans = <Span*>realloc(self.spans, capacity * sizeof(Span))
            if spans == NULL:
                raise MemoryError
            self.spans = spans
            self.capacity = capacity
        span = &self.spans[self.tail]
        memset(span, 0, sizeof(Span))
        span.number = number
        self.tail += 1
        return span

    cdef int _grow(self, Span* span, uint32_t slots) except -1:
        cdef uint32_t capacity = max(span.capacity, <uint32_t>SLOTS_FIRST)
        cdef uint32_t* subjects
        cdef uint32_t* distances
        while capacity < slots:
            capacity *= 2
        subjects = <uint32_t*>realloc(span.subjects, capacity * sizeof(uint32_t))
        if subjects == NULL:
            raise MemoryError
        span.subjects = subjects
        distances = <uint32_t*>realloc(span.distances, capacity * sizeof(uint32_t))
        if distances == NULL:
            raise MemoryError
        span.distances = distances
        memset(subjects + span.capacity, 0, (capacity - span.capacity) * sizeof(uint32_t))
        memset(distances + span.capacity, 0, (capacity - span.capacity) * sizeof(uint32_t))
        span.capacity = capacity
        return 0

    cdef int append(self, uint64_t seq, uint32_t slot, uint64_t before, uint64_t size) except -1:
        """`seq` is above all others; `before` is the last sequence of the same subject, or 0."""
        cdef Span* span
        cdef uint32_t at = <uint32_t>(seq & (SPAN_SLOTS - 1))
        if self.tail > self.head and self.spans[self.tail - 1].number == seq >> SPAN_BITS:
            span = &self.spans[self.tail - 1]
        else:
            if self.tail > self.head and self.spans[self.tail - 1].live == 0:
                self._drop(self.tail - 1)
            self._cool_idle()
            span = self._add(seq >> SPAN_BITS)
        if at >= span.capacity:
            self._grow(span, at + 1)
        span.subjects[at] = slot
        span.distances[at] = 0
        if before:
            span.distances[at] = <uint32_t>min(seq - before, <uint64_t>FAR)
        span.top = at + 1
        span.live += 1
        span.size += size
        self.clock += 1
        span.version = self.clock
        self.live += 1
        return 0

    cdef uint32_t slot(self, uint64_t seq) noexcept nogil:
        """The subject's number, perhaps with HAS_TTL; 0: nothing lives there."""
        cdef size_t at = self.span_from(seq >> SPAN_BITS)
        cdef uint32_t offset = <uint32_t>(seq & (SPAN_SLOTS - 1))
        if at == self.tail or self.spans[at].number != seq >> SPAN_BITS:
            return 0
        if offset >= self.spans[at].top:
            return 0
        if self.spans[at].cold:
            return packed_slot(&self.spans[at], offset)
        return self.spans[at].subjects[offset]

    cdef int remove(self, uint64_t seq, uint64_t size) except -1:
        """Something lives at `seq`."""
        cdef size_t at = self.span_from(seq >> SPAN_BITS)
        cdef Span* span = self.warm(&self.spans[at])
        span.subjects[seq & (SPAN_SLOTS - 1)] = 0
        span.live -= 1
        span.size -= size
        self.clock += 1
        span.version = self.clock
        self.live -= 1
        # The last span stays for the messages to come.
        if span.live == 0 and at + 1 < self.tail:
            self._drop(at)
        return 0

    cdef int _drop(self, size_t at) except -1:
        self._free(&self.spans[at])
        if at == self.head:
            self.head += 1
            return 0
        memmove(&self.spans[at], &self.spans[at + 1], (self.tail - at - 1) * sizeof(Span))
        self.tail -= 1
        return 0

    cdef int remove_all(self) except -1:
        while self.head < self.tail:
            self.tail -= 1
            self._free(&self.spans[self.tail])
        self.head = self.tail = 0
        self.live = 0
        return 0

    cdef void cut_above(self, uint64_t seq) noexcept nogil:
        """Nothing lives above `seq` any more, and what is stored next comes behind it."""
        cdef Span* span
        while self.tail > self.head and self.spans[self.tail - 1].number > seq >> SPAN_BITS:
            self.tail -= 1
            self._free(&self.spans[self.tail])
        if self.tail > self.head:
            span = self.warm(&self.spans[self.tail - 1])
            if span.number == seq >> SPAN_BITS:
                span.top = min(span.top, <uint32_t>(seq & (SPAN_SLOTS - 1)) + 1)
                self.clock += 1
                span.version = self.clock

    cdef uint64_t next_live(self, uint64_t seq) noexcept nogil:
        """The lowest live sequence at or above `seq`, or 0."""
        cdef size_t at = self.span_from(seq >> SPAN_BITS)
        cdef Span* span
        cdef uint32_t i
        while at < self.tail:
            span = &self.spans[at]
            i = <uint32_t>(seq & (SPAN_SLOTS - 1)) if span.number == seq >> SPAN_BITS else 0
            if span.live:
                self.warm(span)
                while i < span.top:
                    if span.subjects[i]:
                        return (span.number << SPAN_BITS) + i
                    i += 1
            at += 1
        return 0

    cdef uint64_t last_live(self, uint64_t seq) noexcept nogil:
        """The highest live sequence at or below `seq`, or 0."""
        cdef size_t at = self.span_from(seq >> SPAN_BITS)
        cdef Span* span
        cdef uint32_t i
        if at < self.tail and self.spans[at].number == seq >> SPAN_BITS:
            at += 1
        while at > self.head:
            at -= 1
            span = &self.spans[at]
            i = span.top
            if span.number == seq >> SPAN_BITS:
                i = min(i, <uint32_t>(seq & (SPAN_SLOTS - 1)) + 1)
            if span.live:
                self.warm(span)
            while i > 0 and span.live:
                i -= 1
                if span.subjects[i]:
                    return (span.number << SPAN_BITS) + i
        return 0

    cdef uint64_t next_match(self, SubjectFilter wanted, uint64_t seq) noexcept nogil:
        """The lowest live sequence at or above `seq` that the filter (after `sync`) matches, or 0."""
        cdef size_t at
        cdef Span* span
        cdef uint32_t i, number
        cdef CachedCount* known
        if wanted.mode == MATCH_ALL:
            return self.next_live(seq)
        if wanted.mode == MATCH_NONE:
            return 0
        if wanted.mode == MATCH_ONE:
            return self.first_of(wanted.index, wanted.subject, seq)
        if wanted.matched_count <= FEW_SUBJECTS:
            return self._next_of_few(wanted, seq)
        at = self.span_from(seq >> SPAN_BITS)
        while at < self.tail:
            span = &self.spans[at]
            at += 1
            i = <uint32_t>(seq & (SPAN_SLOTS - 1)) if span.number == seq >> SPAN_BITS else 0
            if i == 0:
                known = wanted.cached(span.number, self.tail - self.head)
                if known != NULL and known.span == span.number and known.version == span.version:
                    if known.count == 0:
                        continue
            else:
                known = NULL
            self.warm(span)
            while i < span.top:
                number = span.subjects[i] & SUBJECT_ID_MASK
                if (wanted.bits[number >> 5] >> (number & 31)) & 1:
                    return (span.number << SPAN_BITS) + i
                i += 1
            if known != NULL:
                known.span = span.number
                known.version = span.version
                known.count = 0
        return 0

    cdef uint64_t _next_of_few(self, SubjectFilter wanted, uint64_t seq) noexcept nogil:
        """The lowest of what each of a few subjects has at or above `seq`."""
        cdef uint64_t lowest = 0, found
        cdef uint32_t i, number
        for i in range(wanted.few_count):
            number = wanted.few[i]
            if not wanted.index.subjects[number].count or not wanted.has(number):
                continue
            if lowest and wanted.index.subjects[number].first_seq >= lowest:
                continue
            found = self.first_of(wanted.index, number, seq)
            if found and (lowest == 0 or found < lowest):
                lowest = found
        return lowest

    cdef uint32_t next_matches(
        self, SubjectFilter wanted, uint64_t seq, uint64_t last, uint64_t* found, uint32_t limit,
        uint64_t* resume,
    ) noexcept nogil:
        """Up to `limit` matching live sequences from `seq` to `last`, in order; how many.

        All below `resume` was looked at. It is `last` + 1 when there is no more; a search that
        would take long ends before, perhaps with nothing found.
        """
        cdef uint32_t count = 0, i, end
        cdef uint64_t base, looked = 0, first = seq
        cdef size_t at
        cdef Span* span
        cdef bint scans = wanted.mode == MATCH_ALL or (
            wanted.mode != MATCH_NONE and wanted.mode != MATCH_ONE
            and wanted.matched_count > FEW_SUBJECTS
        )
        resume[0] = seq
        while count < limit and resume[0] <= last:
            if looked >= SLOTS_PER_CALL:
                return count
            seq = self.next_match(wanted, resume[0]) if not scans else resume[0]
            at = self.span_from(seq >> SPAN_BITS)
            if (seq == 0 and not scans) or seq > last or at == self.tail:
                resume[0] = last + 1
                break
            if not scans:
                found[count] = seq
                count += 1
                resume[0] = seq + 1
                continue
            span = &self.spans[at]
            base = span.number << SPAN_BITS
            i = <uint32_t>(seq - base) if seq > base else 0
            end = <uint32_t>min(<uint64_t>span.top, last + 1 - base) if last >= base else 0
            if i < end and not (i == 0 and self._known_empty(wanted, span)):
                looked += end - i
                count += next_in_span(
                    wanted, self.warm(span), &i, end, found + count, limit - count
                )
            resume[0] = base + i if count == limit else base + SPAN_SLOTS
        if resume[0] > last + 1 and first <= last:
            resume[0] = last + 1
        return count

    cdef bint _known_empty(self, SubjectFilter wanted, const Span* span) noexcept nogil:
        """Whether a count has shown that nothing in the span matches."""
        cdef CachedCount* known
        if wanted.mode == MATCH_ALL:
            return span.live == 0
        known = wanted.cached(span.number, self.tail - self.head)
        return known != NULL and (
            known.span == span.number and known.version == span.version and known.count == 0
        )

    cdef uint64_t last_match(self, SubjectFilter wanted, uint64_t seq) noexcept nogil:
        """The highest live sequence at or below `seq` that the filter (after `sync`) matches, or 0."""
        cdef size_t at
        cdef Span* span
        cdef uint32_t i, number
        if wanted.mode == MATCH_ALL:
            return self.last_live(seq)
        if wanted.mode == MATCH_NONE:
            return 0
        if wanted.mode == MATCH_ONE:
            return self.last_of(wanted.index, wanted.subject, seq)
        at = self.span_from(seq >> SPAN_BITS)
        if at < self.tail and self.spans[at].number == seq >> SPAN_BITS:
            at += 1
        while at > self.head:
            at -= 1
            span = &self.spans[at]
            i = span.top
            if span.number == seq >> SPAN_BITS:
                i = min(i, <uint32_t>(seq & (SPAN_SLOTS - 1)) + 1)
            self.warm(span)
            while i > 0:
                i -= 1
                number = span.subjects[i] & SUBJECT_ID_MASK
                if (wanted.bits[number >> 5] >> (number & 31)) & 1:
                    return (span.number << SPAN_BITS) + i
        return 0

    cdef uint64_t end(self) noexcept nogil:
        """No sequence above this one is known."""
        if self.head == self.tail or self.spans[self.tail - 1].top == 0:
            return 0
        return (self.spans[self.tail - 1].number << SPAN_BITS) + self.spans[self.tail - 1].top - 1

    cdef uint64_t count_from(self, SubjectFilter wanted, uint64_t seq) noexcept nogil:
        """How many live messages at or above `seq` the filter (after `sync`) matches.

        The last answer is brought up to date where it still holds: what lies between the two
        places is counted, and what came since.
        """
        cdef uint64_t last = self.end(), total
        if wanted.mode == MATCH_NONE:
            return 0
        if wanted.counted_holds:
            total = wanted.counted
            if last > wanted.counted_to:
                total += self.count_between(
                    wanted, max(wanted.counted_to + 1, wanted.counted_from), last
                )
            if seq > wanted.counted_from:
                total -= self.count_between(wanted, wanted.counted_from, seq - 1)
            elif seq < wanted.counted_from:
                total += self.count_between(wanted, seq, wanted.counted_from - 1)
        else:
            total = self.count_between(wanted, seq, last)
        wanted.note_count(total, seq, last)
        return total

    cdef uint64_t count_between(
        self, SubjectFilter wanted, uint64_t seq, uint64_t last
    ) noexcept nogil:
        """How many live messages from `seq` to `last` match; whole spans are counted once."""
        cdef size_t at = self.span_from(seq >> SPAN_BITS)
        cdef Span* span
        cdef uint32_t low, high
        cdef uint64_t total = 0, base
        cdef CachedCount* known
        while at < self.tail:
            span = &self.spans[at]
            at += 1
            base = span.number << SPAN_BITS
            if base > last:
                break
            low = <uint32_t>(seq - base) if seq > base else 0
            high = <uint32_t>min(<uint64_t>span.top, last - base + 1)
            if low > 0 or high < span.top:
                if low < high:
                    total += count_span(wanted, span, low, high)
            elif wanted.mode == MATCH_ALL:
                total += span.live
            else:
                known = wanted.cached(span.number, self.tail - self.head)
                if known == NULL:
                    total += count_span(wanted, span, 0, span.top)
                    continue
                if known.span != span.number or known.version != span.version:
                    known.count = count_span(wanted, span, 0, span.top)
                    known.span = span.number
                    known.version = span.version
                total += known.count
        return total

    # One subject

    cdef uint64_t first_of(self, SubjectIndex index, uint32_t subject, uint64_t seq) noexcept nogil:
        """The lowest live sequence of `subject` at or above `seq`, or 0."""
        cdef Subject* entry = &index.subjects[subject]
        cdef uint64_t found, end
        cdef bint whole = False, from_first = seq <= entry.first_seq
        if seq > entry.last_seq:
            return 0
        if entry.count == 1 or seq == entry.last_seq:
            return entry.last_seq
        if from_first:
            if not entry.flags & FIRST_IS_BOUND:
                return entry.first_seq
            seq = entry.first_seq
        # The next one is expected (last - seq) / count slots away, or `count` steps down the chain.
        end = seq
        found = 0
        if entry.count * entry.count * SLOTS_PER_STEP > entry.last_seq - seq:
            end = min(seq + SCAN_FIRST, entry.last_seq + 1)
            found = self._scan_up(subject, seq, end)
        if found == 0:
            found = self._chain_down_to(index, subject, seq, &whole)
            if not whole:
                found = self._scan_up(subject, end, entry.last_seq + 1)
        if from_first and found:
            entry.first_seq = found
            entry.flags &= ~FIRST_IS_BOUND
        return found

    cdef uint64_t last_of(self, SubjectIndex index, uint32_t subject, uint64_t seq) noexcept nogil:
        """The highest live sequence of `subject` at or below `seq`, or 0."""
        cdef Subject* entry = &index.subjects[subject]
        cdef uint64_t at, found
        cdef uint32_t steps = 0, slot, distance
        cdef size_t span
        if seq >= entry.last_seq and self.slot(entry.last_seq) & SUBJECT_ID_MASK == subject:
            return entry.last_seq
        if seq < entry.first_seq:
            return 0
        if seq < entry.last_seq:
            found = self._scan_down(subject, seq, seq - min(seq, <uint64_t>SCAN_FIRST))
            if found:
                return found
        # Along the distances from the last one; a dead place keeps its distance.
        at = entry.last_seq
        while steps < CHAIN_STEPS_MAX:
            span = self.span_from(at >> SPAN_BITS)
            if span == self.tail or self.spans[span].number != at >> SPAN_BITS:
                break
            self.warm(&self.spans[span])
            slot = self.spans[span].subjects[at & (SPAN_SLOTS - 1)]
            if at <= seq and slot & SUBJECT_ID_MASK == subject:
                return at
            distance = self.spans[span].distances[at & (SPAN_SLOTS - 1)]
            if distance == 0:
                return 0
            if distance == FAR:
                break
            at -= distance
            steps += 1
        return self._scan_down(subject, min(seq, at), entry.first_seq)

    cdef uint64_t _chain_down_to(
        self, SubjectIndex index, uint32_t subject, uint64_t seq, bint* whole
    ) noexcept nogil:
        """The lowest live one at or above `seq` along the distances; `whole`: the chain held."""
        cdef Subject* entry = &index.subjects[subject]
        cdef uint64_t at = entry.last_seq, found = 0, spread
        cdef uint32_t steps = 0, distance
        cdef size_t span
        # Dead places stay in the chain: beyond this it is better to look at all slots.
        spread = (entry.last_seq - seq) // SLOTS_PER_STEP + 8
        whole[0] = False
        while steps < CHAIN_STEPS_MAX and steps <= spread:
            if at < seq:
                whole[0] = True
                return found
            span = self.span_from(at >> SPAN_BITS)
            if span == self.tail or self.spans[span].number != at >> SPAN_BITS:
                return 0
            self.warm(&self.spans[span])
            if self.spans[span].subjects[at & (SPAN_SLOTS - 1)] & SUBJECT_ID_MASK == subject:
                found = at
            distance = self.spans[span].distances[at & (SPAN_SLOTS - 1)]
            if distance == FAR:
                return 0
            if distance == 0:
                whole[0] = True
                return found
            at -= distance
            steps += 1
        return 0

    cdef uint64_t _scan_up(self, uint32_t subject, uint64_t seq, uint64_t end) noexcept nogil:
        """The lowest live one from `seq` to below `end`, or 0."""
        cdef size_t at = self.span_from(seq >> SPAN_BITS)
        cdef Span* span
        cdef uint32_t low, high, found
        cdef uint64_t base
        while at < self.tail:
            span = &self.spans[at]
            base = span.number << SPAN_BITS
            if base >= end:
                return 0
            low = <uint32_t>(seq - base) if seq > base else 0
            high = <uint32_t>min(<uint64_t>span.top, end - base)
            if low < high:
                found = find_in_span(span, low, high, subject)
                if found < high:
                    return base + found
            at += 1
        return 0

    cdef uint64_t _scan_down(self, uint32_t subject, uint64_t seq, uint64_t end) noexcept nogil:
        """The highest live one from `seq` down to `end`, or 0."""
        cdef size_t at = self.span_from(seq >> SPAN_BITS)
        cdef Span* span
        cdef uint32_t high, found
        cdef uint64_t base
        if at < self.tail and self.spans[at].number == seq >> SPAN_BITS:
            at += 1
        while at > self.head:
            at -= 1
            span = &self.spans[at]
            base = span.number << SPAN_BITS
            if base + SPAN_SLOTS <= end:
                return 0
            high = span.top
            if span.number == seq >> SPAN_BITS:
                high = min(high, <uint32_t>(seq & (SPAN_SLOTS - 1)) + 1)
            found = find_down_in_span(span, high, subject)
            if found:
                return base + found - 1 if base + found - 1 >= end else 0
        return 0

    cdef uint64_t memory_bytes(self) noexcept:
        cdef uint64_t total = self.capacity * sizeof(Span)
        cdef size_t i
        for i in range(self.head, self.tail):
            total += <uint64_t>self.spans[i].capacity * 8 + self.spans[i].packed_len
            total += <uint64_t>self.spans[i].first_count * 4
        return total
