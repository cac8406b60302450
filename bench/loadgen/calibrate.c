#define _GNU_SOURCE
#include "calibrate.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stream.h"

enum { POUR_BYTES = 128 * 1024, POUR_PER_SECOND_GUESS = 30 * 1000 * 1000 };

static int listen_any(struct target *target)
{
    socklen_t length = sizeof target->address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memset(target, 0, sizeof *target);
    target->address.sin_family = AF_INET;
    target->address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(fd, (struct sockaddr *)&target->address, length) != 0 || listen(fd, 8) != 0
        || getsockname(fd, (struct sockaddr *)&target->address, &length) != 0)
        fail("cannot listen: %s", strerror(errno));
    return fd;
}

static bool ends_with_ping(const char *buffer, ssize_t length)
{
    return length >= 6 && memcmp(buffer + length - 6, "PING\r\n", 6) == 0;
}

/* Answers every PING that ends a read, and swallows all else; true after `pings` of them. */
static bool swallow(int fd, char *buffer, int pings)
{
    while (pings > 0) {
        ssize_t got = recv(fd, buffer, RECEIVE_BYTES, 0);
        if (got <= 0)
            return false;
        if (!ends_with_ping(buffer, got))
            continue;
        if (--pings > 0)
            send_all(fd, "PONG\r\n", 6);
    }
    return true;
}

static void pour(int fd, int payload_bytes, uint64_t count)
{
    char header[64];
    size_t length = (size_t)sprintf(header, "MSG bench.a 1 %d\r\n", payload_bytes);
    size_t message_bytes = length + (size_t)payload_bytes + 2;
    size_t batch = POUR_BYTES / message_bytes + 1;
    char *bytes = must_allocate(batch * message_bytes);
    for (size_t i = 0; i < batch; i++) {
        char *at = bytes + i * message_bytes;
        memcpy(at, header, length);
        for (int k = 0; k < payload_bytes; k++)
            at[length + (size_t)k] = (char)('A' + k % 26);
        memcpy(at + message_bytes - 2, "\r\n", 2);
    }
    for (; count > 0; count -= batch < count ? batch : count)
        send_all(fd, bytes, (batch < count ? batch : count) * message_bytes);
}

static _Noreturn void peer_serve(int listener, int payload_bytes, uint64_t pour_count)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    char *buffer = must_allocate(RECEIVE_BYTES);
    int fd = accept(listener, NULL, NULL);
    send_all(fd, "INFO {}\r\n", 9);
    if (!pour_count)
        swallow(fd, buffer, 1000);
    else if (swallow(fd, buffer, 3)) /* hello, after SUB, go */
        pour(fd, payload_bytes, pour_count);
    recv(fd, buffer, RECEIVE_BYTES, 0);
    _exit(0);
}

static struct stream_result against_child(struct stream_options options)
{
    struct target target;
    int listener = listen_any(&target), status;
    pid_t child = fork();
    if (child < 0)
        fail("fork: %s", strerror(errno));
    if (child == 0)
        peer_serve(listener, options.payload_bytes, options.expect);
    close(listener);
    struct stream_result result = stream_run(&target, &options);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return result;
}

void calibrate_run(int payload_bytes, double seconds)
{
    struct stream_options options = {.subjects = 1, .payload_bytes = payload_bytes,
                                     .seconds = seconds, .stall_ms = 20000};
    options.publishers = 1;
    struct stream_result published = against_child(options);
    options.publishers = 0;
    options.subscribers = 1;
    options.expect = (uint64_t)(POUR_PER_SECOND_GUESS * seconds) * 64 / (48 + (uint64_t)payload_bytes);
    struct stream_result received = against_child(options);
    printf("{\"load\":\"calibrate\",\"payload_bytes\":%d,\"publish_per_s\":%.0f,"
           "\"receive_per_s\":%.0f,\"receive_own_cpu_ns_per_message\":%.2f,"
           "\"publish_own_cpu_ns_per_message\":%.2f}\n",
           payload_bytes, (double)published.sent * 1e9 / (double)published.usage.wall_ns,
           (double)received.received * 1e9 / (double)received.usage.wall_ns,
           (double)received.usage.own_cpu_ns / (double)received.received,
           (double)published.usage.own_cpu_ns / (double)published.sent);
}
