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

/* At most one message is under way on each. */
struct side {
    struct delivered *delivered;
    int fd;
    const char *begins; /* what the line of its messages begins with */
    struct inbox inbox;
    uint64_t arrived;
    struct histogram histogram;
};

struct delivered {
    const struct target *target;
    const struct delivered_options *options;
    struct side publisher, consumer;
    char *payload;
    uint64_t sent, sent_ns;
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

static void message_arrived(void *owner, const char *line, const char *body, size_t body_bytes)
{
    struct side *side = owner;
    message_check(side->delivered, side, line, body, body_bytes);
    histogram_add(&side->histogram, now_ns() - side->delivered->sent_ns);
    side->arrived++;
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
    memset(&consumer->histogram, 0, sizeof consumer->histogram);
    memset(&publisher->histogram, 0, sizeof publisher->histogram);
    do {
        publish(delivered);
        while (publisher->arrived < delivered->sent || consumer->arrived < delivered->sent) {
            struct pollfd watched[] = {{publisher->fd, POLLIN, 0}, {consumer->fd, POLLIN, 0}};
            if (poll(watched, 2, delivered->options->stall_ms) == 0)
                fail("message %llu: %s did not come within %d ms", (unsigned long long)delivered->sent,
                     consumer->arrived < delivered->sent ? "it" : "its ack", delivered->options->stall_ms);
            if (watched[0].revents)
                messages_read(publisher->fd, &publisher->inbox, message_arrived, publisher);
            if (watched[1].revents)
                messages_read(consumer->fd, &consumer->inbox, message_arrived, consumer);
        }
    } while (now_ns() < deadline);
    return usage_since(delivered->target, start);
}

static void side_open(struct delivered *delivered, struct side *side, const char *begins)
{
    side->delivered = delivered;
    side->begins = begins;
    side->fd = nats_connect(delivered->target);
    side->inbox = (struct inbox){must_allocate(BUFFER_BYTES), BUFFER_BYTES, 0};
}

static void begin(struct delivered *delivered)
{
    char text[LINE_BYTES];
    side_open(delivered, &delivered->publisher, "MSG _INBOX.bench ");
    send_all(delivered->publisher.fd, "SUB _INBOX.bench 1\r\n", 20);
    nats_flush(delivered->publisher.fd);
    side_open(delivered, &delivered->consumer, "MSG bench.js ");
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
    const struct histogram *delivery = &delivered->consumer.histogram, *ack = &delivered->publisher.histogram;
    printf("{\"load\":\"delivered\",\"messages\":%llu,\"p50_us\":%.2f,\"p99_us\":%.2f,\"max_us\":%.2f,"
           "\"ack_p50_us\":%.2f,\"ack_p99_us\":%.2f,\"server_cpu_ns_per_message\":%.1f}\n",
           (unsigned long long)delivery->total, histogram_ns(delivery, 0.5) / 1e3,
           histogram_ns(delivery, 0.99) / 1e3, (double)delivery->max_ns / 1e3,
           histogram_ns(ack, 0.5) / 1e3, histogram_ns(ack, 0.99) / 1e3,
           (double)usage.server_cpu_ns / (double)delivery->total);
    close_hard(delivered->publisher.fd);
    close_hard(delivered->consumer.fd);
}
