# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Plain TCP in C: one epoll set whose descriptor the event loop watches.

Contract: `run` is a whole turn. It accepts, reads each ready connection at most once a round into
one shared buffer behind the connection's unconsumed bytes, parses and routes, and ends the turn.
What a message refers to in the buffer is written or copied before the buffer is used again. Rounds
and connections per call are bounded. In a lively exchange (`_attention`) it asks the loop to be
called again at once; while many publish and nobody listens (`_patience`) it sleeps NAP_NS first.
A connection is edge-triggered: one that may have more than was read, or has ended behind what was
read, asks to be told again. For writing it is watched only while its last write fell short.
"""

import os
import socket

from libc.errno cimport EAGAIN, ECONNABORTED, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM, errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from server.core._broker cimport Broker
from server.core._client cimport Client
from server.core._connection cimport SENT_NEVER, SENT_NOTHING, Carrier, Connection
from server.core._outbox cimport Chunk, chunk_new, chunk_release, iovec
from server.core._sink cimport fetch_ahead
from server.net._attention cimport Attention
from server.net._patience cimport Patience


cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        void* ptr
    cdef struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int op, int fd, epoll_event* event)
    int epoll_wait(int epfd, epoll_event* events, int count, int timeout)
    enum: EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL
    enum: EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP, EPOLLRDHUP, EPOLLET

cdef extern from "<sys/socket.h>" nogil:
    cdef struct sockaddr:
        unsigned short sa_family
    ctypedef unsigned int socklen_t
    cdef struct msghdr:
        void* msg_name
        socklen_t msg_namelen
        iovec* msg_iov
        size_t msg_iovlen
    Py_ssize_t sendmsg(int fd, const msghdr* message, int flags)
    Py_ssize_t send(int fd, const void* data, size_t size, int flags)
    int accept4(int fd, sockaddr* address, socklen_t* length, int flags)
    int setsockopt(int fd, int level, int name, const void* value, socklen_t length)
    int getsockname(int fd, sockaddr* address, socklen_t* length)
    enum: MSG_NOSIGNAL, MSG_DONTWAIT, SOCK_NONBLOCK, SOCK_CLOEXEC, AF_INET, AF_INET6

cdef extern from "<netinet/in.h>" nogil:
    cdef struct in_addr:
        uint32_t s_addr
    cdef struct sockaddr_in:
        unsigned short sin_port
        in_addr sin_addr
    cdef struct in6_addr:
        unsigned char s6_addr[16]
    cdef struct sockaddr_in6:
        unsigned short sin6_port
        in6_addr sin6_addr
    unsigned short ntohs(unsigned short port)
    enum: IPPROTO_TCP

cdef extern from "<netinet/tcp.h>" nogil:
    enum: TCP_NODELAY

cdef extern from "<arpa/inet.h>" nogil:
    const char* inet_ntop(int family, const void* address, char* text, socklen_t size)

cdef extern from "<sys/timerfd.h>" nogil:
    cdef struct timespec:
        long tv_sec
        long tv_nsec
    cdef struct itimerspec:
        timespec it_interval
        timespec it_value
    int timerfd_create(int clock, int flags)
    int timerfd_settime(int fd, int flags, const itimerspec* new_value, itimerspec* old_value)
    enum: TFD_NONBLOCK, TFD_CLOEXEC

cdef extern from "<time.h>" nogil:
    int clock_nanosleep(int clock, int flags, const timespec* request, timespec* remain)
    enum: CLOCK_MONOTONIC

cdef extern from "<sys/syscall.h>" nogil:
    enum: SYS_recvfrom

cdef extern from "<unistd.h>" nogil:
    long syscall(long number, ...)
    int close_fd "close"(int fd)
    Py_ssize_t read_fd "read"(int fd, void* data, size_t size)


cdef enum:
    READ_BUFFER_BYTES = 131072
    EVENTS_MAX = 256
    ROUNDS_MAX = 8               # each handles every ready connection once
    RUN_NS_MAX = 4000000         # then the loop's other work has its chance
    ACCEPTS_MAX = 64             # in one round
    TURN_BYTES_MAX = 1048576     # read so much, then let the answers out
    NAP_NS = 450000              # the kernel makes it some 50 us longer
    STALL_TICK_NS = 1000000
    ACCEPT_RETRY_MIN_NS = 10_000_000
    ACCEPT_RETRY_MAX_NS = 1_000_000_000
    FORESEEN_STEPS = 8
    CLIENT_BYTES = 912           # of the object
    FORESEEN_MIN = 8             # fewer hardly wait
    FORESEEN_MAX = 32            # what they need stays in the caches until it is used
    DRAIN_BYTES = 65536          # read and forgotten at a close, so that the peer is not reset


cdef uint64_t NOBODY = <uint64_t> -1


cdef class Listener:
    pass


cdef bint reads_more(int error) noexcept nogil:
    return error == EAGAIN or error == EINTR


cdef inline Py_ssize_t receive(int fd, void* data, size_t size) noexcept nogil:
    """Not libc's recv: where threads can be cancelled, that pays twice at each call."""
    return syscall(SYS_recvfrom, fd, data, size, MSG_DONTWAIT, NULL, NULL)


cdef tuple peer_address(sockaddr* address):
    cdef char[64] text
    cdef sockaddr_in* v4
    cdef sockaddr_in6* v6
    if address.sa_family == AF_INET:
        v4 = <sockaddr_in*> address
        inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text))
        return (<bytes> text).decode(), ntohs(v4.sin_port)
    if address.sa_family == AF_INET6:
        v6 = <sockaddr_in6*> address
        inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text))
        ip = (<bytes> text).decode()
        return ip[7:] if ip.startswith("::ffff:") else ip, ntohs(v6.sin6_port)
    return "", 0


cdef void foresee(const epoll_event* events, int count) noexcept:
    """What a publish goes through is fetched level by level for all that are about to be read: one
    after the other, each of them would wait for each level to come from memory."""
    cdef int step, i
    cdef object thing
    for i in range(count):
        fetch_ahead(events[i].data.ptr, CLIENT_BYTES)
    for step in range(FORESEEN_STEPS):
        for i in range(count):
            thing = <object> events[i].data.ptr
            if type(thing) is Client and not (<Client> thing).closed:
                (<Client> thing).foresee_publish(step)


cdef class Poller(Carrier):
    def __init__(self, Broker broker, size_t read_buffer_bytes=READ_BUFFER_BYTES):
        cdef epoll_event event
        self.broker = broker
        self.attention = Attention()
        self.patience = Patience()
        self.listeners = {}
        self.retired = []
        self.buffer_bytes = read_buffer_bytes
        self.buffer = <char*> malloc(read_buffer_bytes)
        self.epoll_fd = epoll_create1(EPOLL_CLOEXEC)
        self.timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)
        if self.buffer == NULL:
            raise MemoryError
        if self.epoll_fd < 0 or self.timer_fd < 0:
            raise OSError(errno, os.strerror(errno))
        event.events = EPOLLIN
        event.data.ptr = <void*> self
        epoll_ctl(self.epoll_fd, EPOLL_CTL_ADD, self.timer_fd, &event)

    def __cinit__(self, *args, **kwargs):
        self.epoll_fd = self.timer_fd = -1

    def __dealloc__(self):
        if self.epoll_fd >= 0:
            close_fd(self.epoll_fd)
        if self.timer_fd >= 0:
            close_fd(self.timer_fd)
        free(self.buffer)

    def fileno(self):
        return self.epoll_fd

    # ---- listeners

    def listen(self, int fd, on_accept=None, preface=None, int64_t preface_ns=0):
        cdef Listener listener = Listener()
        cdef epoll_event event
        listener.fd = fd
        listener.on_accept = on_accept
        listener.preface = preface
        listener.preface_ns = preface_ns
        listener.open = True
        listener.port = local_port(fd)
        listener.retry_ns = ACCEPT_RETRY_MIN_NS
        event.events = EPOLLIN
        event.data.ptr = <void*> listener
        if epoll_ctl(self.epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0:
            raise OSError(errno, os.strerror(errno))
        self.listeners[fd] = listener

    def unlisten(self, int fd):
        cdef Listener listener = self.listeners.pop(fd, None)
        if listener is not None:
            listener.open = False
            self.retired.append(listener)
            epoll_ctl(self.epoll_fd, EPOLL_CTL_DEL, fd, NULL)

    cdef void accept_some(self, Listener listener) noexcept:
        cdef char[128] space
        cdef sockaddr* address = <sockaddr*> space
        cdef socklen_t length
        cdef int fd, i
        for i in range(ACCEPTS_MAX):
            if not listener.open:
                return
            length = sizeof(space)
            fd = accept4(listener.fd, address, &length, SOCK_NONBLOCK | SOCK_CLOEXEC)
            if fd < 0:
                if not reads_more(errno) and errno != ECONNABORTED:
                    self.pause_accepting(listener, errno)
                return
            if 0 < self.descriptors_max <= fd:
                # The rest is for files: a store that cannot open one serves nobody.
                close_fd(fd)
                self.pause_accepting(listener, EMFILE)
                return
            listener.retry_ns = ACCEPT_RETRY_MIN_NS
            ip, port = peer_address(address)
            try:
                if listener.on_accept is not None:
                    listener.on_accept(fd, ip, port)
                else:
                    self.serve(fd, ip, port, listener.port, listener)
            except Exception as error:
                self.broker.hooks.log("error", f"Accepting a connection failed: {error!r}")

    cdef pause_accepting(self, Listener listener, int error):
        """No descriptors or memory: leave the backlog alone for a while, each time for longer."""
        self.accept_errors += 1
        self.broker.hooks.log("error", f"Accept error: {os.strerror(error)}")
        cdef epoll_event event
        event.events = 0
        event.data.ptr = <void*> listener
        epoll_ctl(self.epoll_fd, EPOLL_CTL_MOD, listener.fd, &event)
        self.broker.stalled.append(PausedListener(self, listener, self.broker.clock() + listener.retry_ns))
        listener.retry_ns = min(2 * listener.retry_ns, <int64_t> ACCEPT_RETRY_MAX_NS)
        self.arm_stall_timer()

    def listen_again(self, Listener listener):
        cdef epoll_event event
        event.events = EPOLLIN
        event.data.ptr = <void*> listener
        if listener.open:
            epoll_ctl(self.epoll_fd, EPOLL_CTL_MOD, listener.fd, &event)

    # ---- connections

    def adopt(self, int fd, str ip, int port):
        return self.serve(fd, ip, port, local_port(fd), None)

    cdef Client serve(self, int fd, str ip, int port, int server_port, Listener listener):
        cdef Client client = Client(self.broker, None, None, ip, port)
        cdef epoll_event event
        cdef int one = 1
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one))
        client.server_port = server_port
        client.carrier = self
        client.fd = fd
        client.events = event.events = <uint32_t> EPOLLIN | EPOLLRDHUP | EPOLLET
        event.data.ptr = <void*> client
        if epoll_ctl(self.epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0:
            close_fd(fd)
            raise OSError(errno, os.strerror(errno))
        if listener is not None and listener.preface is not None:
            client.expect_preface(listener.preface, listener.preface_ns)
        client.start()
        return client

    cdef void change_events(self, Connection connection, uint32_t events) noexcept:
        if connection.events != events and connection.fd >= 0:
            connection.events = events
            self.tell_again(connection)

    cdef void tell_again(self, Connection connection) noexcept:
        """An event comes for what it is ready for now, not only for what comes."""
        cdef epoll_event event
        event.events = connection.events
        event.data.ptr = <void*> connection
        epoll_ctl(self.epoll_fd, EPOLL_CTL_MOD, connection.fd, &event)

    cdef void want_write(self, Connection connection, bint wanted) noexcept:
        if wanted:
            self.change_events(connection, connection.events | EPOLLOUT)
        else:
            self.change_events(connection, connection.events & ~<uint32_t> EPOLLOUT)

    cdef void want_read(self, Connection connection, bint wanted) noexcept:
        if wanted:
            self.change_events(connection, connection.events | EPOLLIN)
        else:
            self.change_events(connection, connection.events & ~<uint32_t> EPOLLIN)

    cdef Py_ssize_t send(self, Connection connection, const iovec* vectors, int count) noexcept:
        cdef msghdr message
        cdef Py_ssize_t sent
        if count == 1:
            sent = send(connection.fd, vectors[0].iov_base, vectors[0].iov_len, MSG_NOSIGNAL)
        else:
            memset(&message, 0, sizeof(message))
            message.msg_iov = <iovec*> vectors
            message.msg_iovlen = count
            sent = sendmsg(connection.fd, &message, MSG_NOSIGNAL)
        if sent >= 0:
            return sent
        return SENT_NOTHING if errno == EAGAIN or errno == EINTR or errno == ENOBUFS else SENT_NEVER

    cdef void shut(self, Connection connection) noexcept:
        """Close; what the peer has already sent is read away, or the kernel would cut off our last words."""
        if connection.fd >= 0:
            receive(connection.fd, self.buffer, min(self.buffer_bytes, <size_t> DRAIN_BYTES))
            close_fd(connection.fd)

    cdef void read_client(self, Client client) noexcept:
        """One read, into the shared buffer behind what the connection has not consumed."""
        cdef size_t have = 0
        cdef size_t used, size
        cdef Py_ssize_t got
        cdef Chunk* chunk = client.rest
        if client.closed or client.holds:
            return
        if chunk != NULL:
            if client.rest_wanted or chunk.size * 4 > self.buffer_bytes:
                if self.read_rest(client):
                    return
            have = chunk.size
            memcpy(self.buffer, chunk.data, have)
        got = receive(client.fd, self.buffer + have, self.buffer_bytes - have)
        if got <= 0:
            if not (got < 0 and reads_more(errno)):
                client.finish("Client Closed" if got == 0 else "Read Error", True)
            return
        if <size_t> got == self.buffer_bytes - have:
            self.tell_again(client)
        if chunk != NULL:
            client.rest = NULL
        client.stalled_ns = 0
        self.heard_from = client.cid if self.heard_from == NOBODY or self.attention.are_one(self.heard_from, client.cid) else 0
        size = have + <size_t> got
        self.turn_bytes += <size_t> got
        if size > self.buffer_bytes // 4:
            self.read_much = True
        used = client.consume(self.buffer, size, NULL)
        if self.broker.turn.borrower_count:
            self.broker.turn.settle()
        if used < size and not client.closed:
            if chunk != NULL and chunk.references == 1 and chunk.capacity >= size - used and (
                    not client.rest_wanted):
                memcpy(chunk.data, self.buffer + used, size - used)
                chunk.size = size - used
                client.rest = chunk
                return
            client.keep(self.buffer + used, size - used)
        if chunk != NULL:
            chunk_release(chunk)

    cdef bint read_rest(self, Client client) noexcept:
        """A large payload goes straight into the buffer it will live in."""
        cdef Chunk* chunk = client.rest
        cdef Py_ssize_t got
        if chunk.references > 1 or chunk.capacity <= chunk.size:
            # Moves it into a chunk that has the room.
            if client.rest_wanted <= chunk.size:
                client.rest_wanted = chunk.size + self.buffer_bytes
            client.keep(<const char*> self.buffer, 0)
            chunk = client.rest
            if chunk.capacity <= chunk.size:
                return False
        got = receive(client.fd, chunk.data + chunk.size, chunk.capacity - chunk.size)
        if got <= 0:
            if not (got < 0 and reads_more(errno)):
                client.finish("Client Closed" if got == 0 else "Read Error", True)
            return True
        if <size_t> got == chunk.capacity - chunk.size:
            self.tell_again(client)
        chunk.size += got
        self.turn_bytes += <size_t> got
        self.read_much = True
        client.stalled_ns = 0
        if chunk.size >= client.parser.need:
            client.resume()
        return True

    # ---- the turn

    cdef void arm_stall_timer(self) noexcept:
        cdef itimerspec when
        memset(&when, 0, sizeof(when))
        when.it_value.tv_nsec = STALL_TICK_NS
        timerfd_settime(self.timer_fd, 0, &when, NULL)
        self.timer_armed = True

    cdef void take_timer(self) noexcept:
        cdef uint64_t ignored
        read_fd(self.timer_fd, &ignored, sizeof(ignored))
        self.timer_armed = False

    def run(self):
        cdef epoll_event[EVENTS_MAX] events
        cdef int count, i, rounds
        cdef bint worked = False
        cdef int64_t begin = self.broker.clock()
        cdef int64_t sent
        cdef bint kept_up = False
        cdef object thing
        cdef Client client
        if self.patience.waits(begin):
            self.nap()
            begin = self.broker.clock()
        sent = self.broker.out_msgs
        self.heard_from = NOBODY
        for rounds in range(ROUNDS_MAX):
            count = epoll_wait(self.epoll_fd, events, EVENTS_MAX, 0)
            if count <= 0:
                kept_up = True
                break
            worked = True
            self.broker.turn.in_batch = True
            self.broker.turn.begin()
            self.read_much = False
            self.turn_bytes = 0
            for i in range(count):
                if i % FORESEEN_MAX == 0 and count - i >= FORESEEN_MIN:
                    foresee(&events[i], min(count - i, <int> FORESEEN_MAX))
                thing = <object> events[i].data.ptr
                if type(thing) is Client:
                    client = <Client> thing
                    if client.closed:
                        continue
                    if events[i].events & EPOLLOUT:
                        client.write_out()
                        client.mark_dirty()
                    if events[i].events & EPOLLIN:
                        self.read_client(client)
                        if events[i].events & EPOLLRDHUP and not client.closed:
                            self.tell_again(client)         # of the end, behind what was read
                        if self.turn_bytes > TURN_BYTES_MAX:
                            self.turn_bytes = 0
                            self.broker.turn.run()
                            self.broker.turn.begin()
                    elif events[i].events & (EPOLLERR | EPOLLHUP):
                        client.finish("Client Closed", True)
                elif thing is self:
                    self.take_timer()
                else:
                    self.accept_some(<Listener> thing)
            if self.broker.stalled:
                self.broker.run_stalls(self.broker.clock())
            self.broker.turn.in_batch = False
            self.broker.turn.run()
            # After much, more is likely to be there by now; after little, sleep.
            kept_up = count < EVENTS_MAX // 4 and not self.read_much
            if kept_up or self.broker.clock() - begin > RUN_NS_MAX:
                break
        self.retired = []
        if self.broker.stalled and not self.timer_armed:
            self.arm_stall_timer()
        if worked:
            self.attention.worked(self.broker.clock() - begin)
            self.patience.turned(begin, self.broker.wrote, kept_up)
            self.broker.wrote = False
        if self.heard_from != NOBODY:
            self.attention.heard(self.heard_from, self.broker.out_msgs != sent, self.broker.clock())
        if not self.looks_again and self.attention.lasts(begin) and self.broker.turn.has_loop:
            self.looks_again = True
            self.broker.turn.later(self.look_again)

    cdef void nap(self) noexcept:
        cdef timespec moment
        moment.tv_sec = 0
        moment.tv_nsec = NAP_NS
        with nogil:
            clock_nanosleep(CLOCK_MONOTONIC, 0, &moment, NULL)

    def look_again(self):
        self.looks_again = False
        self.run()

    def close(self):
        cdef Client client
        for fd in list(self.listeners):
            self.unlisten(fd)
        for each in list(self.broker.clients.values()):
            client = each
            if client.carrier is self:
                client.finish("Server Shutdown", True)
        self.broker.turn.run()


class PausedListener:
    """Waits among the stalled connections for its time."""

    def __init__(self, poller, listener, until_ns):
        self.poller = poller
        self.listener = listener
        self.until_ns = until_ns

    def stall_over(self, now_ns, caught_up):
        if now_ns < self.until_ns:
            return False
        self.poller.listen_again(self.listener)
        return True


cdef int local_port(int fd) noexcept:
    cdef char[128] space
    cdef sockaddr* address = <sockaddr*> space
    cdef socklen_t length = sizeof(space)
    if getsockname(fd, address, &length) < 0:
        return 0
    if address.sa_family == AF_INET:
        return ntohs((<sockaddr_in*> address).sin_port)
    if address.sa_family == AF_INET6:
        return ntohs((<sockaddr_in6*> address).sin6_port)
    return 0
