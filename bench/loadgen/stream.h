/* Publishers that write whole batches, subscribers that count every message. */
#ifndef LOADGEN_STREAM_H
#define LOADGEN_STREAM_H

#include "net.h"

struct stream_options {
    int publishers;
    int subscribers;
    int subjects;           /* publisher i and subscriber i use subject i modulo this */
    int payload_bytes;
    double seconds;
    double warmup_seconds;
    uint64_t count;         /* messages of each publisher; 0: as many as fit the seconds */
    int stall_ms;           /* without any progress for so long, messages are lost */
    uint64_t expect;        /* calibration only: each subscriber gets so many after a PING */
};

struct stream_result {
    uint64_t sent;
    uint64_t received;
    uint64_t expected;
    struct usage usage;
};

struct stream_result stream_run(const struct target *target, const struct stream_options *options);
void stream_print(const struct stream_options *options, const struct stream_result *result);

#endif
