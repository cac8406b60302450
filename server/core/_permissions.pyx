# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What a user may publish and subscribe to.

Contract: each list is a small trie whose match cache (bounded there) is the permission cache, shared
by all connections of the user; a decision that was made before costs one look-up and no Python
object. Deny beats allow. An entry for a queue (`subject queue`) speaks about that queue only.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp

from server.core._subject cimport (
    SUBJECT_INVALID, SUBJECT_WILDCARD, subject_is_subset, subject_kind, subjects_overlap,
)
from server.core._sublist cimport MatchResult, QueueGroup, Sub, Sublist, sub_free, sub_new


cdef class Rules:
    def __init__(self):
        self.entries = Sublist()

    def __dealloc__(self):
        cdef size_t i
        for i in range(self.count):
            self.entries.remove(self.subs[i])
            sub_free(self.subs[i])
        free(self.subs)

    cdef bint add(self, bytes subject, bytes queue) except -1:
        cdef Sub* sub
        cdef Sub** bigger = <Sub**> realloc(self.subs, (self.count + 1) * sizeof(Sub*))
        if bigger == NULL:
            raise MemoryError
        self.subs = bigger
        sub = sub_new(NULL, subject, len(subject), <const char*> queue if queue else NULL, len(queue), b"", 0)
        if sub == NULL:
            raise MemoryError
        if self.entries.insert(sub):
            sub_free(sub)
            return False
        self.subs[self.count] = sub
        self.count += 1
        return True

    cdef bint matches(self, const char* subject, size_t length) noexcept:
        return self.entries.match(subject, length).plain_count != 0

    cdef bint overlaps(self, const char* subject, size_t length) noexcept:
        cdef size_t i
        for i in range(self.count):
            if subjects_overlap(self.subs[i].subject, self.subs[i].subject_len, subject, length):
                return True
        return False


cdef bint names_queue(const MatchResult* result, const char* queue, size_t length) noexcept:
    """Is this queue among the entries' queues, by name or by their wildcards?"""
    cdef uint32_t i
    cdef const QueueGroup* group
    for i in range(result.group_count):
        group = &result.groups[i]
        if group.name_len == length and memcmp(group.name, queue, length) == 0:
            return True
        if subject_kind(group.name, group.name_len) == SUBJECT_WILDCARD and subject_kind(
                queue, length) != SUBJECT_INVALID and subject_is_subset(
                queue, length, group.name, group.name_len):
            return True
    return False


cdef Rules compile_rules(entries, bint with_queues):
    cdef Rules rules = Rules()
    for entry in entries:
        words = entry.split()
        if not words or len(words) > (2 if with_queues else 1):
            raise ValueError(f"not a subject{' or subject and queue' if with_queues else ''}: {entry!r}")
        if not rules.add(words[0].encode(), words[1].encode() if len(words) == 2 else b""):
            raise ValueError(f"not a subject: {entry!r}")
    return rules


cdef class Permissions:
    def __init__(self, pub_allow=None, pub_deny=None, sub_allow=None, sub_deny=None,
                 responses_max=0, responses_expires_ns=0):
        self.pub_allow = None if pub_allow is None else list(pub_allow)
        self.pub_deny = list(pub_deny or ())
        self.sub_allow = None if sub_allow is None else list(sub_allow)
        self.sub_deny = list(sub_deny or ())
        self.responses_max = responses_max
        self.responses_expires_ns = responses_expires_ns
        if pub_allow is not None:
            self.pub_allowed_rules = compile_rules(pub_allow, False)
        if self.pub_deny:
            self.pub_denied_rules = compile_rules(pub_deny, False)
        if sub_allow is not None:
            self.sub_allowed_rules = compile_rules(sub_allow, True)
        if self.sub_deny:
            self.sub_denied_rules = compile_rules(sub_deny, True)
        self.limits_publish = self.pub_allowed_rules is not None or self.pub_denied_rules is not None
        self.allows_responses = responses_max != 0

    def __dealloc__(self):
        free(self.decisions)

    cdef bint allows_matched(self, const MatchResult* match, Sublist owner) noexcept:
        cdef Decision* decision
        if self.decided_for is not owner:
            free(self.decisions)
            self.decisions = <Decision*> calloc(DECISIONS, sizeof(Decision))
            self.decided_for = owner
        if self.decisions == NULL or match.stamp == 0:
            return self.allows_publish(match.subject, match.subject_len)
        # Stamps count up, so that matches made one after another do not meet in one place.
        decision = &self.decisions[match.stamp & (DECISIONS - 1)]
        if decision.stamp != match.stamp or decision.match != match:
            decision.allowed = self.allows_publish(match.subject, match.subject_len)
            decision.match = match
            decision.stamp = match.stamp
        return decision.allowed

    cdef bint allows_publish(self, const char* subject, size_t length) noexcept:
        if self.pub_allowed_rules is not None and not self.pub_allowed_rules.matches(subject, length):
            return False
        return self.pub_denied_rules is None or not self.pub_denied_rules.matches(subject, length)

    cdef bint allows_subscribe(self, const char* subject, size_t length,
                               const char* queue, size_t queue_len) noexcept:
        cdef MatchResult* result
        cdef bint allowed = True
        if self.sub_allowed_rules is not None:
            result = self.sub_allowed_rules.entries.match(subject, length)
            allowed = result.plain_count != 0
            if queue_len and result.group_count:
                allowed = names_queue(result, queue, queue_len)
        if allowed and self.sub_denied_rules is not None:
            result = self.sub_denied_rules.entries.match(subject, length)
            allowed = result.plain_count == 0
            if allowed and queue_len and result.group_count:
                allowed = not names_queue(result, queue, queue_len)
        return allowed

    cdef bint needs_filter(self, const char* subject, size_t length, bint queued) noexcept:
        if self.sub_denied_rules is None:
            return False
        if not queued and subject_kind(subject, length) != SUBJECT_WILDCARD:
            return False
        if subject_kind(subject, length) == SUBJECT_INVALID:
            return False
        return self.sub_denied_rules.overlaps(subject, length)

    cdef bint denies_delivery(self, const char* subject, size_t length,
                              const char* queue, size_t queue_len) noexcept:
        cdef MatchResult* result = self.sub_denied_rules.entries.match(subject, length)
        if result.plain_count:
            return True
        return queue_len != 0 and result.group_count != 0 and names_queue(result, queue, queue_len)

    def may_publish(self, str subject):
        cdef bytes name = subject.encode()
        return bool(self.allows_publish(name, len(name)))

    def may_subscribe(self, str subject, str queue=""):
        cdef bytes name = subject.encode()
        cdef bytes group = queue.encode()
        return bool(self.allows_subscribe(name, len(name), group, len(group)))
