# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Accounts, and the server's own publishers and subscribers in them.

Contract: an account is one trie. Callbacks of the server itself run in a phase at the end of the
turn, in the order of delivery, never inside a delivery; their inbox is bounded, beyond it messages
are dropped and `inbox_dropped` counts them.
"""

cimport cython
from collections import deque

from libc.string cimport memcpy

from server.core._broker cimport Broker
from server.core._outbox cimport Chunk, chunk_new, chunk_release
from server.core._router cimport route
from server.core._sink cimport Msg, Sink
from server.core._sublist cimport MatchResult, Sub, Sublist, sub_free, sub_new

cdef enum:
    INBOX_PHASE = 2
    INBOX_MESSAGES_MAX = 131072


# Its attributes are needed while it is taken down.
@cython.no_gc_clear
cdef class Account:
    def __init__(self, Broker broker, str name):
        self.broker = broker
        self.name = name
        self.sublist = Sublist(cache=broker.sublist_cache, seed=broker.random)
        self.max_payload = self.max_subscriptions = self.max_connections = -1
        self.issued_at = self.trace_destination = ""
        self.inbox = deque()
        self.callbacks = set()
        self.inbox_phase = broker.turn.phase(INBOX_PHASE, self.run_inbox)

    def trace_parents(self, str destination, int percent):
        self.trace_destination = destination
        self.trace_percent = percent
        self.traces_parents = bool(destination)

    def run_inbox(self):
        cdef PySub each
        inbox = self.inbox
        for _ in range(len(inbox)):
            each, subject, reply, headers, payload, client = inbox.popleft()
            if each.sub == NULL:
                continue
            try:
                if each.with_client:
                    each.callback(subject, reply, headers, payload, client)
                else:
                    each.callback(subject, reply, headers, payload, each.subject)
            except Exception as error:
                self.broker.hooks.log("error", f"Callback on {each.subject!r} failed: {error!r}")

    def publish(self, str subject, str reply="", bytes headers=b"", bytes payload=b""):
        # A reply subject may be any bytes: `PySub.deliver` tells it so that it can be given back.
        cdef bytes subject_bytes = subject.encode("utf-8", "surrogateescape")
        cdef bytes reply_bytes = reply.encode("utf-8", "surrogateescape")
        cdef bytes body = headers + payload + b"\r\n"
        cdef Msg message
        cdef MatchResult* result = self.sublist.match(subject_bytes, len(subject_bytes))
        cdef Chunk* chunk
        cdef int taken
        if result.plain_count == 0 and result.group_count == 0:
            return 0
        chunk = chunk_new(len(body))
        if chunk == NULL:
            raise MemoryError
        memcpy(chunk.data, <const char*> body, len(body))
        message.subject = subject_bytes
        message.subject_len = <unsigned int> len(subject_bytes)
        message.reply = <const char*> reply_bytes if reply_bytes else NULL
        message.reply_len = <unsigned int> len(reply_bytes)
        message.payload = chunk.data
        message.owner = chunk
        message.origin = NULL
        message.header_size = <int> len(headers)
        message.size = <int> (len(body) - 2)
        message.tail_len = message.plain_tail_len = 0
        self.broker.last_line_id += 1
        message.line_id = self.broker.last_line_id
        taken = route(self.sublist, result, &message, &self.broker.random)
        chunk_release(chunk)
        self.out_msgs += taken
        self.out_bytes += <long long> taken * message.size
        self.broker.out_msgs += taken
        self.broker.out_bytes += <long long> taken * message.size
        return taken

    def close(self):
        for sub in list(self.callbacks):
            sub.unsubscribe()
        self.inbox.clear()
        self.broker.turn.forget(self.inbox_phase)

    def subscribe(self, str subject, callback, str queue=""):
        sub = PySub(self, subject, callback, queue)
        self.callbacks.add(sub)
        return sub

    def serve(self, str subject, callback, str queue=""):
        cdef PySub sub = self.subscribe(subject, callback, queue)
        sub.with_client = True
        return sub

    def has_interest(self, str subject):
        cdef bytes name = subject.encode()
        cdef MatchResult* result = self.sublist.match(name, len(name))
        return result.plain_count != 0 or result.group_count != 0

    def has_literal_interest(self, str subject):
        cdef bytes name = subject.encode()
        cdef MatchResult* result = self.sublist.match(name, len(name))
        cdef size_t i
        for i in range(result.plain_count):
            if result.plain[i].subject[:result.plain[i].subject_len] == name:
                return True
        return False


# Its attributes are needed while it is taken down.
@cython.no_gc_clear
@cython.final
cdef class PySub(Sink):
    def __init__(self, Account account, str subject, callback, str queue=""):
        cdef bytes subject_bytes = subject.encode()
        cdef bytes queue_bytes = queue.encode()
        self.account = account
        self.subject = subject
        self.queue = queue
        self.callback = callback
        self.sub = sub_new(<void*> self, subject_bytes, len(subject_bytes),
                           <const char*> queue_bytes if queue_bytes else NULL, len(queue_bytes), b"", 0)
        if self.sub == NULL:
            raise MemoryError
        if account.sublist.insert(self.sub):
            sub_free(self.sub)
            self.sub = NULL
            raise ValueError(f"not a subject: {subject!r}")
        account.subscriptions += 1

    def __dealloc__(self):
        if self.sub != NULL:
            self.account.sublist.remove(self.sub)
            sub_free(self.sub)

    cdef drop(self):
        self.account.sublist.remove(self.sub)
        self.account.subscriptions -= 1
        self.sub.closed = 1
        self.sub.sink = NULL
        self.account.broker.turn.bury(self.sub)
        self.sub = NULL
        self.account.callbacks.discard(self)

    @property
    def delivered(self):
        return self.sub.delivered if self.sub != NULL else 0

    def unsubscribe(self):
        if self.sub != NULL:
            self.drop()

    cdef int deliver_traced(self, Msg* message, Sub* sub, object trace) noexcept:
        """A service behind the account's own subjects gets nothing that is only to be traced."""
        if self.on_traced is not None:
            try:
                self.on_traced(trace, message.subject[:message.subject_len].decode("utf-8", "replace"))
            except Exception as error:
                self.account.broker.hooks.log("error", f"Tracing {self.subject!r} failed: {error!r}")
            if trace.only:
                return 0
        return self.deliver(message, sub)

    cdef int deliver(self, Msg* message, Sub* sub) noexcept:
        cdef int header_size = message.header_size
        if len(self.account.inbox) >= INBOX_MESSAGES_MAX:
            return 0
        sub.delivered += 1
        self.account.inbox.append((
            self,
            message.subject[:message.subject_len].decode("utf-8", "replace"),
            "" if message.reply == NULL
            else message.reply[:message.reply_len].decode("utf-8", "surrogateescape"),
            message.payload[:header_size] if header_size > 0 else b"",
            message.payload[header_size if header_size > 0 else 0:message.size],
            <object> message.origin if self.with_client and message.origin != NULL else None,
        ))
        self.account.inbox_phase.mark()
        return 1
