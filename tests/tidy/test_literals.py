"""A literal beyond a C int is a Python object in Cython, and so is what is computed with it."""

import re

from tests.tidy.sources import ROOT

COMPUTED = re.compile(r"(?:[&|^*+<>-]|[!=<>]=) (0x[0-9A-Fa-f]+|\d+)(?![\w.])")
FOLDERS = ("storage", "server/jetstream")


def test_large_literals_in_expressions_are_unsigned_or_cast() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: write {literal}u"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).glob("*.pyx"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for literal in COMPUTED.findall(line)
        if 0x7FFFFFFF < int(literal, 0) < 1 << 32
    ]
    assert found == []
