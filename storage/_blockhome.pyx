# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""One stream's messages on disk: a table of blocks over the shared commit log.

Contract: DESIGN.md, "The seam". An append is encoded once, into the commit log's chunk; the block
thread later writes the same bytes to the block's file. What was written and what is dead is told
to the log; `_recovery` does it again from there.
"""
import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memmove, memset, strcmp, strdup

from storage._block cimport (
    BLOCK_BAD_HEAD, BLOCK_CUT, BLOCK_ENCRYPTED, BLOCK_FRAMED, BLOCK_GONE, BLOCK_HEAD, BLOCK_REWRITING, BLOCK_SEALED, BLOCK_SPARSE,
    BLOCK_SWAPPING, BLOCK_UNREADABLE, JOB_CHECKPOINT, JOB_COMPACT, JOB_ERASE, JOB_FRAME, JOB_REMOVE, JOB_SEAL,
    JOB_SPLICE, add_slot, close_block_file, find_slot, free_block,
    free_block_file, new_block_file, run_erase, run_remove, slot_at_or_after, takes_slot, write_through)
from storage._blocktable cimport dead_bytes, is_dead, new_job
from storage._cipher cimport CIPHER_ROOM, encrypt_record
from storage._codec cimport (
    KIND_MESSAGE, RECORD_HEAD, RECORD_SIZE_MAX, encode_record, encoded_size, erase_record, file_counted_size, load32, load64,
    store32, store64, view_record)
from storage._commitlog cimport (
    FRAME_BLOCK, FRAME_CUT, FRAME_DROP, FRAME_ERASE, FRAME_FORGET, FRAME_RECORDS)
from storage._frames cimport FrameMemory
from storage._seal cimport run_compact, run_end, run_seal

cdef enum:
    BLOCK_SIZE_STEP = 64 << 10
    FORGETS_PER_FRAME = 4096


cdef class BlockHome(FramingTable):
    """See the module. Made by DataDirectory."""

    def __cinit__(self, Workshop shop, str path, uint64_t group, uint64_t salt):
        self.next_number = 1
        self.gone = set()
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
        self.active = NULL
        readable = self.need_index(block)   # before it counts as sealed: a footer in its file is from a lost future
        block.flags |= BLOCK_SEALED
        if readable == 0:
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
            self.log_group.note_place(record.seq, self.shop.log.oldest_content())
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
        if erase:
            return self.erase(seq)
        if self.apply_forget(seq) == 0:
            return 0
        self.touch()
        if self.forget_count == self.forget_room:
            self.forget_room = self.forget_room * 2 or 64
            self.forgets = <uint64_t*>realloc(self.forgets, self.forget_room * 8)
            if self.forgets == NULL:
                raise MemoryError
        self.forgets[self.forget_count] = seq
        self.forget_count += 1
        return 1

    cdef int erase(self, uint64_t seq) except -1:
        """Forget, and overwrite what the block and the log have of it once that is durable."""
        cdef Record record
        cdef Block* block
        cdef char* at
        cdef uint64_t seed, position, end
        if self.read(seq, &record) == 0:
            return 0
        seed = int.from_bytes(os.urandom(8), "little")
        block = self.find_block(seq)
        at = self.shop.log.extend(self.log_group, FRAME_ERASE, 16)
        store64(at, seq)
        store64(at + 8, seed)
        end = self.shop.log.frame_start()
        self.shop.log.close_frame()
        position = self.log_group.place_of(seq)
        if position:
            head = self.locate(block, <uint32_t>find_slot(block, seq))[:RECORD_HEAD]
            self.shop.scrubs.append((self.group, position, end, seq, seed, self.salt, head))
        self.queue_erase(block, <uint32_t>find_slot(block, seq), seed)
        self.apply_forget(seq)
        self.touch()
        return 1

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
        if block.last_seq <= seq:
            return 1
        if self.need_index(block) == 0:
            # Its file is gone: replayed, because what the cut left of it was removed later.
            block.last_seq = seq
            block.messages = <uint32_t>min(<uint64_t>block.messages, seq + 1 - block.first_seq)
            block.flags |= BLOCK_CUT
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
        self.log_group.cut_places(seq)
        self.touch()
        self.apply_cut(seq)
        return 0

    cdef int compact(self, uint64_t number) except -1:
        """Have the block thread rewrite a sealed, mostly dead block; 0: not now."""
        cdef Block* block = self.block_numbered(number)
        cdef BlockJob* job
        if block == NULL or block.flags & (BLOCK_CUT | BLOCK_UNREADABLE | BLOCK_REWRITING):
            return 0
        if number >= self.sealed_below:
            # A replay that has the block as unsealed would look for its records at their old places.
            self.shop.candidates.append((self, number))
            self.checkpoint_wanted = True
            return self.touch()
        if self.codec or block.flags & BLOCK_FRAMED:
            self.shop.to_frame.append((self, number))
            return 0
        if self.rewritable(block) == 0 or self.need_index(block) == 0 or block.index_owned or block.flags & BLOCK_BAD_HEAD:
            return 0            # where its header or footer does not hold: leave the evidence
        block.flags |= BLOCK_REWRITING
        self.rewrites += 1
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
        self.end_rewrite(block)
        if job.ticket == 0 or block.flags & BLOCK_GONE or self.need_index(block) == 0:
            return 0
        died = []
        for slot in range(block.slots):
            # A cut block has fewer slots than its new file, so that the dead bits are not taken over.
            if is_dead(block, slot) and (block.flags & BLOCK_CUT or not start[slot >> 3] & (1 << (slot & 7))):
                died.append(block.first_seq + (block.deltas[slot] if block.deltas != NULL else slot))
        self.retire_map(block)
        self.adopt_footer(block, &job.seal)
        block.last_checksum = job.seal.last_checksum
        block.flags |= BLOCK_SEALED
        if block.flags & BLOCK_CUT:
            self.cut_again(block)
        for seq in died:
            self.apply_forget(seq)
            if block.flags & BLOCK_GONE:
                return 0
        if block.messages == 0 and block.skips == 0 and not block.flags & BLOCK_GONE:
            self.remove_block(self.block_index_from(block.first_seq))
        return 0

    cdef int cut_again(self, Block* block) except -1:
        """The block was cut while its new file was made, which still has more."""
        cdef uint64_t last_checksum = self.last_checksum
        cdef bint is_last = self.block_count > 0 and self.blocks[self.block_count - 1] == block
        block.flags &= ~<uint32_t>BLOCK_CUT
        if self.need_index(block):
            self.shorten(block, <uint32_t>slot_at_or_after(block, block.last_seq + 1), block.last_seq)
        block.flags |= BLOCK_CUT
        if not is_last:
            self.last_checksum = last_checksum
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
        self.shop.removes = True
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
                if self.wants_frames(block):
                    self.wait_for_checkpoint(block.number)
                elif block.dead > block.messages // 2:
                    self.shop.candidates.append((self, block.number))
        elif job.kind == JOB_REMOVE:
            self.retire_map(block)
            if job.file != NULL:
                # Still open only if the disk failed before the job ran; the thread touches nothing then.
                close_block_file(job.file, &self.shop.files.calls)
            free_block_file(job.file)
            free_block(block)
        elif job.kind == JOB_COMPACT or job.kind == JOB_FRAME:
            self.take_rewritten(job)
        elif job.kind == JOB_ERASE and block != NULL:
            block.erases -= 1
        elif job.kind == JOB_SPLICE:
            block.erases -= 1
            (<FrameMemory>(<tuple>job.keep)[1]).unwritten -= 1
            self.retire_map(block)
        elif job.kind == JOB_CHECKPOINT:
            self.checkpoint_running = False
            if job.job.result == 0:
                self.checkpoint_index = job.index
                self.sealed_below = max(self.sealed_below, job.at)
                if self.unframed:
                    self.frame_sealed()
                self.log_group.contained_up_to(job.index, job.segment)
        Py_XDECREF(job.keep)
        free(job.path)
        free(job.directory)
        free(job.extents)
        Py_XDECREF(job.owner)
        free(job)
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

    def delete(self, seq: int, erase: bool = False) -> bool:
        return self.forget(seq, erase) == 1

    def drop(self, seq: int) -> None:
        self.drop_below(seq)

    def cut(self, seq: int) -> None:
        self.cut_above(seq)
