# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A sealed block made into a framed one: compressed, encrypted, or without its dead records.

Contract: a `Rewrite` is made by the owner, `run` by the pool's thread; it reads the old file's map and
its own copies only, so that the owner goes on meanwhile. The owner decides then whether the result
still fits the block (`spoiled`), and has the block thread put it in place: `run_replace`. `run_splice`
replaces one frame, after an erase.
"""
import os
from bisect import bisect_right

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.ref cimport Py_INCREF, PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, strdup, strlen

from storage._block cimport (
    BLOCK_ENCRYPTED, BLOCK_FRAMED, BLOCK_HEAD, BLOCK_SEALED, BLOCK_SPARSE, JOB_FRAME, JOB_SPLICE, TRAILER_SIZE, BlockJob, Extent,
    head_is_whole, store_trailer)
from storage._blocktable cimport BlockTable, dead_bytes, new_job
from storage._cipher cimport CIPHER_ROOM, decrypt_record
from storage._codec cimport (
    KIND_ERASED, KIND_MESSAGE, KIND_SKIP, RECORD_HEAD, check_record, load16, load32, load64, store16, store32, store64,
    xxh64)
from storage._frames cimport BLOCK_FRAME_HEAD, FRAME_SIZE, FrameCache, check_frame_at, encode_frame, load_frame
from storage._fs cimport FileCalls, ReadMap, map_whole, open_patiently, unmap
from storage._times cimport clear_times, note_time, times_size

cdef extern from "fcntl.h" nogil:
    int O_RDWR, O_CREAT

cdef enum:
    FILL_DONE = 0
    FILL_FULL = 1
    FILL_SOURCE = 2         # the next record is in another frame of the old file
    FILL_ROOM = 3           # the next record needs a larger piece
    FILL_BAD = 4


cdef class Rewrite:
    """See the module."""

    cdef int begin(self, const Block* block, bint drop) except -1:
        self.old = block[0]
        self.number = block.number
        self.drop = drop
        self.piece = Memory(2 * FRAME_SIZE)
        self.index = Memory(<size_t>self.old.slots * 8 + 8)
        self.times = Memory(times_size(self.old.slots))
        clear_times(self.times.data, self.old.slots)
        self.parts = []
        self.table = []
        self.position = BLOCK_HEAD
        self.fresh = self.old
        self.fresh.offsets = <uint32_t*>self.index.data
        self.fresh.deltas = <uint32_t*>self.index.data + self.old.slots
        self.fresh.generation = self.old.generation + 1
        self.fresh.data_end = BLOCK_HEAD
        self.fresh.flags = BLOCK_SEALED | BLOCK_FRAMED | (BLOCK_ENCRYPTED if self.key is not None else 0)
        if drop or self.old.deltas != NULL:
            self.fresh.flags |= BLOCK_SPARSE
        else:
            self.fresh.deltas = NULL
        if drop:
            self.fresh.slots = self.fresh.messages = self.fresh.skips = 0
            self.fresh.counted = 0

    def spoil(self) -> None:
        self.spoiled = True

    def run(self) -> None:
        """In the pool's thread. Damage leaves the old file as it is."""
        cdef int state = FILL_FULL
        try:
            while state != FILL_DONE:
                with nogil:
                    state = self.fill()
                if state == FILL_SOURCE:
                    self.next_source()
                elif state == FILL_ROOM:
                    self.grow_piece()
                elif state == FILL_BAD:
                    raise ValueError(f"the record in slot {self.slot} does not hold")
                else:
                    self.end_frame()
            self.finish()
        except (ValueError, MemoryError) as error:
            self.problem = str(error) or type(error).__name__
            self.damaged = isinstance(error, ValueError)
        finally:
            self.source = None
            self.done = True

    cdef int fill(self) noexcept nogil:
        """Copy records to the piece until it is a frame or something else is needed."""
        cdef const Block* old = &self.old
        cdef const char* at
        cdef uint32_t offset, size
        cdef int state
        while self.slot < old.slots:
            offset = old.offsets[self.slot]
            if offset == 0:
                if not self.drop:
                    self.fresh.offsets[self.slot] = 0
                self.slot += 1
                continue
            if old.flags & BLOCK_FRAMED:
                if self.source is None or offset < self.source.start or offset >= self.source.end:
                    return FILL_SOURCE
                at = self.source.data + (offset - self.source.start)
                size = check_record(at, self.source.end - offset, self.salt)
            else:
                at = self.data + offset
                size = check_record(at, self.data_size - offset, self.salt) if offset < self.data_size else 0
            if size == 0:
                return FILL_BAD
            state = self.take_record(at, size)
            if state != FILL_DONE:
                return state
            self.slot += 1
            if self.piece.used >= FRAME_SIZE:
                return FILL_FULL
        return FILL_DONE

    cdef bint leaves_out(self, const char* at) noexcept nogil:
        """With `drop`: erased, deleted, or below the first sequence of the stream."""
        cdef const uint8_t* dead = <const uint8_t*>self.old.dead_bits
        if not self.drop or at[4] == KIND_SKIP:
            return False
        return at[4] == KIND_ERASED or load64(at + 8) < self.floor or (
            self.slot >> 3 < self.old.dead_room and dead[self.slot >> 3] & (1 << (self.slot & 7)) != 0)

    cdef int take_record(self, const char* at, uint32_t size) noexcept nogil:
        """Copy one record to the piece, in the clear, and index it."""
        cdef char* to = self.piece.data + self.piece.used
        cdef uint32_t kept = size
        if self.leaves_out(at):
            return FILL_DONE
        if self.piece.capacity - self.piece.used < size:
            return FILL_ROOM
        if at[5] and at[4] == KIND_MESSAGE:
            kept = size - CIPHER_ROOM
            if self.key is None or decrypt_record(at, self.key.key, to + RECORD_HEAD) != 0:
                return FILL_BAD
            memcpy(to, at, RECORD_HEAD)
            store32(to, kept)
            to[5] = 0
            store64(to + kept - 8, xxh64(to, kept - 8, self.salt))
        else:
            memcpy(to, at, size)
        index_record(&self.fresh, &self.old, self.slot, self.drop, to)
        note_time(self.times.data, self.fresh.slots - 1 if self.drop else self.slot, to)
        self.fresh.data_end += kept
        self.piece.used += kept
        self.piece_records += 1
        return FILL_DONE

    cdef int grow_piece(self) except -1:
        cdef Memory larger = Memory(self.piece.capacity + load32(self.record_at()))
        memcpy(larger.data, self.piece.data, self.piece.used)
        larger.used = self.piece.used
        self.piece = larger
        return 0

    cdef const char* record_at(self) noexcept:
        """The record of the current slot, which `fill` has checked."""
        cdef uint32_t offset = self.old.offsets[self.slot]
        if self.old.flags & BLOCK_FRAMED:
            return self.source.data + (offset - self.source.start)
        return self.data + offset

    cdef int next_source(self) except -1:
        """Load the frame of the old file that holds the current slot."""
        cdef uint32_t offset = self.old.offsets[self.slot]
        while self.source_row + 1 < self.old.frames and (
                self.old.frame_table[2 * (self.source_row + 1) + 1] <= offset):
            self.source_row += 1
        self.source = load_frame(self.map, self.data, self.data_size, self.old.frame_table[2 * self.source_row],
                                 self.group, self.number, self.salt, self.key)
        if self.source is None or not self.source.start <= offset < self.source.end:
            raise ValueError(f"frame {self.source_row} does not hold")
        return 0

    cdef int end_frame(self) except -1:
        cdef uint32_t start = self.fresh.data_end - <uint32_t>self.piece.used
        if self.piece.used == 0:
            return 0
        frame = encode_frame(self.piece.data, <uint32_t>self.piece.used, self.piece_records, start, self.codec,
                             self.group, self.number, self.salt, self.key)
        self.table.append((self.position, start))
        self.parts.append(frame)
        self.position += len(frame)
        self.piece.used = 0
        self.piece_records = 0
        return 0

    cdef bytes summary(self, bint* complete):
        """That of the old file where it still says the truth, and may be read by anybody."""
        cdef const char* trailer = self.data + self.data_size - TRAILER_SIZE
        complete[0] = not self.drop and self.key is None and load32(trailer + 8) & 2 != 0
        if not complete[0]:
            return b""
        return self.data[load32(trailer + 64) : load32(trailer + 64) + load32(trailer + 68)]

    cdef FrameMemory fresh_frame(self, uint32_t offset, FrameCache cache, uint32_t layout):
        """The frame of the finished file that holds `offset`, from now on in the cache."""
        cdef FrameMemory frame
        row = bisect_right([start for _, start in self.table], offset) - 1
        position, start = self.table[row]
        frame = cache.frames.get((self.group, self.number, layout, start))
        if frame is None:
            frame = load_frame(self.content, self.content.data, self.content.capacity, position,
                               self.group, self.number, self.salt, self.key)
            frame.layout = layout
            cache.keep(frame)
        return frame

    cdef int finish(self) except -1:
        """Put header, frames, footer and trailer together."""
        cdef bint complete
        cdef bytes summary = self.summary(&complete)
        cdef bytearray footer = bytearray()
        cdef bytearray trailer = bytearray(TRAILER_SIZE)
        cdef bytearray head = bytearray(self.data[:BLOCK_HEAD])
        cdef char* at = head
        cdef char* end = trailer
        cdef uint32_t index_size
        if not self.table:
            return 0
        footer += (<char*>self.fresh.offsets)[: self.fresh.slots * 4]
        if self.fresh.flags & BLOCK_SPARSE:
            footer += (<char*>self.fresh.deltas)[: self.fresh.slots * 4]
        index_size = <uint32_t>len(footer)
        footer += summary
        footer += bytes((8 - len(footer) % 8) % 8)
        footer += self.times.data[: times_size(self.fresh.slots)]
        for position, start in self.table:
            footer += position.to_bytes(4, "little") + start.to_bytes(4, "little")
        store16(at + 8, 2)
        store16(at + 10, load16(at + 10) | 1)
        store32(at + 12, self.fresh.generation)
        store64(at + 56, xxh64(at, 56, 0))
        store_trailer(end, &self.fresh, self.group, <uint32_t>self.position, <uint32_t>self.position + index_size,
                      <uint32_t>len(summary), complete, xxh64(footer, len(footer), self.salt),
                      <uint32_t>len(self.table), self.salt)
        self.content = joined([bytes(head), *self.parts, bytes(footer), bytes(trailer)])
        self.parts = []
        return 0


cdef uint32_t count_records(FrameMemory frame) noexcept:
    cdef uint32_t at = 0
    cdef uint32_t count = 0
    while at < frame.capacity:
        at += load32(frame.data + at)
        count += 1
    return count


cdef Rewrite new_rewrite(BlockTable home, const Block* block, bint drop, int codec):
    """For the pool: `block`'s index is there, and neither dead nor framed nor changed under way elsewhere."""
    cdef Rewrite out = Rewrite.__new__(Rewrite)
    out.home = home
    out.map, out.data, out.data_size = <object>block.map, block.data, block.data_size
    out.group, out.salt, out.key, out.floor = home.group, home.salt, home.key, home.floor
    out.codec = codec
    out.dead = dead_bytes(block)
    out.begin(block, drop)
    out.old.dead_bits = <uint8_t*>PyBytes_AS_STRING(out.dead)
    out.old.dead_room = <uint32_t>len(out.dead)
    return out


cdef BlockJob* replace_job(Rewrite rewrite, Block* block) except NULL:
    """Have the block thread put a finished rewrite in place."""
    cdef BlockTable home = rewrite.home
    cdef BlockJob* job = new_job(JOB_FRAME, home)
    job.job.run = run_replace
    job.block = block
    job.path = strdup(os.fsencode(home.block_path(block.number)))
    job.directory = strdup(os.fsencode(home.path))
    job.data, job.size = rewrite.content.data, rewrite.content.capacity
    job.seal = rewrite.fresh
    job.seal.offsets = job.seal.deltas = NULL
    keep = (rewrite.content, rewrite.dead)
    Py_INCREF(keep)
    job.keep = <PyObject*>keep
    return job


cdef BlockJob* splice_job(BlockTable home, Block* block, list changed) except NULL:
    """Have the block thread replace the frames that were `changed` in memory: `(frame, codec, encrypted)`."""
    cdef BlockJob* job = new_job(JOB_SPLICE, home)
    cdef FrameMemory frame
    cdef bytes content
    contents = []
    job.job.run = run_splice
    job.block = block
    job.path = strdup(os.fsencode(home.block_path(block.number)))
    job.directory = strdup(os.fsencode(home.path))
    job.extents = <Extent*>calloc(len(changed), sizeof(Extent))
    if job.extents == NULL:
        raise MemoryError
    for frame, codec, encrypted in changed:
        content = encode_frame(frame.data, <uint32_t>frame.capacity, count_records(frame), frame.start, codec,
                               home.group, block.number, home.salt, home.key if encrypted else None)
        contents.append(content)
        frame.unwritten += 1
        job.extents[job.count].at = frame.start
        job.extents[job.count].data = PyBytes_AS_STRING(content)
        job.extents[job.count].size = <uint32_t>len(content)
        job.count += 1
    keep = (contents, [frame for frame, _, _ in changed])
    Py_INCREF(keep)
    job.keep = <PyObject*>keep
    return job


cdef Memory joined(list parts):
    """One piece of memory, without keeping the interpreter from others for long."""
    cdef Memory out = Memory(sum(map(len, parts)))
    cdef char* to = out.data
    cdef const char* source
    cdef size_t size
    cdef bytes part
    for part in parts:
        source, size = PyBytes_AS_STRING(part), len(part)
        with nogil:
            memcpy(to, source, size)
        to += size
    return out


cdef void index_record(Block* fresh, const Block* old, uint32_t slot, bint drop, const char* at) noexcept nogil:
    """Give the record at `at` its slot: the old one, or with `drop` the next."""
    cdef int64_t ts_ns = <int64_t>load64(at + 16)
    if not drop:
        fresh.offsets[slot] = fresh.data_end
        if old.deltas != NULL:
            fresh.deltas[slot] = old.deltas[slot]
        return
    fresh.offsets[fresh.slots] = fresh.data_end
    fresh.deltas[fresh.slots] = <uint32_t>(load64(at + 8) - old.first_seq)
    fresh.slots += 1
    if at[4] == KIND_SKIP:
        fresh.skips += 1
        return
    fresh.min_ts = ts_ns if fresh.messages == 0 or ts_ns < fresh.min_ts else fresh.min_ts
    fresh.max_ts = ts_ns if fresh.messages == 0 or ts_ns > fresh.max_ts else fresh.max_ts
    fresh.messages += 1
    fresh.counted += load32(at) - 36 + 30 + (4 if load32(at + 24) else 0)


# -- putting it in place: the block thread ---------------------------------------------------------

cdef int put_in_place(const BlockJob* work, const FileCalls* calls, int fd, const char* fresh) noexcept nogil:
    """Sync and close the new file, rename it over the old one."""
    cdef int result = calls.sync(calls.context, fd)
    calls.close(calls.context, fd)
    if result == 0:
        result = calls.rename(calls.context, fresh, work.path)
    if result == 0:
        result = calls.sync_directory(calls.context, work.directory)
    return result


cdef char* fresh_path(const char* path) noexcept nogil:
    cdef size_t length = strlen(path)
    cdef char* out = <char*>malloc(length + 5)
    if out != NULL:
        memcpy(out, path, length)
        memcpy(out + length, b".new", 5)
    return out


cdef int replace_whole(BlockJob* work, const FileCalls* calls, const char* path, const char* data, size_t size) noexcept nogil:
    """Put a new file in the place of a block's, by way of `path`. What fails before it has its name does no harm: the
    old file stays, and `problem` says why."""
    cdef int fd = open_patiently(calls, path, O_RDWR | O_CREAT)
    cdef int result = fd if fd < 0 else calls.truncate(calls.context, fd, 0)
    if result == 0:
        result = calls.write(calls.context, fd, data, size, 0)
    if result == 0:
        result = calls.sync(calls.context, fd)
    if fd >= 0:
        calls.close(calls.context, fd)
    if result == 0:
        result = calls.rename(calls.context, path, work.path)
    if result < 0:
        calls.unlink(calls.context, path)
        work.problem = -result
        return 0
    result = calls.sync_directory(calls.context, work.directory)
    work.ticket = result == 0
    return result


cdef int run_replace(Job* job, const FileCalls* calls) noexcept nogil:
    """The finished content beside the old file, whole and synced, then renamed over it."""
    cdef BlockJob* work = <BlockJob*>job
    cdef char* path = fresh_path(work.path)
    cdef int result
    if path == NULL:
        return -12
    work.ticket = 0
    result = replace_whole(work, calls, path, work.data, work.size)
    free(path)
    return result


cdef uint64_t frame_to_replace(const char* old, size_t size, uint64_t start, uint64_t from_, uint64_t salt) noexcept nogil:
    """Where the frame is that starts at `start` of the unframed block, at or behind `from_`; 0: none that holds.

    Found by its checksum as a reader without a footer does: a footer may be damaged, in all or in part."""
    while from_ + BLOCK_FRAME_HEAD <= size:
        if load32(old + from_ + 12) == start and check_frame_at(old, size, from_, salt):
            return from_
        from_ += 8
    return 0


cdef uint64_t end_of_frame(const char* old, uint64_t at) noexcept nogil:
    return (at + BLOCK_FRAME_HEAD + load32(old + at + 8) + 7) & ~<uint64_t>7


cdef bint footer_holds(const char* old, size_t size, uint64_t salt) noexcept nogil:
    cdef const char* trailer = old + size - TRAILER_SIZE
    cdef uint64_t start
    if size < BLOCK_HEAD + TRAILER_SIZE or xxh64(trailer, 120, salt) != load64(trailer + 120):
        return False
    start = load32(trailer + 60)
    return start + <uint64_t>load32(trailer + 108) * 8 + TRAILER_SIZE <= size and (
        xxh64(old + start, size - TRAILER_SIZE - start, salt) == load64(trailer + 112))


cdef void move_frames(char* footer, const char* old, size_t size, uint64_t behind, int64_t by) noexcept nogil:
    """In `footer` (index to trailer), a copy of `old`: those that were at `behind` or further back move by so much."""
    cdef char* trailer = footer + size - TRAILER_SIZE
    cdef uint32_t rows = load32(trailer + 108)
    cdef size_t table = size - TRAILER_SIZE - <size_t>rows * 8
    cdef uint32_t row
    for row in range(rows):
        if load32(old + table + row * 8) >= behind:
            store32(footer + table + row * 8, <uint32_t>(load32(footer + table + row * 8) + by))
    store32(trailer + 60, <uint32_t>(load32(trailer + 60) + by))
    store32(trailer + 64, <uint32_t>(load32(trailer + 64) + by))


cdef void end_footer(char* footer, size_t size, uint64_t salt) noexcept nogil:
    """Another generation of it, and its checksums."""
    cdef char* trailer = footer + size - TRAILER_SIZE
    store32(trailer + 104, load32(trailer + 104) + 1)
    store64(trailer + 112, xxh64(footer, size - TRAILER_SIZE, salt))
    store64(trailer + 120, xxh64(trailer, 120, salt))


cdef int write_spliced(const BlockJob* work, const FileCalls* calls, int fd, const char* old, size_t size) noexcept nogil:
    """The old file with its frames at `work.extents[].ticket` replaced, to `fd`. A footer that does not hold stays so."""
    cdef bint has_footer = footer_holds(old, size, work.salt)
    cdef uint64_t footer_at = load32(old + size - TRAILER_SIZE + 60) if has_footer else size
    cdef uint64_t taken = BLOCK_HEAD        # of the old file
    cdef uint64_t at = BLOCK_HEAD           # of the new one
    cdef uint64_t frame_at, behind
    cdef size_t index
    cdef char head[64]
    cdef char* footer = <char*>malloc(size - footer_at + 1)
    cdef int result = -12
    if footer == NULL:
        return result
    memcpy(footer, old + footer_at, size - footer_at)
    memcpy(head, old, BLOCK_HEAD)
    if head_is_whole(old, size):        # else it stays the damaged header that it is
        store32(head + 12, load32(head + 12) + 1)
        store64(head + 56, xxh64(head, 56, 0))
    result = calls.write(calls.context, fd, head, BLOCK_HEAD, 0)
    for index in range(work.count):
        frame_at = work.extents[index].ticket
        behind = end_of_frame(old, frame_at)
        if result == 0 and frame_at > taken:
            result = calls.write(calls.context, fd, old + taken, frame_at - taken, at)
        at += frame_at - taken
        if result == 0:
            result = calls.write(calls.context, fd, work.extents[index].data, work.extents[index].size, at)
        at += work.extents[index].size
        taken = behind
        if has_footer:
            move_frames(footer, old + footer_at, size - footer_at, behind,
                        <int64_t>work.extents[index].size - <int64_t>(behind - frame_at))
    if result == 0 and footer_at > taken:
        result = calls.write(calls.context, fd, old + taken, footer_at - taken, at)
    at += footer_at - taken
    if has_footer and result == 0:
        end_footer(footer, size - footer_at, work.salt)
        result = calls.write(calls.context, fd, footer, size - footer_at, at)
    free(footer)
    return result


cdef int wipe_frames(const BlockJob* work, const FileCalls* calls, int fd, const char* old) noexcept nogil:
    """Zeros over the frames in the file that was replaced, so that nobody finds them on the disk."""
    cdef uint64_t at, behind
    cdef size_t index
    cdef char* zeros
    cdef int result = 0
    for index in range(work.count):
        at = work.extents[index].ticket
        behind = end_of_frame(old, at)
        zeros = <char*>calloc(1, behind - at)
        if zeros == NULL:
            return -12
        if result == 0:
            result = calls.write(calls.context, fd, zeros, behind - at, at)
        free(zeros)
    return result if result < 0 else calls.sync(calls.context, fd)


cdef int splice(BlockJob* work, const FileCalls* calls, int old_fd, const char* old, size_t size,
                const char* path) noexcept nogil:
    cdef uint64_t at = BLOCK_HEAD
    cdef size_t index
    cdef int fd, result
    for index in range(work.count):
        at = work.extents[index].ticket = frame_to_replace(old, size, work.extents[index].at, at, work.salt)
        if at == 0:
            return 0            # damaged meanwhile, and said so by whoever reads it
    fd = open_patiently(calls, path, O_RDWR | O_CREAT)
    result = fd if fd < 0 else calls.truncate(calls.context, fd, 0)
    if result == 0:
        result = write_spliced(work, calls, fd, old, size)
    if result == 0:
        result = put_in_place(work, calls, fd, path)
    elif fd >= 0:
        calls.close(calls.context, fd)
    return result if result < 0 else wipe_frames(work, calls, old_fd, old)


cdef int run_splice(Job* job, const FileCalls* calls) noexcept nogil:
    """Replace the frames that start at `work.extents[].at`; the whole file is replaced for them."""
    cdef BlockJob* work = <BlockJob*>job
    cdef char* path = fresh_path(work.path)
    cdef int fd = open_patiently(calls, work.path, O_RDWR)
    cdef int result
    cdef ReadMap old
    if fd < 0 or path == NULL:
        free(path)
        return fd if fd < 0 else -12
    result = map_whole(fd, &old)
    if result == 0:
        result = splice(work, calls, fd, old.data, old.size, path)
        unmap(&old)
    calls.close(calls.context, fd)
    free(path)
    return result
