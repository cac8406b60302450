# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Secure erase in the commit log: the record's copy there is overwritten as well (FORMAT.md, 4).

Contract: jobs of the log's thread, queued when the erasure's own frame is durable. A crash in the
middle leaves a frame whose checksum does not hold; `Replay.mend` knows what it was to become. So
only the record's kind, body and checksum are written, and the frame's checksum: never a length.
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from storage._codec cimport (
    KIND_ERASED, RECORD_HEAD, erase_record, load32, load64, shape_of_record)
from storage._commitlog cimport (
    FRAME_HEAD, FRAME_LAST, FRAME_RECORDS, LogJob, ScrubJob, ScrubTarget, frame_checksum)
from storage._disk cimport Job
from storage._fs cimport FileCalls, ReadMap, map_whole, open_patiently, unmap

cdef extern from "fcntl.h" nogil:
    int O_RDWR
cdef extern from "string.h" nogil:
    void* memmem(const void* where, size_t room, const void* what, size_t size)
cdef enum:
    BLANK_SIZE = 1 << 20
    ENOMEM = 12


cdef uint64_t find_in_frame(const char* frame, uint64_t size, uint64_t seq) noexcept nogil:
    """Where in the frame the record of `seq` begins; 0: not here."""
    cdef uint64_t at = FRAME_HEAD
    cdef uint64_t end = FRAME_HEAD + size
    cdef uint32_t length
    while at < end:
        length = shape_of_record(frame + at, end - at)
        if length == 0:
            return 0
        if load64(frame + at + 8) == seq:
            return at
        at += length
    return 0


cdef int overwrite(const FileCalls* calls, int fd, const char* record, uint64_t at, const ScrubTarget* target) noexcept nogil:
    """Write the erased form of `record`, which lies at `at` of the file: all but its lengths."""
    cdef uint32_t size = load32(record)
    cdef char* fresh = <char*>malloc(size)
    cdef int result
    if fresh == NULL:
        return -ENOMEM
    memcpy(fresh, record, size)
    erase_record(fresh, target.seed, target.salt)
    result = calls.write(calls.context, fd, fresh + RECORD_HEAD, size - RECORD_HEAD, at + RECORD_HEAD)
    if result == 0:
        result = calls.write(calls.context, fd, fresh + 4, 1, at + 4)
    free(fresh)
    return result


cdef int scrub_frame(const FileCalls* calls, int fd, const char* data, uint64_t base, uint64_t frame_at,
                     uint64_t offset, uint64_t seed, const ScrubTarget* target) noexcept nogil:
    """Overwrite a record in a frame, then make the frame's checksum fit again."""
    cdef const char* frame = data + frame_at
    cdef uint32_t size = load32(frame)
    cdef char* fresh = <char*>malloc(<size_t>FRAME_HEAD + size)
    cdef uint64_t checksum
    cdef int result
    if fresh == NULL:
        return -ENOMEM
    memcpy(fresh, frame, <size_t>FRAME_HEAD + size)
    erase_record(fresh + offset, target.seed, target.salt)
    checksum = frame_checksum(fresh, size, seed + base + frame_at)
    free(fresh)
    result = overwrite(calls, fd, frame + offset, frame_at + offset, target)
    if result == 0:
        result = calls.write(calls.context, fd, <const char*>&checksum, 8, frame_at + 32)
    return result


cdef int scrub_one(const FileCalls* calls, int fd, const char* data, uint64_t size, const ScrubJob* job,
                   const ScrubTarget* target) noexcept nogil:
    cdef uint64_t at = target.start
    cdef uint64_t offset
    cdef const char* found
    if at == 0:
        if target.low >= size:
            return 0
        found = <const char*>memmem(data + target.low, size - target.low, target.head, sizeof(target.head))
        if found == NULL or shape_of_record(found, size - (found - data)) == 0:
            return 0                # the next segment's bytes are there already
        return overwrite(calls, fd, found, found - data, target)
    size = min(size, target.end)
    while at + FRAME_HEAD <= size:
        if data[at + 4] < FRAME_RECORDS or data[at + 4] > FRAME_LAST or at + FRAME_HEAD + load32(data + at) > size:
            return 0                # the end of what was written
        if data[at + 4] == FRAME_RECORDS and load64(data + at + 8) == target.group:
            offset = find_in_frame(data + at, load32(data + at), target.seq)
            if offset:
                return scrub_frame(calls, fd, data, job.base, at, offset, job.log_salt, target)
        at = (at + FRAME_HEAD + load32(data + at) + 7) & ~<uint64_t>7
    return 0


cdef int scrub_records(Job* job, const FileCalls* calls) noexcept nogil:
    """All targets in one file, then one sync."""
    cdef ScrubJob* work = <ScrubJob*>job
    cdef size_t index
    cdef int fd = open_patiently(calls, work.path, O_RDWR)
    cdef int result
    cdef ReadMap map
    if fd < 0:
        return fd
    result = map_whole(fd, &map)
    for index in range(work.count):
        if result == 0:
            result = scrub_one(calls, fd, map.data, map.size, work, &work.targets[index])
    unmap(&map)
    if result == 0:
        result = calls.sync(calls.context, fd)
    calls.close(calls.context, fd)
    return result


cdef int blank_tail(Job* job, const FileCalls* calls) noexcept nogil:
    """Zeros behind the end of a segment whose file another one had used before."""
    cdef LogJob* work = <LogJob*>job
    cdef uint64_t at = work.offset
    cdef uint64_t now
    cdef int result = 0
    cdef char* zeros = <char*>calloc(1, BLANK_SIZE)
    if zeros == NULL:
        return -ENOMEM
    while result == 0 and at < work.segment.size:
        now = min(<uint64_t>BLANK_SIZE, work.segment.size - at)
        result = calls.write(calls.context, work.segment.fd, zeros, now, at)
        at += now
    free(zeros)
    return result
