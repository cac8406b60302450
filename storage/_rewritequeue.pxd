# cython: language_level=3
from storage._workshop cimport Workshop

cdef int pump_rewrites(Workshop shop, dict homes, object begin, object pool) except -1
cdef int ask_for_checkpoints(Workshop shop, dict homes) except -1
