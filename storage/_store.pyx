# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The logic of a stream's store over a RecordHome: what is there, what a limit takes away, who matches.

The home keeps the bytes; this keeps, per stream, which sequences live (`SpanIndex`), the subjects
(`SubjectIndex`), counts, bytes and the times at which messages end. Both are kept level record by
record (`_ledger`); nothing is recomputed over all messages. Times come in as arguments. Work that may be long
(purge, expiry, lowered limits) is done in slices that the caller asks for.
"""
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from storage._age cimport expire, next_expiry
from storage._index cimport SUBJECT_ID_MASK, SUBJECT_LEN_MAX
from storage._purge cimport enforce_limits, forget_all, purge_job
from storage._questions cimport count_last, deleted_of, multi_last, next_message, order_subjects, ordered, state_of
from storage._snapshot cimport decode_store, encode_store

from storage.ports import (
    BytesLimitError,
    MessagesLimitError,
    SequenceMismatchError,
    StoredMessage,
    StoreError,
    SubjectMessagesLimitError,
    SubjectState,
)

cdef enum:
    FILTERS_KEPT = 64

cdef dict REFUSALS = {
    MESSAGES_LIMIT: MessagesLimitError("maximum messages exceeded"),
    BYTES_LIMIT: BytesLimitError("maximum bytes exceeded"),
    SUBJECT_MESSAGES_LIMIT: SubjectMessagesLimitError("maximum messages per subject exceeded"),
    SUBJECT_TOO_LONG: StoreError(f"a subject has 1 to {SUBJECT_LEN_MAX} bytes"),
}


cdef int index_visited(void* store, const Record* record) except -1:
    (<StreamStore>store).index(record)
    return 0


cdef class StreamStore(StoreLedger):
    def __cinit__(self, *args, **named):
        self.filters = {}

    # Storing

    def rebuild(self):
        """Index anew from the home alone; limits are carried out by `enforce` afterwards."""
        self._reset(0)
        self.home.visit(0, index_visited, <void*>self)
        self.adopt_last_seq()

    def adopt_last_seq(self):
        """After indexing: sequences that the home gave out and that left no record count too."""
        if self.home.last_seq > self.last_seq:
            self.last_seq = self.home.last_seq
        if self.messages == 0 and self.last_seq:
            self.first_seq = self.last_seq + 1

    def store(self, str subject, bytes headers, bytes payload, int64_t ts_ns, int64_t ttl_ns=0):
        """Store under the next sequence, which is returned; StoreError says why not."""
        cdef Record record
        cdef Refusal refusal
        cdef bytes text = encoded(subject)
        fill(&record, text, headers, payload, ts_ns)
        refusal = self.store_record(&record, ttl_ns)
        if refusal != ACCEPTED:
            raise REFUSALS[refusal]
        return record.seq

    def store_at(
        self, uint64_t seq, str subject, bytes headers, bytes payload, int64_t ts_ns,
        int64_t ttl_ns=0,
    ):
        """A replica's store: `seq` must be the next one, and limits refuse nothing."""
        cdef Record record
        cdef bytes text = encoded(subject)
        cdef bint discard_new = self.discard_new
        self._expect_next(seq)
        fill(&record, text, headers, payload, ts_ns)
        self.discard_new = False
        try:
            refusal = self.store_record(&record, ttl_ns)
        finally:
            self.discard_new = discard_new
        if refusal != ACCEPTED:
            raise REFUSALS[refusal]
        return record.seq

    def _expect_next(self, uint64_t seq):
        if seq != self.last_seq + 1:
            raise SequenceMismatchError(f"the next sequence is {self.last_seq + 1}, not {seq}")

    def store_batch(self, messages, int64_t ts_ns):
        """(subject, headers, payload) each, as one batch; the sequences, or the refusal in its place."""
        return [self._store_or_refusal(subject, headers, payload, ts_ns)
                for subject, headers, payload in messages]

    def _store_or_refusal(self, subject, headers, payload, ts_ns):
        try:
            return self.store(subject, headers, payload, ts_ns)
        except StoreError as refusal:
            return refusal

    def skip(self, uint64_t count=1, int64_t ts_ns=0):
        """Give out `count` sequences without messages; the last of them. A time counts as last."""
        if count == 0:
            return self.last_seq
        self.home.skip(self.last_seq + 1, count)
        self.last_seq += count
        if ts_ns:
            self.last_ts_ns = ts_ns
        if self.messages == 0:
            self.first_seq = self.last_seq + 1
        return self.last_seq

    def begin_whole(self):
        """What is written until `end_whole` is there after a crash as a whole or not at all."""
        self.home.begin_whole()

    def end_whole(self):
        self.home.end_whole()

    # Limits

    def enforce(self, uint64_t messages_max=0):
        """Carry out lowered limits, at most `messages_max` removals (0: all); whether it is done."""
        return enforce_limits(self, messages_max if messages_max else <uint64_t>-1)

    # Time

    def expire(self, int64_t now_ns, uint32_t messages_max=4096):
        """Remove what is too old or at the end of its time to live: one slice of it."""
        return expire(self, now_ns, messages_max)

    def next_expiry_ns(self):
        """When `expire` should be called next; None: never."""
        return next_expiry(self)

    # Removing

    def delete(self, uint64_t seq, bint erase=False):
        """Whether a message was there; with `erase` its bytes are overwritten."""
        return bool(self.remove(seq, erase))

    def delete_many(self, sequences):
        """Remove what all consumers have dealt with; how many were there."""
        cdef uint64_t seq
        cdef uint64_t removed = 0
        for seq in sequences:
            removed += self.remove(seq, False)
        return removed

    def purge(self, filters=None, uint64_t seq=0, uint64_t keep=0):
        """Remove all matching messages below `seq` (0: any) except the last `keep`; how many."""
        job = self.start_purge(filters, seq, keep)
        while not job.step(1 << 20):
            pass
        return job.purged

    def start_purge(self, filters=None, uint64_t seq=0, uint64_t keep=0):
        """The same in slices. Messages that come later are not touched."""
        return purge_job(self, self.filter_of(filters), seq, keep)

    cdef int _purge_all(self) except -1:
        forget_all(self)
        self.first_seq = self.last_seq + 1
        self.home.drop_below(self.first_seq)
        return 0

    def compact(self, uint64_t seq):
        """Remove all below `seq`; above the end it also becomes the next sequence. How many."""
        cdef uint64_t removed
        if seq == 0:
            return self.purge()
        if self.first_seq > seq:
            return 0
        if seq <= self.last_seq:
            return self.purge(None, seq)
        removed = self.messages
        self._purge_all()
        if seq > self.last_seq + 1:
            self.home.skip(self.last_seq + 1, seq - 1 - self.last_seq)
            self.last_seq = seq - 1
        self.first_seq = seq
        self.home.drop_below(seq)
        return removed

    def truncate(self, uint64_t seq):
        """Take back all above `seq`, which becomes the last sequence; 0: as new."""
        cdef uint64_t at
        cdef Record record
        if seq >= self.last_seq:
            return
        if seq == 0:
            self._purge_all()
            self.home.cut_above(0)
            self._reset(0)
            return
        self.subjects.rewound += 1
        at = self.spans.last_live(self.last_seq)
        while at > seq:
            self._take_back(at)
            at = self.spans.last_live(at - 1)
        self.spans.cut_above(seq)
        self.home.cut_above(seq)
        self.last_seq = seq
        if self.messages == 0:
            self.first_seq = seq + 1
        if self.home.read(seq, &record):
            self.last_ts_ns = record.ts_ns
        if self.wheel is not None:
            self.wheel.keep_live(self.spans, seq)

    def _take_back(self, uint64_t seq):
        """As `_unlist` of a message that the home is going to cut."""
        cdef uint64_t size = self.home.counted_at(seq)
        self._forget_subject(self.spans.slot(seq) & SUBJECT_ID_MASK, seq)
        self.spans.remove(seq, size)
        self.messages -= 1
        self.bytes -= size

    # Reading

    cdef int read(self, uint64_t seq, Record* out) except -1:
        """1: `out` is a view as the home gives it. 0: nothing lives at `seq`."""
        return 1 if self.spans.slot(seq) and self.home.read(seq, out) else 0

    cdef object _message(self, uint64_t seq):
        cdef Record record
        if seq == 0 or not self.read(seq, &record):
            return None
        return StoredMessage(
            record.seq,
            record.ts_ns,
            record.subject[: record.subject_len].decode("utf-8", "surrogateescape"),
            record.hdr[: record.hdr_len] if record.hdr_len else b"",
            record.msg[: record.msg_len] if record.msg_len else b"",
        )

    cdef SubjectFilter own_filter(self, object filters):
        """A compiled filter (None, a text or several) that only the caller uses."""
        texts = [filters] if isinstance(filters, str) else list(filters or ())
        return SubjectFilter(self.subjects, [encoded(text) for text in texts if texts != [""]])

    def filter(self, filters):
        """`own_filter` for Python; for `next_sequences` and `pending`."""
        return self.own_filter(filters)

    def next_sequences(self, SubjectFilter wanted not None, uint64_t seq, uint64_t last, uint32_t most):
        """`next_seqs` for Python: what was found, and where to go on."""
        cdef uint64_t resume = 0
        cdef uint64_t* found = <uint64_t*>malloc(max(most, 1u) * sizeof(uint64_t))
        cdef int count, i
        if found == NULL:
            raise MemoryError
        try:
            count = self.next_seqs(wanted, seq, last, found, most, &resume)
            return [found[i] for i in range(count)], resume
        finally:
            free(found)

    def pending(self, SubjectFilter wanted not None, uint64_t seq):
        """`pending_from` for Python."""
        return self.pending_from(wanted, seq)

    cdef SubjectFilter filter_of(self, object filters):
        """The compiled filter: kept, so that asking again is cheap."""
        cdef SubjectFilter wanted
        key = filters if isinstance(filters, (str, type(None))) else tuple(filters)
        wanted = self.filters.pop(key, None)
        if wanted is None:
            wanted = self.own_filter(key)
            if len(self.filters) >= FILTERS_KEPT:
                del self.filters[next(iter(self.filters))]
        self.filters[key] = wanted
        return wanted

    cdef uint64_t next_seq(self, SubjectFilter wanted, uint64_t seq) except? 0:
        """The lowest live sequence at or above `seq` that matches; 0: none."""
        wanted.sync()
        return self.spans.next_match(wanted, seq)

    cdef int next_seqs(
        self, SubjectFilter wanted, uint64_t seq, uint64_t last, uint64_t* found, uint32_t limit,
        uint64_t* resume,
    ) except -1:
        """Up to `limit` matching live sequences from `seq` to `last`, in order; how many.

        Go on from `resume` while it is not above `last`: a long search comes back with few or none.
        """
        wanted.sync()
        return self.spans.next_matches(wanted, seq, last, found, limit, resume)

    cdef uint64_t pending_from(self, SubjectFilter wanted, uint64_t seq) except? 0:
        """How many live messages at or above `seq` match."""
        wanted.sync()
        if wanted.removals_lost or self.subjects.removed == NULL:
            self.subjects.keep_removed()
            wanted.removals_lost = False
        return self.spans.count_from(wanted, seq)

    cdef bint matches(self, SubjectFilter wanted, uint64_t seq) except -1:
        """Whether the message at `seq` is there and matches."""
        cdef uint32_t number = self.spans.slot(seq) & SUBJECT_ID_MASK
        wanted.sync()
        return number and wanted.has(number)

    cdef uint64_t last_seq_of(self, const char* subject, uint16_t subject_len) noexcept nogil:
        """The last sequence of a subject, or 0."""
        cdef uint32_t number = self.subjects.find(subject, subject_len)
        return self.subjects.subjects[number].last_seq if number else 0

    cdef uint64_t count_of(self, const char* subject, uint16_t subject_len) noexcept nogil:
        """How many messages a subject has."""
        cdef uint32_t number = self.subjects.find(subject, subject_len)
        return self.subjects.subjects[number].count if number else 0

    def load(self, uint64_t seq):
        """The message, or None."""
        return self._message(seq)

    def load_next(self, uint64_t seq, filters=None):
        """The first matching message at or above `seq` that can still be read, or None."""
        return next_message(self, self.filter_of(filters), seq)

    def load_previous(self, uint64_t seq, filters=None):
        """The last matching message at or below `seq`, or None."""
        cdef SubjectFilter wanted = self.filter_of(filters)
        wanted.sync()
        return self._message(self.spans.last_match(wanted, min(seq, self.last_seq)))

    def load_last(self, filters=None):
        """The last matching message, or None."""
        if isinstance(filters, str) and filters and "*" not in filters and ">" not in filters:
            # The index knows it: no filter has to be compiled for each key that is read.
            subject = encoded(filters)
            if len(subject) <= SUBJECT_LEN_MAX:
                return self._message(self.last_seq_of(subject, <uint16_t>len(subject)))
        return self.load_previous(self.last_seq, filters)

    def multi_last(self, filters, uint64_t up_to_seq=0, uint64_t results_max=0):
        """Sequences of each matching subject's last message at or below `up_to_seq`, in order."""
        return multi_last(self, self.filter_of(filters), up_to_seq, results_max)

    def first_seq_from_time(self, int64_t ts_ns):
        """The lowest live sequence at or after a time; one past the end when there is none."""
        cdef uint64_t seq = self.home.seek_time(ts_ns)
        while seq and not self.spans.slot(seq):
            seq = self.spans.next_live(seq)
        return seq if seq else self.last_seq + 1

    def last_seq_up_to_time(self, int64_t ts_ns):
        """The highest live sequence before the first one that is later than `ts_ns`; 0: none."""
        cdef uint64_t seq = self.first_seq_from_time(ts_ns + 1)
        return self.spans.last_live(seq - 1) if seq else 0

    # Counting

    def state(self, bint deleted=False, up_to_seq=None):
        """What is there, as if `up_to_seq` were the last sequence when it is given."""
        return state_of(self, deleted, self.last_seq if up_to_seq is None else up_to_seq)

    def deleted(self):
        """The sequences between first and last at which nothing lives, as ranges."""
        return deleted_of(self, self.last_seq)

    def num_pending(self, uint64_t seq, filters=None, bint last_per_subject=False):
        """How many matching messages live at or above `seq`, or how many subjects' last ones."""
        cdef SubjectFilter wanted = self.filter_of(filters)
        if last_per_subject:
            return count_last(self, wanted, seq)
        return self.pending_from(wanted, seq)

    def filtered_state(self, filters=None, uint64_t seq=0):
        """Count, first and last of the matching messages at or above `seq`."""
        cdef SubjectFilter wanted = self.filter_of(filters)
        cdef uint64_t first = self.next_seq(wanted, max(seq, self.first_seq)), last
        if first == 0:
            return SubjectState(0, 0, 0)
        last = self.spans.last_match(wanted, self.last_seq)
        return SubjectState(self.pending_from(wanted, seq), first, last)

    def subject_states(self, filters=None, uint64_t offset=0, uint64_t limit=0):
        """Count, first and last of each matching subject in order, a page when `limit` is given."""
        cdef uint32_t number
        cdef dict out = {}
        for number in ordered(self, self.filter_of(filters), offset, limit):
            out[self._text(number)] = SubjectState(
                self.subjects.subjects[number].count,
                self.spans.first_of(self.subjects, number, 0),
                self.subjects.subjects[number].last_seq,
            )
        return out

    def subject_totals(self, filters=None, uint64_t offset=0, uint64_t limit=0):
        """The count of each matching subject in order, a page of them when `limit` is given."""
        cdef uint32_t number
        cdef dict out = {}
        for number in ordered(self, self.filter_of(filters), offset, limit):
            out[self._text(number)] = self.subjects.subjects[number].count
        return out

    def matching_subjects(self, filters=None):
        """How many subjects match."""
        cdef SubjectFilter wanted = self.filter_of(filters)
        order_subjects(self, wanted)
        return wanted.ordered_count

    def snapshot(self):
        """The indexes as bytes for `restore`; whoever stores them adds a checksum."""
        return encode_store(self)

    def restore(self, const uint8_t[::1] data not None):
        """Take the indexes from a snapshot of a store over the same home; ValueError: unfit."""
        self._reset(0)
        try:
            decode_store(self, &data[0] if data.shape[0] else NULL, data.shape[0])
        except ValueError:
            self._reset(0)
            raise

    cdef object _text(self, uint32_t number):
        cdef char* text = self.subjects.text_of(number)
        return text[: self.subjects.subjects[number].text_len].decode("utf-8", "surrogateescape")

    @property
    def index_memory_bytes(self):
        """What the indexes take, without the home."""
        return {
            "subjects": self.subjects.memory_bytes(),
            "sequences": self.spans.memory_bytes(),
        }


cdef bytes encoded(str subject):
    """A subject may be any bytes; as text those that are no UTF-8 are surrogates."""
    return subject.encode("utf-8", "surrogateescape")


cdef void fill(
    Record* record, bytes subject, bytes headers, bytes payload, int64_t ts_ns
):
    """A view of the arguments, which the caller keeps."""
    memset(record, 0, sizeof(Record))
    record.ts_ns = ts_ns
    record.subject = subject
    # Longer than a subject may be, so that `check` refuses it.
    record.subject_len = <uint16_t>min(len(subject), 65535)
    record.hdr = headers
    record.hdr_len = <uint32_t>len(headers)
    record.msg = payload
    record.msg_len = <uint32_t>len(payload)
