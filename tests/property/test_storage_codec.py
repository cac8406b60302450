"""The record codec and our XXH64 against the xxhash package and plain struct packing."""

import struct

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from storage import _codec


@given(st.binary(max_size=300), st.integers(0, 2**64 - 1))
def test_xxh64_is_the_packages(data: bytes, seed: int) -> None:
    assert _codec.checksum(data, seed) == xxhash.xxh64_intdigest(data, seed)


def plain_encode(
    seq: int, ts: int, subject: bytes, headers: bytes, message: bytes, salt: int
) -> bytes:
    """FORMAT.md, section 2, word by word."""
    body = subject + headers + message
    size = 36 + len(body)
    head = struct.pack("<IBBHQqI", size, 1, 0, len(subject), seq, ts, len(headers)) + body
    return head + xxhash.xxh64_digest(head, salt)[::-1]


RECORDS = st.tuples(
    st.integers(1, 2**64 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.binary(max_size=100),
    st.binary(max_size=100),
    st.binary(max_size=200),
    st.integers(0, 2**64 - 1),
)


@given(RECORDS)
def test_record_bytes_are_those_of_the_format(
    fields: tuple[int, int, bytes, bytes, bytes, int],
) -> None:
    seq, ts, subject, headers, message, salt = fields
    data = _codec.encode(seq, ts, subject, headers, message, salt)
    assert data == plain_encode(seq, ts, subject, headers, message, salt)
    assert _codec.decode(data, 0, salt) == (len(data), 1, seq, ts, subject, headers, message, 0)


def test_skip_record() -> None:
    data = _codec.encode_skip(7, 1000, 5)
    assert _codec.decode(data, 0, 5) == (44, 2, 7, 0, b"", b"", b"", 1000)


@pytest.mark.feature("9.027")
def test_every_flipped_bit_and_every_truncation_of_a_record_is_seen() -> None:
    data = _codec.encode(3, 4, b"subject", b"headers", b"message", 9)
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << (bit % 8)
        assert _codec.decode(bytes(damaged), 0, 9) is None
    for size in range(len(data)):
        assert _codec.decode(data[:size], 0, 9) is None
    assert _codec.decode(data, 0, 8) is None, "another stream's salt"
