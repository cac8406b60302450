from server.core._broker cimport Broker
from server.core._client cimport Client
from libc.stdint cimport int64_t, uint32_t, uint64_t

from server.core._connection cimport Carrier, Connection
from server.net._attention cimport Attention
from server.net._patience cimport Patience


cdef class Listener:
    cdef int fd
    cdef object on_accept
    cdef object preface              # what may come ahead of the protocol
    cdef int64_t preface_ns          # and within which time
    cdef int port
    cdef bint open
    cdef int64_t retry_ns            # how long accepting pauses at its next error


cdef class Poller(Carrier):
    cdef readonly Broker broker
    cdef int epoll_fd
    cdef int timer_fd
    cdef char* buffer
    cdef size_t buffer_bytes
    cdef dict listeners              # fd -> Listener
    cdef list retired                # listeners an event of this round may still name
    cdef readonly long accept_errors
    cdef public int descriptors_max  # those from here on are not for connections; 0: all are
    cdef bint timer_armed
    cdef bint read_much              # in this round
    cdef size_t turn_bytes           # read since the turn began
    cdef Attention attention
    cdef Patience patience
    cdef uint64_t heard_from         # the one connection that was read in this run; 0: several
    cdef bint looks_again            # the loop was asked to call

    cdef void read_client(self, Client client) noexcept
    cdef bint read_rest(self, Client client) noexcept
    cdef void accept_some(self, Listener listener) noexcept
    cdef void arm_stall_timer(self) noexcept
    cdef Client serve(self, int fd, str ip, int port, int server_port, Listener listener)
    cdef pause_accepting(self, Listener listener, int error)
    cdef void change_events(self, Connection connection, uint32_t events) noexcept
    cdef void tell_again(self, Connection connection) noexcept
    cdef void take_timer(self) noexcept
    cdef void nap(self) noexcept
