/* Latency as a client sees it: nothing spins, every wait is an epoll_wait. Reply subjects are
 * new for each request and caught by a wildcard, as client libraries do. */
#define _GNU_SOURCE
#include "latency.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "histogram.h"

enum { REPLY_TIMEOUT_MS = 20000, EVENTS_PER_WAIT = 64, SUBJECT_BYTES = 48 };

struct side {
    bool requester;
    int fd;
    int index;
    uint64_t sequence;      /* requester: of the request in flight */
    uint64_t sent_ns;       /* 0: no request in flight */
    uint64_t answered;
    size_t have;
    char *buffer;           /* RECEIVE_BYTES of input, with the unfinished tail at its start */
};

struct latency {
    const struct target *target;
    const struct latency_options *options;
    int epoll_fd;
    int side_count;
    struct side *sides;     /* requesters first */
    char *payload;
    char *output;
    struct histogram histogram;
    uint64_t started;
    uint64_t limit;
    uint64_t deadline_ns;
    int in_flight;
};

struct message {
    const char *subject, *reply; /* reply: NULL when there is none */
    size_t subject_bytes, reply_bytes, payload_bytes, whole_bytes;
};

/* A MSG at `at`. False: not complete yet. */
static bool message_parse(const char *at, const char *end, struct message *message)
{
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    if (!newline)
        return false;
    const char *words[5];
    size_t lengths[5];
    int count = 0;
    for (const char *word = at; word < newline - 1 && count < 5; count++) {
        const char *stop = word;
        while (stop < newline - 1 && *stop != ' ')
            stop++;
        words[count] = word;
        lengths[count] = (size_t)(stop - word);
        word = stop + 1;
    }
    if (count < 4)
        fail("a message line with %d words: %.*s", count, (int)(newline - at), at);
    message->subject = words[1];
    message->subject_bytes = lengths[1];
    message->reply = count == 5 ? words[3] : NULL;
    message->reply_bytes = count == 5 ? lengths[3] : 0;
    message->payload_bytes = (size_t)atol(words[count - 1]);
    message->whole_bytes = (size_t)(newline + 1 - at) + message->payload_bytes + 2;
    return (size_t)(end - at) >= message->whole_bytes;
}

static void request_send(struct latency *latency, struct side *side)
{
    uint64_t now = now_ns();
    if (latency->started >= latency->limit || now >= latency->deadline_ns)
        return;
    int length = sprintf(latency->output, "PUB bench.rr _INBOX.bench%02d.%010llu %d\r\n%s\r\n",
                         side->index, (unsigned long long)++side->sequence,
                         latency->options->payload_bytes, latency->payload);
    latency->started++;
    latency->in_flight++;
    side->sent_ns = now_ns();
    if (send(side->fd, latency->output, (size_t)length, MSG_NOSIGNAL) != length)
        fail("a requester cannot send: %s", strerror(errno));
}

static void reply_arrived(struct latency *latency, struct side *side, const struct message *message)
{
    char expected[SUBJECT_BYTES];
    int length = sprintf(expected, "_INBOX.bench%02d.%010llu", side->index,
                         (unsigned long long)side->sequence);
    if (side->sent_ns == 0 || message->subject_bytes != (size_t)length
        || memcmp(message->subject, expected, (size_t)length) != 0)
        fail("an answer to %s was due, and %.*s came", side->sent_ns ? expected : "nothing",
             (int)message->subject_bytes, message->subject);
    const char *payload = message->subject - 4 + message->whole_bytes - 2 - message->payload_bytes;
    if (message->payload_bytes != (size_t)latency->options->payload_bytes
        || memcmp(payload, latency->payload, message->payload_bytes) != 0)
        fail("an answer with another payload than the request's: %zu bytes", message->payload_bytes);
    histogram_add(&latency->histogram, now_ns() - side->sent_ns);
    side->sent_ns = 0;
    latency->in_flight--;
    request_send(latency, side);
}

static size_t reply_write(char *into, const struct message *message)
{
    const char *payload = message->subject - 4 + message->whole_bytes - 2 - message->payload_bytes;
    size_t length = 4;
    if (!message->reply)
        fail("a request without a reply subject arrived");
    memcpy(into, "PUB ", 4);
    memcpy(into + length, message->reply, message->reply_bytes);
    length += message->reply_bytes;
    length += (size_t)sprintf(into + length, " %zu\r\n", message->payload_bytes);
    memcpy(into + length, payload, message->payload_bytes + 2);
    return length + message->payload_bytes + 2;
}

static void side_read(struct latency *latency, struct side *side)
{
    struct message message;
    ssize_t got = recv(side->fd, side->buffer + side->have, RECEIVE_BYTES - side->have, 0);
    if (got <= 0)
        fail("the server closed a connection");
    const char *at = side->buffer, *end = side->buffer + side->have + got;
    size_t output_bytes = 0;
    while (at < end) {
        if (end - at >= 4 && memcmp(at, "MSG ", 4) == 0) {
            if (!message_parse(at, end, &message))
                break;
            if (side->requester)
                reply_arrived(latency, side, &message);
            else {
                output_bytes += reply_write(latency->output + output_bytes, &message);
                side->answered++;
            }
            at += message.whole_bytes;
            continue;
        }
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (!newline)
            break;
        control_is_pong(at, (size_t)(newline - at));
        at = newline + 1;
    }
    side->have = (size_t)(end - at);
    memmove(side->buffer, at, side->have);
    if (output_bytes > 0)
        send_all(side->fd, latency->output, output_bytes);
}

static void side_open(struct latency *latency, struct side *side, int index)
{
    char line[96];
    side->requester = index < latency->options->requesters;
    side->index = index;
    side->buffer = must_allocate(RECEIVE_BYTES);
    side->fd = nats_connect(latency->target);
    int length = side->requester
        ? sprintf(line, "SUB _INBOX.bench%02d.* 1\r\n", index)
        : sprintf(line, "SUB bench.rr %s1\r\n", latency->options->queue ? "workers " : "");
    send_all(side->fd, line, (size_t)length);
    nats_flush(side->fd);
    epoll_watch(latency->epoll_fd, EPOLL_CTL_ADD, side->fd, EPOLLIN, side);
}

static struct usage phase_run(struct latency *latency, double seconds)
{
    struct epoll_event events[EVENTS_PER_WAIT];
    struct usage start = usage_start(latency->target);
    memset(&latency->histogram, 0, sizeof latency->histogram);
    latency->started = 0;
    latency->limit = latency->options->count ? latency->options->count : UINT64_MAX;
    latency->deadline_ns = start.wall_ns + (uint64_t)(seconds * 1e9);
    for (int i = 0; i < latency->options->requesters; i++)
        request_send(latency, &latency->sides[i]);
    while (latency->in_flight > 0) {
        int count = epoll_wait(latency->epoll_fd, events, EVENTS_PER_WAIT, REPLY_TIMEOUT_MS);
        if (count == 0)
            fail("%d requests had no answer within %d ms", latency->in_flight, REPLY_TIMEOUT_MS);
        for (int i = 0; i < count; i++)
            side_read(latency, events[i].data.ptr);
    }
    return usage_since(latency->target, start);
}

static void latency_print(const struct latency *latency, struct usage usage)
{
    const struct histogram *histogram = &latency->histogram;
    uint64_t busiest = 0, idlest = UINT64_MAX;
    for (int i = latency->options->requesters; i < latency->side_count; i++) {
        uint64_t answered = latency->sides[i].answered;
        busiest = answered > busiest ? answered : busiest;
        idlest = answered < idlest ? answered : idlest;
    }
    printf("{\"load\":\"latency\",\"requests\":%llu,\"answers\":%llu,\"seconds\":%.4f,"
           "\"requests_per_s\":%.0f,\"p50_us\":%.2f,\"p99_us\":%.2f,\"p999_us\":%.2f,"
           "\"max_us\":%.2f,\"busiest_responder\":%llu,\"idlest_responder\":%llu,"
           "\"server_cpu_ns_per_message\":%.1f}\n",
           (unsigned long long)latency->started, (unsigned long long)histogram->total,
           (double)usage.wall_ns / 1e9, (double)histogram->total * 1e9 / (double)usage.wall_ns,
           histogram_ns(histogram, 0.5) / 1e3, histogram_ns(histogram, 0.99) / 1e3,
           histogram_ns(histogram, 0.999) / 1e3, (double)histogram->max_ns / 1e3,
           (unsigned long long)busiest, (unsigned long long)idlest,
           /* a request and its answer are two messages */
           (double)usage.server_cpu_ns / (2.0 * (double)histogram->total));
}

void latency_run(const struct target *target, const struct latency_options *options)
{
    struct latency *latency = must_allocate(sizeof *latency);
    latency->target = target;
    latency->options = options;
    latency->epoll_fd = epoll_open();
    latency->side_count = options->requesters + options->responders;
    latency->sides = must_allocate((size_t)latency->side_count * sizeof *latency->sides);
    latency->payload = must_allocate((size_t)options->payload_bytes + 1);
    memset(latency->payload, 'x', (size_t)options->payload_bytes);
    latency->output = must_allocate(4 * RECEIVE_BYTES);
    for (int i = latency->side_count - 1; i >= 0; i--)
        side_open(latency, &latency->sides[i], i);
    if (options->warmup_seconds > 0 && !options->count)
        phase_run(latency, options->warmup_seconds);
    for (int i = 0; i < latency->side_count; i++)
        latency->sides[i].answered = 0;
    latency_print(latency, phase_run(latency, options->seconds));
    for (int i = 0; i < latency->side_count; i++)
        close_hard(latency->sides[i].fd);
}
