#define _GNU_SOURCE
#include "net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HANDSHAKE_TIMEOUT_MS = 10000 };

void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("loadgen: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec time;
    if (clock_gettime(clock, &time) != 0)
        return 0;
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

uint64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

void *must_allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory)
        fail("no memory for %zu bytes", bytes);
    return memory;
}

struct target target_parse(const char *host, int port, pid_t server_pid)
{
    struct target target = {.server_pid = server_pid};
    target.address.sin_family = AF_INET;
    target.address.sin_port = htons((uint16_t)port);
    if (port <= 0 || port > 65535)
        fail("--port must be between 1 and 65535, not %d", port);
    if (inet_pton(AF_INET, host, &target.address.sin_addr) != 1
        || ntohl(target.address.sin_addr.s_addr) >> 24 != 127)
        fail("--host must be an address of 127.0.0.0/8, not %s", host);
    return target;
}

void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int socket_open(void)
{
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        fail("socket: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

void socket_block(int fd, bool blocking)
{
    int flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

void close_hard(int fd)
{
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    close(fd);
}

/* One line into `line`; no byte behind it is taken from the socket. */
static size_t read_line(int fd, char *line, size_t capacity)
{
    size_t length = 0;
    while (length < capacity) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, HANDSHAKE_TIMEOUT_MS) <= 0)
            fail("no answer from the server within %d ms", HANDSHAKE_TIMEOUT_MS);
        ssize_t seen = recv(fd, line + length, capacity - length, MSG_PEEK);
        if (seen <= 0)
            fail("the server closed the connection during the handshake");
        char *newline = memchr(line + length, '\n', (size_t)seen);
        size_t take = newline ? (size_t)(newline - line - length) + 1 : (size_t)seen;
        if (recv(fd, line + length, take, 0) != (ssize_t)take)
            fail("recv: %s", strerror(errno));
        length += take;
        if (newline)
            return length;
    }
    fail("a line of more than %zu bytes from the server", capacity);
}

bool control_is_pong(const char *line, size_t length)
{
    if (length >= 4 && memcmp(line, "PONG", 4) == 0)
        return true;
    /* A run is far shorter than the two unanswered PINGs a server allows. */
    if (length >= 4 && (memcmp(line, "PING", 4) == 0 || memcmp(line, "INFO", 4) == 0))
        return false;
    if (length >= 4 && memcmp(line, "MSG ", 4) == 0)
        fail("a message came that nobody waits for: %.*s", (int)(length > 60 ? 60 : length), line);
    fail("the server said: %.*s", (int)(length > 200 ? 200 : length), line);
}

void messages_read(int fd, struct inbox *inbox, message_handler handler, void *owner)
{
    ssize_t got = recv(fd, inbox->bytes + inbox->have, inbox->capacity - inbox->have, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0)
        fail("the server closed the connection");
    const char *at = inbox->bytes, *end = inbox->bytes + inbox->have + got;
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
        handler(owner, at, newline + 1, body_bytes);
        at = newline + 1 + body_bytes + 2;
    }
    inbox->have = (size_t)(end - at);
    memmove(inbox->bytes, at, inbox->have);
}

const char *nats_hello(void)
{
    return "CONNECT {\"verbose\":false,\"pedantic\":false,\"echo\":true,\"headers\":true,"
           "\"no_responders\":true,\"protocol\":1,\"lang\":\"c\",\"version\":\"1\","
           "\"name\":\"loadgen\"}\r\nPING\r\n";
}

static void await_pong(int fd)
{
    static char line[CONTROL_LINE_MAX];
    while (!control_is_pong(line, read_line(fd, line, sizeof line))) {
    }
}

void send_all(int fd, const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            struct pollfd wait = {.fd = fd, .events = POLLOUT};
            if (poll(&wait, 1, HANDSHAKE_TIMEOUT_MS) <= 0)
                fail("the server took nothing for %d ms", HANDSHAKE_TIMEOUT_MS);
            continue;
        }
        if (sent < 0)
            fail("send: %s", strerror(errno));
        bytes += sent;
        length -= (size_t)sent;
    }
}

void nats_flush(int fd)
{
    send_all(fd, "PING\r\n", 6);
    await_pong(fd);
}

int nats_connect(const struct target *target) { return nats_connect_narrow(target, 0); }

int nats_connect_narrow(const struct target *target, int receive_buffer_bytes)
{
    static char line[CONTROL_LINE_MAX];
    int fd = socket_open();
    if (receive_buffer_bytes > 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
    socket_block(fd, true);
    if (connect(fd, (const struct sockaddr *)&target->address, sizeof target->address) != 0)
        fail("cannot connect to port %d: %s", ntohs(target->address.sin_port), strerror(errno));
    if (control_is_pong(line, read_line(fd, line, sizeof line)))
        fail("the server did not begin with INFO");
    send_all(fd, nats_hello(), strlen(nats_hello()));
    await_pong(fd);
    socket_block(fd, false);
    return fd;
}

uint64_t process_cpu_ns(pid_t pid)
{
    clockid_t clock;
    if (pid == 0 || clock_getcpuclockid(pid, &clock) != 0)
        return 0;
    return clock_ns(clock);
}

uint64_t process_rss_bytes(pid_t pid)
{
    char path[64];
    unsigned long long total_pages = 0, resident_pages = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    FILE *file = pid ? fopen(path, "r") : NULL;
    if (!file)
        return 0;
    if (fscanf(file, "%llu %llu", &total_pages, &resident_pages) != 2)
        resident_pages = 0;
    fclose(file);
    return resident_pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

struct usage usage_start(const struct target *target)
{
    return (struct usage){.wall_ns = now_ns(),
                          .server_cpu_ns = process_cpu_ns(target->server_pid),
                          .own_cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID)};
}

struct usage usage_since(const struct target *target, struct usage start)
{
    struct usage end = usage_start(target);
    end.wall_ns -= start.wall_ns;
    end.server_cpu_ns -= start.server_cpu_ns;
    end.own_cpu_ns -= start.own_cpu_ns;
    return end;
}

int epoll_open(void)
{
    int fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0)
        fail("epoll_create1: %s", strerror(errno));
    return fd;
}

void epoll_watch(int epoll_fd, int operation, int fd, uint32_t events, void *owner)
{
    struct epoll_event event = {.events = events, .data.ptr = owner};
    if (epoll_ctl(epoll_fd, operation, fd, &event) != 0)
        fail("epoll_ctl: %s", strerror(errno));
}
