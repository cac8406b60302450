# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The checkpoint of a stream: its table, dead bits and index snapshot as bytes (FORMAT.md, 6).

Contract: checkpoints go to the disk in groups. A group of many is written first, then the whole file
system is synced, then all are put in place, and it is synced again: a few syncs for all of them instead
of five each. A failure is the whole group's. What a checkpoint replaces changes places with it and is
written anew by the next: no file is made or removed. Only a stream's first since the start removes it,
which may be in the clear when streams are to be encrypted from now on.
"""
import os

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from libc.stdint cimport uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, strdup, strlen

from storage.fs import syncfs_tells_errors

from storage._block cimport BLOCK_ROW_SIZE, JOB_CHECKPOINT, JOB_GROUP, Block, need_block_file, store_row, write_fresh
from storage._blocktable cimport dead_bytes, new_job
from storage._codec cimport store16, store32, store64, xxh64
from storage._disk cimport Job
from storage._fs cimport FileCalls, open_patiently
from storage._sealed cimport EVERY_GROUP, sync_sealed

cdef bint syncfs_is_told = syncfs_tells_errors(os.uname().release)

cdef enum:
    SYNCED_ALONE_MAX = 4    # more of them are synced together
    NAME_ROOM = 24          # for a file's name behind its directory's


cdef int sync_file_at(const FileCalls* calls, const char* directory, const char* name) noexcept nogil:
    cdef char* path = path_in(directory, name)
    cdef int fd
    cdef int result
    if path == NULL:
        return -12                              # ENOMEM
    fd = open_patiently(calls, path, 2)     # O_RDWR
    free(path)
    if fd < 0:
        return fd
    result = calls.sync(calls.context, fd)
    calls.close(calls.context, fd)
    return result


cdef char* path_in(const char* directory, const char* name) noexcept nogil:
    """NULL: no memory."""
    cdef size_t room = strlen(directory) + NAME_ROOM
    cdef char* path = <char*>malloc(room)
    if path != NULL:
        snprintf(path, room, "%s/%s", directory, name)
    return path


cdef int write_state(const BlockJob* work, const FileCalls* calls, const char* name, bint durable) noexcept nogil:
    cdef char* path = path_in(work.directory, name)
    cdef int result = -12
    if path != NULL:
        result = write_fresh(calls, path, work.data, work.size, durable)
    free(path)
    return result


cdef int put_in_place(const BlockJob* work, const FileCalls* calls, const char* fresh, const char* name) noexcept nogil:
    cdef char* source = path_in(work.directory, fresh)
    cdef char* target = path_in(work.directory, name)
    cdef int result = -12
    if source != NULL and target != NULL:
        if work.keeps_states:
            result = calls.exchange(calls.context, source, target)
        else:
            result = calls.rename(calls.context, source, target)
    free(source)
    free(target)
    return result


cdef int checkpoint_alone(BlockJob* work, const FileCalls* calls) noexcept nogil:
    """Sync the meta when it was written anew and the blocks, then replace both copies of the state."""
    cdef int result = sync_sealed(work.files, work.group, calls)
    if result == 0 and work.seq:
        result = sync_file_at(calls, work.directory, "meta")
    if result == 0 and work.file != NULL and (work.file.written or not work.file.made):
        result = need_block_file(work.file, calls)
        if result == 0:
            result = calls.sync(calls.context, work.file.fd)
    if result == 0:
        result = calls.sync_directory(calls.context, work.directory)
    if result < 0 or work.data == NULL:
        return result
    result = write_state(work, calls, "state.a.new", True)
    if result == 0:
        result = put_in_place(work, calls, "state.a.new", "state.a")
    if result == 0:
        result = write_state(work, calls, "state.b.new", True)
    if result == 0:
        result = put_in_place(work, calls, "state.b.new", "state.b")
    if result == 0:
        result = calls.sync_directory(calls.context, work.directory)
    return result


cdef int checkpoint_together(GroupJob* group, const FileCalls* calls) noexcept nogil:
    """The blocks and metas of all members are among what the first sync reaches."""
    cdef size_t index
    cdef int result = sync_sealed(group.members[0].files, EVERY_GROUP, calls)
    for index in range(group.count):
        if result == 0 and group.members[index].data != NULL:
            result = write_state(group.members[index], calls, "state.a.new", False)
            if result == 0:
                result = write_state(group.members[index], calls, "state.b.new", False)
    if result == 0:
        result = calls.sync_all(calls.context, group.job.directory)
    for index in range(group.count):
        if result == 0 and group.members[index].data != NULL:
            result = put_in_place(group.members[index], calls, "state.a.new", "state.a")
            if result == 0:
                result = put_in_place(group.members[index], calls, "state.b.new", "state.b")
    if result == 0:
        result = calls.sync_all(calls.context, group.job.directory)
    return result


cdef int run_group(Job* job, const FileCalls* calls) noexcept nogil:
    cdef GroupJob* group = <GroupJob*>job
    cdef size_t index
    cdef int result = 0
    if group.count > SYNCED_ALONE_MAX and syncfs_is_told:
        return checkpoint_together(group, calls)
    if group.names:
        result = calls.sync_directory(calls.context, group.job.directory)
    for index in range(group.count):
        if result == 0:
            result = checkpoint_alone(group.members[index], calls)
    return result


cdef GroupJob* group_job(str streams, size_t room) except NULL:
    """An empty group with room for so many; `names`: something else in that folder is to last, too."""
    cdef GroupJob* group = <GroupJob*>calloc(1, sizeof(GroupJob))
    if group == NULL:
        raise MemoryError
    group.job.kind = JOB_GROUP
    group.job.job.run = run_group
    group.job.directory = strdup(os.fsencode(streams))
    group.members = <BlockJob**>malloc((room or 1) * sizeof(BlockJob*))
    if group.members == NULL:
        raise MemoryError
    return group


cdef size_t add_checkpoint(GroupJob* group, BlockHome home, uint64_t segment, bint clean) except? 0:
    """What is true of `home` now; its size. Without a segment the log ends here, and what is blank needs no state."""
    cdef BlockJob* job = checkpoint_job(home, segment, clean)
    group.members[group.count] = job
    group.count += 1
    group.names = group.names or home.unnamed
    return job.size


cdef int end_group(GroupJob* group) except -1:
    """The group was run: each member's home is told; all of it is freed."""
    cdef size_t index
    cdef BlockHome home
    for index in range(group.count):
        group.members[index].job.result = group.job.job.result
        home = <BlockHome>group.members[index].owner
        home.job_done(group.members[index])
    free_group(group)
    return 0


cdef void free_group(GroupJob* group) noexcept:
    Py_XDECREF(group.job.keep)
    free(group.members)
    free(group.job.directory)
    free(group)


cdef BlockJob* checkpoint_job(BlockHome home, uint64_t segment, bint clean) except NULL:
    """What is true now, to be queued behind the batch that has just been closed."""
    cdef BlockJob* job = new_job(JOB_CHECKPOINT, home)
    cdef bytes state
    job.index = home.log_group.index
    job.segment = segment
    job.at = home.active.number if home.active != NULL else home.next_number
    job.seq = home.meta_writes
    if home.active != NULL:
        job.file = home.active.file
    if segment or home.shop.keeps_log or not home.is_blank():
        state = encode_state(home, clean)
        Py_INCREF(state)
        job.keep = <PyObject*>state
        job.data = PyBytes_AS_STRING(state)
        job.size = len(state)
    else:
        job.index = 0
    job.directory = strdup(os.fsencode(home.path))
    job.keeps_states = home.has_own_states
    home.checkpoint_running = True
    home.checkpoint_wanted = False
    return job


def state_context(group: int, index: int) -> bytes:
    """What an encrypted index snapshot is bound to."""
    return b"MARTSTA1" + group.to_bytes(8, "little") + index.to_bytes(8, "little")


cdef bytes encode_state(BlockHome home, bint clean):
    """The bytes of state.a and state.b (FORMAT.md, section 6)."""
    cdef bytearray out = bytearray(STATE_HEAD + home.block_count * BLOCK_ROW_SIZE)
    cdef char* at = out
    cdef size_t index
    cdef Block* block
    snapshot = home.snapshot_source(clean) if home.snapshot_source is not None else None
    home.has_snapshot = snapshot is not None
    if snapshot is not None and home.key is not None:
        snapshot = home.key.encrypt(snapshot, state_context(home.group, home.log_group.index))
    memcpy(at, b"MARTSTA1", 8)
    store16(at + 8, 2 if home.key is not None else 1)
    store64(at + 16, home.group)
    store64(at + 24, home.log_group.index)
    store64(at + 32, home.floor)
    store64(at + 40, home.last_seq)
    store64(at + 48, home.next_number)
    store64(at + 56, home.last_checksum)
    store32(at + 64, <uint32_t>home.block_count)
    store32(at + 68, clean)
    store64(at + 72, len(snapshot) if snapshot is not None else 0)
    store64(at + 80, home.active.number if home.active != NULL else 0)
    store32(at + 88, <uint32_t>len(home.lost))
    store32(at + 92, snapshot is not None)
    store32(at + 96, home.key.cipher if home.key is not None else 0)
    for index in range(home.block_count):
        store_row(at + STATE_HEAD + index * BLOCK_ROW_SIZE, home.blocks[index])
    for index in range(home.block_count):
        block = home.blocks[index]
        if block.dead_bits != NULL and block.dead:
            out += dead_bytes(block)
    for first, last in home.lost:
        out += first.to_bytes(8, "little") + last.to_bytes(8, "little")
    if snapshot is not None:
        out += snapshot
    out += xxh64(out, len(out), home.salt).to_bytes(8, "little")
    return bytes(out)
