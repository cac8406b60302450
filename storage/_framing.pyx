# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Which of a stream's blocks are rewritten in the pool, and erasing in those that were.

Contract: a block is rewritten only when a durable checkpoint has it as sealed: a replay that takes it
for unsealed would look for its records at their old places. From the start of a rewrite until its
end no checkpoint is made, and none begins while a checkpoint is wanted: the log may not grow for as long as
there is something to rewrite. What changes the block meanwhile spoils the rewrite, or follows it.
"""
import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.ref cimport Py_INCREF, PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport strcmp, strdup

from storage._block cimport (
    BLOCK_BAD_HEAD, BLOCK_CUT, BLOCK_ENCRYPTED, BLOCK_FRAMED, BLOCK_GONE, BLOCK_REWRITING, BLOCK_SEALED, BLOCK_STUCK,
    BLOCK_SWAPPING, BLOCK_UNREADABLE, JOB_ERASE, BlockJob, find_slot, run_erase)
from storage._blocktable cimport new_job
from storage._codec cimport erase_record, load32, load64
from storage._frames cimport FrameMemory, frame_of
from storage._rewrite cimport new_rewrite, replace_job, splice_job


cdef class FramingTable(BlockTable):
    """The part of a BlockHome that has blocks rewritten."""

    def __cinit__(self, Workshop shop, str path, uint64_t group, uint64_t salt):
        self.unframed = []
        self.put_off = []
        self.queued = set()
        self.swapping = {}

    cdef int touch(self) except -1:
        """Join the open batch."""
        if not self.touched and not self.left:
            self.touched = True
            self.shop.touched.append(self)
        return 0

    cdef bint wants_frames(self, const Block* block) noexcept:
        """Is it to be compressed, or still to be encrypted?"""
        if not block.flags & BLOCK_SEALED or block.flags & (BLOCK_CUT | BLOCK_UNREADABLE | BLOCK_GONE | BLOCK_STUCK):
            return False
        return (self.codec and not block.flags & BLOCK_FRAMED) or (
            self.key is not None and not block.flags & BLOCK_ENCRYPTED)

    cdef Block* block_numbered(self, uint64_t number) noexcept:
        cdef size_t index
        for index in range(self.block_count):
            if self.blocks[index].number == number:
                return self.blocks[index]
        return NULL

    cdef bint rewritable(self, const Block* block) noexcept:
        """Sealed, known so to a checkpoint, and nothing under way that would change its file."""
        return (block != NULL and block.flags & BLOCK_SEALED != 0 and block.file == NULL and block.erases == 0
                and block.number < self.sealed_below
                and not block.flags & (BLOCK_CUT | BLOCK_UNREADABLE | BLOCK_REWRITING | BLOCK_SWAPPING | BLOCK_GONE
                                       | BLOCK_STUCK))

    cdef int frame_sealed(self) except -1:
        """After a checkpoint, a start, or a change of the settings: queue what is to be rewritten."""
        cdef size_t index
        self.unframed.clear()
        for index in range(self.block_count):
            if self.wants_frames(self.blocks[index]):
                if self.blocks[index].number < self.sealed_below:
                    self.queue_rewrite(self.blocks[index].number)
                else:
                    self.wait_for_checkpoint(self.blocks[index].number)
        return 0

    cdef int queue_rewrite(self, uint64_t number) except -1:
        """Once, however often it is asked for before its turn comes."""
        if number not in self.queued:
            self.queued.add(number)
            self.shop.to_frame.append((self, number))
        return 0

    cdef int wait_for_checkpoint(self, uint64_t number) except -1:
        """Try this block again after the next checkpoint, which `maintain` asks for."""
        self.unframed.append(number)
        self.shop.waiting.add(self)
        return 0

    cdef Rewrite start_rewrite(self, uint64_t number):
        """Begin a new file for the block; None: it does not need one any more, or not now."""
        cdef Block* block = self.block_numbered(number)
        cdef bint mostly_dead
        self.queued.discard(number)
        if self.checkpoint_wanted and block != NULL:
            if self.wants_frames(block):
                self.unframed.append(number)    # the checkpoint queues it anew
            else:
                self.shop.candidates.append((self, number))
            return None
        if not self.rewritable(block):
            if block != NULL and block.erases and self.wants_frames(block):
                self.wait_for_checkpoint(number)
            return None
        mostly_dead = block.dead > block.messages // 2
        if not (self.wants_frames(block) or mostly_dead) or self.need_footer(block) == 0:
            return None
        block.flags |= BLOCK_REWRITING
        self.rewrites += 1
        return new_rewrite(self, block, mostly_dead, self.codec)

    cdef bint need_footer(self, Block* block) except -1:
        """Have the index of a block that is to be rewritten. False: it stays as it is, for now or for good."""
        try:
            return self.need_index(block) and not block.index_owned and not block.flags & BLOCK_BAD_HEAD
        except OSError as error:        # too few descriptors, say
            self.put_off_rewrite(block, error.errno or 0)
            return False

    cdef int put_off_rewrite(self, const Block* block, int problem) except -1:
        """There was no room for the new file, say: it is tried again behind the next checkpoint that others want."""
        self.note_lost(1, 0, f"{self.block_path(block.number)}: not rewritten yet, {os.strerror(problem)}")
        if self.wants_frames(block):
            self.unframed.append(block.number)
        else:
            self.put_off.append(block.number)
        return 0

    cdef int finish_rewrite(self, Rewrite rewrite) except -1:
        """Back from the pool: have the new file put in place, unless the block changed meanwhile."""
        cdef Block* block = self.block_numbered(rewrite.number)
        if block == NULL:
            self.rewrites -= 1
            return 0
        if rewrite.problem is not None:
            self.note_lost(1, 0, f"{self.block_path(block.number)}: not rewritten, {rewrite.problem}")
            if rewrite.damaged:
                block.flags |= BLOCK_STUCK      # another try would find the same
            return self.end_rewrite(block)
        if rewrite.spoiled or block.flags & BLOCK_CUT or block.erases:
            self.wait_for_checkpoint(block.number)
            return self.end_rewrite(block)
        if rewrite.content is None:
            return self.end_rewrite(block)
        block.flags |= BLOCK_SWAPPING
        self.swapping[block.number] = rewrite
        self.touch()
        return self.shop.queue_after(replace_job(rewrite, block))

    cdef int end_rewrite(self, Block* block) except -1:
        block.flags &= ~<uint32_t>(BLOCK_REWRITING | BLOCK_SWAPPING)
        self.rewrites -= 1
        self.swapping.pop(block.number, None)
        if self.checkpoint_wanted:
            self.touch()
        return 0

    cdef int erase_in_frame(self, Block* block, uint32_t slot, uint64_t seed) except -1:
        """Random bytes over a record of a framed block: its frame is made anew."""
        cdef uint32_t offset = block.offsets[slot]
        cdef FrameMemory frame
        cdef const char* head
        if self.locate(block, slot) == NULL:
            self.damage.append(f"{self.block_path(block.number)}: a record to erase cannot be read")
            return 0
        frame = self.frame_at(block, offset)
        head = block.data + block.frame_table[2 * frame_of(block, offset)]
        erase_record(frame.data + (offset - frame.start), seed, self.salt)
        return self.queue_splice(block, [(frame, head[4], head[5] != 0)])

    cdef int erase_in_fresh(self, Block* block, uint64_t seq, uint64_t seed) except -1:
        """The block's new file is on its way to its place: the record goes from that, behind it."""
        cdef Rewrite rewrite = self.swapping[block.number]
        cdef FrameMemory frame
        cdef int64_t slot = find_slot(&rewrite.fresh, seq)
        cdef uint32_t offset
        if slot < 0:
            return 0            # it was dead already, and left out
        offset = rewrite.fresh.offsets[slot]
        frame = rewrite.fresh_frame(offset, self.shop.frame_cache, block.layout + 1)
        erase_record(frame.data + (offset - frame.start), seed, self.salt)
        return self.queue_splice(block, [(frame, rewrite.codec, self.key is not None)])

    cdef int queue_splice(self, Block* block, list changed) except -1:
        """Replace frames that were changed in memory: `(frame, codec, encrypted)`, in the order of the file."""
        block.erases += 1
        if self.shop.log is not None:
            self.shop.erases += 1
        return self.shop.queue_after(splice_job(self, block, changed))

    # -- erasing -------------------------------------------------------------------------------------

    cdef int queue_erase(self, Block* block, uint32_t slot, uint64_t seed) except -1:
        """Random bytes over the record, behind the open batch's writes."""
        cdef const char* at
        cdef uint32_t size
        if block.flags & BLOCK_SWAPPING:
            return self.erase_in_fresh(block, block.first_seq + (block.deltas[slot] if block.deltas != NULL else slot),
                                       seed)
        if self.shop.rewrite is not None and block.flags & BLOCK_REWRITING and (
                self.shop.rewrite.home is self and self.shop.rewrite.number == block.number):
            self.shop.rewrite.spoil()
        if block.flags & BLOCK_FRAMED:
            return self.erase_in_frame(block, slot, seed)
        at = self.locate(block, slot)
        size = load32(at)
        cdef bytes content = PyBytes_FromStringAndSize(at, size)
        erase_record(PyBytes_AS_STRING(content), seed, self.salt)
        return self.queue_erased(block, load64(at + 8), block.offsets[slot], content)

    cdef int queue_erased(self, Block* block, uint64_t seq, uint64_t offset, bytes content) except -1:
        cdef BlockJob* job = new_job(JOB_ERASE, self)
        cdef BlockJob* before = NULL
        job.job.run = run_erase
        job.block = block
        block.erases += 1
        Py_INCREF(content)
        job.keep = <PyObject*>content
        job.data = PyBytes_AS_STRING(content)
        job.size = len(content)
        job.at = offset
        job.seq = seq
        job.path = strdup(os.fsencode(self.block_path(block.number)))
        if self.shop.after_count:
            before = self.shop.after[self.shop.after_count - 1]
            if before.kind == JOB_ERASE:
                before.sync_follows = strcmp(before.path, job.path) == 0
        if self.shop.log is not None:
            self.shop.erases += 1
        return self.shop.queue_after(job)
