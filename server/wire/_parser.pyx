# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Bytes of a client become calls on an `Ops` table.

Contract: `parse` sees the unconsumed bytes of a connection, contiguous, and calls one function per
complete operation. It keeps no copy of a line or payload: what is incomplete stays with the caller.
Only a verb (with the blanks behind it), and what may follow PING, PONG and +OK up to the line's
end, are consumed early, so that nothing a peer sends without a newline makes the rest grow past
`max_control_line`. Nothing is raised; a wrong peer is a call of `fault` and the answer STOP.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy, memset

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static inline uint32_t martlet_load32(const char *p) { uint32_t v; memcpy(&v, p, 4); return v; }
    static inline uint64_t martlet_load64(const char *p) { uint64_t v; memcpy(&v, p, 8); return v; }
    /* Equality of n >= 8 bytes by overlapping words: shorter than a call of memcmp for short lines. */
    static inline int martlet_same(const char *a, const char *b, size_t n) {
        size_t i = 0;
        for (; i + 8 <= n; i += 8)
            if (martlet_load64(a + i) != martlet_load64(b + i)) return 0;
        return martlet_load64(a + n - 8) == martlet_load64(b + n - 8);
    }
    """
    uint32_t martlet_load32(const char* p) nogil
    bint martlet_same(const char* a, const char* b, size_t n) nogil

cdef enum:
    SIZE_DIGITS_MAX = 9
    ARGS_MAX = 5

cdef struct Word:
    const char* at
    size_t len

cdef struct VerbName:
    const char* name
    size_t len
    Verb verb
    bint blank_follows     # else any byte begins the arguments

cdef VerbName[10] NAMES
NAMES[0] = VerbName(b"PUB", 3, V_PUB, True)
NAMES[1] = VerbName(b"HPUB", 4, V_HPUB, True)
NAMES[2] = VerbName(b"SUB", 3, V_SUB, True)
NAMES[3] = VerbName(b"UNSUB", 5, V_UNSUB, True)
NAMES[4] = VerbName(b"PING", 4, V_PING, False)
NAMES[5] = VerbName(b"PONG", 4, V_PONG, False)
NAMES[6] = VerbName(b"CONNECT", 7, V_CONNECT, False)
NAMES[7] = VerbName(b"INFO", 4, V_INFO, False)
NAMES[8] = VerbName(b"+OK", 3, V_OK, False)
NAMES[9] = VerbName(b"-ERR", 4, V_ERR, True)


cdef inline bint is_blank(char c) noexcept nogil:
    return c == c' ' or c == c'\t'


cdef inline char upper(char c) noexcept nogil:
    return c - 32 if c'a' <= c <= c'z' else c


cdef inline int32_t parse_size(const char* at, size_t size) noexcept nogil:
    """Decimal digits, at most nine of them; -1 for anything else."""
    cdef int32_t value = 0
    cdef size_t i
    if size == 0 or size > SIZE_DIGITS_MAX:
        return -1
    for i in range(size):
        if at[i] < c'0' or at[i] > c'9':
            return -1
        value = value * 10 + (at[i] - c'0')
    return value


cdef int split(const char* at, size_t size, Word* words, bint line_ends) noexcept nogil:
    """Words between blanks, at most ARGS_MAX. `line_ends`: CR and LF separate as well."""
    cdef size_t i = 0, begin
    cdef int count = 0
    while count < ARGS_MAX:
        while i < size and (is_blank(at[i]) or (line_ends and (at[i] == c'\r' or at[i] == c'\n'))):
            i += 1
        if i == size:
            break
        begin = i
        while i < size and not (
                is_blank(at[i]) or (line_ends and (at[i] == c'\r' or at[i] == c'\n'))):
            i += 1
        words[count].at = at + begin
        words[count].len = i - begin
        count += 1
    return count


cdef enum:
    MATCH_PARTIAL = -1
    MATCH_NONE = -2


cdef int match_verb(const char* at, size_t size, Verb* verb) noexcept nogil:
    """Length of the verb at `at`; MATCH_PARTIAL when the bytes end inside one."""
    cdef int i
    cdef size_t k
    cdef VerbName* name
    for i in range(10):
        name = &NAMES[i]
        k = 0
        while k < name.len and k < size and upper(at[k]) == name.name[k]:
            k += 1
        if k == name.len:
            if name.blank_follows:
                if k == size:
                    return MATCH_PARTIAL
                if not is_blank(at[k]):
                    return MATCH_NONE
            verb[0] = name.verb
            return <int> k
        if k == size:
            return MATCH_PARTIAL
    return MATCH_NONE


cdef bint parse_pub_args(const char* line, size_t size, bint with_headers, PubArgs* args) noexcept nogil:
    cdef Word[ARGS_MAX] words
    cdef int count = split(line, size, words, False)
    cdef int sizes = 2 if with_headers else 1
    if count != sizes + 1 and count != sizes + 2:
        return False
    args.subject = words[0].at
    args.subject_len = <uint32_t> words[0].len
    args.reply = NULL
    args.reply_len = 0
    if count == sizes + 2:
        args.reply = words[1].at
        args.reply_len = <uint32_t> words[1].len
    args.size = parse_size(words[count - 1].at, words[count - 1].len)
    if args.size < 0:
        return False
    args.header_size = -1
    if with_headers:
        args.header_size = parse_size(words[count - 2].at, words[count - 2].len)
        return 0 <= args.header_size <= args.size
    return True


cdef inline void remember_line(Parser* parser, const char* begin, size_t size, const PubArgs* args) noexcept nogil:
    if size > LINE_CACHE_BYTES or size < 8:
        parser.line_len = 0
        return
    memcpy(parser.line_bytes, begin, size)
    parser.line_len = <uint8_t> size
    parser.subject_at = <uint8_t> (args.subject - begin)
    parser.subject_len = <uint8_t> args.subject_len
    parser.reply_at = <uint8_t> (args.reply - begin) if args.reply != NULL else 0
    parser.reply_len = <uint8_t> args.reply_len
    parser.header_size = args.header_size
    parser.size = args.size


cdef inline void recall_line(const Parser* parser, const char* begin, PubArgs* args) noexcept nogil:
    args.subject = begin + parser.subject_at
    args.subject_len = parser.subject_len
    args.reply = begin + parser.reply_at if parser.reply_at else NULL
    args.reply_len = parser.reply_len
    args.header_size = parser.header_size
    args.size = parser.size
    args.repeat = True


cdef const char* skip_line(const char* at, const char* end) noexcept:
    """Behind the newline, or NULL when there is none."""
    cdef const char* newline = <const char*> memchr(at, c'\n', end - at)
    return newline + 1 if newline != NULL else NULL


cdef const char* find_line_end(const char* begin, const char* end, size_t* size) noexcept:
    """The newline that ends the arguments at `begin`; `size` is theirs without CR.

    The first byte belongs to the arguments whatever it is, and a CR anywhere behind it costs
    the last byte: both are what the reference does.
    """
    cdef const char* newline
    if begin + 1 >= end:
        return NULL
    newline = <const char*> memchr(begin + 1, c'\n', end - begin - 1)
    if newline == NULL:
        return NULL
    size[0] = newline - begin
    if size[0] > 1 and ((newline - 1)[0] == c'\r' or memchr(begin + 1, c'\r', size[0] - 1) != NULL):
        size[0] -= 1
    return newline


cdef int dispatch_line(Parser* parser, const Ops* ops, void* context, int verb,
                       const char* line, size_t size) noexcept:
    """Operations that are one line."""
    cdef Word[ARGS_MAX] words
    cdef int count
    cdef int64_t maximum
    if verb == V_CONNECT:
        return ops.connect(context, line, size)
    if verb == V_INFO:
        return ops.info(context, line, size)
    if verb == V_ERR:
        return ops.error(context, line, size)
    count = split(line, size, words, True)
    if verb == V_SUB:
        if count == 2:
            return ops.sub(context, words[0].at, words[0].len, NULL, 0, words[1].at, words[1].len)
        if count == 3:
            return ops.sub(context, words[0].at, words[0].len, words[1].at, words[1].len,
                           words[2].at, words[2].len)
    elif count == 1 or count == 2:
        maximum = parse_size(words[1].at, words[1].len) if count == 2 else -1
        return ops.unsub(context, words[0].at, words[0].len, maximum)
    ops.fault(context, FAULT_ARGUMENTS, line, size)
    return STOP


cdef inline int finish_pub(Parser* parser, const Ops* ops, void* context, const PubArgs* args,
                           const char* payload, const char* end, const char** after) noexcept:
    """With the line at hand: deliver the payload if it is complete, else leave `after` NULL."""
    cdef size_t have = end - payload
    cdef size_t size = <size_t> args.size
    cdef int answer
    after[0] = NULL
    if have >= size + 2 and payload[size] == c'\r' and payload[size + 1] == c'\n':
        if not parser.line_checked and not (args.repeat and parser.repeat_cleared):
            answer = ops.pub_line(context, args)
            if answer != GO_ON:
                return answer
        parser.line_checked = False
        after[0] = payload + size + 2
        return ops.pub(context, args, payload)
    if not parser.line_checked:
        answer = ops.pub_line(context, args)
        if answer != GO_ON:
            return answer
        parser.line_checked = True
    if (have > size and payload[size] != c'\r') or have > size + 1:
        ops.fault(context, FAULT_PAYLOAD_END, payload + size, have - size)
        return STOP
    return GO_ON


cdef inline const char* repeat_pubs(Parser* parser, const Ops* ops, void* context, PubArgs* args,
                                    const char* at, const char* end, int* answer) noexcept:
    """Publish as long as whole messages begin with the line at `at`; returns the first other byte.

    `args` is left at the line that was not taken, if the last one compared equal.
    """
    cdef size_t line = parser.line_len
    cdef size_t step = line + args.size + 2
    cdef const char* tail
    while <size_t> (end - at) >= step:
        tail = at + step - 2
        if tail[0] != c'\r' or tail[1] != c'\n':
            return at
        answer[0] = ops.pub(context, args, at + line)
        at += step
        if answer[0] != GO_ON or not parser.repeat_cleared or <size_t> (end - at) <= line or (
                not martlet_same(at, parser.line_bytes, line)):
            return at
        args.subject += step
        if args.reply != NULL:
            args.reply += step
    return at


cdef size_t parse(Parser* parser, const Ops* ops, void* context, const char* data, size_t size,
                  int* answer) noexcept:
    cdef const char* at = data
    cdef const char* end = data + size
    cdef const char* begin       # of the arguments
    cdef const char* newline
    cdef const char* after
    cdef size_t line_size = 0
    cdef PubArgs args
    cdef int verb, matched
    cdef Verb named = V_NONE
    answer[0] = GO_ON
    if size < parser.need:
        return 0
    parser.need = 0
    while at < end:
        verb = parser.verb
        if verb == V_NONE:
            if parser.awaiting_auth and at[0] != c'C' and at[0] != c'c':
                answer[0] = ops.not_connect(context)
                if answer[0] != GO_ON:
                    return at - data
            # The fast lane: the same publish line as before.
            if parser.line_len and parser.line_len < end - at and martlet_same(
                    at, parser.line_bytes, parser.line_len):
                recall_line(parser, at, &args)
                if parser.repeat_cleared and not parser.line_checked:
                    at = repeat_pubs(parser, ops, context, &args, at, end, answer)
                    if answer[0] != GO_ON:
                        return at - data
                    if at != args.subject - parser.subject_at:
                        continue
                answer[0] = finish_pub(parser, ops, context, &args, at + parser.line_len, end, &after)
                if after != NULL:
                    at = after
                    if answer[0] != GO_ON:
                        return at - data
                    continue
                if answer[0] != GO_ON:
                    return at - data
                # Incomplete: leave the arguments and take the verb, as the general way does.
                parser.need = <size_t> (parser.line_len - parser.subject_at) + args.size + 1
                if parser.need <= <size_t> (end - at) - parser.subject_at:
                    parser.need += 1
                parser.verb = V_HPUB if args.header_size >= 0 else V_PUB
                at += parser.subject_at
                return at - data
            if end - at >= 4 and martlet_load32(at) == martlet_load32(b"PUB "):
                verb = V_PUB
                at += 4
            else:
                matched = match_verb(at, end - at, &named)
                if matched == MATCH_PARTIAL:
                    return at - data
                if matched == MATCH_NONE:
                    ops.fault(context, FAULT_UNKNOWN_VERB, at, end - at)
                    answer[0] = STOP
                    return at - data
                verb = named
                at += matched
            parser.verb = <uint8_t> verb
        if verb == V_PING or verb == V_PONG or verb == V_OK:
            at = skip_line(at, end)
            if at == NULL:
                return size
            parser.verb = V_NONE
            if parser.trace:
                ops.line(context, <Verb> verb, NULL, 0)
            if verb == V_OK:
                continue
            answer[0] = ops.ping(context) if verb == V_PING else ops.pong(context)
            if answer[0] != GO_ON:
                return at - data
            continue
        if not parser.line_checked:
            while at < end and is_blank(at[0]):
                at += 1
        begin = at
        newline = find_line_end(begin, end, &line_size)
        if newline == NULL:
            line_size = end - begin
            # A CR at the end may belong to the line's end; it does not count.
            if line_size and (end - 1)[0] == c'\r':
                line_size -= 1
        if line_size > <size_t> parser.max_control_line:
            ops.fault(context, FAULT_CONTROL_LINE, begin, line_size)
            answer[0] = STOP
            return begin - data
        if newline == NULL:
            return begin - data
        if verb == V_PUB or verb == V_HPUB:
            if parser.trace and not parser.line_checked:
                ops.line(context, <Verb> verb, begin, line_size)
            if verb == V_HPUB and not parser.headers:
                ops.fault(context, FAULT_HEADERS, begin, line_size)
                answer[0] = STOP
                return begin - data
            if not parse_pub_args(begin, line_size, verb == V_HPUB, &args):
                ops.fault(context, FAULT_ARGUMENTS, begin, line_size)
                answer[0] = STOP
                return begin - data
            args.repeat = False
            parser.line_len = 0
            answer[0] = finish_pub(parser, ops, context, &args, newline + 1, end, &after)
            if after == NULL:
                parser.need = <size_t> (newline + 1 - begin) + <size_t> args.size + 1
                if parser.need <= <size_t> (end - begin):
                    parser.need += 1
                return begin - data
            parser.verb = V_NONE
            # Only a line seen whole and in its plain form can be compared with the next one.
            if not parser.trace and begin - data >= 4 and (newline - 1)[0] == c'\r':
                matched = 5 if verb == V_HPUB else 4
                if begin - data >= matched and (begin - 1)[0] == c' ' and (begin - 2)[0] == c'B':
                    remember_line(parser, begin - matched, newline + 1 - begin + matched, &args)
            at = after
            if answer[0] != GO_ON:
                return at - data
            continue
        parser.verb = V_NONE
        if parser.trace:
            ops.line(context, <Verb> verb, begin, line_size)
        at = newline + 1
        answer[0] = dispatch_line(parser, ops, context, verb, begin, line_size)
        if answer[0] != GO_ON:
            return at - data
    return at - data


cdef int record_pub_line(void* context, const PubArgs* args) noexcept:
    return (<Recorder> context).add(("line", args.size))

cdef int record_pub(void* context, const PubArgs* args, const char* payload) noexcept:
    return (<Recorder> context).add((
        "pub", args.subject[:args.subject_len],
        args.reply[:args.reply_len] if args.reply != NULL else None,
        args.header_size, payload[:args.size]))

cdef int record_sub(void* context, const char* subject, size_t subject_len, const char* queue,
                    size_t queue_len, const char* sid, size_t sid_len) noexcept:
    return (<Recorder> context).add((
        "sub", subject[:subject_len], queue[:queue_len] if queue != NULL else None, sid[:sid_len]))

cdef int record_unsub(void* context, const char* sid, size_t sid_len, int64_t maximum) noexcept:
    return (<Recorder> context).add(("unsub", sid[:sid_len], maximum))

cdef int record_connect(void* context, const char* json, size_t size) noexcept:
    return (<Recorder> context).add(("connect", json[:size]))

cdef int record_ping(void* context) noexcept:
    return (<Recorder> context).add(("ping",))

cdef int record_pong(void* context) noexcept:
    return (<Recorder> context).add(("pong",))

cdef int record_info(void* context, const char* json, size_t size) noexcept:
    return (<Recorder> context).add(("info", json[:size]))

cdef int record_error(void* context, const char* text, size_t size) noexcept:
    return (<Recorder> context).add(("error", text[:size]))

cdef int record_not_connect(void* context) noexcept:
    (<Recorder> context).add(("not connect",))
    return STOP

cdef void record_fault(void* context, Fault fault, const char* at, size_t size) noexcept:
    (<Recorder> context).add(("fault", FAULT_NAMES[fault]))

cdef void record_line(void* context, Verb verb, const char* args, size_t size) noexcept:
    pass

cdef list FAULT_NAMES = ["unknown verb", "payload end", "control line", "arguments", "headers"]
cdef Ops RECORD
RECORD.pub_line = record_pub_line
RECORD.pub = record_pub
RECORD.sub = record_sub
RECORD.unsub = record_unsub
RECORD.connect = record_connect
RECORD.ping = record_ping
RECORD.pong = record_pong
RECORD.info = record_info
RECORD.error = record_error
RECORD.not_connect = record_not_connect
RECORD.fault = record_fault
RECORD.line = record_line


cdef class Recorder:
    """A parser with a list for a connection: tests and fuzzing."""

    cdef Parser parser
    cdef readonly list events
    cdef readonly bytes rest
    cdef readonly bint stopped

    def __init__(self, int max_control_line=4096, bint headers=True, bint awaiting_auth=False):
        self.parser.max_control_line = max_control_line
        self.parser.headers = headers
        self.parser.awaiting_auth = awaiting_auth
        self.events = []
        self.rest = b""

    cdef int add(self, tuple event) noexcept:
        self.events.append(event)
        return GO_ON

    def feed(self, bytes data):
        cdef int answer
        cdef size_t used
        if self.stopped:
            return
        data = self.rest + data
        used = parse(&self.parser, &RECORD, <void*> self, data, len(data), &answer)
        self.stopped = answer == STOP
        self.rest = data[used:]
