# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Who listens to what: the subscriptions of one account, found by subject.

A literal subject is one entry of a hash table; only subjects with wildcards are in the tree, whose
edges are one more table keyed by (parent, token). A match is therefore one look-up plus a walk that
visits each tree node at most once, and costs nothing for tokens no wildcard shares.

Ownership and how long a result may be read: see _sublist.pxd. The subscriptions of one subject are a
set of _subs.pxd; results are remembered by _matchcache.pxd.
"""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy

from server.core._matchcache cimport (
    CACHE_BUCKETS,
    MatchResult,
    QueueGroup,
    cache_add,
    cache_find,
    cache_forget,
    cache_forget_all,
    cache_forget_bucket,
    cache_free,
    cache_reclaim,
    cache_retire,
    cache_take,
    match_is_valid,
)
from server.core._subject cimport (
    SUBJECT_INVALID,
    SUBJECT_LITERAL,
    subject_is_subset,
    subject_is_whole,
    subject_kind,
    subjects_overlap,
    token_end,
)
from server.core._subs cimport (
    Bunch,
    Home,
    Sub,
    any_of,
    home_of,
    set_add,
    set_count,
    set_free,
    set_remove,
    sub_free,
    sub_new,
)
from server.core._table cimport (
    Slot,
    hash_bytes,
    hash_fold,
    hash_seed,
    table_drop,
    table_first,
    table_free,
    table_next,
    table_put,
)


cdef int out_of_memory() except -1 nogil:
    with gil:
        raise MemoryError("no memory for subscriptions")


# --- the collection of sets

@cython.final
cdef class Sublist:
    def __cinit__(self, *, bint cache=True, uint64_t seed=0):
        self.seed = hash_seed(seed)
        self.remembered.disabled = not cache
        self.root = <Node*> calloc(1, sizeof(Node))
        if self.root == NULL:
            raise MemoryError
        self.root.hash = self.seed.one

    def __dealloc__(self):
        cdef size_t at
        cdef Node* node
        for at in range(self.literals.mask + 1 if self.literals.slots != NULL else 0):
            set_free(self.literals.slots[at].item)
        for at in range(self.edges.mask + 1 if self.edges.slots != NULL else 0):
            node = <Node*> self.edges.slots[at].item
            if node != NULL:
                set_free(node.subs)
                free(node)
        table_free(&self.literals)
        table_free(&self.edges)
        table_free(&self.names)
        cache_free(&self.remembered)
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
        else:
            node = self.grow(sub.subject, sub.subject_len)
            if set_add(&node.subs, sub, self.seed):
                self.prune(node)
                out_of_memory()
        sub.inserted = kind
        self.forget(sub)
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
        else:
            node = self.reach(sub.subject, sub.subject_len)
            if node == NULL or not set_remove(&node.subs, sub):
                return 1
            self.prune(node)
        self.forget(sub)
        sub.inserted = 0
        self.subscriptions -= 1
        self.removes += 1
        self.generation += 1
        return 0

    cdef MatchResult* match(self, const char* subject, size_t length) except NULL nogil:
        cdef uint64_t h = hash_bytes(subject, length, self.seed)
        cdef MatchResult* result = cache_find(&self.remembered, subject, length, h)
        self.matches += 1
        if result == NULL:
            return self.fill(subject, length, h, True)
        self.cache_hits += 1
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

    cdef MatchResult* fill(
        self, const char* subject, size_t length, uint64_t h, bint remember
    ) except NULL nogil:
        cdef MatchResult* result
        cdef bint whole = subject_is_whole(subject, length)
        self.reclaim()
        self.hit_count = 0
        if whole:
            self.find(subject, length, h)
        result = cache_take(&self.remembered)
        if result == NULL:
            out_of_memory()
        result.hash = h
        if self.build(result, subject, length) < 0:
            cache_retire(&self.remembered, result)
            out_of_memory()
        if whole and remember:
            cache_add(&self.remembered, result, self.bucket(subject, length))
        else:
            cache_retire(&self.remembered, result)
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

    # --- what a change makes untrue

    cdef uint8_t bucket(self, const char* subject, size_t length) noexcept nogil:
        return hash_bytes(subject, token_end(subject, length, 0), self.seed) % CACHE_BUCKETS

    cdef void forget(self, Sub* sub) noexcept nogil:
        cdef MatchResult* result
        if sub.inserted == SUBJECT_LITERAL:
            result = cache_find(&self.remembered, sub.subject, sub.subject_len, sub.hash)
            if result != NULL:
                cache_forget(&self.remembered, result)
        elif token_end(sub.subject, sub.subject_len, 0) == 1 and (
            sub.subject[0] == c"*" or sub.subject[0] == c">"
        ):
            cache_forget_all(&self.remembered)
        else:
            cache_forget_bucket(&self.remembered, self.bucket(sub.subject, sub.subject_len))

    cdef inline void reclaim(self) noexcept nogil:
        if self.remembered.retired != NULL and self.pins == 0:
            cache_reclaim(&self.remembered)

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
        for bucket in range(CACHE_BUCKETS):
            result = self.remembered.buckets[bucket]
            while result != NULL:
                fanout = result.plain_count + result.group_count
                total += fanout
                largest = max(largest, fanout)
                result = result.next
        return {
            "num_subscriptions": self.subscriptions,
            "num_cache": self.remembered.entries.count,
            "num_inserts": self.inserts,
            "num_removes": self.removes,
            "num_matches": self.matches,
            "cache_hits": self.cache_hits,
            "max_fanout": largest,
            "total_fanout": total,
        }

    @property
    def cache(self):
        return not self.remembered.disabled

    @cache.setter
    def cache(self, bint enabled):
        self.remembered.disabled = not enabled
        if not enabled:
            cache_forget_all(&self.remembered)

    def sizes(self):
        return {
            "literals": self.literals.count,
            "nodes": self.edges.count,
            "cached": self.remembered.entries.count,
            "cached_members": self.remembered.weight,
            "results": self.remembered.made,
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
