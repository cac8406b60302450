/* Byte hashing and one open-addressing table, shared by the trie and the maps beside it.
 *
 * The hash is keyed: a peer that does not know the seed cannot make subjects collide.
 * The table probes linearly, deletes by shifting back (no tombstones), grows at three quarters
 * and shrinks at one eighth. It compares hashes only; callers compare keys.
 */
#ifndef MARTLET_TABLE_H
#define MARTLET_TABLE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct { uint64_t one, two; } HashSeed;
typedef struct { uint64_t hash; void *item; } Slot;       /* item NULL: the slot is empty */
typedef struct { Slot *slots; size_t mask, count; } Table; /* all zero is an empty table */

#define TABLE_SLOTS_MIN 8

static inline uint64_t hash_fold(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline HashSeed hash_seed(uint64_t secret)
{
    HashSeed seed;
    seed.one = hash_fold(secret ^ 0xd1b54a32d192ed03ULL, 0x9e3779b97f4a7c15ULL) | 1;
    seed.two = hash_fold(secret + 0x2545f4914f6cdd1dULL, seed.one) | 1;
    return seed;
}

static inline uint64_t hash_load8(const char *at) { uint64_t v; memcpy(&v, at, 8); return v; }
static inline uint64_t hash_load4(const char *at) { uint32_t v; memcpy(&v, at, 4); return v; }

static inline uint64_t hash_bytes(const char *at, size_t len, HashSeed seed)
{
    uint64_t state = seed.one + len, low, high;
    while (len > 16) {
        state = hash_fold(hash_load8(at) ^ state, hash_load8(at + 8) ^ seed.two);
        at += 16;
        len -= 16;
    }
    if (len >= 8) {
        low = hash_load8(at);
        high = hash_load8(at + len - 8);
    } else if (len >= 4) {
        low = hash_load4(at);
        high = hash_load4(at + len - 4);
    } else if (len) {
        low = (uint64_t)(uint8_t)at[0] << 16 | (uint64_t)(uint8_t)at[len >> 1] << 8
            | (uint8_t)at[len - 1];
        high = 0;
    } else {
        low = high = 0;
    }
    return hash_fold(hash_fold(low ^ state, high ^ seed.two) ^ seed.two, state ^ seed.one);
}

static inline void table_place(Slot *slots, size_t mask, uint64_t hash, void *item)
{
    size_t at = hash & mask;
    while (slots[at].item)
        at = (at + 1) & mask;
    slots[at].hash = hash;
    slots[at].item = item;
}

/* 0, or -1 when memory is short; the table is then unchanged. */
static inline int table_resize(Table *table, size_t size)
{
    Slot *slots = (Slot *)calloc(size, sizeof(Slot));
    if (!slots)
        return -1;
    if (table->slots)
        for (size_t at = 0; at <= table->mask; at++)
            if (table->slots[at].item)
                table_place(slots, size - 1, table->slots[at].hash, table->slots[at].item);
    free(table->slots);
    table->slots = slots;
    table->mask = size - 1;
    return 0;
}

static inline int table_put(Table *table, uint64_t hash, void *item)
{
    if (!table->slots) {
        if (table_resize(table, TABLE_SLOTS_MIN))
            return -1;
    } else if ((table->count + 1) * 4 > (table->mask + 1) * 3) {
        if (table_resize(table, (table->mask + 1) * 2))
            return -1;
    }
    table_place(table->slots, table->mask, hash, item);
    table->count++;
    return 0;
}

/* Where a search for this hash begins; step with table_next until an empty slot. */
static inline Slot *table_first(const Table *table, uint64_t hash)
{
    return table->count ? &table->slots[hash & table->mask] : NULL;
}

static inline Slot *table_next(const Table *table, Slot *slot)
{
    return &table->slots[((size_t)(slot - table->slots) + 1) & table->mask];
}

/* Empties a slot of the table. Every Slot pointer is void afterwards. */
static inline void table_drop(Table *table, Slot *slot)
{
    size_t mask = table->mask, hole = (size_t)(slot - table->slots), at = hole;
    for (;;) {
        at = (at + 1) & mask;
        if (!table->slots[at].item)
            break;
        /* An item may move back unless its home lies behind the hole. */
        if (((at - table->slots[at].hash) & mask) >= ((at - hole) & mask)) {
            table->slots[hole] = table->slots[at];
            hole = at;
        }
    }
    table->slots[hole].item = NULL;
    table->count--;
    if (mask + 1 > TABLE_SLOTS_MIN && table->count * 8 < mask + 1)
        (void)table_resize(table, (mask + 1) / 2); /* staying large is no harm */
}

static inline void table_free(Table *table)
{
    free(table->slots);
    memset(table, 0, sizeof *table);
}

#endif
