# cython: language_level=3
from libc.stdint cimport uint64_t

from storage._blockhome cimport BlockHome
from storage._replay cimport Frame

cdef int load_state(BlockHome home) except -1
cdef int begin_anew(BlockHome home, uint64_t first_index) except -1
cdef int replay_frame(BlockHome home, const Frame* frame) except -1
cdef int end_replay(BlockHome home, bint durable, uint64_t damaged_position) except -1
