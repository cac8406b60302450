# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The files of blocks that were sealed since their stream's last checkpoint: that syncs them, nothing sooner.

Contract: only the block thread. The files stay open, so that a write that failed in between is told to the sync.
At most SEALED_MAX wait; then the oldest is synced when the next comes. What is removed needs no sync.
"""
from libc.stdlib cimport free, malloc

from storage._block cimport BlockJob, SealedFile, close_block_file, leave_open_files

cdef enum:
    SEALED_MAX = 32


cdef int keep_sealed(BlockFile* file, uint64_t group, uint64_t number, const FileCalls* calls) noexcept nogil:
    """Take over the open `file`, whose bytes are on their way to the disk from now on."""
    cdef OpenFiles* files = file.list
    cdef SealedFile** last = &files.sealed
    cdef SealedFile* kept = <SealedFile*>malloc(sizeof(SealedFile))
    if kept == NULL:
        return calls.sync(calls.context, file.fd)
    calls.start_writing(calls.context, file.fd, 0, 0)
    leave_open_files(file)
    kept.fd, kept.group, kept.number, kept.next = file.fd, group, number, NULL
    file.fd = -1
    while last[0] != NULL:
        last = &last[0].next
    last[0] = kept
    files.sealed_count += 1
    return end_one(files, &files.sealed, calls) if files.sealed_count > SEALED_MAX else 0


cdef int end_one(OpenFiles* files, SealedFile** at, const FileCalls* calls) noexcept nogil:
    """Sync and close the file at this place of the list. One that cannot be synced stays."""
    cdef int result = calls.sync(calls.context, at[0].fd)
    if result == 0:
        take_out(files, at, calls)
    return result


cdef void take_out(OpenFiles* files, SealedFile** at, const FileCalls* calls) noexcept nogil:
    cdef SealedFile* gone = at[0]
    at[0] = gone.next
    files.sealed_count -= 1
    calls.close(calls.context, gone.fd)
    free(gone)


cdef int sync_sealed(OpenFiles* files, uint64_t group, const FileCalls* calls) noexcept nogil:
    """Those of one stream, or of all."""
    cdef SealedFile** at = &files.sealed
    cdef int result = 0
    while at[0] != NULL and result == 0:
        if group == EVERY_GROUP or at[0].group == group:
            result = end_one(files, at, calls)
        else:
            at = &at[0].next
    return result


cdef void drop_sealed(OpenFiles* files, uint64_t group, uint64_t number, const FileCalls* calls) noexcept nogil:
    """They go, or the directory is closed: close them as they are."""
    cdef SealedFile** at = &files.sealed
    while at[0] != NULL:
        if (group == EVERY_GROUP or at[0].group == group) and (number == EVERY_BLOCK or at[0].number == number):
            take_out(files, at, calls)
        else:
            at = &at[0].next


cdef int run_remove(Job* job, const FileCalls* calls) noexcept nogil:
    """Close and remove a block's file; one that was never made is fine."""
    cdef BlockJob* work = <BlockJob*>job
    cdef int result
    if work.file != NULL:
        close_block_file(work.file, calls)
    drop_sealed(work.files, work.group, work.seq, calls)
    result = calls.unlink(calls.context, work.path)
    return 0 if result == -2 else result       # ENOENT
