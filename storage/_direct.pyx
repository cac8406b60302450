# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Large records go to their block alone; the log only says where they are (FORMAT.md, 4).

Contract: jobs of the log's thread, in front of the log bytes that speak of them. The block thread
may have the same file open: each writes what the other does not.
"""
from libc.stddef cimport size_t

from storage._block cimport BlockFile, make_block_file
from storage._commitlog cimport DirectJob, DirectPart
from storage._disk cimport Job
from storage._fs cimport FileCalls

cdef extern from "fcntl.h" nogil:
    int O_RDWR, O_CREAT

cdef enum:
    ENOENT = 2


cdef int write_parts(const DirectPart* parts, size_t count, bint durable, const FileCalls* calls) noexcept nogil:
    """Parts of one file: written and, when every ack is durable, synced."""
    cdef BlockFile* file = parts[0].file
    cdef int fd = calls.open(calls.context, file.path, O_RDWR | O_CREAT)
    cdef int result
    cdef size_t index
    if fd < 0:
        return fd
    result = make_block_file(file, fd, calls)
    for index in range(count):
        if result == 0:
            result = calls.write(calls.context, fd, parts[index].data, parts[index].size, parts[index].at)
    if result == 0 and durable:
        result = calls.sync(calls.context, fd)
    calls.close(calls.context, fd)
    if result == 0 and not file.named:
        result = calls.sync_directory(calls.context, file.directory)
        file.named = result == 0
    return result


cdef int write_direct(Job* job, const FileCalls* calls) noexcept nogil:
    cdef DirectJob* work = <DirectJob*>job
    cdef size_t first = 0
    cdef size_t end
    cdef int result
    while first < work.count:
        end = first + 1
        while end < work.count and work.parts[end].file == work.parts[first].file:
            end += 1
        result = write_parts(work.parts + first, end - first, work.durable, calls)
        if result < 0:
            return result
        first = end
    return 0


cdef int sync_paths(Job* job, const FileCalls* calls) noexcept nogil:
    """Sync files by name, and their names; one that was removed since needs it no more."""
    cdef DirectJob* work = <DirectJob*>job
    cdef size_t index
    cdef int fd, result
    for index in range(work.count):
        fd = calls.open(calls.context, work.parts[index].data, O_RDWR)
        if fd == -ENOENT:
            continue
        if fd < 0:
            return fd
        result = calls.sync(calls.context, fd)
        calls.close(calls.context, fd)
        if result < 0:
            return result
    return 0
