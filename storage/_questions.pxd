# cython: language_level=3
from libc.stdint cimport uint64_t

from storage._filter cimport SubjectFilter
from storage._store cimport StreamStore


cdef object state_of(StreamStore store, bint deleted, uint64_t last_seq)
cdef object next_message(StreamStore store, SubjectFilter wanted, uint64_t seq)
cdef object deleted_of(StreamStore store, uint64_t last_seq)
cdef uint64_t count_last(StreamStore store, SubjectFilter wanted, uint64_t seq) except? 0
cdef int order_subjects(StreamStore store, SubjectFilter wanted) except -1
cdef list ordered(StreamStore store, SubjectFilter wanted, uint64_t offset, uint64_t limit)
cdef list multi_last(StreamStore store, SubjectFilter wanted, uint64_t up_to_seq, uint64_t results_max)
