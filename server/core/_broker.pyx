# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What all connections of one server share: limits, counters, tables, time.

Contract: plain state. Limits are read where they apply, so a changed one holds from the next
operation on; see the stub for what each hook and number means.
"""

cimport cython
import json
import os

from libc.stdint cimport int64_t, uint64_t
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

from server.core.hooks import NoHooks


cdef inline int64_t read_clock(int which) noexcept nogil:
    cdef timespec now
    clock_gettime(which, &now)
    return <int64_t> now.tv_sec * 1000000000 + now.tv_nsec


# Its attributes are needed while it is taken down.
@cython.no_gc_clear
cdef class Broker:
    def __cinit__(self, *args, **kwargs):
        self.turn = Turn()
        self.wheel = Wheel()
        self.accounts = {}
        self.clients = {}
        self.stalled = []

    def __init__(self, hooks=None, clock_ns=None, wall_ns=None, seed=None):
        from server.core._account import Account

        self.hooks = NoHooks() if hooks is None else hooks
        self.clock_source = clock_ns
        self.wall_source = wall_ns
        if seed is None:
            seed = int.from_bytes(os.urandom(8), "little")
        self.random = <uint64_t> (seed & 0xFFFFFFFFFFFFFFFF) or 1
        self.sublist_cache = True
        self.set_default_limits()
        self.default_account = Account(self, "$G")
        self.system_account = Account(self, "$SYS")
        self.accounts["$G"] = self.default_account
        self.accounts["$SYS"] = self.system_account

    cdef set_default_limits(self):
        self.max_control_line = 4096
        self.max_payload = 1024 * 1024
        self.max_pending = 64 * 1024 * 1024
        self.max_connections = 65536
        self.ping_interval_ns = 120_000_000_000
        self.ping_max = 2
        self.first_ping_ns = 2_000_000_000
        self.write_deadline_ns = 10_000_000_000
        self.auth_timeout_ns = 2_000_000_000
        self.headers = True

    cdef int64_t clock(self) noexcept:
        if self.clock_source is None:
            return read_clock(CLOCK_MONOTONIC)
        return self.clock_source()

    cdef int64_t wall(self) noexcept:
        if self.wall_source is None:
            return read_clock(CLOCK_REALTIME)
        return self.wall_source()

    cdef double random_fraction(self) noexcept:
        cdef uint64_t x = self.random
        x ^= x << 13
        x ^= x >> 7
        x ^= x << 17
        self.random = x
        return <double> (x >> 11) / <double> (1ULL << 53)

    def account(self, str name):
        from server.core._account import Account

        found = self.accounts.get(name)
        if found is None:
            found = self.accounts[name] = Account(self, name)
        return found

    def forget_account(self, str name):
        gone = self.accounts.pop(name, None)
        if gone is not None:
            gone.close()

    def wall_ns(self):
        return self.wall()

    def chance(self):
        return self.random_fraction()

    def now_ns(self):
        return self.clock()

    def info_json(self, client):
        fields = {
            "server_id": "MARTLET", "server_name": "MARTLET", "version": "2.14.0", "proto": 1,
            "go": "", "host": "127.0.0.1", "port": client.server_port,
            "headers": bool(self.headers), "max_payload": client.max_payload,
            "client_id": client.cid, "client_ip": client.ip,
        }
        if client.auth_required:
            fields["auth_required"] = True
        return json.dumps(fields, separators=(",", ":")).encode()

    def tick(self, int64_t now_ns):
        self.wheel.advance(now_ns)
        if self.stalled:
            self.run_stalls(now_ns)

    cdef void run_stalls(self, int64_t now_ns) noexcept:
        """Let producers read on whose stall is over, or all when a consumer caught up."""
        cdef list waiting = self.stalled
        cdef bint everyone = self.release_stalls
        self.release_stalls = False
        self.stalled = []
        for connection in waiting:
            if not connection.stall_over(now_ns, everyone):
                self.stalled.append(connection)

    def apply_limits(self):
        for client in list(self.clients.values()):
            client.apply_limits()

    def close_all(self, str reason="Server Shutdown"):
        for client in list(self.clients.values()):
            client.close(reason)
        self.turn.run()
