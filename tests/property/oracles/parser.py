"""The client protocol's parser, slow and plain: one stream of bytes in, events out."""

from __future__ import annotations

Event = tuple[object, ...]

VERBS = {
    b"PUB": "pub", b"HPUB": "hpub", b"SUB": "sub", b"UNSUB": "unsub", b"PING": "ping",
    b"PONG": "pong", b"CONNECT": "connect", b"INFO": "info", b"+OK": "ok", b"-ERR": "error",
}  # fmt: skip
BLANK_FOLLOWS = {"pub", "hpub", "sub", "unsub", "error"}
WHOLE_LINE = {"ping", "pong", "ok"}


class Faulty(Exception):
    """The peer is wrong; the argument says how."""


class Incomplete(Exception):
    """More bytes are needed."""


def size_of(word: bytes) -> int:
    if not 1 <= len(word) <= 9 or not all(48 <= byte <= 57 for byte in word):
        return -1
    return int(word)


def words_of(line: bytes, separators: bytes) -> list[bytes]:
    for separator in separators:
        line = line.replace(bytes([separator]), b" ")
    return [word for word in line.split(b" ") if word]


def verb_at(data: bytes) -> tuple[str, bytes]:
    for name, verb in VERBS.items():
        begin = data[: len(name)].upper()
        if begin == name:
            rest = data[len(name) :]
            if verb in BLANK_FOLLOWS:
                if not rest:
                    raise Incomplete
                if rest[:1] not in (b" ", b"\t"):
                    raise Faulty("unknown verb")
            return verb, rest
        if len(data) < len(name) and name.startswith(begin):
            raise Incomplete
    raise Faulty("unknown verb")


def line_at(data: bytes, limit: int) -> tuple[bytes, bytes]:
    """The arguments and what follows; the first byte is theirs whatever it is."""
    end = data.find(b"\n", 1)
    line = data if end < 0 else data[:end]
    if b"\r" in line[1:] if end >= 0 else line.endswith(b"\r"):
        line = line[:-1]
    if len(line) > limit:
        raise Faulty("control line")
    if end < 0:
        raise Incomplete
    return line, data[end + 1 :]


def publish(verb: str, line: bytes, data: bytes, events: list[Event]) -> bytes:
    sizes = 2 if verb == "hpub" else 1
    words = words_of(line, b"\t")
    if len(words) not in (sizes + 1, sizes + 2):
        raise Faulty("arguments")
    size = size_of(words[-1])
    header_size = size_of(words[-2]) if verb == "hpub" else -1
    if size < 0 or (verb == "hpub" and not 0 <= header_size <= size):
        raise Faulty("arguments")
    events.append(("line", size))
    ending = data[size : size + 2]
    if not b"\r\n".startswith(ending):
        raise Faulty("payload end")
    if len(ending) < 2:
        raise Incomplete
    reply = words[1] if len(words) == sizes + 2 else None
    events.append(("pub", words[0], reply, header_size, data[:size]))
    return data[size + 2 :]


def one_line(verb: str, line: bytes) -> Event:
    if verb in ("connect", "info", "error"):
        return (verb, line)
    words = words_of(line, b"\t\r\n")
    if verb == "sub" and len(words) in (2, 3):
        return ("sub", words[0], words[1] if len(words) == 3 else None, words[-1])
    if verb == "unsub" and len(words) in (1, 2):
        return ("unsub", words[0], size_of(words[1]) if len(words) == 2 else -1)
    raise Faulty("arguments")


def operation(data: bytes, limit: int, headers: bool, events: list[Event]) -> bytes:
    verb, data = verb_at(data)
    if verb in WHOLE_LINE:
        end = data.find(b"\n")
        if end < 0:
            raise Incomplete
        if verb != "ok":
            events.append((verb,))
        return data[end + 1 :]
    data = data.lstrip(b" \t")
    if not data:
        raise Incomplete
    line, data = line_at(data, limit)
    if verb == "hpub" and not headers:
        raise Faulty("headers")
    if verb in ("pub", "hpub"):
        return publish(verb, line, data, events)
    events.append(one_line(verb, line))
    return data


def parse(data: bytes, limit: int = 4096, headers: bool = True) -> list[Event]:
    events: list[Event] = []
    try:
        while data:
            data = operation(data, limit, headers, events)
    except Incomplete:
        pass
    except Faulty as fault:
        events.append(("fault", str(fault)))
    return events
