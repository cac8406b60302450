"""Results of matching, remembered by subject. How long one may be read: see _sublist.pxd.

At most CACHE_ENTRIES_MAX results and CACHE_WEIGHT_MAX members over all of them; a sweep drops first
what was not used since the one before. Results hang in lists by the hash of their first token, so
that a wildcard finds those it may touch. A result that is dropped is *retired*: it keeps its
members until `cache_reclaim`, then waits to be used again; its struct is only freed with the cache.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from server.core._subs cimport Sub
from server.core._table cimport (
    Slot,
    Table,
    table_drop,
    table_first,
    table_free,
    table_next,
    table_put,
)


cdef enum:
    CACHE_ENTRIES_MAX = 4096
    CACHE_ENTRIES_SWEPT = 1024
    CACHE_WEIGHT_MAX = 1 << 20  # 8 MiB of pointers
    CACHE_BUCKETS = 64
    BLOCK_BYTES_KEPT = 1024  # a reclaimed result keeps its memory up to this size


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
    uint32_t weight  # members of all kinds; from here on the cache's
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


cdef struct MatchCache:
    bint disabled
    uint32_t made  # results that exist
    uint64_t stamps
    uint64_t weight
    Table entries  # subject -> MatchResult
    MatchResult* buckets[CACHE_BUCKETS]
    MatchResult* retired
    MatchResult* spare
    MatchResult* results


cdef inline MatchResult* cache_find(
    MatchCache* cache, const char* subject, size_t length, uint64_t h
) noexcept nogil:
    cdef Slot* slot = table_first(&cache.entries, h)
    cdef MatchResult* result
    while slot != NULL and slot.item != NULL:
        if slot.hash == h:
            result = <MatchResult*> slot.item
            if result.subject_len == length and memcmp(result.subject, subject, length) == 0:
                return result
        slot = table_next(&cache.entries, slot)
    return NULL


# A result to fill, or NULL when memory is short.
cdef inline MatchResult* cache_take(MatchCache* cache) noexcept nogil:
    cdef MatchResult* result = cache.spare
    if result != NULL:
        cache.spare = result.next
        return result
    result = <MatchResult*> calloc(1, sizeof(MatchResult))
    if result != NULL:
        result.older = cache.results
        cache.results = result
        cache.made += 1
    return result


cdef inline void cache_retire(MatchCache* cache, MatchResult* result) noexcept nogil:
    result.stamp = 0
    result.next = cache.retired
    cache.retired = result


# Only while nobody walks a result.
cdef inline void cache_reclaim(MatchCache* cache) noexcept nogil:
    cdef MatchResult* result
    while cache.retired != NULL:
        result = cache.retired
        cache.retired = result.next
        if result.block_size > BLOCK_BYTES_KEPT:
            free(result.block)
            result.block = NULL
            result.block_size = 0
        result.next = cache.spare
        cache.spare = result


cdef inline void cache_forget(MatchCache* cache, MatchResult* result) noexcept nogil:
    cdef Slot* slot = table_first(&cache.entries, result.hash)
    while slot.item != result:
        slot = table_next(&cache.entries, slot)
    table_drop(&cache.entries, slot)
    if result.prev != NULL:
        result.prev.next = result.next
    else:
        cache.buckets[result.bucket] = result.next
    if result.next != NULL:
        result.next.prev = result.prev
    cache.weight -= result.weight
    cache_retire(cache, result)


# Each result that goes was filled once: this costs a match, not an insert, its time.
cdef inline void cache_forget_bucket(MatchCache* cache, uint8_t bucket) noexcept nogil:
    while cache.buckets[bucket] != NULL:
        cache_forget(cache, cache.buckets[bucket])


cdef inline void cache_forget_all(MatchCache* cache) noexcept nogil:
    cdef uint8_t bucket
    for bucket in range(CACHE_BUCKETS):
        cache_forget_bucket(cache, bucket)


# Makes room for a result of this weight when the cache is full.
cdef inline void cache_sweep(MatchCache* cache, uint32_t coming) noexcept nogil:
    cdef size_t bucket, turn
    cdef MatchResult* result
    cdef MatchResult* after
    if cache.entries.count < CACHE_ENTRIES_MAX and cache.weight + coming <= CACHE_WEIGHT_MAX:
        return
    for turn in range(2):
        for bucket in range(CACHE_BUCKETS):
            result = cache.buckets[bucket]
            while result != NULL:
                if (
                    cache.entries.count < CACHE_ENTRIES_SWEPT
                    and cache.weight + coming <= CACHE_WEIGHT_MAX // 2
                ):
                    return
                after = result.next
                if result.used:
                    result.used = 0
                else:
                    cache_forget(cache, result)
                result = after


# Without memory for the entry, or without a cache, the result is good for this once.
cdef inline void cache_add(MatchCache* cache, MatchResult* result, uint8_t bucket) noexcept nogil:
    if not cache.disabled:
        cache_sweep(cache, result.weight)
    if cache.disabled or table_put(&cache.entries, result.hash, result):
        cache_retire(cache, result)
        return
    cache.stamps += 1
    result.stamp = cache.stamps
    result.used = 0
    result.bucket = bucket
    result.prev = NULL
    result.next = cache.buckets[bucket]
    if result.next != NULL:
        result.next.prev = result
    cache.buckets[bucket] = result
    cache.weight += result.weight


cdef inline void cache_free(MatchCache* cache) noexcept nogil:
    cdef MatchResult* result
    while cache.results != NULL:
        result = cache.results
        cache.results = result.older
        free(result.block)
        free(result)
    table_free(&cache.entries)
