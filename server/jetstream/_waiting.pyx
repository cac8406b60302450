# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Pull requests in the order in which they are served.

Contract. Served round-robin, one message each: who got one goes behind the others, or leaves when
that was its last. With `by_priority` a lower number comes first and only equals take turns. Bounded
by `most`; beyond it a request is refused.
"""


cdef class Waiting:
    def __init__(self, bytes reply not None, request not None, int64_t now_ns):
        self.reply = reply
        self.request = request
        self.messages = request.batch
        self.size = request.max_bytes
        self.no_wait = request.no_wait
        self.priority = request.priority
        self.received_ns = now_ns
        self.expires_ns = now_ns + request.expires if request.expires else 0
        self.heartbeat_ns = request.idle_heartbeat
        self.next_heartbeat_ns = now_ns + self.heartbeat_ns if self.heartbeat_ns > 0 else 0


cdef class WaitingQueue:
    def __init__(self, uint32_t most, bint by_priority=False):
        self.most = most
        self.by_priority = by_priority

    def __len__(self):
        return self.count

    def __iter__(self):
        cdef Waiting each = self.head
        while each is not None:
            yield each
            each = each.next

    cdef bint add(self, Waiting waiting):
        if self.count >= self.most:
            return False
        self.insert(waiting)
        return True

    cdef void insert(self, Waiting waiting):
        cdef Waiting before, after
        self.count += 1
        waiting.next = None
        if self.head is None:
            self.head = self.tail = waiting
            return
        if not self.by_priority or self.tail.priority <= waiting.priority:
            self.tail.next = waiting
            self.tail = waiting
            return
        before, after = None, self.head
        while after.priority <= waiting.priority:
            before, after = after, after.next
        waiting.next = after
        if before is None:
            self.head = waiting
        else:
            before.next = waiting

    cdef void cycle(self):
        cdef Waiting first = self.head
        if self.count < 2:
            return
        self.head = first.next
        first.next = None
        self.tail.next = first
        self.tail = first

    cdef void take(self):
        cdef Waiting first = self.head
        first.messages -= 1
        first.delivered += 1
        if first.messages > 0 and self.count == 1:
            return
        self.drop_head()
        if first.messages > 0:
            self.insert(first)

    cdef void drop_head(self):
        self.remove(None, self.head)

    cdef void remove(self, Waiting before, Waiting waiting):
        if before is None:
            self.head = waiting.next
        else:
            before.next = waiting.next
        if self.tail is waiting:
            self.tail = before
        waiting.next = None
        self.count -= 1
