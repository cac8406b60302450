#define _GNU_SOURCE
#include "crowd.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STALL_MS = 20000, EVENTS_PER_WAIT = 256, SUBJECTS_PER_BRANCH = 1000, PROBES = 1000 };

enum member_state { WAITS_FOR_INFO, WAITS_FOR_PONG, CONNECTED };

struct member {
    int fd;
    enum member_state state;
};

struct crowd {
    const struct target *target;
    int epoll_fd;
    int opened;
    int connected;
    struct member *members;
    char *buffer;
};

static void pause_seconds(double seconds)
{
    if (seconds > 0)
        usleep((useconds_t)(seconds * 1e6));
}

static void member_open(struct crowd *crowd)
{
    struct member *member = &crowd->members[crowd->opened++];
    const struct sockaddr_in *address = &crowd->target->address;
    member->fd = socket_open();
    member->state = WAITS_FOR_INFO;
    if (connect(member->fd, (const struct sockaddr *)address, sizeof *address) != 0
        && errno != EINPROGRESS)
        fail("connection %d of the crowd: %s", crowd->opened, strerror(errno));
    epoll_watch(crowd->epoll_fd, EPOLL_CTL_ADD, member->fd, EPOLLIN, member);
}

/* Lines are short and arrive whole here: a server writes INFO and PONG in one piece each. */
static void member_read(struct crowd *crowd, struct member *member)
{
    ssize_t got = recv(member->fd, crowd->buffer, RECEIVE_BYTES, 0);
    if (got <= 0)
        fail("a connection of the crowd was closed: %s", got < 0 ? strerror(errno) : "by the server");
    const char *at = crowd->buffer, *end = at + got, *newline;
    for (; (newline = memchr(at, '\n', (size_t)(end - at))); at = newline + 1) {
        bool pong = control_is_pong(at, (size_t)(newline - at));
        if (member->state == WAITS_FOR_INFO && memcmp(at, "INFO", 4) == 0) {
            send_all(member->fd, nats_hello(), strlen(nats_hello()));
            member->state = WAITS_FOR_PONG;
        } else if (member->state == WAITS_FOR_PONG && pong) {
            member->state = CONNECTED;
            crowd->connected++;
        }
    }
    if (at != end)
        fail("half a line arrived: %.40s", at);
}

static void crowd_step(struct crowd *crowd)
{
    struct epoll_event events[EVENTS_PER_WAIT];
    int count = epoll_wait(crowd->epoll_fd, events, EVENTS_PER_WAIT, STALL_MS);
    if (count == 0)
        fail("%d of %d connections answered; nothing moved for %d ms", crowd->connected,
             crowd->opened, STALL_MS);
    for (int i = 0; i < count; i++)
        member_read(crowd, events[i].data.ptr);
}

/* Every connection must still answer after all were opened. */
static void crowd_probe(struct crowd *crowd)
{
    crowd->connected = 0;
    for (int i = 0; i < crowd->opened; i++) {
        crowd->members[i].state = WAITS_FOR_PONG;
        send_all(crowd->members[i].fd, "PING\r\n", 6);
    }
    while (crowd->connected < crowd->opened)
        crowd_step(crowd);
}

static void crowd_print(const char *load, int count, uint64_t before, uint64_t after,
                        struct usage usage)
{
    double seconds = (double)usage.wall_ns / 1e9;
    printf("{\"load\":\"%s\",\"count\":%d,\"seconds\":%.4f,\"per_s\":%.0f,"
           "\"rss_before_bytes\":%llu,\"rss_after_bytes\":%llu,\"rss_bytes_each\":%.1f,"
           "\"server_cpu_ns_each\":%.1f}\n",
           load, count, seconds, count / seconds, (unsigned long long)before,
           (unsigned long long)after, ((double)after - (double)before) / count,
           (double)usage.server_cpu_ns / count);
}

void connections_run(const struct target *target, const struct crowd_options *options)
{
    struct crowd crowd = {.target = target, .epoll_fd = epoll_open()};
    crowd.members = must_allocate((size_t)options->count * sizeof *crowd.members);
    crowd.buffer = must_allocate(RECEIVE_BYTES);
    uint64_t before = process_rss_bytes(target->server_pid);
    struct usage start = usage_start(target);
    while (crowd.connected < options->count) {
        while (crowd.opened < options->count
               && crowd.opened - crowd.connected < options->connecting_at_once)
            member_open(&crowd);
        crowd_step(&crowd);
    }
    struct usage usage = usage_since(target, start);
    pause_seconds(options->settle_seconds);
    uint64_t after = process_rss_bytes(target->server_pid);
    crowd_probe(&crowd);
    crowd_print("connections", options->count, before, after, usage);
    for (int i = 0; i < crowd.opened; i++)
        close_hard(crowd.members[i].fd);
}

static int subscription_name(char *name, int index)
{
    return sprintf(name, "bench.%d.%d", index / SUBJECTS_PER_BRANCH, index % SUBJECTS_PER_BRANCH);
}

static void subscribe_range(int fd, int first, int end, char *buffer)
{
    size_t length = 0;
    for (int i = first; i < end; i++) {
        length += (size_t)sprintf(buffer + length, "SUB ");
        length += (size_t)subscription_name(buffer + length, i);
        length += (size_t)sprintf(buffer + length, " %d\r\n", i - first + 1);
        if (length > RECEIVE_BYTES - 64 || i == end - 1) {
            send_all(fd, buffer, length);
            length = 0;
        }
    }
}

/* A PING of the server's may stand between messages; it is taken out. */
static void receive_exactly(int fd, char *buffer, size_t length)
{
    size_t have = 0;
    while (have < length) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, STALL_MS) <= 0)
            fail("%zu of %zu bytes of the probe's messages came", have, length);
        ssize_t got = recv(fd, buffer + have, length - have, 0);
        if (got <= 0)
            fail("the server closed a connection with subscriptions");
        have += (size_t)got;
        char *ping = memmem(buffer, have, "PING\r\n", 6);
        if (ping) {
            memmove(ping, ping + 6, have - 6 - (size_t)(ping - buffer));
            have -= 6;
        }
    }
}

/* Publishes to subjects spread over all subscriptions of one connection: each must arrive. */
static void subscriptions_probe(const struct target *target, int fd, int count, char *buffer)
{
    char name[32], *expected = must_allocate(PROBES * 64);
    size_t expected_bytes = 0, length = 0;
    int probes = count < PROBES ? count : PROBES;
    for (int i = 0; i < probes; i++) {
        int index = (int)((int64_t)i * count / probes);
        subscription_name(name, index);
        length += (size_t)sprintf(buffer + length, "PUB %s 2\r\nok\r\n", name);
        expected_bytes += (size_t)sprintf(expected + expected_bytes, "MSG %s %d 2\r\nok\r\n", name,
                                          index + 1);
    }
    int publisher = nats_connect(target);
    send_all(publisher, buffer, length);
    nats_flush(publisher);
    receive_exactly(fd, buffer, expected_bytes);
    if (memcmp(buffer, expected, expected_bytes) != 0)
        fail("the probe's messages differ from what was published");
    close_hard(publisher);
    free(expected);
}

void subscriptions_run(const struct target *target, const struct crowd_options *options)
{
    char *buffer = must_allocate(2 * RECEIVE_BYTES);
    int connections = options->connections, each = options->count / connections;
    int *fds = must_allocate((size_t)connections * sizeof *fds);
    for (int i = 0; i < connections; i++)
        fds[i] = nats_connect(target);
    uint64_t before = process_rss_bytes(target->server_pid);
    struct usage start = usage_start(target);
    for (int i = 0; i < connections; i++)
        subscribe_range(fds[i], i * each, (i + 1) * each, buffer);
    for (int i = 0; i < connections; i++)
        nats_flush(fds[i]);
    struct usage usage = usage_since(target, start);
    pause_seconds(options->settle_seconds);
    uint64_t after = process_rss_bytes(target->server_pid);
    subscriptions_probe(target, fds[0], each, buffer);
    crowd_print("subscriptions", each * connections, before, after, usage);
    for (int i = 0; i < connections; i++)
        close_hard(fds[i]);
}
