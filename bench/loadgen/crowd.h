/* Many of something at rest: connections, subscriptions. */
#ifndef LOADGEN_CROWD_H
#define LOADGEN_CROWD_H

#include "net.h"

struct crowd_options {
    int count;
    int connections;        /* that share the subscriptions */
    int connecting_at_once;
    double settle_seconds;  /* between the last one and the look at the server's memory */
};

void connections_run(const struct target *target, const struct crowd_options *options);
void subscriptions_run(const struct target *target, const struct crowd_options *options);

#endif
