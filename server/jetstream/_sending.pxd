# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t

from server.jetstream._consumer cimport ConsumerCore


# Send while there is something, somebody and a budget. True: there may be more.
cdef bint pump(ConsumerCore core, int64_t now_ns, uint32_t* budget) except -1
