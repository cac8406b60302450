# cython: language_level=3
"""What a message counts, told from its block's index and sums instead of from the record."""
from libc.stdint cimport uint32_t, uint64_t

from storage._block cimport BLOCK_CUT, BLOCK_ENCRYPTED, BLOCK_FRAMED, BLOCK_HEAD, Block
from storage._cipher cimport CIPHER_ROOM
from storage._codec cimport RECORD_FIXED


cdef inline uint64_t size_in_index(const Block* block, uint32_t slot) noexcept nogil:
    """The bytes between the record at `slot` and the one behind it; 0: more may lie there than this record.

    An index made anew from a damaged file leaves out what does not hold; a footer leaves out nothing.
    """
    cdef uint32_t end = block.data_end
    if slot + 1 < block.slots:
        end = block.offsets[slot + 1]
        if block.index_owned and block.deltas != NULL and block.deltas[slot + 1] != block.deltas[slot] + 1:
            return 0
    elif block.first_seq + (block.deltas[slot] if block.deltas != NULL else slot) != block.last_seq:
        return 0
    return end - block.offsets[slot] if end > block.offsets[slot] else 0


cdef inline uint64_t uncounted_in_each(const Block* block) noexcept nogil:
    """How much larger each record of the block is than what it counts; 0: not the same for all.

    Told from the block's sums: a record without headers is `RECORD_FIXED` - 30 larger, one with headers
    4 less, and one that is encrypted by itself, not with its frame, `CIPHER_ROOM` more. Where frames were
    made the dead may be left out and still be in the sums, which could pass for headers.
    """
    cdef uint64_t size = block.data_end - BLOCK_HEAD
    cdef uint64_t each = RECORD_FIXED - 30
    if block.skips or block.flags & BLOCK_CUT:
        return 0
    if block.flags & BLOCK_ENCRYPTED and not block.flags & BLOCK_FRAMED:
        each += CIPHER_ROOM
    if block.counted + block.messages * each == size:
        return each
    if not block.flags & BLOCK_FRAMED and block.counted + block.messages * (each - 4) == size:
        return each - 4
    return 0
