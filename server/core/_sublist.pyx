# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Who listens to what: the subscriptions of one account, found by subject.

A literal subject is one entry of a hash table; only subjects with wildcards are in the tree, whose
edges are one more table keyed by (parent, token). A match is therefore one look-up plus a walk that
visits each tree node at most once, and costs nothing for tokens no wildcard shares.

The subscriptions of one subject are a *set*: nothing, the only `Sub` itself, or a `Home` (marked
by its lowest bit) that keeps plain ones and each queue name in a `Bunch`. A Sub knows its bunch
and its place there, so removal never searches among its equals.

Ownership and how long a result may be read: see _sublist.pxd.
"""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from server.core._subject cimport (
    SUBJECT_INVALID,
    SUBJECT_LITERAL,
    subject_is_subset,
    subject_is_whole,
    subject_kind,
    subjects_overlap,
    token_end,
)
from server.core._table cimport (
    HashSeed,
    Slot,
    Table,
    hash_bytes,
    hash_fold,
    hash_seed,
    table_drop,
    table_first,
    table_free,
    table_next,
    table_put,
)

cdef enum:
    CACHE_ENTRIES_MAX = 1024
    CACHE_ENTRIES_SWEPT = 256
    CACHE_WEIGHT_MAX = 1 << 20  # members over all results: 8 MiB of pointers
    BLOCK_BYTES_KEPT = 1024  # a retired result keeps its memory up to this size


# Subscriptions of one subject that share a queue name, or have none.
cdef struct Bunch:
    Sub** members
    uint32_t count
    uint32_t capacity
    uint64_t hash


cdef struct Home:
    Sub* any  # one of the members; its subject is the key of the home
    Bunch plain
    Table queues  # queue name -> Bunch
    uint32_t queued


cdef struct Live:
    uint64_t subs, nodes, homes, bunches, results

cdef Live live


cdef int out_of_memory() except -1 nogil:
    with gil:
        raise MemoryError("no memory for subscriptions")


# --- one subscription

cdef Sub* sub_new(
    void* sink,
    const char* subject, size_t subject_len,
    const char* queue, size_t queue_len,
    const char* sid, size_t sid_len,
) noexcept nogil:
    cdef Sub* sub = <Sub*> malloc(sizeof(Sub) + subject_len + queue_len + sid_len + 3)
    cdef char* text
    if sub == NULL:
        return NULL
    memset(sub, 0, sizeof(Sub))
    text = <char*> (sub + 1)
    sub.sink = sink
    sub.sid = text
    sub.sid_len = <uint32_t> sid_len
    text = append_text(text, sid, sid_len)
    sub.subject = text
    sub.subject_len = <uint32_t> subject_len
    text = append_text(text, subject, subject_len)
    if queue_len:
        sub.queue = text
        sub.queue_len = <uint32_t> queue_len
    append_text(text, queue, queue_len)
    live.subs += 1
    return sub


cdef inline char* append_text(char* at, const char* text, size_t length) noexcept nogil:
    if length:
        memcpy(at, text, length)
    at[length] = 0
    return at + length + 1


cdef void sub_free(Sub* sub) noexcept nogil:
    if sub != NULL:
        live.subs -= 1
        free(sub)


# --- the set of one subject's subscriptions

cdef inline Home* home_of(void* subs) noexcept nogil:
    if <uintptr_t> subs & 1:
        return <Home*> (<uintptr_t> subs - 1)
    return NULL


cdef inline Sub* any_of(void* subs) noexcept nogil:
    cdef Home* home = home_of(subs)
    return <Sub*> subs if home == NULL else home.any


cdef inline bint same_queue(const Sub* a, const Sub* b) noexcept nogil:
    return a.queue_len == b.queue_len and memcmp(a.queue, b.queue, a.queue_len) == 0


cdef int bunch_add(Bunch* bunch, Sub* sub) noexcept nogil:
    cdef uint32_t capacity
    cdef Sub** members
    if bunch.count == bunch.capacity:
        capacity = bunch.capacity + bunch.capacity // 2 + 2
        members = <Sub**> realloc(bunch.members, capacity * sizeof(Sub*))
        if members == NULL:
            return -1
        bunch.members = members
        bunch.capacity = capacity
    sub.bunch = bunch
    sub.index = bunch.count
    bunch.members[bunch.count] = sub
    bunch.count += 1
    return 0


cdef void bunch_remove(Bunch* bunch, Sub* sub) noexcept nogil:
    cdef Sub* last
    cdef Sub** members
    bunch.count -= 1
    last = bunch.members[bunch.count]
    bunch.members[sub.index] = last
    last.index = sub.index
    sub.bunch = NULL
    if bunch.count == 0:
        free(bunch.members)
        bunch.members = NULL
        bunch.capacity = 0
    elif bunch.count < bunch.capacity // 4:
        members = <Sub**> realloc(bunch.members, bunch.capacity // 2 * sizeof(Sub*))
        if members != NULL:
            bunch.members = members
            bunch.capacity //= 2


cdef Slot* find_queue(Home* home, const Sub* sub, uint64_t h) noexcept nogil:
    cdef Slot* slot = table_first(&home.queues, h)
    while slot != NULL and slot.item != NULL:
        if slot.hash == h and same_queue((<Bunch*> slot.item).members[0], sub):
            return slot
        slot = table_next(&home.queues, slot)
    return NULL


cdef int home_add(Home* home, Sub* sub, HashSeed seed) noexcept nogil:
    cdef uint64_t h
    cdef Slot* slot
    cdef Bunch* bunch
    if sub.queue_len == 0:
        return bunch_add(&home.plain, sub)
    h = hash_bytes(sub.queue, sub.queue_len, seed)
    slot = find_queue(home, sub, h)
    if slot != NULL:
        if bunch_add(<Bunch*> slot.item, sub):
            return -1
    else:
        bunch = <Bunch*> calloc(1, sizeof(Bunch))
        if bunch == NULL or bunch_add(bunch, sub) or table_put(&home.queues, h, bunch):
            if bunch != NULL:
                free(bunch.members)
            free(bunch)
            sub.bunch = NULL
            return -1
        bunch.hash = h
        live.bunches += 1
    home.queued += 1
    return 0


cdef void home_remove(Home* home, Sub* sub) noexcept nogil:
    cdef Bunch* bunch = sub.bunch
    cdef Slot* slot
    bunch_remove(bunch, sub)
    if bunch != &home.plain:
        home.queued -= 1
        if bunch.count == 0:
            slot = table_first(&home.queues, bunch.hash)
            while slot.item != bunch:
                slot = table_next(&home.queues, slot)
            table_drop(&home.queues, slot)
            free(bunch)
            live.bunches -= 1
    if home.any == sub:
        if home.plain.count:
            home.any = home.plain.members[0]
        elif home.queued:
            slot = home.queues.slots
            while slot.item == NULL:
                slot += 1
            home.any = (<Bunch*> slot.item).members[0]


cdef void home_free(Home* home) noexcept nogil:
    cdef size_t at
    cdef Bunch* bunch
    if home.queues.slots != NULL:
        for at in range(home.queues.mask + 1):
            bunch = <Bunch*> home.queues.slots[at].item
            if bunch != NULL:
                free(bunch.members)
                free(bunch)
                live.bunches -= 1
    table_free(&home.queues)
    free(home.plain.members)
    free(home)
    live.homes -= 1


cdef int set_add(void** subs, Sub* sub, HashSeed seed) noexcept nogil:
    cdef Home* home = home_of(subs[0])
    cdef Sub* only = <Sub*> subs[0]
    if only == NULL:
        subs[0] = sub
        return 0
    if home != NULL:
        return home_add(home, sub, seed)
    home = <Home*> calloc(1, sizeof(Home))
    if home == NULL:
        return -1
    live.homes += 1
    if home_add(home, only, seed) or home_add(home, sub, seed):
        only.bunch = sub.bunch = NULL
        home_free(home)
        return -1
    home.any = only
    subs[0] = <void*> (<uintptr_t> home + 1)
    return 0


# True if `sub` was in the set.
cdef bint set_remove(void** subs, Sub* sub) noexcept nogil:
    cdef Home* home = home_of(subs[0])
    if home == NULL:
        if subs[0] != sub:
            return False
        subs[0] = NULL
        return True
    if sub.bunch == NULL:
        return False
    home_remove(home, sub)
    if home.plain.count + home.queued == 0:
        home_free(home)
        subs[0] = NULL
    return True


cdef inline void set_count(void* subs, size_t* plain, size_t* queued) noexcept nogil:
    cdef Home* home = home_of(subs)
    if home != NULL:
        plain[0] += home.plain.count
        queued[0] += home.queued
    elif (<Sub*> subs).queue_len:
        queued[0] += 1
    else:
        plain[0] += 1


# --- the collection of sets

@cython.final
cdef class Sublist:
    def __cinit__(self, *, bint cache=True, uint64_t seed=0):
        self.seed = hash_seed(seed)
        self.cache_enabled = cache
        self.root = <Node*> calloc(1, sizeof(Node))
        if self.root == NULL:
            raise MemoryError
        self.root.hash = self.seed.one

    def __dealloc__(self):
        cdef MatchResult* result
        cdef size_t at
        cdef Node* node
        for at in range(self.literals.mask + 1 if self.literals.slots != NULL else 0):
            if home_of(self.literals.slots[at].item) != NULL:
                home_free(home_of(self.literals.slots[at].item))
        for at in range(self.edges.mask + 1 if self.edges.slots != NULL else 0):
            node = <Node*> self.edges.slots[at].item
            if node != NULL:
                if home_of(node.subs) != NULL:
                    home_free(home_of(node.subs))
                live.nodes -= 1
                free(node)
        while self.results != NULL:
            result = self.results
            self.results = result.older
            free(result.block)
            free(result)
            live.results -= 1
        table_free(&self.literals)
        table_free(&self.edges)
        table_free(&self.names)
        table_free(&self.cached)
        free(self.frames)
        free(self.hits)
        free(self.pooled)
        free(self.root)

    cdef int insert(self, Sub* sub) except -1 nogil:
        cdef int kind = subject_kind(sub.subject, sub.subject_len)
        cdef Slot* slot
        cdef Node* node
        if kind == SUBJECT_INVALID:
            return 1
        if sub.inserted:
            inserted_twice()
        self.reclaim()
        if kind == SUBJECT_LITERAL:
            sub.hash = hash_bytes(sub.subject, sub.subject_len, self.seed)
            slot = self.literal(sub.subject, sub.subject_len, sub.hash)
            if slot == NULL:
                if table_put(&self.literals, sub.hash, sub):
                    out_of_memory()
            elif set_add(&slot.item, sub, self.seed):
                out_of_memory()
            self.forget_literal(sub)
        else:
            node = self.grow(sub.subject, sub.subject_len)
            if set_add(&node.subs, sub, self.seed):
                self.prune(node)
                out_of_memory()
            self.forget_wildcard(sub)
        sub.inserted = kind
        self.subscriptions += 1
        self.inserts += 1
        self.generation += 1
        return 0

    cdef int remove(self, Sub* sub) except -1 nogil:
        cdef Slot* slot
        cdef Node* node
        if not sub.inserted:
            return 1
        self.reclaim()
        if sub.inserted == SUBJECT_LITERAL:
            slot = self.literal(sub.subject, sub.subject_len, sub.hash)
            if slot == NULL or not set_remove(&slot.item, sub):
                return 1
            if slot.item == NULL:
                # A slot without an item ends a search: give it one again for the drop.
                slot.item = sub
                table_drop(&self.literals, slot)
            self.forget_literal(sub)
        else:
            node = self.reach(sub.subject, sub.subject_len)
            if node == NULL or not set_remove(&node.subs, sub):
                return 1
            self.prune(node)
            self.forget_wildcard(sub)
        sub.inserted = 0
        self.subscriptions -= 1
        self.removes += 1
        self.generation += 1
        return 0

    cdef MatchResult* match(self, const char* subject, size_t length) except NULL nogil:
        cdef uint64_t h = hash_bytes(subject, length, self.seed)
        cdef Slot* slot = self.remembered(subject, length, h)
        cdef MatchResult* result
        self.matches += 1
        if slot == NULL:
            return self.fill(subject, length, h)
        self.cache_hits += 1
        result = <MatchResult*> slot.item
        result.used = 1
        return result

    cdef bint has_interest(self, const char* subject, size_t length) except -1 nogil:
        return self.count_interest(subject, length, NULL, NULL)

    cdef int count_interest(
        self, const char* subject, size_t length, size_t* plain, size_t* queued
    ) except -1 nogil:
        cdef size_t at, plain_count = 0, queued_count = 0
        self.hit_count = 0
        if subject_is_whole(subject, length):
            self.find(subject, length, hash_bytes(subject, length, self.seed))
        for at in range(self.hit_count):
            set_count(self.hits[at], &plain_count, &queued_count)
        if plain != NULL:
            plain[0] = plain_count
        if queued != NULL:
            queued[0] = queued_count
        return 1 if self.hit_count else 0

    cdef bint overlaps(self, const char* subject, size_t length) noexcept nogil:
        cdef size_t at
        cdef Sub* sub
        if subject_kind(subject, length) == SUBJECT_INVALID:
            return False
        for at in range(self.literals.mask + 1 if self.literals.count else 0):
            sub = any_of(self.literals.slots[at].item)
            if sub != NULL and subjects_overlap(subject, length, sub.subject, sub.subject_len):
                return True
        for at in range(self.edges.mask + 1 if self.edges.count else 0):
            sub = node_sub(<Node*> self.edges.slots[at].item)
            if sub != NULL and subjects_overlap(subject, length, sub.subject, sub.subject_len):
                return True
        return False

    cdef bint covers(self, const char* subject, size_t length) except -1 nogil:
        cdef size_t at
        cdef Sub* sub
        cdef int kind = subject_kind(subject, length)
        if kind == SUBJECT_INVALID:
            return False
        if kind == SUBJECT_LITERAL:
            return self.has_interest(subject, length)
        for at in range(self.edges.mask + 1 if self.edges.count else 0):
            sub = node_sub(<Node*> self.edges.slots[at].item)
            if sub != NULL and subject_is_subset(subject, length, sub.subject, sub.subject_len):
                return True
        return False

    # --- making a result

    cdef MatchResult* fill(self, const char* subject, size_t length, uint64_t h) except NULL nogil:
        cdef MatchResult* result
        cdef bint whole = subject_is_whole(subject, length)
        self.reclaim()
        self.hit_count = 0
        if whole:
            self.find(subject, length, h)
        result = self.take()
        result.hash = h
        if self.build(result, subject, length) < 0:
            self.retire(result)
            out_of_memory()
        if whole and self.cache_enabled:
            self.remember(result)
        else:
            self.retire(result)
        return result

    # Leaves in `hits` every set whose subject matches.
    cdef int find(self, const char* subject, size_t length, uint64_t h) except -1 nogil:
        cdef Slot* slot = self.literal(subject, length, h)
        self.hit_count = 0
        if slot != NULL:
            self.hit(slot.item)
        if self.edges.count:
            self.walk(subject, length)
        return 0

    # At most one frame for each level of the tree waits: `frames` grew with the tree.
    cdef int walk(self, const char* subject, size_t length) except -1 nogil:
        cdef size_t at, end, waiting = 0
        cdef Node* node = self.root
        cdef Node* plain
        at = 0
        while True:
            if node.full != NULL:
                self.hit(node.full.subs)
            if node.star == NULL and node.children == 0:
                plain = node = NULL
            else:
                end = token_end(subject, length, at)
                plain = self.child(node, subject + at, end - at) if node.children else NULL
                node = node.star
                if end == length:
                    if node != NULL:
                        self.hit(node.subs)
                    if plain != NULL:
                        self.hit(plain.subs)
                    plain = node = NULL
                else:
                    at = end + 1
            if plain != NULL:
                if node != NULL:
                    self.frames[waiting].node = node
                    self.frames[waiting].at = at
                    waiting += 1
                node = plain
            elif node == NULL:
                if waiting == 0:
                    return 0
                waiting -= 1
                node = self.frames[waiting].node
                at = self.frames[waiting].at

    cdef int hit(self, void* subs) except -1 nogil:
        cdef void** hits
        if subs == NULL:
            return 0
        if self.hit_count == self.hits_max:
            hits = <void**> realloc(self.hits, (self.hits_max * 2 + 16) * sizeof(void*))
            if hits == NULL:
                out_of_memory()
            self.hits = hits
            self.hits_max = self.hits_max * 2 + 16
        self.hits[self.hit_count] = subs
        self.hit_count += 1
        return 0

    # Lays the members of all hits out in one block: groups, members, subject. -1: no memory.
    cdef int build(
        self, MatchResult* result, const char* subject, size_t length
    ) noexcept nogil:
        cdef size_t plain = 0, queued = 0, at, size
        cdef QueueGroup* groups
        cdef Sub** members
        cdef char* text
        for at in range(self.hit_count):
            set_count(self.hits[at], &plain, &queued)
        if queued and self.count_groups() < 0:
            return -1
        size = self.names.count * sizeof(QueueGroup) + (plain + queued) * sizeof(Sub*) + length + 1
        if size > result.block_size:
            free(result.block)
            result.block = malloc(size)
            result.block_size = size if result.block != NULL else 0
            if result.block == NULL:
                table_free(&self.names)
                return -1
        groups = <QueueGroup*> result.block
        result.plain = members = <Sub**> (groups + self.names.count)
        text = <char*> (members + plain + queued)
        memcpy(text, subject, length)
        text[length] = 0
        result.subject = text
        result.subject_len = <uint32_t> length
        result.groups = groups
        result.group_count = <uint32_t> self.names.count
        result.plain_count = <uint32_t> plain
        result.weight = <uint32_t> (plain + queued)
        members += plain
        for at in range(self.names.count):
            groups[at] = self.pooled[at]
            groups[at].members = members
            members += groups[at].count
            groups[at].count = 0
        self.place(result)
        if self.names.slots != NULL:
            table_free(&self.names)
        return 0

    # How many members each queue name has over all hits, in `pooled`.
    cdef int count_groups(self) noexcept nogil:
        cdef size_t at, slot
        cdef Home* home
        cdef Bunch* bunch
        cdef Sub* sub
        for at in range(self.hit_count):
            home = home_of(self.hits[at])
            if home == NULL:
                sub = <Sub*> self.hits[at]
                if sub.queue_len and self.pool(sub, 1) == NULL:
                    return -1
            elif home.queued:
                for slot in range(home.queues.mask + 1):
                    bunch = <Bunch*> home.queues.slots[slot].item
                    if bunch != NULL and self.pool(bunch.members[0], bunch.count) == NULL:
                        return -1
        return 0

    # The entry of this member's queue name, made if needed, with `more` added to its count.
    cdef QueueGroup* pool(self, Sub* member, uint32_t more) noexcept nogil:
        cdef uint64_t h = hash_bytes(member.queue, member.queue_len, self.seed)
        cdef Slot* slot = table_first(&self.names, h)
        cdef QueueGroup* group
        cdef uint32_t size
        while slot != NULL and slot.item != NULL:
            group = &self.pooled[<uintptr_t> slot.item - 1]
            if (
                slot.hash == h
                and group.name_len == member.queue_len
                and memcmp(group.name, member.queue, member.queue_len) == 0
            ):
                group.count += more
                return group
            slot = table_next(&self.names, slot)
        if self.names.count == self.pooled_max:
            size = self.pooled_max * 2 + 8
            group = <QueueGroup*> realloc(self.pooled, size * sizeof(QueueGroup))
            if group == NULL:
                return NULL
            self.pooled = group
            self.pooled_max = size
        group = &self.pooled[self.names.count]
        group.name = member.queue
        group.name_len = member.queue_len
        group.count = more
        if table_put(&self.names, h, <void*> (<uintptr_t> self.names.count + 1)):
            return NULL
        return group

    # Puts every member of every hit into its array of `result`.
    cdef void place(self, MatchResult* result) noexcept nogil:
        cdef size_t at, slot
        cdef uint32_t plain = 0
        cdef Home* home
        cdef Sub* sub
        for at in range(self.hit_count):
            home = home_of(self.hits[at])
            if home == NULL:
                sub = <Sub*> self.hits[at]
                if sub.queue_len:
                    self.place_queued(result, &sub, 1)
                else:
                    result.plain[plain] = sub
                    plain += 1
                continue
            if home.plain.count:
                memcpy(result.plain + plain, home.plain.members, home.plain.count * sizeof(Sub*))
                plain += home.plain.count
            if home.queued:
                for slot in range(home.queues.mask + 1):
                    if home.queues.slots[slot].item != NULL:
                        self.place_queued(
                            result,
                            (<Bunch*> home.queues.slots[slot].item).members,
                            (<Bunch*> home.queues.slots[slot].item).count,
                        )

    cdef void place_queued(self, MatchResult* result, Sub** members, uint32_t count) noexcept nogil:
        cdef QueueGroup* group = &result.groups[self.pool(members[0], 0) - self.pooled]
        memcpy(group.members + group.count, members, count * sizeof(Sub*))
        group.count += count

    # --- the tree of subjects with wildcards

    cdef Node* child(self, Node* parent, const char* token, size_t length) noexcept nogil:
        cdef uint64_t h = hash_fold(
            parent.hash ^ hash_bytes(token, length, self.seed), self.seed.two
        )
        cdef Slot* slot = table_first(&self.edges, h)
        cdef Node* node
        while slot != NULL and slot.item != NULL:
            node = <Node*> slot.item
            if (
                slot.hash == h
                and node.parent == parent
                and node.token_len == length
                and memcmp(<char*> (node + 1), token, length) == 0
            ):
                return node
            slot = table_next(&self.edges, slot)
        return NULL

    cdef Node* step(self, Node* node, const char* token, size_t length) noexcept nogil:
        if length == 1 and token[0] == c"*":
            return node.star
        if length == 1 and token[0] == c">":
            return node.full
        return self.child(node, token, length)

    # The node of a subject, or NULL.
    cdef Node* reach(self, const char* subject, size_t length) noexcept nogil:
        cdef Node* node = self.root
        cdef size_t at = 0, end
        while node != NULL:
            end = token_end(subject, length, at)
            node = self.step(node, subject + at, end - at)
            if end == length:
                return node
            at = end + 1
        return NULL

    # The node of a subject, made with those on the way if needed.
    cdef Node* grow(self, const char* subject, size_t length) except NULL nogil:
        cdef Node* node = self.root
        cdef Node* below
        cdef Frame* frames
        cdef size_t at = 0, end, depth = 0
        while True:
            end = token_end(subject, length, at)
            below = self.step(node, subject + at, end - at)
            if below == NULL:
                below = self.sprout(node, subject + at, end - at)
            depth += 1
            if below != NULL and depth >= self.frames_max:
                frames = <Frame*> realloc(self.frames, (depth * 2 + 8) * sizeof(Frame))
                if frames != NULL:
                    self.frames = frames
                    self.frames_max = depth * 2 + 8
                else:
                    node = below
                    below = NULL
            if below == NULL:
                self.prune(node)
                out_of_memory()
            node = below
            if end == length:
                return node
            at = end + 1

    # A new node below `parent`; NULL: no memory.
    cdef Node* sprout(self, Node* parent, const char* token, size_t length) noexcept nogil:
        cdef bint wild = length == 1 and (token[0] == c"*" or token[0] == c">")
        cdef Node* node = <Node*> calloc(1, sizeof(Node) + length)
        if node == NULL:
            return NULL
        node.parent = parent
        node.token_len = 0 if wild else <uint32_t> length
        memcpy(<char*> (node + 1), token, length)
        node.hash = hash_fold(parent.hash ^ hash_bytes(token, length, self.seed), self.seed.two)
        if table_put(&self.edges, node.hash, node):
            free(node)
            return NULL
        live.nodes += 1
        if not wild:
            parent.children += 1
        elif token[0] == c"*":
            parent.star = node
        else:
            parent.full = node
        return node

    # Removes a node that holds nothing, and then its parents as long as they hold nothing.
    cdef void prune(self, Node* node) noexcept nogil:
        cdef Node* parent
        cdef Slot* slot
        while (
            node != self.root
            and node.subs == NULL
            and node.children == 0
            and node.star == NULL
            and node.full == NULL
        ):
            parent = node.parent
            slot = table_first(&self.edges, node.hash)
            while slot.item != node:
                slot = table_next(&self.edges, slot)
            table_drop(&self.edges, slot)
            if parent.star == node:
                parent.star = NULL
            elif parent.full == node:
                parent.full = NULL
            else:
                parent.children -= 1
            free(node)
            live.nodes -= 1
            node = parent

    cdef Slot* literal(self, const char* subject, size_t length, uint64_t h) noexcept nogil:
        cdef Slot* slot = table_first(&self.literals, h)
        cdef Sub* sub
        while slot != NULL and slot.item != NULL:
            if slot.hash == h:
                sub = any_of(slot.item)
                if sub.subject_len == length and memcmp(sub.subject, subject, length) == 0:
                    return slot
            slot = table_next(&self.literals, slot)
        return NULL

    # --- the cache of results

    cdef Slot* remembered(self, const char* subject, size_t length, uint64_t h) noexcept nogil:
        cdef Slot* slot = table_first(&self.cached, h)
        cdef MatchResult* result
        while slot != NULL and slot.item != NULL:
            if slot.hash == h:
                result = <MatchResult*> slot.item
                if result.subject_len == length and memcmp(result.subject, subject, length) == 0:
                    return slot
            slot = table_next(&self.cached, slot)
        return NULL

    # Without memory for the entry the result is good for this once.
    cdef void remember(self, MatchResult* result) noexcept nogil:
        cdef uint8_t bucket = self.bucket(result.subject, result.subject_len)
        self.sweep(result.weight)
        if table_put(&self.cached, result.hash, result):
            self.retire(result)
            return
        self.stamps += 1
        result.stamp = self.stamps
        result.used = 0
        result.bucket = bucket
        result.prev = NULL
        result.next = self.buckets[bucket]
        if result.next != NULL:
            result.next.prev = result
        self.buckets[bucket] = result
        self.weight += result.weight

    cdef uint8_t bucket(self, const char* subject, size_t length) noexcept nogil:
        return hash_bytes(subject, token_end(subject, length, 0), self.seed) & 63

    cdef void forget(self, MatchResult* result) noexcept nogil:
        cdef Slot* slot = table_first(&self.cached, result.hash)
        while slot.item != result:
            slot = table_next(&self.cached, slot)
        table_drop(&self.cached, slot)
        if result.prev != NULL:
            result.prev.next = result.next
        else:
            self.buckets[result.bucket] = result.next
        if result.next != NULL:
            result.next.prev = result.prev
        self.weight -= result.weight
        self.retire(result)

    cdef void forget_literal(self, Sub* sub) noexcept nogil:
        cdef Slot* slot = self.remembered(sub.subject, sub.subject_len, sub.hash)
        if slot != NULL:
            self.forget(<MatchResult*> slot.item)

    # Each result that goes was filled once: this costs a match, not an insert, its time.
    cdef void forget_wildcard(self, Sub* sub) noexcept nogil:
        cdef size_t end = token_end(sub.subject, sub.subject_len, 0)
        cdef uint8_t bucket
        if end == 1 and (sub.subject[0] == c"*" or sub.subject[0] == c">"):
            self.forget_all()
            return
        bucket = self.bucket(sub.subject, sub.subject_len)
        while self.buckets[bucket] != NULL:
            self.forget(self.buckets[bucket])

    cdef void forget_all(self) noexcept nogil:
        cdef size_t bucket
        for bucket in range(64):
            while self.buckets[bucket] != NULL:
                self.forget(self.buckets[bucket])

    # Makes room when the cache is full: first what was not used since the last sweep.
    cdef void sweep(self, uint32_t coming) noexcept nogil:
        cdef size_t bucket, turn
        cdef MatchResult* result
        cdef MatchResult* after
        if (
            self.cached.count < CACHE_ENTRIES_MAX
            and self.weight + coming <= CACHE_WEIGHT_MAX
        ):
            return
        for turn in range(2):
            for bucket in range(64):
                result = self.buckets[bucket]
                while result != NULL:
                    if (
                        self.cached.count < CACHE_ENTRIES_SWEPT
                        and self.weight + coming <= CACHE_WEIGHT_MAX // 2
                    ):
                        return
                    after = result.next
                    if result.used:
                        result.used = 0
                    else:
                        self.forget(result)
                    result = after

    # From here on invalid, but its members stay as they are until nothing is pinned.
    cdef void retire(self, MatchResult* result) noexcept nogil:
        result.stamp = 0
        result.next = self.retired
        self.retired = result

    cdef inline void reclaim(self) noexcept nogil:
        cdef MatchResult* result
        while self.retired != NULL and self.pins == 0:
            result = self.retired
            self.retired = result.next
            if result.block_size > BLOCK_BYTES_KEPT:
                free(result.block)
                result.block = NULL
                result.block_size = 0
            result.next = self.spare
            self.spare = result

    cdef MatchResult* take(self) except NULL nogil:
        cdef MatchResult* result = self.spare
        if result != NULL:
            self.spare = result.next
            return result
        result = <MatchResult*> calloc(1, sizeof(MatchResult))
        if result == NULL:
            out_of_memory()
        result.older = self.results
        self.results = result
        live.results += 1
        return result

    # --- looking at all of them

    cdef size_t gather(
        self, Sub** out, size_t limit, size_t skip, const char* test, size_t test_len
    ) noexcept nogil:
        cdef Page page
        cdef size_t at
        cdef Node* node
        page.out = out
        page.limit = limit
        page.skip = skip
        page.count = 0
        page.test = test
        page.test_len = test_len
        for at in range(self.literals.mask + 1 if self.literals.count else 0):
            page_set(&page, self.literals.slots[at].item)
        for at in range(self.edges.mask + 1 if self.edges.count else 0):
            node = <Node*> self.edges.slots[at].item
            if node != NULL:
                page_set(&page, node.subs)
        return page.count

    # --- for Python rooms and tests

    def __len__(self) -> int:
        return self.subscriptions

    def add(self, bytes subject, bytes queue=b"", bytes sid=b""):
        return Held(self, subject, queue, sid)

    def matching(self, bytes subject):
        cdef MatchResult* result = self.match(subject, len(subject))
        return members_of(result)

    def keep(self, bytes subject):
        return Kept.__new__(Kept, self, subject)

    def interested(self, bytes subject):
        return bool(self.has_interest(subject, len(subject)))

    def interest(self, bytes subject):
        cdef size_t plain, queued
        self.count_interest(subject, len(subject), &plain, &queued)
        return plain, queued

    def overlapping(self, bytes subject):
        return bool(self.overlaps(subject, len(subject)))

    def covering(self, bytes subject):
        return bool(self.covers(subject, len(subject)))

    def total(self, bytes test=b""):
        return self.gather(NULL, self.subscriptions, 0, test, len(test))

    def listing(self, size_t limit, size_t skip=0, bytes test=b""):
        cdef size_t count = min(limit, self.subscriptions), at
        cdef Sub** out = <Sub**> malloc((count + 1) * sizeof(Sub*))
        if out == NULL:
            raise MemoryError
        try:
            count = self.gather(out, count, skip, test, len(test))
            return [(subject_of(out[at]), queue_of(out[at]), sid_of(out[at])) for at in range(count)]
        finally:
            free(out)

    def stats(self):
        cdef uint64_t total = 0, largest = 0, fanout
        cdef size_t bucket
        cdef MatchResult* result
        for bucket in range(64):
            result = self.buckets[bucket]
            while result != NULL:
                fanout = result.plain_count + result.group_count
                total += fanout
                largest = max(largest, fanout)
                result = result.next
        return {
            "num_subscriptions": self.subscriptions,
            "num_cache": self.cached.count,
            "num_inserts": self.inserts,
            "num_removes": self.removes,
            "num_matches": self.matches,
            "cache_hits": self.cache_hits,
            "max_fanout": largest,
            "total_fanout": total,
        }

    def sizes(self):
        return {
            "literals": self.literals.count,
            "nodes": self.edges.count,
            "cached": self.cached.count,
            "cached_members": self.weight,
        }


cdef int inserted_twice() except -1 nogil:
    with gil:
        raise RuntimeError("this subscription is in a subject trie already")


cdef inline Sub* node_sub(Node* node) noexcept nogil:
    return NULL if node == NULL else any_of(node.subs)


cdef struct Page:
    Sub** out
    size_t limit, skip, count
    const char* test
    size_t test_len


cdef void page_set(Page* page, void* subs) noexcept nogil:
    cdef Home* home = home_of(subs)
    cdef Sub* sub = any_of(subs)
    cdef size_t slot
    cdef Bunch* bunch
    if sub == NULL or page.count == page.limit:
        return
    if page.test_len and not subject_is_subset(
        page.test, page.test_len, sub.subject, sub.subject_len
    ):
        return
    if home == NULL:
        page_members(page, &sub, 1)
        return
    page_members(page, home.plain.members, home.plain.count)
    for slot in range(home.queues.mask + 1 if home.queued else 0):
        bunch = <Bunch*> home.queues.slots[slot].item
        if bunch != NULL:
            page_members(page, bunch.members, bunch.count)


cdef void page_members(Page* page, Sub** members, size_t count) noexcept nogil:
    cdef size_t skipped = min(page.skip, count)
    cdef size_t taken = min(count - skipped, page.limit - page.count)
    page.skip -= skipped
    if taken and page.out != NULL:
        memcpy(page.out + page.count, members + skipped, taken * sizeof(Sub*))
    page.count += taken


# --- handles for Python

cdef inline bytes subject_of(Sub* sub):
    return sub.subject[:sub.subject_len]


cdef inline bytes queue_of(Sub* sub):
    return sub.queue[:sub.queue_len] if sub.queue_len else b""


cdef inline bytes sid_of(Sub* sub):
    return sub.sid[:sub.sid_len]


cdef members_of(MatchResult* result):
    cdef uint32_t at, member
    cdef QueueGroup* group
    groups = {}
    for at in range(result.group_count):
        group = &result.groups[at]
        groups[group.name[:group.name_len]] = [
            sid_of(group.members[member]) for member in range(group.count)
        ]
    return [sid_of(result.plain[at]) for at in range(result.plain_count)], groups


cdef class Held:
    """A subscription that Python made; it leaves with the handle at the latest."""

    cdef Sublist home
    cdef Sub* sub

    def __cinit__(self, Sublist home, bytes subject, bytes queue, bytes sid):
        self.home = home
        self.sub = sub_new(NULL, subject, len(subject), queue, len(queue), sid, len(sid))
        if self.sub == NULL:
            raise MemoryError
        if home.insert(self.sub):
            raise ValueError(f"not a valid subject: {subject!r}")

    def __dealloc__(self):
        if self.sub != NULL:
            if self.sub.inserted:
                self.home.remove(self.sub)
            sub_free(self.sub)

    def remove(self):
        return self.home.remove(self.sub) == 0


cdef class Kept:
    """A result kept as a connection keeps its last match: the pointer and the stamp it had."""

    cdef Sublist home
    cdef MatchResult* result
    cdef uint64_t stamp

    def __cinit__(self, Sublist home, bytes subject):
        self.home = home
        self.result = home.match(subject, len(subject))
        self.stamp = self.result.stamp

    def valid(self):
        return bool(match_is_valid(self.result, self.stamp))

    def members(self):
        return members_of(self.result)


def live_structures():
    """How many C structures exist in this process; a test's leak counter."""
    return {
        "subs": live.subs,
        "nodes": live.nodes,
        "homes": live.homes,
        "bunches": live.bunches,
        "results": live.results,
    }
