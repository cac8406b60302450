# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The commit log: one file per data directory at a time, one sync for all streams (FORMAT.md, 4).

Contract:
- `extend` gives memory for payload bytes of a group's frame; following calls of the same group and
  kind grow the same frame. The memory is what goes to the file, and stays readable for as long as
  the caller keeps `chunk`.
- `submit` closes the batch and hands it to the disk thread; its ticket is done when `written_ticket`
  reaches it. In durable mode that means synced, else written.
- Segments are made, renamed and retired by the disk thread, in the order of the batches.
- `retire(n)` lets go of segments below n. Who may call it: the owner, when every group's
  `first_segment` is at least n.

Errors: a failure of the disk thread is latched there; `reap` raises it as OSError.
"""
import os
from collections import deque
from pathlib import Path

from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset, strdup

from storage._codec cimport load32, load64, store16, store32, store64, xxh64
from storage._fs cimport Files, map_file

cdef extern from "fcntl.h" nogil:
    int O_RDWR, O_CREAT

cdef enum:
    CHUNK_SIZE = 1 << 20
    POOL_MAX = 16

cdef char* pool[POOL_MAX]
cdef int pool_count = 0


cdef class Chunk:
    """Memory that batches are built in. Lives while a batch, or a reader's pin, refers to it."""

    def __cinit__(self, size_t size):
        global pool_count
        self.capacity = size
        if size == CHUNK_SIZE and pool_count:
            pool_count -= 1
            self.data = pool[pool_count]
        else:
            self.data = <char*>malloc(size)
        if self.data == NULL:
            raise MemoryError

    def __dealloc__(self):
        global pool_count
        if self.capacity == CHUNK_SIZE and pool_count < POOL_MAX and self.data != NULL:
            pool[pool_count] = self.data
            pool_count += 1
        else:
            free(self.data)


cdef class LogGroup:
    """A stream's or raft group's place in the log."""

    def __cinit__(self, uint64_t group, uint64_t index=0):
        self.group = group
        self.index = index

    def contained_up_to(self, index: int, segment: int) -> None:
        """All frames up to `index` are safe elsewhere; `segment` was the log's newest at that index."""
        self.first_segment = segment if self.index > <uint64_t>index else 0

    def resume(self, index: int) -> None:
        """After a replay: the next frame is `index` + 1."""
        self.index = index


cdef int write_piece(Job* job, const FileCalls* calls) noexcept nogil:
    cdef LogJob* piece = <LogJob*>job
    return calls.write(calls.context, piece.segment.fd, piece.data, piece.size, piece.offset)


cdef int write_nothing(Job* job, const FileCalls* calls) noexcept nogil:
    return 0


cdef int prepare_segment(Job* job, const FileCalls* calls) noexcept nogil:
    """Make the segment's file: a retired one renamed, or a new one with all its blocks reserved."""
    cdef Segment* segment = (<LogJob*>job).segment
    cdef int result = 0
    if segment.old_path != NULL:
        result = calls.rename(calls.context, segment.old_path, segment.path)
    if result < 0:
        return result
    segment.fd = calls.open(calls.context, segment.path, O_RDWR | O_CREAT)
    if segment.fd < 0:
        return segment.fd
    if segment.old_path == NULL:
        result = calls.allocate(calls.context, segment.fd, segment.size)
    if result == 0:
        result = calls.write(calls.context, segment.fd, segment.head, SEGMENT_HEAD, 0)
    if result == 0:
        result = calls.sync(calls.context, segment.fd)
    if result == 0:
        result = calls.sync_directory(calls.context, segment.directory)
    return result


cdef int retire_segment(Job* job, const FileCalls* calls) noexcept nogil:
    """Close the segment and set its file aside for reuse, or remove it."""
    cdef Segment* segment = (<LogJob*>job).segment
    calls.close(calls.context, segment.fd)
    segment.fd = -1
    if segment.old_path != NULL:
        return calls.rename(calls.context, segment.path, segment.old_path)
    return calls.unlink(calls.context, segment.path)


cdef void free_segment(Segment* segment) noexcept:
    free(segment.path)
    free(segment.old_path)
    free(segment.directory)
    free(segment)


cdef class CommitLog:
    """See the module. One owner thread."""

    def __cinit__(self, str path, DiskThread disk, bytes identity, uint64_t salt, uint64_t first_number,
                  list spare, uint64_t segment_size=64 << 20, int free_segments_max=4, bint durable=True):
        self.path = path
        self.disk = disk
        self.identity = identity
        self.salt = salt
        self.segment_size = segment_size
        self.free_segments_max = free_segments_max
        self.durable = durable
        self.spare = spare
        self.open_segments = {}
        self.segments_in_use = deque()
        self.pieces = []
        self.ticket = 1
        self.position = first_number << 32
        self.durable_position = self.position
        self.rotate()

    def __dealloc__(self):
        for address in self.open_segments.values():
            free_segment(<Segment*><uintptr_t>address)

    cdef void close_files(self) noexcept:
        """Give the segments' descriptors back, once the disk thread has ended."""
        cdef const FileCalls* calls = &self.disk.files.calls
        cdef Segment* segment
        for address in self.open_segments.values():
            segment = <Segment*><uintptr_t>address
            if segment.fd >= 0:
                calls.close(calls.context, segment.fd)
                segment.fd = -1

    def segment_path(self, number: int, suffix: str = "seg") -> str:
        return f"{self.path}/{number:016x}.{suffix}"

    cdef int rotate(self) except -1:
        """Begin the next segment; its file is prepared by the disk thread before the first write."""
        cdef uint64_t number = (self.position >> 32) + (1 if self.current != NULL else 0)
        cdef Segment* segment = <Segment*>calloc(1, sizeof(Segment))
        cdef LogJob* job
        segment.fd = -1
        segment.number = number
        segment.size = self.segment_size
        segment.path = strdup(os.fsencode(self.segment_path(number)))
        segment.directory = strdup(os.fsencode(self.path))
        if self.spare:
            segment.old_path = strdup(os.fsencode(self.spare.pop()))
        memcpy(segment.head, b"MARTLOG1", 8)
        store16(segment.head + 8, 1)
        store64(segment.head + 16, number)
        memcpy(segment.head + 24, <const char*>self.identity, 16)
        store64(segment.head + 40, self.segment_size)
        store64(segment.head + 56, xxh64(segment.head, 56, self.salt))
        if self.current != NULL and self.unsynced:
            self.sync()
        self.open_segments[number] = <uintptr_t>segment
        self.segments_in_use.append(number)
        self.current = segment
        self.position = (number << 32) + SEGMENT_HEAD
        job = <LogJob*>calloc(1, sizeof(LogJob))
        job.job.run = prepare_segment
        job.segment = segment
        self.disk.submit(&job.job)
        return 0

    cdef int end_segment(self) except -1:
        """Write the mark that tells a finished segment from a damaged one."""
        cdef LogJob* job = <LogJob*>calloc(1, sizeof(LogJob))
        job.segment = self.current
        job.offset = self.position & 0xFFFFFFFF
        job.data = job.mark
        job.size = FRAME_HEAD
        job.mark[4] = FRAME_MARK
        store64(job.mark + 16, self.current.number + 1)
        store64(job.mark + 24, self.durable_position)
        store64(job.mark + 32, frame_checksum(job.mark, 0, self.salt + self.position))
        job.job.run = write_piece
        if self.durable:
            job.job.sync_fd = &self.current.fd
        else:
            self.unsynced = True
        self.position += FRAME_HEAD
        job.end = self.position
        self.backlog_bytes += FRAME_HEAD
        self.disk.submit(&job.job)
        return 0

    cdef int start_chunk(self, size_t size) except -1:
        """Have a chunk with room for `size` bytes at the current position."""
        cdef size_t capacity = CHUNK_SIZE
        if size > self.segment_size - SEGMENT_HEAD - FRAME_HEAD:
            raise ValueError(f"{size} bytes do not fit into a log segment of {self.segment_size}")
        if self.chunk is not None and self.chunk.used > self.piece_start:
            self.send_piece(0)
        if (self.position & 0xFFFFFFFF) + size + FRAME_HEAD > self.segment_size:
            self.end_segment()
            self.rotate()
        if self.chunk is None or self.chunk.capacity - self.chunk.used < size:
            while capacity < size:
                capacity <<= 1
            self.chunk = Chunk(capacity)
            self.piece_start = 0
        return 0

    cdef char* extend(self, LogGroup group, int kind, size_t size) except NULL:
        """Memory for `size` more payload bytes of `group`; valid until the chunk is let go."""
        cdef Chunk chunk = self.chunk
        cdef char* at
        cdef size_t used
        if self.frame_group is group and self.frame_kind == kind:
            used = chunk.used - self.piece_start
            if chunk.capacity - chunk.used >= size + 8 and (
                    (self.position & 0xFFFFFFFF) + used + size + 8 + FRAME_HEAD <= self.segment_size):
                at = chunk.data + chunk.used
                chunk.used += size
                return at
        self.close_frame()
        used = 0 if chunk is None else chunk.used - self.piece_start
        if chunk is None or chunk.capacity - chunk.used < size + FRAME_HEAD + 8 or (
                (self.position & 0xFFFFFFFF) + used + size + 2 * FRAME_HEAD + 8 > self.segment_size):
            self.start_chunk(size + FRAME_HEAD + 8)
            chunk = self.chunk
        self.frame_at = chunk.used
        self.frame_group = group
        self.frame_kind = kind
        group.index += 1
        if group.first_segment == 0:
            group.first_segment = self.position >> 32
        at = chunk.data + chunk.used
        memset(at, 0, FRAME_HEAD)
        at[4] = <char>kind
        store64(at + 8, group.group)
        store64(at + 16, group.index)
        store64(at + 24, self.durable_position)
        chunk.used += FRAME_HEAD + size
        return at + FRAME_HEAD

    cdef int close_frame(self) except -1:
        """Finish the open frame, if any: size, padding, checksum."""
        cdef char* at
        cdef size_t size, padding
        cdef uint64_t position
        if self.frame_group is None:
            return 0
        at = self.chunk.data + self.frame_at
        size = self.chunk.used - self.frame_at - FRAME_HEAD
        position = self.position + (self.frame_at - self.piece_start)
        store32(at, <uint32_t>size)
        store64(at + 32, frame_checksum(at, size, self.salt + position))
        padding = (8 - (size & 7)) & 7
        memset(at + FRAME_HEAD + size, 0, padding)
        self.chunk.used += padding
        self.frame_group = None
        return 0

    cdef int send_piece(self, uint64_t ticket) except -1:
        """Hand what was built since the last piece to the disk thread."""
        cdef LogJob* job = <LogJob*>calloc(1, sizeof(LogJob))
        job.segment = self.current
        job.ticket = ticket
        job.size = self.chunk.used - self.piece_start if self.chunk is not None else 0
        job.data = self.chunk.data + self.piece_start if job.size else NULL
        job.offset = self.position & 0xFFFFFFFF
        job.job.run = write_piece if job.size else write_nothing
        if self.durable:
            job.job.sync_fd = &self.current.fd
        elif job.size:
            self.unsynced = True
        self.position += job.size
        job.end = self.position
        self.backlog_bytes += job.size
        if job.size:
            self.pieces.append(self.chunk)
            self.piece_start = self.chunk.used
        self.disk.submit(&job.job)
        return 0

    cdef uint64_t submit(self) except? 0:
        """Close the batch; its ticket. What the caller must keep alive is in `pieces` until written."""
        cdef uint64_t ticket = self.ticket
        self.close_frame()
        self.send_piece(ticket)
        self.ticket += 1
        return ticket

    cdef int sync(self) except -1:
        """In lazy mode: sync what was written so far."""
        cdef LogJob* job
        if not self.unsynced:
            return 0
        self.unsynced = False
        job = <LogJob*>calloc(1, sizeof(LogJob))
        job.segment = self.current
        job.job.run = write_nothing
        job.job.sync_fd = &self.current.fd
        job.end = self.position
        self.disk.submit(&job.job)
        return 0

    cdef int reap(self) except -1:
        """Take what the disk thread finished. Raises OSError when it is down."""
        cdef Job* head = self.disk.reap()
        cdef LogJob* job
        cdef int failed = 0
        while head != NULL:
            job = <LogJob*>head
            head = head.next
            self.backlog_bytes -= job.size
            if job.job.result < 0:
                failed = job.job.result
            else:
                if job.job.sync_fd != NULL and job.end > self.durable_position:
                    self.durable_position = job.end
                if job.ticket:
                    self.written_ticket = job.ticket
                if job.job.run == retire_segment:
                    if job.segment.old_path != NULL:
                        self.spare.append(os.fsdecode(job.segment.old_path))
                    del self.open_segments[job.segment.number]
                    free_segment(job.segment)
            free(job)
        if failed:
            raise OSError(-failed, os.strerror(-failed), self.path)
        return 0

    cdef list take_pieces(self):
        """The chunks of the batch just submitted; the caller keeps them until the blocks are written."""
        cdef list taken = self.pieces
        self.pieces = []
        return taken

    cdef int retire(self, uint64_t before) except -1:
        """Let go of all segments with a number below `before`, never of the current one."""
        cdef Segment* segment
        cdef LogJob* job
        while len(self.segments_in_use) > 1 and self.segments_in_use[0] < before:
            number = self.segments_in_use.popleft()
            segment = <Segment*><uintptr_t>self.open_segments[number]
            free(segment.old_path)
            segment.old_path = NULL
            if len(self.spare) < self.free_segments_max:
                segment.old_path = strdup(os.fsencode(self.segment_path(number, "free")))
            job = <LogJob*>calloc(1, sizeof(LogJob))
            job.job.run = retire_segment
            job.segment = segment
            self.disk.submit(&job.job)
        return 0

    @property
    def current_segment(self) -> int:
        return self.position >> 32


cdef uint64_t frame_checksum(const char* frame, size_t size, uint64_t seed) noexcept nogil:
    """Over the header's first 32 bytes and the payload, which the checksum field stands between."""
    return xxh64(frame + FRAME_HEAD, size, xxh64(frame, 32, seed))


cdef size_t check_frame(const char* at, uint64_t room, uint64_t seed) noexcept nogil:
    """The padded size of the frame at `at`, or 0 when there is none."""
    cdef uint64_t size
    if room < FRAME_HEAD:
        return 0
    size = load32(at)
    if at[4] < FRAME_RECORDS or at[4] > FRAME_GONE or size + FRAME_HEAD > room:
        return 0
    if frame_checksum(at, size, seed) != load64(at + 32):
        return 0
    return (size + FRAME_HEAD + 7) & ~<uint64_t>7


cdef class Replay:
    """All valid frames of a log directory, in order, and what is damaged. Keeps the files mapped."""

    def __cinit__(self, str path, bytes identity, uint64_t salt):
        cdef FileMap file
        self.damage = []
        self.paths = []
        self.maps = []
        found = []
        headless = set()
        for entry in sorted(Path(path).glob("*.seg")):
            file = map_file(str(entry))
            self.paths.append(str(entry))
            number = segment_number(file, identity, salt)
            if number is not None:
                found.append((number, file, str(entry)))
            elif not is_blank(file):
                headless.add(str(entry))
                found.append((int(entry.stem, 16), file, str(entry)))
        found.sort(key=lambda item: item[0])
        for number, file, name in found:
            self.maps.append(file)
            before = self.count
            self.walk(file, number, salt, name)
            # Without a header and without frames it is a segment that was being made.
            if name in headless and self.count > before:
                self.damage.append((name, 0, "segment header does not hold"))
            self.highest_segment = max(self.highest_segment, number)
        self.judge()

    def __dealloc__(self):
        free(self.frames)

    cdef int add(self, const char* at, uint64_t position) except -1:
        cdef Frame* frame
        if self.count == self.capacity:
            self.capacity = self.capacity * 2 or 1024
            self.frames = <Frame*>realloc(self.frames, self.capacity * sizeof(Frame))
            if self.frames == NULL:
                raise MemoryError
        frame = &self.frames[self.count]
        self.count += 1
        frame.size = load32(at)
        frame.kind = <uint8_t>at[4]
        frame.group = load64(at + 8)
        frame.index = load64(at + 16)
        frame.position = position
        frame.payload = at + FRAME_HEAD
        frame.after_damage = 0
        self.durable_position = max(self.durable_position, load64(at + 24))
        return 0

    cdef int walk(self, FileMap file, uint64_t number, uint64_t salt, str path) except -1:
        """Collect the frames of one segment; behind a bad one look for the next that holds."""
        cdef uint64_t at = SEGMENT_HEAD
        cdef uint64_t bad = 0
        cdef uint64_t base = number << 32
        cdef size_t size
        cdef bint ended = False
        cdef uint64_t segment_size = max(file.size, load64(file.data + 40) if file.size >= SEGMENT_HEAD else 0)
        while at + FRAME_HEAD <= file.size and not ended:
            size = check_frame(file.data + at, file.size - at, salt + base + at)
            if size:
                if bad:
                    self.damage.append((path, bad, base + bad))
                    bad = 0
                if file.data[at + 4] == FRAME_MARK:
                    ended = True
                    self.durable_position = max(self.durable_position, load64(file.data + at + 24))
                else:
                    self.add(file.data + at, base + at)
                at += size
            else:
                if not bad:
                    bad = at
                at += 8
        if bad:
            self.damage.append((path, bad, base + bad))
        elif not ended and at < min(segment_size, <uint64_t>1 << 32):
            self.damage.append((path, at, base + at))
        return 0

    def first_indexes(self) -> dict:
        """Of each group, the index of its first frame."""
        cdef size_t index
        out = {}
        for index in range(self.count):
            out.setdefault(self.frames[index].group, self.frames[index].index)
        return out

    def judge(self) -> None:
        """Tell damage of durable bytes from a torn end, and mark the frames behind either."""
        cdef size_t index
        cdef uint64_t first_bad = 0
        cdef uint64_t first_torn = 0
        proven = []
        for path, offset, what in self.damage:
            if isinstance(what, str):
                proven.append((path, offset, what))
            elif what < self.durable_position:
                proven.append((path, offset, "log frame does not hold"))
                first_bad = min(first_bad or what, what)
            else:
                first_torn = min(first_torn or what, what)
        for index in range(self.count):
            if first_torn and self.frames[index].position > first_torn:
                self.frames[index].after_damage = 1
            elif first_bad and self.frames[index].position > first_bad:
                self.frames[index].after_damage = 2
        self.damage = proven


def segment_number(FileMap file, bytes identity, uint64_t salt) -> int | None:
    """The number in a segment's header, None when the header is not this directory's."""
    cdef const char* at = file.data
    if file.size < SEGMENT_HEAD or at[:8] != b"MARTLOG1" or at[24:40] != identity:
        return None
    if load64(at + 56) != xxh64(at, 56, salt):
        return None
    return load64(at + 16)


cdef bint is_blank(FileMap file):
    """No header was ever written: the process stopped while it made this segment."""
    return file.size < SEGMENT_HEAD or file.data[:SEGMENT_HEAD] == b"\0" * SEGMENT_HEAD
