"""Subscriptions as C structs, and the set of those that share a subject.

A `Sub` belongs to whoever made it. A set is NULL, the only Sub itself, or a Home* with its lowest
bit set; a Home keeps the plain ones and each queue name in a Bunch. A Sub knows its bunch and its
place there, so that removal never searches among equals.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t, uintptr_t

from server.core._table cimport HashSeed, Table


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


# Subscriptions of one subject that share a queue name, or have none.
cdef struct Bunch:
    Sub** members
    uint32_t count
    uint32_t capacity
    uint64_t hash


cdef struct Home:
    Sub* any  # one of the members; its subject is the key of the set
    Bunch plain
    Table queues  # queue name -> Bunch
    uint32_t queued  # members of all queue names


# NULL when memory is short. The texts are copied and end with a zero byte each.
cdef Sub* sub_new(
    void* sink,
    const char* subject, size_t subject_len,
    const char* queue, size_t queue_len,
    const char* sid, size_t sid_len,
) noexcept nogil
cdef void sub_free(Sub* sub) noexcept nogil

# -1: no memory, nothing was done.
cdef int set_add(void** subs, Sub* sub, HashSeed seed) noexcept nogil
# True if it was in the set. The last one leaves NULL.
cdef bint set_remove(void** subs, Sub* sub) noexcept nogil
cdef void set_free(void* subs) noexcept nogil


# Some members of many sets: skips `skip`, then takes up to `limit` into `out` (NULL: only counts).
# With a literal `test`, only sets whose subject matches it.
cdef struct Page:
    Sub** out
    size_t limit, skip, count
    const char* test
    size_t test_len


cdef void set_page(Page* page, void* subs) noexcept nogil


cdef inline Home* home_of(void* subs) noexcept nogil:
    if <uintptr_t> subs & 1:
        return <Home*> (<uintptr_t> subs - 1)
    return NULL


cdef inline Sub* any_of(void* subs) noexcept nogil:
    cdef Home* home = home_of(subs)
    return <Sub*> subs if home == NULL else home.any


cdef inline void set_count(void* subs, size_t* plain, size_t* queued) noexcept nogil:
    cdef Home* home = home_of(subs)
    if home != NULL:
        plain[0] += home.plain.count
        queued[0] += home.queued
    elif (<Sub*> subs).queue_len:
        queued[0] += 1
    else:
        plain[0] += 1
