from libc.stdint cimport int64_t, uint64_t

from server.core._sublist cimport MatchResult, Sub, Sublist


cdef class Rules:
    cdef Sublist entries
    cdef Sub** subs
    cdef size_t count
    cdef bint add(self, bytes subject, bytes queue) except -1
    # Does a plain entry match?
    cdef bint matches(self, const char* subject, size_t length) noexcept
    cdef bint overlaps(self, const char* subject, size_t length) noexcept


cdef enum:
    DECISIONS = 1024             # remembered at a time, once a user publishes


# What was decided about the subject of a match. The match's stamp says whether it still is the same.
cdef struct Decision:
    const MatchResult* match
    uint64_t stamp
    bint allowed


cdef class Permissions:
    cdef Decision* decisions
    cdef Sublist decided_for         # whose matches; kept, so that none of its addresses comes again
    cdef readonly object pub_allow, pub_deny, sub_allow, sub_deny
    cdef readonly int64_t responses_max, responses_expires_ns
    cdef Rules pub_allowed_rules, pub_denied_rules       # None: no such list
    cdef Rules sub_allowed_rules, sub_denied_rules
    cdef readonly bint limits_publish
    cdef readonly bint allows_responses

    # The same by the account's match for the subject, which stands for it without its bytes.
    cdef bint allows_matched(self, const MatchResult* match, Sublist owner) noexcept
    cdef bint allows_publish(self, const char* subject, size_t length) noexcept
    cdef bint allows_subscribe(self, const char* subject, size_t length,
                               const char* queue, size_t queue_len) noexcept
    # May a delivery to this subscription hit a deny entry, so that each must be looked at?
    cdef bint needs_filter(self, const char* subject, size_t length, bint queued) noexcept
    cdef bint denies_delivery(self, const char* subject, size_t length,
                              const char* queue, size_t queue_len) noexcept
