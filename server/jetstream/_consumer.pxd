# cython: language_level=3
from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t

from server.core._account cimport Account
from server.core._broker cimport Broker
from server.core._sink cimport Msg, Sink
from server.core._sublist cimport MatchResult, Sub, Sublist
from server.core._turn cimport Phase
from server.jetstream._ingest cimport StreamSink
from server.jetstream._keeper cimport Keeper, Place
from server.jetstream._pending cimport Entry, PendingTable
from server.jetstream._waiting cimport Waiting, WaitingQueue
from storage._filter cimport SubjectFilter
from storage._record cimport Record
from storage._store cimport StoreEvents, StreamStore


cdef enum AckPolicy:
    ACK_NONE
    ACK_ALL
    ACK_EXPLICIT
    ACK_FLOW_CONTROL

cdef enum Retention:
    KEEP_BY_LIMITS
    KEEP_BY_INTEREST
    KEEP_UNTIL_ACKED

# Why a message is not to be delivered to a consumer any more.
cdef enum Ending:
    ENDED_ACKED
    ENDED_TERMINATED
    ENDED_MAX_DELIVER
    ENDED_REMOVED           # the stream removed it

cdef enum Found:
    FOUND_NEW
    FOUND_AGAIN             # a redelivery
    FOUND_NOTHING
    FOUND_FULL              # max_ack_pending


# What a consumer's policies decide beside delivering in order: pause, rate, flow control, groups,
# pins, dead letters, samples. A consumer without any has none. DESIGN.md, "Consumers".
cdef class Flow:
    cdef readonly ConsumerCore core
    cdef bint may_send(self, int64_t now_ns) except -1
    cdef int accept(self, Waiting waiting, int64_t now_ns) except -1
    cdef Waiting pick(self, int64_t size, int64_t now_ns)
    cdef bytes added_header(self)
    cdef int sent(
        self, const Record* record, uint64_t consumer_seq, int64_t size, int64_t now_ns
    ) except -1
    cdef int ended(
        self, uint64_t seq, uint64_t consumer_seq, uint32_t deliveries, Ending why, str reason
    ) except -1
    cdef int idle(self, int64_t now_ns) except -1
    cdef int64_t tick(self, int64_t now_ns) except -1
    cdef int stopped(self) except -1


cdef class ConsumerCore(Sink):
    cdef readonly ConsumerHub hub
    cdef readonly StreamFeed feed
    cdef readonly object owner          # consumer.Consumer
    cdef readonly object config
    cdef readonly Account account
    cdef StreamStore store
    cdef public Flow flow
    cdef SubjectFilter wanted
    cdef readonly list filters
    cdef list interest_subs             # addresses of Sub, in the feed's sublist
    cdef Sub* request_sub
    cdef bytes ack_key
    cdef bytes ack_prefix               # of the reply subjects, up to the delivery count

    cdef AckPolicy ack_policy
    cdef readonly bint is_push
    cdef bint headers_only
    cdef uint32_t deliveries_max        # 0: no limit
    cdef uint32_t ack_pending_max       # 0: no limit
    cdef int64_t ack_wait_ns
    cdef int64_t* backoff_ns
    cdef uint32_t backoff_count
    cdef bytes deliver_subject
    cdef bytes deliver_group

    cdef readonly PendingTable table
    cdef readonly WaitingQueue waiting
    cdef readonly uint64_t next_seq
    cdef uint64_t search_seq            # what is looked for lies here or above
    cdef readonly uint64_t next_consumer_seq
    cdef readonly uint64_t delivered_seq
    cdef readonly uint64_t floor_seq
    cdef readonly uint64_t floor_consumer_seq
    cdef readonly int64_t delivered_wall_ns
    cdef readonly int64_t acked_wall_ns
    cdef readonly uint64_t num_pending
    cdef uint64_t* skip                 # last_per_subject: what comes first, in order
    cdef size_t skip_at
    cdef size_t skip_count
    cdef uint64_t resume_seq            # where it goes on behind them

    cdef bint replay_original
    cdef uint64_t replay_end_seq
    cdef int64_t replay_stored_ns       # of the message sent last
    cdef int64_t replay_sent_ns
    cdef int64_t replay_due_ns

    cdef readonly Keeper keeper         # None: it ends with the process
    cdef readonly bint closed
    cdef public bint active             # push: somebody listens
    cdef bint is_held                   # until a connection has written more
    cdef bint is_ready                  # stands in the hub's row
    cdef int64_t armed_at_ns
    cdef int64_t looked_ns              # at the waiting requests, when the queue was full
    cdef readonly int64_t used_ns       # a request, a delivery

    # What came in
    cdef int request(self, bytes reply, bytes body, bytes headers, int64_t now_ns) except -1
    cdef int take_request(self, bytes reply, bytes body, int64_t now_ns) except -1
    cdef int acknowledge(
        self, Msg* message, uint64_t seq, uint64_t consumer_seq, int64_t now_ns
    ) except -1
    cdef bint acked(self, uint64_t seq, uint64_t consumer_seq, Ending why, str reason) except -1
    cdef int tell_terminated(self, uint64_t seq, uint64_t consumer_seq, str reason) except -1
    cdef bint acked_up_to(self, uint64_t seq, uint64_t consumer_seq) except -1
    cdef int nak(self, uint64_t seq, uint64_t consumer_seq, bytes argument, int64_t now_ns) except -1
    cdef int in_progress(self, uint64_t seq, int64_t now_ns) except -1
    cdef int answer_ack(self, Msg* message) except -1

    # What goes out
    cdef bint pump(self, int64_t now_ns, uint32_t* budget) except -1
    cdef bint is_backed_up(self) except -1
    cdef Found look(self, Record* record, uint32_t* deliveries) except *
    cdef Found look_again(self, Record* record, uint32_t* deliveries) except *
    cdef uint64_t next_new(self) except? 0
    cdef bint must_wait_for_replay(self, const Record* record, int64_t now_ns) except -1
    cdef Waiting pick_waiting(self, int64_t size, int64_t now_ns)
    cdef bint is_deliver_subject(self, const Sub* sub) noexcept
    cdef bint has_interest(self, bytes subject) except -1
    cdef int deliver_record(
        self, const Record* record, bytes to, MatchResult* result, size_t reply_len,
        bytes added, int64_t* size
    ) except -1
    cdef int after_delivery(
        self, const Record* record, bint is_new, uint32_t deliveries, int64_t now_ns
    ) except -1
    cdef int step_over(self, uint64_t seq) noexcept
    cdef size_t write_reply(
        self, const Record* record, bint is_new, uint32_t deliveries
    ) except? 0
    cdef int64_t reduced_size(self, const Record* record) noexcept nogil
    cdef char* write_headers(self, char* at, const Record* record, bytes added) noexcept
    cdef int send(self, MatchResult* result, Msg* message) noexcept
    cdef int not_taken(self, Waiting waiting) except -1
    cdef int send_status(self, bytes reply, bytes block) except -1
    cdef int send_request(self, bytes to, bytes reply, bytes block) except -1
    cdef int drop_request(self, int code, str text) except -1
    cdef int charge(self, int64_t size) except -1
    cdef int check_waiting(self, bint at_end, int64_t now_ns, int64_t* batch) except -1

    # What is kept
    cdef int note(self) except -1
    cdef int note_moved(self) except -1
    cdef int write_place(self, Place* place) except -1
    cdef int shift_waits(self, int64_t sign) except -1
    cdef int64_t wait_of(self, int32_t redeliveries) noexcept nogil
    cdef void move_floor(self, uint64_t consumer_seq, uint64_t seq) noexcept nogil
    cdef int end_entry(self, Entry* entry, Ending why, str reason) except -1
    cdef int overdue(self, uint64_t seq) except -1
    cdef int take_overdue(self, int64_t now_ns) except -1
    cdef bint needs_ack(self, uint64_t seq) noexcept nogil
    cdef int appended(self, uint64_t seq, uint64_t count) except -1
    cdef int gone(self, uint64_t seq) except -1
    cdef bint in_skip(self, uint64_t seq) noexcept nogil
    cdef int drop_skipped(self) except -1
    cdef bint is_full(self) noexcept nogil
    cdef int wake(self) except -1
    cdef int arm(self, int64_t at_ns) except -1
    cdef int drop_interest(self) except -1
    cdef int raise_interest(self) except -1


# A stream as its consumers see it: told of what becomes durable and what goes.
cdef class StreamFeed(StoreEvents):
    cdef readonly ConsumerHub hub
    cdef readonly StreamStore store
    cdef readonly Account account
    cdef readonly bytes name
    cdef StreamSink sink                # None: nothing hears the stream's subjects
    cdef public Retention retention
    cdef readonly uint64_t durable_seq  # counted up to here
    cdef readonly Sublist interest      # of the consumers; `>` of those without filter
    cdef readonly dict cores            # in the order in which they came; no values
    cdef uint32_t filtered              # how many of them have filters

    cdef int count_for(
        self, ConsumerCore core, uint64_t lowest, uint64_t last, uint64_t count
    ) except -1
    cdef int settled(self, uint64_t seq) except -1
    cdef bint is_wanted(self, uint64_t seq, ConsumerCore but) except -1
    cdef int remove(self, uint64_t seq) except -1


cdef class AckSink(Sink):
    cdef ConsumerHub hub
    cdef Account account
    cdef Sub* sub
    cdef dict cores                     # b"<stream>.<consumer>" -> ConsumerCore
    cdef readonly bytes newer_prefix    # of the longer subjects, behind $JS.ACK.
    cdef ConsumerCore last
    cdef int take(self, Msg* message) except -1
    cdef ConsumerCore find(self, const char* key, size_t length)


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
    cdef char* text                     # reply subject, headers and body of what is sent
    cdef size_t room
    cdef public uint32_t messages_a_turn_max
    cdef public uint32_t messages_at_once_max

    cdef int64_t now(self) noexcept
    cdef char* reserve(self, size_t count) except NULL
    cdef int answer_when_kept(self, ConsumerCore core, bytes reply) except -1
    cdef int keep_one(self, ConsumerCore core, int64_t now_ns, int64_t wall_ns) except -1
    cdef int add_ready(self, ConsumerCore core) except -1
    cdef int tell(self, object call, tuple arguments) except -1
    cdef AckSink acks_of(self, Account account)
