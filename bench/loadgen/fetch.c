/* The stream B is filled. A pull consumer P of it is there already; a push consumer is made by the
 * request below, so that the clock starts with it. Consumer sequences must go up by one. Flow
 * control is answered, as every client library does. */
#define _GNU_SOURCE
#include "fetch.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { OUTPUT_BYTES = 4 << 20, BUFFER_BYTES = 4 << 20, LINE_BYTES = 256 };

static const char PUSH[] =
    "{\"stream_name\":\"B\",\"config\":{\"deliver_subject\":\"bench.push\",\"ack_policy\":\"none\","
    "\"max_deliver\":1,\"flow_control\":true,\"idle_heartbeat\":5000000000,\"mem_storage\":true,"
    "\"num_replicas\":1,\"filter_subject\":\"b.>\",\"deliver_policy\":\"%s\"}}";

struct fetch {
    const struct target *target;
    const struct fetch_options *options;
    int fd;
    char *output;
    size_t output_begin, output_end;
    struct inbox inbox;
    uint64_t received, asked;
};

static void put(struct fetch *fetch, const char *text, size_t length)
{
    if (fetch->output_begin == fetch->output_end)
        fetch->output_begin = fetch->output_end = 0;
    if (fetch->output_end + length > OUTPUT_BYTES)
        fail("the server does not read what it is sent");
    memcpy(fetch->output + fetch->output_end, text, length);
    fetch->output_end += length;
}

static void ask(struct fetch *fetch)
{
    char body[LINE_BYTES], line[2 * LINE_BYTES];
    int size = sprintf(body, "{\"batch\":%d,\"expires\":30000000000}", fetch->options->batch);
    int length = sprintf(line, "PUB $JS.API.CONSUMER.MSG.NEXT.B.P bench.pull %d\r\n%s\r\n", size, body);
    put(fetch, line, (size_t)length);
    fetch->asked += (uint64_t)fetch->options->batch;
}

static void output_send(struct fetch *fetch)
{
    while (fetch->output_begin < fetch->output_end) {
        ssize_t gone = send(fetch->fd, fetch->output + fetch->output_begin,
                            fetch->output_end - fetch->output_begin, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (gone < 0 && errno == EAGAIN)
            return;
        if (gone < 0)
            fail("the consumer cannot send: %s", strerror(errno));
        fetch->output_begin += (size_t)gone;
    }
}

/* $JS.ACK.B.<consumer>.<deliveries>.<stream sequence>.<consumer sequence>.<time>.<pending> */
static uint64_t consumer_seq(const char *reply, const char *end)
{
    for (int dots = 0; reply < end && dots < 6; reply++)
        dots += *reply == '.';
    return strtoull(reply, NULL, 10);
}

static void message_arrived(void *owner, const char *line, const char *body, size_t body_bytes)
{
    struct fetch *fetch = owner;
    size_t length = (size_t)(body - 1 - line);
    (void)body_bytes;
    char text[LINE_BYTES], *fields[6];
    int count = 0;
    if (length >= sizeof text)
        fail("a long line came: %.*s", 100, line);
    memcpy(text, line, length);
    text[length] = 0;
    for (char *word = strtok(text, " \r"); word && count < 6; word = strtok(NULL, " \r"))
        fields[count++] = word;
    bool with_headers = text[0] == 'H';
    if (count == (with_headers ? 5 : 4))
        return; /* a status or an answer to a request: no reply subject */
    const char *reply = fields[3];
    if (strncmp(reply, "$JS.ACK.", 8) != 0) {
        int size = sprintf(text, "PUB %s 0\r\n\r\n", reply); /* flow control */
        put(fetch, text, (size_t)size);
        return;
    }
    uint64_t seq = consumer_seq(reply, reply + strlen(reply));
    if (seq != ++fetch->received)
        fail("delivery %llu came as number %llu", (unsigned long long)seq,
             (unsigned long long)fetch->received);
    if (fetch->options->acks) {
        char ack[LINE_BYTES];
        int size = sprintf(ack, "PUB %s 0\r\n\r\n", reply);
        put(fetch, ack, (size_t)size);
    }
    if (fetch->options->batch && fetch->received == fetch->asked && fetch->received < fetch->options->count)
        ask(fetch);
}

static void begin(struct fetch *fetch, const char *policy)
{
    char body[1024], line[1280];
    if (fetch->options->batch) {
        ask(fetch);
        return;
    }
    int size = sprintf(body, PUSH, policy);
    int length = sprintf(line, "PUB $JS.API.CONSUMER.CREATE.B bench.made %d\r\n%s\r\n", size, body);
    put(fetch, line, (size_t)length);
}

void fetch_run(const struct target *target, const struct fetch_options *options)
{
    struct fetch *fetch = must_allocate(sizeof *fetch);
    *fetch = (struct fetch){.target = target, .options = options};
    fetch->output = must_allocate(OUTPUT_BYTES);
    fetch->inbox = (struct inbox){must_allocate(BUFFER_BYTES), BUFFER_BYTES, 0};
    fetch->fd = nats_connect(target);
    send_all(fetch->fd, "SUB bench.pull 1\r\nSUB bench.push 2\r\nSUB bench.made 3\r\n", 54);
    nats_flush(fetch->fd);
    struct usage start = usage_start(target);
    begin(fetch, options->last_per_subject ? "last_per_subject" : "all");
    while (fetch->received < options->count) {
        output_send(fetch);
        bool waiting = fetch->output_begin < fetch->output_end;
        struct pollfd watched = {fetch->fd, (short)(POLLIN | (waiting ? POLLOUT : 0)), 0};
        if (poll(&watched, 1, options->stall_ms) == 0)
            fail("%llu of %llu messages came, then nothing for %d ms", (unsigned long long)fetch->received,
                 (unsigned long long)options->count, options->stall_ms);
        if (watched.revents & (POLLIN | POLLHUP | POLLERR))
            messages_read(fetch->fd, &fetch->inbox, message_arrived, fetch);
    }
    struct usage usage = usage_since(target, start);
    while (fetch->output_begin < fetch->output_end)
        output_send(fetch);
    nats_flush(fetch->fd);
    printf("{\"load\":\"fetch\",\"messages\":%llu,\"seconds\":%.4f,\"messages_per_s\":%.0f,"
           "\"server_cpu_ns_per_message\":%.1f}\n",
           (unsigned long long)fetch->received, (double)usage.wall_ns / 1e9,
           (double)fetch->received * 1e9 / (double)usage.wall_ns,
           (double)usage.server_cpu_ns / (double)fetch->received);
    close_hard(fetch->fd);
}
