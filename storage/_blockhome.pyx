# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""One stream's messages on disk: a table of blocks over the shared commit log.

Contract: DESIGN.md, "The seam". An append is encoded once, into the commit log's chunk; the block
thread later writes the same bytes to the block's file. Until then reads are served from the chunk
(`pending` extents), afterwards from a map of the file. A sealed block has no index in memory: it
is in the footer, read through the map. Nothing is served before its checksum was seen to hold.
"""
import os
from collections import deque
from pathlib import Path

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset, strdup

from storage._block cimport (
    BLOCK_CUT, BLOCK_FRAMED, BLOCK_GONE, BLOCK_HAS_DEAD, BLOCK_HEAD, BLOCK_REWRITING, BLOCK_ROW_SIZE, BLOCK_SEALED,
    BLOCK_SPARSE, BLOCK_UNREADABLE, JOB_CHECKPOINT, JOB_COMPACT, JOB_ERASE, JOB_REMOVE, JOB_SEAL, add_slot, check_head,
    close_block_file, find_slot, free_block, free_block_file, load_row, load_trailer, new_block_file,
    run_checkpoint, run_compact, run_end, run_erase, run_remove, run_seal, slot_at_or_after, store_row, write_through)
from storage._codec cimport (
    KIND_ERASED, KIND_MESSAGE, KIND_SKIP, RECORD_FIXED, RECORD_SIZE_MAX, check_record, encode_record,
    encoded_size, erase_record, file_counted_size, load32, load64, store16, store32, store64,
    view_record, xxh64)
from storage._commitlog cimport (
    FRAME_CUT, FRAME_DROP, FRAME_ERASE, FRAME_FORGET, FRAME_RECORDS, Chunk)
from storage._disk cimport Job
from storage._fs cimport FileMap, map_file
from storage._record cimport RecordVisit

cdef enum:
    STATE_HEAD = 128
    BLOCK_SIZE_STEP = 64 << 10
    FORGETS_PER_FRAME = 4096


cdef class Workshop:
    """Shared by the homes of one directory; DataDirectory owns it."""

    def __cinit__(self, Files files, uint32_t block_size_min, uint32_t block_size_max, int files_open_max):
        self.files = files
        self.touched = []
        self.in_flight = deque()
        self.candidates = deque()
        self.block_size_min = block_size_min
        self.block_size_max = block_size_max
        self.open_files.count_max = files_open_max

    def close_files(self) -> None:
        """When the block thread has ended."""
        while self.open_files.newest != NULL:
            close_block_file(self.open_files.newest, &self.files.calls)

    def __dealloc__(self):
        cdef size_t index
        for index in range(self.after_count):
            free(self.after[index])
        free(self.after)

    cdef Chunk chunk_of(self, const char* at):
        """The chunk that `at` points into; None: none that is still under way."""
        cdef Chunk chunk
        for chunks in (*self.in_flight, [self.log.chunk]):
            for chunk in chunks:
                if chunk is not None and chunk.data <= at < chunk.data + chunk.used:
                    return chunk
        return None

    cdef int queue_after(self, BlockJob* job) except -1:
        """Keep `job` until the open batch is handed over; while replaying it runs at once."""
        cdef BlockHome home
        cdef int result
        if self.log is None:
            result = job.job.run(&job.job, &self.files.calls)
            home = <BlockHome>job.owner
            home.job_done(job)
            if result < 0:
                raise OSError(-result, os.strerror(-result), home.path)
            return 0
        if self.after_count == self.after_room:
            self.after_room = self.after_room * 2 or 16
            self.after = <BlockJob**>realloc(self.after, self.after_room * sizeof(BlockJob*))
            if self.after == NULL:
                raise MemoryError
        self.after[self.after_count] = job
        self.after_count += 1
        return 0


cdef BlockJob* new_job(int kind, BlockHome owner) except NULL:
    cdef BlockJob* job = <BlockJob*>calloc(1, sizeof(BlockJob))
    if job == NULL:
        raise MemoryError
    job.kind = kind
    Py_INCREF(owner)
    job.owner = <PyObject*>owner
    job.group = owner.group
    job.salt = owner.salt
    return job


cdef inline bint is_dead(const Block* block, uint32_t slot) noexcept nogil:
    return slot >> 3 < block.dead_room and block.dead_bits[slot >> 3] & (1 << (slot & 7)) != 0


cdef class BlockHome(RecordHome):
    """See the module. Made by DataDirectory."""

    def __cinit__(self, Workshop shop, str path, uint64_t group, uint64_t salt):
        self.shop = shop
        self.path = path
        self.group = group
        self.salt = salt
        self.floor = 1
        self.next_number = 1
        self.lost = []
        self.damage = []
        self.gone = set()
        self.log_group = LogGroup(group)

    def __dealloc__(self):
        cdef size_t index
        for index in range(self.block_count):
            free_block_file(self.blocks[index].file)
            free_block(self.blocks[index])
        free(self.blocks)
        free(self.pending)
        free(self.forgets)

    def close_files(self) -> None:
        """Before this home goes for good; nothing may be under way."""
        cdef size_t index
        for index in range(self.block_count):
            if self.blocks[index].file != NULL:
                close_block_file(self.blocks[index].file, &self.shop.files.calls)

    # -- writing -----------------------------------------------------------------------------------

    cdef int touch(self) except -1:
        """Join the open batch."""
        if not self.touched:
            self.touched = True
            self.shop.touched.append(self)
        return 0

    cdef Block* open_block(self, uint64_t first_seq, uint64_t size) except NULL:
        """A new active block with room for a record of `size`. Its file comes with the first write."""
        cdef Block* block = <Block*>calloc(1, sizeof(Block))
        cdef uint64_t capacity = self.shop.block_size_min
        if block == NULL:
            raise MemoryError
        if self.block_count:
            capacity = <uint64_t>self.blocks[self.block_count - 1].capacity * 4
            capacity = min(max(capacity, self.shop.block_size_min), self.shop.block_size_max)
        if capacity < size + BLOCK_HEAD:
            capacity = (size + BLOCK_HEAD + BLOCK_SIZE_STEP - 1) // BLOCK_SIZE_STEP * BLOCK_SIZE_STEP
        if self.block_count == self.block_room:
            self.block_room = self.block_room * 2 or 8
            self.blocks = <Block**>realloc(self.blocks, self.block_room * sizeof(Block*))
            if self.blocks == NULL:
                raise MemoryError
        block.number = self.next_number
        block.first_seq = first_seq
        block.capacity = <uint32_t>capacity
        block.data_end = block.written = BLOCK_HEAD
        block.prior_checksum = self.last_checksum
        block.index_owned = True
        block.file = new_block_file(self.block_path(block.number), self.path, &self.shop.open_files, block,
                                    self.group, self.salt, self.last_checksum)
        self.blocks[self.block_count] = block
        self.block_count += 1
        self.next_number += 1
        self.active = block
        return block

    def block_path(self, number: int) -> str:
        return f"{self.path}/{number:016x}.blk"

    cdef int seal_active(self) except -1:
        """No more appends to this block; its footer is written behind the open batch."""
        cdef Block* block = self.active
        cdef BlockJob* job
        if block == NULL:
            return 0
        self.active = NULL
        block.flags |= BLOCK_SEALED
        if self.need_index(block) == 0:
            free_block_file(block.file)     # an unreadable file from before: nothing is queued for it
            block.file = NULL
            return 0
        job = new_job(JOB_SEAL, self)
        job.job.run = run_end if block.flags & BLOCK_CUT else run_seal
        job.block = block
        job.file = block.file
        job.seal = block[0]
        self.touch()
        self.shop.queue_after(job)
        return 0

    cdef int append(self, const Record* record) except -1:
        cdef uint64_t size = encoded_size(record)
        cdef char* at
        if record.seq <= self.last_seq or record.seq < self.floor:
            raise ValueError(f"sequence {record.seq} is not above {max(self.last_seq, self.floor - 1)}")
        if size > RECORD_SIZE_MAX:
            raise ValueError(f"a record of {size} bytes is larger than {RECORD_SIZE_MAX}")
        at = self.shop.log.extend(self.log_group, FRAME_RECORDS, size)
        encode_record(at, record, self.salt)
        return self.place(record, <uint32_t>size, at, load64(at + size - 8))

    cdef int skip(self, uint64_t first, uint64_t count) except -1:
        cdef Record record
        memset(&record, 0, sizeof(Record))
        if count == 0:
            return 0
        record.seq = first
        record.skip_count = count
        return self.append(&record)

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
        cdef uint64_t ticket
        cdef int result
        if self.replaying:
            result = write_through(block.file, &self.shop.files.calls, data, size, at)
            if result < 0:
                raise OSError(-result, os.strerror(-result), self.block_path(block.number))
            block.written = at + size
            return 0
        ticket = self.shop.log.ticket
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
        """Those of the batch `ticket`, to `out` unless NULL; how many."""
        cdef size_t index = self.pending_count
        cdef size_t count = 0
        while index > self.pending_head and self.pending[index - 1].ticket > ticket:
            index -= 1
        while index > self.pending_head and self.pending[index - 1].ticket == ticket:
            index -= 1
            count += 1
        if out != NULL and count:
            memcpy(out, self.pending + index, count * sizeof(Extent))
        return count

    cdef void applied(self, uint64_t ticket) noexcept:
        """The block thread wrote all batches up to `ticket`."""
        cdef Extent* extent
        while self.pending_head < self.pending_count and self.pending[self.pending_head].ticket <= ticket:
            extent = &self.pending[self.pending_head]
            extent.block.written = extent.at + extent.size
            self.pending_head += 1
        if self.pending_head == self.pending_count:
            self.pending_head = self.pending_count = 0

    # -- taking away -------------------------------------------------------------------------------

    cdef int mark_dead(self, Block* block, uint32_t slot) except -1:
        """0: it was dead already."""
        cdef uint32_t need = (max(block.slots, slot + 1) + 7) // 8
        cdef uint8_t* grown
        if need > block.dead_room:
            if not block.flags & BLOCK_SEALED:
                need = max(need, block.dead_room * 2)
            grown = <uint8_t*>realloc(block.dead_bits, need)
            if grown == NULL:
                raise MemoryError
            memset(grown + block.dead_room, 0, need - block.dead_room)
            block.dead_bits = grown
            block.dead_room = need
        if block.dead_bits[slot >> 3] & (1 << (slot & 7)):
            return 0
        block.dead_bits[slot >> 3] |= <uint8_t>(1 << (slot & 7))
        block.dead += 1
        if block.dead == block.messages // 2 + 1 and block.data_end >= self.shop.block_size_min // 2:
            self.shop.candidates.append((self, block.number))
        return 1

    cdef int apply_forget(self, uint64_t seq) except -1:
        """1: it was there. Removes a sealed block that has nothing live left."""
        cdef Block* block = self.find_block(seq)
        cdef int64_t slot
        if block == NULL or seq < self.floor:
            return 0
        if self.need_index(block) == 0:
            return self.forget_unreadable(seq, block)
        slot = find_slot(block, seq)
        if slot < 0 or self.mark_dead(block, <uint32_t>slot) == 0:
            return 0
        if block.dead >= block.messages and block.flags & BLOCK_SEALED and block.skips == 0:
            self.remove_block(self.block_index_from(seq))
        return 1

    cdef int forget_unreadable(self, uint64_t seq, Block* block) except -1:
        """While replaying, a block whose file went after its last record did."""
        if not self.replaying:
            return 0
        self.index_stale = True
        block.dead += 1
        if block.dead >= block.messages:
            self.remove_block(self.block_index_from(seq))
        return 1

    cdef int forget(self, uint64_t seq, bint erase) except -1:
        cdef Record record
        cdef Block* block
        cdef char* at
        if erase:
            if self.read(seq, &record) == 0:
                return 0
            block = self.find_block(seq)
            at = self.shop.log.extend(self.log_group, FRAME_ERASE, 8)
            store64(at, seq)
            self.shop.log.close_frame()
            self.queue_erase(block, <uint32_t>find_slot(block, seq))
        if self.apply_forget(seq) == 0:
            return 0
        self.touch()
        if not erase:
            if self.forget_count == self.forget_room:
                self.forget_room = self.forget_room * 2 or 64
                self.forgets = <uint64_t*>realloc(self.forgets, self.forget_room * 8)
                if self.forgets == NULL:
                    raise MemoryError
            self.forgets[self.forget_count] = seq
            self.forget_count += 1
        return 1

    cdef int queue_erase(self, Block* block, uint32_t slot) except -1:
        """Random bytes over the record, behind the open batch's writes."""
        cdef const char* at = self.locate(block, slot)
        cdef uint32_t size = load32(at)
        cdef BlockJob* job = new_job(JOB_ERASE, self)
        cdef bytes noise = os.urandom(size - RECORD_FIXED)
        cdef bytes content = PyBytes_FromStringAndSize(at, size)
        erase_record(PyBytes_AS_STRING(content), noise, self.salt)
        job.job.run = run_erase
        Py_INCREF(content)
        job.keep = <PyObject*>content
        job.data = PyBytes_AS_STRING(content)
        job.size = size
        job.at = block.offsets[slot]
        job.seq = load64(at + 8)
        job.path = strdup(os.fsencode(self.block_path(block.number)))
        return self.shop.queue_after(job)

    cdef int apply_drop(self, uint64_t seq) except -1:
        cdef size_t gone = 0
        if seq <= self.floor:
            return 0
        self.floor = seq
        if seq > self.last_seq + 1:
            self.last_seq = seq - 1
        while gone < self.block_count and self.blocks[gone].last_seq < seq:
            gone += 1
        while gone:
            self.remove_block(0)
            gone -= 1
        return 1

    cdef int drop_below(self, uint64_t seq) except -1:
        if self.apply_drop(seq):
            self.floor_dirty = True
            self.touch()
        return 0

    cdef int apply_cut(self, uint64_t seq) except -1:
        """Whole blocks go; the one that holds `seq` is sealed where it ends now."""
        cdef Block* block
        cdef uint32_t slot
        if seq >= self.last_seq:
            return 0
        while self.block_count and self.blocks[self.block_count - 1].first_seq > seq:
            self.remove_block(self.block_count - 1)
        self.last_seq = seq
        self.floor = min(self.floor, seq + 1)
        if self.block_count == 0:
            return 1
        block = self.blocks[self.block_count - 1]
        if block.last_seq <= seq or self.need_index(block) == 0:
            return 1
        slot = <uint32_t>slot_at_or_after(block, seq + 1)
        self.shorten(block, slot, seq)
        return 1

    cdef int shorten(self, Block* block, uint32_t slot, uint64_t seq) except -1:
        """End the last block before `slot`. Its footer may say more; the row is what counts."""
        cdef uint32_t at = slot
        cdef Record record
        cdef const char* data
        while at < block.slots and block.offsets[at] == 0:
            at += 1
        if at < block.slots:
            block.data_end = block.offsets[at]
        block.slots = slot
        block.last_seq = seq
        block.messages = block.skips = block.dead = 0
        block.counted = 0
        for at in range(slot):
            data = self.locate(block, at) if block.offsets[at] else NULL
            if data == NULL:
                continue
            view_record(data, &record)
            block.last_checksum = load64(data + load32(data) - 8)
            if record.skip_count:
                block.skips += 1
                continue
            block.messages += 1
            block.counted += file_counted_size(&record)
            block.dead += is_dead(block, at)
        self.last_checksum = block.last_checksum
        block.flags |= BLOCK_CUT
        if block == self.active:
            self.seal_active()
        return 0

    cdef int cut_above(self, uint64_t seq) except -1:
        cdef char* at
        if seq >= self.last_seq:
            return 0
        self.flush_forgets()
        at = self.shop.log.extend(self.log_group, FRAME_CUT, 8)
        store64(at, seq)
        self.shop.log.close_frame()
        self.touch()
        self.apply_cut(seq)
        return 0

    cdef int compact(self, uint64_t number) except -1:
        """Have the block thread rewrite a sealed, mostly dead block; 0: not now."""
        cdef size_t index
        cdef Block* block = NULL
        cdef BlockJob* job
        for index in range(self.block_count):
            if self.blocks[index].number == number:
                block = self.blocks[index]
        if block == NULL or block.flags & (BLOCK_CUT | BLOCK_UNREADABLE | BLOCK_REWRITING):
            return 0
        if not block.flags & BLOCK_SEALED or block.file != NULL or self.need_index(block) == 0:
            return 0
        if block.index_owned:
            return 0            # its footer does not hold; leave the evidence
        block.flags |= BLOCK_REWRITING
        job = new_job(JOB_COMPACT, self)
        job.job.run = run_compact
        job.block = block
        job.path = strdup(os.fsencode(self.block_path(number)))
        job.directory = strdup(os.fsencode(self.path))
        job.data, job.size = block.data, block.data_size
        job.at = self.floor
        job.seal = block[0]
        dead = dead_bytes(block)
        keep = (<object>block.map, dead)
        Py_INCREF(keep)
        job.keep = <PyObject*>keep
        job.seal.dead_bits = <uint8_t*>PyBytes_AS_STRING(dead)
        job.seal.dead_room = <uint32_t>len(dead)
        self.touch()
        return self.shop.queue_after(job) + 1

    cdef int take_rewritten(self, BlockJob* job) except -1:
        """Switch to the rewritten file; what died meanwhile is dead in it too."""
        cdef Block* block = job.block
        cdef bytes before = (<tuple>job.keep)[1]
        cdef const char* start = before
        cdef uint32_t slot
        block.flags &= ~<uint32_t>BLOCK_REWRITING
        if job.ticket == 0:
            return 0
        died = []
        for slot in range(block.slots):
            if is_dead(block, slot) and not start[slot >> 3] & (1 << (slot & 7)):
                died.append(block.first_seq + (block.deltas[slot] if block.deltas != NULL else slot))
        self.let_go_map(block)
        self.adopt_footer(block, &job.seal)
        block.last_checksum = job.seal.last_checksum
        block.flags |= BLOCK_SEALED | BLOCK_SPARSE
        for seq in died:
            self.apply_forget(seq)
        if block.messages == 0 and block.skips == 0 and not block.flags & BLOCK_GONE:
            self.remove_block(self.block_index_from(block.first_seq))
        return 0

    cdef int remove_block(self, size_t index) except -1:
        """Forget a block now; its file goes when the batch that says so is durable."""
        cdef Block* block = self.blocks[index]
        cdef BlockJob* job = new_job(JOB_REMOVE, self)
        block.flags |= BLOCK_GONE
        if block == self.active:
            self.active = NULL
        self.block_count -= 1
        memmove(self.blocks + index, self.blocks + index + 1, (self.block_count - index) * sizeof(Block*))
        self.hint = 0
        job.job.run = run_remove
        job.block = block
        job.file = block.file
        job.path = strdup(os.fsencode(self.block_path(block.number)))
        self.touch()
        return self.shop.queue_after(job)

    cdef int job_done(self, BlockJob* job) except -1:
        """The block thread is through with `job`; free it."""
        cdef Block* block = job.block
        if job.kind == JOB_SEAL:
            if job.job.result == 0 and not block.flags & BLOCK_GONE:
                self.let_go_map(block)
                free(block.offsets)
                free(block.deltas)
                block.offsets = block.deltas = NULL
                block.index_owned = False
                block.file = NULL
                free_block_file(job.file)
                if block.dead > block.messages // 2:
                    self.shop.candidates.append((self, block.number))
        elif job.kind == JOB_REMOVE:
            self.let_go_map(block)
            if job.file != NULL:
                # Still open only if the disk failed before the job ran; the thread touches nothing then.
                close_block_file(job.file, &self.shop.files.calls)
            free_block_file(job.file)
            free_block(block)
        elif job.kind == JOB_COMPACT:
            if not block.flags & BLOCK_GONE:
                self.take_rewritten(job)
        elif job.kind == JOB_CHECKPOINT:
            self.checkpoint_running = False
            if job.job.result == 0:
                self.checkpoint_index = job.index
                self.log_group.contained_up_to(job.index, job.segment)
        Py_XDECREF(job.keep)
        free(job.path)
        free(job.directory)
        free(job.extents)
        Py_XDECREF(job.owner)
        free(job)
        return 0

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
        if file is None or not check_head(file.data, file.size, self.group, block.number):
            block.flags |= BLOCK_UNREADABLE
            if not self.replaying:
                self.note_unreadable(block)
            return 0
        Py_INCREF(file)
        block.map = <PyObject*>file
        block.data = file.data
        block.data_size = file.size
        self.shop.maps_open += 1
        return 1

    cdef int note_unreadable(self, Block* block) except -1:
        return self.note_lost(max(block.first_seq, self.floor), block.last_seq,
                              f"{self.block_path(block.number)}: missing, or its header does not hold")

    cdef void let_go_map(self, Block* block) noexcept:
        """Forget the map, and the index that lies in it. A pinned view keeps the memory alive."""
        if block.map == NULL:
            return
        Py_XDECREF(block.map)
        block.map = NULL
        block.data = NULL
        block.data_size = 0
        self.shop.maps_open -= 1
        if not block.index_owned:
            block.offsets = block.deltas = NULL

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
        if footer.generation > block.generation:
            self.adopt_footer(block, &footer)
        if footer.slots < block.slots or footer.data_end < block.data_end:
            return self.scan_block(block)
        block.offsets = <uint32_t*>(block.data + index_start)
        if footer.flags & BLOCK_SPARSE:
            block.deltas = block.offsets + footer.slots
        return 1

    cdef int scan_block(self, Block* block) except -1:
        """Rebuild the index from the records up to `data_end`; what does not hold is lost."""
        cdef Block fresh
        cdef Record record
        cdef uint64_t at = BLOCK_HEAD
        cdef uint64_t end = min(<uint64_t>block.data_end, block.data_size)
        cdef uint32_t size
        cdef uint64_t next_seq = block.first_seq
        cdef bint bad = False
        memset(&fresh, 0, sizeof(Block))
        fresh.first_seq = block.first_seq
        while at < end:
            size = check_record(block.data + at, end - at, self.salt)
            if size:
                view_record(block.data + at, &record)
            if size == 0 or record.seq < next_seq or record.seq > block.last_seq:
                bad = True
                at += 1
                continue
            if bad:
                self.note_lost(next_seq, record.seq - 1, f"{self.block_path(block.number)}: records do not hold")
                bad = False
            add_slot(&fresh, record.seq, <uint32_t>at)
            next_seq = record.seq + max(record.skip_count, <uint64_t>1)
            at += size
        if (bad or end < block.data_end) and next_seq <= block.last_seq:
            self.note_lost(next_seq, block.last_seq, f"{self.block_path(block.number)}: records do not hold")
        block.offsets = fresh.offsets
        block.deltas = fresh.deltas
        block.slots = fresh.slots
        block.slot_room = fresh.slot_room
        block.flags = block.flags & ~<uint32_t>BLOCK_SPARSE | (fresh.flags & BLOCK_SPARSE)
        block.index_owned = True
        return block.offsets != NULL

    cdef int adopt_footer(self, Block* block, const Block* footer) except -1:
        """The file was rewritten after the checkpoint: what was dead then is not in it any more."""
        if self.replaying:
            self.index_stale = True
        block.slots = footer.slots
        block.messages = footer.messages
        block.skips = footer.skips
        block.data_end = block.written = footer.data_end
        block.generation = footer.generation
        block.counted = footer.counted
        block.flags = footer.flags | (block.flags & BLOCK_CUT)
        free(block.dead_bits)
        block.dead_bits = NULL
        block.dead_room = 0
        block.dead = 0
        return 0

    cdef int note_lost(self, uint64_t first, uint64_t last, str what) except -1:
        """Report sequences that cannot be served, once."""
        if what not in self.damage:
            self.damage.append(what)
        if first <= last and [first, last] not in self.lost:
            self.lost.append([first, last])
        return 0

    # -- reading -----------------------------------------------------------------------------------

    cdef const char* locate(self, Block* block, uint32_t slot) except? NULL:
        """The bytes of a slot's record, checked; NULL: damaged, or not readable."""
        cdef uint32_t offset = block.offsets[slot]
        cdef const char* at
        cdef size_t index
        cdef Extent* extent
        cdef uint64_t seq
        if offset >= block.written:
            for index in range(self.pending_head, self.pending_count):
                extent = &self.pending[index]
                if extent.block == block and extent.at <= offset < extent.at + extent.size:
                    return extent.data + (offset - extent.at)
            return NULL
        if self.need_map(block) == 0:
            return NULL
        at = block.data + offset
        seq = block.first_seq + (block.deltas[slot] if block.deltas != NULL else slot)
        if offset < block.data_size and check_record(at, block.data_size - offset, self.salt) and (
                load64(at + 8) == seq):
            return at
        self.note_lost(seq, seq, f"{self.block_path(block.number)}: record of {seq} does not hold")
        return NULL

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
        view_record(at, out)
        return 1

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
                    if at != NULL and at[4] == KIND_MESSAGE:
                        view_record(at, out)
                        return 1
                slot += 1
        return 0

    cdef int visit(self, uint64_t first, RecordVisit step, void* context) except -1:
        cdef size_t index
        cdef Block* block
        cdef Record record
        cdef int64_t slot
        cdef const char* at
        cdef bint mapped
        first = max(first, self.floor)
        index = self.block_index_from(first)
        while index < self.block_count:
            block = self.blocks[index]
            index += 1
            mapped = block.map != NULL
            if block.offsets == NULL and self.need_index(block) == 0:
                continue
            for slot in range(slot_at_or_after(block, first), block.slots):
                if block.offsets[slot] == 0 or is_dead(block, <uint32_t>slot):
                    continue
                at = self.locate(block, <uint32_t>slot)
                if at == NULL or at[4] == KIND_ERASED:
                    continue
                view_record(at, &record)
                if record.skip_count and record.seq + record.skip_count - 1 > block.last_seq:
                    record.skip_count = block.last_seq - record.seq + 1
                if step(context, &record):
                    return 1
            if not mapped and block != self.active and not block.index_owned:
                self.let_go_map(block)
        return 0

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

    cdef object pin(self, const Record* view):
        cdef Block* block = self.find_block(view.seq)
        cdef size_t index
        if block != NULL and block.map != NULL and block.data <= view.subject < block.data + block.data_size:
            return <object>block.map
        for index in range(self.pending_head, self.pending_count):
            if self.pending[index].data <= view.subject < self.pending[index].data + self.pending[index].size:
                return self.shop.chunk_of(view.subject)
        raise ValueError(f"the view of sequence {view.seq} has ended")

    # -- checkpoint --------------------------------------------------------------------------------

    cdef BlockJob* checkpoint_job(self, uint64_t segment, bint clean) except NULL:
        """What is true now, to be queued behind the batch that has just been closed."""
        cdef BlockJob* job = new_job(JOB_CHECKPOINT, self)
        cdef bytes state = self.encode_state(clean)
        job.job.run = run_checkpoint
        job.index = self.log_group.index
        job.segment = segment
        if self.active != NULL:
            job.file = self.active.file
        Py_INCREF(state)
        job.keep = <PyObject*>state
        job.data = PyBytes_AS_STRING(state)
        job.size = len(state)
        job.directory = strdup(os.fsencode(self.path))
        self.checkpoint_running = True
        self.checkpoint_wanted = False
        return job

    def encode_state(self, clean: bool) -> bytes:
        """The bytes of state.a and state.b (FORMAT.md, section 6)."""
        cdef bytearray out = bytearray(STATE_HEAD + self.block_count * BLOCK_ROW_SIZE)
        cdef char* at = out
        cdef size_t index
        cdef Block* block
        snapshot = self.snapshot_source(clean) if self.snapshot_source is not None else None
        memcpy(at, b"MARTSTA1", 8)
        store16(at + 8, 1)
        store64(at + 16, self.group)
        store64(at + 24, self.log_group.index)
        store64(at + 32, self.floor)
        store64(at + 40, self.last_seq)
        store64(at + 48, self.next_number)
        store64(at + 56, self.last_checksum)
        store32(at + 64, <uint32_t>self.block_count)
        store32(at + 68, clean)
        store64(at + 72, len(snapshot) if snapshot is not None else 0)
        store64(at + 80, self.active.number if self.active != NULL else 0)
        store32(at + 88, <uint32_t>len(self.lost))
        store32(at + 92, snapshot is not None)
        for index in range(self.block_count):
            store_row(at + STATE_HEAD + index * BLOCK_ROW_SIZE, self.blocks[index])
        for index in range(self.block_count):
            block = self.blocks[index]
            if block.dead_bits != NULL and block.dead:
                out += dead_bytes(block)
        for first, last in self.lost:
            out += first.to_bytes(8, "little") + last.to_bytes(8, "little")
        if snapshot is not None:
            out += snapshot
        out += xxh64(out, len(out), self.salt).to_bytes(8, "little")
        return bytes(out)

    def load_state(self) -> bool:
        """Take the newer of the two states that holds; False: there is none, and nothing changed."""
        paths = [Path(self.path, name) for name in ("state.a", "state.b")]
        paths.sort(key=claimed_index, reverse=True)
        for path in paths:
            content = path.read_bytes() if path.exists() else b""
            if self.state_holds(content):
                self.take_state(content)
                return True
            if content:
                self.damage.append(f"{path}: does not hold")
        return False

    def state_holds(self, bytes content) -> bool:
        cdef const char* at = content
        cdef size_t size = len(content)
        return (size >= STATE_HEAD + 8 and memcmp(at, b"MARTSTA1", 8) == 0
                and xxh64(at, size - 8, self.salt) == load64(at + size - 8)
                and load64(at + 16) == self.group)

    cdef int take_state(self, bytes content) except -1:
        cdef const char* at = content
        cdef const char* tail
        cdef size_t index
        cdef Block* block
        self.log_group.resume(load64(at + 24))
        self.checkpoint_index = load64(at + 24)
        self.floor = load64(at + 32)
        self.last_seq = load64(at + 40)
        self.next_number = load64(at + 48)
        self.last_checksum = load64(at + 56)
        self.block_room = self.block_count = load32(at + 64)
        self.blocks = <Block**>calloc(self.block_room or 1, sizeof(Block*))
        tail = at + STATE_HEAD + self.block_count * BLOCK_ROW_SIZE
        for index in range(self.block_count):
            block = <Block*>calloc(1, sizeof(Block))
            self.blocks[index] = block
            load_row(at + STATE_HEAD + index * BLOCK_ROW_SIZE, block)
            if block.flags & BLOCK_HAS_DEAD:
                block.flags &= ~<uint32_t>BLOCK_HAS_DEAD
                block.dead_room = (block.slots + 7) // 8
                block.dead_bits = <uint8_t*>malloc(block.dead_room)
                memcpy(block.dead_bits, tail, block.dead_room)
                tail += block.dead_room
            if block.number == load64(at + 80):
                self.resume_active(block)
        for index in range(load32(at + 88)):
            self.lost.append([load64(tail), load64(tail + 8)])
            tail += 16
        if load32(at + 92):
            self.snapshot = tail[:load64(at + 72)]
        return 0

    cdef int resume_active(self, Block* block) except -1:
        """Append to this block again; its index is read when it is needed."""
        self.active = block
        block.file = new_block_file(self.block_path(block.number), self.path, &self.shop.open_files, block,
                                    self.group, self.salt, block.prior_checksum)
        block.file.made = block.data_end > BLOCK_HEAD
        return 0

    def rebuild(self, index: int) -> None:
        """Without a state: read every block; the log goes on behind frame `index`.

        Which messages had been deleted before that is not known any more.
        """
        self.log_group.resume(index)
        for path in sorted(Path(self.path).glob("*.blk")):
            self.rebuild_block(int(path.stem, 16), str(path))
        if self.block_count:
            self.damage.append(f"{self.path}: state does not hold, read again from the blocks")

    cdef int rebuild_block(self, uint64_t number, str path) except -1:
        """Add one block from its file, by its footer or record by record."""
        cdef Block* block
        cdef FileMap file = map_file(path)
        cdef uint32_t index_start
        cdef uint64_t first_seq
        self.next_number = max(self.next_number, number + 1)
        if not check_head(file.data, file.size, self.group, number):
            self.damage.append(f"{path}: header does not hold")
            return 0
        first_seq = load64(file.data + 32)
        self.open_block(max(first_seq, self.last_seq + 1), 0)
        block = self.active
        self.active = NULL
        self.next_number = max(self.next_number, number + 1)
        free_block_file(block.file)
        block.file = NULL
        block.index_owned = False
        block.number = number
        block.flags = BLOCK_SEALED
        block.prior_checksum = load64(file.data + 40)
        if load_trailer(file.data, file.size, self.group, self.salt, block, &index_start):
            block.written = block.data_end
        else:
            block.data_end = block.written = <uint32_t>file.size
            block.last_seq = 0xFFFFFFFFFFFFFFFF
            self.rescan(block)
        if block.slots == 0:
            self.block_count -= 1
            self.let_go_map(block)
            free_block(block)
            return 0
        self.last_seq = block.last_seq
        self.last_checksum = block.last_checksum
        if self.floor <= 1 and self.block_count == 1:
            self.floor = block.first_seq
        return 0

    cdef int rescan(self, Block* block) except -1:
        """Index a block whose end is not known: everything in it that holds."""
        cdef uint32_t slot
        cdef Record record
        cdef const char* at
        cdef uint32_t end = BLOCK_HEAD
        cdef list lost = self.lost
        cdef list damage = self.damage
        self.lost, self.damage = [], []
        self.need_map(block)
        self.scan_block(block)
        block.last_seq = 0
        for slot in range(block.slots):
            at = self.locate(block, slot) if block.offsets[slot] else NULL
            if at == NULL:
                continue
            view_record(at, &record)
            block.last_seq = record.seq + (record.skip_count - 1 if record.skip_count else 0)
            block.last_checksum = load64(at + load32(at) - 8)
            end = <uint32_t>(block.offsets[slot] + load32(at))
            if record.skip_count:
                block.skips += 1
                continue
            if block.messages == 0 or record.ts_ns < block.min_ts:
                block.min_ts = record.ts_ns
            block.max_ts = max(block.max_ts, record.ts_ns)
            block.messages += 1
            block.counted += file_counted_size(&record)
            if at[4] == KIND_ERASED:
                self.mark_dead(block, slot)
        block.data_end = block.written = end
        for first, last in self.lost:
            if last <= block.last_seq:
                lost.append([first, last])
        self.lost, self.damage = lost, damage
        return 0

    # -- replay ------------------------------------------------------------------------------------

    cdef int replay_frame(self, const Frame* frame) except -1:
        """Do again what the log says, unless the checkpoint contains it."""
        cdef size_t index
        if frame.index <= self.log_group.index or self.torn:
            return 0
        if frame.index != self.log_group.index + 1:
            if frame.after_damage == 1:
                self.torn = True
                return 0
            self.gap = True
            self.salvage()
            self.damage.append(f"{self.path}: log frames {self.log_group.index + 1} to {frame.index - 1} are lost")
        self.log_group.resume(frame.index)
        if frame.kind == FRAME_RECORDS:
            self.replay_records(frame.payload, frame.size)
        elif frame.kind == FRAME_FORGET:
            for index in range(frame.size // 8):
                self.unindex_range(load64(frame.payload + index * 8), load64(frame.payload + index * 8))
                self.apply_forget(load64(frame.payload + index * 8))
                self.gone.add(load64(frame.payload + index * 8))
        elif frame.kind == FRAME_ERASE:
            self.replay_erase(load64(frame.payload))
        elif frame.kind == FRAME_DROP:
            if load64(frame.payload) > self.floor:
                self.unindex_range(self.floor, load64(frame.payload) - 1)
                self.apply_drop(load64(frame.payload))
        elif frame.kind == FRAME_CUT:
            self.index_stale = True
            self.apply_cut(load64(frame.payload))
        return 0

    cdef int replay_erase(self, uint64_t seq) except -1:
        """Erase again; the first try may have been torn, so that the record does not hold any more."""
        cdef Record record
        cdef Block* block
        block = self.find_block(seq)
        if self.read(seq, &record):
            if self.indexer is not None and not self.index_stale:
                self.indexer.unindex(&record)
            self.queue_erase(block, <uint32_t>find_slot(block, seq))
        elif block != NULL and seq >= self.floor and not block.flags & BLOCK_UNREADABLE:
            self.index_stale = True     # its subject is not to be had any more
            self.erase_torn(block, seq)
        self.apply_forget(seq)
        self.gone.add(seq)
        return 0

    cdef int erase_torn(self, Block* block, uint64_t seq) except -1:
        """Write an erased record over the bytes between the neighbours of `seq`."""
        cdef int64_t slot = slot_at_or_after(block, seq)
        cdef int64_t before = slot - 1
        cdef uint64_t start = BLOCK_HEAD
        cdef uint64_t end = block.data_end
        cdef uint64_t now
        cdef BlockJob* job
        cdef bytes content
        while slot < block.slots:
            now = block.first_seq + (block.deltas[slot] if block.deltas != NULL else slot)
            if block.offsets[slot] and now > seq:
                end = block.offsets[slot]
                break
            slot += 1
        while before >= 0 and block.offsets[before] == 0:
            before -= 1
        if before >= 0:
            start = block.offsets[before] + load32(block.data + block.offsets[before])
        if end < start + RECORD_FIXED or (end <= block.data_size and check_record(
                block.data + start, end - start, self.salt)):
            return 0
        content = b"\0" * (end - start)
        store32(PyBytes_AS_STRING(content), <uint32_t>(end - start))
        store64(PyBytes_AS_STRING(content) + 8, seq)
        erase_record(PyBytes_AS_STRING(content), os.urandom(end - start - RECORD_FIXED), self.salt)
        job = new_job(JOB_ERASE, self)
        job.job.run = run_erase
        Py_INCREF(content)
        job.keep = <PyObject*>content
        job.data = PyBytes_AS_STRING(content)
        job.size = end - start
        job.at = start
        job.seq = seq
        job.path = strdup(os.fsencode(self.block_path(block.number)))
        return self.shop.queue_after(job)

    cdef int replay_records(self, const char* at, uint64_t size) except -1:
        """Put the records of a frame back into the blocks, byte for byte."""
        cdef Record record
        cdef uint32_t length
        cdef bint first = True
        while size:
            length = check_record(at, size, self.salt)
            if length == 0:
                self.damage.append(f"{self.path}: a record in the log behind {self.last_seq} does not hold")
                return 0
            view_record(at, &record)
            if first and self.gap and record.seq > self.last_seq + 1:
                self.note_lost(self.last_seq + 1, record.seq - 1, f"{self.path}: records lost with their log frame")
            first = False
            if record.seq > self.last_seq:
                self.place(&record, length, at, load64(at + length - 8))
                if self.indexer is not None:
                    self.indexer.index(&record)
            at += length
            size -= length
        self.gap = False
        return 0

    cdef int unindex_range(self, uint64_t first, uint64_t last) except -1:
        """Tell the logic which live messages go."""
        cdef Record record
        cdef uint64_t told = 0
        cdef uint64_t seq = first
        if self.indexer is None or self.index_stale:
            return 0
        while seq <= last and self.read_next(seq, &record) and record.seq <= last:
            self.indexer.unindex(&record)
            told += 1
            seq = record.seq + 1
        if told < self.live_between(first, last):
            self.index_stale = True
        return 0

    def live_between(self, first: int, last: int) -> int:
        """A lower bound of the live messages in a range, from the blocks that lie in it whole."""
        cdef uint64_t low = max(first, self.floor)
        cdef uint64_t high = min(last, self.last_seq)
        cdef uint64_t live = 0
        cdef Block* block
        cdef size_t index = self.block_index_from(low)
        if low == high:
            block = self.find_block(low)
            return block != NULL and block.flags & BLOCK_UNREADABLE != 0
        while index < self.block_count and self.blocks[index].first_seq <= high:
            block = self.blocks[index]
            if block.first_seq >= low and block.last_seq <= high:
                live += block.messages - min(block.dead, block.messages)
            elif block.flags & BLOCK_UNREADABLE:
                live += block.messages
            index += 1
        return live

    cdef int salvage(self) except -1:
        """Records that reached their block although the log does not hold them any more."""
        cdef Record record
        cdef Block* block
        cdef FileMap file
        cdef const char* at
        cdef uint32_t size
        while True:
            block = self.active
            path = self.block_path(self.next_number if block == NULL else block.number)
            if not os.path.exists(path):
                return 0
            file = map_file(path)
            if not check_head(file.data, file.size, self.group, self.next_number if block == NULL else block.number):
                return 0
            if block == NULL and load64(file.data + 32) != self.last_seq + 1:
                return 0
            at = file.data + (BLOCK_HEAD if block == NULL else block.data_end)
            size = check_record(at, file.size - (at - file.data), self.salt) if at < file.data + file.size else 0
            if size:
                view_record(at, &record)
            if size == 0 or at[4] == KIND_ERASED or record.seq != self.last_seq + 1:
                if block == NULL or not os.path.exists(self.block_path(self.next_number)):
                    return 0
                self.seal_active()
                continue
            self.place(&record, size, at, load64(at + size - 8))
            if self.indexer is not None:
                self.indexer.index(&record)

    def still_lost(self):
        """The lost ranges, without what the replay showed to be gone anyway."""
        for first, last in self.lost:
            first, last = max(first, self.floor), min(last, self.last_seq)
            while first <= last and first in self.gone:
                first += 1
            while last >= first and last in self.gone:
                last -= 1
            if first <= last:
                yield [first, last]

    cdef int end_replay(self) except -1:
        """The log is through: what is still missing now is lost."""
        cdef size_t index
        if not self.torn:
            self.salvage()
        self.replaying = False
        self.lost = list(self.still_lost())
        self.gone = None
        for index in range(self.block_count):
            if self.blocks[index].flags & BLOCK_UNREADABLE:
                self.note_unreadable(self.blocks[index])
        if self.index_stale and self.indexer is not None:
            self.indexer.reset()
            self.visit(self.floor, index_record, <void*>self.indexer)
        self.index_stale = False
        self.snapshot = None
        return 0

    # -- for Python: tests, tools, cold paths --------------------------------------------------------

    def append_many(self, records: list) -> None:
        """Append `(seq, ts_ns, subject, headers, message)` tuples of bytes."""
        cdef Record record
        record.skip_count = 0
        for seq, ts_ns, subject, headers, message in records:
            record.seq = seq
            record.ts_ns = ts_ns
            record.subject, record.subject_len = subject, len(subject)
            record.hdr, record.hdr_len = headers, len(headers)
            record.msg, record.msg_len = message, len(message)
            self.append(&record)

    def reserve(self, first: int, count: int) -> None:
        self.skip(first, count)

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

    def delete(self, seq: int, erase: bool = False) -> bool:
        return self.forget(seq, erase) == 1

    def drop(self, seq: int) -> None:
        self.drop_below(seq)

    def cut(self, seq: int) -> None:
        self.cut_above(seq)

    def first_at(self, ts_ns: int) -> int:
        return self.seek_time(ts_ns)

    def pinned(self, seq: int) -> tuple:
        """The record and the object that keeps its view alive; for tests."""
        cdef Record record
        if self.read(seq, &record) == 0:
            raise KeyError(seq)
        return as_tuple(&record), self.pin(&record)

    def describe_blocks(self) -> list:
        """A dict for each block, oldest first."""
        cdef size_t index
        cdef Block* block
        out = []
        for index in range(self.block_count):
            block = self.blocks[index]
            out.append({"number": block.number, "first": block.first_seq, "last": block.last_seq,
                        "messages": block.messages, "dead": block.dead, "skips": block.skips,
                        "bytes": block.data_end, "capacity": block.capacity,
                        "generation": block.generation, "sealed": bool(block.flags & BLOCK_SEALED),
                        "sparse": bool(block.flags & BLOCK_SPARSE), "framed": bool(block.flags & BLOCK_FRAMED)})
        return out

    def check_all(self) -> None:
        """Read every live record; what does not hold ends in `lost`."""
        self.visit(self.floor, check_only, NULL)


def claimed_index(path: Path) -> int:
    """The frame index in a state's header, not checked: which of two to try first."""
    try:
        with path.open("rb") as file:
            return int.from_bytes(file.read(32)[24:], "little")
    except FileNotFoundError:
        return -1


cdef bytes dead_bytes(const Block* block):
    """Exactly (slots + 7) / 8 bytes, whatever was allocated."""
    cdef size_t size = (block.slots + 7) // 8
    cdef bytes kept = (<char*>block.dead_bits)[:min(size, <size_t>block.dead_room)]
    return kept.ljust(size, b"\0")


cdef tuple as_tuple(const Record* record):
    return (record.seq, record.ts_ns, record.subject[:record.subject_len], record.hdr[:record.hdr_len],
            record.msg[:record.msg_len])


cdef int collect(void* context, const Record* record) except -1:
    (<list>context).append((record.seq, record.skip_count) if record.skip_count else as_tuple(record))
    return 0


cdef int check_only(void* context, const Record* record) except -1:
    return 0


cdef int index_record(void* context, const Record* record) except -1:
    (<RecordIndexer>context).index(record)
    return 0
