/* Memory for large arrays that are read at random places: aligned, on huge pages where the kernel
 * has them, and grown without copying. Small ones come from the ordinary allocator. */
#ifndef MARTLET_STORAGE_PAGES_H
#define MARTLET_STORAGE_PAGES_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGES_HUGE ((size_t)2 << 20)
#define PAGES_LINE ((size_t)64)

static inline size_t
pages_round(size_t bytes)
{
    size_t unit = bytes < PAGES_HUGE ? PAGES_LINE : PAGES_HUGE;
    return (bytes + unit - 1) & ~(unit - 1);
}

/* `bytes` of address space, a multiple of a huge page, that begin at one; NULL: none left. */
static char *
pages_map(size_t bytes)
{
    char *start = mmap(NULL, bytes + PAGES_HUGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    size_t ahead = -(uintptr_t)start & (PAGES_HUGE - 1);
    if (ahead)
        munmap(start, ahead);
    munmap(start + ahead + bytes, PAGES_HUGE - ahead);
    madvise(start + ahead, bytes, MADV_HUGEPAGE);
    return start + ahead;
}

/* Zeroed; NULL: no memory. */
static void *
pages_new(size_t bytes)
{
    bytes = pages_round(bytes);
    if (bytes >= PAGES_HUGE)
        return pages_map(bytes);
    void *memory = aligned_alloc(PAGES_LINE, bytes);
    if (memory != NULL)
        memset(memory, 0, bytes);
    return memory;
}

static void
pages_free(void *memory, size_t bytes)
{
    bytes = pages_round(bytes);
    if (memory == NULL)
        return;
    if (bytes >= PAGES_HUGE)
        munmap(memory, bytes);
    else
        free(memory);
}

/* The same bytes with zeroed ones behind them; NULL: no memory, and `memory` is as it was. */
static void *
pages_grow(void *memory, size_t old_bytes, size_t bytes)
{
    size_t had = memory == NULL ? 0 : pages_round(old_bytes);
    bytes = pages_round(bytes);
    if (had >= PAGES_HUGE) {
        char *target = pages_map(bytes);
        if (target == NULL)
            return NULL;
        if (mremap(memory, had, had, MREMAP_MAYMOVE | MREMAP_FIXED, target) != MAP_FAILED)
            return target;
        munmap(target, bytes);
        return NULL;
    }
    char *grown = pages_new(bytes);
    if (grown != NULL && memory != NULL) {
        memcpy(grown, memory, old_bytes);
        free(memory);
    }
    return grown;
}

#endif
