# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""One client: what its operations mean, what it is subscribed to, and what it is sent.

Contract: operations come from the parser (`OPS`), messages from the router (`deliver`). Neither
makes a Python object for a publish or a delivery that nothing forbids or traces. Subscriptions are
owned here: in a table by sid and in the account's trie; a removal marks the Sub closed, takes it
out of both, and its memory goes at the end of the turn. What each hook is called for is in
server/core/hooks.py; which error closes is the reference's behaviour.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from server.core._account cimport Account
from server.core._broker cimport Broker
from server.core._connection cimport Carrier, PyCarrier
from server.core._mappings cimport Mappings
from server.core._outbox cimport Chunk
from server.core._router cimport route
from server.core._session cimport Session
from server.core._sink cimport Msg, Sink, fetch_ahead
from server.core._subject cimport SUBJECT_LITERAL, subject_kind
from server.core._subscriber cimport CARE_DENY, CARE_GONE, CARE_TRACE
from server.core._sublist cimport MatchResult, Sub, match_is_valid, sub_free, sub_new
from server.core._tracing cimport names_trace, publish_traced, trace_refused
from server.wire._parser cimport (
    FAULT_ARGUMENTS, FAULT_CONTROL_LINE, FAULT_HEADERS, FAULT_PAYLOAD_END, FAULT_UNKNOWN_VERB,
    GO_ON, PAUSE, STOP, V_CONNECT, V_HPUB, V_INFO, V_PING, V_PONG, V_PUB, V_SUB, V_UNSUB,
    Fault, Ops, Parser, PubArgs, Verb, parse,
)

from server.core.connect import BEFORE_CONNECT, redact_secrets
from server.core._subscriber import SubInfo
from server.core.quote import quote, sub_violation

cdef enum:
    LARGE_REST = 32768           # a payload that still misses more gets a buffer of its own
    SNIPPET_MAX = 32
    SINK_BYTES = 448             # of the object

cdef object BEFORE = BEFORE_CONNECT
cdef Carrier NO_CARRIER = Carrier()
cdef dict VERB_NAMES = {
    V_PUB: "PUB", V_HPUB: "HPUB", V_SUB: "SUB", V_UNSUB: "UNSUB", V_CONNECT: "CONNECT",
    V_PING: "PING", V_PONG: "PONG",
}


cdef int op_pub_line(void* context, const PubArgs* args, const char* payload, size_t have) noexcept:
    return (<Client> context).on_pub_line(args, payload, have)

cdef int op_pub(void* context, const PubArgs* args, const char* payload) noexcept:
    return (<Client> context).on_pub(args, payload)

cdef int op_sub(void* context, const char* subject, size_t subject_len, const char* queue,
                size_t queue_len, const char* sid, size_t sid_len) noexcept:
    try:
        return (<Client> context).on_sub(subject, subject_len, queue, queue_len, sid, sid_len)
    except Exception as error:
        return (<Client> context).give_up(error)

cdef int op_unsub(void* context, const char* sid, size_t sid_len, int64_t maximum) noexcept:
    try:
        return (<Client> context).on_unsub(sid, sid_len, maximum)
    except Exception as error:
        return (<Client> context).give_up(error)

cdef int op_connect(void* context, const char* json, size_t size) noexcept:
    cdef Client client = <Client> context
    try:
        client.process_connect(json[:size])
        return client.answer()
    except Exception as error:
        return client.give_up(error)

cdef int op_ping(void* context) noexcept:
    try:
        return (<Client> context).on_ping()
    except Exception as error:
        return (<Client> context).give_up(error)

cdef int op_pong(void* context) noexcept:
    (<Client> context).on_pong()
    return GO_ON

cdef int op_info(void* context, const char* json, size_t size) noexcept:
    cdef Client client = <Client> context
    try:
        client.process_info(json[:size])
        return client.answer()
    except Exception as error:
        return client.give_up(error)

cdef int op_error(void* context, const char* text, size_t size) noexcept:
    cdef Client client = <Client> context
    client.log("error", "Client Error " + text[:size].decode("utf-8", "replace"))
    client.finish("Parse Error", True)
    return STOP

cdef int op_not_connect(void* context) noexcept:
    cdef Client client = <Client> context
    try:
        client.process_missing_connect()
        return client.answer()
    except Exception as error:
        return client.give_up(error)

cdef void op_fault(void* context, Fault fault, const char* at, size_t size) noexcept:
    try:
        (<Client> context).process_fault(fault, at[:min(size, <size_t> 8192)])
    except Exception as error:
        (<Client> context).give_up(error)

cdef void op_line(void* context, Verb verb, const char* args, size_t size) noexcept:
    (<Client> context).trace_operation(verb, args[:size] if args != NULL else b"")

cdef Ops OPS
OPS.pub_line = op_pub_line
OPS.pub = op_pub
OPS.sub = op_sub
OPS.unsub = op_unsub
OPS.connect = op_connect
OPS.ping = op_ping
OPS.pong = op_pong
OPS.info = op_info
OPS.error = op_error
OPS.not_connect = op_not_connect
OPS.fault = op_fault
OPS.line = op_line


cdef inline bint begins(const char* text, size_t length, const char* prefix, size_t prefix_len) noexcept nogil:
    return length > prefix_len and memcmp(text, prefix, prefix_len) == 0


# Its attributes are needed while it is taken down.
@cython.final
@cython.no_gc_clear
cdef class Client(Session):
    def __init__(self, Broker broker, write=None, close_transport=None, str ip="", int port=0,
                 str kind="Client", str type="nats", pause_transport=None, transport_pending=None):
        self.broker = broker
        self.kind = kind
        self.type = type
        self.ip = ip
        self.port = port
        self.nonce = b""
        self.user = ""
        self.user_label = ""
        self.issuer_key = ""
        self.connect_label = ""
        self.options = BEFORE
        self.verbose = self.pedantic = True
        self.user_max_payload = self.user_max_subs = -1
        self.carrier = PyCarrier(write, close_transport, pause_transport, transport_pending) if (
            write is not None) else NO_CARRIER
        self.auth_required = broker.auth_required
        self._trace = self.parser.trace = broker.trace
        self.start_ns = self.last_in_ns = self.last_active_ns = broker.clock()
        self.start_wall_ns = broker.wall()
        self.copy_limits()
        self.set_limits()

    # ---- life

    def start(self):
        cdef Broker broker = self.broker
        if self.started:
            return
        self.started = True
        broker.last_cid += 1
        self.cid = broker.last_cid
        broker.total_connections += 1
        broker.clients[self.cid] = self
        if not self.auth_required:
            self.bind(broker.default_account)
        info = self.ask_hook(broker.hooks.on_accept)
        if self.closed:
            return
        if info is not None:
            self.send_info(info)
        self.log("debug", "Client connection created")
        if len(broker.clients) > broker.max_connections:
            self.log("error", "maximum connections exceeded")
            self.close("Maximum Connections Exceeded", "maximum connections exceeded")
            return
        if self.auth_required and self.account is None:
            self.parser.awaiting_auth = True
            self.auth_deadline_ns = self.start_ns + broker.auth_timeout_ns
        elif self.account is None:
            self.bind(broker.default_account)
        self.ping_at_ns = self.start_ns + broker.ping_interval_ns
        self.trace = self._trace
        self.set_timer()

    cdef void teardown(self) noexcept:
        self.care |= CARE_GONE
        self.log("debug", f"Client connection closed: {self.reason}")
        if self.account is not None:
            self.account.connections -= 1
        if self.started:
            self.broker.clients.pop(self.cid, None)
            try:
                self.broker.hooks.on_closed(self, self.reason)
            except Exception as error:
                self.log("error", f"Internal error: {error!r}")
        self.remove_all_subs()
        self.match = NULL
        self.match_stamp = 0

    # ---- input

    def feed(self, data):
        cdef const unsigned char[::1] view = data
        if not self.closed and view.shape[0]:
            self.take(<const char*> &view[0], view.shape[0])
        return not self.closed

    def peer_closed(self, str reason="Client Closed"):
        self.finish(reason, True)

    cdef size_t consume(self, const char* data, size_t size, Chunk* owner) noexcept:
        cdef int answer
        cdef size_t used
        cdef int64_t msgs = self.in_msgs
        cdef int64_t count = self.in_bytes
        cdef Account account
        cdef size_t ahead = 0
        if self.preface is not None:
            try:
                ahead = self.take_preface(data[:size])
            except Exception as error:
                self.give_up(error)
            if self.closed or self.preface is not None or ahead == size:
                return ahead
            data += ahead
            size -= ahead
        self.reading_from = owner
        used = parse(&self.parser, &OPS, <void*> self, data, size, &answer)
        self.reading_from = NULL
        self.rest_wanted = self.parser.need if self.parser.need > size - used + LARGE_REST else 0
        msgs = self.in_msgs - msgs
        if msgs:
            count = self.in_bytes - count
            self.broker.in_msgs += msgs
            self.broker.in_bytes += count
            # Asked now: `no_auth_user` may have signed it in with the first of these messages.
            account = self.account
            if account is not None:
                account.in_msgs += msgs
                account.in_bytes += count
        if msgs or self.subs_changed:
            self.subs_changed = 0
            self.last_in_ns = self.last_active_ns = self.broker.clock()
        return ahead + used

    cdef int answer(self) noexcept:
        if self.closed:
            return STOP
        return PAUSE if self.holds else GO_ON

    cdef process_fault(self, Fault fault, bytes near):
        cdef str reason = "Protocol Violation"
        if fault == FAULT_UNKNOWN_VERB or fault == FAULT_PAYLOAD_END:
            self.log("error", f"Client parser ERROR: proto='{quote(near[:SNIPPET_MAX])}...'")
            self.close(reason, "Unknown Protocol Operation")
        elif fault == FAULT_CONTROL_LINE:
            self.log("error", f"maximum control line exceeded: max_control_line "
                     f"{self.parser.max_control_line}, Buffer len {len(near)} "
                     f"(snip: {quote(near[:SNIPPET_MAX])}...)")
            self.close("Maximum Control Line Exceeded", "maximum control line exceeded")
        elif fault == FAULT_HEADERS:
            self.log("error", "message headers not supported")
            self.close(reason)
        else:
            self.log("error", f"Parse Error: {quote(near)}")
            self.close(reason)

    cdef int on_ping(self) except -1:
        self.put(b"PONG\r\n", 6)
        self.last_in_ns = self.broker.clock()
        if self._trace:
            self.trace_line("->> [PONG]")
        if self.connected and not self.first_pong_sent:
            self.first_pong_sent = True
            if self.options.protocol >= 1:
                self.send_connect_info()
        return self.answer()

    # ---- publishing

    cdef int on_pub_line(self, const PubArgs* args, const char* payload, size_t have) noexcept:
        if self.max_payload >= 0 and args.size > self.max_payload:
            trace_refused(self, args, payload, have)
            self.log("error", f"maximum payload exceeded: {args.size} vs {self.max_payload}")
            self.close("Maximum Message Payload Exceeded", "Maximum Payload Violation")
            return STOP
        if self.pedantic and subject_kind(args.subject, args.subject_len) != SUBJECT_LITERAL:
            self.send_error("Invalid Publish Subject")
            return self.answer()
        return GO_ON

    cdef int clear_pub(self, const PubArgs* args) except -1:
        """May this be published? Sets `pub_cleared` when the same line may be sent again unasked."""
        cdef const char* subject = args.subject
        cdef size_t length = args.subject_len
        cdef bint lasting = True
        self.parser.repeat_cleared = False
        if begins(subject, length, b"_GR_.", 5):
            return self.refuse_pub(subject[:length])
        if self.permissions is not None and self.permissions.limits_publish:
            if not self.permissions.allows_matched(self.match, self.account.sublist):
                if self.replies is None or not self.use_reply(subject[:length]):
                    return self.refuse_pub(subject[:length])
                lasting = False
        if begins(subject, length, b"$NRG.", 4) and length > 4 and subject[4] == c'.' and (
                self.account is not self.broker.system_account):
            return self.refuse_pub(subject[:length])
        if args.reply_len and (begins(args.reply, args.reply_len, b"_R_.", 3) and args.reply[3] == c'.'
                               or begins(args.reply, args.reply_len, b"$JS.ACK.", 8)
                               or begins(args.reply, args.reply_len, b"_GR_.", 5)):
            text = quote(args.reply[:args.reply_len])
            self.tell_refused(f"Permissions Violation for Publish with Reply of {text}")
            self.log("error", f"Publish Violation - Reply {text}")
            return False
        self.parser.repeat_cleared = lasting and not self.verbose and not self._trace and (
            not self.pedantic or subject_kind(subject, length) == SUBJECT_LITERAL)
        return True

    cdef int refuse_pub(self, bytes subject) except -1:
        text = quote(subject)
        self.tell_refused(f"Permissions Violation for Publish to {text}")
        self.log("error", f"Publish Violation - Subject {text}")
        return False

    cdef void find_match(self, const PubArgs* args) noexcept:
        """The last match if it still holds, else the trie's. A stamp of 0 asks for the trie's."""
        if not match_is_valid(self.match, self.match_stamp):
            self.match = self.account.sublist.match(args.subject, args.subject_len)
            self.match_stamp = self.match.stamp

    cdef void foresee_publish(self, int step) noexcept:
        """It is about to be read, and likely to publish to its last subject again."""
        cdef Sub* sub
        if self.match_stamp == 0:
            return
        if step == 0:
            fetch_ahead(self.match, sizeof(MatchResult))
        elif not match_is_valid(self.match, self.match_stamp) or self.match.plain_count == 0:
            return
        elif step == 1:
            fetch_ahead(self.match.plain, sizeof(Sub*))
        else:
            sub = self.match.plain[0]
            if step == 2:
                fetch_ahead(sub, sizeof(Sub))
            elif step == 3:
                fetch_ahead(sub.sink, SINK_BYTES)
            elif not sub.closed and sub.sink != NULL:
                (<Sink> sub.sink).foresee(step - 4)

    cdef bint map_subject(self, const PubArgs* args, PubArgs* mapped) except -1:
        cdef Mappings mappings = self.account.mappings
        if not mappings.apply(args.subject, args.subject_len, &self.broker.random):
            return False
        mapped[0] = args[0]
        mapped.subject = mappings.text
        mapped.subject_len = <uint32_t> mappings.text_len
        if self._trace or self.broker.tracing is not None:
            self.show_mapping(args.subject[:args.subject_len], mapped.subject[:mapped.subject_len])
        return True

    cdef int show_mapping(self, bytes source, bytes to) except -1:
        shown = to.decode("utf-8", "replace")
        if self._trace:
            self.trace_line(f"<<- [MAPPING {source.decode('utf-8', 'replace')} -> {shown}]")
        if self.broker.tracing is not None:
            self.broker.tracing.mapped(shown)
        return 0

    cdef int begin_line(self, const PubArgs* args, const char* payload) except -1:
        """A publish line that is not the last one again; 0: it may not be published."""
        if self._trace:
            self.trace_payload("<<-", payload[:args.size], args.header_size)
        if self.account is None:
            return 0
        if self.match == NULL or self.match.subject_len != args.subject_len or memcmp(
                self.match.subject, args.subject, args.subject_len) != 0:
            self.match_stamp = 0
        self.find_match(args)
        if not self.clear_pub(args):
            return 0
        if self.verbose:
            self.send_ok()
        self.broker.last_line_id += 1
        self.line_id = self.broker.last_line_id
        return 1

    cdef int on_pub(self, const PubArgs* args, const char* payload) noexcept:
        cdef MatchResult* result
        cdef Msg message
        cdef PubArgs mapped
        cdef int taken = 0
        cdef Account account = self.account
        if args.header_size > 0 and not self.untraced and names_trace(
                payload, args.header_size, account is not None and account.traces_parents):
            return publish_traced(self, args, payload)
        self.in_msgs += 1
        self.in_bytes += args.size
        if not (args.repeat and self.parser.repeat_cleared):
            try:
                if account is not None and account.mappings is not None and self.map_subject(
                        args, &mapped):
                    args = &mapped
                if not self.begin_line(args, payload):
                    return self.answer()
                if args == &mapped:
                    # The same line again may go elsewhere.
                    self.parser.repeat_cleared = False
            except Exception as error:
                return self.give_up(error)
        self.find_match(args)
        result = self.match
        if result.plain_count or result.group_count:
            message.subject = args.subject
            message.subject_len = args.subject_len
            message.reply = args.reply
            message.reply_len = args.reply_len
            message.payload = payload
            message.owner = self.reading_from
            message.origin = <void*> self
            message.header_size = args.header_size
            message.size = args.size
            message.tail_len = message.plain_tail_len = 0
            message.line_id = self.line_id
            taken = route(account.sublist, result, &message, &self.broker.random)
            if taken:
                account.out_msgs += taken
                account.out_bytes += <int64_t> taken * args.size
                self.broker.out_msgs += taken
                self.broker.out_bytes += <int64_t> taken * args.size
        if taken == 0 and args.reply_len and self.no_responders:
            self.send_no_responders(args)
        if self.holds or self.closed:
            return self.answer()
        return GO_ON

    cdef void send_no_responders(self, const PubArgs* args) noexcept:
        self.tell_no_responders(args.subject[:args.subject_len], args.reply[:args.reply_len])
        # The account's last match may have been recycled for the reply's.
        self.match_stamp = 0

    # ---- subscribing

    cdef int on_sub(self, const char* subject, size_t subject_len, const char* queue,
                    size_t queue_len, const char* sid, size_t sid_len) except -1:
        cdef Sub* sub
        cdef size_t i, tokens = 1
        self.subs_changed += 1
        if self.account is None:
            return self.answer()
        if (queue_len == 5 and memcmp(queue, b"_sys_", 5) == 0) or (
                self.permissions is not None and not self.permissions.allows_subscribe(
                    subject, subject_len, queue, queue_len)):
            self.refuse_sub(subject[:subject_len], queue[:queue_len], sid[:sid_len])
            return self.answer()
        if self.broker.max_sub_tokens > 0:
            for i in range(subject_len):
                tokens += subject[i] == c'.'
            if tokens > <size_t> self.broker.max_sub_tokens:
                text = quote(subject[:subject_len])
                self.send_error(f"Permissions Violation for Subscription to {text}, too many tokens")
                self.log("error", f"Subscription Violation Too Many Tokens - Subject {text}, SID "
                         + sid[:sid_len].decode("utf-8", "replace"))
                return self.answer()
        if (self.max_subs and self.subscription_count >= self.max_subs):
            self.log("error", "maximum subscriptions exceeded")
            self.send_error("maximum subscriptions exceeded")
            return self.answer()
        if self.find_sid(sid, sid_len) == NULL:
            sub = sub_new(<void*> self, subject, subject_len, queue, queue_len, sid, sid_len)
            if sub == NULL or self.account.sublist.insert(sub):
                if sub != NULL:
                    sub_free(sub)
                self.send_error("Invalid Subject")
                return self.answer()
            if not self.add_sid(sub):
                self.account.sublist.remove(sub)
                sub_free(sub)
                self.close("Internal Client")
                return STOP
            self.account.subscriptions += 1
            if self.permissions is not None and self.permissions.needs_filter(
                    subject, subject_len, queue_len != 0):
                self.set_care(CARE_DENY, True)
        if self.verbose:
            self.send_ok()
        return self.answer()

    cdef refuse_sub(self, bytes subject, bytes queue, bytes sid):
        self.send_error(sub_violation(subject, queue))
        detail = f"Subject {quote(subject)}, " + (f"Queue: {quote(queue)}, " if queue else "")
        self.log("error", f"Subscription Violation - {detail}SID {sid.decode('utf-8', 'replace')}")

    cdef int on_unsub(self, const char* sid, size_t sid_len, int64_t maximum) except -1:
        cdef Sub** link = self.find_sid(sid, sid_len)
        self.subs_changed += 1
        if link != NULL:
            if maximum > 0 and maximum > link[0].delivered:
                link[0].max = maximum
            else:
                self.remove_sub(link[0])
        if self.verbose:
            self.send_ok()
        return self.answer()

    # ---- trace

    @property
    def trace(self):
        return self._trace

    @trace.setter
    def trace(self, bint on):
        self._trace = on
        self.parser.trace = on
        self.parser.line_len = 0
        self.parser.repeat_cleared = False
        self.set_care(CARE_TRACE, on)

    cdef trace_operation(self, int verb, bytes args):
        name = VERB_NAMES.get(verb)
        if name is None:
            return
        if verb == V_CONNECT:
            args = redact_secrets(args)
        text = args.decode("utf-8", "replace")
        self.trace_line(f"<<- [{name} {text}]" if args else f"<<- [{name}]")
