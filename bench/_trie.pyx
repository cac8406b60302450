# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Loops over the subject trie without Python objects, for bench/trie.py."""

from libc.stdint cimport uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc

from server.core._sublist cimport MatchResult, Sub, Sublist, sub_free, sub_new


cdef class Herd:
    """Subscriptions `pattern % n` for n in a range, as a client would hold them."""

    cdef Sub** subs
    cdef size_t count

    def __cinit__(self, bytes pattern, size_t count, size_t distinct):
        cdef char subject[256]
        cdef char sid[24]
        cdef size_t at
        cdef int length, sid_len
        cdef const char* form = pattern
        self.subs = <Sub**> calloc(count, sizeof(Sub*))
        self.count = count
        for at in range(count):
            length = snprintf(subject, 256, form, <int> (at % distinct))
            sid_len = snprintf(sid, 24, b"%d", <int> at)
            self.subs[at] = sub_new(NULL, subject, length, NULL, 0, sid, sid_len)

    def __dealloc__(self):
        cdef size_t at
        for at in range(self.count):
            sub_free(self.subs[at])
        free(self.subs)

    def insert(self, Sublist trie):
        cdef size_t at
        for at in range(self.count):
            trie.insert(self.subs[at])

    def remove(self, Sublist trie):
        cdef size_t at
        for at in range(self.count):
            trie.remove(self.subs[at])

    def churn(self, Sublist trie, size_t first, size_t rounds):
        """Removes and inserts one after the other."""
        cdef size_t at
        for at in range(first, first + rounds):
            trie.remove(self.subs[at % self.count])
            trie.insert(self.subs[at % self.count])


def match(Sublist trie, bytes pattern, size_t distinct, size_t rounds, size_t stride):
    """Matches `rounds` subjects; returns how many members were found. Call once more with a
    trie that is empty to learn what making the subjects costs."""
    cdef char* subjects = <char*> malloc(distinct * 64)
    cdef size_t* lengths = <size_t*> malloc(distinct * sizeof(size_t))
    cdef const char* form = pattern
    cdef size_t at, n = 0
    cdef uint64_t found = 0
    cdef MatchResult* result
    for at in range(distinct):
        lengths[at] = snprintf(subjects + at * 64, 64, form, <int> (at * stride))
    yield
    for at in range(rounds):
        result = trie.match(subjects + n * 64, lengths[n])
        found += result.plain_count + result.group_count
        n += 1
        if n == distinct:
            n = 0
    free(subjects)
    free(lengths)
    yield found
