# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Questions about a whole store: its state, its deleted sequences, its subjects.

They look at what the indexes keep; only `deleted_of` and a state of less than all visit messages.
"""
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcmp

from storage._filter cimport MATCH_NONE, MATCH_ONE
from storage._index cimport SUBJECT_ID_MASK, Subject, SubjectIndex
from storage._record cimport Record
from storage._spans cimport SPAN_BITS, Span

from storage._seqset import SequenceSet
from storage.ports import LostData, StreamState, TooManyResultsError


cdef struct Later:
    uint64_t messages               # what a state of less than all leaves out
    uint64_t bytes
    uint64_t subjects


cdef Later later_than(StreamStore store, uint64_t last_seq) except *:
    """What lies above `last_seq`: a turn's messages or a few of them, so they are visited."""
    cdef Later later
    cdef uint64_t seq = store.spans.next_live(last_seq + 1)
    cdef uint32_t number
    later.messages = later.bytes = later.subjects = 0
    while seq:
        number = store.spans.slot(seq) & SUBJECT_ID_MASK
        later.messages += 1
        later.bytes += store.home.counted_at(seq)
        later.subjects += store.spans.first_of(store.subjects, number, 0) == seq
        seq = store.spans.next_live(seq + 1)
    return later


cdef int64_t time_of(StreamStore store, uint64_t seq) except? -1:
    cdef Record record
    return record.ts_ns if store.read(seq, &record) else 0


cdef object next_message(StreamStore store, SubjectFilter wanted, uint64_t seq):
    """A message lost to damage ends nobody's walk: the next one is found behind it."""
    seq = store.next_seq(wanted, seq)
    while seq:
        message = store._message(seq)
        if message is not None:
            return message
        seq = store.next_seq(wanted, seq + 1)
    return None


cdef object state_of(StreamStore store, bint deleted, uint64_t last_seq):
    """As if `last_seq`, which is not below what was ever shown, were the last sequence."""
    cdef Later later
    cdef uint64_t messages = store.messages, first_seq = store.first_seq
    cdef int64_t first_ts_ns = 0, last_ts_ns = store.last_ts_ns
    cdef bint whole = last_seq >= store.last_seq
    later.messages = later.bytes = later.subjects = 0
    if not whole:
        later = later_than(store, last_seq)
        messages -= later.messages
        last_ts_ns = time_of(store, store.spans.last_live(last_seq))
    if messages:
        first_ts_ns = time_of(store, first_seq)
    elif not whole:
        first_seq = last_seq + 1
    last_seq = min(last_seq, store.last_seq)
    return StreamState(
        messages, store.bytes - later.bytes, first_seq, first_ts_ns, last_seq, last_ts_ns,
        store.subjects.subject_count - later.subjects,
        last_seq + 1 - first_seq - messages if messages else 0,
        deleted_of(store, last_seq) if deleted else None,
        lost_of(store),
    )


cdef object lost_of(StreamStore store):
    """What the home found damaged so far and nobody has removed since; None: nothing."""
    cdef object ranges = getattr(store.home, "lost", None)
    if not ranges:
        return None
    found = SequenceSet()
    floor = store.home.floor    # not the first message: that is behind what is lost in front of it
    for first, last in ranges:
        if last >= floor and first <= store.last_seq:
            found.add_range(max(first, floor), min(last, store.last_seq))
    return LostData(found) if found else None


cdef object deleted_of(StreamStore store, uint64_t last_seq):
    """The sequences from the first to `last_seq` at which nothing lives, as ranges."""
    found = SequenceSet()
    cdef uint64_t next_seq = store.first_seq, base, seq
    cdef size_t at
    cdef uint32_t i
    cdef Span* span
    if store.messages == 0 or store.first_seq > last_seq:
        return found
    for at in range(store.spans.head, store.spans.tail):
        span = store.spans.warm(&store.spans.spans[at])
        base = span.number << SPAN_BITS
        for i in range(span.top):
            seq = base + i
            if seq > last_seq:
                break
            if span.subjects[i]:
                if seq > next_seq:
                    found.add_range(next_seq, seq - 1)
                next_seq = seq + 1
    if next_seq <= last_seq:
        found.add_range(next_seq, last_seq)
    return found


cdef uint64_t count_last(StreamStore store, SubjectFilter wanted, uint64_t seq) except? 0:
    """How many matching subjects have their last message at or above `seq`."""
    cdef uint64_t total = 0
    cdef uint32_t number
    cdef Subject* entry
    wanted.sync()
    for number in range(1, store.subjects.subject_top):
        entry = &store.subjects.subjects[number]
        if entry.count and entry.last_seq >= seq and wanted.has(number):
            total += 1
    return total


cdef list matched(StreamStore store, SubjectFilter wanted):
    """Numbers of the matching subjects, in the order in which they were given out."""
    cdef list found = []
    cdef uint32_t number
    wanted.sync()
    if wanted.mode == MATCH_ONE:
        return [wanted.subject]
    if wanted.mode == MATCH_NONE:
        return found
    for number in range(1, store.subjects.subject_top):
        if store.subjects.subjects[number].count and wanted.has(number):
            found.append(number)
    return found


cdef struct Placed:
    uint64_t key                    # eight bytes of the text behind what all begin with
    const char* text
    uint32_t number
    uint16_t text_len


cdef int compare_placed(const void* left, const void* right) noexcept nogil:
    cdef const Placed* one = <const Placed*>left
    cdef const Placed* other = <const Placed*>right
    cdef int found
    if one.key != other.key:
        return -1 if one.key < other.key else 1
    found = memcmp(one.text, other.text, min(one.text_len, other.text_len))
    return found if found else <int>one.text_len - <int>other.text_len


cdef uint64_t key_of(const char* text, uint32_t length, uint32_t shared) noexcept nogil:
    cdef uint64_t key = 0
    cdef uint32_t i
    for i in range(shared, shared + 8):
        key = key << 8 | (<uint8_t>text[i] if i < length else 0)
    return key


cdef void sort_placed(Placed* placed, uint32_t count) noexcept nogil:
    """By their bytes, the shorter one first."""
    cdef uint32_t i, k, shared = placed[0].text_len
    for i in range(1, count):
        k = 0
        shared = min(shared, <uint32_t>placed[i].text_len)
        while k < shared and placed[i].text[k] == placed[0].text[k]:
            k += 1
        shared = k
    for i in range(count):
        placed[i].key = key_of(placed[i].text, placed[i].text_len, shared)
    qsort(placed, count, sizeof(Placed), compare_placed)


cdef int order_subjects(StreamStore store, SubjectFilter wanted) except -1:
    """Put what matches in the order of its text; kept until a subject comes or goes."""
    cdef SubjectIndex index = store.subjects
    cdef uint32_t number, count = 0
    cdef Placed* placed
    wanted.sync()
    if wanted.ordered != NULL and wanted.ordered_changes == index.created_total + index.dropped_total:
        return 0
    free(wanted.ordered)
    wanted.ordered = <uint32_t*>malloc((index.subject_count + 1) * sizeof(uint32_t))
    placed = <Placed*>malloc((index.subject_count + 1) * sizeof(Placed))
    if wanted.ordered == NULL or placed == NULL:
        free(placed)
        raise MemoryError
    for number in range(1, index.subject_top):
        if index.subjects[number].count and wanted.has(number):
            placed[count].text = index.text_of(number)
            placed[count].text_len = index.subjects[number].text_len
            placed[count].number = number
            count += 1
    if count:
        sort_placed(placed, count)
    for number in range(count):
        wanted.ordered[number] = placed[number].number
    free(placed)
    wanted.ordered_count = count
    wanted.ordered_changes = index.created_total + index.dropped_total
    return 0


cdef list ordered(StreamStore store, SubjectFilter wanted, uint64_t offset, uint64_t limit):
    """A page of the matching subjects' numbers in the order of their text; limit 0: all."""
    cdef uint64_t i, end
    order_subjects(store, wanted)
    end = wanted.ordered_count
    if limit and offset + limit < end:
        end = offset + limit
    return [wanted.ordered[i] for i in range(min(offset, end), end)]


cdef list multi_last(
    StreamStore store, SubjectFilter wanted, uint64_t up_to_seq, uint64_t results_max
):
    cdef uint64_t limit = up_to_seq if up_to_seq else store.last_seq, seq
    cdef list found = []
    for number in matched(store, wanted):
        seq = store.spans.last_of(store.subjects, number, limit)
        if seq:
            found.append(seq)
            if results_max and <uint64_t>len(found) > results_max:
                raise TooManyResultsError(f"more than {results_max} subjects match")
    found.sort()
    return found
