# cython: language_level=3
from libc.stdint cimport uint32_t, uint64_t

from storage._block cimport Block
from storage._cipher cimport StreamKey
from storage._frames cimport FrameMemory
from storage._record cimport Record
from storage._workshop cimport JobOwner


# Where a scan found records that do not hold.
cdef struct Holes:
    uint32_t count
    uint32_t first_slot     # they were before what has this slot now
    uint32_t last_slot
    uint64_t first_seq      # the lowest sequence that may be missing
    bint bad_end            # the last ones do not hold


# The part of a BlockHome that reads what nothing indexes.
cdef class ScanningTable(JobOwner):
    cdef readonly uint64_t group
    cdef readonly uint64_t salt
    cdef readonly StreamKey key         # None: what is written is not encrypted
    cdef readonly list lost             # [first, last] ranges that are damaged
    cdef readonly list damage           # sentences about it
    cdef bint replaying
    cdef bint index_stale               # while replaying: the indexer could not be told what went
    cdef dict erased                    # sequence -> seed, of the erasures in the log; None when not replaying
    cdef int refuse(self, Block* block) except -1
    cdef int note_lost(self, uint64_t first, uint64_t last, str what) except -1
    cdef int scan_block(self, Block* block) except -1
    cdef int settle_slots(self, Block* block, Block* fresh, Holes* holes) except -1
    cdef int lose_slots(self, Block* block, Block* fresh, uint32_t first, uint32_t last) except -1
    cdef uint32_t torn_size(self, const char* at, uint64_t room, Record* out) except? 0
    cdef int scan_frames(self, Block* block, Block* fresh, Holes* holes) except -1
    cdef uint64_t index_frame(self, Block* block, Block* fresh, FrameMemory frame, uint64_t next_seq) except? 0


cdef void forget_dead(Block* block) noexcept
