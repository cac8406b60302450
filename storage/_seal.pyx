# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""How a block ends: its footer, and the rewrite of a sealed block that is mostly dead (FORMAT.md, 3).

Contract: that of `_block`: jobs of the block thread, on copies that the owner keeps alive.
"""
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset, strlen

from storage._block cimport (
    BLOCK_ENCRYPTED, BLOCK_HEAD, BLOCK_SEALED, BLOCK_SPARSE, TRAILER_SIZE, Block, BlockFile, BlockJob, close_block_file,
    need_block_file, store_trailer)
from storage._codec cimport (
    KIND_ERASED, KIND_MESSAGE, KIND_SKIP, RECORD_HEAD, check_record, cipher_room, load16, load32, load64, store16, store32, store64,
    xxh64)
from storage._disk cimport Job
from storage._fs cimport FileCalls, ReadMap, map_patiently, open_patiently, unmap
from storage._sealed cimport keep_sealed
from storage._times cimport clear_times, note_time, times_size

cdef extern from "fcntl.h" nogil:
    int O_RDWR, O_CREAT
cdef enum:
    SUMMARY_SUBJECTS_MAX = 1024     # above it a block's footer has no subject summary
    SUMMARY_ENTRY = 22


# -- sealing ---------------------------------------------------------------------------------------

cdef struct SubjectEntry:
    const char* subject
    uint64_t hash
    uint64_t lowest
    uint64_t highest
    uint32_t messages
    uint16_t size


cdef SubjectEntry* find_subject(SubjectEntry* table, const char* subject, uint16_t size) noexcept nogil:
    """The entry of `subject` in an open table of twice SUBJECTS_MAX places, or the place for it."""
    cdef uint64_t hash = xxh64(subject, size, 0)
    cdef uint32_t mask = SUMMARY_SUBJECTS_MAX * 2 - 1
    cdef uint32_t at = <uint32_t>hash & mask
    while table[at].messages:
        if table[at].hash == hash and table[at].size == size and (
                memcmp(table[at].subject, subject, size) == 0):
            return &table[at]
        at = (at + 1) & mask
    table[at].hash = hash
    return &table[at]


cdef int64_t collect_subjects(const Block* block, const char* data, SubjectEntry* table) noexcept nogil:
    """Fill `table`; the bytes its summary needs, or -1 when there are too many subjects."""
    cdef uint32_t slot, found = 0
    cdef int64_t size = 0
    cdef const char* at
    cdef SubjectEntry* entry
    for slot in range(block.slots):
        at = data + block.offsets[slot]
        if block.offsets[slot] == 0 or at[4] != KIND_MESSAGE:
            continue
        if at[5]:
            return -1           # subjects stay out of the footer where they are encrypted
        entry = find_subject(table, at + RECORD_HEAD, load16(at + 6))
        if entry.messages == 0:
            found += 1
            if found > SUMMARY_SUBJECTS_MAX:
                return -1
            entry.subject = at + RECORD_HEAD
            entry.size = load16(at + 6)
            entry.lowest = load64(at + 8)
            size += SUMMARY_ENTRY + entry.size
        entry.messages += 1
        entry.highest = load64(at + 8)
    return size


cdef void store_summary(const SubjectEntry* table, char* out) noexcept nogil:
    cdef uint32_t at
    for at in range(SUMMARY_SUBJECTS_MAX * 2):
        if table[at].messages:
            store16(out, table[at].size)
            store32(out + 2, table[at].messages)
            store64(out + 6, table[at].lowest)
            store64(out + 14, table[at].highest)
            memcpy(out + SUMMARY_ENTRY, table[at].subject, table[at].size)
            out += SUMMARY_ENTRY + table[at].size


cdef void store_times(const Block* block, const char* data, char* out) noexcept nogil:
    cdef uint32_t slot
    clear_times(out, block.slots)
    for slot in range(block.slots):
        if block.offsets[slot]:
            note_time(out, slot, data + block.offsets[slot])


cdef int write_footer(const FileCalls* calls, int fd, const Block* block, const char* data,
                      uint64_t group, uint64_t salt) noexcept nogil:
    """Build the footer of a plain block from its data and write it behind them."""
    cdef SubjectEntry* table = <SubjectEntry*>calloc(SUMMARY_SUBJECTS_MAX * 2, sizeof(SubjectEntry))
    cdef int64_t summary_size
    cdef uint32_t index_start = (block.data_end + 7) & ~<uint32_t>7
    cdef size_t index_size = <size_t>block.slots * (8 if block.deltas != NULL else 4)
    cdef size_t size, times_at
    cdef char* out
    cdef int result = -12
    if table == NULL:
        return result
    summary_size = collect_subjects(block, data, table)
    times_at = index_size + (summary_size if summary_size > 0 else 0)
    size = times_at + times_size(block.slots) + TRAILER_SIZE
    out = <char*>malloc(size)
    if out != NULL:
        memcpy(out, block.offsets, <size_t>block.slots * 4)
        if block.deltas != NULL:
            memcpy(out + <size_t>block.slots * 4, block.deltas, <size_t>block.slots * 4)
        if summary_size > 0:
            store_summary(table, out + index_size)
        store_times(block, data, out + times_at)
        store_trailer(out + size - TRAILER_SIZE, block, group, index_start, <uint32_t>(index_start + index_size),
                      <uint32_t>(summary_size if summary_size > 0 else 0), summary_size >= 0,
                      xxh64(out, size - TRAILER_SIZE, salt), 0, salt)
        result = calls.write(calls.context, fd, out, size, index_start)
        if result == 0:
            result = calls.truncate(calls.context, fd, index_start + size)
    free(out)
    free(table)
    return result


cdef int run_seal(Job* job, const FileCalls* calls) noexcept nogil:
    """Footer and length; the file is read-only from then on, and lasts with the stream's next checkpoint."""
    cdef BlockJob* work = <BlockJob*>job
    cdef BlockFile* file = work.file
    cdef ReadMap map
    cdef int result = need_block_file(file, calls)
    if result == 0:
        result = map_patiently(file.fd, work.seal.data_end, &map)
    if result < 0:
        return result
    result = write_footer(calls, file.fd, &work.seal, map.data, work.group, work.salt)
    unmap(&map)
    if result == 0:
        result = keep_sealed(file, work.group, work.seal.number, calls)
    close_block_file(file, calls)
    return result


cdef int run_end(Job* job, const FileCalls* calls) noexcept nogil:
    """Sync and close a block that was cut. Its records stay: a replay may still have to read them. What was reserved
    behind them goes."""
    cdef BlockFile* file = (<BlockJob*>job).file
    cdef int result = need_block_file(file, calls)
    if result == 0:
        result = calls.truncate(calls.context, file.fd, (<BlockJob*>job).at)
    if result == 0:
        result = calls.sync(calls.context, file.fd)
    close_block_file(file, calls)
    return result


# -- compaction ------------------------------------------------------------------------------------

cdef int copy_live(const BlockJob* work, Block* fresh, char* out) noexcept nogil:
    """Copy the records that are neither dead nor below the floor (`work.at`) and index them."""
    cdef const Block* old = &work.seal
    cdef const char* at
    cdef uint32_t slot, size
    cdef uint64_t seq
    cdef int64_t ts_ns
    for slot in range(old.slots):
        if old.offsets[slot] == 0:
            continue
        at = work.data + old.offsets[slot]
        size = check_record(at, work.size - old.offsets[slot], work.salt)
        seq = load64(at + 8)
        if size == 0:
            return -74          # EBADMSG: damaged blocks are left as they are
        if at[4] == KIND_ERASED or (at[4] == KIND_MESSAGE and (
                seq < work.at or slot >> 3 < old.dead_room and old.dead_bits[slot >> 3] & (1 << (slot & 7)))):
            continue
        memcpy(out + fresh.data_end, at, size)
        fresh.offsets[fresh.slots] = fresh.data_end
        fresh.deltas[fresh.slots] = <uint32_t>(seq - old.first_seq)
        fresh.slots += 1
        fresh.data_end += size
        if at[4] == KIND_SKIP:
            fresh.skips += 1
            continue
        ts_ns = <int64_t>load64(at + 16)
        fresh.min_ts = ts_ns if fresh.messages == 0 or ts_ns < fresh.min_ts else fresh.min_ts
        fresh.max_ts = ts_ns if fresh.messages == 0 or ts_ns > fresh.max_ts else fresh.max_ts
        fresh.messages += 1
        fresh.counted += size - cipher_room(at) - 36 + 30 + (4 if load32(at + 24) else 0)
    return 0


cdef int write_rewritten(BlockJob* work, const FileCalls* calls, Block* fresh, char* out) noexcept nogil:
    """The new file beside the old one, whole and synced, then renamed over it. What fails before that does no harm:
    the old file stays, and `problem` says why."""
    cdef size_t length = strlen(work.path)
    cdef char* path = <char*>malloc(length + 5)
    cdef int fd, result
    if path == NULL:
        return -12
    memcpy(path, work.path, length)
    memcpy(path + length, b".new", 5)
    fd = open_patiently(calls, path, O_RDWR | O_CREAT)
    result = fd if fd < 0 else calls.truncate(calls.context, fd, 0)
    if result == 0:
        result = calls.write(calls.context, fd, out, fresh.data_end, 0)
    if result == 0:
        result = write_footer(calls, fd, fresh, out, work.group, work.salt)
    if result == 0:
        result = calls.sync(calls.context, fd)
    if fd >= 0:
        calls.close(calls.context, fd)
    if result == 0:
        result = calls.rename(calls.context, path, work.path)
    if result < 0:
        calls.unlink(calls.context, path)
        work.problem = -result
        result = 0
    else:
        result = calls.sync_directory(calls.context, work.directory)
        work.ticket = result == 0
    free(path)
    return result


cdef int run_compact(Job* job, const FileCalls* calls) noexcept nogil:
    """Rewrite a sealed block without its dead records. Damage in it stops the rewrite, not the store."""
    cdef BlockJob* work = <BlockJob*>job
    cdef Block* fresh = &work.seal
    cdef Block old = work.seal
    cdef char* out = <char*>malloc(old.data_end + 8)
    cdef uint32_t* index = <uint32_t*>malloc((<size_t>old.slots + 1) * 8)
    cdef Block target
    cdef int result = -12
    if out != NULL and index != NULL:
        memset(&target, 0, sizeof(Block))
        target.number, target.first_seq, target.last_seq = old.number, old.first_seq, old.last_seq
        target.generation, target.flags = old.generation + 1, BLOCK_SEALED | BLOCK_SPARSE | (
            old.flags & BLOCK_ENCRYPTED)
        target.data_end = BLOCK_HEAD
        target.last_checksum = old.last_checksum    # the chain is of what was written, whatever is left of it
        target.offsets, target.deltas = index, index + old.slots
        memcpy(out, work.data, BLOCK_HEAD)
        store32(out + 12, target.generation)
        store64(out + 56, xxh64(out, 56, 0))
        result = copy_live(work, &target, out)
        work.ticket = 0
        if result == 0:
            result = write_rewritten(work, calls, &target, out)
        elif result == -74:
            result = 0
        fresh[0] = target
        fresh.offsets = fresh.deltas = NULL
    free(out)
    free(index)
    return result
