"""What the sources say about themselves: imports, cimports, headers, lengths of functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
ROOMS = ("config", "raft", "server", "storage")
FROM = re.compile(r"^\s*from\s+([\w.]+)\s+c?import\b", re.M)
CIMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+cimport\b|cimport\s+([\w.]+))", re.M)
IMPORT = re.compile(r"^\s*c?import\s+([\w.]+)", re.M)
EXTERN = re.compile(r'^\s*cdef extern from "([\w./]+)"', re.M)


def sources(*suffixes: str) -> Iterator[Path]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix in suffixes:
                yield path


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def modules_named(path: Path) -> set[str]:
    """Every module that a file imports or cimports, inside functions as well."""
    text = path.read_text()
    if path.suffix in (".pyx", ".pxd"):
        return {name for name in (*FROM.findall(text), *IMPORT.findall(text)) if name}
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def cimported(path: Path) -> set[Path]:
    """The .pxd files of ours that a .pyx or .pxd names, its own one too."""
    own = path.with_suffix(".pxd")
    found = {own} if own.exists() else set()
    for named, whole in CIMPORT.findall(path.read_text()):
        pxd = (ROOT / (named or whole).replace(".", "/")).with_suffix(".pxd")
        if pxd.exists():
            found.add(pxd)
    return found


def headers(path: Path) -> set[Path]:
    """The .h files of ours that a .pyx or .pxd declares."""
    named = EXTERN.findall(path.read_text())
    return {path.parent / name for name in named if (path.parent / name).exists()}


def everything_read(path: Path) -> set[str]:
    """All .pxd and .h files that the compiler reads for one .pyx."""
    seen: set[Path] = set()
    waiting = [path]
    while waiting:
        reading = waiting.pop()
        if reading not in seen:
            seen.add(reading)
            waiting += [*cimported(reading)]
    return {name_of(file) for file in seen - {path} | {h for file in seen for h in headers(file)}}


FUNCTION = re.compile(
    r"^(\s*)(?:async\s+)?(?:def|cdef|cpdef)\b(?!\s+(?:class|struct|enum|extern)\b)[^=]*?(\w+)\s*\("
)
CONTINUES = re.compile(r"^\s*[)\]}]")


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """(name, lines) of each function of a .py or .pyx, by indentation."""
    lines = path.read_text().splitlines()
    for at, line in enumerate(lines):
        match = FUNCTION.match(line)
        if match:
            yield match[2], function_length(lines[at:], len(match[1]))


def function_length(lines: list[str], indent: int) -> int:
    """Up to the next text that stands no deeper, but for the bracket that ends the signature."""
    length = 1
    for at, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        if len(line) - len(line.lstrip()) <= indent and not CONTINUES.match(line):
            break
        length = at
    return length
