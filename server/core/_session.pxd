from libc.stdint cimport int64_t, uint64_t

from server.core._account cimport Account
from server.core._peer cimport Peer
from server.core._permissions cimport Permissions
from server.core._sublist cimport MatchResult
from server.wire._parser cimport Parser


cdef class Session(Peer):
    cdef Parser parser
    cdef public bytes nonce
    cdef readonly bint connected
    cdef public bint auth_required
    cdef bint accepting              # inside or between on_connect and accept
    cdef readonly int64_t max_payload
    cdef readonly int64_t max_subs
    cdef int64_t user_max_payload, user_max_subs
    cdef bint verbose
    cdef bint pedantic
    cdef bint no_responders
    cdef MatchResult* match          # of the last publish, in this account
    cdef uint64_t match_stamp

    cdef bind(self, Account account)
    cdef process_connect(self, bytes line)
    cdef process_missing_connect(self)
    cdef finish_connect(self)
    cdef send_connect_info(self)
    cdef put_permissions(self, Permissions permissions)
