# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The subjects of one stream: first and last live sequence and count of each, and who matches a filter.

A subject has a number while it has messages; the store keeps four bytes a message, the number, and
asks here for the rest. Three structures hang together:

- `subjects`, by number, a cache line each with the text in it; longer texts live in an arena that
  reuses what is given back;
- `by_text`, a hash table with 32-bit tags, grown piece by piece so that no insert waits for a rehash;
- a tree of tokens with one-child chains folded together. A leaf is only a slot in its parent's
  table, so a tree costs little more than those slots. Beside it, by number: the node under which
  a subject hangs and the name of what follows its first token there, five bytes that let `a.*.x`
  decide about a million subjects without touching them.

Two rings remember which numbers were given out and which messages were removed last, so that a
`SubjectFilter` (`_filter`) is brought level without looking at everything again. They are made by
the first filter that needs them and grow with the need.
"""
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from storage._table cimport (
    CHILDREN_LISTED,
    children_put,
    children_remove,
    table_free,
    table_put,
    table_remove,
    table_start,
)

cdef extern from "_pages.h" nogil:
    void* pages_grow(void* memory, size_t old_bytes, size_t bytes)
    void pages_free(void* memory, size_t bytes)

cdef enum:
    ARENA_UNIT_BYTES = 8
    CHUNK_UNITS = 0x20000           # 1 MiB; `text_of` has the same number as a shift
    CHUNK_BYTES_FIRST = 512
    BLOCK_UNITS_LISTED = 64
    CREATED_FIRST = 64
    CREATED_MAX = 16384
    REMOVED_FIRST = 64
    REMOVED_MAX = 8192

cdef uint32_t shared_tokens(
    const char* left, uint32_t left_len, const char* right, uint32_t right_len
) noexcept nogil:
    """Length of the whole tokens that both begin with, without the dot behind them."""
    cdef uint32_t shortest = min(left_len, right_len), i = 0, shared = 0
    while i < shortest and left[i] == right[i]:
        if left[i] == 46:
            shared = i
        i += 1
    if i == shortest and (
        left_len == right_len
        or (left_len > shortest and left[shortest] == 46)
        or (right_len > shortest and right[shortest] == 46)
    ):
        return shortest
    return shared


cdef uint32_t units_of(uint32_t length, uint32_t* row) noexcept nogil:
    """What a text of this length takes of the arena, and its list of free places; a long one takes a power of two."""
    cdef uint32_t units = max((length + ARENA_UNIT_BYTES - 1) // ARENA_UNIT_BYTES, <uint32_t>1)
    cdef uint32_t size = BLOCK_UNITS_LISTED
    if units <= BLOCK_UNITS_LISTED:
        row[0] = units
        return units
    row[0] = BLOCK_UNITS_LISTED
    while size < units:
        size *= 2
        row[0] += 1
    return size


cdef class SubjectIndex:
    def __cinit__(self):
        self._start()

    cdef int _start(self) except -1:
        memset(self.free_blocks, 0, sizeof(self.free_blocks))
        memset(self.tail_texts, 0, sizeof(self.tail_texts))
        self.arena_top = 1
        self.subject_top = 1
        table_start(&self.by_text, 16)
        self._new_node()
        return 0

    def __dealloc__(self):
        self._free_all()
        free(self.created)
        free(self.removed)

    cdef void _free_all(self) noexcept:
        cdef uint32_t i
        for i in range(self.node_top):
            table_free(&self.nodes[i].children)
        for i in range(self.chunk_count):
            free(self.chunks[i])
        free(self.chunks)
        free(self.nodes)
        pages_free(self.subjects, self.subject_capacity * sizeof(Subject))
        pages_free(self.tails, self.subject_capacity)
        pages_free(self.nodes_of, self.subject_capacity * sizeof(uint32_t))
        table_free(&self.by_text)
        self.chunks = NULL
        self.nodes = NULL
        self.subjects = NULL
        self.tails = NULL
        self.nodes_of = NULL
        self.chunk_count = self.chunk_bytes = 0
        self.node_top = self.node_capacity = self.node_free = 0
        self.subject_top = self.subject_capacity = self.subject_free = self.subject_count = 0

    cdef int clear(self) except -1:
        """Forget all subjects at once."""
        self._free_all()
        self.generation += 1
        self.rewound += 1
        self.dropped_total += 1
        self._start()
        return 0

    # The arena

    cdef uint32_t _take(self, uint32_t length) except 0:
        cdef uint32_t row, place, need
        cdef uint32_t units = units_of(length, &row)
        cdef char** chunks
        cdef char* chunk
        if self.free_blocks[row]:
            place = self.free_blocks[row]
            memcpy(&self.free_blocks[row], self.arena_at(place), sizeof(uint32_t))
            return place
        if (self.arena_top & (CHUNK_UNITS - 1)) + units > CHUNK_UNITS:
            self.arena_top = (self.arena_top | (CHUNK_UNITS - 1)) + 1
        place = self.arena_top
        if place >> 17 == self.chunk_count:
            chunks = <char**>realloc(self.chunks, (self.chunk_count + 1) * sizeof(char*))
            if chunks == NULL:
                raise MemoryError
            self.chunks = chunks
            self.chunk_bytes = CHUNK_UNITS * 8 if self.chunk_count else CHUNK_BYTES_FIRST
            chunk = <char*>malloc(self.chunk_bytes)
            if chunk == NULL:
                raise MemoryError
            self.chunks[self.chunk_count] = chunk
            self.chunk_count += 1
        need = ((place & (CHUNK_UNITS - 1)) + units) * ARENA_UNIT_BYTES
        if need > self.chunk_bytes:
            while self.chunk_bytes < need:
                self.chunk_bytes *= 2
            chunk = <char*>realloc(self.chunks[self.chunk_count - 1], self.chunk_bytes)
            if chunk == NULL:
                raise MemoryError
            self.chunks[self.chunk_count - 1] = chunk
        self.arena_top += units
        return place

    cdef void _give(self, uint32_t place, uint32_t length) noexcept nogil:
        """Back to the list of its size."""
        cdef uint32_t row
        units_of(length, &row)
        memcpy(self.arena_at(place), &self.free_blocks[row], sizeof(uint32_t))
        self.free_blocks[row] = place

    # Subjects by number and by text

    cdef uint32_t _new_subject(self) except 0:
        cdef uint32_t number = self.subject_free
        if number:
            self.subject_free = self.subjects[number].hash
            return number
        if self.subject_top >= self.subject_capacity:
            self._grow_subjects(8 if self.subject_capacity == 0 else self.subject_capacity * 2)
        if self.subject_top > SUBJECT_ID_MASK:
            raise OverflowError("a stream holds at most 1,073,741,823 subjects")
        self.subject_top += 1
        return self.subject_top - 1

    cdef int _grow_subjects(self, size_t capacity) except -1:
        cdef size_t had = self.subject_capacity
        cdef void* grown = pages_grow(self.tails, had, capacity)
        if grown == NULL:
            raise MemoryError
        self.tails = <uint8_t*>grown
        grown = pages_grow(self.nodes_of, had * sizeof(uint32_t), capacity * sizeof(uint32_t))
        if grown == NULL:
            raise MemoryError
        self.nodes_of = <uint32_t*>grown
        grown = pages_grow(self.subjects, had * sizeof(Subject), capacity * sizeof(Subject))
        if grown == NULL:
            raise MemoryError
        self.subjects = <Subject*>grown
        self.nodes_of[0] = NO_NODE
        self.subject_capacity = <uint32_t>capacity
        return 0

    cdef uint32_t find(self, const char* text, uint16_t text_len) noexcept nogil:
        """The subject's number, or 0."""
        cdef uint32_t tag = hash_text(text, text_len), at = tag & self.by_text.mask, number
        cdef uint64_t* slots = self.by_text.slots
        cdef uint32_t mask = self.by_text.mask
        while True:
            while slots[at]:
                number = <uint32_t>slots[at]
                if number and <uint32_t>(slots[at] >> 32) == tag and (
                    self.subjects[number].text_len == text_len
                    and memcmp(self.text_of(number), text, text_len) == 0
                ):
                    return number
                at = (at + 1) & mask
            if slots == self.by_text.old or self.by_text.old == NULL:
                return 0
            slots = self.by_text.old
            mask >>= 1
            at = tag & mask

    cdef uint32_t intern(self, const char* text, uint16_t text_len) except 0:
        """The number of a subject that is not there yet: without messages, in table and tree."""
        cdef uint32_t number = self._new_subject()
        self._fill(number, text, text_len, hash_text(text, text_len))
        self._hang(number)
        self._note_created(number)
        return number

    cdef int _fill(
        self, uint32_t number, const char* text, uint16_t text_len, uint32_t hash
    ) except -1:
        cdef uint32_t place
        cdef Subject* subject = &self.subjects[number]
        memset(subject, 0, sizeof(Subject))
        subject.text_len = text_len
        subject.hash = hash
        if text_len > TEXT_INSIDE:
            place = self._take(text_len)
            memcpy(subject.text, &place, sizeof(uint32_t))
        memcpy(self.text_of(number), text, text_len)
        table_put(&self.by_text, <uint64_t>hash << 32 | number)
        self.subject_count += 1
        return 0

    cdef void _note_created(self, uint32_t number) noexcept nogil:
        if self.created != NULL:
            self.created[self.created_total & self.created_mask] = number
        self.created_total += 1

    cdef int keep_created(self) except -1:
        """Remember more of the numbers given out; the ring follows the number of subjects."""
        cdef uint32_t capacity = CREATED_FIRST, old = self.created_mask + 1 if self.created else 0
        cdef uint32_t* created
        cdef uint32_t i
        while capacity < CREATED_MAX and capacity < self.subject_count // 8:
            capacity *= 2
        if capacity <= old:
            return 0
        created = <uint32_t*>malloc(capacity * sizeof(uint32_t))
        if created == NULL:
            raise MemoryError
        for i in range(1, <uint32_t>min(<uint64_t>old, self.created_total) + 1):
            created[(self.created_total - i) & (capacity - 1)] = (
                self.created[(self.created_total - i) & self.created_mask]
            )
        self.created_from = max(
            self.created_from, self.created_total - min(<uint64_t>old, self.created_total)
        )
        free(self.created)
        self.created = created
        self.created_mask = capacity - 1
        return 0

    cdef int keep_removed(self) except -1:
        """A larger ring of removals, because somebody did not ask often enough for this one."""
        cdef uint32_t capacity = (self.removed_mask + 1) * 4 if self.removed else REMOVED_FIRST
        if capacity > REMOVED_MAX:
            return 0
        # Whoever reads what was in the ring has to count anew.
        free(self.removed)
        self.removed = <Removal*>malloc(capacity * sizeof(Removal))
        if self.removed == NULL:
            raise MemoryError
        self.removed_mask = capacity - 1
        self.rewound += 1
        return 0

    cdef int drop(self, uint32_t number) except -1:
        """The subject has no message left: its number is free."""
        cdef Subject* subject = &self.subjects[number]
        self._unhang(number)
        table_remove(&self.by_text, subject.hash, number)
        if subject.text_len > TEXT_INSIDE:
            self._give(self.place_of(number), subject.text_len)
        subject.count = 0
        subject.text_len = 0
        self.dropped_total += 1
        self._chain_free(number)
        self.subject_count -= 1
        return 0

    cdef int place(self, uint32_t number, const char* text, uint16_t text_len) except -1:
        """While restoring: a subject under a number it had before, numbers rising."""
        cdef uint32_t given = 0
        while True:
            given = self._new_subject()
            self.subjects[given].count = 0
            self.subjects[given].text_len = 0
            self.nodes_of[given] = NO_NODE
            if given == number:
                break
        self._fill(number, text, text_len, hash_text(text, text_len))
        self._hang(number)
        self._note_created(number)
        return 0

    cdef int finish_places(self) except -1:
        """Numbers that `place` passed over become free."""
        cdef uint32_t number = self.subject_top
        while number > 1:
            number -= 1
            if self.subjects[number].text_len == 0:
                self._chain_free(number)
        return 0

    cdef void _chain_free(self, uint32_t number) noexcept nogil:
        """The number can be given out again."""
        self.subjects[number].hash = self.subject_free
        self.nodes_of[number] = NO_NODE
        self.subject_free = number

    cdef uint64_t memory_bytes(self) noexcept:
        cdef uint64_t total = <uint64_t>self.subject_capacity * sizeof(Subject)
        cdef uint32_t i
        total += <uint64_t>self.subject_capacity * 5 + <uint64_t>(self.by_text.mask + 1) * 8
        total += <uint64_t>self.node_capacity * sizeof(Node)
        total += <uint64_t>self.arena_top * ARENA_UNIT_BYTES
        for i in range(self.node_top):
            if self.nodes[i].children.slots != NULL:
                total += <uint64_t>(self.nodes[i].children.mask + 1) * 8 + 8
        return total

    # The tree of tokens

    cdef uint32_t _new_node(self) except 0:
        """A node's number + 1: the root is number 0."""
        cdef uint32_t number = self.node_free, capacity
        cdef Node* nodes
        if number:
            self.node_free = self.nodes[number].parent
        else:
            if self.node_top == self.node_capacity:
                capacity = 2 if self.node_capacity == 0 else self.node_capacity * 2
                nodes = <Node*>realloc(self.nodes, capacity * sizeof(Node))
                if nodes == NULL:
                    raise MemoryError
                self.nodes = nodes
                self.node_capacity = capacity
            number = self.node_top
            self.node_top += 1
        memset(&self.nodes[number], 0, sizeof(Node))
        return number + 1

    cdef bint _token_at(
        self, uint32_t reference, uint32_t start, const char* token, uint32_t token_len
    ) noexcept nogil:
        """Whether the first token of this child is `token`."""
        cdef const char* text
        cdef uint32_t length
        if reference & LEAF:
            reference &= SUBJECT_ID_MASK
            text = self.text_of(reference) + start
            length = self.subjects[reference].text_len - start
        else:
            text = self.arena_at(self.nodes[reference].label)
            length = self.nodes[reference].label_len
        if length < token_len or memcmp(text, token, token_len) != 0:
            return False
        return length == token_len or text[token_len] == 46

    cdef uint64_t* _child(
        self, Node* node, const char* token, uint32_t token_len, uint32_t tag
    ) noexcept nogil:
        """The slot of the child that begins with `token`, or NULL."""
        cdef Table* table = &node.children
        cdef uint64_t* slots = table.slots
        cdef uint32_t mask = table.mask, at, i
        if mask < CHILDREN_LISTED:
            for i in range(table.used):
                if <uint32_t>(slots[i] >> 32) == tag and self._token_at(
                    <uint32_t>slots[i], node.prefix_len, token, token_len
                ):
                    return &slots[i]
            return NULL
        while True:
            at = tag & mask
            while slots[at]:
                if <uint32_t>(slots[at] >> 32) == tag and <uint32_t>slots[at] and (
                    self._token_at(<uint32_t>slots[at], node.prefix_len, token, token_len)
                ):
                    return &slots[at]
                at = (at + 1) & mask
            if slots == table.old or table.old == NULL:
                return NULL
            slots = table.old
            mask >>= 1

    cdef int _hang(self, uint32_t number) except -1:
        cdef const char* text
        cdef uint32_t length = self.subjects[number].text_len, node = 0, start, reference, shared
        cdef uint32_t token_len
        cdef uint64_t* slot
        while True:
            text = self.text_of(number)
            start = self.nodes[node].prefix_len
            if start > length:
                return self._end_at(node, number)
            token_len = token_length(text + start, length - start)
            slot = self._child(
                &self.nodes[node], text + start, token_len, hash_text(text + start, token_len)
            )
            if slot == NULL:
                return self._hang_leaf(node, number)
            reference = <uint32_t>slot[0]
            if reference & LEAF:
                reference &= SUBJECT_ID_MASK
                shared = shared_tokens(
                    text + start, length - start,
                    self.text_of(reference) + start, self.subjects[reference].text_len - start,
                )
                node = self._split(node, slot, shared) - 1
            else:
                shared = shared_tokens(
                    text + start, length - start,
                    self.arena_at(self.nodes[reference].label), self.nodes[reference].label_len,
                )
                if shared < self.nodes[reference].label_len:
                    node = self._split(node, slot, shared) - 1
                else:
                    node = reference

    cdef int _end_at(self, uint32_t node, uint32_t number) except -1:
        """The subject is the tokens of `node` and no more."""
        self.nodes[node].subject = number
        self.nodes_of[number] = node
        self.tails[number] = TAIL_ENDED
        return 0

    cdef int _hang_leaf(self, uint32_t node, uint32_t number) except -1:
        """As a slot of `node`, or as the subject that ends there."""
        cdef uint32_t start = self.nodes[node].prefix_len, length = self.subjects[number].text_len
        cdef uint32_t token_len, reference = number | LEAF
        cdef const char* text = self.text_of(number)
        if start > length:
            return self._end_at(node, number)
        self.nodes_of[number] = node
        token_len = token_length(text + start, length - start)
        if start + token_len == length:
            reference |= ONE_TOKEN
            self.tails[number] = TAIL_NONE
        else:
            self._note_tail(number, text + start + token_len + 1, length - start - token_len - 1)
            text = self.text_of(number)
        return children_put(
            &self.nodes[node].children,
            <uint64_t>hash_text(text + start, token_len) << 32 | reference,
        )

    cdef int _note_tail(self, uint32_t number, const char* tail, uint32_t tail_len) except -1:
        """Name what follows a leaf's first token, so that `a.*.x` need not look at every text.

        The first tail with a given hash gets its name; a leaf with another one has none.
        """
        cdef uint32_t name = 1 + hash_text(tail, tail_len) % TAIL_NAMES, place
        self.tails[number] = TAIL_UNNAMED
        if self.tail_texts[name] == 0:
            place = self._take(tail_len)
            # `_take` may have moved the arena: the text is found anew.
            tail = self.text_of(number) + self.subjects[number].text_len - tail_len
            memcpy(self.arena_at(place), tail, tail_len)
            self.tail_texts[name] = place
            self.tail_lens[name] = <uint16_t>tail_len
        if self.tail_lens[name] == tail_len and (
            memcmp(self.arena_at(self.tail_texts[name]), tail, tail_len) == 0
        ):
            self.tails[number] = <uint8_t>name
        return 0

    cdef uint32_t _split(self, uint32_t node, uint64_t* slot, uint32_t shared) except 0:
        """Put a node of the first `shared` bytes between `node` and the child in `slot`."""
        cdef uint32_t child = <uint32_t>slot[0], middle, label, start = self.nodes[node].prefix_len
        cdef uint32_t rest, rest_len
        cdef const char* text
        middle = self._new_node() - 1
        label = self._take(shared)
        if child & LEAF:
            text = self.text_of(child & SUBJECT_ID_MASK) + start
        else:
            text = self.arena_at(self.nodes[child].label)
        memcpy(self.arena_at(label), text, shared)
        self.nodes[middle].label = label
        self.nodes[middle].label_len = <uint16_t>shared
        self.nodes[middle].prefix_len = <uint16_t>(start + shared + 1)
        self.nodes[middle].parent = node
        slot[0] = slot[0] & <uint64_t>0xFFFFFFFF00000000u | middle
        if child & LEAF:
            self.nodes[node].inner += 1
            self._hang_leaf(middle, child & SUBJECT_ID_MASK)
            return middle + 1
        self.nodes[middle].inner = 1
        rest_len = self.nodes[child].label_len - shared - 1
        rest = self._take(rest_len)
        text = self.arena_at(self.nodes[child].label)
        memcpy(self.arena_at(rest), text + shared + 1, rest_len)
        self._give(self.nodes[child].label, self.nodes[child].label_len)
        self.nodes[child].label = rest
        self.nodes[child].label_len = <uint16_t>rest_len
        self.nodes[child].parent = middle
        text = self.arena_at(rest)
        children_put(
            &self.nodes[middle].children,
            <uint64_t>hash_text(text, token_length(text, rest_len)) << 32 | child,
        )
        return middle + 1

    cdef int _unhang(self, uint32_t number) except -1:
        cdef uint32_t node = self.nodes_of[number], parent
        cdef uint32_t start = self.nodes[node].prefix_len, length = self.subjects[number].text_len
        cdef uint32_t reference = number | LEAF, token_len
        cdef const char* text = self.text_of(number)
        if self.nodes[node].subject == number:
            self.nodes[node].subject = 0
        else:
            token_len = token_length(text + start, length - start)
            if start + token_len == length:
                reference |= ONE_TOKEN
            children_remove(
                &self.nodes[node].children, hash_text(text + start, token_len), reference
            )
        while node and self.nodes[node].children.used == 0 and self.nodes[node].subject == 0:
            parent = self.nodes[node].parent
            text = self.arena_at(self.nodes[node].label)
            token_len = token_length(text, self.nodes[node].label_len)
            children_remove(&self.nodes[parent].children, hash_text(text, token_len), node)
            self.nodes[parent].inner -= 1
            self._give(self.nodes[node].label, self.nodes[node].label_len)
            table_free(&self.nodes[node].children)
            self.nodes[node].parent = self.node_free
            self.node_free = node
            node = parent
        return 0
