# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What a start finds in the commit log: its frames in order, and what is damaged (FORMAT.md, 4).

Contract: `Replay` reads and changes nothing. Frames that were torn while a record in them was being
erased are put together again by `mend`, which needs the streams' salts.
"""
from pathlib import Path

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, qsort, realloc
from libc.string cimport memcpy, memset

from storage._codec cimport RECORD_FIXED, check_record, erase_record, load32, load64, shape_of_record, store32, store64, xxh64
from storage._commitlog cimport (
    FRAME_BLOCK, FRAME_CUT, FRAME_DROP, FRAME_ERASE, FRAME_FORGET, FRAME_GOES_ON, FRAME_GONE, FRAME_HEAD, FRAME_LAST,
    FRAME_MARK, FRAME_META, FRAME_RECORDS, SEGMENT_HEAD, frame_checksum)
from storage._fs cimport FileMap, map_file


cdef enum:
    SEARCHED_TIMES_MAX = 8      # bytes behind a bad frame of which a checksum is made, in sizes of the segment


cdef bint size_fits(const char* at, uint64_t size) noexcept nogil:
    """Whether a frame of this kind may have this size; of records the first one has to fit."""
    cdef int kind = at[4]
    if kind == FRAME_RECORDS:
        return size == 0 or shape_of_record(at + FRAME_HEAD, size) > 0      # empty: the end of a whole
    if kind == FRAME_FORGET:
        return size > 0 and size % 8 == 0
    if kind == FRAME_ERASE:
        return size == 8 or size == 16
    if kind == FRAME_DROP or kind == FRAME_CUT:
        return size == 8
    if kind == FRAME_BLOCK:
        return size == 24
    return size == 0 if kind == FRAME_MARK or kind == FRAME_GONE else kind == FRAME_META


cdef uint64_t claimed_size(const char* at, uint64_t room, uint64_t position) noexcept nogil:
    """What a frame at `at` would have with its head, if one can be there; 0: none can. Its checksum was not looked at."""
    cdef uint64_t size
    if room < FRAME_HEAD:
        return 0
    size = load32(at)
    if at[4] < FRAME_RECORDS or at[4] > FRAME_LAST or at[5] & ~FRAME_GOES_ON | at[6] | at[7] or size + FRAME_HEAD > room:
        return 0
    if load64(at + 16) == 0 or load64(at + 24) > position or not size_fits(at, size):
        return 0
    return size + FRAME_HEAD


cdef size_t check_frame(const char* at, uint64_t room, uint64_t salt, uint64_t position) noexcept nogil:
    """The padded size of the frame at `at`, or 0 when there is none."""
    cdef uint64_t size = claimed_size(at, room, position)
    if size == 0 or frame_checksum(at, size - FRAME_HEAD, salt + position) != load64(at + 32):
        return 0
    return (size + 7) & ~<uint64_t>7


cdef int by_position(const void* one, const void* other) noexcept nogil:
    cdef uint64_t first = (<const Frame*>one).position
    cdef uint64_t second = (<const Frame*>other).position
    return (first > second) - (first < second)


cdef bint has_lengths(const char* frame, uint64_t size) noexcept nogil:
    """Whether it is of records that lie one behind the other up to its end, whatever is in them."""
    cdef uint64_t at = FRAME_HEAD
    if frame[4] != FRAME_RECORDS or size <= FRAME_HEAD:
        return False
    while at < size:
        if size - at < RECORD_FIXED or load32(frame + at) < RECORD_FIXED or load32(frame + at) > size - at:
            return False
        at += load32(frame + at)
    return True


cdef int keep_frame(char* to, const Frame* frame, bint wanted, uint64_t salt) noexcept:
    """One that holds content of others becomes one that names sequence 0 as deleted."""
    memcpy(to, frame.payload - FRAME_HEAD, FRAME_HEAD)
    if wanted or frame.size == 0 or (frame.kind != FRAME_RECORDS and frame.kind != FRAME_META):
        memcpy(to + FRAME_HEAD, frame.payload, frame.size)
        return 0
    to[4] = FRAME_FORGET
    store32(to, (frame.size + 7) & ~<uint32_t>7)
    store64(to + 32, frame_checksum(to, load32(to), salt + frame.position))
    return 0


cdef void end_segment(char* to, uint64_t number, uint64_t position, uint64_t salt) noexcept nogil:
    """The mark behind the last frame."""
    memset(to, 0, FRAME_HEAD)
    to[4] = FRAME_MARK
    store64(to + 16, number + 1)
    store64(to + 32, frame_checksum(to, 0, salt + position))


cdef class Replay:
    """All valid frames of a log directory, in order, and what is damaged. Keeps the files mapped."""

    def __cinit__(self, str path, bytes identity, uint64_t salt):
        cdef FileMap file
        self.damage = []
        self.paths = []
        self.maps = {}
        self.mended = []
        self.erased = {}
        self.marks = {}
        self.salt = salt
        self.identity = identity
        found = []
        headless = set()
        blank = []
        for entry in sorted([*Path(path).glob("*.seg"), *Path(path).glob("*.kept")]):
            file = map_file(str(entry))
            self.paths.append(str(entry))
            number = segment_number(file, identity, salt)
            if number is not None:
                found.append((number, file, str(entry)))
            elif is_blank(file):
                blank.append((int(entry.stem, 16), str(entry)))
            else:
                headless.add(str(entry))
                found.append((int(entry.stem, 16), file, str(entry)))
        found.sort(key=lambda item: item[0])
        for number, file, name in found:
            self.maps[name] = file
            before = self.count
            self.walk(file, number, salt, name)
            # Without a header and without frames it is a segment that was being made.
            if name in headless and self.count > before:
                self.damage.append((name, 0, "segment header does not hold"))
            self.highest_segment = max(self.highest_segment, number)
            self.headed += name not in headless
        # Only the newest can be one that was never begun.
        self.damage.extend((name, 0, "segment header does not hold") for number, name in blank
                           if number < self.highest_segment)

    def __dealloc__(self):
        free(self.frames)

    cdef int add(self, const char* at, uint64_t position) except -1:
        cdef Frame* frame
        if self.count == self.capacity:
            self.capacity = self.capacity * 2 or 1024
            self.frames = <Frame*>realloc(self.frames, self.capacity * sizeof(Frame))
            if self.frames == NULL:
                raise MemoryError
        frame = &self.frames[self.count]
        self.count += 1
        frame.size = load32(at)
        frame.kind = <uint8_t>at[4]
        frame.goes_on = at[5] & FRAME_GOES_ON
        frame.group = load64(at + 8)
        frame.index = load64(at + 16)
        frame.position = position
        frame.payload = at + FRAME_HEAD
        frame.after_damage = 0
        if frame.kind == FRAME_ERASE and frame.size == 16:
            self.erased.setdefault(frame.group, {})[load64(frame.payload)] = load64(frame.payload + 8)
        self.durable_position = max(self.durable_position, load64(at + 24))
        return 0

    cdef int walk(self, FileMap file, uint64_t number, uint64_t salt, str path) except -1:
        """Collect the frames of one segment; behind a bad one look for the next that holds."""
        cdef uint64_t at = SEGMENT_HEAD
        cdef uint64_t bad = 0
        cdef uint64_t base = number << 32
        cdef size_t size
        cdef bint ended = False
        cdef uint64_t searched = 0
        cdef uint64_t segment_size = max(file.size, load64(file.data + 40) if file.size >= SEGMENT_HEAD else 0)
        while at + FRAME_HEAD <= file.size and not ended:
            if bad:
                searched += claimed_size(file.data + at, file.size - at, base + at)
                if searched > SEARCHED_TIMES_MAX * file.size:
                    # Somebody's messages look like frames; to try each of them would take hours.
                    self.damage.append((path, at, "too much looks like a frame: not searched behind this"))
                    break
            size = check_frame(file.data + at, file.size - at, salt, base + at)
            if size:
                if bad:
                    self.damage.append((path, bad, base + bad))
                    bad = 0
                if file.data[at + 4] == FRAME_MARK:
                    ended = True
                    self.marks[number] = at
                    self.durable_position = max(self.durable_position, load64(file.data + at + 24))
                else:
                    self.add(file.data + at, base + at)
                at += size
            else:
                if not bad:
                    bad = at
                at += 8
        if segment_size > file.size and segment_number(file, self.identity, salt) is not None:
            self.damage.append((path, file.size, "segment is cut short"))
        if bad:
            self.damage.append((path, bad, base + bad))
        elif not ended and at < min(segment_size, <uint64_t>1 << 32):
            self.damage.append((path, at, base + at))
        return 0

    def first_indexes(self) -> dict:
        """Of each group, the index of its first frame; 0 when a torn end has taken the one before that."""
        cdef size_t index
        cdef Frame* frame
        out = {}
        for index in range(self.count):
            frame = &self.frames[index]
            out.setdefault(frame.group, 0 if frame.after_damage == 1 and frame.index != 1 else frame.index)
        return out

    def segments_of(self, groups) -> list:
        """The files with frames of these groups."""
        cdef size_t index
        numbers = {self.frames[index].position >> 32 for index in range(self.count)
                   if self.frames[index].group in groups}
        return [path for path in self.paths if int(Path(path).stem, 16) in numbers]

    def without_others(self, path: str, groups) -> bytes:
        """The segment with the content of these groups only: others' records may have to be erased some day, and
        nobody would look for them here. Frames keep their places; one with others' content names sequence 0 as
        deleted, as often as there is room."""
        cdef FileMap file = self.maps[path]
        cdef bytearray out = bytearray(file.size)
        cdef char* to = out
        cdef const Frame* frame
        cdef uint64_t offset
        cdef uint64_t end = SEGMENT_HEAD
        cdef size_t index
        cdef uint64_t number = int(Path(path).stem, 16)
        memcpy(to, file.data, min(file.size, <size_t>SEGMENT_HEAD))
        for index in range(self.count):
            frame = &self.frames[index]
            offset = frame.position & 0xFFFFFFFFu
            if frame.position >> 32 != number or frame.after_damage == 1 or (
                    offset + FRAME_HEAD + frame.size > file.size):
                continue
            keep_frame(to + offset, frame, frame.group in groups, self.salt)
            end = max(end, (offset + FRAME_HEAD + frame.size + 7) & ~<uint64_t>7)
        self.keep_torn(path, to, groups)
        if number in self.marks:
            offset = self.marks[number]
            memcpy(to + offset, file.data + offset, FRAME_HEAD)
        elif end + FRAME_HEAD <= file.size and not any(damaged == path for damaged, _, _ in self.damage):
            # What was torn behind it is not here any more, and is no damage to the next start.
            end_segment(to + end, number, (number << 32) + end, self.salt)
        return bytes(out)

    cdef int keep_torn(self, str path, char* to, object groups) except -1:
        """Frames of these groups whose scrub was torn: with the stream's salt, which its meta has, `mend` can still
        put them together."""
        cdef FileMap file = self.maps[path]
        cdef const char* frame
        cdef uint64_t at, size
        for damaged, offset, _ in self.damage:
            if damaged != path:
                continue
            at = offset
            while at + FRAME_HEAD <= file.size:
                frame = file.data + at
                size = FRAME_HEAD + <uint64_t>load32(frame)
                if load64(to + at + 8) or size > file.size - at or load64(frame + 8) not in groups or (
                        load64(frame + 8) not in self.erased or not has_lengths(frame, size)):
                    break
                memcpy(to + at, frame, size)
                at += (size + 7) & ~<uint64_t>7
        return 0

    def metas(self) -> dict:
        """Of each group, the content of its newest meta."""
        cdef size_t index
        kept = self.kept_numbers()
        return {self.frames[index].group: self.frames[index].payload[:self.frames[index].size]
                for index in range(self.count) if self.frames[index].kind == FRAME_META and
                self.frames[index].position >> 32 not in kept}

    def kept_numbers(self) -> set:
        """Of segments from an earlier start; only records of streams that were not loaded then count in them."""
        return {int(Path(path).stem, 16) for path in self.paths if path.endswith(".kept")}

    def gone(self) -> set:
        """The groups of deleted streams."""
        cdef size_t index
        kept = self.kept_numbers()
        return {self.frames[index].group for index in range(self.count) if self.frames[index].kind == FRAME_GONE and
                self.frames[index].position >> 32 not in kept}

    def mend(self, salts: dict) -> None:
        """Put frames together again whose scrub was torn; `salts` is by group. Then `judge`."""
        cdef FileMap file
        cdef uint64_t at
        cdef bytes whole
        still = []
        for path, offset, what in self.damage:
            if isinstance(what, str) or not self.erased:
                still.append((path, offset, what))
                continue
            file = self.maps[path]
            at = offset
            while True:
                whole = self.mend_frame(file, at, file.size - at, salts)
                if whole is None:
                    break
                self.mended.append(whole)
                self.add(whole, what - offset + at)
                at += (len(whole) + 7) & ~7
            if at == offset or check_frame(file.data + at, file.size - at, self.salt, what - offset + at) == 0:
                still.append((path, at, what - offset + at))
        if self.mended:
            qsort(self.frames, self.count, sizeof(Frame), by_position)
        self.damage = still
        self.judge()

    cdef bytes mend_frame(self, FileMap file, uint64_t at, uint64_t room, dict salts):
        """The frame at `at` with all its erased records erased; None when something else is wrong."""
        cdef const char* frame = file.data + at
        cdef uint64_t offset = FRAME_HEAD
        cdef uint64_t end, seq, salt
        cdef uint32_t length
        cdef bytes whole
        cdef char* out
        cdef bint any_erased = False
        if room < FRAME_HEAD or load32(frame) > room - FRAME_HEAD or (
                not has_lengths(frame, <uint64_t>FRAME_HEAD + load32(frame))):
            return None
        erased = self.erased.get(load64(frame + 8))
        if not erased or load64(frame + 8) not in salts:
            return None
        salt = salts[load64(frame + 8)]
        end = <uint64_t>FRAME_HEAD + load32(frame)
        whole = frame[:end]
        out = whole
        while offset < end:
            length = load32(out + offset)
            seq = load64(out + offset + 8)
            any_erased = any_erased or seq in erased
            # One that holds is another message of that sequence, from before or after a cut.
            if check_record(out + offset, end - offset, salt) == 0:
                if seq not in erased:
                    return None
                erase_record(out + offset, erased[seq], salt)
            offset += length
        return whole if any_erased else None

    def judge(self) -> None:
        """Tell damage of durable bytes from a torn end, and mark the frames behind either."""
        cdef size_t index
        cdef uint64_t first_bad = 0
        cdef uint64_t first_torn = 0
        proven = []
        for path, offset, what in self.damage:
            if isinstance(what, str):
                proven.append((path, offset, what))
                self.damaged_position = max(self.damaged_position, (<uint64_t>int(Path(path).stem, 16) + 1) << 32)
            elif what < self.durable_position:
                proven.append((path, offset, "log frame does not hold"))
                self.damaged_position = max(self.damaged_position, <uint64_t>what)
                first_bad = min(first_bad or what, what)
            else:
                first_torn = min(first_torn or what, what)
        for index in range(self.count):
            if first_torn and self.frames[index].position > first_torn:
                self.frames[index].after_damage = 1
            elif first_bad and self.frames[index].position > first_bad:
                self.frames[index].after_damage = 2
        self.damage = proven


def segment_number(FileMap file, bytes identity, uint64_t salt) -> int | None:
    """The number in a segment's header, None when the header is not this directory's."""
    cdef const char* at = file.data
    if file.size < SEGMENT_HEAD or at[:8] != b"MARTLOG1" or at[24:40] != identity:
        return None
    if load64(at + 56) != xxh64(at, 56, salt):
        return None
    return load64(at + 16)


cdef bint is_blank(FileMap file):
    """No header was ever written: the process stopped while it made this segment."""
    return file.size < SEGMENT_HEAD or file.data[:SEGMENT_HEAD] == b"\0" * SEGMENT_HEAD
