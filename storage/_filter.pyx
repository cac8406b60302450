# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""One or several filters over the subjects of a stream, compiled to a bit for each subject number.

A filter is kept by whoever asks again (a consumer, the store's cache) and brought level by `sync`
from the index's ring of numbers given out since; only when it fell far behind it is built anew from
the tree. Whether a new subject matches is found along a tree of all filters' tokens, so hundreds of
filters cost no more than a few. A filter for all subjects or for one has no bits.

It also remembers its last count. Removals since are taken off, from the index's ring of removals,
before the bits change: a number may be given to another subject once its messages are gone.
"""
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memset

from storage._index cimport (
    LEAF,
    ONE_TOKEN,
    SUBJECT_ID_MASK,
    SUBJECT_LEN_MAX,
    TAIL_ENDED,
    TAIL_NONE,
    TAIL_UNNAMED,
    Node,
    Removal,
    hash_text,
    token_length,
)
from storage._table cimport CHILDREN_LISTED, Table

cdef enum:
    AHEAD_FAR = 32                  # children between asking for an entry and reading it
    AHEAD_NEAR = 16
    CROWD_SHARE = 8                 # a node with this part of all subjects is read by number
    ASK = 2                         # a verdict: look at the text

cdef extern from *:
    """
    #define martlet_prefetch(address) __builtin_prefetch(address)
    """
    uint32_t popcount "__builtin_popcount"(uint32_t word) noexcept nogil
    uint32_t count_zeros "__builtin_ctz"(uint32_t word) noexcept nogil
    void prefetch "martlet_prefetch"(const void* address) noexcept nogil

cdef extern from "_scan.h" nogil:
    void mark_node(
        const uint32_t* nodes, const uint8_t* tails, uint32_t first, uint32_t count, uint32_t node,
        const uint8_t* verdicts, uint32_t* yes, uint32_t* ask,
    )

cdef enum TokenKind:
    LITERAL
    ANY_TOKEN
    ANY_REST


cdef class SubjectFilter:
    """Filters over one index. Call `sync` before each use, then `mode`, `has`, `subject`."""

    def __cinit__(self, SubjectIndex index not None, filters):
        cdef uint32_t i = 0, count = 0
        cdef bytes text
        # Filters are bytes, so that the tokens can point into them.
        self.filters = tuple(sorted(set(filters)))
        self.index = index
        self.filter_count = len(self.filters)
        for text in self.filters:
            count += text.count(b".") + 1
        self.tokens = <FilterToken*>malloc(max(count, 1) * sizeof(FilterToken))
        self.starts = <uint32_t*>malloc((self.filter_count + 1) * sizeof(uint32_t))
        if self.tokens == NULL or self.starts == NULL:
            raise MemoryError
        count = 0
        for i in range(self.filter_count):
            self.starts[i] = count
            count = self._parse(self.filters[i], count)
        self.starts[self.filter_count] = count
        self._grow_steps(count)

    def __dealloc__(self):
        free(self.tokens)
        free(self.starts)
        free(self.steps)
        free(self.branches)
        free(self.ordered)
        free(self.bits)
        free(self.counts)

    cdef uint32_t _parse(self, bytes text, uint32_t at):
        cdef const char* start = text
        cdef uint32_t length = len(text), token_len
        while True:
            token_len = token_length(start, length)
            self.tokens[at].text = start
            self.tokens[at].len = <uint16_t>token_len
            self.tokens[at].kind = LITERAL
            if token_len == 1 and start[0] == 42:
                self.tokens[at].kind = ANY_TOKEN
            elif token_len == 1 and start[0] == 62 and token_len == length:
                self.tokens[at].kind = ANY_REST
            at += 1
            if token_len == length:
                return at
            start += token_len + 1
            length -= token_len + 1

    cdef bint _is_literal(self, uint32_t which) noexcept nogil:
        cdef uint32_t i
        for i in range(self.starts[which], self.starts[which + 1]):
            if self.tokens[i].kind != LITERAL:
                return False
        return True

    # The tree of tokens

    cdef int _grow_steps(self, uint32_t token_count) except -1:
        cdef uint32_t capacity = 4, i, k, at
        while capacity < token_count * 2:
            capacity *= 2
        self.branch_mask = capacity - 1
        self.branches = <Branch*>calloc(capacity, sizeof(Branch))
        self.steps = <Step*>calloc(token_count + 1, sizeof(Step))
        if self.branches == NULL or self.steps == NULL:
            raise MemoryError
        self.step_count = 1
        for i in range(self.filter_count):
            at = 0
            for k in range(self.starts[i], self.starts[i + 1]):
                if self.tokens[k].kind == ANY_REST:
                    self.steps[at].rest = True
                    break
                at = self._step(at, k)
            else:
                self.steps[at].ends = True
        return 0

    cdef uint32_t _step(self, uint32_t at, uint32_t token) noexcept nogil:
        """The step behind this token, made when it is the first of its kind."""
        cdef FilterToken* wanted = &self.tokens[token]
        cdef Branch* branch
        if wanted.kind == ANY_TOKEN:
            if self.steps[at].any_token == 0:
                self.steps[at].any_token = self.step_count
                self.step_count += 1
            return self.steps[at].any_token
        branch = self._branch(at, wanted.text, wanted.len)
        if branch.to == 0:
            branch.at = at
            branch.token = token
            branch.to = self.step_count
            self.step_count += 1
        return branch.to

    cdef Branch* _branch(self, uint32_t at, const char* text, uint32_t length) noexcept nogil:
        """The branch for this literal token, or the free place for it."""
        cdef uint32_t slot = (hash_text(text, length) + at * 0x9E3779B9u) & self.branch_mask
        cdef Branch* branch
        while True:
            branch = &self.branches[slot]
            if branch.to == 0 or (
                branch.at == at
                and self.tokens[branch.token].len == length
                and memcmp(self.tokens[branch.token].text, text, length) == 0
            ):
                return branch
            slot = (slot + 1) & self.branch_mask

    cdef bint _step_matches(self, uint32_t at, const char* text, uint32_t length) noexcept nogil:
        """Whether a filter that goes on from `at` matches these tokens, at least one."""
        cdef uint32_t token_len, to
        if self.steps[at].rest:
            return True
        token_len = token_length(text, length)
        to = self._branch(at, text, token_len).to
        if to and self._ends_or_matches(to, text, length, token_len):
            return True
        to = self.steps[at].any_token
        return to and self._ends_or_matches(to, text, length, token_len)

    cdef bint _ends_or_matches(
        self, uint32_t to, const char* text, uint32_t length, uint32_t token_len
    ) noexcept nogil:
        if token_len == length:
            return self.steps[to].ends
        return self._step_matches(to, text + token_len + 1, length - token_len - 1)

    cdef bint matches_text(self, const char* text, uint32_t text_len) noexcept nogil:
        """Whether any of the filters matches this subject; no filter matches all."""
        return self.filter_count == 0 or self._step_matches(0, text, text_len)

    cdef bint _rest_matches(
        self, const char* text, uint32_t length, uint32_t at, uint32_t end
    ) noexcept nogil:
        cdef uint32_t token_len
        while at < end:
            if self.tokens[at].kind == ANY_REST:
                return True
            token_len = token_length(text, length)
            if self.tokens[at].kind == LITERAL and (
                self.tokens[at].len != token_len
                or memcmp(self.tokens[at].text, text, token_len) != 0
            ):
                return False
            at += 1
            if token_len == length:
                return at == end
            text += token_len + 1
            length -= token_len + 1
        return False

    cdef int sync(self) except -1:
        """Bring `mode` and the bits level with the index."""
        cdef SubjectIndex index = self.index
        cdef bytes text
        cdef uint32_t number
        self._settle()
        if self.filter_count == 0 or self.tokens[self.starts[self.filter_count] - 1].kind == ANY_REST and (
            self.filter_count == 1 and self.starts[1] == 1
        ):
            self.mode = MATCH_ALL
            return 0
        if self.filter_count == 1 and self._is_literal(0):
            text = self.filters[0]
            self.subject = index.find(text, <uint16_t>len(text)) if len(text) < SUBJECT_LEN_MAX else 0
            self.mode = MATCH_ONE if self.subject else MATCH_NONE
            self.matched_count = 1 if self.subject else 0
            return 0
        if not self.built or self.generation != index.generation or (
            self.created_seen < index.created_from
            or index.created_total - self.created_seen > index.created_mask
        ):
            self._build()
        elif index.created_total != self.created_seen:
            self._room()
            while self.created_seen != index.created_total:
                number = index.created[self.created_seen & index.created_mask]
                self.created_seen += 1
                if index.subjects[number].text_len and self.matches_text(
                    index.text_of(number), index.subjects[number].text_len
                ):
                    self._mark(number)
                else:
                    self.bits[number >> 5] &= ~(1u << (number & 31))
                    self.others += 1
        if self.matched_count == 0:
            self.mode = MATCH_NONE
        else:
            self.mode = MATCH_BITS if self.others else MATCH_ALL
        return 0

    cdef int _room(self) except -1:
        """Bits for every number that the index may have given out."""
        cdef uint32_t words = (self.index.subject_capacity >> 5) + 1
        cdef uint32_t* bits
        if words <= self.bit_capacity:
            return 0
        bits = <uint32_t*>realloc(self.bits, words * sizeof(uint32_t))
        if bits == NULL:
            raise MemoryError
        memset(bits + self.bit_capacity, 0, (words - self.bit_capacity) * sizeof(uint32_t))
        self.bits = bits
        self.bit_capacity = words
        return 0

    cdef int _build(self) except -1:
        cdef uint32_t i
        cdef SubjectIndex index = self.index
        index.keep_created()
        self._room()
        memset(self.bits, 0, self.bit_capacity * sizeof(uint32_t))
        for i in range(self.filter_count):
            if self._is_literal(i):
                self._mark_literal(i)
            else:
                self._walk(0, self.starts[i], self.starts[i + 1])
        self._count_set()
        self.others = index.subject_count - self.matched_count
        self.created_seen = index.created_total
        self.generation = index.generation
        self.built = True
        # Counts of spans were taken with other bits.
        free(self.counts)
        self.counts = NULL
        return 0

    cdef int _mark_literal(self, uint32_t which) except -1:
        cdef bytes text = self.filters[which]
        cdef uint32_t number = 0
        if len(text) < SUBJECT_LEN_MAX:
            number = self.index.find(text, <uint16_t>len(text))
        if number:
            self._set(number)
        return 0

    cdef void _count_set(self) noexcept nogil:
        """After a build: how many match, and which while they are few."""
        cdef uint32_t word, bit, i
        self.matched_count = 0
        self.few_count = 0
        for i in range(self.bit_capacity):
            self.matched_count += popcount(self.bits[i])
        if self.matched_count > FEW_SUBJECTS:
            return
        for i in range(self.bit_capacity):
            word = self.bits[i]
            for bit in range(32):
                if word >> bit & 1:
                    self.few[self.few_count] = i * 32 + bit
                    self.few_count += 1

    cdef void _mark(self, uint32_t number) noexcept nogil:
        cdef uint32_t bit = 1u << (number & 31)
        if not self.bits[number >> 5] & bit:
            self.bits[number >> 5] |= bit
            self.matched_count += 1
            # A number may come here twice when its subject went and came back: harmless.
            if self.few_count < FEW_SUBJECTS:
                self.few[self.few_count] = number
                self.few_count += 1

    cdef void _walk(self, uint32_t number, uint32_t at, uint32_t end) noexcept nogil:
        """Mark what the tokens from `at` on match below this node."""
        cdef Node* node = &self.index.nodes[number]
        cdef Table* table = &node.children
        cdef FilterToken* token
        cdef uint64_t* slot
        cdef uint32_t count
        if at == end:
            if node.subject:
                self._set(node.subject)
            return
        token = &self.tokens[at]
        if token.kind == LITERAL:
            slot = self.index._child(node, token.text, token.len, hash_text(token.text, token.len))
            if slot != NULL:
                self._visit(<uint32_t>slot[0], node.prefix_len, at, end)
            return
        if self._is_crowd(node):
            self._mark_crowd(number, at, end)
            if not node.inner:
                return
        count = table.used if table.mask < CHILDREN_LISTED else table.mask + 1
        self._visit_slots(number, table.slots, 0, count, at, end)
        if table.old != NULL:
            self._visit_slots(number, table.old, table.moved, (table.mask >> 1) + 1, at, end)

    cdef bint _tail_matches(self, uint32_t number, uint32_t at, uint32_t end) noexcept nogil:
        """Whether the tokens from `at` on match what a leaf has beyond its node."""
        cdef uint32_t name = self.index.tails[number], start
        if name != TAIL_UNNAMED:
            return self._name_matches(name, at, end)
        start = self.index.nodes[self.index.nodes_of[number]].prefix_len
        return self._rest_matches(
            self.index.text_of(number) + start, self.index.subjects[number].text_len - start,
            at, end,
        )

    cdef bint _name_matches(self, uint32_t name, uint32_t at, uint32_t end) noexcept nogil:
        """The same for all leaves with this tail, given that their first token matches."""
        if name == TAIL_ENDED:
            return False
        if self.tokens[at].kind == ANY_REST:
            return True
        if name == TAIL_NONE:
            return at + 1 == end
        return self.index.tail_texts[name] and self._rest_matches(
            self.index.arena_at(self.index.tail_texts[name]), self.index.tail_lens[name],
            at + 1, end,
        )

    cdef bint _is_crowd(self, const Node* node) noexcept nogil:
        cdef uint32_t used = node.children.used
        return used > CHILDREN_LISTED and used >= self.index.subject_top // CROWD_SHARE

    cdef void _mark_crowd(self, uint32_t node, uint32_t at, uint32_t end) noexcept nogil:
        """Of a node with a good part of all subjects as leaves: by number, without its slots."""
        cdef uint32_t word, name, yes = 0, ask = 0, bit, top = self.index.subject_top
        cdef uint8_t[256] verdicts
        verdicts[TAIL_UNNAMED] = ASK
        for name in range(1, 256):
            verdicts[name] = self._name_matches(name, at, end)
        for word in range((top + 31) >> 5):
            mark_node(
                self.index.nodes_of, self.index.tails, word << 5,
                min(32u, top - (word << 5)), node, verdicts, &yes, &ask,
            )
            self.bits[word] |= yes
            while ask:
                bit = count_zeros(ask)
                ask &= ask - 1
                if self._tail_matches(word << 5 | bit, at, end):
                    self.bits[word] |= 1u << bit

    cdef void _visit_slots(
        self, uint32_t node, const uint64_t* slots, uint32_t low, uint32_t high, uint32_t at,
        uint32_t end,
    ) noexcept nogil:
        """All children in a piece of a table; leaves only where `_mark_crowd` did not go."""
        cdef uint32_t i, reference
        cdef bint leaves = not self._is_crowd(&self.index.nodes[node])
        for i in range(low, high):
            reference = <uint32_t>slots[i]
            if reference & LEAF:
                if leaves and self._tail_matches(reference & SUBJECT_ID_MASK, at, end):
                    self._set(reference & SUBJECT_ID_MASK)
            elif reference:
                if i + AHEAD_FAR < high:
                    self._prefetch(<uint32_t>slots[i + AHEAD_FAR], 0)
                    self._prefetch(<uint32_t>slots[i + AHEAD_NEAR], 1)
                self._visit(reference, self.index.nodes[node].prefix_len, at, end)

    cdef void _prefetch(self, uint32_t reference, int stage) noexcept nogil:
        """First the node of a child, then what the node points to."""
        cdef Node* node
        if reference == 0 or reference & LEAF:
            return
        node = &self.index.nodes[reference]
        if stage == 0:
            prefetch(node)
        else:
            prefetch(self.index.arena_at(node.label))
            prefetch(node.children.slots)

    cdef void _visit(
        self, uint32_t reference, uint32_t prefix_len, uint32_t at, uint32_t end
    ) noexcept nogil:
        """A child whose first token the token at `at` may match."""
        cdef const char* label
        cdef uint32_t length, token_len
        if reference & LEAF:
            if reference & ONE_TOKEN:
                # The caller has compared a literal token; the others match any.
                if at + 1 == end:
                    self._set(reference & SUBJECT_ID_MASK)
                return
            reference &= SUBJECT_ID_MASK
            if self.tokens[at].kind == ANY_REST or self._rest_matches(
                self.index.text_of(reference) + prefix_len,
                self.index.subjects[reference].text_len - prefix_len, at, end,
            ):
                self._set(reference)
            return
        label = self.index.arena_at(self.index.nodes[reference].label)
        length = self.index.nodes[reference].label_len
        while True:
            if at == end:
                return
            if self.tokens[at].kind == ANY_REST:
                self._mark_all(reference)
                return
            token_len = token_length(label, length)
            if self.tokens[at].kind == LITERAL and (
                self.tokens[at].len != token_len
                or memcmp(self.tokens[at].text, label, token_len) != 0
            ):
                return
            at += 1
            if token_len == length:
                break
            label += token_len + 1
            length -= token_len + 1
        self._walk(reference, at, end)

    cdef void _mark_all(self, uint32_t reference) noexcept nogil:
        """The whole branch."""
        cdef Node* node
        cdef Table* table
        cdef uint32_t i, count, yes = 0, ask = 0
        cdef uint8_t[256] verdicts
        if reference & LEAF:
            self._set(reference & SUBJECT_ID_MASK)
            return
        node = &self.index.nodes[reference]
        table = &node.children
        if node.subject:
            self._set(node.subject)
        if self._is_crowd(node) and not node.inner:
            memset(verdicts, 1, sizeof(verdicts))
            for i in range((self.index.subject_top + 31) >> 5):
                mark_node(
                    self.index.nodes_of, self.index.tails, i << 5,
                    min(32u, self.index.subject_top - (i << 5)), reference, verdicts, &yes, &ask,
                )
                self.bits[i] |= yes
            return
        count = table.used if table.mask < CHILDREN_LISTED else table.mask + 1
        for i in range(count):
            if <uint32_t>table.slots[i] & LEAF:
                self._set(<uint32_t>table.slots[i] & SUBJECT_ID_MASK)
            elif <uint32_t>table.slots[i]:
                self._mark_all(<uint32_t>table.slots[i])
        if table.old != NULL:
            for i in range(table.moved, (table.mask >> 1) + 1):
                if <uint32_t>table.old[i]:
                    self._mark_all(<uint32_t>table.old[i])

    # Counts

    cdef void note_count(self, uint64_t counted, uint64_t first, uint64_t last) noexcept nogil:
        """So many messages from `first` to `last` match now, right after `sync`."""
        self.counted = counted
        self.counted_from = first
        self.counted_to = last
        self.counted_removals = self.index.removed_total
        self.counted_rewound = self.index.rewound
        self.counted_holds = True

    cdef void _settle(self) noexcept nogil:
        """Take what was removed since off the last count."""
        cdef Removal* removal
        if not self.counted_holds or (
            self.counted_removals == self.index.removed_total
            and self.counted_rewound == self.index.rewound
        ):
            return
        if self.counted_rewound != self.index.rewound or self.index.removed == NULL:
            self.counted_holds = False
            return
        if self.index.removed_total - self.counted_removals > self.index.removed_mask:
            self.removals_lost = True
            self.counted_holds = False
            return
        while self.counted_removals != self.index.removed_total:
            removal = &self.index.removed[self.counted_removals & self.index.removed_mask]
            self.counted_removals += 1
            if self.counted_from <= removal.seq <= self.counted_to and self.has(removal.subject):
                self.counted -= 1

    cdef CachedCount* cached(self, uint64_t span, uint64_t span_count) noexcept nogil:
        """Where the count of this span is kept; its `version` says whether it still holds."""
        cdef uint64_t capacity = 16
        if self.counts == NULL or self.count_mask + 1 < span_count:
            while capacity < span_count * 2:
                capacity *= 2
            free(self.counts)
            self.counts = <CachedCount*>calloc(capacity, sizeof(CachedCount))
            if self.counts == NULL:
                return NULL
            self.count_mask = capacity - 1
        return &self.counts[span & self.count_mask]
