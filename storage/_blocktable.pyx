# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What one stream has on disk: its table of blocks, how a record is found and read.

Contract: DESIGN.md, "The seam". Reads are served from the commit log's chunk while a record is on
its way to the block (`pending` extents), afterwards from a map of the file. A sealed block has no
index in memory: it is in the footer, read through the map. Nothing is served before its checksum
was seen to hold.
"""
import os

from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memmove, memset

from storage._ahead cimport AHEAD_MAX, AHEAD_MIN, AheadReader
from storage._block cimport (
    BLOCK_BAD_HEAD, BLOCK_CUT, BLOCK_FRAMED, BLOCK_GONE, BLOCK_HEAD, BLOCK_REWRITING, BLOCK_SEALED, BLOCK_SPARSE,
    BLOCK_SWAPPING, BLOCK_UNREADABLE, TRAILER_SIZE,
    close_block_file, find_slot, forget_index, free_block, free_block_file, head_is_whole, load_trailer,
    slot_at_or_after)
from storage._chain cimport footer_fits, head_fits, why_refused
from storage._codec cimport (
    KIND_ERASED, KIND_MESSAGE, RECORD_FIXED, check_record, file_counted_size, load32, load64, view_record)
from storage._cipher cimport decrypt_record
from storage._counted cimport size_in_index, uncounted_in_each
from storage._frames cimport FrameCache, check_frame_at, frame_of, load_frame
from storage._fs cimport TRIES_MAX, FileMap, is_shortage, map_file
from storage._record cimport RecordHome, RecordVisit, as_tuple, collect
from storage._rescan cimport forget_dead
from storage._views cimport Memory


cdef BlockJob* new_job(int kind, BlockTable owner) except NULL:
    cdef BlockJob* job = <BlockJob*>calloc(1, sizeof(BlockJob))
    if job == NULL:
        raise MemoryError
    job.kind = kind
    Py_INCREF(owner)
    job.owner = <PyObject*>owner
    job.group = owner.group
    job.salt = owner.salt
    job.files = &owner.shop.open_files
    return job


cdef bytes dead_bytes(const Block* block):
    """Exactly (slots + 7) / 8 bytes, whatever was allocated."""
    cdef size_t size = (block.slots + 7) // 8
    cdef bytes kept = (<char*>block.dead_bits)[:min(size, <size_t>block.dead_room)]
    return kept.ljust(size, b"\0")


cdef class BlockTable(ScanningTable):
    """The part of a BlockHome that finds and reads."""

    def __cinit__(self, Workshop shop, str path, uint64_t group, uint64_t salt):
        self.shop = shop
        self.path = path
        self.group = group
        self.salt = salt
        self.floor = 1
        self.lost = []
        self.damage = []

    def __dealloc__(self):
        cdef size_t index
        for index in range(self.block_count):
            free_block_file(self.blocks[index].file)
            free_block(self.blocks[index])
        free(self.blocks)
        free(self.pending)

    def close_files(self) -> None:
        """Before this home goes for good; nothing may be under way."""
        cdef size_t index
        for index in range(self.block_count):
            if self.blocks[index].file != NULL:
                close_block_file(self.blocks[index].file, &self.shop.files.calls)

    # -- finding -----------------------------------------------------------------------------------

    cdef size_t block_index_from(self, uint64_t seq) noexcept nogil:
        """The first block whose last sequence is at or above `seq`; `block_count` when there is none."""
        cdef size_t low = 0
        cdef size_t high = self.block_count
        cdef size_t middle
        if self.hint < high and self.blocks[self.hint].last_seq >= seq and (
                self.hint == 0 or self.blocks[self.hint - 1].last_seq < seq):
            return self.hint
        while low < high:
            middle = (low + high) >> 1
            if self.blocks[middle].last_seq < seq:
                low = middle + 1
            else:
                high = middle
        self.hint = low
        return low

    cdef Block* find_block(self, uint64_t seq) noexcept nogil:
        cdef size_t index = self.block_index_from(seq)
        if index == self.block_count or self.blocks[index].first_seq > seq:
            return NULL
        return self.blocks[index]

    cdef int need_map(self, Block* block) except -1:
        """Have the block's file mapped. 0: it is missing or not this block's (noted as lost)."""
        cdef FileMap file
        if block.map != NULL:
            return 1
        if block.flags & BLOCK_UNREADABLE:
            return 0
        path = self.block_path(block.number)
        try:
            file = map_file(path)
        except FileNotFoundError:
            file = None
        if file is None or not head_fits(file.data, file.size, self.group, self.salt, block):
            if file is None or head_is_whole(file.data, file.size):
                return self.refuse(block)
            block.flags |= BLOCK_BAD_HEAD       # each record says itself whether it holds
            self.note_lost(1, 0, f"{path}: header does not hold")
        Py_INCREF(file)
        block.map = <PyObject*>file
        block.data, block.data_size = file.data, file.size
        self.shop.maps_open += 1
        return 1

    cdef int wait_for_map(self, Block* block) except -1:
        """As `need_map`, where nothing can be left for later: too few descriptors are waited for."""
        cdef int tries = 0
        cdef int problem
        cdef bint is_short
        while True:
            try:
                return self.need_map(block)
            except OSError as error:
                tries += 1
                problem = -(error.errno or 0)
                with nogil:
                    is_short = is_shortage(problem)
                if tries > TRIES_MAX or not is_short:
                    raise

    cdef int refuse(self, Block* block) except -1:
        """Its file is not there, or another: 0, for those who wanted to read it."""
        self.let_go_map(block)
        forget_index(block)
        block.flags |= BLOCK_UNREADABLE
        if not self.replaying:
            self.note_unreadable(block)
        return 0

    cdef int note_unreadable(self, Block* block) except -1:
        path = self.block_path(block.number)
        return self.note_lost(max(block.first_seq, self.floor), block.last_seq,
                              f"{path}: {why_refused(path, self.group, self.salt, block)}")

    cdef bint needs_this_map(self, const Block* block) noexcept:
        """Whether its map is not as good when it is made anew. While the file is rewritten: the new one's
        footer would be adopted before it is known what died meanwhile (`take_rewritten`). With the frames' places
        read from this file instead of a footer: in one that has replaced it they are elsewhere."""
        return block.flags & (BLOCK_REWRITING | BLOCK_SWAPPING) != 0 or (
            block.index_owned and block.flags & BLOCK_FRAMED != 0)

    cdef bint may_let_go(self, const Block* block) noexcept:
        """Whether a reader who passed may let go of its map."""
        return block != self.active and not block.index_owned and not self.needs_this_map(block)

    cdef void let_go_map(self, Block* block) noexcept:
        """Forget the map, and the index that lies in it. A pinned view keeps the memory alive."""
        if block.map == NULL:
            return
        Py_XDECREF(block.map)
        block.map, block.data, block.data_size = NULL, NULL, 0
        self.shop.maps_open -= 1
        if not block.index_owned:
            block.offsets = block.deltas = block.frame_table = NULL

    cdef int retire_map(self, Block* block) except -1:
        """As `let_go_map`, of a file without a name: freeing its blocks takes the kernel milliseconds."""
        if block.map != NULL:
            self.shop.old_maps.append(<object>block.map)
        self.let_go_map(block)
        return 0

    cdef int need_index(self, Block* block) except -1:
        """Have the sequence index: from the footer, else by reading the records. 0: unreadable."""
        cdef Block footer
        cdef uint32_t index_start
        if block.offsets != NULL:
            return 1
        if block.data_end == BLOCK_HEAD:
            return 1
        if self.need_map(block) == 0:
            return 0
        if not block.flags & BLOCK_SEALED or block.flags & BLOCK_CUT:
            return self.scan_block(block)
        memset(&footer, 0, sizeof(Block))
        if load_trailer(block.data, block.data_size, self.group, self.salt, &footer, &index_start) == 0 or (
                footer.number != block.number):
            self.note_lost(1, 0, f"{self.block_path(block.number)}: footer does not hold, index rebuilt")
            return self.scan_block(block)
        if not footer_fits(&footer, block):
            return self.refuse(block)
        if footer.generation > block.generation:
            self.adopt_footer(block, &footer)
        if footer.slots < block.slots or footer.data_end < block.data_end:
            return self.scan_block(block)
        block.offsets = <uint32_t*>(block.data + index_start)
        if footer.flags & BLOCK_SPARSE:
            block.deltas = block.offsets + footer.slots
        block.frames = footer.frames
        block.frame_table = <uint32_t*>(block.data + block.data_size - TRAILER_SIZE - <size_t>footer.frames * 8)
        return 1

    cdef int adopt_footer(self, Block* block, const Block* footer) except -1:
        """The file was rewritten after the checkpoint: what was dead then may not be in it any more."""
        cdef bint same_slots = footer.slots == block.slots
        block.data_end = block.written = footer.data_end
        block.generation = footer.generation
        block.flags = footer.flags | (block.flags & (BLOCK_CUT | BLOCK_GONE))
        self.frames_moved(block)
        if same_slots:
            return 0                # nothing was left out, and what is dead is so still
        if self.replaying:
            self.index_stale = True
        block.slots = footer.slots
        block.messages = footer.messages
        block.skips = footer.skips
        block.counted = footer.counted
        forget_dead(block)
        return 0

    cdef int frames_moved(self, Block* block) except -1:
        """What was read of the file before is of another layout; what is owed to it is of this one."""
        block.layout += 1
        return self.shop.frame_cache.follow(self.group, block, block.layout - 1)

    # -- reading -----------------------------------------------------------------------------------

    cdef const char* locate(self, Block* block, uint32_t slot) except? NULL:
        """The bytes of a slot's record, checked; NULL: damaged, or not readable."""
        cdef uint32_t offset = block.offsets[slot]
        cdef const char* at
        cdef size_t index
        cdef Extent* extent
        cdef uint64_t seq, room = 0
        cdef FrameMemory frame
        if offset >= block.written:
            for index in range(self.pending_count, self.pending_head, -1):
                extent = &self.pending[index - 1]
                if extent.block == block and extent.at <= offset < extent.at + extent.size:
                    return extent.data + (offset - extent.at)
            return NULL
        if self.need_map(block) == 0:
            return NULL
        if offset >= block.data_size and block.index_owned and not block.flags & BLOCK_FRAMED:
            self.let_go_map(block)      # mapped before the file grew
            if self.need_map(block) == 0:
                return NULL
        seq = block.first_seq + (block.deltas[slot] if block.deltas != NULL else slot)
        at = NULL
        if block.flags & BLOCK_FRAMED:
            frame = self.frame_at(block, offset)
            if frame is not None:
                at, room = frame.data + (offset - frame.start), frame.end - offset
        elif offset < block.data_size:
            at, room = block.data + offset, block.data_size - offset
        if at != NULL and check_record(at, room, self.salt) and load64(at + 8) == seq:
            return at
        if self.erased is not None and seq in self.erased:
            return NULL         # the power went while it was erased
        self.note_lost(seq, seq, f"{self.block_path(block.number)}: record of {seq} does not hold")
        return NULL

    cdef FrameMemory frame_at(self, Block* block, uint32_t offset):
        """The uncompressed frame that holds `offset` of the unframed block; None: it does not hold."""
        cdef FrameCache cache = self.shop.frame_cache
        cdef FrameMemory frame = cache.hot_frame(self.group, block, offset)
        cdef int row
        if frame is not None:
            return frame
        row = frame_of(block, offset)
        if row < 0:
            return None
        frame = cache.find(self.group, block, block.frame_table[2 * row + 1])
        if frame is not None:
            return frame if offset < frame.end else None
        frame = load_frame(<object>block.map, block.data, block.data_size, block.frame_table[2 * row],
                           self.group, block.number, self.salt, self.key)
        if frame is None or frame.start != block.frame_table[2 * row + 1]:
            return None
        frame.layout = block.layout
        cache.keep(frame)
        return frame if offset < frame.end else None

    cdef int show(self, const char* at, Record* out) except -1:
        """View the checked record at `at`, decrypted. 0: its key is not the stream's.

        Without a key the numbers are served and the content is not: such a home stands for a stream that
        could not be opened, whose log is carried over all the same.
        """
        cdef char* body
        view_record(at, out)
        if at[5] == 0 or self.key is None:
            return 1
        body = self.shop.views.take(load32(at) - RECORD_FIXED)
        if decrypt_record(at, self.key.key, body) != 0:
            self.note_lost(out.seq, out.seq, f"{self.path}: record of {out.seq} is not encrypted with this stream's key")
            return 0
        out.subject = body
        out.hdr = body + out.subject_len
        out.msg = out.hdr + out.hdr_len
        return 1

    cdef int read(self, uint64_t seq, Record* out) except -1:
        cdef Block* block
        cdef int64_t slot
        cdef const char* at
        if seq < self.floor or seq > self.last_seq:
            return 0
        block = self.find_block(seq)
        if block == NULL or (block.offsets == NULL and self.need_index(block) == 0):
            return 0
        slot = find_slot(block, seq)
        if slot < 0 or is_dead(block, <uint32_t>slot):
            return 0
        block.used_at = self.shop.tick
        at = self.locate(block, <uint32_t>slot)
        if at == NULL or at[4] != KIND_MESSAGE:
            return 0
        return self.show(at, out)

    cdef int read_next(self, uint64_t seq, Record* out) except -1:
        cdef size_t index
        cdef Block* block
        cdef int64_t slot
        cdef const char* at
        seq = max(seq, self.floor)
        index = self.block_index_from(seq)
        while index < self.block_count:
            block = self.blocks[index]
            index += 1
            if block.dead >= block.messages or (block.offsets == NULL and self.need_index(block) == 0):
                continue
            block.used_at = self.shop.tick
            slot = slot_at_or_after(block, seq)
            while slot < block.slots:
                if block.offsets[slot] and not is_dead(block, <uint32_t>slot):
                    at = self.locate(block, <uint32_t>slot)
                    if at != NULL and at[4] == KIND_MESSAGE and self.show(at, out):
                        return 1
                slot += 1
        return 0

    cdef int visit(self, uint64_t first, RecordVisit step, void* context) except -1:
        self.shop.frame_cache.visiting += 1
        try:
            return self.visit_blocks(first, step, context)
        finally:
            self.shop.frame_cache.visiting -= 1

    cdef int visit_blocks(self, uint64_t first, RecordVisit step, void* context) except -1:
        cdef size_t index
        cdef Block* block
        cdef Record record
        cdef int64_t slot
        cdef const char* at
        cdef bint mapped, checked
        cdef Memory chunk
        cdef size_t used, queued
        cdef AheadReader ahead = None
        if self.key is not None:
            self.shop.views.take(0)
        chunk = self.shop.views.newest
        used = chunk.used if chunk is not None else 0
        first = max(first, self.floor)
        index = queued = self.block_index_from(first)
        if self.replaying and self.block_count - index >= AHEAD_MIN:
            ahead = AheadReader(self.salt)
        while index < self.block_count:
            while ahead is not None and queued < self.block_count and queued < index + AHEAD_MAX:
                if self.need_index(self.blocks[queued]):
                    ahead.add(self.blocks[queued])
                queued += 1
            block = self.blocks[index]
            index += 1
            mapped = block.map != NULL and ahead is None
            if block.offsets == NULL and self.need_index(block) == 0:
                continue
            if self.locked and block.flags & BLOCK_FRAMED and self.check_frames(block) == 0:
                continue
            checked = ahead is not None and ahead.holds(block)
            for slot in range(slot_at_or_after(block, first), block.slots):
                if block.offsets[slot] == 0 or is_dead(block, <uint32_t>slot):
                    continue
                at = block.data + block.offsets[slot] if checked else self.locate(block, <uint32_t>slot)
                if at == NULL or at[4] == KIND_ERASED:
                    continue
                if self.show(at, &record) == 0:
                    continue
                if record.skip_count and record.seq + record.skip_count - 1 > block.last_seq:
                    record.skip_count = block.last_seq - record.seq + 1
                if step(context, &record):
                    return 1
                if at[5]:
                    self.shop.views.give_back(chunk, used)
            if not mapped and self.may_let_go(block):
                self.let_go_map(block)
        return 0

    cdef int check_frames(self, const Block* block) except -1:
        """Without the key: whether the bytes are what was written."""
        cdef uint32_t row
        for row in range(block.frames):
            if check_frame_at(block.data, block.data_size, block.frame_table[2 * row], self.salt) == 0:
                self.note_lost(block.first_seq, block.last_seq, f"{self.block_path(block.number)}: frame {row} does "
                               "not hold; which of its records are lost can be told with the key")
        return 0

    cdef int64_t latest_time(self, uint64_t seq) except? -1:
        cdef Block* block = self.find_block(seq)
        return block.max_ts if block != NULL else 0

    cdef uint64_t seek_time(self, int64_t ts_ns) except? 0:
        cdef size_t index
        cdef Block* block
        cdef Record record
        cdef uint64_t seq
        for index in range(self.block_count):
            block = self.blocks[index]
            if block.max_ts < ts_ns or block.dead >= block.messages:
                continue
            seq = block.first_seq
            while seq <= block.last_seq and self.read_next(seq, &record):
                if record.ts_ns >= ts_ns:
                    return record.seq
                seq = record.seq + 1
        return 0

    cdef uint64_t counted_size(self, const Record* record) noexcept nogil:
        return file_counted_size(record)

    cdef uint64_t counted_at(self, uint64_t seq) except? 0:
        """From where the records lie, if they agree about what does not count: a trim asks it of all it drops."""
        cdef Block* block = self.find_block(seq) if self.floor <= seq <= self.last_seq else NULL
        cdef int64_t slot
        cdef uint64_t size, uncounted
        if block == NULL or (block.offsets == NULL and self.need_index(block) == 0):
            return 0
        slot = find_slot(block, seq)
        if slot < 0 or is_dead(block, <uint32_t>slot):
            return 0
        size = size_in_index(block, <uint32_t>slot)
        uncounted = uncounted_in_each(block)
        return size - uncounted if 0 < uncounted < size else RecordHome.counted_at(self, seq)

    cdef object pin(self, const Record* view):
        cdef Block* block = self.find_block(view.seq)
        cdef size_t index
        if block != NULL and block.map != NULL and block.data <= view.subject < block.data + block.data_size:
            return <object>block.map
        for index in range(self.pending_head, self.pending_count):
            if self.pending[index].data <= view.subject < self.pending[index].data + self.pending[index].size:
                return self.shop.chunk_of(view.subject)
        if block != NULL and block.flags & BLOCK_FRAMED:
            holder = self.shop.frame_cache.holder_of(view.subject)
        else:
            holder = self.shop.views.holder_of(view.subject)
        if holder is not None:
            return holder
        raise ValueError(f"the view of sequence {view.seq} has ended")

    # -- for Python: tests, tools, cold paths --------------------------------------------------------

    def get(self, seq: int) -> tuple | None:
        """`(seq, ts_ns, subject, headers, message)`, copied."""
        cdef Record record
        return as_tuple(&record) if self.read(seq, &record) else None

    def get_next(self, seq: int) -> tuple | None:
        cdef Record record
        return as_tuple(&record) if self.read_next(seq, &record) else None

    def get_all(self, first: int = 1) -> list:
        """All live records and skips in order; a skip is `(seq, count)`."""
        out = []
        self.visit(first, collect, <void*>out)
        return out

    def first_at(self, ts_ns: int) -> int:
        return self.seek_time(ts_ns)

    def pinned(self, seq: int) -> tuple:
        """The record and the object that keeps its view alive; for tests."""
        cdef Record record
        if self.read(seq, &record) == 0:
            raise KeyError(seq)
        return as_tuple(&record), self.pin(&record)
