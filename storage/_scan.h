/* Searches through the subject numbers of a span. On x86-64 with glibc each is compiled twice and
 * the loader picks the one for the processor. */
#ifndef MARTLET_STORAGE_SCAN_H
#define MARTLET_STORAGE_SCAN_H

#include <stdint.h>
#include <stdlib.h>

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define MARTLET_CLONES __attribute__((target_clones("avx2", "default"), unused))
#else
#define MARTLET_CLONES __attribute__((unused))
#endif

#define SCAN_BLOCK 32
#define SUBJECT_BITS 0x3FFFFFFFu

/* The first place from `at` on with this subject, or `end`. */
MARTLET_CLONES static uint32_t
find_subject(const uint32_t *slots, uint32_t at, uint32_t end, uint32_t subject)
{
    while (at + SCAN_BLOCK <= end) {
        uint32_t hit = 0;
        for (uint32_t i = 0; i < SCAN_BLOCK; i++)
            hit |= (slots[at + i] & SUBJECT_BITS) == subject;
        if (hit)
            break;
        at += SCAN_BLOCK;
    }
    while (at < end && (slots[at] & SUBJECT_BITS) != subject)
        at++;
    return at;
}

/* One more than the last place below `at` with this subject, or 0. */
MARTLET_CLONES static uint32_t
find_subject_down(const uint32_t *slots, uint32_t at, uint32_t subject)
{
    while (at >= SCAN_BLOCK) {
        uint32_t hit = 0;
        for (uint32_t i = 0; i < SCAN_BLOCK; i++)
            hit |= (slots[at - SCAN_BLOCK + i] & SUBJECT_BITS) == subject;
        if (hit)
            break;
        at -= SCAN_BLOCK;
    }
    while (at > 0 && (slots[at - 1] & SUBJECT_BITS) != subject)
        at--;
    return at;
}

MARTLET_CLONES static uint32_t
count_subject(const uint32_t *slots, uint32_t at, uint32_t end, uint32_t subject)
{
    uint32_t total = 0;
    for (; at < end; at++)
        total += (slots[at] & SUBJECT_BITS) == subject;
    return total;
}

MARTLET_CLONES static uint32_t
count_live(const uint32_t *slots, uint32_t at, uint32_t end)
{
    uint32_t total = 0;
    for (; at < end; at++)
        total += slots[at] != 0;
    return total;
}

/* How many of the slots have a subject whose bit is set. No subject is number 0. */
MARTLET_CLONES static uint32_t
count_bits(const uint32_t *slots, uint32_t at, uint32_t end, const uint32_t *bits)
{
    uint32_t total = 0;
    for (; at < end; at++) {
        uint32_t number = slots[at] & SUBJECT_BITS;
        total += (bits[number >> 5] >> (number & 31)) & 1;
    }
    return total;
}

/* Which of `count` (at most 32) subjects from `first` on hang at this node: with verdict 1 a bit in
 * `yes`, with verdict 2 one in `ask`. */
MARTLET_CLONES static void
mark_node(const uint32_t *nodes, const uint8_t *tails, uint32_t first, uint32_t count, uint32_t node,
          const uint8_t *verdicts, uint32_t *yes, uint32_t *ask)
{
    uint32_t here = 0, first_bits = 0, second_bits = 0;
    nodes += first;
    tails += first;
    for (uint32_t i = 0; i < count; i++)
        here |= (uint32_t)(nodes[i] == node) << i;
    if (here) {
        for (uint32_t i = 0; i < count; i++) {
            uint32_t verdict = verdicts[tails[i]];
            first_bits |= (verdict & 1) << i;
            second_bits |= (verdict >> 1) << i;
        }
    }
    *yes = here & first_bits;
    *ask = here & second_bits;
}

#endif
