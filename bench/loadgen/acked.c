/* The stream that listens to bench.js, or the bucket KV_B, is there already. Each publish has a
 * reply subject of its own; acks must come in the order of the publishes, with sequences that go up
 * by one. Values are asked for in the same way, from a bucket in which every key was put before.
 *
 * With a record each publish has its number as Nats-Msg-Id and as payload, and each acknowledged one
 * is a line "<number> <sequence>" in that file, whatever becomes of the server. */
#define _GNU_SOURCE
#include "acked.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "histogram.h"

enum { NUMBER_DIGITS = 12, LINE_BYTES = 256, OUTPUT_BYTES = 1 << 20, BUFFER_BYTES = 1 << 20 };

struct acked {
    const struct target *target;
    const struct acked_options *options;
    int fd;
    char *payload, *output;
    FILE *record;
    size_t output_begin, output_end;
    struct inbox inbox;
    uint64_t sent, answered, stream_seq;
    uint64_t *sent_ns;      /* by number modulo in_flight */
    struct histogram histogram;
};

/* A publish with one header field, in which # stands for the publish's number. */
static int headed_line_write(const struct acked_options *options, unsigned long long number, char *line)
{
    char block[LINE_BYTES];
    const char *hash = strchr(options->header, '#');
    int size = hash ? snprintf(block, sizeof block, "NATS/1.0\r\n%.*s%llu%s\r\n\r\n", (int)(hash - options->header),
                               options->header, number, hash + 1)
                    : snprintf(block, sizeof block, "NATS/1.0\r\n%s\r\n\r\n", options->header);
    return sprintf(line, "HPUB bench.js _INBOX.bench.%010llu %d %d\r\n%s", number, size,
                   size + options->payload_bytes, block);
}

/* What a client library sends for one publish, put or get; the line, without a payload. */
static int line_write(const struct acked *acked, char *line)
{
    const struct acked_options *options = acked->options;
    unsigned long long number = (unsigned long long)acked->sent;
    unsigned long long key = options->keys ? number % (unsigned long long)options->keys : 0;
    if (acked->record)
        return sprintf(line, "HPUB bench.js _INBOX.bench.%010llu 39 %d\r\nNATS/1.0\r\nNats-Msg-Id: %0*llu\r\n\r\n",
                       number, 39 + NUMBER_DIGITS, NUMBER_DIGITS, number + (unsigned long long)options->first);
    if (options->header)
        return headed_line_write(options, number, line);
    if (options->get)
        return sprintf(line, "PUB $JS.API.DIRECT.GET.KV_B.$KV.B.%llu _INBOX.bench.%010llu 0\r\n\r\n", key,
                       number);
    if (options->keys)
        return sprintf(line, "PUB $KV.B.%llu _INBOX.bench.%010llu %d\r\n", key, number,
                       options->payload_bytes);
    return sprintf(line, "PUB bench.js _INBOX.bench.%010llu %d\r\n", number, options->payload_bytes);
}

static void number_write(const struct acked *acked)
{
    unsigned long long number = (unsigned long long)acked->sent + (unsigned long long)acked->options->first;
    sprintf(acked->payload, "%0*llu\r\n", NUMBER_DIGITS, number);
}

static void publish_more(struct acked *acked)
{
    const struct acked_options *options = acked->options;
    size_t payload_bytes = options->get ? 0 : (size_t)options->payload_bytes + 2;
    if (acked->record)
        payload_bytes = NUMBER_DIGITS + 2;
    if (acked->output_begin == acked->output_end)
        acked->output_begin = acked->output_end = 0;
    uint64_t now = now_ns();
    while (acked->sent - acked->answered < (uint64_t)options->in_flight
           && acked->output_end + LINE_BYTES + payload_bytes < OUTPUT_BYTES) {
        acked->sent_ns[acked->sent % (uint64_t)options->in_flight] = now;
        acked->output_end += (size_t)line_write(acked, acked->output + acked->output_end);
        if (acked->record)
            number_write(acked);
        memcpy(acked->output + acked->output_end, acked->payload, payload_bytes);
        acked->output_end += payload_bytes;
        acked->sent++;
    }
}

static void output_send(struct acked *acked)
{
    while (acked->output_begin < acked->output_end) {
        ssize_t gone = send(acked->fd, acked->output + acked->output_begin,
                            acked->output_end - acked->output_begin, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (gone < 0 && errno == EAGAIN)
            return;
        if (gone < 0)
            fail("the publisher cannot send: %s", strerror(errno));
        acked->output_begin += (size_t)gone;
    }
}

static void seq_check(struct acked *acked, const char *body, size_t body_bytes)
{
    const char *seq = memmem(body, body_bytes, "\"seq\":", 6);
    if (!seq || memmem(body, body_bytes, "\"error\"", 7))
        fail("no ack: %.*s", (int)body_bytes, body);
    uint64_t number = strtoull(seq + 6, NULL, 10);
    if (acked->stream_seq && number != acked->stream_seq + 1)
        fail("sequence %llu came after %llu", (unsigned long long)number,
             (unsigned long long)acked->stream_seq);
    acked->stream_seq = number;
    if (acked->record)
        fprintf(acked->record, "%llu %llu\n",
                (unsigned long long)acked->answered + (unsigned long long)acked->options->first,
                (unsigned long long)number);
}

static void value_check(const struct acked *acked, const char *body, size_t body_bytes)
{
    const struct acked_options *options = acked->options;
    char wanted[LINE_BYTES];
    int key = (int)(acked->answered % (uint64_t)options->keys);
    int length = sprintf(wanted, "\r\nNats-Subject: $KV.B.%d\r\n", key);
    size_t size = (size_t)options->payload_bytes;
    if (body_bytes < size || !memmem(body, body_bytes - size, wanted, (size_t)length)
        || memcmp(body + body_bytes - size, acked->payload, size) != 0)
        fail("not the value of key %d: %.*s", key, (int)body_bytes, body);
}

static void answer_arrived(void *owner, const char *line, const char *body, size_t body_bytes)
{
    struct acked *acked = owner;
    char expected[LINE_BYTES];
    int length = sprintf(expected, "MSG _INBOX.bench.%010llu ", (unsigned long long)acked->answered);
    if (memcmp(line + (*line == 'H'), expected, (size_t)length) != 0)
        fail("the answer %.*s was due, and %.*s came", length, expected, length, line);
    if (acked->options->get)
        value_check(acked, body, body_bytes);
    else
        seq_check(acked, body, body_bytes);
    uint64_t sent = acked->sent_ns[acked->answered % (uint64_t)acked->options->in_flight];
    histogram_add(&acked->histogram, now_ns() - sent);
    acked->answered++;
}

/* Publishes for so long, then waits for what is under way. */
static struct usage phase_run(struct acked *acked, double seconds)
{
    struct usage start = usage_start(acked->target);
    uint64_t deadline = start.wall_ns + (uint64_t)(seconds * 1e9);
    memset(&acked->histogram, 0, sizeof acked->histogram);
    do {
        if (now_ns() < deadline)
            publish_more(acked);
        output_send(acked);
        bool waiting = acked->output_begin < acked->output_end;
        struct pollfd watched = {acked->fd, (short)(POLLIN | (waiting ? POLLOUT : 0)), 0};
        if (poll(&watched, 1, acked->options->stall_ms) == 0)
            fail("%llu requests had no answer within %d ms",
                 (unsigned long long)(acked->sent - acked->answered), acked->options->stall_ms);
        if (watched.revents & (POLLIN | POLLHUP | POLLERR))
            messages_read(acked->fd, &acked->inbox, answer_arrived, acked);
    } while (acked->answered < acked->sent || now_ns() < deadline);
    return usage_since(acked->target, start);
}

void acked_run(const struct target *target, const struct acked_options *options)
{
    struct acked *acked = must_allocate(sizeof *acked);
    *acked = (struct acked){.target = target, .options = options};
    acked->payload = must_allocate((size_t)options->payload_bytes + NUMBER_DIGITS + 3);
    memset(acked->payload, 'x', (size_t)options->payload_bytes);
    memcpy(acked->payload + options->payload_bytes, "\r\n", 3);
    acked->output = must_allocate(OUTPUT_BYTES);
    acked->inbox = (struct inbox){must_allocate(BUFFER_BYTES), BUFFER_BYTES, 0};
    acked->sent_ns = must_allocate((size_t)options->in_flight * sizeof *acked->sent_ns);
    if (options->record && !(acked->record = fopen(options->record, "w")))
        fail("cannot write %s: %s", options->record, strerror(errno));
    acked->fd = nats_connect(target);
    send_all(acked->fd, "SUB _INBOX.bench.* 1\r\n", 22);
    nats_flush(acked->fd);
    if (options->warmup_seconds > 0)
        phase_run(acked, options->warmup_seconds);
    struct usage usage = phase_run(acked, options->seconds);
    const struct histogram *histogram = &acked->histogram;
    printf("{\"load\":\"acked\",\"acks\":%llu,\"seconds\":%.4f,\"acks_per_s\":%.0f,"
           "\"p50_us\":%.2f,\"p99_us\":%.2f,\"max_us\":%.2f,\"server_cpu_ns_per_message\":%.1f}\n",
           (unsigned long long)histogram->total, (double)usage.wall_ns / 1e9,
           (double)histogram->total * 1e9 / (double)usage.wall_ns,
           histogram_ns(histogram, 0.5) / 1e3, histogram_ns(histogram, 0.99) / 1e3,
           (double)histogram->max_ns / 1e3,
           (double)usage.server_cpu_ns / (double)histogram->total);
    if (acked->record && fclose(acked->record) != 0)
        fail("cannot write %s: %s", options->record, strerror(errno));
    close_hard(acked->fd);
}
