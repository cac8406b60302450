"""From the sets of subscriptions that match a subject to one result.

The sets of one match are collected first, then their members are laid out in the result's block:
the plain ones of all sets, and for each queue name those of all sets together.
"""

from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from server.core._matchcache cimport MatchResult, QueueGroup
from server.core._subs cimport Bunch, Home, Sub, home_of, set_count
from server.core._table cimport (
    HashSeed,
    Slot,
    Table,
    hash_bytes,
    table_first,
    table_free,
    table_next,
    table_put,
)


cdef struct Hits:
    HashSeed seed
    void** sets
    size_t count, capacity
    Table names  # queue name -> index in `pooled` + 1, while a result is made
    QueueGroup* pooled
    uint32_t pooled_max


# -1: no memory.
cdef inline int hits_add(Hits* hits, void* subs) noexcept nogil:
    cdef void** sets
    if subs == NULL:
        return 0
    if hits.count == hits.capacity:
        sets = <void**> realloc(hits.sets, (hits.capacity * 2 + 16) * sizeof(void*))
        if sets == NULL:
            return -1
        hits.sets = sets
        hits.capacity = hits.capacity * 2 + 16
    hits.sets[hits.count] = subs
    hits.count += 1
    return 0


cdef inline void hits_free(Hits* hits) noexcept nogil:
    table_free(&hits.names)
    free(hits.sets)
    free(hits.pooled)


cdef inline void hits_members(Hits* hits, size_t* plain, size_t* queued) noexcept nogil:
    cdef size_t at
    for at in range(hits.count):
        set_count(hits.sets[at], plain, queued)


# Lays the members of all hits out in one block: groups, members, subject. -1: no memory.
cdef inline int hits_build(
    Hits* hits, MatchResult* result, const char* subject, size_t length
) noexcept nogil:
    cdef size_t plain = 0, queued = 0, at, size
    cdef QueueGroup* groups
    cdef Sub** members
    cdef char* text
    hits_members(hits, &plain, &queued)
    if queued and hits_groups(hits):
        table_free(&hits.names)
        return -1
    size = hits.names.count * sizeof(QueueGroup) + (plain + queued) * sizeof(Sub*) + length + 1
    if size > result.block_size:
        free(result.block)
        result.block = malloc(size)
        result.block_size = size if result.block != NULL else 0
        if result.block == NULL:
            table_free(&hits.names)
            return -1
    groups = <QueueGroup*> result.block
    result.plain = members = <Sub**> (groups + hits.names.count)
    text = <char*> (members + plain + queued)
    memcpy(text, subject, length)
    text[length] = 0
    result.subject = text
    result.subject_len = <uint32_t> length
    result.groups = groups
    result.group_count = <uint32_t> hits.names.count
    result.plain_count = <uint32_t> plain
    result.weight = <uint32_t> (plain + queued)
    members += plain
    for at in range(hits.names.count):
        groups[at] = hits.pooled[at]
        groups[at].members = members
        members += groups[at].count
        groups[at].count = 0
    hits_place(hits, result)
    if hits.names.slots != NULL:
        table_free(&hits.names)
    return 0


# How many members each queue name has over all hits, in `pooled`.
cdef inline int hits_groups(Hits* hits) noexcept nogil:
    cdef size_t at, slot
    cdef Home* home
    cdef Bunch* bunch
    cdef Sub* sub
    for at in range(hits.count):
        home = home_of(hits.sets[at])
        if home == NULL:
            sub = <Sub*> hits.sets[at]
            if sub.queue_len and hits_group(hits, sub, 1) == NULL:
                return -1
        elif home.queued:
            for slot in range(home.queues.mask + 1):
                bunch = <Bunch*> home.queues.slots[slot].item
                if bunch != NULL and hits_group(hits, bunch.members[0], bunch.count) == NULL:
                    return -1
    return 0


# The entry of this member's queue name, made if needed, with `more` added to its count.
cdef inline QueueGroup* hits_group(Hits* hits, Sub* member, uint32_t more) noexcept nogil:
    cdef uint64_t h = hash_bytes(member.queue, member.queue_len, hits.seed)
    cdef Slot* slot = table_first(&hits.names, h)
    cdef QueueGroup* group
    cdef uint32_t size
    while slot != NULL and slot.item != NULL:
        group = &hits.pooled[<uintptr_t> slot.item - 1]
        if (
            slot.hash == h
            and group.name_len == member.queue_len
            and memcmp(group.name, member.queue, member.queue_len) == 0
        ):
            group.count += more
            return group
        slot = table_next(&hits.names, slot)
    if hits.names.count == hits.pooled_max:
        size = hits.pooled_max * 2 + 8
        group = <QueueGroup*> realloc(hits.pooled, size * sizeof(QueueGroup))
        if group == NULL:
            return NULL
        hits.pooled = group
        hits.pooled_max = size
    group = &hits.pooled[hits.names.count]
    group.name = member.queue
    group.name_len = member.queue_len
    group.count = more
    if table_put(&hits.names, h, <void*> (<uintptr_t> hits.names.count + 1)):
        return NULL
    return group


# Puts every member of every hit into its array of `result`.
cdef inline void hits_place(Hits* hits, MatchResult* result) noexcept nogil:
    cdef size_t at, slot
    cdef uint32_t plain = 0
    cdef Home* home
    cdef Sub* sub
    for at in range(hits.count):
        home = home_of(hits.sets[at])
        if home == NULL:
            sub = <Sub*> hits.sets[at]
            if sub.queue_len:
                hits_place_queued(hits, result, &sub, 1)
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
                    hits_place_queued(
                        hits,
                        result,
                        (<Bunch*> home.queues.slots[slot].item).members,
                        (<Bunch*> home.queues.slots[slot].item).count,
                    )


cdef inline void hits_place_queued(
    Hits* hits, MatchResult* result, Sub** members, uint32_t count
) noexcept nogil:
    cdef QueueGroup* group = &result.groups[hits_group(hits, members[0], 0) - hits.pooled]
    memcpy(group.members + group.count, members, count * sizeof(Sub*))
    group.count += count
