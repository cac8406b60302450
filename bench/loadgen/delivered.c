/* The stream B on bench.js and its pull consumer P, without acks, are there already. One connection
 * publishes and waits for the ack, another waits for the message; only then comes the next publish.
 * One request for very many messages is under way all the time, as client libraries that consume
 * without end have it. */
#define _GNU_SOURCE
#include "delivered.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "histogram.h"

enum { LINE_BYTES = 256, BUFFER_BYTES = 64 * 1024 };

struct side {
    int fd;
    const char *begins; /* what the line of its messages begins with */
    size_t have;
    char buffer[BUFFER_BYTES];
    uint64_t arrived;
};

struct delivered {
    const struct target *target;
    const struct delivered_options *options;
    struct side publisher, consumer;
    char *payload;
    uint64_t sent, sent_ns;
    struct histogram delivery, ack;
};

/* A pull request ends with a status when it is over: this load must end before. */
static const char PULL[] = "{\"batch\":100000000,\"expires\":300000000000}";

static void message_check(const struct delivered *delivered, const struct side *side, const char *line,
                          const char *body, size_t body_bytes)
{
    if (strncmp(line, side->begins, strlen(side->begins)) != 0)
        fail("an unexpected message came: %.*s", 100, line);
    if (side == &delivered->publisher) {
        if (memmem(body, body_bytes, "\"error\"", 7) || !memmem(body, body_bytes, "\"seq\":", 6))
            fail("no ack: %.*s", (int)body_bytes, body);
    } else if (body_bytes != (size_t)delivered->options->payload_bytes
               || memcmp(body, delivered->payload, body_bytes) != 0)
        fail("another message was published than came");
    if (side->arrived == delivered->sent)
        fail("a message came twice");
}

/* At most one message is under way on each connection. */
static void side_read(struct delivered *delivered, struct side *side, struct histogram *histogram)
{
    ssize_t got = recv(side->fd, side->buffer + side->have, BUFFER_BYTES - side->have, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0)
        fail("the server closed the connection");
    const char *at = side->buffer, *end = side->buffer + side->have + got;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (!newline)
            break;
        if (memcmp(at, "MSG ", 4) != 0 && memcmp(at, "HMSG ", 5) != 0) {
            control_is_pong(at, (size_t)(newline - at));
            at = newline + 1;
            continue;
        }
        const char *size = newline - 1;
        while (size[-1] != ' ')
            size--;
        size_t body_bytes = strtoul(size, NULL, 10);
        if ((size_t)(end - newline - 1) < body_bytes + 2)
            break;
        message_check(delivered, side, at, newline + 1, body_bytes);
        histogram_add(histogram, now_ns() - delivered->sent_ns);
        side->arrived++;
        at = newline + 1 + body_bytes + 2;
    }
    side->have = (size_t)(end - at);
    memmove(side->buffer, at, side->have);
}

static void publish(struct delivered *delivered)
{
    char line[LINE_BYTES];
    size_t size = (size_t)delivered->options->payload_bytes;
    int length = sprintf(line, "PUB bench.js _INBOX.bench %d\r\n", delivered->options->payload_bytes);
    char *whole = delivered->payload + size + 2; /* room behind the payload */
    memcpy(whole, line, (size_t)length);
    memcpy(whole + length, delivered->payload, size + 2);
    delivered->sent++;
    delivered->sent_ns = now_ns();
    send_all(delivered->publisher.fd, whole, (size_t)length + size + 2);
}

static struct usage phase_run(struct delivered *delivered, double seconds)
{
    struct usage start = usage_start(delivered->target);
    uint64_t deadline = start.wall_ns + (uint64_t)(seconds * 1e9);
    struct side *publisher = &delivered->publisher, *consumer = &delivered->consumer;
    memset(&delivered->delivery, 0, sizeof delivered->delivery);
    memset(&delivered->ack, 0, sizeof delivered->ack);
    do {
        publish(delivered);
        while (publisher->arrived < delivered->sent || consumer->arrived < delivered->sent) {
            struct pollfd watched[] = {{publisher->fd, POLLIN, 0}, {consumer->fd, POLLIN, 0}};
            if (poll(watched, 2, delivered->options->stall_ms) == 0)
                fail("message %llu: %s did not come within %d ms", (unsigned long long)delivered->sent,
                     consumer->arrived < delivered->sent ? "it" : "its ack", delivered->options->stall_ms);
            if (watched[0].revents)
                side_read(delivered, publisher, &delivered->ack);
            if (watched[1].revents)
                side_read(delivered, consumer, &delivered->delivery);
        }
    } while (now_ns() < deadline);
    return usage_since(delivered->target, start);
}

static void begin(struct delivered *delivered)
{
    char text[LINE_BYTES];
    delivered->publisher.begins = "MSG _INBOX.bench ";
    delivered->publisher.fd = nats_connect(delivered->target);
    send_all(delivered->publisher.fd, "SUB _INBOX.bench 1\r\n", 20);
    nats_flush(delivered->publisher.fd);
    delivered->consumer.begins = "MSG bench.js ";
    delivered->consumer.fd = nats_connect(delivered->target);
    int length = sprintf(text, "SUB bench.pull 1\r\nPUB $JS.API.CONSUMER.MSG.NEXT.B.P bench.pull %zu\r\n%s\r\n",
                         sizeof PULL - 1, PULL);
    send_all(delivered->consumer.fd, text, (size_t)length);
    nats_flush(delivered->consumer.fd);
}

void delivered_run(const struct target *target, const struct delivered_options *options)
{
    struct delivered *delivered = must_allocate(sizeof *delivered);
    memset(delivered, 0, sizeof *delivered);
    delivered->target = target;
    delivered->options = options;
    size_t size = (size_t)options->payload_bytes;
    delivered->payload = must_allocate(2 * (size + 2) + LINE_BYTES);
    memset(delivered->payload, 'x', size);
    memcpy(delivered->payload + size, "\r\n", 2);
    begin(delivered);
    if (options->warmup_seconds > 0)
        phase_run(delivered, options->warmup_seconds);
    struct usage usage = phase_run(delivered, options->seconds);
    const struct histogram *delivery = &delivered->delivery, *ack = &delivered->ack;
    printf("{\"load\":\"delivered\",\"messages\":%llu,\"p50_us\":%.2f,\"p99_us\":%.2f,\"max_us\":%.2f,"
           "\"ack_p50_us\":%.2f,\"ack_p99_us\":%.2f,\"server_cpu_ns_per_message\":%.1f}\n",
           (unsigned long long)delivery->total, histogram_ns(delivery, 0.5) / 1e3,
           histogram_ns(delivery, 0.99) / 1e3, (double)delivery->max_ns / 1e3,
           histogram_ns(ack, 0.5) / 1e3, histogram_ns(ack, 0.99) / 1e3,
           (double)usage.server_cpu_ns / (double)delivery->total);
    close_hard(delivered->publisher.fd);
    close_hard(delivered->consumer.fd);
}
