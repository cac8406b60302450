# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Who listens to what: the subscriptions of one account, found by subject.

A literal subject is one entry of a hash table; only subjects with wildcards are in the tree of
_wildtree.pxd. A match is therefore one look-up plus a walk that visits each tree node at most once,
and costs nothing for tokens no wildcard shares.

Ownership and how long a result may be read: see _sublist.pxd. The subscriptions of one subject are a
set of _subs.pxd; the sets that match become a result by _matchbuild.pxd, and results are remembered
by _matchcache.pxd.
"""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from server.core._matchbuild cimport hits_add, hits_build, hits_free, hits_members
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
    subject_is_whole,
    subject_kind,
    token_end,
)
from server.core._subs cimport (
    Page,
    Sub,
    any_of,
    set_add,
    set_free,
    set_page,
    set_remove,
    sub_free,
    sub_new,
)
from server.core._table cimport (
    Slot,
    hash_bytes,
    hash_seed,
    table_drop,
    table_first,
    table_free,
    table_next,
    table_put,
)
from server.core._wildtree cimport (
    Frame,
    Node,
    tree_child,
    tree_free,
    tree_grow,
    tree_prune,
    tree_reach,
    tree_start,
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
        self.hits.seed = self.seed
        if tree_start(&self.tree, self.seed):
            raise MemoryError

    def __dealloc__(self):
        cdef size_t at
        for at in range(self.literals.mask + 1 if self.literals.slots != NULL else 0):
            set_free(self.literals.slots[at].item)
        table_free(&self.literals)
        tree_free(&self.tree)
        cache_free(&self.remembered)
        hits_free(&self.hits)

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
            node = tree_grow(&self.tree, sub.subject, sub.subject_len)
            if node == NULL:
                out_of_memory()
            if set_add(&node.subs, sub, self.seed):
                tree_prune(&self.tree, node)
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
            node = tree_reach(&self.tree, sub.subject, sub.subject_len)
            if node == NULL or not set_remove(&node.subs, sub):
                return 1
            tree_prune(&self.tree, node)
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
        cdef size_t plain_count = 0, queued_count = 0
        self.hits.count = 0
        if subject_is_whole(subject, length):
            self.find(subject, length, hash_bytes(subject, length, self.seed))
        hits_members(&self.hits, &plain_count, &queued_count)
        if plain != NULL:
            plain[0] = plain_count
        if queued != NULL:
            queued[0] = queued_count
        return 1 if self.hits.count else 0

    # --- making a result

    cdef MatchResult* fill(
        self, const char* subject, size_t length, uint64_t h, bint remember
    ) except NULL nogil:
        cdef MatchResult* result
        cdef bint whole = subject_is_whole(subject, length)
        self.reclaim()
        self.hits.count = 0
        if whole:
            self.find(subject, length, h)
        result = cache_take(&self.remembered)
        if result == NULL:
            out_of_memory()
        result.hash = h
        if hits_build(&self.hits, result, subject, length):
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
        self.hits.count = 0
        if slot != NULL:
            self.hit(slot.item)
        if self.tree.edges.count:
            self.walk(subject, length)
        return 0

    # At most one frame for each level of the tree waits: `frames` grew with the tree.
    cdef int walk(self, const char* subject, size_t length) except -1 nogil:
        cdef size_t at, end, waiting = 0
        cdef Node* node = self.tree.root
        cdef Node* plain
        cdef Frame* frames = self.tree.frames
        at = 0
        while True:
            if node.full != NULL:
                self.hit(node.full.subs)
            if node.star == NULL and node.children == 0:
                plain = node = NULL
            else:
                end = token_end(subject, length, at)
                plain = NULL
                if node.children:
                    plain = tree_child(&self.tree, node, subject + at, end - at)
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
                    frames[waiting].node = node
                    frames[waiting].at = at
                    waiting += 1
                node = plain
            elif node == NULL:
                if waiting == 0:
                    return 0
                waiting -= 1
                node = frames[waiting].node
                at = frames[waiting].at

    cdef inline int hit(self, void* subs) except -1 nogil:
        if hits_add(&self.hits, subs):
            out_of_memory()
        return 0

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
            set_page(&page, self.literals.slots[at].item)
        for at in range(self.tree.edges.mask + 1 if self.tree.edges.count else 0):
            node = <Node*> self.tree.edges.slots[at].item
            if node != NULL:
                set_page(&page, node.subs)
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
            "nodes": self.tree.edges.count,
            "cached": self.remembered.entries.count,
            "cached_members": self.remembered.weight,
            "results": self.remembered.made,
        }


cdef int inserted_twice() except -1 nogil:
    with gil:
        raise RuntimeError("this subscription is in a subject trie already")


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
