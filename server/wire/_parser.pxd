from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t


cdef enum Verb:
    V_NONE, V_PUB, V_HPUB, V_SUB, V_UNSUB, V_CONNECT, V_PING, V_PONG, V_INFO, V_OK, V_ERR


cdef enum Fault:
    FAULT_UNKNOWN_VERB   # the peer speaks something else
    FAULT_PAYLOAD_END    # no CRLF behind a payload
    FAULT_CONTROL_LINE   # a line above the limit
    FAULT_ARGUMENTS      # wrong number or form of arguments
    FAULT_HEADERS        # HPUB without having agreed on headers


# A callback's answer: go on, or return to the caller behind this operation.
cdef enum Answer:
    GO_ON = 0
    STOP = 1     # the connection is closed
    PAUSE = 2    # nothing more may be parsed for now


cdef struct PubArgs:
    const char* subject
    const char* reply        # NULL when there is none
    uint32_t subject_len
    uint32_t reply_len
    int32_t header_size      # -1 for PUB
    int32_t size             # headers and payload
    bint repeat              # the control line equals the one before it, byte for byte


# What a connection does with each operation. Pointers live until the callback returns.
cdef struct Ops:
    # The line alone, before the payload has arrived: limits. Once per message. Of the payload
    # `have` bytes are there; they may be those of what follows it as well.
    int (*pub_line)(void* context, const PubArgs* args, const char* payload, size_t have) noexcept
    int (*pub)(void* context, const PubArgs* args, const char* payload) noexcept
    int (*sub)(void* context, const char* subject, size_t subject_len, const char* queue,
               size_t queue_len, const char* sid, size_t sid_len) noexcept
    # max is -1 when it is missing or no number
    int (*unsub)(void* context, const char* sid, size_t sid_len, int64_t max) noexcept
    int (*connect)(void* context, const char* json, size_t size) noexcept
    int (*ping)(void* context) noexcept
    int (*pong)(void* context) noexcept
    int (*info)(void* context, const char* json, size_t size) noexcept
    int (*error)(void* context, const char* text, size_t size) noexcept
    # The first byte of a verb other than CONNECT while `awaiting_auth` is set.
    int (*not_connect)(void* context) noexcept
    void (*fault)(void* context, Fault fault, const char* at, size_t size) noexcept
    # Every complete control line, only while `trace` is set.
    void (*line)(void* context, Verb verb, const char* args, size_t size) noexcept


cdef enum:
    LINE_CACHE_BYTES = 64


# The part of the state that outlives a read. Zeroed is its initial state.
cdef struct Parser:
    uint8_t verb             # a verb and its blanks are consumed, its arguments are not
    bint line_checked        # pub_line has run for the message under way
    bint awaiting_auth
    bint trace
    bint headers             # HPUB is allowed
    bint repeat_cleared      # pub_line has nothing to say about a line that repeats the last one
    int32_t max_control_line
    size_t need              # how many unconsumed bytes make another call worth while
    # The last publish line: the next one is often the same.
    uint8_t line_len
    uint8_t subject_at
    uint8_t reply_at
    uint8_t subject_len
    uint8_t reply_len
    int32_t header_size
    int32_t size
    char line_bytes[LINE_CACHE_BYTES]


# Parse complete operations in place; returns how many bytes are consumed. What is left must be
# given again, followed by more. `answer` is the callback's that stopped it, or GO_ON.
cdef size_t parse(Parser* parser, const Ops* ops, void* context, const char* data, size_t size,
                  int* answer) noexcept
