"""The fingerprint of a configuration: SHA-256 over the JSON of its values.

The bytes are those that Go's encoder writes, so that the same file has the same digest here and on
a nats-server.
"""

from __future__ import annotations

from typing import Final

import msgspec

from config.parser import DateText, Tree, Value

_HTML: Final = str.maketrans(
    {
        "<": "\\u003c",
        ">": "\\u003e",
        "&": "\\u0026",
        "\u2028": "\\u2028",
        "\u2029": "\\u2029",
    }
)


def digest(tree: Tree) -> str:
    """`sha256:` and 64 hexadecimal digits."""
    from hashlib import sha256

    return "sha256:" + sha256((_json(tree) + "\n").encode()).hexdigest()


def _json(value: Value) -> str:
    if isinstance(value, dict):
        members = (f"{_text(key)}:{_json(value[key].value)}" for key in sorted(value))
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_json(node.value) for node in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(str(value))
    return str(value) if isinstance(value, int) else _number(value)


def _text(text: str) -> str:
    plain = text[:] if isinstance(text, DateText) else text
    return msgspec.json.encode(plain).decode().translate(_HTML)


def _number(number: float) -> str:
    """As Go writes a float: no fraction if there is none, an exponent only when it is far away."""
    text = repr(number)
    magnitude = abs(number)
    if magnitude != 0 and (magnitude < 1e-6 or magnitude >= 1e21):
        return f"{text.removesuffix('.0')}".replace("e-0", "e-")
    if "e" in text:
        text = f"{number:.{_decimals(text)}f}"
    return text.removesuffix(".0")


def _decimals(text: str) -> int:
    mantissa, exponent = text.split("e")
    return max(0, len(mantissa.partition(".")[2]) - int(exponent))
