/* Publisher i publishes to bench.paced.<i>, to which a stream of its own may listen. Their moments
 * are spread evenly over the interval, so that the server never sees them in a burst. With acks,
 * each has a reply subject and every answer is checked and timed. Or each hears its own messages:
 * what a server spends on that many sockets when it does nothing but route. */
#define _GNU_SOURCE
#include "paced.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#include "histogram.h"

enum { BUFFER_BYTES = 4096, EVENTS = 256, LINE_BYTES = 96, FLIGHT_MAX = 1024, TURN_NS = 1000000 };

struct publisher {
    struct paced *paced;
    int fd;
    char *line;          /* the whole PUB with its payload */
    size_t line_bytes;
    uint64_t sent, answered;
    uint64_t sent_ns[FLIGHT_MAX];
    struct inbox inbox;
};

struct paced {
    const struct target *target;
    const struct paced_options *options;
    struct publisher *publishers;
    int epoll_fd;
    uint64_t sent, answered, late;
    struct histogram histogram;
};

static void publisher_open(struct paced *paced, int number)
{
    const struct paced_options *options = paced->options;
    struct publisher *publisher = &paced->publishers[number];
    char head[LINE_BYTES], reply[32] = "";
    publisher->paced = paced;
    publisher->fd = nats_connect(paced->target);
    publisher->inbox = (struct inbox){must_allocate(BUFFER_BYTES), BUFFER_BYTES, 0};
    if (options->acked) {
        snprintf(reply, sizeof reply, " _INBOX.p%d", number);
        int length = snprintf(head, sizeof head, "SUB%s 1\r\n", reply);
        send_all(publisher->fd, head, (size_t)length);
        nats_flush(publisher->fd);
    }
    if (options->heard) {
        int length = snprintf(head, sizeof head, "SUB bench.paced.%d 1\r\n", number);
        send_all(publisher->fd, head, (size_t)length);
        nats_flush(publisher->fd);
    }
    int length = snprintf(head, sizeof head, "PUB bench.paced.%d%s %d\r\n", number, reply,
                          options->payload_bytes);
    publisher->line_bytes = (size_t)length + (size_t)options->payload_bytes + 2;
    publisher->line = must_allocate(publisher->line_bytes);
    memset(publisher->line, 'x', publisher->line_bytes);
    memcpy(publisher->line, head, (size_t)length);
    memcpy(publisher->line + publisher->line_bytes - 2, "\r\n", 2);
    epoll_watch(paced->epoll_fd, EPOLL_CTL_ADD, publisher->fd, EPOLLIN, publisher);
}

static bool is_answered(const struct paced *paced)
{
    return paced->options->acked || paced->options->heard;
}

static void publish(struct paced *paced, struct publisher *publisher)
{
    if (is_answered(paced) && publisher->sent - publisher->answered >= FLIGHT_MAX)
        fail("a publisher has %d publishes without an ack: the server is overloaded", FLIGHT_MAX);
    publisher->sent_ns[publisher->sent++ % FLIGHT_MAX] = now_ns();
    paced->sent++;
    ssize_t gone = send(publisher->fd, publisher->line, publisher->line_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (gone != (ssize_t)publisher->line_bytes)
        fail("a publisher cannot send: %s", gone < 0 ? strerror(errno) : "the socket is full");
}

static void answer_arrived(void *owner, const char *line, const char *body, size_t body_bytes)
{
    struct publisher *publisher = owner;
    struct paced *paced = publisher->paced;
    (void)line;
    if (paced->options->heard) {
        if (body_bytes != (size_t)paced->options->payload_bytes)
            fail("a message of %d bytes came back with %zu", paced->options->payload_bytes, body_bytes);
    } else if (!memmem(body, body_bytes, "\"seq\":", 6) || memmem(body, body_bytes, "\"error\"", 7))
        fail("no ack: %.*s", (int)body_bytes, body);
    histogram_add(&paced->histogram, now_ns() - publisher->sent_ns[publisher->answered % FLIGHT_MAX]);
    publisher->answered++;
    paced->answered++;
}

static void poll_answers(struct paced *paced, uint64_t until_ns)
{
    struct epoll_event events[EVENTS];
    do {
        uint64_t now = now_ns();
        struct timespec wait = {0, now < until_ns ? (long)(until_ns - now) : 0};
        int count = epoll_pwait2(paced->epoll_fd, events, EVENTS, &wait, NULL);
        for (int i = 0; i < count; i++) {
            struct publisher *publisher = events[i].data.ptr;
            messages_read(publisher->fd, &publisher->inbox, answer_arrived, publisher);
        }
    } while (now_ns() < until_ns);
}

/* Publishes for so long, then waits for what is under way. */
static struct usage phase_run(struct paced *paced, double seconds)
{
    const struct paced_options *options = paced->options;
    struct usage start = usage_start(paced->target);
    double each_ns = 1e9 / options->rate / options->publishers;
    uint64_t total = (uint64_t)(seconds * 1e9 / each_ns), done = 0;
    memset(&paced->histogram, 0, sizeof paced->histogram);
    paced->late = 0;
    while (done < total) {
        uint64_t now = now_ns();
        uint64_t due = (uint64_t)((double)(now - start.wall_ns) / each_ns);
        if (due > done + (uint64_t)options->publishers)
            paced->late++;
        for (; done < due && done < total; done++)
            publish(paced, &paced->publishers[done % (uint64_t)options->publishers]);
        poll_answers(paced, now + TURN_NS);
    }
    uint64_t deadline = now_ns() + (uint64_t)options->stall_ms * 1000000;
    while (is_answered(paced) && paced->answered < paced->sent) {
        if (now_ns() > deadline)
            fail("%llu publishes had no answer", (unsigned long long)(paced->sent - paced->answered));
        poll_answers(paced, now_ns() + TURN_NS);
    }
    return usage_since(paced->target, start);
}

void paced_run(const struct target *target, const struct paced_options *options)
{
    struct paced *paced = must_allocate(sizeof *paced);
    *paced = (struct paced){.target = target, .options = options, .epoll_fd = epoll_open()};
    paced->publishers = must_allocate((size_t)options->publishers * sizeof *paced->publishers);
    memset(paced->publishers, 0, (size_t)options->publishers * sizeof *paced->publishers);
    for (int i = 0; i < options->publishers; i++)
        publisher_open(paced, i);
    if (options->warmup_seconds > 0)
        phase_run(paced, options->warmup_seconds);
    uint64_t before = paced->sent;
    struct usage usage = phase_run(paced, options->seconds);
    double seconds = (double)usage.wall_ns / 1e9;
    printf("{\"load\":\"paced\",\"sent\":%llu,\"seconds\":%.4f,\"per_s\":%.0f,\"late\":%llu,"
           "\"cpu_percent\":%.1f,\"p50_us\":%.2f,\"p99_us\":%.2f,\"server_cpu_ns_per_message\":%.1f}\n",
           (unsigned long long)(paced->sent - before), seconds, (double)(paced->sent - before) / seconds,
           (unsigned long long)paced->late, 100.0 * (double)usage.server_cpu_ns / (double)usage.wall_ns,
           histogram_ns(&paced->histogram, 0.5) / 1e3, histogram_ns(&paced->histogram, 0.99) / 1e3,
           (double)usage.server_cpu_ns / (double)(paced->sent - before));
    for (int i = 0; i < options->publishers; i++)
        close_hard(paced->publishers[i].fd);
}
