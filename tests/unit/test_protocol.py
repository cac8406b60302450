"""Bytes in, bytes out: every answer here was compared with the genuine server's."""

from __future__ import annotations

import pytest

from tests.unit.memory_client import MODERN, QUIET, World

PING = b"PING\r\n"
PONG = b"PONG\r\n"
OK = b"+OK\r\n"
UNKNOWN = b"-ERR 'Unknown Protocol Operation'\r\n"
LINE = b"-ERR 'maximum control line exceeded'\r\n"
BAD_SUBJECT = b"-ERR 'Invalid Subject'\r\n"
BAD_PUBLISH = b"-ERR 'Invalid Publish Subject'\r\n"
VERBOSE = b'CONNECT {"verbose":true,"pedantic":false}\r\n'


def test_case_table_is_sound() -> None:
    assert len({(sent) for _, sent, _, _ in CASES}) == len(CASES)


def pub(subject: bytes, payload: bytes, reply: bytes = b"") -> bytes:
    words = [b"PUB", subject, *([reply] if reply else []), b"%d" % len(payload)]
    return b" ".join(words) + b"\r\n" + payload + b"\r\n"


def violation(text: str) -> bytes:
    return f"-ERR 'Permissions Violation for {text}'\r\n".encode()


# ids, sent, answered, reason of the close ("" when the connection stays)
CASES = [
    # verbs
    ("1-039", b"ping\r\npInG\n", PONG + PONG, ""),
    ("1-045", b"PINGwhatever\r\n", PONG, ""),
    ("1-034", pub(b"foo", b"hi") + b"SUB a 1\r\n" + PING, OK + OK + PONG, ""),
    ("1-046", b"INFO {}\r\n+OK\r\n+OKwhatever\r\nPONG\r\n" + PING, PONG, ""),
    ("1-046", b"INFO no json\r\n", b"", "Protocol Violation"),
    ("1-046", b"-ERR 'x'\r\n" + PING, b"", "Parse Error"),
    ("1-046 1-047", b"-ERR\r\n", UNKNOWN, "Protocol Violation"),
    ("1-046", b"RS+ foo\r\n", UNKNOWN, "Protocol Violation"),
    ("1-046", b"LS+ foo\r\n", UNKNOWN, "Protocol Violation"),
    ("1-046", b"A+ foo\r\n", UNKNOWN, "Protocol Violation"),
    ("1-046", b"RMSG x\r\n", UNKNOWN, "Protocol Violation"),
    ("1-046", b"MSG foo 1 2\r\nhi\r\n", UNKNOWN, "Protocol Violation"),
    ("1-047", b"XYZ\r\n", UNKNOWN, "Protocol Violation"),
    ("1-047", b"X", UNKNOWN, "Protocol Violation"),
    ("1-047", b"PUX", UNKNOWN, "Protocol Violation"),
    ("1-047", b"\r\n", UNKNOWN, "Protocol Violation"),
    ("1-047", b" PING\r\n", UNKNOWN, "Protocol Violation"),
    ("1-047", b"PU", b"", ""),
    # framing
    ("1-039", QUIET + b"sub\tfoo\t 1 \r\npub   foo \t 2 \r\nhi\r\n", b"MSG foo 1 2\r\nhi\r\n", ""),
    ("1-039", QUIET + b"SUB foo 1\nPUB foo 2\nhi\r\n", b"MSG foo 1 2\r\nhi\r\n", ""),
    ("1-039 1-048", QUIET + b"PUB foo 2\r\nhi\n", UNKNOWN, "Protocol Violation"),
    ("1-048", QUIET + b"PUB foo 2\r\nhiX", UNKNOWN, "Protocol Violation"),
    ("1-048", QUIET + b"PUB foo 2\r\nhi\rX", UNKNOWN, "Protocol Violation"),
    ("1-040", QUIET + b"PUB foo -1\r\n", b"", "Protocol Violation"),
    ("1-040", QUIET + b"PUB foo +5\r\nhello\r\n", b"", "Protocol Violation"),
    ("1-040", QUIET + b"PUB foo 000000005\r\nhello\r\n" + PING, PONG, ""),
    ("1-040", QUIET + b"PUB foo 0000000005\r\nhello\r\n", b"", "Protocol Violation"),
    ("1-040", QUIET + b"PUB foo 1.5\r\n", b"", "Protocol Violation"),
    ("1-049", QUIET + b"PUB foo\r\n", b"", "Protocol Violation"),
    ("1-049", QUIET + b"PUB \r\n", b"", "Protocol Violation"),
    ("1-049", QUIET + b"PUB a b c 2\r\nhi\r\n", b"", "Protocol Violation"),
    ("1-049", QUIET + b"SUB foo\r\n", b"", "Protocol Violation"),
    ("1-049", QUIET + b"SUB a b c d\r\n", b"", "Protocol Violation"),
    ("1-049", QUIET + b"UNSUB 1 2 3\r\n", b"", "Protocol Violation"),
    ("1-049", QUIET + b"UNSUB \r\n", b"", "Protocol Violation"),
    ("1-047", QUIET + b"UNSUB\r\n", UNKNOWN, "Protocol Violation"),
    ("1-039", QUIET + b"PUB \nfoo 2\r\nhi\r\n" + PING, PONG, ""),
    ("1-041", QUIET + b"SUB foo 1\r\nPUB foo 0\r\n\r\n", b"MSG foo 1 0\r\n\r\n", ""),
    ("1-044", QUIET + b"SUB * 1\r\n" + pub(b"foo", b"hi", b"r"), b"MSG foo 1 r 2\r\nhi\r\n", ""),
    # the control line's limit
    ("1-050", QUIET + b"SUB " + b"a" * 5000 + b" 1\r\n", LINE, "Maximum Control Line Exceeded"),
    ("1-050", QUIET + b"PUB " + b"a" * 5000, LINE, "Maximum Control Line Exceeded"),
    ("1-050", QUIET + b"PUB " + b"a" * 4094 + b" 1\r\nx\r\n" + PING, PONG, ""),
    ("1-050", QUIET + b"PUB " + b"a" * 4095 + b" 1\r\n", LINE, "Maximum Control Line Exceeded"),
    ("1-050", b"CONNECT " + b"x" * 5000, LINE, "Maximum Control Line Exceeded"),
    ("1-050", b"PING" + b"x" * 9000 + b"\r\n", PONG, ""),
    ("1-050", b"-ERR " + b"x" * 5000, LINE, "Maximum Control Line Exceeded"),
    # max_payload
    (
        "1-051",
        QUIET + b"PUB foo 1048577\r\n",
        b"-ERR 'Maximum Payload Violation'\r\n",
        "Maximum Message Payload Exceeded",
    ),
    ("1-051", QUIET + b"PUB foo 1048577", b"", ""),
    (
        "1-051",
        MODERN + b"HPUB foo 12 1048577\r\n",
        b"-ERR 'Maximum Payload Violation'\r\n",
        "Maximum Message Payload Exceeded",
    ),
    # headers
    ("1-053", QUIET + b"HPUB foo 12 14\r\nNATS/1.0\r\n\r\nhi\r\n", b"", "Protocol Violation"),
    (
        "1-042 1-054",
        MODERN + b"SUB foo 1\r\nHPUB foo 12 14\r\nNATS/1.0\r\n\r\nhi\r\n",
        b"HMSG foo 1 12 14\r\nNATS/1.0\r\n\r\nhi\r\n",
        "",
    ),
    ("1-042", MODERN + b"HPUB foo 5 3\r\nabc\r\n", b"", "Protocol Violation"),
    ("1-042", MODERN + b"HPUB foo 3\r\n", b"", "Protocol Violation"),
    (
        "1-042",
        MODERN + b"SUB foo 1\r\nHPUB foo rep 0 2\r\nhi\r\n",
        b"MSG foo 1 rep 2\r\nhi\r\n",
        "",
    ),
    (
        "1-055",
        MODERN + b"SUB foo 1\r\nHPUB foo 3 3\r\nabc\r\n",
        b"HMSG foo 1 3 3\r\nabc\r\n",
        "",
    ),
    # no responders
    (
        "1-057 1-058",
        MODERN + b"SUB i.* 7\r\n" + pub(b"nobody", b"hi", b"i.x"),
        b"HMSG i.x 7 38 38\r\nNATS/1.0 503\r\nNats-Subject: nobody\r\n\r\n\r\n",
        "",
    ),
    ("1-058", MODERN + pub(b"nobody", b"hi", b"i.x") + PING, PONG, ""),
    ("1-058", MODERN + b"SUB i q 1\r\n" + pub(b"nobody", b"hi", b"i") + PING, PONG, ""),
    ("1-058", QUIET + b"SUB i 1\r\n" + pub(b"nobody", b"hi", b"i") + PING, PONG, ""),
    # CONNECT
    ("1-024 1-032", b"CONNECT {}\r\n" + PING, OK + PONG, ""),
    ("1-030", b"CONNECT {bad\r\n", b"", "Protocol Violation"),
    ("1-030", b'CONNECT {"verbose":1}\r\n', b"", "Protocol Violation"),
    (
        "1-026",
        b'CONNECT {"verbose":true,"protocol":2}\r\n',
        b"-ERR 'invalid client protocol'\r\n",
        "Bad Client Protocol Version",
    ),
    (
        "1-027",
        b'CONNECT {"verbose":false,"no_responders":true}\r\n',
        b"-ERR 'no responders requires headers support'\r\n",
        "No Responders Requires Headers",
    ),
    (
        "1-029",
        b'CONNECT {"verbose":false,"account":"x"}\r\n',
        b"-ERR 'Authorization Violation'\r\n",
        "Authentication Failure",
    ),
    (
        "1-029",
        b'CONNECT {"verbose":false,"new_account":true}\r\n',
        b"-ERR 'Authorization Violation'\r\n",
        "Authentication Failure",
    ),
    ("1-031", MODERN + b"SUB foo 1\r\n" + MODERN + pub(b"foo", b"x") + PING, PONG, ""),
    ("1-023", b'CONNECT {"verbose":false,"unheard":[1,{}]}\r\n' + PING, PONG, ""),
    (
        "1-032",
        VERBOSE + b"SUB foo 1\r\nUNSUB 1\r\n" + pub(b"a", b"x") + PING + b"PONG\r\n",
        OK * 4 + PONG,
        "",
    ),
    (
        "1-032 1-075",
        VERBOSE + pub(b"$NRG.x", b"a") + PING,
        OK + violation('Publish to "$NRG.x"') + PONG,
        "",
    ),
    # subjects
    ("1-061", QUIET + b"SUB foo..bar 1\r\n" + PING, BAD_SUBJECT + PONG, ""),
    ("1-061", VERBOSE + b"SUB foo.>.bar 1\r\n" + PING, OK + BAD_SUBJECT + PONG, ""),
    (
        "1-060",
        QUIET + b"SUB foo.*x 1\r\n" + pub(b"foo.*x", b"hi"),
        b"MSG foo.*x 1 2\r\nhi\r\n",
        "",
    ),
    ("1-062", QUIET + b"SUB > 1\r\n" + pub(b"a..b", b"x") + PING, PONG, ""),
    (
        "1-062",
        b'CONNECT {"verbose":false,"pedantic":true}\r\nSUB > 1\r\n' + pub(b"a.*", b"x"),
        BAD_PUBLISH + b"MSG a.* 1 1\r\nx\r\n",
        "",
    ),
    (
        "1-063",
        QUIET
        + b"SUB caf\xc3\xa9 1\r\nSUB Foo 2\r\n"
        + pub(b"caf\xc3\xa9", b"x")
        + pub(b"foo", b"x"),
        b"MSG caf\xc3\xa9 1 1\r\nx\r\n",
        "",
    ),
    # subscriptions
    (
        "1-064",
        VERBOSE + b"SUB foo 1\r\nSUB bar 1\r\n" + pub(b"bar", b"x") + pub(b"foo", b"x"),
        OK * 5 + b"MSG foo 1 1\r\nx\r\n",
        "",
    ),
    ("1-065", VERBOSE + b"UNSUB 99\r\n", OK + OK, ""),
    (
        "1-066",
        QUIET + b"SUB foo 1\r\nUNSUB 1 2\r\n" + pub(b"foo", b"a") * 3 + PING,
        b"MSG foo 1 1\r\na\r\n" * 2 + PONG,
        "",
    ),
    (
        "1-066",
        QUIET + b"SUB foo 1\r\n" + pub(b"foo", b"a") * 2 + b"UNSUB 1 2\r\n" + pub(b"foo", b"a"),
        b"MSG foo 1 1\r\na\r\n" * 2,
        "",
    ),
    ("1-066", QUIET + b"SUB foo 1\r\nUNSUB 1 x\r\n" + pub(b"foo", b"a") + PING, PONG, ""),
    (
        "1-067",
        QUIET + b"SUB foo 1\r\nSUB * 2\r\n" + pub(b"foo", b"a"),
        b"MSG foo 1 1\r\na\r\nMSG foo 2 1\r\na\r\n",
        "",
    ),
    (
        "1-072",
        b'CONNECT {"echo":false,"verbose":false}\r\nSUB foo 1\r\n' + pub(b"foo", b"a") + PING,
        PONG,
        "",
    ),
    (
        "1-074 1-099",
        QUIET + b"SUB foo _sys_ 1\r\n" + PING,
        violation('Subscription to "foo" using queue "_sys_"') + PONG,
        "",
    ),
    (
        "1-075 1-099",
        QUIET + pub(b"_GR_.x", b"a") + PING,
        violation('Publish to "_GR_.x"') + PONG,
        "",
    ),
    ("1-075", QUIET + pub(b"$NRGx", b"a") + pub(b"_GR_.", b"a") + PING, PONG, ""),
    (
        "1-076",
        QUIET + pub(b"a", b"x", b"_R_.x"),
        violation('Publish with Reply of "_R_.x"'),
        "",
    ),
    (
        "1-076",
        QUIET + pub(b"a", b"x", b"$JS.ACK.x"),
        violation('Publish with Reply of "$JS.ACK.x"'),
        "",
    ),
    (
        "1-076",
        QUIET + pub(b"a", b"x", b"_GR_.x"),
        violation('Publish with Reply of "_GR_.x"'),
        "",
    ),
    (
        "1-099",
        QUIET + pub(b'$NRG."\xff\xc3\xa9\x01\\', b"a"),
        b'-ERR \'Permissions Violation for Publish to "$NRG.\\"\\xff\xc3\xa9\\x01\\\\"\'\r\n',
        "",
    ),
    ("1-045", QUIET + PING + PING + b"SUB x 1\r\n" + PING, PONG * 3, ""),
]


@pytest.mark.feature(*sorted({each for ids, *_ in CASES for each in ids.split()}), "1-038", "1-101")
@pytest.mark.parametrize("pieces", ["whole", "bytes"])
@pytest.mark.parametrize(("ids", "sent", "answered", "reason"), CASES)
def test_answer(ids: str, sent: bytes, answered: bytes, reason: str, pieces: str) -> None:
    peer = World().client()
    if pieces == "whole":
        said = peer.say(sent)
    else:
        for at in range(len(sent)):
            peer.server_side.feed(sent[at : at + 1])
        peer.world.broker.turn.run()
        said = peer.take()
    # The two kinds of messages to one connection are written in the order they came about.
    assert said == reorder(answered, said)
    assert peer.reason == reason
    assert peer.transport_closed == bool(reason)


def reorder(expected: bytes, said: bytes) -> bytes:
    """Deliveries to several of one connection's subscriptions come in no particular order."""
    same = sorted(expected.split(b"\r\n")) == sorted(said.split(b"\r\n"))
    return said if same else expected
