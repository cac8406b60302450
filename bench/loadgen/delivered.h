/* From a publish to its delivery: how long a message of a stream is under way. */
#ifndef LOADGEN_DELIVERED_H
#define LOADGEN_DELIVERED_H

#include "net.h"

struct delivered_options {
    int payload_bytes;
    double seconds;
    double warmup_seconds;
    int stall_ms;
};

void delivered_run(const struct target *target, const struct delivered_options *options);

#endif
