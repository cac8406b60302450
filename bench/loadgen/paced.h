/* Many publishers, each on its own connection and subject, each at the same steady rate. */
#ifndef LOADGEN_PACED_H
#define LOADGEN_PACED_H

#include "net.h"

struct paced_options {
    int publishers;
    int rate; /* publishes a second of each */
    int payload_bytes;
    bool acked;
    bool heard; /* each publisher hears its own messages */
    double seconds;
    double warmup_seconds;
    int stall_ms;
};

void paced_run(const struct target *target, const struct paced_options *options);

#endif
