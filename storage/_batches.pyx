# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A data directory's batches: to the log's thread, to the block thread, and what comes back from them.

Contract: that of `_directory`, whose part this is.
"""
import os

from cpython.ref cimport Py_INCREF, PyObject
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free, malloc

from storage.fs import StoreDown

from storage._block cimport (
    BLOCK_GONE, Block, JOB_APPLY, JOB_ERASE, JOB_FRAME, JOB_GROUP, JOB_LEAVE, JOB_META, JOB_SPLICE, BlockJob, Extent, run_apply)
from storage._blockqueue cimport Batch
from storage._checkpoint cimport GroupJob, add_checkpoint, end_group, free_group, group_job
from storage._disk cimport Job
from storage._rewritequeue cimport pump_rewrites

cdef uint64_t NEVER = <uint64_t>-1

cdef enum:
    CHECKPOINTS_AT_ONCE = 64    # asked for in one turn
    STATE_BYTES_MAX = 4 << 20   # with so many made in one turn, the others' have the next ones
    HELD_BYTES_MAX = 32 << 10       # an open batch with that much does not wait for the one under way
    UNHEARD_BYTES_MAX = 1 << 20     # of writes done by the owner's thread: then it is told of them
    GROUP_MAX = 1024            # checkpoints of a start or a stop that share their syncs


cdef class BatchedDirectory:
    """The part of a DataDirectory that hands over batches and takes back what is done."""

    # -- the turn ----------------------------------------------------------------------------------

    cdef uint64_t submit(self) except? 0:
        """Close the open batch; its ticket, or that of the last one when nothing was written."""
        cdef BlockHome home
        cdef Batch batch
        cdef uint64_t segment
        cdef size_t index = 0
        cdef size_t state_bytes = 0
        if self.failure is not None:
            raise StoreDown(self.failure)
        if not self.shop.touched and not self.names_wanted:
            return self.log.ticket - 1
        batch = Batch()
        batch.homes = self.shop.touched
        for home in batch.homes:
            home.close_batch()
        self.log.close_frame()
        batch.ticket = self.log.ticket
        batch.checkpoints = group_job(f"{self.path}/streams", len(batch.homes))
        batch.last_seqs = <uint64_t*>malloc((len(batch.homes) or 1) * sizeof(uint64_t))
        segment = self.log.position >> 32
        later = []
        for home in batch.homes:
            batch.last_seqs[index] = home.last_seq
            index += 1
            home.touched = False
            self.count_behind(home)
            if home.checkpoint_wanted and not home.checkpoint_running and not home.rewrites and not home.left:
                if state_bytes < STATE_BYTES_MAX:
                    state_bytes += add_checkpoint(batch.checkpoints, home, segment, False)
                else:
                    later.append(home)
        self.shop.touched = []
        for home in later:
            home.touch()
        self.seal_names(batch.checkpoints)
        batch.scrubs, self.shop.scrubs = self.shop.scrubs, []
        batch.erases, self.shop.erases = self.shop.erases, 0
        self.log.sync_wanted = batch.erases > 0 or self.shop.must_sync
        self.shop.must_sync = False
        self.log.small = not self.durable and self.shop.after_count == 0
        self.log.submit()
        batch.chunks = self.log.take_pieces()
        batch.end = self.log.position
        batch.bytes_built = self.log.bytes_built
        batch.after, batch.after_count = self.shop.after, self.shop.after_count
        self.shop.after = NULL
        self.shop.after_count = self.shop.after_room = 0
        self.batches.append(batch)
        self.shop.in_flight.append(batch.chunks)
        if self.log.small and self.log.backlog_bytes > UNHEARD_BYTES_MAX:
            self.log_disk.ring()
        self.keep_bounds()
        return batch.ticket

    cdef int keep_bounds(self) except -1:
        """Wait while twice `backlog_bytes_max` is on its way to the log, or has not reached its blocks: it is held in memory."""
        while self.log.backlog_bytes > 2 * self.backlog_bytes_max and self.failure is None:
            self.log_disk.wait_idle()
            self.reap()
            self.log_disk.ring()
        while self.log.bytes_built - self.block_queue.bytes_applied > 2 * self.backlog_bytes_max and self.failure is None:
            self.log_disk.wait_idle()
            self.reap()
            self.block_queue.hand_over()
            self.block_disk.wait_idle()
            self.reap()
            self.log_disk.ring()
        return 0

    cdef int reap(self) except -1:
        """Take what is finished. Views end here."""
        cdef Batch batch
        self.shop.views.end_views()
        self.shop.frame_cache.end_views()
        if self.shop.maps_open > 2 * <size_t>self.maps_open_max:
            self.let_go_maps(NEVER)
        try:
            self.log.reap()
            for ticket in self.log.scrubbed:
                self.erase_done(ticket)
            self.log.scrubbed.clear()
            while self.batches and (<Batch>self.batches[0]).ticket <= self.log.written_ticket:
                batch = self.batches.popleft()
                self.written_ticket = batch.ticket
                self.queue_block_work(batch)
            self.reap_blocks()
            self.want_checkpoints()
            if self.shop.rewrite is not None or self.shop.to_frame or self.shop.old_maps:
                pump_rewrites(self.shop, self.homes, None if self.closed else self.begin_rewrite, self.pool)
        except OSError as error:
            self.fail(error)
        return 0

    cdef int let_go_maps(self, uint64_t tick) except -1:
        """Those that nobody has used since the tick before `tick`; the kernel allows a process so many."""
        cdef BlockHome home
        cdef Block* block
        cdef size_t index
        for home in self.homes.values():
            for index in range(home.block_count):
                block = home.blocks[index]
                if block.map != NULL and block.used_at + 1 < tick and not home.needs_this_map(block):
                    home.let_go_map(block)
        return 0

    cdef int queue_block_work(self, Batch batch) except -1:
        """The batch is durable: its records go to the blocks, then seals, removals, checkpoints."""
        cdef size_t index
        for index in range(batch.after_count):
            if batch.after[index].kind == JOB_META:     # the directory first
                self.block_disk.submit(&batch.after[index].job)
        self.block_queue.add(batch)
        if batch.erases:
            self.erasing[batch.ticket] = batch.erases + self.log.scrub(batch.scrubs, batch.ticket)
        for index in range(batch.after_count):
            if batch.after[index].kind == JOB_ERASE or batch.after[index].kind == JOB_SPLICE:
                batch.after[index].ticket = batch.ticket
            if batch.after[index].kind != JOB_META:
                self.block_disk.submit(&batch.after[index].job)
        if batch.checkpoints.count or batch.checkpoints.names:
            self.block_disk.submit(&batch.checkpoints.job.job)
        else:
            end_group(batch.checkpoints)
        batch.checkpoints = NULL
        batch.after_count = 0
        return 0

    cdef int reap_blocks(self) except -1:
        """Blocks written, sealed, removed; checkpoints made."""
        cdef Job* head = self.block_disk.reap()
        cdef BlockJob* job
        cdef int failed = 0
        while head != NULL:
            job = <BlockJob*>head
            head = head.next
            if job.job.result < 0:
                failed = job.job.result
            if job.kind == JOB_FRAME and job.problem and job.block.erases and not job.block.flags & BLOCK_GONE:
                failed = -job.problem       # the erasures behind it are made for the file that is not there
            if job.kind == JOB_APPLY:
                if job.job.result == 0:
                    self.applied_ticket = job.ticket
                self.block_queue.finished(job)
            elif job.kind == JOB_GROUP:
                self.checkpoints_done(<GroupJob*>job)
            elif job.kind == JOB_LEAVE and job.job.result == 0 and job.files_left:
                job.file, job.files_left = NULL, False
                self.block_disk.submit(&job.job)
            else:
                if job.kind == JOB_LEAVE and job.job.result == 0:
                    self.files_gone(<BlockHome>job.owner)
                if (job.kind == JOB_ERASE or job.kind == JOB_SPLICE) and job.job.result == 0:
                    self.erase_done(job.ticket)
                (<BlockHome>job.owner).job_done(job)
        if failed:
            raise OSError(-failed, os.strerror(-failed), self.path)
        return 0

    cdef int files_gone(self, BlockHome home) except -1:
        """Of a deleted stream; once that is so for good, the log is not needed for it any more."""
        del self.leaving[home.group]
        self.left.add(home.group)
        self.names_wanted = self.names_wanted or len(self.left) - len(self.sealing) >= CHECKPOINTS_AT_ONCE
        return 0

    cdef int checkpoints_done(self, GroupJob* group) except -1:
        """What its members had in the log is in their files; names that were to last do."""
        cdef BlockHome home
        cdef size_t index
        cdef bint failed = group.job.job.result < 0
        homes = [<object>group.members[index].owner for index in range(group.count)]
        numbers = <list><object>group.job.keep if group.job.keep != NULL else []
        end_group(group)
        if failed:
            return 0
        self.sealing.difference_update(numbers)
        self.left.difference_update(numbers)
        for number in numbers:
            del self.graves[number]
        for home in homes:
            if not home.left:
                self.count_behind(home)
        return 0

    cdef int count_behind(self, BlockHome home) except -1:
        """Keep `home` under the oldest log segment that it needs."""
        cdef uint64_t segment = home.log_group.first_segment
        if home.left:
            self.graves.setdefault(home.group, segment)
            segment = 0
        if segment == home.behind:
            return 0
        if home.behind:
            del self.behind[home.behind][home]
            if not self.behind[home.behind]:
                del self.behind[home.behind]
        home.behind = segment
        if segment:
            self.behind.setdefault(segment, {})[home] = None
        return 0

    cdef int seal_names(self, GroupJob* group) except -1:
        """Behind this group's sync, the streams whose files are gone by now need the log no more."""
        if self.names_wanted:
            self.names_wanted = False
            group.names = True
            numbers = list(self.left - self.sealing)
            self.sealing.update(numbers)
            Py_INCREF(numbers)
            group.job.keep = <PyObject*>numbers
        return 0

    cdef int erase_done(self, uint64_t ticket) except -1:
        """One of the places of an erased record is overwritten."""
        self.erasing[ticket] -= 1
        if self.erasing[ticket] == 0:
            del self.erasing[ticket]
        return 0

    cdef int fail(self, object error) except -1:
        """The disk is not to be trusted any more: stop writing, keep reading."""
        if self.failure is None:
            self.failure = f"{self.path} is down: {error}"
        return 0

    cdef int want_checkpoints(self) except -1:
        """When the log grows beyond half its bound: bring the homes that hold it up to date."""
        cdef BlockHome home
        cdef uint64_t limit
        cdef int asked = 0
        cdef size_t segments_max = max(2, self.log_bytes_max // self.segment_size)
        cdef size_t used = len(self.log.segments_in_use)
        if used * 2 <= segments_max or used < 2:
            return 0
        limit = self.log.segments_in_use[used // 2]
        for home in self.shop.touched:
            self.count_behind(home)     # the open batch may have begun a segment
        for segment in sorted(self.behind):
            if segment > limit or asked >= CHECKPOINTS_AT_ONCE:
                break
            for home in self.behind[segment]:
                if not home.checkpoint_running and not home.checkpoint_wanted:
                    home.checkpoint_wanted = True
                    home.touch()
                    asked += 1
                if asked >= CHECKPOINTS_AT_ONCE:
                    break
        if self.graves and self.left - self.sealing and min(self.graves.values()) <= limit:
            self.names_wanted = True
        self.log.retire(min((*self.behind, *self.graves.values()), default=self.log.current_segment))
        return 0

    # -- waiting, checkpoints ------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """A batch is under way and the open one is small: it better grows. Whoever waits hears of the other's end."""
        return len(self.batches) > 0 and self.log.open_bytes() < HELD_BYTES_MAX

    def commit(self) -> int:
        """`submit`, for Python."""
        return self.submit()

    def commit_lazily(self) -> int:
        """`commit`; a small batch of a lazy directory is written by then, and known as such. Views end here."""
        cdef bint is_alone = len(self.batches) == 0
        cdef uint64_t ticket = self.submit()
        if is_alone:
            self.reap()             # of what is behind others the bell of those tells
        return ticket

    def poll(self) -> int:
        """`reap`, for Python; the durable ticket."""
        self.reap()
        return self.written_ticket

    def wait(self, ticket: int) -> None:
        """Block until `ticket` is durable; StoreDown when it cannot be."""
        while self.written_ticket < ticket:
            self.log_disk.wait_idle()
            self.reap()
            self.log_disk.ring()
            if self.failure is not None:
                raise StoreDown(self.failure)

    def wait_applied(self) -> None:
        """Block until all that was submitted is in its blocks."""
        while self.failure is None and (self.batches or self.block_queue.count or self.block_queue.under_way):
            self.log_disk.wait_idle()
            self.reap()
            self.block_queue.hand_over()
            self.block_disk.wait_idle()
            self.reap()
        self.block_disk.wait_idle()     # seals, removals and rewrites behind the last batch
        self.reap()
        while self.failure is None and any(ticket <= self.written_ticket for ticket in self.leaving.values()):
            self.block_disk.wait_idle()
            self.reap()
        self.log_disk.ring()            # the loop has not seen what was reaped here

    def sync(self) -> None:
        """Lazy mode, at the interval: what was written so far becomes durable."""
        self.log.sync()

    def checkpoint_now(self, home: BlockHome, clean: bool) -> None:
        """During recovery and at the end: a checkpoint on this thread."""
        self.checkpoint_all([home], clean)

    def checkpoint_all(self, homes: list, clean: bool) -> None:
        """The same for many, which share their syncs."""
        cdef GroupJob* group
        cdef BlockHome home
        cdef int result
        for start in range(0, max(len(homes), len(self.left) > 0), GROUP_MAX):
            some = homes[start : start + GROUP_MAX]
            group = group_job(f"{self.path}/streams", len(some))
            group.names = len(self.left) > 0
            for home in some:
                add_checkpoint(group, home, 0, clean)
                home.touched = False
            with nogil:
                result = group.job.job.run(&group.job.job, &self.files.calls)
            group.job.job.result = result
            end_group(group)
            if result < 0:
                raise OSError(-result, os.strerror(-result), self.path)
