"""S2 frames and blocks: what was written is read again, what is damaged is refused."""

from __future__ import annotations

import random

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.wire._s2 import crc32c, decode_block
from server.wire.s2 import BLOCK_BYTES_MAX, S2Error, S2Reader, compressed, masked

S2_IDENTIFIER = b"\xff\x06\x00\x00S2sTwO"


def read(data: bytes, sizes: list[int]) -> bytes:
    """The content of a stream that comes in pieces of these sizes, over and over."""
    reader, found, at, turn = S2Reader(), [], 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        found += reader.feed(data[at : at + size])
        at, turn = at + size, turn + 1
    assert reader.is_between_chunks
    return b"".join(found)


@given(st.lists(st.binary(max_size=2000), max_size=5), st.lists(st.integers(1, 700), min_size=1))
def test_what_is_written_is_read_in_pieces_of_any_size(
    parts: list[bytes], sizes: list[int]
) -> None:
    repeated = [part * 40 for part in parts]
    assert read(b"".join(map(compressed, repeated)), sizes) == b"".join(repeated)


def frame(kind: int, content: bytes, checksum: int) -> bytes:
    body = checksum.to_bytes(4, "little") + content
    return bytes([kind]) + len(body).to_bytes(3, "little") + body


def block(size: int, *codes: bytes) -> bytes:
    head = bytearray()
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*head, size]) + b"".join(codes)


def literal(text: bytes) -> bytes:
    return bytes([(len(text) - 1) << 2]) + text


ABCD = literal(b"abcd")
COPY_OFFSET_4 = bytes([0b000_000_01, 4])  # four bytes from four before
REPEAT_4 = bytes([0b000_000_01, 0])
REPEAT_8 = bytes([0b000_100_01, 0])


@pytest.mark.parametrize(
    ("codes", "content"),
    [
        ((ABCD,), b"abcd"),
        ((ABCD, COPY_OFFSET_4), b"abcdabcd"),
        ((ABCD, COPY_OFFSET_4, literal(b"xy"), REPEAT_4), b"abcdabcdxycdxy"),
        ((ABCD, COPY_OFFSET_4, REPEAT_8), b"abcd" * 4),
        ((ABCD, COPY_OFFSET_4, bytes([0b000_101_01, 0, 2])), b"abcd" * 2 + b"abcdabcdab"),
        ((ABCD, COPY_OFFSET_4, bytes([0b000_110_01, 0, 0, 0])), b"abcd" * 2 + b"abcd" * 65),
        ((ABCD, bytes([(9 << 2) | 2, 1, 0])), b"abcd" + b"d" * 10),
        ((ABCD, bytes([(9 << 2) | 3, 4, 0, 0, 0])), b"abcd" + b"abcdabcdab"),
        ((bytes([60 << 2, 69]) + b"q" * 70,), b"q" * 70),
    ],
)
def test_every_kind_of_code(codes: tuple[bytes, ...], content: bytes) -> None:
    data = block(len(content), *codes)
    assert decode_block(data, 1 << 20) == content
    stream = S2_IDENTIFIER + frame(0, data, masked(crc32c(content)))
    assert read(stream, [3]) == content


def test_known_checksum() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 12,
        block(4),
        block(3, ABCD),
        block(5, ABCD),
        block(8, REPEAT_4, ABCD),
        block(8, ABCD, bytes([0b000_000_01, 5])),
        block(8, ABCD, bytes([0b000_000_01])),
        block(70, bytes([63 << 2, 255, 255])),
        block(9, ABCD, COPY_OFFSET_4, bytes([0b000_111_01, 0, 1])),
        block(BLOCK_BYTES_MAX + 1, ABCD),
    ],
)
def test_a_damaged_block_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="S2 block"):
        decode_block(data, BLOCK_BYTES_MAX)


@given(st.binary(max_size=60), st.integers(0, 300))
def test_any_bytes_are_a_block_or_an_error(data: bytes, size: int) -> None:
    try:
        assert len(decode_block(block(size, data), 1 << 16)) == size
    except ValueError:
        return


def test_changed_bytes_are_noticed() -> None:
    rng = random.Random(1)
    content = bytes(rng.choices(b"abcdefgh", k=5000))
    good = compressed(content)
    assert bytes(cramjam.snappy.decompress(good)) == content
    noticed = 0
    for _ in range(300):
        bad = bytearray(good)
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        reader = S2Reader()
        try:
            found = b"".join(reader.feed(bytes(bad)))
        except S2Error:
            noticed += 1
            continue
        # A changed length leaves the chunk unfinished, or it turned into one that is skipped.
        assert not reader.is_between_chunks or found != content or bad[0] == 0xFF
        noticed += found != content or not reader.is_between_chunks
    assert noticed >= 299


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x05\x00\x00abcde",
        b"\xff\x06\x00\x00something",
        S2_IDENTIFIER + b"\x02\x05\x00\x00abcde",
        S2_IDENTIFIER + b"\x01\x02\x00\x00ab",
        S2_IDENTIFIER + b"\x00\xff\xff\xff",
        S2_IDENTIFIER + frame(1, b"abc", 7),
    ],
)
def test_a_stream_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(S2Error):
        list(S2Reader().feed(data))


def test_chunks_that_may_be_skipped_are() -> None:
    data = S2_IDENTIFIER + b"\x99\x03\x00\x00abc" + b"\xfe\x02\x00\x00\x00\x00"
    assert read(data + frame(1, b"abc", masked(crc32c(b"abc"))), [2]) == b"abc"
