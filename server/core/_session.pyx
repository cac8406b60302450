# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A peer that signs in: what its CONNECT says, and what follows from account, user and limits.

Contract: `process_connect` asks the hook for a decision and holds the input until `accept` or
`reject`, which may come at once or later; only then the rest of the CONNECT's options count. A
second CONNECT begins anew, without the subscriptions. `bind` and `put_permissions` make every
remembered decision about publishing void.
"""

cimport cython
from libc.stdint cimport int64_t, uint32_t

from server.core._account cimport Account
from server.core._broker cimport Broker
from server.core._connection cimport HOLD_AUTH
from server.core._peer cimport Peer, smaller
from server.core._permissions cimport Permissions
from server.core._sublist cimport Sub
from server.core._subscriber cimport CARE_DENY, CARE_ECHO, CARE_REPLIES

from server.core.connect import decode_connect
from server.core.quote import quote, sub_violation


# Its attributes are needed while it is taken down.
@cython.no_gc_clear
cdef class Session(Peer):
    cdef bind(self, Account account):
        """Belong to an account from now on."""
        if self.account is account:
            return
        if self.account is not None:
            self.account.connections -= 1
        self.account = account
        self.match = NULL
        self.match_stamp = 0
        self.parser.repeat_cleared = False
        account.connections += 1
        account.total_connections += 1

    def set_limits(self):
        """Payload and subscription limits: the smallest of server, account and user."""
        cdef int64_t payload = self.user_max_payload
        cdef int64_t subs = self.user_max_subs
        if self.account is not None:
            payload = smaller(payload, self.account.max_payload)
            subs = smaller(subs, self.account.max_subscriptions)
        if self.broker.max_payload > 0:
            payload = smaller(payload, self.broker.max_payload)
        if self.broker.max_subs > 0:
            subs = smaller(subs, self.broker.max_subs)
        self.max_payload = payload
        self.max_subs = subs if subs > 0 else 0
        self.parser.max_control_line = self.broker.max_control_line
        self.parser.repeat_cleared = False

    def apply_limits(self):
        """The broker's limits have changed."""
        self.copy_limits()
        self.set_limits()
        if self.max_subs and self.subscription_count > <uint32_t> self.max_subs:
            self.close("Maximum Subscriptions Exceeded", "maximum subscriptions exceeded")

    # ---- CONNECT

    cdef process_connect(self, bytes line):
        cdef Broker broker = self.broker
        cdef bint first = not self.connected
        cdef int64_t now = broker.clock()
        self.auth_deadline_ns = 0
        self.last_active_ns = now
        self.rtt_ns = max(<int64_t> 1, now - self.start_ns)
        self.set_first_ping(now)
        options = decode_connect(line, self.options)
        if options is None:
            self.log("error", "CONNECT is not valid JSON")
            self.close("Protocol Violation")
            return
        self.options = options
        self.connected = True
        self.set_care(CARE_ECHO, not options.echo)
        self.verbose = options.verbose
        self.pedantic = options.pedantic
        self.head_sub = NULL
        self.headers = self.parser.headers = broker.headers and options.headers
        self.parser.repeat_cleared = False
        if not first:
            self.remove_all_subs()
        self.describe(options)
        self.accepting = True
        self.holds |= HOLD_AUTH
        self.ask_hook(broker.hooks.on_connect)
        if self.holds and not self.closed:
            self.carrier.want_read(self, False)

    cdef process_missing_connect(self):
        signed_in = self.ask_hook(self.broker.hooks.on_missing_connect)
        if self.closed or (signed_in and not self.parser.awaiting_auth):
            return
        self.log("error", "authentication error")
        self.close("Authentication Failure", "Authorization Violation")

    def accept(self, Account account, str user="", Permissions permissions=None,
               int64_t max_payload=-1, int64_t max_subs=-1, auth=None):
        if self.closed:
            return False
        if account.max_connections >= 0 and account is not self.account and (
                account.connections >= account.max_connections):
            self.log("error", "maximum account active connections exceeded")
            self.close("Maximum Account Connections Exceeded",
                       "maximum account active connections exceeded")
            return False
        self.bind(account)
        self.user = user
        self.auth = auth
        self.auth_required = False
        self.parser.awaiting_auth = False
        self.auth_deadline_ns = 0
        self.user_max_payload = max_payload
        self.user_max_subs = max_subs
        self.set_limits()
        self.put_permissions(permissions)
        self.set_timer()
        if self.accepting:
            self.accepting = False
            self.finish_connect()
        return not self.closed

    def postpone_auth_timeout(self, int64_t by_ns=0):
        if self.auth_deadline_ns:
            self.auth_deadline_ns = self.broker.clock() + self.broker.auth_timeout_ns + by_ns
            self.set_timer()

    cdef finish_connect(self):
        """What is checked behind a successful authentication."""
        options = self.options
        if options.account or options.new_account:
            self.log("error", "authentication error")
            self.close("Authentication Failure", "Authorization Violation")
            return
        if options.protocol not in (0, 1):
            self.close("Bad Client Protocol Version", "invalid client protocol")
            return
        self.no_responders = options.no_responders
        if self.no_responders and not self.headers:
            self.close("No Responders Requires Headers", "no responders requires headers support")
            return
        if self.verbose:
            self.send_ok()
        self.unhold(HOLD_AUTH)

    def reject(self, str error="Authorization Violation", str reason="Authentication Failure"):
        self.close(reason, error)

    cdef send_connect_info(self):
        info = self.ask_hook(self.broker.hooks.on_first_pong)
        if info is not None:
            self.send_info(info)

    # ---- permissions

    cdef put_permissions(self, Permissions permissions):
        self.permissions = permissions
        self.parser.repeat_cleared = False
        self.set_care(CARE_DENY, False)
        self.replies = {} if permissions is not None and permissions.allows_responses else None
        self.set_care(CARE_REPLIES, self.replies is not None)

    def set_permissions(self, Permissions permissions):
        cdef Sub* sub
        cdef Sub* following
        cdef uint32_t i
        self.put_permissions(permissions)
        if permissions is None:
            return
        for i in range(self.sid_buckets):
            sub = self.sid_table[i]
            while sub != NULL:
                following = sub.sid_next
                if not permissions.allows_subscribe(
                        sub.subject, sub.subject_len, sub.queue, sub.queue_len):
                    text = sub_violation(sub.subject[:sub.subject_len], sub.queue[:sub.queue_len])
                    sid = sub.sid[:sub.sid_len].decode("utf-8", "replace")
                    self.send_error(f'{text} (sid "{sid}")')
                    self.log("info", f"Removed sub {quote(sub.subject[:sub.subject_len])} (sid \"{sid}\") "
                             "due to config reload")
                    self.remove_sub(sub)
                elif permissions.needs_filter(sub.subject, sub.subject_len, sub.queue_len != 0):
                    self.set_care(CARE_DENY, True)
                sub = following
