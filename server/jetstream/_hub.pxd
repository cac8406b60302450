# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t

from server.core._account cimport Account
from server.core._broker cimport Broker
from server.core._turn cimport Phase
from server.jetstream._acksink cimport AckSink
from server.jetstream._consumer cimport ConsumerCore


# All consumers of one server: whose turn it is, what is due, what they share.
cdef class ConsumerHub:
    cdef readonly Broker broker
    cdef Phase phase
    cdef readonly object timers
    cdef object ready                   # deque of cores
    cdef readonly object book           # ConsumerBook; None: nothing outlives the process
    cdef Phase keeping
    cdef list unkept                    # cores whose changes are not in the book
    cdef list asking                    # (core, reply) of acks that want an answer
    cdef list told                      # calls put off to the phase
    cdef dict ack_sinks                 # by account name
    cdef readonly set dormant           # push consumers to which nobody listens
    cdef public object armed_ns
    cdef int64_t now_ns                 # as last asked
    cdef int64_t wall_offset_ns         # from the growing clock to the time of day
    cdef readonly int64_t turn_wall_ns  # the time of day in this phase
    cdef readonly str domain
    cdef readonly bint long_subjects    # acks and flow control have the domain and account in them
    cdef char* text                     # reply subject, headers and body of what is sent
    cdef size_t room
    cdef public uint32_t messages_a_turn_max
    cdef public uint32_t messages_at_once_max
    cdef public uint32_t swept_at_once_max  # a slice of a sweep ends here, or when its time is over

    cdef int64_t now(self) noexcept
    cdef bytes place_of(self, Account account)
    cdef char* reserve(self, size_t count) except NULL
    cdef int answer_when_kept(self, ConsumerCore core, bytes reply) except -1
    cdef int keep_one(self, ConsumerCore core, int64_t now_ns, int64_t wall_ns) except -1
    cdef int add_ready(self, ConsumerCore core) except -1
    # Whether anybody wants to know of an event of this consumer.
    cdef bint is_heard(self, ConsumerCore core, bytes event) except -1
    cdef int tell(self, object call, tuple arguments) except -1
    cdef AckSink acks_of(self, Account account)
