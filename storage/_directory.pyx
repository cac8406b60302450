# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A data directory: one commit log, two disk threads, many streams.

Contract:
- Homes are written to directly; what was written since the last `submit` is the open batch.
- `submit` closes the batch, hands it to the log's thread and returns its ticket. `reap` takes what
  the threads finished; afterwards `written_ticket` is the highest batch that is durable, and each
  home's `durable_seq` has moved. Wake for it on `log_event_fd` and `block_event_fd`.
- With `durable=False` a ticket is done when it is written; call `sync` at the interval.
- Any failure of either thread takes the whole directory down: `failure` says why, writing raises
  StoreDown, reading goes on. A sync that failed is never tried again.
- More than `backlog_bytes_max` under way: `submit` and `append` still work, `congested` says that
  callers must wait for a `reap`; at twice as much `submit` itself waits for the disk.
"""
import os
import shutil
from collections import deque
from pathlib import Path

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.ref cimport Py_INCREF, PyObject
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from storage.fs import StoreDown, begin_file, read_if_there, sync_directory, sync_file, take_lock, write_file
from storage.identity import PLAIN_VERSION, raise_version, read_identity, write_identity
from storage.keys import DirectoryKeys
from storage.meta import decode_meta, encrypted_meta, find_streams, name_in, no_codec, plain_meta, unlock

from storage._frames import CODECS
from storage.pool import RewritePool, run_now

from storage._block cimport JOB_APPLY, JOB_ERASE, JOB_SPLICE, BlockJob
from storage._blockqueue cimport Batch, BlockQueue
from storage._checkpoint cimport checkpoint_job
from storage._codec cimport load64, xxh64
from storage._disk cimport Job
from storage._recovery cimport end_replay, load_state, rebuild, replay_frame
from storage._replay cimport Replay
from storage._rewritequeue cimport ask_for_checkpoints, pump_rewrites

cdef enum:
    UNHEARD_BYTES_MAX = 1 << 20     # of writes done by the owner's thread: then it is told of them


cdef class DataDirectory:
    """See the module. `open` it by constructing it; `close` it for a clean stop."""

    def __init__(self, path, files=None, *, durable: bool = True, threaded: bool = True,
                 segment_size: int = 64 << 20, log_bytes_max: int = 256 << 20,
                 block_size_min: int = 64 << 10, block_size_max: int = 8 << 20,
                 backlog_bytes_max: int = 64 << 20, files_open_max: int = 512, maps_open_max: int = 1024,
                 attach=None, keys=None, label_of=name_in,
                 codec_of=no_codec, frame_cache_bytes_max: int = 32 << 20):
        """`attach(home, settings)` is called for each stream found, between its checkpoint and the replay.

        `keys` (ServerKeys) turns encryption on; `label_of(settings)` is how a log line names a stream.
        `codec_of(settings)` names what a stream's sealed blocks are compressed with, of `_frames.CODECS`.
        """
        self.path = str(path)
        self.files = files if files is not None else Files()
        self.durable = durable
        self.threaded = threaded
        self.segment_size = segment_size
        self.log_bytes_max = log_bytes_max
        self.backlog_bytes_max = backlog_bytes_max
        self.maps_open_max = maps_open_max
        self.homes = {}
        self.locked = {}
        self.wrapped = {}
        self.label_of = label_of
        self.codec_of = codec_of
        self.damage = []
        self.erasing = {}
        self.batches = deque()
        self.unsettled = []
        self.next_group = 1
        for part in ("", "log", "streams"):
            os.makedirs(Path(self.path, part), mode=0o700, exist_ok=True)
        self.lock = take_lock(Path(self.path))
        try:
            if Path(self.path, "directory").exists():
                self.identity, self.salt = read_identity(Path(self.path))
            else:
                self.identity, self.salt = os.urandom(16), int.from_bytes(os.urandom(8), "little")
                write_identity(Path(self.path), self.identity, self.salt, PLAIN_VERSION)
            self.keys = DirectoryKeys(keys, self.identity) if keys is not None else None
            if keys is not None:
                raise_version(Path(self.path), self.identity, self.salt)
            self.shop = Workshop(self.files, block_size_min, block_size_max, files_open_max, frame_cache_bytes_max)
            found = Replay(f"{self.path}/log", self.identity, self.salt)
            streams, self.next_group = find_streams(Path(self.path, "streams"), self.damage)
            found.mend({meta.group: meta.salt for _, meta in streams})
            self.load_streams(streams, attach, found)
            self.replay(found)
        except BaseException:
            os.close(self.lock)
            raise

    # -- opening -----------------------------------------------------------------------------------

    def load_streams(self, streams: list, attach, Replay found) -> None:
        """Every stream's checkpoint."""
        cdef BlockHome home
        first_indexes = found.first_indexes()
        for directory, meta in streams:
            home = BlockHome(self.shop, str(directory), meta.group, meta.salt)
            settings = self.unlock_stream(home, meta)
            home.replaying = True
            home.erased = found.erased.get(meta.group)
            if not load_state(home):
                self.begin_anew(home, first_indexes.get(meta.group, 0), found.headed and not found.damage)
            if settings is None:
                home.locked = True
                self.locked[meta.group] = (home, meta.label)
                continue
            self.homes[meta.group] = home
            self.choose_codec(home, settings)
            if attach is not None:
                attach(home, settings)

    def begin_anew(self, home: BlockHome, first_index: int, log_is_whole: bool) -> None:
        """Without a checkpoint: from the log, when it has all; else from the blocks."""
        if first_index == 1:
            return
        if first_index == 0 and log_is_whole and not home.damage:
            for block in Path(home.path).glob("*.blk"):
                # Written ahead of a first batch that the log never got; nobody was told of it.
                block.rename(block.with_suffix(".unread"))
            return
        rebuild(home, max(first_index, 1) - 1)

    def unlock_stream(self, home: BlockHome, meta):
        """Its settings, with its key in place; None: no key opens it, so nobody will write to it."""
        plain = meta.settings(None)
        opened = unlock(meta, self.keys, self.label_of(plain) if plain is not None else meta.label)
        if opened is None:
            return None
        (<BlockHome>home).key = opened.key
        if opened.renewed is not None:
            write_file(Path(home.path, "meta"), opened.renewed.encode())
            self.scrub_log = self.scrub_log or meta.cipher == 0
        if opened.key is not None:
            self.wrapped[home.group] = opened.raw_key
        return opened.settings

    def choose_codec(self, home: BlockHome, settings: dict) -> None:
        """From the settings; what is sealed already follows in the background."""
        codec = CODECS[self.codec_of(settings)]
        if codec and not home.codec:
            raise_version(Path(self.path), self.identity, self.salt)
        home.codec = codec

    cdef int replay(self, Replay found) except -1:
        """Do what the log has beyond the checkpoints, make new checkpoints, begin an empty log."""
        cdef size_t index
        cdef BlockHome home
        self.damage.extend(f"{path} at {offset}: {what}" for path, offset, what in found.damage)
        everyone = self.homes | {group: home for group, (home, label) in self.locked.items()}
        for index in range(found.count):
            home = everyone.get(found.frames[index].group)
            if home is not None:
                replay_frame(home, &found.frames[index])
                self.shop.views.end_views()
            else:
                self.next_group = max(self.next_group, found.frames[index].group + 1)
        self.block_disk = DiskThread(self.files, False)
        for home in everyone.values():
            end_replay(home, self.durable)
            if home.log_group.index != home.checkpoint_index or home.touched or home.damage or self.scrub_log:
                self.checkpoint_now(home, False)
        self.shop.touched.clear()
        self.begin_log(found)
        for home in self.homes.values():
            home.frame_sealed()
        return 0

    def checkpoint_now(self, home: BlockHome, clean: bool) -> None:
        """During recovery and at the end: a checkpoint on this thread."""
        cdef BlockJob* job = checkpoint_job(home, 0, clean)
        cdef int result = job.job.run(&job.job, &self.files.calls)
        job.job.result = result
        (<BlockHome>home).touched = False
        (<BlockHome>home).job_done(job)
        if result < 0:
            raise OSError(-result, os.strerror(-result), home.path)

    def begin_log(self, found: Replay) -> None:
        """Nothing in the old segments is needed, and they may hold what was erased since. The threads start.
        Kept is what they have of a stream whose meta does not hold: it may be put back."""
        free_max = max(2, self.log_bytes_max // self.segment_size)
        there = {int(folder.name, 16) for folder in Path(self.path, "streams").iterdir()}
        kept = found.segments_of(there - self.homes.keys() - self.locked.keys())
        self.damage.extend(f"{name}: kept for a stream that is not loaded" for name in kept)
        old = [*(set(found.paths) - set(kept)), *map(str, Path(self.path, "log").glob("*.free"))]
        for name in old:
            os.unlink(name)
        if old:
            sync_directory(Path(self.path, "log"))
        self.log_disk = DiskThread(self.files, self.threaded)
        self.block_disk = DiskThread(self.files, self.threaded)
        self.pool = RewritePool(self.block_disk.wake) if self.threaded else None
        self.begin_rewrite = run_now if self.pool is None else self.pool.begin
        self.log = CommitLog(f"{self.path}/log", self.log_disk, self.identity, self.salt,
                             max(found.highest_segment + 1, self.first_unused_number(found.paths)),
                             [], self.segment_size, free_max, self.durable)
        self.shop.log = self.log
        self.block_queue = BlockQueue(self.shop, self.block_disk, not self.threaded)

    def first_unused_number(self, paths: list) -> int:
        return max((int(Path(name).stem, 16) + 1 for name in paths), default=1)

    # -- streams -----------------------------------------------------------------------------------

    def create_stream(self, settings: dict, settle: bool = True) -> BlockHome:
        """A new, empty stream. Its directory is on stable storage when this returns.

        Without `settle` only the next `settle` sees to that, for all streams since: before it,
        nobody may be told that the stream is there.
        """
        cdef BlockHome home
        cdef uint64_t salt = int.from_bytes(os.urandom(8), "little")
        group = self.next_group
        self.next_group += 1
        directory = Path(self.path, "streams", f"{group:016x}")
        fresh = directory.with_name(f".{directory.name}")
        fresh.mkdir(mode=0o700)
        meta, key = plain_meta(group, salt, settings), None
        if self.keys is not None:
            self.wrapped[group] = self.keys.new_key()
            meta, key = encrypted_meta(meta, settings, self.label_of(settings), self.keys, self.wrapped[group])
        begin_file(fresh / "meta", meta.encode())
        self.unsettled.append((fresh, directory))
        home = BlockHome(self.shop, str(directory), group, salt)
        home.key = key
        self.choose_codec(home, settings)
        self.homes[group] = home
        if settle:
            self.settle()
        return home

    def settle(self) -> None:
        """New streams' directories get their names; all of them last when this returns."""
        if not self.unsettled:
            return
        try:
            for fresh, _ in self.unsettled:
                sync_file(fresh / "meta")
                sync_directory(fresh)
            for fresh, directory in self.unsettled:
                fresh.rename(directory)
            sync_directory(Path(self.path, "streams"))
        except OSError as error:
            self.fail(error)
            raise
        finally:
            self.unsettled = []

    def update_settings(self, home: BlockHome, settings: dict) -> None:
        self.settle()
        meta = plain_meta(home.group, home.salt, settings)
        if home.group in self.wrapped:
            label = self.label_of(settings)
            meta, _ = encrypted_meta(meta, settings, label, self.keys, self.wrapped[home.group])
        write_file(Path(home.path, "meta"), meta.encode())
        self.choose_codec(home, settings)
        (<BlockHome>home).frame_sealed()

    def settings_of(self, home: BlockHome) -> dict:
        self.settle()
        meta = decode_meta(read_if_there(Path(home.path, "meta")))
        settings = None if meta is None else meta.settings(home.key)
        if settings is None:
            raise OSError(f"{home.path}/meta does not hold")
        return settings

    def delete_stream(self, home: BlockHome) -> None:
        """Gone at once for readers; the rename makes it last, the files follow."""
        self.settle()
        del self.homes[home.group]      # first: nothing of it goes to the pool or comes back from there
        self.wait(self.submit())
        self.wait_applied()
        while home in self.shop.touched:    # what came back from the threads may want more of them
            self.wait(self.submit())
            self.wait_applied()
        (<BlockHome>home).left = True
        self.shop.leave(home)
        path = Path(home.path)
        hidden = path.with_name(f".{path.name}")
        path.rename(hidden)
        sync_directory(path.parent)
        home.close_files()
        self.wrapped.pop(home.group, None)
        shutil.rmtree(hidden)

    # -- the turn ----------------------------------------------------------------------------------

    cdef uint64_t submit(self) except? 0:
        """Close the open batch; its ticket, or that of the last one when nothing was written."""
        cdef BlockHome home
        cdef Batch batch
        cdef uint64_t segment
        cdef size_t index = 0
        if self.failure is not None:
            raise StoreDown(self.failure)
        if self.unsettled:
            self.settle()
        if not self.shop.touched:
            return self.log.ticket - 1
        batch = Batch()
        batch.homes = self.shop.touched
        for home in batch.homes:
            home.close_batch()
        self.log.close_frame()
        batch.ticket = self.log.ticket
        batch.checkpoints = <BlockJob**>malloc(len(batch.homes) * sizeof(BlockJob*))
        batch.last_seqs = <uint64_t*>malloc(len(batch.homes) * sizeof(uint64_t))
        segment = self.log.position >> 32
        for home in batch.homes:
            batch.last_seqs[index] = home.last_seq
            index += 1
            home.touched = False
            if home.checkpoint_wanted and not home.checkpoint_running and not home.rewrites:
                batch.checkpoints[batch.checkpoint_count] = checkpoint_job(home, segment, False)
                batch.checkpoint_count += 1
        self.shop.touched = []
        batch.scrubs, self.shop.scrubs = self.shop.scrubs, []
        batch.erases, self.shop.erases = self.shop.erases, 0
        self.log.sync_wanted = batch.erases > 0 or self.shop.removes
        self.shop.removes = False
        self.log.small = not self.durable and self.shop.after_count == 0
        self.log.submit()
        batch.chunks = self.log.take_pieces()
        batch.end = self.log.position
        batch.after, batch.after_count = self.shop.after, self.shop.after_count
        self.shop.after = NULL
        self.shop.after_count = self.shop.after_room = 0
        self.batches.append(batch)
        self.shop.in_flight.append(batch.chunks)
        if self.log.small and self.log.backlog_bytes > UNHEARD_BYTES_MAX:
            self.log_disk.ring()
        while self.log.backlog_bytes > 2 * self.backlog_bytes_max and self.failure is None:
            self.log_disk.wait_idle()
            self.reap()
            self.log_disk.ring()
        return batch.ticket

    cdef int reap(self) except -1:
        """Take what is finished. Views end here."""
        cdef Batch batch
        self.shop.views.end_views()
        self.shop.frame_cache.end_views()
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

    cdef int queue_block_work(self, Batch batch) except -1:
        """The batch is durable: its records go to the blocks, then seals, removals, checkpoints."""
        cdef size_t index
        self.block_queue.add(batch)
        if batch.erases:
            self.erasing[batch.ticket] = batch.erases + self.log.scrub(batch.scrubs, batch.ticket)
        for index in range(batch.after_count):
            if batch.after[index].kind == JOB_ERASE or batch.after[index].kind == JOB_SPLICE:
                batch.after[index].ticket = batch.ticket
            self.block_disk.submit(&batch.after[index].job)
        for index in range(batch.checkpoint_count):
            self.block_disk.submit(&batch.checkpoints[index].job)
        batch.after_count = batch.checkpoint_count = 0
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
            if job.kind == JOB_APPLY:
                if job.job.result == 0:
                    self.applied_ticket = job.ticket
                self.block_queue.finished(job)
            else:
                if (job.kind == JOB_ERASE or job.kind == JOB_SPLICE) and job.job.result == 0:
                    self.erase_done(job.ticket)
                (<BlockHome>job.owner).job_done(job)
        if failed:
            raise OSError(-failed, os.strerror(-failed), self.path)
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
        cdef uint64_t oldest = 0
        cdef uint64_t limit
        cdef size_t segments_max = max(2, self.log_bytes_max // self.segment_size)
        cdef size_t used = len(self.log.segments_in_use)
        if used * 2 <= segments_max or used < 2:
            return 0
        limit = self.log.segments_in_use[used // 2]
        for home in self.homes.values():
            if home.log_group.first_segment and (oldest == 0 or home.log_group.first_segment < oldest):
                oldest = home.log_group.first_segment
            if home.log_group.first_segment and home.log_group.first_segment <= limit and (
                    not home.checkpoint_running):
                home.checkpoint_wanted = True
                home.touch()
        self.log.retire(oldest if oldest else self.log.current_segment)
        return 0

    # -- for the loop, tools and tests ---------------------------------------------------------------

    def commit(self) -> int:
        """`submit`, for Python."""
        return self.submit()

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
        self.log_disk.ring()            # the loop has not seen what was reaped here

    def wait_rewritten(self) -> None:
        """Block until no sealed block waits to be compressed or encrypted; for tests and tools."""
        while self.failure is None and (self.shop.waiting or self.shop.to_frame or self.shop.rewrite is not None
                                        or self.shop.touched):
            ask_for_checkpoints(self.shop, self.homes)
            self.wait(self.submit())
            self.wait_applied()
            if self.pool is not None:
                self.pool.wait()
            self.reap()

    def drop_caches(self) -> None:
        """Under memory pressure: what was uncompressed goes. Views end here."""
        self.shop.frame_cache.drop()
        self.shop.frame_cache.end_views()
        self.shop.views.end_views()

    def hurry(self) -> None:
        """Somebody waits for what was submitted: have `poll` called soon, also when it is done already."""
        self.log_disk.ring()

    def catch_up(self) -> None:
        """At each tick: what waits for more of its kind waits no longer. Views end here."""
        self.reap()
        if self.failure is None:
            self.block_queue.hand_over()

    def sync(self) -> None:
        """Lazy mode, at the interval: what was written so far becomes durable."""
        self.log.sync()

    def maintain(self) -> None:
        """Now and then: one compaction, by the block thread; unused maps go when there are too many."""
        cdef BlockHome home
        cdef size_t index
        self.shop.tick += 1
        self.shop.views.end_views()
        self.shop.frame_cache.end_views()
        self.shop.frame_cache.rest()
        ask_for_checkpoints(self.shop, self.homes)
        if self.shop.candidates and self.failure is None:
            home, number = self.shop.candidates.popleft()
            (<BlockHome>home).compact(number)
        if self.shop.maps_open <= <size_t>self.maps_open_max:
            return
        for home in self.homes.values():
            for index in range(home.block_count):
                if home.blocks[index].map != NULL and home.blocks[index].used_at + 1 < self.shop.tick and (
                        home.blocks[index] != home.active) and not home.blocks[index].index_owned:
                    home.let_go_map(home.blocks[index])

    def close(self, clean: bool = True) -> None:
        """Finish what is under way; with `clean` leave checkpoints that need no replay."""
        if self.closed:
            return
        self.closed = True
        if self.pool is not None:
            self.pool.close()
        try:
            if self.failure is None and clean:
                self.wait(self.submit())
                self.log.sync()
                self.wait_applied()
                self.log_disk.wait_idle()
                self.reap()
            self.log_disk.stop()
            self.reap()
            self.block_disk.stop()
            self.reap()
            if self.failure is None and clean:
                for home in self.homes.values():
                    if home.log_group.index != home.checkpoint_index or home.snapshot_source is not None:
                        self.checkpoint_now(home, True)
                self.remove_log()
        finally:
            self.shop.close_files()
            for disk in (self.log_disk, self.block_disk):
                (<DiskThread>disk).close()
            self.log.close_files()
            os.close(self.lock)

    def remove_log(self) -> None:
        """After a clean stop nothing in the log is needed."""
        for path in {self.log.segment_path(number) for number in self.log.segments_in_use}:
            result = self.files.calls.unlink(self.files.calls.context, os.fsencode(path))
            if result < 0:
                raise OSError(-result, os.strerror(-result), path)

    @property
    def settled_ticket(self) -> int:
        """Up to here batches are durable and what they erased is overwritten everywhere."""
        return min(next(iter(self.erasing), self.written_ticket + 1) - 1, self.written_ticket)

    @property
    def congested(self) -> bool:
        return self.log.backlog_bytes > self.backlog_bytes_max

    @property
    def log_event_fd(self) -> int:
        return self.log_disk.event_fd

    @property
    def block_event_fd(self) -> int:
        return self.block_disk.event_fd

    @property
    def stats(self) -> dict:
        return {"syncs": self.log_disk.sync_count, "sync_seconds": self.log_disk.sync_seconds,
                "log_bytes": len(self.log.segments_in_use) * self.segment_size,
                "backlog_bytes": self.log.backlog_bytes, "streams": len(self.homes),
                "maps": self.shop.maps_open, "frame_cache_bytes": self.shop.frame_cache.bytes,
                "frame_loads": self.shop.frame_cache.loads}
