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

from storage.losses import add_range, add_sentence

from storage._ahead cimport AHEAD_MAX, AHEAD_MIN, AheadReader
from storage._block cimport (
    BLOCK_BAD_HEAD, BLOCK_CUT, BLOCK_FRAMED, BLOCK_GONE, BLOCK_HEAD, BLOCK_SEALED, BLOCK_SPARSE, BLOCK_UNREADABLE, TRAILER_SIZE,
    add_slot, begin_scan, close_block_file, fill_hole, find_slot, forget_index, free_block, free_block_file, head_is_whole, load_trailer,
    slot_at_or_after)
from storage._chain cimport end_fits, footer_fits, head_fits, why_refused
from storage._codec cimport (
    KIND_ERASED, KIND_MESSAGE, RECORD_FIXED, check_record, file_counted_size, load16, load32, load64, view_record)
from storage._cipher cimport decrypt_record
from storage._counted cimport size_in_index, uncounted_in_each
from storage._frames cimport BLOCK_FRAME_HEAD, FrameCache, check_frame_at, frame_of, load_frame
from storage._fs cimport FileMap, map_file
from storage._record cimport RecordHome, RecordVisit, as_tuple, check_only, collect
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


cdef class BlockTable(JobOwner):
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

    def block_path(self, number: int) -> str:
        return f"{self.path}/{number:016x}.blk"

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
            self.damage.append(f"{self.block_path(block.number)}: footer does not hold, index rebuilt")
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

    cdef int scan_block(self, Block* block) except -1:
        """Rebuild the index from the records up to `data_end`; what does not hold is lost.

        Dead bits are by slot, so every slot keeps its number: see `begin_scan` and `fill_hole`.
        """
        cdef Block fresh
        cdef Record record
        cdef uint64_t at = BLOCK_HEAD
        cdef uint64_t end = min(<uint64_t>block.data_end, block.data_size)
        cdef uint32_t size
        cdef uint32_t hole = 0          # the slot in front of which records do not hold
        cdef uint64_t hole_seq = 0
        cdef uint64_t next_seq = block.first_seq
        cdef bint bad = False
        begin_scan(block, &fresh)
        if load16(block.data + 10) & 1 if not block.flags & BLOCK_BAD_HEAD else block.flags & BLOCK_FRAMED:
            block.flags |= BLOCK_FRAMED
            self.scan_frames(block, &fresh, &hole, &hole_seq)
            next_seq = block.last_seq + 1
            at = end = block.data_end
        while at < end:
            size = check_record(block.data + at, end - at, self.salt)
            if size:
                view_record(block.data + at, &record)
            elif self.erased is not None:
                size = self.torn_size(block.data + at, end - at, &record)
            if size == 0 or record.seq < next_seq or record.seq > block.last_seq:
                bad = True
                at += 1
                continue
            if bad:
                self.note_lost(next_seq, record.seq - 1, f"{self.block_path(block.number)}: records do not hold")
                hole, hole_seq = fresh.slots, next_seq
                bad = False
            add_slot(&fresh, record.seq, <uint32_t>at)
            next_seq = record.seq + max(record.skip_count, <uint64_t>1)
            at += size
        if (bad or end < block.data_end) and next_seq <= block.last_seq:
            self.note_lost(next_seq, block.last_seq, f"{self.block_path(block.number)}: records do not hold")
        elif hole_seq and block.slots > fresh.slots and fresh.deltas != NULL:
            fill_hole(&fresh, hole, block.slots - fresh.slots, <uint32_t>(hole_seq - block.first_seq))
        block.offsets = fresh.offsets
        block.deltas = fresh.deltas
        block.slots = max(fresh.slots, block.slots) if fresh.deltas == NULL else fresh.slots
        block.slot_room = fresh.slot_room
        block.flags = block.flags & ~<uint32_t>BLOCK_SPARSE | (fresh.flags & BLOCK_SPARSE)
        block.frames, block.frame_table = fresh.frames, fresh.frame_table
        block.index_owned = True
        return block.offsets != NULL if end_fits(block, self.salt) else self.refuse(block)

    cdef uint32_t torn_size(self, const char* at, uint64_t room, Record* out) except? 0:
        """The size of a record that was being erased when the power went; 0: it is none."""
        cdef uint32_t size
        if room < RECORD_FIXED or load32(at) < RECORD_FIXED or load32(at) > room:
            return 0
        size = load32(at)
        out.seq = load64(at + 8)
        out.skip_count = 0
        return size if out.seq in self.erased else 0

    cdef int scan_frames(self, Block* block, Block* fresh, uint32_t* hole, uint64_t* hole_seq) except -1:
        """As `scan_block`, over the frames that hold of a framed file; they are found by their checksums."""
        cdef uint64_t position = BLOCK_HEAD
        cdef uint64_t next_seq = block.first_seq
        cdef uint32_t next_start = BLOCK_HEAD
        cdef FrameMemory frame
        cdef uint32_t length
        rows = []
        while position + BLOCK_FRAME_HEAD <= block.data_size:
            length = check_frame_at(block.data, block.data_size, position, self.salt)
            frame = None
            if length:
                frame = load_frame(<object>block.map, block.data, block.data_size, position, self.group,
                                   block.number, self.salt, self.key)
            if frame is None or frame.start < next_start:
                position += 8
                continue
            if frame.start > next_start:
                self.note_lost(next_seq, load64(frame.data + 8) - 1,
                               f"{self.block_path(block.number)}: frames do not hold")
                hole[0], hole_seq[0] = fresh.slots, next_seq
            next_seq = self.index_frame(block, fresh, frame, next_seq)
            next_start = frame.end
            rows.append((position, frame.start))
            position += (length + 7) & ~<uint64_t>7
        if next_start < block.data_end and block.data_end != 0xFFFFFFFFu and next_seq <= block.last_seq:
            self.note_lost(next_seq, block.last_seq, f"{self.block_path(block.number)}: frames do not hold")
        fresh.frames = <uint32_t>len(rows)
        fresh.frame_table = <uint32_t*>calloc(2 * len(rows) + 1, 4)
        if fresh.frame_table == NULL:
            raise MemoryError
        for number, (where, start) in enumerate(rows):
            fresh.frame_table[2 * <size_t>number], fresh.frame_table[2 * <size_t>number + 1] = where, start
        return 0

    cdef uint64_t index_frame(self, Block* block, Block* fresh, FrameMemory frame, uint64_t next_seq) except? 0:
        """Add the frame's records up to where the block ends; the sequence behind the last one."""
        cdef Record record
        cdef uint32_t at = 0
        cdef uint32_t size
        while at < frame.capacity and frame.start + at < block.data_end:
            size = check_record(frame.data + at, frame.capacity - at, self.salt)
            if size == 0:
                break
            view_record(frame.data + at, &record)
            if record.seq > block.last_seq:
                break
            add_slot(fresh, record.seq, frame.start + at)
            next_seq = record.seq + max(record.skip_count, <uint64_t>1)
            at += size
        return next_seq

    cdef int adopt_footer(self, Block* block, const Block* footer) except -1:
        """The file was rewritten after the checkpoint: what was dead then may not be in it any more."""
        cdef bint same_slots = footer.slots == block.slots
        block.data_end = block.written = footer.data_end
        block.generation = footer.generation
        block.flags = footer.flags | (block.flags & (BLOCK_CUT | BLOCK_GONE))
        block.layout += 1
        if same_slots:
            return 0                # nothing was left out, and what is dead is so still
        if self.replaying:
            self.index_stale = True
        block.slots = footer.slots
        block.messages = footer.messages
        block.skips = footer.skips
        block.counted = footer.counted
        free(block.dead_bits)
        block.dead_bits = NULL
        block.dead_room = 0
        block.dead = 0
        return 0

    cdef int note_lost(self, uint64_t first, uint64_t last, str what) except -1:
        """Report sequences that cannot be served, once."""
        add_sentence(self.damage, what)
        if first <= last:
            add_range(self.lost, first, last)
        return 0

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
            if not mapped and block != self.active and not block.index_owned:
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

    def check_all(self) -> None:
        """Read every live record; what does not hold ends in `lost`."""
        self.visit(self.floor, check_only, NULL)
