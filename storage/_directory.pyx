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
  callers must wait for a `reap`; at twice as much `submit` itself waits for the disk. The same bound holds
  for what has not reached its blocks.
"""
import os
from collections import deque
from pathlib import Path

from libc.stdint cimport uint64_t
from libc.stdlib cimport free

from storage.fs import StoreDown, make_directory, open_files_allowed, read_if_there, take_lock, write_file
from storage.identity import need_identity, raise_version
from storage.keys import DirectoryKeys
from storage.meta import decode_meta, encrypted_meta, find_streams, group_of, name_in, no_codec, plain_meta, unlock

from storage._frames import CODECS
from storage.pool import RewritePool, run_now

from storage._batches cimport BatchedDirectory
from storage._blockqueue cimport BlockQueue
from storage._checkpoint cimport sync_file_at
from storage._commitlog cimport CommitLog
from storage._disk cimport DiskThread
from storage._fs cimport FileCalls, Files
from storage._recovery cimport begin_anew, end_replay, load_state, replay_frame
from storage._replay cimport Replay
from storage._rewritequeue cimport ask_for_checkpoints
from storage._workshop cimport Workshop

cdef bint is_behind(BlockHome home) noexcept:
    """A clean stop has to write its state anew."""
    if home.is_blank():
        return home.unnamed or home.meta_writes > 0
    return home.log_group.index != home.checkpoint_index or (
        home.snapshot_source is not None and not home.has_snapshot)


cdef int must(int result, str path) except -1:
    """What one of `FileCalls` answered, as the error it stands for."""
    if result < 0:
        raise OSError(-result, os.strerror(-result), path)
    return 0


def tell_nobody(group: int, done: int, total: int) -> None:
    """Nobody waits for this start."""


cdef class DataDirectory(BatchedDirectory):
    """See the module. `open` it by constructing it; `close` it for a clean stop."""

    def __init__(self, path, files=None, *, durable: bool = True, threaded: bool = True,
                 segment_size: int = 64 << 20, log_bytes_max: int = 256 << 20,
                 block_size_min: int = 64 << 10, block_size_max: int = 8 << 20,
                 backlog_bytes_max: int = 64 << 20, files_open_max: int | None = None, maps_open_max: int = 1024,
                 attach=None, loaded=None, keys=None, label_of=name_in,
                 codec_of=no_codec, frame_cache_bytes_max: int = 32 << 20):
        """`attach(home, settings)` is called for each stream found, between its checkpoint and the replay.
        `loaded(group, done, total)` is called behind each, and once before the first.

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
        self.leaving = {}
        self.left = set()
        self.graves = {}
        self.sealing = set()
        self.behind = {}
        self.found_settings = {}
        self.next_group = 1
        for part in ("", "log", "streams"):
            make_directory(Path(self.path, part))
        self.lock = take_lock(Path(self.path))
        try:
            self.identity, self.salt = need_identity(Path(self.path), self.damage)
            self.keys = DirectoryKeys(keys, self.identity) if keys is not None else None
            if keys is not None:
                raise_version(Path(self.path), self.identity, self.salt)
            files_open_max = files_open_max or open_files_allowed()
            self.shop = Workshop(self.files, block_size_min, block_size_max, files_open_max, frame_cache_bytes_max)
            found = Replay(f"{self.path}/log", self.identity, self.salt)
            self.keep_log(found)
            streams, self.next_group = find_streams(
                Path(self.path, "streams"), self.damage, found.metas(), found.gone())
            found.mend({meta.group: meta.salt for _, meta in streams})
            self.load_streams(streams, attach, loaded or tell_nobody, found)
            self.replay(found)
        except BaseException:
            os.close(self.lock)
            raise

    # -- opening -----------------------------------------------------------------------------------

    cdef int keep_log(self, Replay found) except -1:
        """After a kill the end of the log may be in memory only, and the names of checkpoints that contain it: files go
        on the strength of both, so they have to last first."""
        cdef const FileCalls* calls = &self.files.calls
        for path in found.paths:
            must(sync_file_at(calls, os.fsencode(f"{self.path}/log"), os.fsencode(Path(path).name)), path)
        if found.paths:
            must(calls.sync_all(calls.context, os.fsencode(self.path)), self.path)
        return 0

    def load_streams(self, streams: list, attach, loaded, Replay found) -> None:
        """Every stream's checkpoint."""
        cdef BlockHome home
        first_indexes, logged = found.first_indexes(), found.metas()
        loaded(0, 0, len(streams))
        for done, (directory, meta) in enumerate(streams, 1):
            home = BlockHome(self.shop, directory, meta.group, meta.salt)
            settings = self.unlock_stream(home, meta)
            home.replaying = True
            home.erased = found.erased.get(meta.group)
            known = load_state(home)
            if meta.group in logged or (not known and found.headed):
                home.unnamed, home.meta_writes = True, 1
            if not known:
                begin_anew(home, first_indexes.get(meta.group, 0))
            if settings is None:
                home.locked = True
                self.locked[meta.group] = (home, meta.label)
                continue
            self.homes[meta.group] = home
            self.choose_codec(home, settings)
            self.found_settings[meta.group] = settings
            if attach is not None:
                attach(home, settings)
            loaded(meta.group, done, len(streams))

    def unlock_stream(self, home: BlockHome, meta):
        """Its settings, with its key in place; None: no key opens it, so nobody will write to it."""
        label = meta.label
        if meta.cipher == 0 and self.keys is not None:
            label = self.label_of(meta.settings(None))
        opened = unlock(meta, self.keys, label)
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
        behind = []
        owing = set()
        for home in everyone.values():
            end_replay(home, self.durable, found.damaged_position)
            if home.owes_erasures:
                owing.add(home.group)
            elif home.log_group.index != home.checkpoint_index or home.touched or home.damage or self.scrub_log:
                behind.append(home)
        owing |= self.unloaded()
        self.shop.keeps_log = bool(owing)
        self.checkpoint_all(behind, False)
        self.shop.touched.clear()
        self.begin_log(found, owing)
        for home in self.homes.values():
            home.frame_sealed()
        return 0

    def begin_log(self, found: Replay, groups: set) -> None:
        """Nothing in the old segments is needed, and they may hold what was erased since. The threads start.
        Kept is what they have of `groups`: streams whose meta or key may be put back."""
        free_max = max(2, self.log_bytes_max // self.segment_size)
        kept = []
        for name in found.segments_of(groups):
            content = found.without_others(name, groups)
            path = Path(name).with_suffix(".kept")
            kept.append(str(path))
            if content != read_if_there(path):
                write_file(path, content)
            self.damage.append(f"{name}: kept for a stream that is not loaded")
        left = [*Path(self.path, "log").glob("*.free"), *Path(self.path, "log").glob("*.new")]
        old = [*(set(found.paths) - set(kept)), *map(str, left)]
        cdef const FileCalls* calls = &self.files.calls
        for name in old:
            must(calls.unlink(calls.context, os.fsencode(name)), name)
        if old:
            must(calls.sync_directory(calls.context, os.fsencode(f"{self.path}/log")), self.path)
        self.log_disk = DiskThread(self.files, self.threaded)
        self.block_disk = DiskThread(self.files, self.threaded)
        self.pool = RewritePool(self.block_disk.wake) if self.threaded else None
        self.begin_rewrite = run_now if self.pool is None else self.pool.begin
        self.log = CommitLog(f"{self.path}/log", self.log_disk, self.identity, self.salt,
                             max(found.highest_segment + 1, self.first_unused_number(found.paths)),
                             [], self.segment_size, free_max, self.durable)
        self.shop.log = self.log
        self.block_queue = BlockQueue(self.shop, self.block_disk, not self.threaded)

    def unloaded(self) -> set:
        """The groups of streams whose meta does not hold."""
        there = {group_of(name) for name in os.listdir(Path(self.path, "streams"))} - {None}
        return there - self.homes.keys() - self.locked.keys()

    def first_unused_number(self, paths: list) -> int:
        return max((int(Path(name).stem, 16) + 1 for name in paths), default=1)

    # -- streams -----------------------------------------------------------------------------------

    def create_stream(self, settings: dict, settle: bool = True) -> BlockHome:
        """A new, empty stream: it lasts with the open batch. Its files are made behind that.

        With `settle` it lasts when this returns.
        """
        cdef BlockHome home
        cdef uint64_t salt = int.from_bytes(os.urandom(8), "little")
        if self.failure is not None:
            raise StoreDown(self.failure)
        group = self.next_group
        self.next_group += 1
        meta, key = plain_meta(group, salt, settings), None
        if self.keys is not None:
            self.wrapped[group] = self.keys.new_key()
            meta, key = encrypted_meta(meta, settings, self.label_of(settings), self.keys, self.wrapped[group])
        home = BlockHome(self.shop, f"{self.path}/streams/{group:016x}", group, salt)
        home.key = key
        home.unnamed = True
        self.choose_codec(home, settings)
        home.keep_meta(meta.encode())
        self.homes[group] = home
        self.life_ticket = self.log.ticket
        if settle:
            self.settle()
        return home

    def settle(self) -> None:
        """Streams made, changed and deleted up to now are so for good when this returns."""
        if self.life_ticket == self.log.ticket:
            self.submit()
        self.wait(self.life_ticket)

    @property
    def unsettled(self) -> bool:
        """Something that `settle` would wait for does not last yet."""
        return self.life_ticket > self.written_ticket

    def update_settings(self, home: BlockHome, settings: dict, settle: bool = True) -> None:
        """They last with the open batch; with `settle` when this returns."""
        if self.failure is not None:
            raise StoreDown(self.failure)
        meta = plain_meta(home.group, home.salt, settings)
        if home.group in self.wrapped:
            label = self.label_of(settings)
            meta, _ = encrypted_meta(meta, settings, label, self.keys, self.wrapped[home.group])
        self.found_settings.pop(home.group, None)
        (<BlockHome>home).keep_meta(meta.encode())
        self.life_ticket = self.log.ticket
        self.choose_codec(home, settings)
        (<BlockHome>home).frame_sealed()
        if settle:
            self.settle()

    def settings_of(self, home: BlockHome) -> dict:
        """What a start read is told once without reading again."""
        settings = self.found_settings.pop(home.group, None)
        if settings is None:
            meta = decode_meta(home.fresh_meta or read_if_there(Path(home.path, "meta")))
            settings = None if meta is None else meta.settings(home.key)
        if settings is None:
            raise OSError(f"{home.path}/meta does not hold")
        return settings

    def delete_stream(self, home: BlockHome, settle: bool = True) -> None:
        """Gone at once for readers, for good with the open batch; the files follow.

        With `settle` it is gone for good when this returns.
        """
        if self.failure is not None:
            raise StoreDown(self.failure)
        del self.homes[home.group]      # first: nothing of it goes to the pool or comes back from there
        (<BlockHome>home).leave()
        self.leaving[home.group] = self.log.ticket
        self.shop.leave(home)
        self.wrapped.pop(home.group, None)
        self.found_settings.pop(home.group, None)
        self.life_ticket = self.log.ticket
        if settle:
            self.settle()

    # -- for the loop, tools and tests ---------------------------------------------------------------

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

    def hurry(self) -> None:
        """Somebody waits for what was submitted: have `poll` called soon, also when it is done already."""
        self.log_disk.ring()

    def catch_up(self) -> None:
        """Now and then: what waits for more of its kind waits no longer. Views end here."""
        self.reap()
        if self.failure is None:
            self.block_queue.hand_over()

    def drop_caches(self) -> None:
        """Under memory pressure: what was uncompressed goes. Views end here."""
        self.shop.frame_cache.drop()
        self.shop.frame_cache.end_views()
        self.shop.views.end_views()

    def maintain(self) -> None:
        """Now and then: one compaction, by the block thread; unused maps go when there are too many."""
        self.shop.tick += 1
        self.shop.views.end_views()
        self.shop.frame_cache.end_views()
        self.shop.frame_cache.rest()
        ask_for_checkpoints(self.shop, self.homes)
        if self.shop.candidates and self.failure is None:
            home, number = self.shop.candidates.popleft()
            (<BlockHome>home).compact(number)
        if self.shop.maps_open > <size_t>self.maps_open_max:
            self.let_go_maps(self.shop.tick)

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
                self.checkpoint_all([home for home in self.homes.values() if is_behind(home)], True)
                self.remove_log()
        finally:
            self.log_disk.stop()
            self.block_disk.stop()
            self.shop.close_files()         # the block thread's until now
            for disk in (self.log_disk, self.block_disk):
                (<DiskThread>disk).close()
            self.log.close_files()
            os.close(self.lock)

    def remove_log(self) -> None:
        """After a clean stop nothing in the log is needed."""
        for path in {self.log.segment_path(number) for number in self.log.segments_in_use}:
            must(self.files.calls.unlink(self.files.calls.context, os.fsencode(path)), path)

    @property
    def settled_ticket(self) -> int:
        """Up to here batches are durable and what they erased is overwritten everywhere."""
        return min(next(iter(self.erasing), self.written_ticket + 1) - 1, self.written_ticket)

    @property
    def congested(self) -> bool:
        return self.log.backlog_bytes > self.backlog_bytes_max or (
            self.log.bytes_built - self.block_queue.bytes_applied > self.backlog_bytes_max)

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
                "backlog_bytes": self.log.backlog_bytes,
                "unapplied_bytes": self.log.bytes_built - self.block_queue.bytes_applied, "streams": len(self.homes),
                "maps": self.shop.maps_open, "frame_cache_bytes": self.shop.frame_cache.bytes,
                "frame_loads": self.shop.frame_cache.loads}
