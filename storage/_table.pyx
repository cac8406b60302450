# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Open addressing over 64-bit slots, a 32-bit tag above a 32-bit reference, grown piece by piece.

No insert waits for a rehash: a table that grows keeps its old half and carries some slots over at
each `table_put`. Whoever searches looks at both. The children of a node are a plain list while few.
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

cdef extern from "_pages.h" nogil:
    void* pages_new(size_t bytes)
    void pages_free(void* memory, size_t bytes)

cdef enum:
    CHILDREN_FIRST = 3
    MOVES_PER_PUT = 32

cdef uint64_t MOVED = <uint64_t>1 << 32     # a slot that was emptied in a table being moved


cdef int table_start(Table* table, uint32_t capacity) except -1:
    table.slots = <uint64_t*>pages_new(capacity * sizeof(uint64_t))
    if table.slots == NULL:
        raise MemoryError
    table.old = NULL
    table.mask = capacity - 1
    table.used = 0
    table.moved = 0
    return 0


cdef inline void table_set(Table* table, uint64_t slot) noexcept nogil:
    cdef uint32_t at = <uint32_t>(slot >> 32) & table.mask
    while table.slots[at]:
        at = (at + 1) & table.mask
    table.slots[at] = slot


cdef void table_move(Table* table, uint32_t count) noexcept nogil:
    """Carry `count` more slots from the old to the new half of a table that grows."""
    cdef uint32_t old_size = (table.mask >> 1) + 1
    while count and table.moved < old_size:
        if <uint32_t>table.old[table.moved]:
            table_set(table, table.old[table.moved])
        # Empty slots stay empty: they end the search.
        if table.old[table.moved]:
            table.old[table.moved] = MOVED
        table.moved += 1
        count -= 1
    if table.moved == old_size:
        pages_free(table.old, old_size * sizeof(uint64_t))
        table.old = NULL


cdef int table_put(Table* table, uint64_t slot) except -1:
    cdef uint64_t* slots
    if (table.used + 1) > (table.mask + 1) - ((table.mask + 1) >> 2):
        if table.old != NULL:
            table_move(table, table.mask)
        slots = <uint64_t*>pages_new(2 * (<size_t>table.mask + 1) * sizeof(uint64_t))
        if slots == NULL:
            raise MemoryError
        table.old = table.slots
        table.slots = slots
        table.mask = table.mask * 2 + 1
        table.moved = 0
    if table.old != NULL:
        table_move(table, MOVES_PER_PUT)
    table_set(table, slot)
    table.used += 1
    return 0


cdef void table_remove(Table* table, uint32_t tag, uint32_t reference) noexcept nogil:
    cdef uint32_t at = tag & table.mask, hole, home
    while table.slots[at] and <uint32_t>table.slots[at] != reference:
        at = (at + 1) & table.mask
    if not table.slots[at]:
        at = tag & (table.mask >> 1)
        while <uint32_t>table.old[at] != reference:
            at = (at + 1) & (table.mask >> 1)
        table.old[at] = MOVED
        table.used -= 1
        return
    table.used -= 1
    hole = at
    while True:
        at = (at + 1) & table.mask
        if not table.slots[at]:
            break
        home = <uint32_t>(table.slots[at] >> 32) & table.mask
        if ((at - home) & table.mask) >= ((at - hole) & table.mask):
            table.slots[hole] = table.slots[at]
            hole = at
    table.slots[hole] = 0


# Children of a node: a plain list while few, then a table

cdef int children_put(Table* table, uint64_t slot) except -1:
    cdef uint64_t* slots
    cdef uint32_t i, capacity
    if table.mask >= CHILDREN_LISTED:
        return table_put(table, slot)
    if table.slots == NULL or table.used == table.mask + 1:
        if table.used == CHILDREN_LISTED:
            slots = table.slots
            table_start(table, CHILDREN_LISTED * 2)
            for i in range(CHILDREN_LISTED):
                table_put(table, slots[i])
            free(slots)
            return table_put(table, slot)
        capacity = CHILDREN_FIRST if table.slots == NULL else CHILDREN_LISTED
        slots = <uint64_t*>realloc(table.slots, capacity * sizeof(uint64_t))
        if slots == NULL:
            raise MemoryError
        table.slots = slots
        table.mask = capacity - 1
    table.slots[table.used] = slot
    table.used += 1
    return 0


cdef void children_remove(Table* table, uint32_t tag, uint32_t reference) noexcept nogil:
    cdef uint32_t i
    if table.mask >= CHILDREN_LISTED:
        table_remove(table, tag, reference)
        return
    for i in range(table.used):
        if <uint32_t>table.slots[i] == reference:
            table.used -= 1
            table.slots[i] = table.slots[table.used]
            return


cdef void table_free(Table* table) noexcept nogil:
    if table.mask < CHILDREN_LISTED:
        free(table.slots)
    else:
        pages_free(table.slots, (<size_t>table.mask + 1) * sizeof(uint64_t))
        pages_free(table.old, ((<size_t>table.mask >> 1) + 1) * sizeof(uint64_t))
    memset(table, 0, sizeof(Table))
