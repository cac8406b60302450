# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The index of a block read again from its records, where no footer tells it, or none that holds.

Contract: that of `_blocktable`, whose part this is. What does not hold is lost. Dead bits are by slot, so
every record has the slot that it had; one of which that cannot be told is lost too, for it may be deleted.
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memmove, memset

from storage.losses import add_range, add_sentence

from storage._block cimport BLOCK_BAD_HEAD, BLOCK_FRAMED, BLOCK_HEAD, BLOCK_SPARSE, add_slot, begin_scan, fill_hole
from storage._chain cimport end_fits
from storage._codec cimport RECORD_FIXED, check_record, load16, load32, load64, view_record
from storage._frames cimport BLOCK_FRAME_HEAD, check_frame_at, load_frame


cdef void note_hole(Holes* holes, const Block* fresh, uint64_t seq) noexcept:
    """Records from `seq` on do not hold; the next one that does comes behind all that is in `fresh`."""
    if holes.count == 0:
        holes.first_slot, holes.first_seq = fresh.slots, seq
    holes.last_slot = fresh.slots
    holes.count += 1


cdef int index_again(const Block* block, Block* fresh, uint64_t seq, uint32_t offset) except -1:
    """As `add_slot`, but a dense index that has its slots from the table stays dense."""
    if fresh.deltas == NULL and seq - block.first_seq < block.slots:
        fresh.offsets[seq - block.first_seq] = offset
        return 0
    return add_slot(fresh, seq, offset)


cdef void forget_dead(Block* block) noexcept:
    free(block.dead_bits)
    block.dead_bits = NULL
    block.dead_room = 0
    block.dead = 0


cdef class ScanningTable(JobOwner):
    """The part of a BlockHome that reads what nothing indexes."""

    cdef int refuse(self, Block* block) except -1:
        """Its file is not there, or another: 0, for those who wanted to read it."""
        raise NotImplementedError

    def block_path(self, number: int) -> str:
        return f"{self.path}/{number:016x}.blk"

    cdef int scan_block(self, Block* block) except -1:
        """Rebuild the index from the records up to `data_end`; what does not hold is lost.

        See `begin_scan`, `index_again` and `settle_slots` for how each keeps its slot.
        """
        cdef Block fresh
        cdef Record record
        cdef uint64_t at = BLOCK_HEAD
        cdef uint64_t end = min(<uint64_t>block.data_end, block.data_size)
        cdef uint32_t size
        cdef uint64_t next_seq = block.first_seq
        cdef bint bad = False
        cdef Holes holes
        memset(&holes, 0, sizeof(Holes))
        begin_scan(block, &fresh)
        if load16(block.data + 10) & 1 if not block.flags & BLOCK_BAD_HEAD else block.flags & BLOCK_FRAMED:
            block.flags |= BLOCK_FRAMED
            self.scan_frames(block, &fresh, &holes)
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
                note_hole(&holes, &fresh, next_seq)
                bad = False
            index_again(block, &fresh, record.seq, <uint32_t>at)
            next_seq = record.seq + max(record.skip_count, <uint64_t>1)
            at += size
        if (bad or end < block.data_end) and next_seq <= block.last_seq:
            self.note_lost(next_seq, block.last_seq, f"{self.block_path(block.number)}: records do not hold")
            holes.bad_end = True
        self.settle_slots(block, &fresh, &holes)
        block.offsets = fresh.offsets
        block.deltas = fresh.deltas
        block.slots = max(fresh.slots, block.slots) if fresh.deltas == NULL else fresh.slots
        block.slot_room = fresh.slot_room
        block.flags = block.flags & ~<uint32_t>BLOCK_SPARSE | (fresh.flags & BLOCK_SPARSE)
        block.frames, block.frame_table = fresh.frames, fresh.frame_table
        block.index_owned = True
        return block.offsets != NULL if end_fits(block, self.salt) else self.refuse(block)

    cdef int settle_slots(self, Block* block, Block* fresh, Holes* holes) except -1:
        """Leave as many slots empty as records are missing, where only one place is open to them."""
        cdef uint32_t first = holes.first_slot
        cdef uint32_t last = fresh.slots if holes.bad_end else holes.last_slot
        cdef bint is_newer = not block.flags & BLOCK_BAD_HEAD and load32(block.data + 12) > block.generation
        if fresh.deltas == NULL or fresh.slots >= block.slots or block.dead == 0:
            return 0
        if holes.count == 0 and is_newer and not holes.bad_end:
            forget_dead(block)          # what the table has as dead is not in the new file
            block.messages = fresh.slots - min(block.skips, fresh.slots)
            self.index_stale = self.index_stale or self.replaying
            return 0
        if is_newer:
            first, last = 0, fresh.slots
        if first < last and (holes.count or is_newer):
            self.lose_slots(block, fresh, first, last)
        if holes.count and not holes.bad_end and not is_newer:
            fill_hole(fresh, first, block.slots - fresh.slots, <uint32_t>(holes.first_seq - block.first_seq))
        return 0

    cdef int lose_slots(self, Block* block, Block* fresh, uint32_t first, uint32_t last) except -1:
        """Whether these are dead cannot be told: how many are missing before them is not known."""
        self.note_lost(block.first_seq + fresh.deltas[first], block.first_seq + fresh.deltas[last - 1],
                       f"{self.block_path(block.number)}: records between damaged ones may be deleted ones")
        memmove(fresh.offsets + first, fresh.offsets + last, (fresh.slots - last) * sizeof(uint32_t))
        memmove(fresh.deltas + first, fresh.deltas + last, (fresh.slots - last) * sizeof(uint32_t))
        fresh.slots -= last - first
        return 0

    cdef uint32_t torn_size(self, const char* at, uint64_t room, Record* out) except? 0:
        """The size of a record that was being erased when the power went; 0: it is none."""
        cdef uint32_t size
        if room < RECORD_FIXED or load32(at) < RECORD_FIXED or load32(at) > room:
            return 0
        size = load32(at)
        out.seq = load64(at + 8)
        out.skip_count = 0
        return size if out.seq in self.erased else 0

    cdef int scan_frames(self, Block* block, Block* fresh, Holes* holes) except -1:
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
                note_hole(holes, fresh, next_seq)
            next_seq = self.index_frame(block, fresh, frame, next_seq)
            next_start = frame.end
            rows.append((position, frame.start))
            position += (length + 7) & ~<uint64_t>7
        if next_start < block.data_end and block.data_end != 0xFFFFFFFFu and next_seq <= block.last_seq:
            self.note_lost(next_seq, block.last_seq, f"{self.block_path(block.number)}: frames do not hold")
            holes.bad_end = True
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
            index_again(block, fresh, record.seq, frame.start + at)
            next_seq = record.seq + max(record.skip_count, <uint64_t>1)
            at += size
        return next_seq

    cdef int note_lost(self, uint64_t first, uint64_t last, str what) except -1:
        """Report sequences that cannot be served, once."""
        add_sentence(self.damage, what)
        if first <= last:
            add_range(self.lost, first, last)
        return 0
