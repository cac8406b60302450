"""Bodies that no request should have, and every API subject to send them to."""

from __future__ import annotations

from typing import Final

MEGABYTE: Final = 1 << 20
DEEPEST: Final = 10_000  # as deep as the reference reads


SHAPES: Final[dict[str, bytes]] = {
    "an open brace": b"{",
    "a list": b"[]",
    "null": b"null",
    "a text": b'"text"',
    "a number": b"5",
    "a word": b"word",
    "no value": b'{"a":}',
    "no colon": b'{"a" 1}',
    "no quotes": b"{a:1}",
    "single quotes": b"{'a':1}",
    "a comma too many": b'{"a":1,}',
    "something behind it": b"{}x",
    "two objects": b"{}{}",
    "a comment": b"{} // none",
    "a zero byte": b"\x00",
    "a zero byte in a text": b'{"name":"a\x00b"}',
    "a line break in a text": b'{"name":"a\nb"}',
    "a byte order mark": b"\xef\xbb\xbf{}",
    "no UTF-8": b"\xff\xfe",
    "no UTF-8 in a text": b'{"name":"\xff"}',
    "no UTF-8 in a key": b'{"\xff":1}',
    "half a surrogate": b'{"name":"\\ud800"}',
    "a bad escape": b'{"name":"\\x41"}',
    "half an escape": b'{"name":"\\u12"}',
    "NaN": b'{"seq":NaN,"offset":NaN}',
    "a leading zero": b'{"seq":01}',
    "a plus": b'{"seq":+1}',
    "an open number": b'{"seq":-}',
    "two signs": b'{"seq":--1}',
    "a sign behind the point": b'{"seq":1.+1}',
    "nothing behind the point": b'{"seq":1.}',
    "two exponents": b'{"seq":1e+1e1}',
    "no exponent": b'{"seq":1ex}',
    "half a character": b'{"seq":\xc3(}',
    "the first bytes of a character": b"\xe2\x82",
    "an overlong character": b'{"a":\xc0\x80}',
    "a surrogate's bytes": b"\xed\xa0\x80",
    "a character that is not printed": b'{"a":\xc2\x85}',
    "a blank of another kind": b'{"a":\xe2\x80\x89 1}',
    "an emoji": '{"a":\U0001f600}'.encode(),
    "many values": b"{} " * 1_000 + b"5",
    "deep lists": b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1),
    "deep lists, never closed": b"[" * 100_000,
    "deep objects": b'{"a":' * (DEEPEST + 1) + b"1" + b"}" * (DEEPEST + 1),
    "deep, but readable": b'{"a":' * 3_000 + b"1" + b"}" * 3_000,
    "a megabyte of blanks": b"{" + b" " * (MEGABYTE - 3) + b"}",
    "a megabyte of a name": b'{"name":"' + b"n" * (MEGABYTE - 12) + b'"}',
    "a megabyte of zeros": b"\x00" * MEGABYTE,
    "a megabyte of keys": b"{" + b'"a":1,' * 170_000 + b'"b":2}',
}
"""What is wrong wherever it comes."""

NUMBERS: Final[tuple[bytes, ...]] = (
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551615",
    b"18446744073709551616",
    b"-9223372036854775809",
    b"-1",
    b"1.5",
    b"1e2",
    b"1e400",
    b"9" * 5_000,
)
WRONG: Final[tuple[bytes, ...]] = (b"[]", b"{}", b'"x"', b"true", b"5", b"[[]]", b'[{"a":1}]')

PLAIN: Final[dict[str, tuple[str, ...]]] = {
    "INFO": (),
    "STREAM.CREATE.S": (
        "name",
        "subjects",
        "max_age",
        "max_bytes",
        "max_msg_size",
        "storage",
        "num_replicas",
        "placement",
        "mirror",
        "sources",
        "republish",
        "metadata",
        "consumer_limits",
        "subject_transform",
        "sealed",
        "first_seq",
        "retention",
    ),
    "STREAM.UPDATE.S": ("name", "subjects", "max_msgs", "discard", "duplicate_window", "metadata"),
    "STREAM.DELETE.T": (),
    "STREAM.NAMES": ("offset", "subject"),
    "STREAM.LIST": ("offset", "subject"),
    "STREAM.INFO.S": ("offset", "deleted_details", "subjects_filter"),
    "STREAM.PURGE.S": ("seq", "filter", "keep"),
    "STREAM.MSG.GET.S": ("seq", "last_by_subj", "next_by_subj", "batch", "start_time", "no_hdr"),
    "STREAM.MSG.DELETE.S": ("seq", "no_erase"),
    "STREAM.SNAPSHOT.S": ("deliver_subject", "chunk_size", "no_consumers"),
    "STREAM.RESTORE.R": ("config", "state"),
    "STREAM.PEER.REMOVE.S": ("peer",),
    "STREAM.LEADER.STEPDOWN.S": ("placement",),
    "CONSUMER.CREATE.S": ("stream_name", "config", "action"),
    "CONSUMER.CREATE.S.C": ("stream_name", "config", "action"),
    "CONSUMER.DURABLE.CREATE.S.C": ("stream_name", "config"),
    "CONSUMER.NAMES.S": ("offset",),
    "CONSUMER.LIST.S": ("offset",),
    "CONSUMER.INFO.S.P": (),
    "CONSUMER.DELETE.S.Q": (),
    "CONSUMER.PAUSE.S.P": ("pause_until",),
    "CONSUMER.UNPIN.S.P": ("group",),
    "CONSUMER.LEADER.STEPDOWN.S.P": ("placement",),
    "CONSUMER.RESET.S.P": ("seq",),
    "DIRECT.GET.S": ("seq", "last_by_subj", "multi_last", "batch", "max_bytes", "up_to_time"),
    "DIRECT.GET.S.a.1": ("no_hdr",),
}
"""Every API subject, and the keys of its body."""


def bodies(keys: tuple[str, ...]) -> dict[str, bytes]:
    """By name; for each key values of other types than its own, and numbers at the edges."""
    found = dict(SHAPES)
    for key in keys:
        for value in WRONG + NUMBERS:
            text = value.decode()
            found[f"{key}: {text[:24]}"] = f'{{"{key}":{text}}}'.encode()
    return found
