"""Who listens to what: the subscriptions of one account, found by subject.

Ownership. A `Sub` belongs to whoever made it (`sub_new`): it is inserted into one Sublist at most,
must be removed before `sub_free`, and must not be freed while a MatchResult that names it is being
walked. Everything else here belongs to the Sublist.

How long a MatchResult may be read:
- Its *struct* stays readable as long as the Sublist lives; it is recycled, never freed. So a caller
  that keeps `result` with the `stamp` it had then (a connection's last match) may ask at any later
  time `match_is_valid(result, stamp)`; if so, `result` still answers for `result.subject`, with the
  members of this very moment. Compare the subject's bytes with `result.subject` as well.
  A stamp of 0 is never valid: with the cache disabled every result has it.
- Its *members* (`plain`, `groups`) are intact until the next insert, remove or match on the same
  Sublist. A caller that does anything in between that may call one of these (deliveries that
  remove a subscription at its maximum, or publish in turn) raises `pins` by one before and
  lowers it after; until it is 0 again, no member array is changed or freed. A subscription that was
  removed meanwhile is still in the array: look at `closed`.

What invalidates: inserting or removing a literal subject touches the result of that subject
only; a wildcard touches the results that begin with the same first token (all results, when its
own first token is a wildcard). `generation` counts every insert and remove.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from server.core._table cimport HashSeed, Slot, Table


cdef struct Bunch


# One subscription: one allocation, the three texts behind the struct.
cdef struct Sub:
    void* sink  # borrowed: the owning Sink; NULL for subjects that only want matching
    const char* sid
    int64_t delivered
    int64_t max  # remove after so many deliveries; 0: none
    uint32_t sid_len
    uint32_t subject_len
    uint32_t queue_len  # 0: not in a queue group
    uint8_t closed  # the owner has given it up: do not deliver
    uint8_t flags  # the owner's
    uint8_t inserted  # the Sublist's
    const char* subject
    const char* queue  # NULL: not in a queue group
    Bunch* bunch  # from here to `index` the Sublist's
    uint64_t hash
    uint32_t index
    uint32_t sid_hash  # from here on the owner's: a map by sid without an allocation of its own
    Sub* sid_next
    void* user


# The members of one queue name over all subjects that match, pooled.
cdef struct QueueGroup:
    uint32_t count
    uint32_t name_len
    Sub** members
    const char* name


cdef struct MatchResult:
    uint64_t stamp
    uint32_t plain_count
    uint32_t group_count
    Sub** plain
    QueueGroup* groups
    const char* subject
    uint32_t subject_len
    uint32_t weight  # from here on the Sublist's
    uint64_t hash
    void* block
    size_t block_size
    MatchResult* next
    MatchResult* prev
    MatchResult* older
    uint8_t bucket
    uint8_t used


cdef inline bint match_is_valid(const MatchResult* result, uint64_t stamp) noexcept nogil:
    return stamp != 0 and result.stamp == stamp


# NULL when memory is short. The texts are copied and end with a zero byte each.
cdef Sub* sub_new(
    void* sink,
    const char* subject, size_t subject_len,
    const char* queue, size_t queue_len,
    const char* sid, size_t sid_len,
) noexcept nogil
cdef void sub_free(Sub* sub) noexcept nogil


# One token of a subject with wildcards. Literal subjects are not in the tree.
cdef struct Node:
    Node* parent
    Node* star
    Node* full
    void* subs  # a set: NULL, a Sub*, or a Home* with its lowest bit set
    uint64_t hash  # of the path from the root
    uint32_t children  # with literal tokens
    uint32_t token_len  # 0: `*` or `>`


cdef struct Frame:
    Node* node
    size_t at


@cython.final
cdef class Sublist:
    cdef readonly uint64_t generation
    cdef public uint32_t pins
    cdef HashSeed seed
    cdef Table literals  # subject -> set
    cdef Table edges  # (parent, token) -> Node
    cdef Node* root
    cdef Frame* frames
    cdef size_t frames_max
    cdef void** hits
    cdef size_t hit_count, hits_max
    cdef Table names  # queue name -> index in `pooled` + 1, while a result is made
    cdef QueueGroup* pooled
    cdef uint32_t pooled_max
    cdef bint cache_enabled
    cdef Table cached  # subject -> MatchResult
    cdef MatchResult* buckets[64]  # by the hash of the first token
    cdef MatchResult* retired
    cdef MatchResult* spare
    cdef MatchResult* results  # all that were ever made
    cdef uint64_t stamps, weight
    cdef uint64_t subscriptions, inserts, removes, matches, cache_hits

    # 0: inserted; 1: the subject is not valid, nothing was done.
    cdef int insert(self, Sub* sub) except -1 nogil
    # 0: removed; 1: it was not there.
    cdef int remove(self, Sub* sub) except -1 nogil
    # Never NULL; a subject with an empty token matches nobody. Wildcards in it are plain text to
    # the tree, so `a.*` finds `a.*` and `a.>` but not `a.b`.
    cdef MatchResult* match(self, const char* subject, size_t length) except NULL nogil
    cdef bint has_interest(self, const char* subject, size_t length) except -1 nogil
    # How many plain subscriptions and queue subscriptions match; 1 if any does.
    cdef int count_interest(
        self, const char* subject, size_t length, size_t* plain, size_t* queued
    ) except -1 nogil
    # These two look at every subject when `subject` has wildcards: for small tries.
    cdef bint overlaps(self, const char* subject, size_t length) noexcept nogil
    cdef bint covers(self, const char* subject, size_t length) except -1 nogil
    # Fills `out` with up to `limit` subscriptions after `skip`, in no order; with a literal `test`
    # only those that match it. Returns how many; with `out` NULL it only counts.
    cdef size_t gather(
        self, Sub** out, size_t limit, size_t skip, const char* test, size_t test_len
    ) noexcept nogil

    cdef MatchResult* fill(self, const char* subject, size_t length, uint64_t h) except NULL nogil
    cdef int find(self, const char* subject, size_t length, uint64_t h) except -1 nogil
    cdef int walk(self, const char* subject, size_t length) except -1 nogil
    cdef int hit(self, void* subs) except -1 nogil
    cdef int build(self, MatchResult* result, const char* subject, size_t length) noexcept nogil
    cdef int count_groups(self) noexcept nogil
    cdef QueueGroup* pool(self, Sub* member, uint32_t more) noexcept nogil
    cdef void place(self, MatchResult* result) noexcept nogil
    cdef void place_queued(self, MatchResult* result, Sub** members, uint32_t count) noexcept nogil
    cdef Node* child(self, Node* parent, const char* token, size_t length) noexcept nogil
    cdef Node* step(self, Node* node, const char* token, size_t length) noexcept nogil
    cdef Node* reach(self, const char* subject, size_t length) noexcept nogil
    cdef Node* grow(self, const char* subject, size_t length) except NULL nogil
    cdef Node* sprout(self, Node* parent, const char* token, size_t length) noexcept nogil
    cdef void prune(self, Node* node) noexcept nogil
    cdef Slot* literal(self, const char* subject, size_t length, uint64_t h) noexcept nogil
    cdef Slot* remembered(self, const char* subject, size_t length, uint64_t h) noexcept nogil
    cdef void remember(self, MatchResult* result) noexcept nogil
    cdef uint8_t bucket(self, const char* subject, size_t length) noexcept nogil
    cdef void forget(self, MatchResult* result) noexcept nogil
    cdef void forget_literal(self, Sub* sub) noexcept nogil
    cdef void forget_wildcard(self, Sub* sub) noexcept nogil
    cdef void forget_all(self) noexcept nogil
    cdef void sweep(self, uint32_t coming) noexcept nogil
    cdef void retire(self, MatchResult* result) noexcept nogil
    cdef void reclaim(self) noexcept nogil
    cdef MatchResult* take(self) except NULL nogil
