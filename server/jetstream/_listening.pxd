# cython: language_level=3
"""Sinks of consumers in tries: put in, taken out, buried with the turn."""

from server.core._account cimport Account
from server.core._sink cimport Sink
from server.core._sublist cimport Sub, sub_free, sub_new


cdef inline Sub* new_sub(Sink sink, bytes subject) except NULL:
    cdef Sub* sub = sub_new(<void*>sink, subject, len(subject), NULL, 0, b"", 0)
    if sub == NULL:
        raise MemoryError
    return sub


cdef inline Sub* listen(Sink sink, Account account, bytes subject) except NULL:
    cdef Sub* sub = new_sub(sink, subject)
    if account.sublist.insert(sub):
        sub_free(sub)
        raise ValueError(f"not a subject: {subject!r}")
    account.subscriptions += 1
    return sub


cdef inline int unlisten(Account account, Sub* sub) except -1:
    account.sublist.remove(sub)
    account.subscriptions -= 1
    sub.closed = 1
    sub.sink = NULL
    account.broker.turn.bury(sub)
    return 0
