# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Subscriptions as C structs, and the set of those that share a subject. See _subs.pxd."""

from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from server.core._subject cimport subject_is_subset
from server.core._table cimport (
    HashSeed,
    Slot,
    hash_bytes,
    table_drop,
    table_first,
    table_free,
    table_next,
    table_put,
)


# How many exist in this process: a test's leak counter.
cdef struct Live:
    uint64_t subs, homes, bunches

cdef Live live


def live_structures():
    return {"subs": live.subs, "homes": live.homes, "bunches": live.bunches}


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


cdef void set_free(void* subs) noexcept nogil:
    cdef Home* home = home_of(subs)
    if home != NULL:
        home_free(home)


cdef void set_page(Page* page, void* subs) noexcept nogil:
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
