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
            answer = ops.pub_line(context, args, payload, have)
            if answer != GO_ON:
                return answer
        parser.line_checked = False
        after[0] = payload + size + 2
        return ops.pub(context, args, payload)
    if not parser.line_checked:
        answer = ops.pub_line(context, args, payload, have)
        if answer != GO_ON:
            return answer
        parser.line_checked = True
    if (have > size and payload[size] != c'\r') or have > size + 1:
        ops.fault(context, FAULT_PAYLOAD_END, payload + size, have - size)
        return STOP
    return GO_ON


# Where a parse stands.
cdef struct Scan:
    const char* at
    const char* end
    int answer


cdef inline bint repeats_line(const Parser* parser, const char* at, const char* end) noexcept nogil:
    return <size_t> (end - at) > parser.line_len and martlet_same(
        at, parser.line_bytes, parser.line_len)


cdef inline bint take_repeats(Parser* parser, const Ops* ops, void* context, Scan* scan) noexcept:
    """The fast lane: the last publish line again, as often as it comes. False: more is needed."""
    cdef PubArgs args
    cdef const char* tail
    cdef const char* after
    cdef size_t line = parser.line_len
    cdef size_t step
    recall_line(parser, scan.at, &args)
    step = line + args.size + 2
    while parser.repeat_cleared and <size_t> (scan.end - scan.at) >= step:
        tail = scan.at + step - 2
        if tail[0] != c'\r' or tail[1] != c'\n':
            break
        scan.answer = ops.pub(context, &args, scan.at + line)
        scan.at += step
        if scan.answer != GO_ON or not repeats_line(parser, scan.at, scan.end):
            return True
        args.subject += step
        if args.reply != NULL:
            args.reply += step
    scan.answer = finish_pub(parser, ops, context, &args, scan.at + line, scan.end, &after)
    if after != NULL:
        scan.at = after
        return True
    # Incomplete: take the verb and leave the arguments, as the general way does.
    parser.verb = V_HPUB if args.header_size >= 0 else V_PUB
    scan.at += parser.subject_at
    want_payload(parser, line - parser.subject_at, args.size, scan.end - scan.at)
    return False


cdef inline void want_payload(Parser* parser, size_t line, size_t size, size_t have) noexcept:
    """With the payload's first byte behind its end at hand, only one more is missing."""
    parser.need = line + size + 1
    if parser.need <= have:
        parser.need += 1


cdef inline bint take_verb(Parser* parser, const Ops* ops, void* context, Scan* scan) noexcept:
    cdef Verb verb = V_NONE
    cdef int matched
    if scan.end - scan.at >= 4 and martlet_load32(scan.at) == martlet_load32(b"PUB "):
        parser.verb = V_PUB
        scan.at += 4
        return True
    matched = match_verb(scan.at, scan.end - scan.at, &verb)
    if matched == MATCH_PARTIAL:
        return False
    if matched == MATCH_NONE:
        ops.fault(context, FAULT_UNKNOWN_VERB, scan.at, scan.end - scan.at)
        scan.answer = STOP
        return False
    parser.verb = <uint8_t> verb
    scan.at += matched
    return True


cdef bint take_word(Parser* parser, const Ops* ops, void* context, Scan* scan) noexcept:
    """PING, PONG and +OK: whatever follows on the line is forgotten as it comes."""
    cdef int verb = parser.verb
    scan.at = skip_line(scan.at, scan.end)
    if scan.at == NULL:
        scan.at = scan.end
        return False
    parser.verb = V_NONE
    if parser.trace:
        ops.line(context, <Verb> verb, NULL, 0)
    if verb != V_OK:
        scan.answer = ops.ping(context) if verb == V_PING else ops.pong(context)
    return True


cdef inline bint fault(const Ops* ops, void* context, Scan* scan, Fault kind, size_t size) noexcept:
    ops.fault(context, kind, scan.at, size)
    scan.answer = STOP
    return False


cdef bint take_pub(Parser* parser, const Ops* ops, void* context, Scan* scan,
                   const char* newline, size_t line_size, const char* data) noexcept:
    cdef PubArgs args
    cdef const char* after
    cdef const char* begin = scan.at
    cdef bint with_headers = parser.verb == V_HPUB
    cdef size_t verb_size = 5 if with_headers else 4
    if with_headers and not parser.headers:
        return fault(ops, context, scan, FAULT_HEADERS, line_size)
    if not parse_pub_args(begin, line_size, with_headers, &args):
        return fault(ops, context, scan, FAULT_ARGUMENTS, line_size)
    args.repeat = False
    parser.line_len = 0
    scan.answer = finish_pub(parser, ops, context, &args, newline + 1, scan.end, &after)
    if after == NULL:
        want_payload(parser, newline + 1 - begin, args.size, scan.end - begin)
        return False
    parser.verb = V_NONE
    scan.at = after
    # Only a line seen whole and in its plain form can be compared with the next one.
    if not parser.trace and <size_t> (begin - data) >= verb_size and (newline - 1)[0] == c'\r' and (
            (begin - 1)[0] == c' ' and (begin - 2)[0] == c'B'):
        remember_line(parser, begin - verb_size, newline + 1 - begin + verb_size, &args)
    return True


cdef bint take_line(Parser* parser, const Ops* ops, void* context, Scan* scan,
                    const char* data) noexcept:
    """The arguments of a verb that has some, and a payload if it has one."""
    cdef int verb = parser.verb
    cdef size_t size = 0
    cdef const char* begin
    cdef const char* newline
    while not parser.line_checked and scan.at < scan.end and is_blank(scan.at[0]):
        scan.at += 1
    begin = scan.at
    newline = find_line_end(begin, scan.end, &size)
    if newline == NULL:
        size = scan.end - begin
        # Measured as it will be with its end, however the line is cut into reads.
        if size > 1 and memchr(begin + 1, c'\r', size - 1) != NULL:
            size -= 1
    if size > <size_t> parser.max_control_line:
        return fault(ops, context, scan, FAULT_CONTROL_LINE, size)
    if newline == NULL:
        return False
    if parser.trace and not parser.line_checked:
        ops.line(context, <Verb> verb, begin, size)
    if verb == V_PUB or verb == V_HPUB:
        return take_pub(parser, ops, context, scan, newline, size, data)
    parser.verb = V_NONE
    scan.at = newline + 1
    scan.answer = dispatch_line(parser, ops, context, verb, begin, size)
    return True


cdef size_t parse(Parser* parser, const Ops* ops, void* context, const char* data, size_t size,
                  int* answer) noexcept:
    cdef Scan scan
    scan.at = data
    scan.end = data + size
    scan.answer = GO_ON
    answer[0] = GO_ON
    if size < parser.need:
        return 0
    parser.need = 0
    while scan.at < scan.end and scan.answer == GO_ON:
        if parser.verb == V_NONE:
            if parser.awaiting_auth and scan.at[0] != c'C' and scan.at[0] != c'c':
                scan.answer = ops.not_connect(context)
                if scan.answer != GO_ON:
                    break
            if parser.line_len and repeats_line(parser, scan.at, scan.end):
                if not take_repeats(parser, ops, context, &scan):
                    break
                continue
            if not take_verb(parser, ops, context, &scan):
                break
        if parser.verb == V_PING or parser.verb == V_PONG or parser.verb == V_OK:
            if not take_word(parser, ops, context, &scan):
                break
        elif not take_line(parser, ops, context, &scan, data):
            break
    answer[0] = scan.answer
    return scan.at - data


cdef int record_pub_line(
    void* context, const PubArgs* args, const char* payload, size_t have
) noexcept:
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
