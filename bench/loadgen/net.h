/* What every kind of load needs: clocks, loopback connections, the NATS handshake, and a look
 * at the server's process. Everything here stops the program with a sentence when it fails:
 * a load generator that goes on after an error measures something else. */
#ifndef LOADGEN_NET_H
#define LOADGEN_NET_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { CONTROL_LINE_MAX = 65536, RECEIVE_BYTES = 256 * 1024 };

struct target {
    struct sockaddr_in address;
    pid_t server_pid; /* 0: CPU and memory of the server are not looked at */
};

/* Readings of three clocks, or the differences between two readings. */
struct usage {
    uint64_t wall_ns;
    uint64_t server_cpu_ns;
    uint64_t own_cpu_ns;
};

_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint64_t now_ns(void);
void *must_allocate(size_t bytes);

/* Only 127.0.0.0/8 is accepted: load never leaves this machine. */
struct target target_parse(const char *host, int port, pid_t server_pid);
void raise_descriptor_limit(void);

int socket_open(void);                     /* non-blocking, TCP_NODELAY, not connected */
void socket_block(int fd, bool blocking);
void close_hard(int fd);                   /* with a reset, so that no TIME_WAIT is left behind */
int nats_connect(const struct target *target);        /* after PONG; non-blocking */
int nats_connect_narrow(const struct target *target, int receive_buffer_bytes);
const char *nats_hello(void);              /* CONNECT and PING, as every connection sends them */
void send_all(int fd, const char *bytes, size_t length);
void nats_flush(int fd);                   /* PING, then lines up to PONG; nothing else may be under way */

/* What arrived on a connection and is not used yet. */
struct inbox {
    char *bytes;
    size_t capacity, have;
};

/* `line` begins MSG or HMSG and ends before `body`, which holds headers and payload. */
typedef void (*message_handler)(void *owner, const char *line, const char *body, size_t body_bytes);

/* What can be read now: whole messages to `handler`, other lines to `control_is_pong`. */
void messages_read(int fd, struct inbox *inbox, message_handler handler, void *owner);

/* A line that is not a message. Returns true for PONG; stops the program on -ERR or nonsense. */
bool control_is_pong(const char *line, size_t length);

uint64_t process_cpu_ns(pid_t pid);
uint64_t process_rss_bytes(pid_t pid);
struct usage usage_start(const struct target *target);
struct usage usage_since(const struct target *target, struct usage start);

int epoll_open(void);
void epoll_watch(int epoll_fd, int operation, int fd, uint32_t events, void *owner);

#endif
