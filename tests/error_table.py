"""Writes server/jetstream/errors.py from docs/features/jetstream-errors.tsv (`make docs`)."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "features" / "jetstream-errors.tsv"
MODULE = ROOT / "server" / "jetstream" / "errors.py"
HEAD = '''"""Every API error by name. Made from docs/features/jetstream-errors.tsv: `make docs`."""

from typing import Final

from server.jetstream.apierror import ErrorKind

'''


def name_of(constant: str) -> str:
    """JSStreamNotFoundErr and JSStreamStoreFailedF -> STREAM_NOT_FOUND, STREAM_STORE_FAILED."""
    bare = re.sub(r"(ErrF|Err|F)$", "", constant.removeprefix("JS"))
    words = re.findall(r"[A-Z]+(?=[A-Z][a-z]|$)|[A-Z][a-z0-9]+|[A-Z]+", bare)
    return "_".join(words).upper()


def row(err_code: str, code: str, constant: str, text: str) -> str:
    line = f"{name_of(constant)}: Final = ErrorKind({err_code}, {code}, {json.dumps(text)})"
    if len(line) <= 100:
        return line
    inside = f"    {err_code}, {code}, {json.dumps(text)}"
    if len(inside) > 100:
        inside = f"    {err_code},\n    {code},\n    {json.dumps(text)},"
    return f"{name_of(constant)}: Final = ErrorKind(\n{inside}\n)"


def render() -> str:
    rows = [line.split("\t") for line in TABLE.read_text().splitlines()[1:] if line]
    return HEAD + "\n".join(row(*cells) for cells in rows) + "\n"


if __name__ == "__main__":
    MODULE.write_text(render())
