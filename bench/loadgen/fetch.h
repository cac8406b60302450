/* Messages of a JetStream consumer: fetched in batches, with or without acks, or pushed as to an
 * ordered consumer. */
#ifndef LOADGEN_FETCH_H
#define LOADGEN_FETCH_H

#include "net.h"

struct fetch_options {
    uint64_t count;         /* messages that are in the stream */
    int batch;              /* of each request; 0: they are pushed to bench.push */
    bool acks;
    bool last_per_subject;  /* pushed: the last message of each subject */
    int stall_ms;
};

void fetch_run(const struct target *target, const struct fetch_options *options);

#endif
