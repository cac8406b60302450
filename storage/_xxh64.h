/* XXH64, written from the algorithm's public specification. No Python, no lock, any alignment. */
#ifndef MARTLET_XXH64_H
#define MARTLET_XXH64_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define XXH_P1 0x9E3779B185EBCA87ULL
#define XXH_P2 0xC2B2AE3D27D4EB4FULL
#define XXH_P3 0x165667B19E3779F9ULL
#define XXH_P4 0x85EBCA77C2B2AE63ULL
#define XXH_P5 0x27D4EB2F165667C5ULL

static inline uint64_t martlet_rotl(uint64_t value, int bits) {
    return (value << bits) | (value >> (64 - bits));
}

static inline uint64_t martlet_load64(const unsigned char *at) {
    uint64_t value;
    memcpy(&value, at, 8);
    return value;
}

static inline uint32_t martlet_load32(const unsigned char *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return value;
}

static inline uint64_t martlet_xxh_round(uint64_t lane, uint64_t input) {
    return martlet_rotl(lane + input * XXH_P2, 31) * XXH_P1;
}

static inline uint64_t martlet_xxh_merge(uint64_t hash, uint64_t lane) {
    return (hash ^ martlet_xxh_round(0, lane)) * XXH_P1 + XXH_P4;
}

static inline uint64_t martlet_xxh64(const char *data, size_t size, uint64_t seed) {
    const unsigned char *at = (const unsigned char *)data;
    const unsigned char *end = at + size;
    uint64_t hash;

    if (size >= 32) {
        uint64_t a = seed + XXH_P1 + XXH_P2, b = seed + XXH_P2, c = seed, d = seed - XXH_P1;
        const unsigned char *stripes_end = end - 32;
        do {
            a = martlet_xxh_round(a, martlet_load64(at));
            b = martlet_xxh_round(b, martlet_load64(at + 8));
            c = martlet_xxh_round(c, martlet_load64(at + 16));
            d = martlet_xxh_round(d, martlet_load64(at + 24));
            at += 32;
        } while (at <= stripes_end);
        hash = martlet_rotl(a, 1) + martlet_rotl(b, 7) + martlet_rotl(c, 12) + martlet_rotl(d, 18);
        hash = martlet_xxh_merge(hash, a);
        hash = martlet_xxh_merge(hash, b);
        hash = martlet_xxh_merge(hash, c);
        hash = martlet_xxh_merge(hash, d);
    } else {
        hash = seed + XXH_P5;
    }
    hash += (uint64_t)size;
    for (; at + 8 <= end; at += 8)
        hash = martlet_rotl(hash ^ martlet_xxh_round(0, martlet_load64(at)), 27) * XXH_P1 + XXH_P4;
    if (at + 4 <= end) {
        hash = martlet_rotl(hash ^ (uint64_t)martlet_load32(at) * XXH_P1, 23) * XXH_P2 + XXH_P3;
        at += 4;
    }
    for (; at < end; at++)
        hash = martlet_rotl(hash ^ *at * XXH_P5, 11) * XXH_P1;
    hash = (hash ^ (hash >> 33)) * XXH_P2;
    hash = (hash ^ (hash >> 29)) * XXH_P3;
    return hash ^ (hash >> 32);
}
#endif
