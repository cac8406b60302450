# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""From a match to deliveries.

Contract: every plain subscription gets the message; of each queue group one member does, chosen at
random, the next one when that one would not take it. The result's arrays are pinned meanwhile, so a
delivery may subscribe, remove or publish.
"""

from libc.stdint cimport uint32_t, uint64_t

from server.core._sink cimport Msg, Sink
from server.core._sublist cimport MatchResult, QueueGroup, Sub, Sublist


cdef inline uint64_t next_random(uint64_t* state) noexcept nogil:
    """xorshift64*: enough to balance members, and a seed repeats a test."""
    cdef uint64_t x = state[0]
    x ^= x >> 12
    x ^= x << 25
    x ^= x >> 27
    state[0] = x
    return x * 0x2545F4914F6CDD1DULL


cdef inline int offer(Msg* message, Sub* sub) noexcept:
    if sub.closed or sub.sink == NULL:
        return 0
    return (<Sink> sub.sink).deliver(message, sub)


cdef inline int pick(QueueGroup* group, Msg* message, uint64_t* random) noexcept:
    cdef uint32_t at, tried
    if group.count == 0:
        return 0
    at = <uint32_t> ((<uint64_t> <uint32_t> (next_random(random) >> 32) * group.count) >> 32)
    for tried in range(group.count):
        if offer(message, group.members[at]):
            return 1
        at += 1
        if at == group.count:
            at = 0
    return 0


cdef int route(Sublist sublist, MatchResult* result, Msg* message, uint64_t* random) noexcept:
    cdef uint32_t i
    cdef int taken = 0
    sublist.pins += 1
    for i in range(result.plain_count):
        taken += offer(message, result.plain[i])
    for i in range(result.group_count):
        taken += pick(&result.groups[i], message, random)
    sublist.pins -= 1
    return taken


cdef int offer_traced(Msg* message, Sub* sub, object trace) noexcept:
    if sub.closed or sub.sink == NULL:
        return 0
    return (<Sink> sub.sink).deliver_traced(message, sub, trace)


cdef int route_traced(
    Sublist sublist, MatchResult* result, Msg* message, uint64_t* random, object trace
) noexcept:
    """As `route`; who gets the message, and why somebody does not, is told to the trace."""
    cdef uint32_t i, at, tried
    cdef QueueGroup* group
    cdef int taken = 0
    sublist.pins += 1
    for i in range(result.plain_count):
        taken += offer_traced(message, result.plain[i], trace)
    for i in range(result.group_count):
        group = &result.groups[i]
        at = <uint32_t> (next_random(random) >> 32) % max(group.count, 1u)
        for tried in range(group.count):
            if offer_traced(message, group.members[(at + tried) % group.count], trace):
                taken += 1
                break
    sublist.pins -= 1
    return taken
