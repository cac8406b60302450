#define _GNU_SOURCE
#include "attack.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    PAYLOAD_BYTES = 1024,
    BATCH_MESSAGES = 32,        /* leave in one write, as client libraries do it */
    NARROW_BYTES = 32 * 1024,
    SLOW_READ_BYTES = 32 * 1024,
    SLOW_READ_EVERY_MS = 10,
    GARBAGE_OPEN = 64,
    UNANSWERED_MAX = 2048,      /* within any system's bound of connections that nobody accepts */
};

struct attack {
    const struct target *target;
    const struct attack_options *options;
    uint64_t ms;
    uint64_t published_bytes;
    uint64_t reconnects;
    int *subscribers;
    int publisher;
    char *batch;
    size_t batch_bytes;
    int garbage[GARBAGE_OPEN];
    struct sockaddr_in victim;
    int own_listener;
};

static int subscriber_open(const struct target *target)
{
    int fd = nats_connect_narrow(target, NARROW_BYTES);
    send_all(fd, "SUB bench.attack 1\r\n", 20);
    return fd;
}

static void publish_share(struct attack *attack)
{
    size_t left = (size_t)attack->options->bytes_per_ms;
    while (left > 0) {
        size_t offset = (size_t)(attack->published_bytes % attack->batch_bytes);
        size_t length = attack->batch_bytes - offset;
        ssize_t sent = send(attack->publisher, attack->batch + offset,
                            length < left ? length : left, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN)
            return; /* the server holds a publisher back: that is its right */
        if (sent < 0)
            fail("the publisher was closed: %s", strerror(errno));
        attack->published_bytes += (uint64_t)sent;
        left -= (size_t)sent;
    }
}

/* Also where unread bytes stand before the close. */
static bool was_closed(int fd)
{
    struct pollfd look = {.fd = fd, .events = POLLRDHUP};
    return poll(&look, 1, 0) > 0;
}

/* One that the server closed comes back. */
static void subscriber_tend(struct attack *attack, int *fd)
{
    static char buffer[SLOW_READ_BYTES];
    if (was_closed(*fd)) {
        close_hard(*fd);
        *fd = subscriber_open(attack->target);
        attack->reconnects++;
    }
    if (attack->options->kind == ATTACK_SLOW && attack->ms % SLOW_READ_EVERY_MS == 0
        && recv(*fd, buffer, sizeof buffer, 0) < 0 && errno != EAGAIN && errno != ECONNRESET)
        fail("a slow subscriber cannot read: %s", strerror(errno));
}

static const char *garbage_of(uint64_t turn, size_t *length)
{
    static char noise[8192];
    static const char *lines[] = {"PUB bench.x 99999999999999\r\n", "SUB\r\n", "FOO bar baz\r\n",
                                  "HPUB bench.x 900 3\r\n", "CONNECT {\"verbose\":\r\n"};
    unsigned which = (unsigned)(turn % 7);
    if (which < 5) {
        *length = strlen(lines[which]);
        return lines[which];
    }
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = which == 5 ? 'A' : (char)rand();
    *length = sizeof noise;
    return noise;
}

/* A port of its own, anew before the connections that wait there are too many. */
static void own_port_renew(struct attack *attack)
{
    struct sockaddr_in *own = &attack->victim;
    socklen_t size = sizeof *own;
    if (attack->own_listener)
        close(attack->own_listener);
    *own = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    attack->own_listener = socket_open();
    if (bind(attack->own_listener, (struct sockaddr *)own, sizeof *own) != 0 ||
        listen(attack->own_listener, 2 * UNANSWERED_MAX) != 0 ||
        getsockname(attack->own_listener, (struct sockaddr *)own, &size) != 0)
        fail("no port of its own: %s", strerror(errno));
}

static void garbage_throw(struct attack *attack)
{
    size_t length;
    if (attack->options->kind == ATTACK_ALONE && attack->reconnects % UNANSWERED_MAX == 0)
        own_port_renew(attack);
    const struct sockaddr_in *address = &attack->victim;
    const char *bytes = garbage_of(attack->reconnects, &length);
    int *slot = &attack->garbage[attack->reconnects++ % GARBAGE_OPEN];
    if (*slot)
        close_hard(*slot);
    *slot = socket_open();
    socket_block(*slot, true);
    if (connect(*slot, (const struct sockaddr *)address, sizeof *address) != 0)
        fail("the garbage publisher cannot connect: %s", strerror(errno));
    socket_block(*slot, false);
    send(*slot, bytes, length, MSG_NOSIGNAL); /* the server may have closed already */
}

static void attack_tick(struct attack *attack)
{
    if (attack->options->kind >= ATTACK_GARBAGE) {
        garbage_throw(attack);
        return;
    }
    publish_share(attack);
    for (int i = 0; i < attack->options->subscribers; i++)
        subscriber_tend(attack, &attack->subscribers[i]);
}

static void attack_prepare(struct attack *attack)
{
    char header[64];
    if (attack->options->kind >= ATTACK_GARBAGE)
        return;
    int subscribers = attack->options->subscribers;
    attack->subscribers = must_allocate((size_t)subscribers * sizeof *attack->subscribers);
    for (int i = 0; i < subscribers; i++)
        attack->subscribers[i] = subscriber_open(attack->target);
    attack->publisher = nats_connect(attack->target);
    int length = sprintf(header, "PUB bench.attack %d\r\n", PAYLOAD_BYTES);
    size_t message_bytes = (size_t)length + PAYLOAD_BYTES + 2;
    attack->batch_bytes = BATCH_MESSAGES * message_bytes;
    attack->batch = must_allocate(attack->batch_bytes);
    for (int i = 0; i < BATCH_MESSAGES; i++) {
        char *at = attack->batch + (size_t)i * message_bytes;
        memcpy(at, header, (size_t)length);
        memset(at + length, 'z', PAYLOAD_BYTES);
        memcpy(at + message_bytes - 2, "\r\n", 2);
    }
}

void attack_run(const struct target *target, const struct attack_options *options)
{
    struct attack attack = {.target = target, .options = options, .victim = target->address};
    attack_prepare(&attack);
    puts("attacking");
    fflush(stdout);
    uint64_t start = now_ns(), end = start + (uint64_t)(options->seconds * 1e9);
    for (uint64_t now = start; now < end; now = now_ns()) {
        attack_tick(&attack);
        attack.ms++;
        uint64_t next = start + attack.ms * 1000000u;
        struct timespec wake = {(time_t)(next / 1000000000u), (long)(next % 1000000000u)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL);
    }
    printf("{\"load\":\"attack\",\"published_bytes\":%llu,\"reconnects\":%llu}\n",
           (unsigned long long)attack.published_bytes, (unsigned long long)attack.reconnects);
}
