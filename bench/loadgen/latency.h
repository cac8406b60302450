/* Request and reply: requesters with one request in flight each, responders that answer at once. */
#ifndef LOADGEN_LATENCY_H
#define LOADGEN_LATENCY_H

#include "net.h"

struct latency_options {
    int requesters;
    int responders;
    bool queue;             /* responders share a queue group; else each request has one answer only
                               with a single responder */
    int payload_bytes;
    double seconds;
    double warmup_seconds;
    uint64_t count;         /* requests in all; 0: as many as fit the seconds */
};

void latency_run(const struct target *target, const struct latency_options *options);

#endif
