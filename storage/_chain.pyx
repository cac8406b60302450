# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Whether a file is the block that the table means, and not another that is whole in itself.

Contract: a record says that it holds, not that it belongs here. What tells is the chain: a header has the
checksum that the last record before it had, a footer that of its own last record, the table both; and how
often the file was rewritten. Each of these functions costs a few comparisons, whenever a file is mapped.
"""
from libc.stdint cimport uint32_t, uint64_t

from storage._block cimport (
    BLOCK_FRAMED, BLOCK_HEAD, BLOCK_SEALED, check_head, head_is_whole, load_trailer)
from storage._codec cimport KIND_ERASED, check_record, load32, load64
from storage._fs cimport FileMap, map_file


cdef bint head_fits(const char* data, size_t size, uint64_t group, uint64_t salt, const Block* block) noexcept nogil:
    """A file that was rewritten since the table was stored fits, an older one does not."""
    return (check_head(data, size, group, block.number) and load64(data + 48) == salt
            and load64(data + 40) == block.prior_checksum and load32(data + 12) >= block.generation)


cdef bint footer_fits(const Block* footer, const Block* block) noexcept nogil:
    """A rewrite keeps the checksum that the last record had, even if that record goes."""
    return footer.generation >= block.generation and footer.last_checksum == block.last_checksum


cdef bint end_fits(const Block* block, uint64_t salt) noexcept nogil:
    """Without a footer: the last record, if it is whole and as it was written, is the one that the table means."""
    cdef uint64_t end = min(<uint64_t>block.data_end, block.data_size)
    cdef uint32_t slot = block.slots
    cdef uint32_t at, size
    if block.last_checksum == 0 or block.generation or block.flags & BLOCK_FRAMED:
        return True         # its records were moved or encrypted since
    while slot and block.offsets[slot - 1] == 0:
        slot -= 1
    if slot == 0 or block.offsets[slot - 1] >= end:
        return True
    at = block.offsets[slot - 1]
    size = check_record(block.data + at, end - at, salt)
    if size == 0 or at + size != block.data_end or block.data[at + 4] == KIND_ERASED:
        return True
    return load64(block.data + at + size - 8) == block.last_checksum


cdef str why_refused(str path, uint64_t group, uint64_t salt, const Block* block):
    """In words, of a file that one of the above refused."""
    cdef FileMap file
    cdef Block footer
    cdef uint32_t index_start
    cdef uint32_t generation
    try:
        file = map_file(path)
    except FileNotFoundError:
        return "missing"
    if file.size < BLOCK_HEAD:
        return "too short for a block"
    if head_is_whole(file.data, file.size):
        if load64(file.data + 16) != group or load64(file.data + 48) != salt:
            return "a block of another stream"
        if not check_head(file.data, file.size, group, block.number):
            return f"block {load64(file.data + 24)} in the place of another"
    generation = load32(file.data + 12)
    if block.flags & BLOCK_SEALED and load_trailer(file.data, file.size, group, salt, &footer, &index_start):
        generation = footer.generation
    if generation < block.generation:
        return f"an older copy, from before it was rewritten ({generation} times, not {block.generation})"
    return "not the block that was written here: it does not follow the one before it, or ends otherwise"
