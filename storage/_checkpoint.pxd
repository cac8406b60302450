# cython: language_level=3
from libc.stdint cimport uint64_t

from storage._block cimport BlockJob
from storage._blockhome cimport BlockHome

cdef enum:
    STATE_HEAD = 128

cdef BlockJob* checkpoint_job(BlockHome home, uint64_t segment, bint clean) except NULL
