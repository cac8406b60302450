# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Frames of compressed records (FORMAT.md, section 7): written, read, and a bounded cache of them.

Contract: `load_frame` believes nothing before the checksum held, and answers None for what is damaged
or was encrypted with another key. What the cache lets go stays until `end_views`, because views may
point into it; what only a visit saw does not.
"""
import cramjam
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from storage._cipher cimport CIPHER_ROOM, decrypt, encrypt
from storage._codec cimport RECORD_SIZE_MAX, load32, load64, store32, store64, xxh64

CODECS = {"none": 0, "zstd": 1, "s2": 2, "lz4": 3}
ZSTD_LEVEL = 3


def compress(codec: int, data: memoryview) -> object:
    """Bytes-like; for codec 0 the data themselves."""
    if codec == 1:
        return cramjam.zstd.compress(data, level=ZSTD_LEVEL)
    if codec == 2:
        return cramjam.snappy.compress_raw(data)
    if codec == 3:
        return cramjam.lz4.compress_block(data, store_size=False)
    return data


def decompress_into(codec: int, data: object, out: object) -> int:
    """Bytes written to `out`; a ValueError of any kind: the data are not what they should be."""
    if codec == 1:
        return cramjam.zstd.decompress_into(data, out)
    if codec == 2:
        return cramjam.snappy.decompress_raw_into(data, out)
    if codec == 3:
        return cramjam.lz4.decompress_block_into(data, out)
    raise ValueError(f"codec {codec} is not known")


cdef class FrameMemory(Memory):
    """See the declaration."""


cdef class FrameCache:
    """See the module. One owner thread."""

    def __cinit__(self, size_t bytes_max):
        self.bytes_max = bytes_max
        self.frames = {}
        self.hot = [None] * HOT_FRAMES
        self.retired = []

    cdef FrameMemory hot_frame(self, uint64_t group, const Block* block, uint32_t offset):
        """The frame that holds `offset`, if it is the one used last of its kind."""
        cdef FrameMemory frame = self.hot[block.number % HOT_FRAMES]
        if frame is not None and frame.number == block.number and frame.group == group and (
                frame.layout == block.layout and frame.start <= offset < frame.end):
            if not self.visiting:
                frame.passing = False
            self.hits += 1
            return frame
        return None

    cdef FrameMemory find(self, uint64_t group, const Block* block, uint32_t start):
        cdef FrameMemory frame
        key = (group, block.number, block.layout, start)
        frame = self.frames.pop(key, None)
        if frame is not None:
            self.frames[key] = frame
            self.hot[block.number % HOT_FRAMES] = frame
            if not self.visiting:
                frame.passing = False
            self.hits += 1
        return frame

    cdef int keep(self, FrameMemory frame) except -1:
        """Add a frame just loaded; those unused for longest go when there are too many bytes."""
        cdef FrameMemory oldest
        frame.passing = self.visiting > 0
        self.loads += 1
        self.bytes += frame.capacity
        self.frames[(frame.group, frame.number, frame.layout, frame.start)] = frame
        self.hot[frame.number % HOT_FRAMES] = frame
        if self.bytes <= self.bytes_max:
            return 0
        for key in list(self.frames):
            oldest = self.frames[key]
            if oldest is frame or self.bytes <= self.bytes_max:
                break
            if oldest.unwritten == 0:
                self.let_go(key, oldest)
        return 0

    def let_go(self, key, FrameMemory frame) -> None:
        del self.frames[key]
        self.bytes -= frame.capacity
        if self.hot[frame.number % HOT_FRAMES] is frame:
            self.hot[frame.number % HOT_FRAMES] = None
        if not frame.passing:
            self.retired.append(frame)

    cdef int follow(self, uint64_t group, const Block* block, uint32_t before) except -1:
        """The file was made anew, with the same records: what is still owed to it is newer than what it has."""
        cdef FrameMemory frame
        for key, found in list(self.frames.items()):
            frame = found
            if frame.unwritten and frame.group == group and frame.number == block.number and frame.layout == before:
                del self.frames[key]
                frame.layout = block.layout
                self.frames[(group, frame.number, frame.layout, frame.start)] = frame
        return 0

    cdef Memory holder_of(self, const char* at):
        """The frame that `at` points into; None: none that is still known."""
        cdef FrameMemory frame
        for frames in (reversed(self.frames.values()), self.retired):
            for frame in frames:
                if frame.data <= at < frame.data + frame.capacity:
                    return frame
        return None

    cdef int end_views(self) except -1:
        if self.retired:
            self.retired.clear()
        return 0

    cdef int rest(self) except -1:
        """Now and then: when nobody read a compressed block since the last time, all of it goes."""
        if self.hits + self.loads == self.used_before:
            self.drop()
        self.used_before = self.hits + self.loads
        return 0

    cdef int drop(self) except -1:
        """Under memory pressure, or when nobody reads: everything that is not owed to a file."""
        for key, frame in list(self.frames.items()):
            if (<FrameMemory>frame).unwritten == 0:
                self.let_go(key, frame)
        return 0


cdef int frame_of(const Block* block, uint32_t offset) noexcept nogil:
    """The row of the frame table whose frame holds `offset`; -1: none."""
    cdef uint32_t low = 0
    cdef uint32_t high = block.frames
    cdef uint32_t middle
    while low < high:
        middle = (low + high) >> 1
        if block.frame_table[2 * middle + 1] <= offset:
            low = middle + 1
        else:
            high = middle
    return <int>low - 1


cdef uint32_t check_frame_at(const char* data, size_t size, uint64_t position, uint64_t salt) noexcept nogil:
    """The bytes of the frame at `position`, its header included, when it holds; else 0."""
    cdef const char* at = data + position
    cdef uint64_t content
    if position + BLOCK_FRAME_HEAD > size or memcmp(at, b"FRM1", 4) != 0:
        return 0
    content = load32(at + 8)
    if content > size - position - BLOCK_FRAME_HEAD or load32(at + 16) > <uint32_t>RECORD_SIZE_MAX + FRAME_SIZE:
        return 0
    if load64(at + 24) != xxh64(at + BLOCK_FRAME_HEAD, content, xxh64(at, 24, salt)):
        return 0
    return <uint32_t>(content + BLOCK_FRAME_HEAD)


cdef void frame_context(char* out, uint64_t group, uint64_t number, uint32_t start, uint32_t size) noexcept nogil:
    """The 32 bytes that an encrypted frame is bound to."""
    memcpy(out, b"MARTFRM1", 8)
    store64(out + 8, group)
    store64(out + 16, number)
    store32(out + 24, start)
    store32(out + 28, size)


cdef FrameMemory load_frame(object map, const char* data, size_t size, uint64_t position, uint64_t group,
                            uint64_t number, uint64_t salt, StreamKey key):
    """The records of the frame at `position` of the file in `map`; None: it does not hold."""
    cdef uint32_t length = check_frame_at(data, size, position, salt)
    cdef const char* head = data + position
    cdef char context[32]
    cdef FrameMemory out
    cdef Memory packed
    if length == 0:
        return None
    out = FrameMemory(load32(head + 16))
    out.group, out.number, out.start = group, number, load32(head + 12)
    out.end = out.start + load32(head + 16)
    content = memoryview(map)[position + BLOCK_FRAME_HEAD : position + length]
    if head[5]:
        packed = Memory(len(content))
        frame_context(context, group, number, out.start, load32(head + 16))
        if key is None or decrypt(key.key, head[5], context, 32, head + BLOCK_FRAME_HEAD, len(content),
                                  packed.data) != 0:
            return None
        content = memoryview(packed)[: len(content) - CIPHER_ROOM]
    if head[4] == 0:
        if len(content) != out.capacity:
            return None
        memoryview(out)[:] = content
        return out
    try:
        return out if decompress_into(head[4], content, memoryview(out)) == out.capacity else None
    except (ValueError, cramjam.DecompressionError):
        return None


cdef bytes encode_frame(const char* records, uint32_t size, uint32_t count, uint32_t start, int codec,
                        uint64_t group, uint64_t number, uint64_t salt, StreamKey key):
    """One frame, filled up with zeros to a multiple of 8."""
    cdef const uint8_t[::1] packed
    cdef uint32_t stored
    cdef bytes out
    cdef char* at
    cdef char context[32]
    cdef unsigned char nonce[12]
    plain = <char[:size]>records
    content = compress(codec, memoryview(plain))
    if codec and len(content) >= size:
        codec, content = 0, memoryview(plain)
    packed = memoryview(content).cast("B")
    stored = <uint32_t>packed.shape[0] + (CIPHER_ROOM if key is not None else 0)
    out = PyBytes_FromStringAndSize(NULL, (BLOCK_FRAME_HEAD + stored + 7) & ~7)
    at = PyBytes_AS_STRING(out)
    memset(at, 0, BLOCK_FRAME_HEAD)
    memcpy(at, b"FRM1", 4)
    at[4] = <char>codec
    at[5] = <char>(key.cipher if key is not None else 0)
    store32(at + 8, stored)
    store32(at + 12, start)
    store32(at + 16, size)
    store32(at + 20, count)
    if key is None:
        memcpy(at + BLOCK_FRAME_HEAD, &packed[0], stored)
    else:
        key.take_nonce(nonce)
        frame_context(context, group, number, start, size)
        if encrypt(key.key, key.cipher, nonce, context, 32, <const char*>&packed[0], packed.shape[0],
                   at + BLOCK_FRAME_HEAD) != 0:
            raise ValueError("this machine has no instructions for this cipher")
    memset(at + BLOCK_FRAME_HEAD + stored, 0, len(out) - BLOCK_FRAME_HEAD - stored)
    store64(at + 24, xxh64(at + BLOCK_FRAME_HEAD, stored, xxh64(at, 24, salt)))
    return out
