/* Clients that behave badly, at a steady and moderate pace, for a bounded time. */
#ifndef LOADGEN_ATTACK_H
#define LOADGEN_ATTACK_H

#include "net.h"

/* Alone: the garbage goes to a port of its own, where nobody answers; what its process costs the others. */
enum attack_kind { ATTACK_SLOW, ATTACK_DEAF, ATTACK_GARBAGE, ATTACK_ALONE };

struct attack_options {
    enum attack_kind kind;
    int subscribers;
    int bytes_per_ms;       /* what the publisher towards slow or deaf subscribers sends */
    double seconds;
};

void attack_run(const struct target *target, const struct attack_options *options);

#endif
