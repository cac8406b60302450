/* Publishes that ask for an answer each: JetStream. One connection, many in flight or one. */
#ifndef LOADGEN_ACKED_H
#define LOADGEN_ACKED_H

#include "net.h"

struct acked_options {
    int in_flight;
    int keys;               /* of a bucket, put in turn; 0: everything goes to bench.js */
    const char *header;     /* NULL, or a field of each publish; # is its number */
    bool get;               /* the keys' values are asked for instead */
    const char *record;     /* a file for what was acknowledged; publishes then have ids, see acked.c */
    long long first;        /* the first publish's number, with a record */
    int payload_bytes;
    double seconds;
    double warmup_seconds;
    int stall_ms;
};

void acked_run(const struct target *target, const struct acked_options *options);

#endif
