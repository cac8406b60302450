# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Who is at the other end, and whether it is still there.

Contract: identity for logs and monitoring; PING in the
reference's rhythm (the first soon after CONNECT, none while data comes, one an hour for the round
trip), the close of a stale connection, and of one that does not authenticate in time.
"""

cimport cython
from libc.stdint cimport int64_t

from server.core._subscriber cimport Subscriber

from server.core.connect import is_json_object

cdef int64_t HOUR_NS = 3600000000000


# Its attributes are needed while it is taken down.
@cython.no_gc_clear
cdef class Peer(Subscriber):
    cdef ask_hook(self, hook):
        try:
            return hook(self)
        except Exception as error:
            self.log("error", f"Internal error: {error!r}")
            self.close("Internal Client")
            return None

    cdef int give_up(self, error) noexcept:
        """Something of ours failed on its behalf: it is told goodbye, the others go on."""
        try:
            self.log("error", f"Internal error: {error!r}")
        except Exception:
            pass  # the log itself is what fails: there is nobody left to tell
        self.close("Internal Client")
        return 1

    cdef process_info(self, bytes json):
        # Ignored, but the reference closes on what is no JSON object.
        if not is_json_object(json):
            self.log("error", "INFO is not JSON")
            self.close("Protocol Violation")

    # ---- what comes ahead of the protocol

    def expect_preface(self, preface, int64_t within_ns):
        self.preface = preface
        self.preface_deadline_ns = self.broker.clock() + within_ns
        self.set_timer()

    def introduce(self, str ip, int port):
        self.ip, self.port = ip, port

    cdef size_t take_preface(self, bytes received) except? 0:
        """How many bytes it has; it is still awaited when more are needed."""
        try:
            found = self.preface(received)
        except ValueError as error:
            self.refuse_preface(str(error))
            return 0
        if found is None:
            return 0
        self.preface = None
        self.preface_deadline_ns = 0
        if self.auth_deadline_ns:
            # The time for CONNECT begins now.
            self.auth_deadline_ns = self.broker.clock() + self.broker.auth_timeout_ns
        self.set_timer()
        size, ip, port = found
        if ip:
            self.introduce(ip, port)
        return size

    def refuse_preface(self, str why):
        self.log("warn", f"Error reading PROXY protocol header from {self.ip}:{self.port}: {why}")
        self.close("Protocol Violation")

    # ---- time

    cdef void on_pong(self) noexcept:
        self.pings_out = 0
        if self.ping_sent_ns:
            self.rtt_ns = max(<int64_t> 1, self.broker.clock() - self.ping_sent_ns)

    cdef int64_t next_deadline(self) noexcept:
        cdef int64_t soonest = self.ping_at_ns
        if self.preface_deadline_ns:
            return self.preface_deadline_ns
        if self.auth_deadline_ns and (not soonest or self.auth_deadline_ns < soonest):
            soonest = self.auth_deadline_ns
        if self.write_deadline_ns and (not soonest or self.write_deadline_ns < soonest):
            soonest = self.write_deadline_ns
        return soonest

    cdef set_first_ping(self, int64_t now):
        cdef int64_t delay = min(self.broker.first_ping_ns, self.broker.ping_interval_ns)
        delay += <int64_t> (self.broker.random_fraction() * (delay / 5))
        self.ping_at_ns = now + delay
        self.set_timer()

    cdef void on_timer(self, int64_t now_ns) noexcept:
        if self.preface_deadline_ns:
            if now_ns >= self.preface_deadline_ns:
                self.refuse_preface("timeout reading PROXY protocol header")
            else:
                self.set_timer()
            return
        if self.auth_deadline_ns and now_ns >= self.auth_deadline_ns:
            self.auth_deadline_ns = 0
            self.log("debug", "Authentication Timeout")
            self.close("Authentication Timeout", "Authentication Timeout")
            return
        self.check_write_deadline(now_ns)
        if not self.closed and self.ping_at_ns and now_ns >= self.ping_at_ns:
            self.run_ping_timer(now_ns)
        self.set_timer()

    cdef run_ping_timer(self, int64_t now):
        cdef int64_t interval = self.broker.ping_interval_ns
        cdef bint needs_rtt = self.rtt_ns == 0 or self.ping_sent_ns == 0 or (
            now - self.ping_sent_ns > HOUR_NS)
        self.ping_at_ns = now + interval
        self.log("debug", "Client Ping Timer")
        if now - self.last_in_ns < interval and not needs_rtt:
            self.log("debug", "Delaying PING due to remote client data or ping "
                     f"{(now - self.last_in_ns + 500_000_000) // 1_000_000_000}s ago")
            return
        if self.pings_out + 1 > self.broker.ping_max:
            self.log("debug", "Stale Client Connection - Closing")
            self.broker.stale_connections += 1
            self.put(b"-ERR 'Stale Connection'\r\n", 25)
            self.finish("Stale Connection", True)
            return
        self.pings_out += 1
        self.ping_sent_ns = now
        if self._trace:
            self.trace_line("->> [PING]")
        self.put(b"PING\r\n", 6)

    cdef describe(self, options):
        """`v<version>:<lang>:<name>` without the parts that are missing."""
        parts = [f"v{options.version}" if options.version else "", options.lang, options.name]
        self.connect_label = ":".join(part for part in parts if part)

    # ---- what is shown

    @property
    def label(self):
        plain = f"{self.ip}:{self.port} - cid:{self.cid}"
        who = self.user_label or self.user
        account = f"{self.account.name}/{who}" if who and self.account is not None else ""
        parts = [f'"{each}"' for each in (self.connect_label, account) if each]
        return " - ".join([plain, *parts])

    @property
    def name(self):
        return self.options.name

    @property
    def lang(self):
        return self.options.lang

    @property
    def version(self):
        return self.options.version

    @property
    def last_activity_wall_ns(self):
        return self.broker.wall() - (self.broker.clock() - self.last_active_ns)
