# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Appending to one stream: the log's frames, and a place in the active block for each record.

Contract: that of `_blockhome`, whose part this is. An append is encoded once, into the commit log's
chunk; the block thread later writes the same bytes to the block's file (`pending` extents).
"""
import os

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memmove, memset

from storage._block cimport (
    BlockJob, BLOCK_CUT, BLOCK_ENCRYPTED, BLOCK_HEAD, BLOCK_SEALED, JOB_CLOSE, JOB_SEAL, add_slot, new_block_file,
    run_close, takes_slot, write_through)
from storage._blocktable cimport new_job
from storage._cipher cimport CIPHER_ROOM, encrypt_record
from storage._codec cimport (
    KIND_MESSAGE, RECORD_SIZE_MAX, encode_record, encoded_size, file_counted_size, load64, store64)
from storage._commitlog cimport FRAME_BLOCK, FRAME_DROP, FRAME_FORGET, FRAME_GONE, FRAME_META, FRAME_RECORDS
from storage._lifecycle cimport leave_job, meta_job
from storage._record cimport fetch_ahead
from storage._seal cimport run_end, run_seal
from storage._workshop cimport Workshop

cdef enum:
    BLOCK_SIZE_STEP = 64 << 10
    FORGETS_PER_FRAME = 4096
    LOG_GROUP_BYTES = 96     # of the object


cdef class WritingTable(FramingTable):
    """The part of a BlockHome that writes."""

    def __cinit__(self, Workshop shop, str path, uint64_t group, uint64_t salt):
        self.next_number = 1
        self.erasures = {}
        self.log_group = LogGroup(group)

    def __dealloc__(self):
        free(self.forgets)

    # -- writing -----------------------------------------------------------------------------------

    cdef Block* open_block(self, uint64_t first_seq, uint64_t size) except NULL:
        """A new active block with room for a record of `size`."""
        cdef uint64_t capacity = self.shop.block_size_min
        if self.block_count:
            capacity = <uint64_t>self.blocks[self.block_count - 1].capacity * 4
            capacity = min(max(capacity, self.shop.block_size_min), self.shop.block_size_max)
        if capacity < size + BLOCK_HEAD:
            capacity = (size + BLOCK_HEAD + BLOCK_SIZE_STEP - 1) // BLOCK_SIZE_STEP * BLOCK_SIZE_STEP
        return self.begin_block(self.next_number, first_seq, <uint32_t>capacity)

    cdef Block* begin_block(self, uint64_t number, uint64_t first_seq, uint32_t capacity) except NULL:
        """Its file comes with the first write."""
        cdef Block* block = <Block*>calloc(1, sizeof(Block))
        if block == NULL:
            raise MemoryError
        if self.block_count == self.block_room:
            self.block_room = self.block_room * 2 or 8
            self.blocks = <Block**>realloc(self.blocks, self.block_room * sizeof(Block*))
            if self.blocks == NULL:
                raise MemoryError
        block.number = number
        block.first_seq = first_seq
        block.capacity = capacity
        block.data_end = block.written = BLOCK_HEAD
        block.prior_checksum = self.last_checksum
        block.index_owned = True
        block.flags = BLOCK_ENCRYPTED if self.key is not None else 0
        block.file = new_block_file(self.block_path(block.number), self.path, &self.shop.open_files, block,
                                    self.group, self.salt, self.last_checksum)
        self.blocks[self.block_count] = block
        self.block_count += 1
        self.next_number = number + 1
        self.active = block
        return block

    cdef Block* make_room(self, uint64_t seq, uint64_t size) except NULL:
        """The active block with room for one more record. The log tells where a block begins, so that a
        replay puts every record where it was."""
        cdef Block* block = self.active
        cdef char* at
        if block != NULL and block.offsets == NULL and block.data_end > BLOCK_HEAD and self.need_index(block) == 0:
            self.seal_active()
        elif block != NULL and (<uint64_t>block.data_end + size > block.capacity or not takes_slot(block, seq)):
            self.seal_active()
        if self.active == NULL:
            self.open_block(seq, size)
            at = self.shop.log.extend(self.log_group, FRAME_BLOCK, 24)
            store64(at, self.active.number)
            store64(at + 8, seq)
            store64(at + 16, self.active.capacity)
        return self.active

    cdef int seal_active(self) except -1:
        """No more appends to this block; its footer is written behind the open batch."""
        cdef Block* block = self.active
        cdef BlockJob* job
        cdef int readable
        if block == NULL:
            return 0
        if self.replaying:
            self.flush_replayed()
        self.active = NULL
        readable = self.need_index(block)   # before it counts as sealed: a footer in its file is from a lost future
        block.flags |= BLOCK_SEALED
        job = new_job(JOB_SEAL if readable else JOB_CLOSE, self)
        job.job.run = run_close if readable == 0 else run_end if block.flags & BLOCK_CUT else run_seal
        job.block = block
        job.file = block.file
        if readable == 0:
            block.file = NULL       # nothing is queued for it; the block thread may have it open
        job.seal = block[0]
        job.at = block.capacity
        self.touch()
        self.shop.queue_after(job)
        return 0

    cdef void foresee(self, int step) noexcept nogil:
        cdef Block* block = self.active
        if step == 0:
            fetch_ahead(block, sizeof(Block))
            fetch_ahead(<void*>self.log_group, LOG_GROUP_BYTES)
            fetch_ahead(&self.pending[self.pending_count - 1], 2 * sizeof(Extent))
        elif step == 1 and block != NULL:
            fetch_ahead(&block.offsets[block.slots], sizeof(uint32_t))

    cdef int append(self, const Record* record) except -1:
        cdef bint encrypted = self.key is not None and record.skip_count == 0
        cdef uint64_t size = encoded_size(record) + (CIPHER_ROOM if encrypted else 0)
        cdef char* at
        if record.seq <= self.last_seq or record.seq < self.floor:
            raise ValueError(f"sequence {record.seq} is not above {max(self.last_seq, self.floor - 1)}")
        if size > RECORD_SIZE_MAX:
            raise ValueError(f"a record of {size} bytes is larger than {RECORD_SIZE_MAX}")
        self.make_room(record.seq, size)
        at = self.shop.log.extend(self.log_group, FRAME_RECORDS, size)
        if encrypted:
            encrypt_record(at, record, self.salt, self.key)
        else:
            encode_record(at, record, self.salt)
        if self.log_group.frame_position >= self.log_group.place_due:
            self.log_group.note_place(record.seq, self.shop.log)
        return self.place(record, <uint32_t>size, at, load64(at + size - 8))

    cdef int skip(self, uint64_t first, uint64_t count) except -1:
        cdef Record record
        memset(&record, 0, sizeof(Record))
        if count == 0:
            return 0
        record.seq = first
        record.skip_count = count
        return self.append(&record)

    cdef int begin_whole(self) except -1:
        self.shop.log.close_frame()
        self.log_group.goes_on = True
        return 0

    cdef int end_whole(self) except -1:
        self.log_group.goes_on = False
        if self.log_group.left_open and self.shop.log.frame_group is not self.log_group:
            # Another group wrote meanwhile, so that the last frame was closed as one that goes on.
            self.shop.log.extend(self.log_group, FRAME_RECORDS, 0)
            self.touch()
        return 0

    cdef int place(self, const Record* record, uint32_t size, const char* encoded,
                   uint64_t checksum) except -1:
        """Give an encoded record its place in the active block."""
        cdef Block* block = self.active
        if block != NULL and block.offsets == NULL and block.data_end > BLOCK_HEAD:
            if self.need_index(block) == 0:
                self.seal_active()
                block = NULL
        if block != NULL and <uint64_t>block.data_end + size > block.capacity:
            self.seal_active()
            block = NULL
        if block == NULL:
            block = self.open_block(record.seq, size)
        if add_slot(block, record.seq, block.data_end) == -2:
            self.seal_active()
            block = self.open_block(record.seq, size)
            add_slot(block, record.seq, block.data_end)
        if encoded[4] == KIND_MESSAGE and encoded[5] == 0:
            block.flags &= ~<uint32_t>BLOCK_ENCRYPTED
        self.touch()
        self.add_extent(block, block.data_end, size, encoded)
        block.data_end += size
        block.last_seq = record.seq
        block.last_checksum = self.last_checksum = checksum
        if record.skip_count:
            block.skips += 1
            block.last_seq += record.skip_count - 1
        else:
            if block.messages == 0 or record.ts_ns < block.min_ts:
                block.min_ts = record.ts_ns
            if block.messages == 0 or record.ts_ns > block.max_ts:
                block.max_ts = record.ts_ns
            block.messages += 1
            block.counted += file_counted_size(record)
        self.last_seq = block.last_seq
        return 0

    cdef int add_extent(self, Block* block, uint32_t at, uint32_t size, const char* data) except -1:
        """Remember that `data` is to be written at `at`; contiguous bytes become one extent."""
        cdef Extent* last
        cdef uint64_t ticket = self.shop.log.ticket if self.shop.log is not None else 0
        if self.pending_count > self.pending_head:
            last = &self.pending[self.pending_count - 1]
            if last.block == block and last.ticket == ticket and last.data + last.size == data:
                last.size += size
                return 0
        if self.pending_count == self.pending_room:
            if self.pending_head > self.pending_room // 2:
                self.pending_count -= self.pending_head
                memmove(self.pending, self.pending + self.pending_head, self.pending_count * sizeof(Extent))
                self.pending_head = 0
            else:
                self.pending_room = self.pending_room * 2 or 8
                self.pending = <Extent*>realloc(self.pending, self.pending_room * sizeof(Extent))
                if self.pending == NULL:
                    raise MemoryError
        last = &self.pending[self.pending_count]
        last.file = block.file
        last.block = block
        last.at = at
        last.size = size
        last.data = data
        last.ticket = ticket
        self.pending_count += 1
        return 0

    cdef int flush_replayed(self) except -1:
        """Write what a replay has placed, before the bytes it came from go."""
        cdef Extent* extent
        cdef size_t index
        cdef int result
        for index in range(self.pending_head, self.pending_count):
            extent = &self.pending[index]
            result = write_through(extent.file, &self.shop.files.calls, extent.data, extent.size, extent.at)
            if result < 0:
                raise OSError(-result, os.strerror(-result), self.block_path(extent.block.number))
            extent.block.written = extent.at + extent.size
        self.pending_head = self.pending_count = 0
        return 0

    cdef int close_batch(self) except -1:
        """Before the log's batch is closed: the frames that were put off until now."""
        cdef char* at
        self.flush_forgets()
        if self.floor_dirty:
            self.floor_dirty = False
            at = self.shop.log.extend(self.log_group, FRAME_DROP, 8)
            store64(at, self.floor)
            self.shop.log.close_frame()
        return 0

    cdef int flush_forgets(self) except -1:
        """Log the deletes that `drop_below` did not overtake."""
        cdef size_t index, kept = 0, done = 0, now
        cdef char* at
        for index in range(self.forget_count):
            if self.forgets[index] >= self.floor:
                self.forgets[kept] = self.forgets[index]
                kept += 1
        self.forget_count = 0
        while done < kept:
            now = min(kept - done, <size_t>FORGETS_PER_FRAME)
            at = self.shop.log.extend(self.log_group, FRAME_FORGET, now * 8)
            memcpy(at, self.forgets + done, now * 8)
            done += now
        return 0

    cdef size_t copy_extents(self, uint64_t ticket, Extent* out) except? 0:
        """What the block thread does not have yet, up to the batch `ticket`, to `out` unless NULL; how many."""
        cdef size_t end = self.pending_count
        cdef size_t begin
        while end > self.pending_head and self.pending[end - 1].ticket > ticket:
            end -= 1
        begin = end
        while begin > self.pending_head and self.pending[begin - 1].ticket > self.handed_ticket:
            begin -= 1
        if out != NULL and begin < end:
            memcpy(out, self.pending + begin, (end - begin) * sizeof(Extent))
        return end - begin

    cdef void applied(self, uint64_t ticket) noexcept:
        """The block thread wrote all batches up to `ticket`."""
        cdef Extent* extent
        while self.pending_head < self.pending_count and self.pending[self.pending_head].ticket <= ticket:
            extent = &self.pending[self.pending_head]
            extent.block.written = extent.at + extent.size
            self.pending_head += 1
        if self.pending_head == self.pending_count:
            self.pending_head = self.pending_count = 0

    # -- the stream itself -----------------------------------------------------------------------------

    cdef bint is_blank(self) noexcept:
        """Nothing but its meta was ever on the disk, and nothing is to be."""
        return self.checkpoint_index == 0 and self.next_number == 1 and self.last_seq == 0 and self.floor <= 1 and (
            not self.lost)

    cdef int keep_meta(self, bytes content) except -1:
        """The meta file is to have this `content`: it lasts with the open batch, the file follows."""
        cdef char* at = self.shop.log.extend(self.log_group, FRAME_META, len(content))
        memcpy(at, PyBytes_AS_STRING(content), len(content))
        self.shop.log.close_frame()
        self.fresh_meta = content
        self.meta_writes += 1
        self.touch()
        self.shop.must_sync = True
        return self.shop.queue_after(meta_job(self, content))

    cdef int leave(self) except -1:
        """The stream is deleted with the open batch; its files follow."""
        self.shop.log.extend(self.log_group, FRAME_GONE, 0)
        self.shop.log.close_frame()
        self.touch()
        self.left = True
        self.shop.must_sync = True
        return self.shop.queue_after(leave_job(self))
