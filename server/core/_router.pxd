from libc.stdint cimport uint64_t

from server.core._sink cimport Msg
from server.core._sublist cimport MatchResult, Sublist

# How many took it.
cdef int route_traced(
    Sublist sublist, MatchResult* result, Msg* message, uint64_t* random, object trace) noexcept
cdef int route(Sublist sublist, MatchResult* result, Msg* message, uint64_t* random) noexcept
