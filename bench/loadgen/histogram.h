/* Counts of nanoseconds in buckets that are never wider than 1/128 of their value. */
#ifndef LOADGEN_HISTOGRAM_H
#define LOADGEN_HISTOGRAM_H

#include <stdint.h>
#include <string.h>

enum { HISTOGRAM_STEPS = 128, HISTOGRAM_BUCKETS = HISTOGRAM_STEPS * 40 };

struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS];
    uint64_t total;
    uint64_t max_ns;
};

static inline unsigned histogram_bucket(uint64_t ns)
{
    unsigned shift = 0;
    while (ns >> shift >= 2 * HISTOGRAM_STEPS)
        shift++;
    unsigned bucket = shift * HISTOGRAM_STEPS + (unsigned)(ns >> shift);
    return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

static inline void histogram_add(struct histogram *histogram, uint64_t ns)
{
    histogram->counts[histogram_bucket(ns)]++;
    histogram->total++;
    if (ns > histogram->max_ns)
        histogram->max_ns = ns;
}

/* The middle of the bucket in which the `share` of all values ends. */
static inline double histogram_ns(const struct histogram *histogram, double share)
{
    double wanted = share * (double)histogram->total;
    uint64_t seen = 0;
    for (unsigned bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++) {
        seen += histogram->counts[bucket];
        if (seen == 0 || (double)seen < wanted)
            continue;
        if (bucket < 2 * HISTOGRAM_STEPS)
            return bucket;
        unsigned shift = bucket / HISTOGRAM_STEPS - 1;
        return ((double)(bucket - shift * HISTOGRAM_STEPS) + 0.5) * (double)(1ull << shift);
    }
    return (double)histogram->max_ns;
}

#endif
