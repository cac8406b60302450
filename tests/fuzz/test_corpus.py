"""The fuzzer's corpus on the ordinary build, once: as it is, and each file cut in every way."""

from __future__ import annotations

from pathlib import Path

import pytest

from .target import BYTEWISE, run

CORPUS = sorted((Path(__file__).parent / "corpus").iterdir())


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_corpus_file(path: Path) -> None:
    data = path.read_bytes()
    run(data)
    for settings in (0, 1, 2, 4, 8, 16, 32, 63):
        for cut in (BYTEWISE, 2, 13):
            run(bytes([settings, cut]) + data[2:])


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_corpus_file_truncated_everywhere(path: Path) -> None:
    data = path.read_bytes()
    for end in range(2, len(data)):
        run(data[:end])
