"""What a line of a differential script means; README.md beside this is the manual."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

ESCAPES = {"r": "\r", "n": "\n", "t": "\t", "0": "\0", "\\": "\\"}
OUTWARD_VERBS = {"open", "client", "send", "raw", "pieces", "burst", "close"}
INWARD_VERBS = {"info", "sync", "await", "closed", "unordered", "quiet", "pass"}


class ScriptError(Exception):
    """A script that cannot be read, or that the genuine server does not carry through."""


@dataclass(frozen=True)
class Step:
    line: int
    who: str
    verb: str
    text: str = ""


@dataclass
class Script:
    name: str
    flags: tuple[str, ...] = ()
    config: str = ""
    fresh: bool = False
    steps: list[Step] = field(default_factory=list)
    totals: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def server_key(self) -> tuple[tuple[str, ...], str]:
        return (self.flags, self.config)


def expand(text: str) -> bytes:
    """`${x*3}` repeats, then backslash escapes; everything else is UTF-8."""
    text = re.sub(r"\$\{(.+?)\*(\d+)\}", lambda m: m[1] * int(m[2]), text)
    out = bytearray()
    for part in re.split(r"(\\x[0-9a-fA-F]{2}|\\.)", text):
        if part.startswith("\\x"):
            out.append(int(part[2:], 16))
        elif part.startswith("\\"):
            if part[1] not in ESCAPES:
                raise ScriptError(f"unknown escape {part}")
            out += ESCAPES[part[1]].encode()
        else:
            out += part.encode()
    return bytes(out)


def block(lines: list[str], start: int) -> tuple[str, int]:
    """The lines after `start` up to `end`, and the index of that `end`."""
    for index in range(start + 1, len(lines)):
        if lines[index].strip() == "end":
            return "\n".join(lines[start + 1 : index]) + "\n", index
    raise ScriptError(f"line {start + 1}: no `end` for this block")


def read_script(path: Path) -> Script:
    script = Script(path.stem)
    lines = path.read_text().splitlines()
    index = -1
    while (index := index + 1) < len(lines):
        line = lines[index].strip(" ")
        if not line or line.startswith("#"):
            continue
        first, _, rest = line.partition(" ")
        if first == "flags":
            script.flags = tuple(rest.split())
        elif first == "config":
            script.config, index = block(lines, index)
        elif first == "fresh":
            script.fresh = True
        elif first == "total":
            script.totals.append(tuple(rest.split()))
        elif first == "signal":
            script.steps.append(Step(index + 1, "", "signal", rest))
        elif first == "reload":
            at = index + 1
            text, index = block(lines, index)
            script.steps.append(Step(at, "", "reload", text))
        else:
            script.steps.append(connection_step(index + 1, first, rest))
    return script


def connection_step(line: int, who: str, rest: str) -> Step:
    verb, _, text = rest.partition(" ")
    if verb not in OUTWARD_VERBS | INWARD_VERBS:
        raise ScriptError(f"line {line}: {who} does not know how to {verb!r}")
    return Step(line, who, verb, text)
