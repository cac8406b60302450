# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""One message block: its index, header, footer, and the jobs that change its file (FORMAT.md, 3).

Contract: the owner's thread changes `Block`; the block thread runs the `run_*` jobs, which see only
copies and memory that the owner keeps until the job is reaped. Jobs run in the order queued, so
a seal finds every byte of the block written.
"""
import os

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset, strdup
from cpython.ref cimport Py_XDECREF

from storage._codec cimport (
    KIND_ERASED, KIND_MESSAGE, KIND_SKIP, RECORD_HEAD, check_record, load16, load32, load64, store16, store32, store64, shape_of_record, xxh64)
from storage._fs cimport ReadMap, map_whole, open_patiently, unmap

cdef extern from "fcntl.h" nogil:
    int O_RDWR, O_CREAT

cdef enum:
    GATHERED_BYTES = 16 << 10   # records of one file are copied together up to this before they are written


# -- the index -------------------------------------------------------------------------------------

cdef int make_sparse(Block* block) except -1:
    """Turn a dense index into pairs of (distance, offset), leaving out the holes; dead bits move along."""
    cdef uint32_t slot, kept = 0
    cdef bint dead
    cdef uint32_t* deltas = <uint32_t*>malloc((block.slot_room or 16) * 4)
    if deltas == NULL:
        raise MemoryError
    for slot in range(block.slots):
        if block.offsets[slot]:
            block.offsets[kept] = block.offsets[slot]
            deltas[kept] = slot
            if slot >> 3 < block.dead_room:
                dead = block.dead_bits[slot >> 3] & (1 << (slot & 7)) != 0
                block.dead_bits[slot >> 3] &= <uint8_t>~(1 << (slot & 7))
                if dead:
                    block.dead_bits[kept >> 3] |= <uint8_t>(1 << (kept & 7))
            kept += 1
    block.deltas = deltas
    block.slots = kept
    block.flags |= BLOCK_SPARSE
    return 0


cdef int grow_index(Block* block, uint32_t slots) except -1:
    cdef uint32_t room = block.slot_room or 16
    cdef uint32_t* grown
    if slots <= block.slot_room:
        return 0
    while room < slots:
        room *= 2
    grown = <uint32_t*>realloc(block.offsets, <size_t>room * 4)
    if grown == NULL:
        raise MemoryError
    block.offsets = grown
    if block.deltas != NULL:
        grown = <uint32_t*>realloc(block.deltas, <size_t>room * 4)
        if grown == NULL:
            raise MemoryError
        block.deltas = grown
    block.slot_room = room
    return 0


cdef bint takes_slot(const Block* block, uint64_t seq) noexcept nogil:
    """Whether the index can hold `seq`."""
    return seq - block.first_seq <= <uint64_t>0xFFFFFFFFu


cdef int add_slot(Block* block, uint64_t seq, uint32_t offset) except -1:
    """Index the record at `offset`. -2: it does not fit this block's index, seal the block first."""
    cdef uint64_t distance = seq - block.first_seq
    cdef uint32_t slot
    block.index_owned = True
    if distance > 0xFFFFFFFFu:
        return -2
    if block.deltas == NULL and distance > <uint64_t>block.slots * 2 + 1024:
        make_sparse(block)
    if block.deltas != NULL:
        grow_index(block, block.slots + 1)
        block.deltas[block.slots] = <uint32_t>distance
        block.offsets[block.slots] = offset
        block.slots += 1
        return 0
    grow_index(block, <uint32_t>distance + 1)
    for slot in range(block.slots, <uint32_t>distance):
        block.offsets[slot] = 0
    block.offsets[distance] = offset
    block.slots = <uint32_t>distance + 1
    return 0


cdef int64_t slot_at_or_after(const Block* block, uint64_t seq) noexcept nogil:
    """The first slot whose sequence is at or above `seq`; `slots` when there is none."""
    cdef uint64_t distance
    cdef uint32_t low = 0
    cdef uint32_t high = block.slots
    cdef uint32_t middle
    if seq <= block.first_seq:
        return 0
    distance = seq - block.first_seq
    if block.deltas == NULL:
        return <int64_t>(distance if distance < block.slots else block.slots)
    while low < high:
        middle = (low + high) >> 1
        if block.deltas[middle] < distance:
            low = middle + 1
        else:
            high = middle
    return low


cdef int64_t find_slot(const Block* block, uint64_t seq) noexcept nogil:
    """The slot of `seq`, or -1. A slot may be a skip's."""
    cdef int64_t slot
    if seq < block.first_seq:
        return -1
    slot = slot_at_or_after(block, seq)
    if slot >= block.slots or block.offsets[slot] == 0:
        return -1
    if block.deltas != NULL and block.deltas[slot] != seq - block.first_seq:
        return -1
    return slot


cdef int begin_scan(const Block* block, Block* fresh) except -1:
    """An empty index of the same kind: sparse stays sparse, and dense has all its slots at once."""
    memset(fresh, 0, sizeof(Block))
    fresh.first_seq = block.first_seq
    fresh.slot_room = max(block.slots, <uint32_t>16)
    fresh.offsets = <uint32_t*>calloc(fresh.slot_room, 4)
    if fresh.offsets == NULL:
        raise MemoryError
    if block.flags & BLOCK_SPARSE:
        fresh.flags = BLOCK_SPARSE
        fresh.deltas = <uint32_t*>calloc(fresh.slot_room, 4)
        if fresh.deltas == NULL:
            raise MemoryError
    else:
        fresh.slots = block.slots
    return 0


cdef void fill_hole(Block* fresh, uint32_t hole, uint32_t count, uint32_t delta) noexcept:
    """Empty slots in front of `hole` for records that cannot be read: those behind keep their number."""
    cdef uint32_t slot
    if hole + count > fresh.slot_room or fresh.slots + count > fresh.slot_room:
        return
    memmove(fresh.offsets + hole + count, fresh.offsets + hole, (fresh.slots - hole) * sizeof(uint32_t))
    memmove(fresh.deltas + hole + count, fresh.deltas + hole, (fresh.slots - hole) * sizeof(uint32_t))
    for slot in range(hole, hole + count):
        fresh.offsets[slot] = 0
        fresh.deltas[slot] = delta + slot - hole
    fresh.slots += count


# -- rows, header, trailer -------------------------------------------------------------------------

cdef void store_row(char* out, const Block* block) noexcept nogil:
    memset(out, 0, BLOCK_ROW_SIZE)
    store64(out, block.number)
    store64(out + 8, block.first_seq)
    store64(out + 16, block.last_seq)
    store64(out + 24, <uint64_t>block.min_ts)
    store64(out + 32, <uint64_t>block.max_ts)
    store32(out + 40, block.data_end)
    store32(out + 44, block.capacity)
    store32(out + 48, block.slots)
    store32(out + 52, block.messages)
    store32(out + 56, block.dead)
    store32(out + 60, block.generation)
    store32(out + 64, block.flags & ~<uint32_t>(
        BLOCK_HAS_DEAD | BLOCK_REWRITING | BLOCK_SWAPPING | BLOCK_BAD_HEAD | BLOCK_STUCK) | (
        BLOCK_HAS_DEAD if block.dead_bits != NULL and block.dead else 0))
    store32(out + 68, block.skips)
    store64(out + 72, block.counted)
    store64(out + 80, block.last_checksum)
    store64(out + 88, block.prior_checksum)


cdef void load_row(const char* at, Block* out) noexcept nogil:
    memset(out, 0, sizeof(Block))
    out.number = load64(at)
    out.first_seq = load64(at + 8)
    out.last_seq = load64(at + 16)
    out.min_ts = <int64_t>load64(at + 24)
    out.max_ts = <int64_t>load64(at + 32)
    out.data_end = load32(at + 40)
    out.capacity = load32(at + 44)
    out.slots = load32(at + 48)
    out.messages = load32(at + 52)
    out.dead = load32(at + 56)
    out.generation = load32(at + 60)
    out.flags = load32(at + 64)
    out.skips = load32(at + 68)
    out.counted = load64(at + 72)
    out.last_checksum = load64(at + 80)
    out.prior_checksum = load64(at + 88)
    out.written = out.data_end


cdef void store_trailer(char* out, const Block* block, uint64_t group, uint32_t index_start,
                        uint32_t summary_start, uint32_t summary_size, bint complete,
                        uint64_t body_checksum, uint32_t frames, uint64_t salt) noexcept nogil:
    memset(out, 0, TRAILER_SIZE)
    memcpy(out, b"MARTFTR1", 8)
    store32(out + 8, (1 if block.flags & BLOCK_SPARSE else 0) | (2 if complete else 0) | (
        4 if block.flags & BLOCK_ENCRYPTED else 0) | 8)
    store32(out + 12, block.slots)
    store32(out + 16, block.messages)
    store32(out + 20, block.skips)
    store64(out + 24, block.first_seq)
    store64(out + 32, block.last_seq)
    store64(out + 40, <uint64_t>block.min_ts)
    store64(out + 48, <uint64_t>block.max_ts)
    store32(out + 56, block.data_end)
    store32(out + 60, index_start)
    store32(out + 64, summary_start)
    store32(out + 68, summary_size)
    store64(out + 72, block.last_checksum)
    store64(out + 80, block.counted)
    store64(out + 88, group)
    store64(out + 96, block.number)
    store32(out + 104, block.generation)
    store32(out + 108, frames)
    store64(out + 112, body_checksum)
    store64(out + 120, xxh64(out, 120, salt))


cdef int load_trailer(const char* data, size_t size, uint64_t group, uint64_t salt, Block* out,
                      uint32_t* index_start) noexcept nogil:
    """Read the footer of a sealed file into `out` (index not included). 0: none that holds."""
    cdef const char* at
    cdef uint64_t index_size
    if size < BLOCK_HEAD + TRAILER_SIZE:
        return 0
    at = data + size - TRAILER_SIZE
    if memcmp(at, b"MARTFTR1", 8) != 0 or xxh64(at, 120, salt) != load64(at + 120):
        return 0
    if load64(at + 88) != group:
        return 0
    index_start[0] = load32(at + 60)
    index_size = <uint64_t>load32(at + 12) * (8 if load32(at + 8) & 1 else 4)
    if index_start[0] < BLOCK_HEAD or index_start[0] + index_size > size - TRAILER_SIZE:
        return 0
    if xxh64(data + index_start[0], size - TRAILER_SIZE - index_start[0], salt) != load64(at + 112):
        return 0
    out.flags = BLOCK_SEALED | (BLOCK_SPARSE if load32(at + 8) & 1 else 0) | (
        BLOCK_FRAMED if load32(at + 108) else 0) | (BLOCK_ENCRYPTED if load32(at + 8) & 4 else 0)
    out.slots = load32(at + 12)
    out.messages = load32(at + 16)
    out.skips = load32(at + 20)
    out.first_seq = load64(at + 24)
    out.last_seq = load64(at + 32)
    out.min_ts = <int64_t>load64(at + 40)
    out.max_ts = <int64_t>load64(at + 48)
    out.data_end = load32(at + 56)
    out.last_checksum = load64(at + 72)
    out.counted = load64(at + 80)
    out.number = load64(at + 96)
    out.generation = load32(at + 104)
    out.frames = load32(at + 108)
    if out.frames > (size - TRAILER_SIZE - index_start[0]) >> 3:
        return 0
    return 1


cdef bint check_head(const char* data, size_t size, uint64_t group, uint64_t number) noexcept nogil:
    """Is this the header of that block?"""
    return (size >= BLOCK_HEAD and memcmp(data, b"MARTBLK1", 8) == 0 and 1 <= load16(data + 8) <= 2
            and load64(data + 16) == group and load64(data + 24) == number
            and xxh64(data, 56, 0) == load64(data + 56))


cdef bint head_is_whole(const char* data, size_t size) noexcept nogil:
    """Did somebody write this header, whosever it is?"""
    return size < BLOCK_HEAD or xxh64(data, 56, 0) == load64(data + 56)


cdef void forget_index(Block* block) noexcept:
    """It is read again when it is needed."""
    if block.index_owned:
        free(block.offsets)
        free(block.deltas)
        free(block.frame_table)
    block.index_owned = False
    block.offsets = block.deltas = block.frame_table = NULL


cdef void free_block(Block* block) noexcept:
    forget_index(block)
    free(block.dead_bits)
    Py_XDECREF(block.map)
    free(block)


# -- the file, seen from the block thread ----------------------------------------------------------

cdef BlockFile* new_block_file(str path, str directory, OpenFiles* files, Block* block,
                               uint64_t group, uint64_t salt, uint64_t prior_checksum) except NULL:
    cdef BlockFile* file = <BlockFile*>calloc(1, sizeof(BlockFile))
    cdef char* head
    if file == NULL:
        raise MemoryError
    file.fd = -1
    file.capacity = block.capacity
    file.path = strdup(os.fsencode(path))
    file.directory = strdup(os.fsencode(directory))
    file.list = files
    head = file.head
    memcpy(head, b"MARTBLK1", 8)
    store16(head + 8, 2 if block.flags & BLOCK_ENCRYPTED else 1)
    store32(head + 12, block.generation)
    store64(head + 16, group)
    store64(head + 24, block.number)
    store64(head + 32, block.first_seq)
    store64(head + 40, prior_checksum)
    store64(head + 48, salt)
    store64(head + 56, xxh64(head, 56, 0))
    return file


cdef void free_block_file(BlockFile* file) noexcept:
    if file != NULL:
        free(file.path)
        free(file.directory)
        free(file)


cdef void leave_open_files(BlockFile* file) noexcept nogil:
    cdef OpenFiles* files = file.list
    if file.newer != NULL:
        file.newer.older = file.older
    else:
        files.newest = file.older
    if file.older != NULL:
        file.older.newer = file.newer
    else:
        files.oldest = file.newer
    file.newer = file.older = NULL
    files.count -= 1


cdef void close_block_file(BlockFile* file, const FileCalls* calls) noexcept nogil:
    if file.fd >= 0:
        leave_open_files(file)
        calls.close(calls.context, file.fd)
        file.fd = -1


cdef int run_close(Job* job, const FileCalls* calls) noexcept nogil:
    close_block_file((<BlockJob*>job).file, calls)
    return 0


cdef int need_block_file(BlockFile* file, const FileCalls* calls) noexcept nogil:
    """Open the file, making it with all its room on the disk at the first time. Never anew: an empty one in
    the place of one that went would pass for it."""
    cdef OpenFiles* files = file.list
    cdef int result = 0
    if file.fd < 0:
        if files.count >= files.count_max:
            close_block_file(files.oldest, calls)
        file.fd = open_patiently(calls, file.path, O_RDWR if file.made else O_RDWR | O_CREAT)
        if file.fd < 0:
            return file.fd
        file.older = files.newest
        if files.newest != NULL:
            files.newest.newer = file
        else:
            files.oldest = file
        files.newest = file
        files.count += 1
    if not file.made:
        result = calls.allocate(calls.context, file.fd, file.capacity)
        if result == 0:
            result = calls.write(calls.context, file.fd, file.head, BLOCK_HEAD, 0)
        file.made = result == 0
    return result


cdef int write_through(BlockFile* file, const FileCalls* calls, const char* data, size_t size,
                       uint64_t at) noexcept nogil:
    cdef int result = need_block_file(file, calls)
    if result < 0:
        return result
    file.written = True
    return calls.write(calls.context, file.fd, data, size, at)


cdef int run_apply(Job* job, const FileCalls* calls) noexcept nogil:
    """Write records to their blocks: those that follow each other in a file at once."""
    cdef BlockJob* work = <BlockJob*>job
    cdef size_t index = 0
    cdef size_t end
    cdef int result = 0
    cdef Extent* extent
    while index < work.count and result == 0:
        extent = &work.extents[index]
        end = index + 1
        while end < work.count and work.extents[end].file == extent.file and (
                work.extents[end].at == work.extents[end - 1].at + work.extents[end - 1].size):
            end += 1
        result = write_extents(extent, end - index, calls)
        index = end
    return result


cdef int write_extents(const Extent* first, size_t count, const FileCalls* calls) noexcept nogil:
    """Of one file, each behind the one before."""
    cdef char[GATHERED_BYTES] gathered
    cdef uint64_t at = first.at
    cdef size_t size = 0
    cdef size_t index
    cdef int result = 0
    for index in range(count):
        if size + first[index].size > GATHERED_BYTES and size:
            result = write_through(first.file, calls, gathered, size, at)
            at, size = at + size, 0
        if result == 0 and (count == 1 or first[index].size > GATHERED_BYTES):
            result = write_through(first.file, calls, first[index].data, first[index].size, at)
            at += first[index].size
        elif result == 0:
            memcpy(gathered + size, first[index].data, first[index].size)
            size += first[index].size
        if result < 0:
            return result
    return write_through(first.file, calls, gathered, size, at) if size else 0


cdef uint64_t offset_of(const char* data, size_t size, uint64_t seq, uint64_t hint, size_t record_size) noexcept nogil:
    """Where the record of `seq` is now: at `hint`, or elsewhere since the block was rewritten; 0: gone."""
    cdef uint64_t at = hint
    cdef uint32_t length
    if at + record_size <= size and load64(data + at + 8) == seq and load32(data + at) == record_size:
        return at
    at = BLOCK_HEAD
    while at < size:
        length = shape_of_record(data + at, size - at)
        if length == 0:
            return hint if hint + record_size <= size else 0    # torn: write where it was
        if load64(data + at + 8) == seq:
            return at if length == record_size else 0
        if load64(data + at + 8) > seq:
            return 0
        at += length
    return 0


cdef int run_erase(Job* job, const FileCalls* calls) noexcept nogil:
    """Overwrite a record in place and wait until that is on the disk, or leave that to the next job."""
    cdef BlockJob* work = <BlockJob*>job
    cdef int fd = open_patiently(calls, work.path, O_RDWR)
    cdef int result = 0
    cdef uint64_t at = 0
    cdef ReadMap map
    if fd < 0:
        return fd
    result = map_whole(fd, &map)
    if result == 0:
        at = offset_of(map.data, map.size, work.seq, work.at, work.size)
        unmap(&map)
    if at:
        # Never the lengths: whatever a power cut leaves, a recovery finds the records behind this one.
        result = calls.write(calls.context, fd, work.data + RECORD_HEAD, work.size - RECORD_HEAD, at + RECORD_HEAD)
        if result == 0:
            result = calls.write(calls.context, fd, work.data + 4, 1, at + 4)
    if result == 0 and not work.sync_follows:
        result = calls.sync(calls.context, fd)
    calls.close(calls.context, fd)
    return result


cdef int write_fresh(const FileCalls* calls, const char* path, const char* data, size_t size,
                     bint durable) noexcept nogil:
    """A file with just this content, whatever it had; its name may not last yet."""
    cdef int fd = open_patiently(calls, path, O_RDWR | O_CREAT)
    cdef int result
    if fd < 0:
        return fd
    result = calls.write(calls.context, fd, data, size, 0)
    if result == 0:
        result = calls.truncate(calls.context, fd, size)
    if result == 0 and durable:
        result = calls.sync(calls.context, fd)
    calls.close(calls.context, fd)
    return result
