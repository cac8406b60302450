/* The throughput loads. All messages to one subscriber have the same length, so a subscriber
 * steps from header to header and compares the last whole message of every read byte for byte:
 * a message that is missing, twice there, or changed ends the run with an error. */
#define _GNU_SOURCE
#include "stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BATCH_BYTES = 128 * 1024, EVENTS_PER_WAIT = 256 };

enum kind { PUBLISHER, SUBSCRIBER };
enum publisher_state { PUBLISHING, WAITS_FOR_PONG, DONE };

struct peer {
    enum kind kind;
    int fd;
    int subject;
    size_t message_bytes;  /* of PUB for a publisher, of MSG for a subscriber */
    char *batch;           /* publisher: whole messages, written again and again */
    size_t batch_bytes;
    uint64_t sent_bytes;
    uint64_t limit_bytes;  /* a whole number of messages */
    enum publisher_state state;
    char *expected;        /* subscriber: the message as it must arrive */
    uint64_t received;
    uint64_t wanted;
    size_t tail_bytes;
    char *tail;
};

struct stream {
    const struct target *target;
    const struct stream_options *options;
    int epoll_fd;
    int peer_count;
    struct peer *peers;    /* publishers first */
    int publishers_busy;
    char *buffer;
    size_t buffer_bytes;
    bool progressed;
};

static void subject_name(char *name, int index) { sprintf(name, "bench.%c", 'a' + index); }

static size_t put_message(char *into, const char *header, int payload_bytes)
{
    size_t length = strlen(header);
    memcpy(into, header, length);
    for (int i = 0; i < payload_bytes; i++)
        into[length + (size_t)i] = (char)('A' + i % 26);
    memcpy(into + length + payload_bytes, "\r\n", 2);
    return length + (size_t)payload_bytes + 2;
}

static void publisher_open(struct stream *stream, struct peer *peer, int subject)
{
    char name[16], header[64];
    int payload_bytes = stream->options->payload_bytes;
    subject_name(name, subject);
    snprintf(header, sizeof header, "PUB %s %d\r\n", name, payload_bytes);
    peer->kind = PUBLISHER;
    peer->subject = subject;
    peer->message_bytes = strlen(header) + (size_t)payload_bytes + 2;
    size_t messages = BATCH_BYTES / peer->message_bytes + 1;
    peer->batch = must_allocate(messages * peer->message_bytes);
    for (size_t i = 0; i < messages; i++)
        peer->batch_bytes += put_message(peer->batch + peer->batch_bytes, header, payload_bytes);
    peer->fd = nats_connect(stream->target);
    peer->state = DONE;
    epoll_watch(stream->epoll_fd, EPOLL_CTL_ADD, peer->fd, EPOLLIN, peer);
}

static void subscriber_open(struct stream *stream, struct peer *peer, int subject)
{
    char name[16], line[64];
    int payload_bytes = stream->options->payload_bytes;
    subject_name(name, subject);
    peer->kind = SUBSCRIBER;
    peer->subject = subject;
    peer->expected = must_allocate((size_t)payload_bytes + 64);
    snprintf(line, sizeof line, "MSG %s 1 %d\r\n", name, payload_bytes);
    peer->message_bytes = put_message(peer->expected, line, payload_bytes);
    peer->tail = must_allocate(stream->buffer_bytes);
    peer->fd = nats_connect(stream->target);
    int length = snprintf(line, sizeof line, "SUB %s 1\r\n", name);
    send_all(peer->fd, line, (size_t)length);
    nats_flush(peer->fd);
    epoll_watch(stream->epoll_fd, EPOLL_CTL_ADD, peer->fd, EPOLLIN, peer);
}

static struct stream *stream_open(const struct target *target, const struct stream_options *options)
{
    struct stream *stream = must_allocate(sizeof *stream);
    stream->target = target;
    stream->options = options;
    stream->epoll_fd = epoll_open();
    stream->peer_count = options->publishers + options->subscribers;
    stream->peers = must_allocate((size_t)stream->peer_count * sizeof *stream->peers);
    stream->buffer_bytes = RECEIVE_BYTES + CONTROL_LINE_MAX + (size_t)options->payload_bytes + 64;
    stream->buffer = must_allocate(stream->buffer_bytes);
    for (int i = options->publishers; i < stream->peer_count; i++)
        subscriber_open(stream, &stream->peers[i], (i - options->publishers) % options->subjects);
    for (int i = 0; i < options->publishers; i++)
        publisher_open(stream, &stream->peers[i], i % options->subjects);
    return stream;
}

static void stream_close(struct stream *stream)
{
    for (int i = 0; i < stream->peer_count; i++) {
        close_hard(stream->peers[i].fd);
        free(stream->peers[i].batch);
        free(stream->peers[i].expected);
        free(stream->peers[i].tail);
    }
    close(stream->epoll_fd);
    free(stream->buffer);
    free(stream->peers);
    free(stream);
}

static inline uint64_t load64(const char *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static void check_message(const struct peer *peer, const char *message)
{
    if (memcmp(message, peer->expected, peer->message_bytes) != 0)
        fail("a subscriber expected '%.*s' and got '%.*s'", 40, peer->expected, 40, message);
}

/* Counts the messages between `at` and `end`; returns where the first incomplete thing begins. */
static const char *subscriber_scan(struct peer *peer, const char *at, const char *end)
{
    const uint64_t start = load64(peer->expected);
    const size_t length = peer->message_bytes;
    const char *last = NULL;
    while (at < end) {
        const char *first = at;
        while ((size_t)(end - at) >= length && load64(at) == start)
            at += length;
        if (at != first) {
            peer->received += (uint64_t)(at - first) / length;
            last = at - length;
        }
        if (at == end || (end - at >= 8 && load64(at) == start))
            break;
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (!newline)
            break;
        control_is_pong(at, (size_t)(newline - at));
        at = newline + 1;
    }
    if (last)
        check_message(peer, last);
    return at;
}

static void subscriber_read(struct stream *stream, struct peer *peer)
{
    memcpy(stream->buffer, peer->tail, peer->tail_bytes);
    ssize_t got = recv(peer->fd, stream->buffer + peer->tail_bytes, RECEIVE_BYTES, 0);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0)
        fail("the server closed a subscriber after %llu messages",
             (unsigned long long)peer->received);
    const char *end = stream->buffer + peer->tail_bytes + got;
    const char *rest = subscriber_scan(peer, stream->buffer, end);
    peer->tail_bytes = (size_t)(end - rest);
    if (peer->tail_bytes > stream->buffer_bytes - RECEIVE_BYTES)
        fail("a line without an end from the server: %.40s", rest);
    memcpy(peer->tail, rest, peer->tail_bytes);
    stream->progressed = true;
}

static void publisher_write(struct stream *stream, struct peer *peer)
{
    uint64_t left = peer->limit_bytes - peer->sent_bytes;
    if (left > 0) {
        size_t offset = (size_t)(peer->sent_bytes % peer->batch_bytes);
        size_t length = peer->batch_bytes - offset;
        ssize_t sent = send(peer->fd, peer->batch + offset, length < left ? length : (size_t)left,
                            MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            fail("a publisher cannot send: %s", strerror(errno));
        peer->sent_bytes += sent > 0 ? (uint64_t)sent : 0;
        stream->progressed = true;
        return;
    }
    /* Six bytes into a socket that just became writable always fit. */
    if (send(peer->fd, "PING\r\n", 6, MSG_NOSIGNAL) != 6)
        fail("a publisher cannot send its PING: %s", strerror(errno));
    peer->state = WAITS_FOR_PONG;
    epoll_watch(stream->epoll_fd, EPOLL_CTL_MOD, peer->fd, EPOLLIN, peer);
}

static void publisher_read(struct stream *stream, struct peer *peer)
{
    ssize_t got = recv(peer->fd, stream->buffer, stream->buffer_bytes, 0);
    if (got <= 0)
        fail("the server closed a publisher");
    const char *at = stream->buffer, *end = at + got, *newline;
    for (; (newline = memchr(at, '\n', (size_t)(end - at))); at = newline + 1) {
        if (!control_is_pong(at, (size_t)(newline - at)) || peer->state != WAITS_FOR_PONG)
            continue;
        peer->state = DONE;
        stream->publishers_busy--;
    }
    stream->progressed = true;
}

/* No more than this message: what is sent stays a whole number of messages. */
static void publishers_stop(struct stream *stream)
{
    for (int i = 0; i < stream->options->publishers; i++) {
        struct peer *peer = &stream->peers[i];
        uint64_t messages = (peer->sent_bytes + peer->message_bytes - 1) / peer->message_bytes;
        if (messages * peer->message_bytes < peer->limit_bytes)
            peer->limit_bytes = messages * peer->message_bytes;
    }
}

/* Sets what each subscriber must have when the publishers are done; tells if all have it. */
static bool subscribers_complete(struct stream *stream)
{
    const struct stream_options *options = stream->options;
    bool complete = true;
    for (int s = options->publishers; s < stream->peer_count; s++) {
        struct peer *subscriber = &stream->peers[s];
        subscriber->wanted = options->expect;
        for (int p = 0; p < options->publishers; p++)
            if (stream->peers[p].subject == subscriber->subject)
                subscriber->wanted += stream->peers[p].sent_bytes / stream->peers[p].message_bytes;
        if (subscriber->received > subscriber->wanted)
            fail("a subscriber got %llu messages of %llu: some came twice",
                 (unsigned long long)subscriber->received, (unsigned long long)subscriber->wanted);
        complete &= subscriber->received == subscriber->wanted;
    }
    return complete;
}

static void phase_begin(struct stream *stream)
{
    const struct stream_options *options = stream->options;
    stream->publishers_busy = options->publishers;
    for (int i = 0; i < stream->peer_count; i++) {
        struct peer *peer = &stream->peers[i];
        peer->received = 0;
        if (peer->kind == SUBSCRIBER) {
            if (options->expect)
                send_all(peer->fd, "PING\r\n", 6);
            continue;
        }
        peer->sent_bytes = 0;
        peer->limit_bytes = options->count ? options->count * peer->message_bytes : UINT64_MAX;
        peer->state = PUBLISHING;
        epoll_watch(stream->epoll_fd, EPOLL_CTL_MOD, peer->fd, EPOLLIN | EPOLLOUT, peer);
    }
}

static void stream_step(struct stream *stream)
{
    struct epoll_event events[EVENTS_PER_WAIT];
    int count = epoll_wait(stream->epoll_fd, events, EVENTS_PER_WAIT, stream->options->stall_ms);
    for (int i = 0; i < count; i++) {
        struct peer *peer = events[i].data.ptr;
        if (peer->kind == SUBSCRIBER)
            subscriber_read(stream, peer);
        else {
            if (events[i].events & ~(uint32_t)EPOLLOUT)
                publisher_read(stream, peer);
            if (peer->state == PUBLISHING && events[i].events & EPOLLOUT)
                publisher_write(stream, peer);
        }
    }
}

static struct stream_result totals(struct stream *stream)
{
    struct stream_result result = {0};
    for (int i = 0; i < stream->peer_count; i++) {
        struct peer *peer = &stream->peers[i];
        if (peer->kind == PUBLISHER)
            result.sent += peer->sent_bytes / peer->message_bytes;
        result.received += peer->received;
        result.expected += peer->wanted;
    }
    return result;
}

static _Noreturn void fail_stalled(struct stream *stream)
{
    struct stream_result lost = totals(stream);
    fail("%llu of %llu messages came; nothing moved for %d ms", (unsigned long long)lost.received,
         (unsigned long long)lost.expected, stream->options->stall_ms);
}

static struct stream_result phase_run(struct stream *stream, double seconds)
{
    phase_begin(stream);
    struct usage start = usage_start(stream->target);
    uint64_t deadline = start.wall_ns + (uint64_t)(seconds * 1e9);
    uint64_t progressed_at = start.wall_ns;
    bool stopped = false;
    while (stream->publishers_busy > 0 || !subscribers_complete(stream)) {
        stream->progressed = false;
        stream_step(stream);
        uint64_t now = now_ns();
        if (stream->progressed)
            progressed_at = now;
        if (now - progressed_at >= (uint64_t)stream->options->stall_ms * 1000000u)
            fail_stalled(stream);
        if (!stopped && now >= deadline && !stream->options->expect) {
            publishers_stop(stream);
            stopped = true;
        }
    }
    struct stream_result result = totals(stream);
    result.usage = usage_since(stream->target, start);
    return result;
}

/* What a server delivered twice would still be on its way: each subscriber asks for a PONG. */
static void settle(struct stream *stream)
{
    for (int i = stream->options->publishers; i < stream->peer_count; i++)
        nats_flush(stream->peers[i].fd);
}

struct stream_result stream_run(const struct target *target, const struct stream_options *options)
{
    struct stream *stream = stream_open(target, options);
    if (options->warmup_seconds > 0 && !options->count && !options->expect)
        phase_run(stream, options->warmup_seconds);
    struct stream_result result = phase_run(stream, options->seconds);
    if (!options->expect)
        settle(stream);
    stream_close(stream);
    return result;
}

void stream_print(const struct stream_options *options, const struct stream_result *result)
{
    double seconds = (double)result->usage.wall_ns / 1e9;
    double delivered = (double)(options->subscribers ? result->received : result->sent);
    double messages = (double)(result->sent ? result->sent : result->received);
    printf("{\"load\":\"stream\",\"sent\":%llu,\"received\":%llu,\"expected\":%llu,"
           "\"seconds\":%.4f,\"sent_per_s\":%.0f,\"delivered_per_s\":%.0f,"
           "\"server_cpu_ns_per_message\":%.1f,\"server_cpu_share\":%.3f,"
           "\"generator_cpu_share\":%.3f}\n",
           (unsigned long long)result->sent, (unsigned long long)result->received,
           (unsigned long long)result->expected, seconds, (double)result->sent / seconds,
           delivered / seconds, (double)result->usage.server_cpu_ns / messages,
           (double)result->usage.server_cpu_ns / (seconds * 1e9),
           (double)result->usage.own_cpu_ns / (seconds * 1e9));
}
