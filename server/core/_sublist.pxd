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
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from server.core._matchbuild cimport Hits
from server.core._matchcache cimport MatchCache, MatchResult, QueueGroup, match_is_valid
from server.core._subs cimport Sub, sub_free, sub_new
from server.core._table cimport HashSeed, Slot, Table
from server.core._wildtree cimport WildTree


@cython.final
cdef class Sublist:
    cdef readonly uint64_t generation
    cdef public uint32_t pins
    cdef HashSeed seed
    cdef Table literals  # subject -> set
    cdef WildTree tree
    cdef Hits hits
    cdef MatchCache remembered
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
    # Fills `out` with up to `limit` subscriptions after `skip`, in no order; with a literal `test`
    # only those that match it. Returns how many; with `out` NULL it only counts.
    cdef size_t gather(
        self, Sub** out, size_t limit, size_t skip, const char* test, size_t test_len
    ) noexcept nogil

    # A match of a subject with hash `h` that is not looked up, and remembered only if asked for.
    cdef MatchResult* fill(
        self, const char* subject, size_t length, uint64_t h, bint remember
    ) except NULL nogil
    cdef int find(self, const char* subject, size_t length, uint64_t h) except -1 nogil
    cdef int walk(self, const char* subject, size_t length) except -1 nogil
    cdef int hit(self, void* subs) except -1 nogil
    cdef Slot* literal(self, const char* subject, size_t length, uint64_t h) noexcept nogil
    cdef uint8_t bucket(self, const char* subject, size_t length) noexcept nogil
    cdef void forget(self, Sub* sub) noexcept nogil
    cdef void reclaim(self) noexcept nogil
