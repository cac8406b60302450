# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t, uint64_t

from server.core._sink cimport Msg
from server.core._subjectplan cimport SubjectPlan
from server.core._sublist cimport Sublist
from server.jetstream._answering cimport Answering
from server.jetstream._dedupe cimport DedupeWindow
from server.jetstream._fields cimport Fields


# What a turn accepted.
cdef struct Mark:
    uint64_t last_seq
    uint64_t messages
    uint64_t bytes


# How much messages of one kind of storage take, of an account or of the server.
cdef class Usage:
    cdef public Usage parent
    cdef public int64_t used
    cdef public int64_t max         # -1: no limit


cdef class StreamSink(Answering):
    cdef readonly DedupeWindow window
    cdef object commit
    cdef object publisher
    cdef object on_stored
    cdef public object on_rollup    # called with how many messages stay, 1 or 0; None: nobody else is concerned
    cdef list subs                  # addresses of Sub
    cdef public Usage usage
    cdef int64_t usage_counted
    cdef public Sublist interest    # of consumers, when messages nobody wants are skipped
    cdef public bint skip_unwanted
    cdef public bint all_unusual    # the stream has a feature for which each message goes to Python
    cdef public SubjectPlan renames # what subjects become before they are stored; None: they stay
    cdef public bint allow_rollup   # ... and nothing but the store has to know
    cdef public dict ttls           # text of a header -> ns: those that were seen, checked and taken as they are
    cdef public bint sealed
    cdef public int64_t message_bytes_max
    cdef public uint64_t waiting_messages_max
    cdef public uint64_t waiting_bytes_max
    cdef public uint64_t answer_bytes_max
    cdef public object on_first_id  # called when the window had no ids and has one; None: nobody asks

    cdef bytes last_message_id      # of the last message; None when its text is in last_id
    cdef char* last_id
    cdef uint32_t last_id_len
    cdef uint32_t last_id_room
    cdef public uint64_t shown_seq  # what may be shown: durable, or left out by a purge
    cdef public list listeners      # on_stored is called while there are any...
    cdef public bint told           # ... or when its owner wants to be told anyway
    cdef public bint watched        # somebody may want to know soon when a message is durable
    cdef bint dirty
    cdef int64_t turn_ns            # the time of all messages of this turn
    cdef readonly uint64_t waiting_messages
    cdef readonly uint64_t waiting_bytes
    cdef Mark turn_mark
    cdef Mark* marks                # turns that are not durable yet
    cdef size_t mark_head, mark_tail, mark_capacity

    cdef bint is_flooded(self) noexcept
    cdef int fail(self, Msg* message, error) noexcept
    cdef int accept(self, Msg* message) except -1
    cdef int check_and_store(self, Msg* message, const Fields* fields) except -1
    cdef bint understands(self, Fields* fields) except -1
    cdef int roll_up(self, const Msg* message, int what, bint keep) except -1
    cdef int64_t ttl_of(self, const Fields* fields) except? 0
    cdef int check_fields(self, Msg* message, const Fields* fields) except -1
    cdef int hand_over(self, Msg* message) except -1
    cdef int refuse(self, Msg* message, object kind, dict parts) except -1
    cdef int too_many(self, Msg* message) except -1
    cdef int say_now(
        self, const char* reply, uint32_t reply_len, bytes headers, bytes body
    ) except -1
    cdef int skip(self) except -1
    cdef int stored(self, const char* message_id, uint32_t id_len, uint64_t size) except -1
    cdef int set_last_id(self, const char* text, uint32_t length) except -1
    cdef int count_usage(self) noexcept
    cdef int open_ears(self, str subject) except -1
    cdef int drop_sub(self, size_t address) except -1
