# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Publishes that are traced: the way of every other message, slowly and with notes.

Contract: see the header. `server.core.msgtrace` says whether a message is traced and what is told.
A Nats-Trace-Only message passes the checks of all others and reaches nobody.
"""

from libc.stdint cimport int32_t, uint32_t
from libc.string cimport memcpy

from server.core._account cimport Account
from server.core._broker cimport Broker
from server.core._client cimport Client
from server.core._outbox cimport Chunk, chunk_new, chunk_release
from server.core._router cimport route_traced
from server.core._sink cimport Msg
from server.wire._parser cimport PubArgs

from server.core import msgtrace


cdef int publish_traced(Client client, const PubArgs* args, const char* payload) noexcept:
    try:
        return publish(client, args, payload)
    except Exception as error:
        return client.give_up(error)


cdef int publish(Client client, const PubArgs* args, const char* payload) except -1:
    cdef bytes block = payload[:args.header_size]
    begun = msgtrace.begin(client, args.subject[:args.subject_len], block, args.size)
    # The next line is no mere repetition of this one, whatever happens here.
    client.parser.repeat_cleared = False
    client.match_stamp = 0
    if begun.is_over:
        return client.answer()
    if begun.block is not None:
        return publish_changed(client, args, payload, begun.block)
    if begun.trace is None:
        return publish_untraced(client, args, payload)
    return follow(client, args, payload, begun.trace)


cdef int publish_untraced(Client client, const PubArgs* args, const char* payload) noexcept:
    cdef int answer
    client.untraced = True
    answer = client.on_pub(args, payload)
    client.untraced = False
    return answer


cdef int publish_changed(
    Client client, const PubArgs* args, const char* payload, bytes block
) except -1:
    """Publish with another header block."""
    cdef PubArgs changed = args[0]
    cdef Chunk* chunk
    cdef Chunk* before = client.reading_from
    cdef int answer
    changed.header_size = <int32_t> len(block)
    changed.size = args.size - args.header_size + changed.header_size
    changed.repeat = False
    chunk = chunk_new(changed.size + 2)
    if chunk == NULL:
        raise MemoryError
    memcpy(chunk.data, <const char*> block, changed.header_size)
    memcpy(chunk.data + changed.header_size, payload + args.header_size,
           args.size - args.header_size + 2)
    client.reading_from = chunk
    answer = publish_untraced(client, &changed, chunk.data)
    client.reading_from = before
    chunk_release(chunk)
    client.parser.repeat_cleared = False
    return answer


cdef int follow(Client client, const PubArgs* args, const char* payload, trace) except -1:
    cdef Broker broker = client.broker
    cdef PubArgs mapped
    cdef bint may_publish
    client.in_msgs += 1
    client.in_bytes += args.size
    broker.tracing = trace
    try:
        if client.account.mappings is not None and client.map_subject(args, &mapped):
            args = &mapped
        may_publish = client.begin_line(args, payload)
    finally:
        broker.tracing = None
    client.parser.repeat_cleared = False
    if may_publish:
        deliver(client, args, payload, trace)
    trace.left()
    client.match_stamp = 0
    return client.answer()


cdef int deliver(Client client, const PubArgs* args, const char* payload, trace) except -1:
    cdef Msg message
    cdef Account account = client.account
    cdef Broker broker = client.broker
    cdef int taken
    client.find_match(args)
    message.subject = args.subject
    message.subject_len = args.subject_len
    message.reply = args.reply
    message.reply_len = args.reply_len
    message.payload = payload
    message.owner = client.reading_from
    message.origin = <void*> client
    message.header_size = args.header_size
    message.size = args.size
    message.tail_len = message.plain_tail_len = 0
    message.line_id = client.line_id
    taken = route_traced(account.sublist, client.match, &message, &broker.random, trace)
    if taken and not trace.only:
        account.out_msgs += taken
        account.out_bytes += <long long> taken * args.size
        broker.out_msgs += taken
        broker.out_bytes += <long long> taken * args.size
    if taken == 0 and args.reply_len and client.no_responders:
        client.send_no_responders(args)
    return 0


cdef int trace_refused(
    Client client, const PubArgs* args, const char* block, size_t size
) noexcept:
    cdef size_t have = min(size, <size_t> max(args.header_size, 0))
    if not names_trace(block, <int> have, client.account is not None and client.account.traces_parents):
        return 0
    try:
        subject = args.subject[:args.subject_len]
        begun = msgtrace.begin(client, subject, block[:have], args.size, "maximum payload exceeded")
        if begun.trace is not None:
            begun.trace.left()
    except Exception as error:
        client.give_up(error)
    return 0


def names_a_trace(bytes block not None, bint parents):
    return bool(names_trace(block, <int> len(block), parents))
