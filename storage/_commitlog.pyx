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

cimport cython
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcpy, memmove, memset, strdup

from storage._codec cimport store16, store32, store64, xxh64
from storage._fs cimport open_patiently
from storage._scrub cimport blank_tail, scrub_records

cdef extern from "fcntl.h" nogil:
    int O_RDWR, O_CREAT

cdef enum:
    CHUNK_SIZE = 1 << 20
    POOL_MAX = 16
    SMALL_BATCH = 16 << 10
    LARGE_PIECE = 256 << 10
    ZEROED_AHEAD = 256 << 10
    BEGUN_STEP = 8 << 20
    PAGE = 4096
    PLACE_STEP = 1 << 20   # distance of the places that a group remembers

cdef char[ZEROED_AHEAD] zeros
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

    def __dealloc__(self):
        free(self.places)

    cdef int note_place(self, uint64_t seq, CommitLog log) except -1:
        """`seq` is the first of the newest frame. Where room is short, places that no file has are let go."""
        cdef size_t gone = 0
        cdef uint64_t oldest
        if self.place_count == self.place_room:
            oldest = log.oldest_content()
            while gone < self.place_count and self.places[gone].position < oldest:
                gone += 1
            self.place_count -= gone
            if gone * 2 <= self.place_room:
                self.place_room = self.place_room * 2 or 4
                self.places = <Place*>realloc(self.places, self.place_room * sizeof(Place))
                if self.places == NULL:
                    raise MemoryError
            memmove(self.places, self.places + gone, self.place_count * sizeof(Place))
        self.places[self.place_count].seq = seq
        self.places[self.place_count].position = self.frame_position
        self.place_count += 1
        self.place_due = self.frame_position + PLACE_STEP
        return 0

    cdef void cut_places(self, uint64_t seq) noexcept:
        """All above `seq` is gone and may come again."""
        while self.place_count and self.places[self.place_count - 1].seq > seq:
            self.place_count -= 1
        self.place_due = 0

    cdef uint64_t place_of(self, uint64_t seq) noexcept:
        """The position of a frame at or before that of `seq`; 0: the log never had it."""
        cdef size_t low = 0
        cdef size_t high = self.place_count
        cdef size_t middle
        while low < high:
            middle = (low + high) >> 1
            if self.places[middle].seq <= seq:
                low = middle + 1
            else:
                high = middle
        return self.places[low - 1].position if low else 0

    def contained_up_to(self, index: int, segment: int) -> None:
        """All frames up to `index` are safe elsewhere; `segment` was the log's newest at that index."""
        self.first_segment = segment if self.index > <uint64_t>index else 0

    def resume(self, index: int) -> None:
        """After a replay: the next frame is `index` + 1."""
        self.index = index


cdef int write_piece(Job* job, const FileCalls* calls) noexcept nogil:
    """A large piece is on its way to the disk while the next one is copied."""
    cdef LogJob* piece = <LogJob*>job
    cdef Segment* segment = piece.segment
    cdef uint64_t end = piece.offset + piece.size
    cdef uint64_t first = piece.offset & ~<uint64_t>(PAGE - 1)
    cdef int result = calls.write(calls.context, segment.fd, piece.data, piece.size, piece.offset)
    if result == 0 and job.sync_fd == NULL and piece.size > SMALL_BATCH and end - segment.begun > BEGUN_STEP:
        # Acks wait for what is written behind the sync at the segment's end: little is left for that to do.
        end &= ~<uint64_t>(PAGE - 1)
        calls.start_writing(calls.context, segment.fd, segment.begun, end - segment.begun)
        segment.begun = end
    if result < 0 or job.sync_fd == NULL:
        return result
    if piece.size >= LARGE_PIECE:
        # The last page has more to come.
        calls.start_writing(calls.context, segment.fd, first, (end & ~<uint64_t>(PAGE - 1)) - first)
    elif end > segment.written:
        # The first write to a block of a new file makes its sync write the journal as well: one such sync for many.
        result = calls.write(calls.context, segment.fd, zeros, min(<uint64_t>ZEROED_AHEAD, segment.size - end), end)
        end += ZEROED_AHEAD
    segment.written = max(segment.written, end)
    return result


cdef int write_nothing(Job* job, const FileCalls* calls) noexcept nogil:
    return 0


cdef int prepare_segment(Job* job, const FileCalls* calls) noexcept nogil:
    """Make the segment's file: a retired one renamed, or a new one with all its blocks reserved."""
    cdef Segment* segment = (<LogJob*>job).segment
    cdef int result = 0
    if segment.old_path != NULL:
        # Under its old name a file with the new header would look like a damaged one.
        result = calls.rename(calls.context, segment.old_path, segment.path)
        if result == 0:
            result = calls.sync_directory(calls.context, segment.directory)
        segment.written = segment.size
    if result < 0:
        return result
    segment.fd = open_patiently(calls, segment.path, O_RDWR | O_CREAT)
    if segment.fd < 0:
        return segment.fd
    if segment.old_path == NULL:
        result = calls.allocate(calls.context, segment.fd, segment.size)
    if result == 0:
        result = calls.write(calls.context, segment.fd, segment.head, SEGMENT_HEAD, 0)
    if result == 0:
        result = calls.sync(calls.context, segment.fd)
    if result == 0 and segment.old_path == NULL:
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


@cython.no_gc_clear
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
        self.contents = {}
        self.scrubbed = []
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
        self.recycled = 0
        if self.spare:
            old_path = self.spare.pop()
            segment.old_path = strdup(os.fsencode(old_path))
            self.recycled = int(Path(old_path).stem, 16)
            if self.recycled in self.contents:
                self.contents[self.recycled] = self.segment_path(number)
        self.contents[number] = self.segment_path(number)
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
        job.offset = self.position & 0xFFFFFFFFu
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
        if self.recycled:
            self.contents.pop(self.recycled, None)
            job = <LogJob*>calloc(1, sizeof(LogJob))
            job.segment = self.current
            job.offset = self.position & 0xFFFFFFFFu
            job.job.run = blank_tail
            if self.durable:
                job.job.sync_fd = &self.current.fd
            self.disk.submit(&job.job)
        return 0

    cdef int start_chunk(self, size_t size) except -1:
        """Have a chunk with room for `size` bytes at the current position."""
        cdef size_t capacity = CHUNK_SIZE
        if size > self.segment_size - SEGMENT_HEAD - FRAME_HEAD:
            raise ValueError(f"{size} bytes do not fit into a log segment of {self.segment_size}")
        if self.chunk is not None and self.chunk.used > self.piece_start:
            self.send_piece(0)
        if (self.position & 0xFFFFFFFFu) + size + FRAME_HEAD > self.segment_size:
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
                    (self.position & 0xFFFFFFFFu) + used + size + 8 + FRAME_HEAD <= self.segment_size):
                at = chunk.data + chunk.used
                chunk.used += size
                return at
        self.close_frame()
        used = 0 if chunk is None else chunk.used - self.piece_start
        if chunk is None or chunk.capacity - chunk.used < size + FRAME_HEAD + 8 or (
                (self.position & 0xFFFFFFFFu) + used + size + 2 * FRAME_HEAD + 8 > self.segment_size):
            self.start_chunk(size + FRAME_HEAD + 8)
            chunk = self.chunk
        self.frame_at = chunk.used
        self.frame_group = group
        self.frame_kind = kind
        group.index += 1
        if group.first_segment == 0:
            group.first_segment = self.position >> 32
        if kind == FRAME_RECORDS:
            group.frame_position = self.position + (chunk.used - self.piece_start)
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
        at[5] = FRAME_GOES_ON if self.frame_group.goes_on else 0
        self.frame_group.left_open = self.frame_group.goes_on
        store64(at + 32, frame_checksum(at, size, self.salt + position))
        padding = (8 - (size & 7)) & 7
        memset(at + FRAME_HEAD + size, 0, padding)
        self.chunk.used += padding
        self.frame_group = None
        return 0

    cdef int send_piece(self, uint64_t ticket) except -1:
        """Hand what was built since the last piece to the disk thread."""
        cdef LogJob* job
        job = <LogJob*>calloc(1, sizeof(LogJob))
        job.segment = self.current
        job.ticket = ticket
        job.size = self.chunk.used - self.piece_start if self.chunk is not None else 0
        job.data = self.chunk.data + self.piece_start if job.size else NULL
        job.offset = self.position & 0xFFFFFFFFu
        job.job.run = write_piece if job.size else write_nothing
        if self.durable or (ticket and self.sync_wanted):
            job.job.sync_fd = &self.current.fd
            self.sync_wanted = False
        elif job.size:
            self.unsynced = True
        self.position += job.size
        job.end = self.position
        self.backlog_bytes += job.size
        self.bytes_built += job.size
        if job.size:
            self.pieces.append(self.chunk)
            self.piece_start = self.chunk.used
        if not (job.job.sync_fd == NULL and self.small and job.size <= SMALL_BATCH and self.disk.run_here(&job.job)):
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
                if job.job.run == scrub_records:
                    self.scrubbed.append(job.ticket)
                elif job.ticket:
                    self.written_ticket = job.ticket
                if job.job.run == retire_segment:
                    if job.segment.old_path != NULL:
                        self.spare.append(os.fsdecode(job.segment.old_path))
                    del self.open_segments[job.segment.number]
                    free_segment(job.segment)
            if job.job.run == scrub_records:
                free((<ScrubJob*>job).path)
                free((<ScrubJob*>job).targets)
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
                self.contents[number] = self.segment_path(number, "free")
            else:
                del self.contents[number]
            job = <LogJob*>calloc(1, sizeof(LogJob))
            job.job.run = retire_segment
            job.segment = segment
            self.disk.submit(&job.job)
        return 0

    cdef uint64_t oldest_content(self) except? 0:
        """No file has bytes from before this position."""
        return <uint64_t>min(self.contents) << 32

    cdef int scrub(self, list wanted, uint64_t ticket) except -1:
        """Overwrite records: `(group, position, end, seq, seed, salt, head)`. Their erasure must be durable.

        `position` is of a frame at or before the record's, from `LogGroup.place_of`; `end` is of the
        erasure's own frame: behind it the sequence is another message's. What no file has any more
        is passed over. `ticket` shows up in `scrubbed` once for each job; how many.
        """
        cdef ScrubJob* job
        cdef ScrubTarget* target
        by_path: dict[str, list] = {}
        for entry in wanted:
            path = self.contents.get(entry[1] >> 32)
            if path is not None:
                by_path.setdefault(path, []).append(entry)
        for path, entries in by_path.items():
            job = <ScrubJob*>calloc(1, sizeof(ScrubJob))
            job.targets = <ScrubTarget*>calloc(len(entries), sizeof(ScrubTarget))
            job.path = strdup(os.fsencode(path))
            job.log.ticket = ticket
            job.log.job.run = scrub_records
            job.log_salt = self.salt
            for group, position, end, seq, seed, salt, head in entries:
                target = &job.targets[job.count]
                job.count += 1
                target.group, target.seq, target.seed, target.salt = group, seq, seed, salt
                memcpy(target.head, <const char*>head, sizeof(target.head))
                if position >> 32 == self.recycled:
                    target.low = self.position & 0xFFFFFFFFu
                else:
                    job.base = position & ~<uint64_t>0xFFFFFFFFu
                    target.start = position & 0xFFFFFFFFu
                    target.end = <uint64_t>end - job.base
            self.disk.submit(&job.log.job)
        return <int>len(by_path)

    @property
    def current_segment(self) -> int:
        return self.position >> 32
