"""What every golden directory holds."""

from __future__ import annotations

KEY = "the key of the golden files"
LAST = 80
GONE = (3, 4, 30, 47, 48, 75)
RESERVED = (44, 3)


def message(seq: int) -> tuple[int, int, bytes, bytes, bytes]:
    header = b"NATS/1.0\r\nNumber: %d\r\n\r\n" % seq if seq % 5 == 0 else b""
    body = b"golden message %d, " % seq * (1 + seq % 4)
    return seq, 1_700_000_000_000_000_000 + seq, b"golden.%d" % (seq % 7), header, body


def expected() -> list[tuple[int, int, bytes, bytes, bytes]]:
    reserved = range(RESERVED[0], sum(RESERVED))
    return [message(s) for s in range(1, LAST + 1) if s not in GONE and s not in reserved]
