# cython: language_level=3
from libc.stdint cimport uint64_t

from storage._block cimport Block
from storage._writing cimport WritingTable


cdef int note_erasure(WritingTable home, const Block* block, uint64_t seq, uint64_t seed) except -1
cdef int finish_erasures(WritingTable home, Block* block) except -1
cdef int finish_all_erasures(WritingTable home) except -1
