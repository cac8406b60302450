# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A connection's bytes: what came in and is not consumed, what waits to go out, and its limits.

Contract: a `Carrier` gives bytes to `take` and moves those of the outbox; the protocol is a
subclass (`consume`). Bounds: unconsumed input is at most one control line and one payload, or one
read while the connection is on hold; output is at most `max_pending`, beyond it the connection is
a slow consumer and closes at the end of the turn, unflushed. A write that makes no end within the
write deadline closes it as well. Closing is final and happens once.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memmove, memset

from server.core._broker cimport Broker
from server.core._outbox cimport (
    IOVECS_MAX, Chunk, chunk_new, chunk_release, iovec, outbox_clear, outbox_own, outbox_pending,
    outbox_room, outbox_vectors, outbox_written,
)
from server.core._wheel cimport timer_cancel

cdef enum:
    EARLY_FLUSH_BYTES = 57344        # within one block, so that a busy outbox does not grow
    REST_ROUND = 256
    REST_MOVED_MAX = 4096
    STALL_MIN_NS = 2_000_000
    STALL_MAX_NS = 5_000_000
    STALL_PER_READ_NS = 10_000_000

cdef int64_t live = 0

# Reasons whose output is not worth a last flush.
cdef frozenset UNFLUSHED = frozenset({
    "Slow Consumer (Pending Bytes)", "Slow Consumer (Write Deadline)", "Read Error", "Write Error",
    "TLS Handshake Failure",
})


cdef class Carrier:
    cdef Py_ssize_t send(self, Connection connection, const iovec* vectors, int count) noexcept:
        return SENT_NEVER

    cdef void want_write(self, Connection connection, bint wanted) noexcept:
        pass

    cdef void want_read(self, Connection connection, bint wanted) noexcept:
        pass

    cdef void shut(self, Connection connection) noexcept:
        pass

    cdef size_t held(self, Connection connection) noexcept:
        return 0


cdef class PyCarrier(Carrier):
    """A transport of Python's: takes everything, and may say how much it still holds."""

    def __init__(self, write, close, pause, pending):
        self.write_call = write
        self.close_call = close
        self.pause_call = pause
        self.pending_call = pending

    cdef Py_ssize_t send(self, Connection connection, const iovec* vectors, int count) noexcept:
        cdef Py_ssize_t size = 0
        cdef int i
        cdef bytes joined
        cdef char* to
        for i in range(count):
            size += vectors[i].iov_len
        joined = (b"\0" * size)
        to = <char*> joined
        for i in range(count):
            memcpy(to, vectors[i].iov_base, vectors[i].iov_len)
            to += vectors[i].iov_len
        try:
            self.write_call(joined)
        except Exception:
            return SENT_NEVER
        return size

    cdef void want_read(self, Connection connection, bint wanted) noexcept:
        if self.pause_call is not None and self.paused == wanted:
            self.paused = not wanted
            self.pause_call(not wanted)

    cdef void shut(self, Connection connection) noexcept:
        if self.close_call is not None:
            self.close_call()

    cdef size_t held(self, Connection connection) noexcept:
        return self.pending_call() if self.pending_call is not None else 0


cdef void fire_timer(void* context, int64_t now_ns) noexcept:
    cdef Connection connection = <Connection> context
    connection.on_timer(now_ns)


# Its attributes are needed while it is taken down.
@cython.no_gc_clear
cdef class Connection(Sink):
    def __cinit__(self, *args, **kwargs):
        global live
        live += 1
        self.fd = -1
        self.reason = ""
        self.timer.fire = fire_timer
        self.timer.context = <void*> self

    def __dealloc__(self):
        global live
        live -= 1
        timer_cancel(&self.timer)
        outbox_clear(&self.out)
        if self.rest != NULL:
            chunk_release(self.rest)

    cdef size_t consume(self, const char* data, size_t size, Chunk* owner) noexcept:
        return size

    cdef void teardown(self) noexcept:
        pass

    # ---- input

    cdef void take(self, const char* data, size_t size) noexcept:
        """Bytes from the carrier, in memory that is the carrier's."""
        cdef size_t used
        if self.closed:
            return
        self.stalled_ns = 0
        if self.rest != NULL:
            if self.keep(data, size) and not self.holds:
                self.resume()
            return
        if self.holds:
            self.keep(data, size)
            return
        used = self.consume(data, size, NULL)
        self.broker.turn.settle()
        if used < size and not self.closed:
            self.keep(data + used, size - used)

    cdef bint keep(self, const char* data, size_t size) noexcept:
        """Put bytes behind the unconsumed ones."""
        cdef Chunk* bigger
        cdef size_t have = self.rest.size if self.rest != NULL else 0
        cdef size_t wanted = have + size
        # A full chunk grows as soon as more is wanted, also when nothing is put behind it yet.
        if self.rest == NULL or self.rest.references > 1 or self.rest.capacity < wanted or (
                self.rest.capacity < self.rest_wanted):
            if wanted < self.rest_wanted:
                wanted = self.rest_wanted
            elif have:
                wanted += wanted // 2
            bigger = chunk_new((wanted + REST_ROUND - 1) // REST_ROUND * REST_ROUND)
            if bigger == NULL:
                self.doom = "Internal Client"
                self.mark_dirty()
                return False
            if have:
                memcpy(bigger.data, self.rest.data, have)
                bigger.size = have
            if self.rest != NULL:
                chunk_release(self.rest)
            self.rest = bigger
        memcpy(self.rest.data + have, data, size)
        self.rest.size = have + size
        return True

    cdef void resume(self) noexcept:
        """Parse what was kept."""
        cdef Chunk* chunk = self.rest
        cdef size_t used
        if chunk == NULL or self.closed or self.holds:
            return
        self.rest = NULL
        used = self.consume(chunk.data, chunk.size, chunk)
        if used < chunk.size and not self.closed:
            if chunk.references == 1 and chunk.capacity >= self.rest_wanted and (
                    used == 0 or chunk.capacity <= REST_MOVED_MAX):
                if used:
                    memmove(chunk.data, chunk.data + used, chunk.size - used)
                    chunk.size -= used
                self.rest = chunk
                return
            self.keep(chunk.data + used, chunk.size - used)
        chunk_release(chunk)

    cdef void hold(self, uint8_t why) noexcept:
        if not self.holds:
            self.carrier.want_read(self, False)
        self.holds |= why

    cdef void unhold(self, uint8_t why) noexcept:
        """Go on, at once with what was kept."""
        if not self.holds & why:
            return
        self.holds &= <uint8_t> ~why
        if self.holds or self.closed:
            return
        self.resume()
        if not self.holds and not self.closed:
            self.carrier.want_read(self, True)

    cdef void stall(self, bint over_limit) noexcept:
        """A consumer of this producer is far behind: read no more for some milliseconds."""
        cdef int64_t pause_ns = STALL_MAX_NS if over_limit else STALL_MIN_NS
        if self.stalled_ns >= STALL_PER_READ_NS or self.holds & HOLD_STALL:
            return
        if self.stalled_ns + pause_ns > STALL_PER_READ_NS:
            pause_ns = STALL_PER_READ_NS - self.stalled_ns
        self.stalled_ns += pause_ns
        self.stall_until_ns = self.broker.clock() + pause_ns
        self.hold(HOLD_STALL)
        self.broker.stalled.append(self)

    def stall_over(self, int64_t now_ns, bint caught_up):
        if not self.closed:
            if not caught_up and now_ns < self.stall_until_ns:
                return False
            self.unhold(HOLD_STALL)
        return True

    # ---- output

    cdef void copy_limits(self) noexcept:
        self.max_pending = self.broker.max_pending
        self.stall_mark = self.max_pending // 4 * 3
        self.early_mark = min(<int64_t> EARLY_FLUSH_BYTES, self.stall_mark)

    cdef void mark_dirty(self) noexcept:
        if not self.dirty:
            self.dirty = True
            self.broker.turn.add_dirty(self)

    cdef bint put(self, const char* data, size_t size) noexcept:
        """Queue a copy of some bytes."""
        cdef char* to
        if self.closed:
            return False
        to = outbox_room(&self.out, size)
        if to == NULL:
            self.doom = "Slow Consumer (Pending Bytes)"
            self.mark_dirty()
            return False
        memcpy(to, data, size)
        self.out.end += size
        self.mark_dirty()
        if <int64_t> (self.out.end - self.out.start) > self.early_mark:
            self.after_put()
        return True

    cdef void after_put(self) noexcept:
        """Much is queued: write it if that is possible, else look at the limits."""
        cdef int64_t pending
        if not self.blocked:
            self.write_out()
        pending = <int64_t> (outbox_pending(&self.out) + self.carrier.held(self))
        if pending > self.max_pending:
            if self.doom is None:
                self.slow_pending()
        elif pending > self.stall_mark:
            self.set_above_mark(True)

    cdef slow_pending(self):
        self.doom = "Slow Consumer (Pending Bytes)"
        self.broker.slow_consumers_pending += 1
        self.on_slow(f"Slow Consumer Detected: MaxPending of {self.max_pending} Exceeded")
        self.mark_dirty()

    def on_slow(self, str text):
        """Subclasses count and log."""

    cdef set_above_mark(self, bint above):
        if self.above_mark and not above and self.broker.stalled:
            self.broker.release_stalls = True
        self.above_mark = above
        self.on_mark()

    def on_mark(self):
        """Subclasses may look at `above_mark`."""

    cdef void write_out(self) noexcept:
        cdef iovec[IOVECS_MAX] vectors
        cdef int count, i
        cdef Py_ssize_t sent
        cdef size_t offered
        if self.closed or self.carrier is None:
            return
        while outbox_pending(&self.out):
            count = outbox_vectors(&self.out, vectors, IOVECS_MAX)
            offered = 0
            for i in range(count):
                offered += vectors[i].iov_len
            sent = self.carrier.send(self, vectors, count)
            if sent == SENT_NEVER:
                if self.doom is None:
                    self.doom = "Write Error"
                self.mark_dirty()
                return
            if sent > 0:
                self.broker.wrote = True
                self.written += sent
                outbox_written(&self.out, sent)
            if sent < <Py_ssize_t> offered:
                self.set_blocked()
                break
        else:
            if self.blocked:
                self.blocked = False
                self.write_deadline_ns = 0
                self.carrier.want_write(self, False)
            if self.carrier.held(self) and not self.write_deadline_ns:
                self.arm_write_deadline()
        if self.above_mark and <int64_t> (
                outbox_pending(&self.out) + self.carrier.held(self)) <= self.stall_mark:
            self.set_above_mark(False)

    cdef void set_blocked(self) noexcept:
        if not self.blocked:
            self.blocked = True
            self.carrier.want_write(self, True)
            self.arm_write_deadline()
        elif self.written >= self.write_goal:
            self.arm_write_deadline()

    cdef void arm_write_deadline(self) noexcept:
        self.write_begin = self.written - <int64_t> self.carrier.held(self)
        self.write_goal = self.written + <int64_t> outbox_pending(&self.out)
        if self.broker.write_deadline_ns > 0:
            self.write_deadline_ns = self.broker.clock() + self.broker.write_deadline_ns
            self.set_timer()

    cdef check_write_deadline(self, int64_t now_ns):
        cdef size_t held, pending
        cdef int64_t gone            # out of this process
        if not self.write_deadline_ns or now_ns < self.write_deadline_ns:
            return
        held = self.carrier.held(self)
        if not self.blocked and held == 0:
            self.write_deadline_ns = 0
            return
        gone = self.written - <int64_t> held
        if gone >= self.write_goal:
            self.arm_write_deadline()
            return
        pending = outbox_pending(&self.out) + held
        self.broker.slow_consumers_deadline += 1
        moved = self.broker.write_retry and gone > self.write_begin
        self.on_slow(
            f"Slow Consumer {'State' if self.known_slow else 'Detected'}: WriteDeadline of {duration(self.broker.write_deadline_ns)} "
            f"exceeded with {1 + (pending >> 16)} chunks of {pending} total bytes.")
        if moved:
            self.known_slow = True
            self.arm_write_deadline()
            return
        self.finish("Slow Consumer (Write Deadline)", False)

    cdef void settle(self) noexcept:
        self.borrowing = False
        if self.closed or self.out.borrowed == 0:
            return
        if not self.blocked:
            self.write_out()
        if not outbox_own(&self.out):
            outbox_clear(&self.out)
            self.doom = "Slow Consumer (Pending Bytes)"
            self.mark_dirty()

    cdef void end_turn(self) noexcept:
        self.dirty = False
        if self.closed:
            return
        if self.doom is None and not self.blocked:
            self.write_out()
        if self.doom is None and <int64_t> (
                outbox_pending(&self.out) + self.carrier.held(self)) > self.early_mark:
            self.after_put()
        if self.doom is not None:
            self.finish(self.doom, True)

    # ---- time

    cdef int64_t next_deadline(self) noexcept:
        return self.write_deadline_ns

    cdef void set_timer(self) noexcept:
        cdef int64_t deadline
        if self.closed:
            return
        deadline = self.next_deadline()
        if deadline:
            self.broker.wheel.set(&self.timer, deadline)
        else:
            timer_cancel(&self.timer)

    cdef void on_timer(self, int64_t now_ns) noexcept:
        self.check_write_deadline(now_ns)
        self.set_timer()

    # ---- the end

    cdef void finish(self, str reason, bint flush_first) noexcept:
        cdef Carrier carrier
        if self.closed:
            return
        if flush_first and reason not in UNFLUSHED and self.carrier is not None:
            if not self.blocked:
                self.write_out()
        self.closed = True
        self.reason = reason
        self.stop_wall_ns = self.broker.wall()
        timer_cancel(&self.timer)
        self.broker.turn.departed.append(self)
        self.broker.turn.ask()
        if self.above_mark:
            self.set_above_mark(False)
        self.teardown()
        carrier = self.carrier
        if carrier is not None:
            carrier.shut(self)
        self.fd = -1
        outbox_clear(&self.out)
        if self.rest != NULL:
            chunk_release(self.rest)
            self.rest = NULL

    @property
    def pending_bytes(self):
        cdef size_t held = self.carrier.held(self) if self.carrier is not None and not self.closed else 0
        return outbox_pending(&self.out) + held


cdef str duration(int64_t ns):
    if ns < 1_000_000_000:
        return f"{ns / 1e6:g}ms"
    return f"{ns / 1e9:g}s"


def live_connections() -> int:
    return live
