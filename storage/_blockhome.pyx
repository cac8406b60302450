# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""One stream's messages on disk: a table of blocks over the shared commit log.

Contract: DESIGN.md, "The seam". What was written and what is dead is told to the log; `_recovery` does
it again from there. Here: taking away, rewriting, and what the block thread has done.
"""
import os

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove, memset, strdup

from storage.losses import without_end

from storage._block cimport (
    BLOCK_CUT, BLOCK_FRAMED, BLOCK_GONE, BLOCK_REWRITING, BLOCK_SEALED, BLOCK_SPARSE, BLOCK_UNREADABLE, JOB_CHECKPOINT,
    JOB_CLOSE, JOB_COMPACT, JOB_ERASE, JOB_FRAME, JOB_LEAVE, JOB_META, JOB_REMOVE, JOB_SEAL, JOB_SPLICE, close_block_file, find_slot,
    forget_index, free_block, free_block_file, slot_at_or_after)
from storage._blocktable cimport dead_bytes, is_dead, new_job
from storage._codec cimport RECORD_HEAD, file_counted_size, load32, load64, store64, view_record
from storage._commitlog cimport FRAME_CUT, FRAME_ERASE
from storage._erasing cimport finish_erasures
from storage._frames cimport FrameMemory
from storage._record cimport Record
from storage._seal cimport run_compact
from storage._sealed cimport run_remove
from storage._workshop cimport Workshop


cdef int check_up_to(void* context, const Record* record) except -1:
    return record.seq >= (<uint64_t*>context)[0]


cdef class BlockHome(WritingTable):
    """See the module. Made by DataDirectory."""

    def __cinit__(self, Workshop shop, str path, uint64_t group, uint64_t salt):
        self.gone = set()
        self.unended = []

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
        if block.dead == block.messages // 2 + 1 and block.data_end >= self.shop.block_size_min // 2 and (
                block.flags & BLOCK_SEALED):        # else when it is: until then no checkpoint would be enough
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
            self.remove_dead(block)
        return 1

    cdef int remove_dead(self, Block* block) except -1:
        """Nothing in it lives. The file of a block that was cut is kept until a checkpoint has the cut: until then
        only it tells how many messages are to be gone. Where the floor lies in it, the checkpoint does not know how many of those that it
        has as live were below: so the log says that all of it is gone, before the file is."""
        if block.flags & BLOCK_CUT and self.cut_index:
            self.checkpoint_wanted = True
            return self.touch()
        if block.first_seq < self.floor <= block.last_seq and not self.replaying:
            self.floor = block.last_seq + 1
            self.floor_dirty = True
        return self.remove_block(self.block_index_from(block.last_seq))

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
            return self.forget_damaged(seq)
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

    cdef int forget_damaged(self, uint64_t seq) except -1:
        """A record to erase that does not hold: which bytes are its own nobody knows, and it stays deleted at least."""
        if self.forget(seq, False) == 0:
            return 0
        self.note_lost(1, 0, f"{self.path}: record of {seq} does not hold, it is deleted and was not overwritten")
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
        self.lost = without_end(self.lost, seq)     # what is stored there again is not lost
        while self.block_count and self.blocks[self.block_count - 1].first_seq > seq:
            self.remove_block(self.block_count - 1)
        self.last_seq = seq
        self.floor = min(self.floor, seq + 1)
        if self.block_count == 0:
            return 1
        block = self.blocks[self.block_count - 1]
        if block.last_seq <= seq:
            self.last_checksum = block.last_checksum
            return 1
        if self.need_index(block) == 0:
            # How many the cut left only its file could tell. It is not there, and no removal took it (`remove_dead`).
            block.last_seq = seq
            block.messages = <uint32_t>min(<uint64_t>block.messages, seq + 1 - block.first_seq)
            block.dead = 0
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
        if block == self.active:
            block.capacity = block.data_end     # what was reserved behind that goes with the seal
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
        self.cut_index = self.log_group.index
        self.apply_cut(seq)
        return 0

    cdef int remove_dead_cut(self) except -1:
        """A checkpoint has the cuts now."""
        cdef size_t index = self.block_count
        cdef Block* block
        self.cut_index = 0
        while index:
            index -= 1
            block = self.blocks[index]
            if block.flags & BLOCK_CUT and block.dead >= block.messages and block.skips == 0:
                self.remove_dead(block)
        return 0

    cdef int compact(self, uint64_t number) except -1:
        """Have the block thread rewrite a sealed, mostly dead block; 0: not now."""
        cdef Block* block = self.block_numbered(number)
        cdef BlockJob* job
        if self.left or block == NULL or block.flags & (BLOCK_CUT | BLOCK_UNREADABLE | BLOCK_REWRITING):
            return 0
        if number >= self.sealed_below:
            # A replay that has the block as unsealed would look for its records at their old places.
            self.shop.candidates.append((self, number))
            self.checkpoint_wanted = True
            return self.touch()
        if self.codec or block.flags & BLOCK_FRAMED:
            self.queue_rewrite(number)
            return 0
        if self.rewritable(block) == 0 or self.need_footer(block) == 0:
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
        forget_index(block)         # of the old file, or of the new one as far as the cut
        self.adopt_footer(block, &job.seal)
        block.last_checksum = job.seal.last_checksum
        block.flags |= BLOCK_SEALED
        if died or block.flags & BLOCK_CUT:
            self.wait_for_map(block)    # until it is known what died, nobody may read it
        if block.flags & BLOCK_CUT:
            self.cut_again(block)
        for seq in died:
            self.apply_forget(seq)
            if block.flags & BLOCK_GONE:
                return 0
        if block.messages == 0 and block.skips == 0 and not block.flags & BLOCK_GONE:
            self.remove_dead(block)
        return 0

    cdef int try_index(self, Block* block) except -1:
        """Now if there are descriptors for it, else when somebody reads the block."""
        try:
            self.need_index(block)
        except OSError as error:
            self.note_lost(1, 0, f"{self.block_path(block.number)}: not read yet, {error.strerror}")
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
        if self.replaying:
            self.flush_replayed()
            finish_erasures(self, block)
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
        job.seq = block.number
        self.shop.must_sync = True
        self.touch()
        return self.shop.queue_after(job)

    cdef int checkpoint_done(self, const BlockJob* job) except -1:
        self.checkpoint_running = False
        if job.job.result == 0:
            if job.data == NULL:
                self.log_group.resume(0)    # blank: its frames are numbered from the start again
            self.checkpoint_index = job.index
            self.has_own_states = True
            self.unnamed = False
            if self.meta_writes == job.seq:
                self.meta_writes = 0
            self.sealed_below = max(self.sealed_below, job.at)
            if 0 < self.cut_index <= job.index and job.segment:
                self.remove_dead_cut()
            if self.unframed:
                self.frame_sealed()
            self.shop.candidates.extend((self, number) for number in self.put_off)
            self.put_off.clear()
            if self.checkpoint_wanted:
                self.touch()            # for another one, asked for meanwhile
            self.log_group.contained_up_to(job.index, job.segment)
        return 0

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
        elif job.kind == JOB_CLOSE:
            close_block_file(job.file, &self.shop.files.calls)      # open only if the disk failed, as below
            free_block_file(job.file)
        elif job.kind == JOB_LEAVE:
            if job.job.result < 0:
                self.close_files()
        elif job.kind == JOB_REMOVE:
            self.retire_map(block)
            if job.file != NULL:
                # Still open only if the disk failed before the job ran; the thread touches nothing then.
                close_block_file(job.file, &self.shop.files.calls)
            free_block_file(job.file)
            free_block(block)
        elif job.kind == JOB_META:
            if self.fresh_meta is <object>job.keep:
                self.fresh_meta = None
        elif job.kind == JOB_COMPACT or job.kind == JOB_FRAME:
            self.take_rewritten(job)
            if job.problem and not block.flags & BLOCK_GONE:
                self.put_off_rewrite(block, job.problem)
        elif job.kind == JOB_ERASE and block != NULL:
            block.erases -= 1
        elif job.kind == JOB_SPLICE:
            block.erases -= 1
            for frame in (<tuple>job.keep)[1]:
                (<FrameMemory>frame).unwritten -= 1
            self.retire_map(block)
            if block.index_owned:           # its frames moved, and no footer says where to
                forget_index(block)
                self.frames_moved(block)
            if job.job.result == 0 and not block.flags & BLOCK_GONE:
                self.try_index(block)       # the table has to know how often the file was rewritten
        elif job.kind == JOB_CHECKPOINT:
            self.checkpoint_done(job)
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

    # -- for tests and tools -------------------------------------------------------------------------

    def check_all(self, told=None) -> None:
        """Read every live record; what does not hold ends in `lost`. `told(done, blocks)` is called behind each block."""
        cdef size_t index
        cdef uint64_t last
        for index in range(self.block_count):
            last = self.blocks[index].last_seq
            self.visit(self.blocks[index].first_seq, check_up_to, <void*>&last)
            if told is not None:
                told(index + 1, self.block_count)

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
