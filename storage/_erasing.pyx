# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A start finishes the erasures that the log tells of: block by block, with one sync for each.

Contract: `note_erasure` while the log is replayed. A block's erasures are finished before it goes or is cut, the
rest before the recovery's checkpoint, behind which the log no longer tells of them. What is overwritten already
is only synced: the process before may have been stopped in between. What needs a key that is not there is owed: such
a stream gets no checkpoint, and its part of the log is kept until a start with the key.
"""
import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp

from storage._block cimport BLOCK_FRAMED, BLOCK_UNREADABLE, find_slot
from storage._codec cimport RECORD_HEAD, check_record, erase_record, load32
from storage._frames cimport FrameMemory, frame_of, load_frame
from storage._fs cimport FileCalls, open_patiently
from storage._record cimport Record

cdef extern from "fcntl.h" nogil:
    int O_RDWR


cdef int note_erasure(WritingTable home, const Block* block, uint64_t seq, uint64_t seed) except -1:
    home.erasures.setdefault(block.number, {})[seq] = seed
    return 0


cdef int finish_all_erasures(WritingTable home) except -1:
    cdef size_t index
    if home.erasures:
        for index in range(home.block_count):
            finish_erasures(home, home.blocks[index])
    return 0


cdef int finish_erasures(WritingTable home, Block* block) except -1:
    """Random bytes over what was noted of this block."""
    seeds = home.erasures.pop(block.number, None)
    if seeds is None or block.flags & BLOCK_UNREADABLE or home.need_index(block) == 0:
        return 0
    home.flush_replayed()
    if block.flags & BLOCK_FRAMED:
        return erase_in_frames(home, block, seeds)
    return erase_in_place(home, block, seeds)


cdef int erase_in_place(WritingTable home, Block* block, dict seeds) except -1:
    cdef const FileCalls* calls = &home.shop.files.calls
    cdef bytes path = os.fsencode(home.block_path(block.number))
    cdef int fd = open_patiently(calls, path, O_RDWR)
    cdef int result = min(fd, 0)
    try:
        for seq, seed in seeds.items():
            if result == 0:
                result = overwrite(home, block, fd, seq, seed)
        if result == 0:
            result = calls.sync(calls.context, fd)
    finally:
        if fd >= 0:
            calls.close(calls.context, fd)
    if result < 0:
        raise OSError(-result, os.strerror(-result), os.fsdecode(path))
    return 0


cdef int overwrite(WritingTable home, Block* block, int fd, uint64_t seq, uint64_t seed) except 1:
    """One record of a plain block: all but its lengths, so that a recovery finds the records behind it."""
    cdef const FileCalls* calls = &home.shop.files.calls
    cdef int64_t slot = find_slot(block, seq)
    cdef uint32_t offset, size
    cdef int result
    cdef Record record
    cdef bytes content
    if slot < 0:
        return 0                        # it was dead when the file was rewritten, and left out
    offset = block.offsets[slot]
    if offset >= block.data_size and block.index_owned:
        home.let_go_map(block)          # mapped before the file grew
    if home.need_map(block) == 0 or offset >= block.data_size:
        return 0
    size = check_record(block.data + offset, block.data_size - offset, home.salt)
    if size == 0:
        size = home.torn_size(block.data + offset, block.data_size - offset, &record)
        if size == 0 or record.seq != seq:
            return 0
    content = PyBytes_FromStringAndSize(block.data + offset, size)
    erase_record(PyBytes_AS_STRING(content), seed, home.salt)
    if memcmp(PyBytes_AS_STRING(content), block.data + offset, size) == 0:
        return 0
    result = calls.write(calls.context, fd, PyBytes_AS_STRING(content) + RECORD_HEAD, size - RECORD_HEAD,
                         offset + RECORD_HEAD)
    return result or calls.write(calls.context, fd, PyBytes_AS_STRING(content) + 4, 1, offset + 4)


cdef int erase_in_frames(WritingTable home, Block* block, dict seeds) except -1:
    """The frames with these records are made anew, and the file once for all of them."""
    cdef FrameMemory frame
    cdef uint32_t offset
    cdef int64_t slot
    cdef int row
    frames = {}
    changed = set()
    for seq, seed in sorted(seeds.items()):
        slot = find_slot(block, seq)
        if slot < 0:
            continue                    # it was dead when the file was rewritten, and left out
        offset = block.offsets[slot]
        row = frame_of(block, offset)
        if row not in frames:
            frames[row] = None if row < 0 or home.need_map(block) == 0 else load_frame(
                <object>block.map, block.data, block.data_size, block.frame_table[2 * row], home.group, block.number,
                home.salt, home.key)
        frame = frames[row]
        if frame is None or offset >= frame.end:
            home.owes_erasures = home.owes_erasures or home.locked
            home.note_lost(1, 0, f"{home.block_path(block.number)}: a record to erase cannot be read")
        elif erase_in_memory(frame.data + (offset - frame.start), seed, home.salt):
            changed.add(row)
    if not changed:
        return 0
    return home.queue_splice(block, [(frames[row], block.data[block.frame_table[2 * <size_t>row] + 4],
                                      block.data[block.frame_table[2 * <size_t>row] + 5]) for row in sorted(changed)])


cdef bint erase_in_memory(char* record, uint64_t seed, uint64_t salt):
    """False: it was erased with this seed already."""
    cdef bytes before = PyBytes_FromStringAndSize(record, load32(record))
    erase_record(record, seed, salt)
    return memcmp(PyBytes_AS_STRING(before), record, len(before)) != 0
