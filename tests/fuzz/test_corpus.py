"""The fuzzer's corpus on the ordinary build, once: as it is, and each file cut in every way."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.core._broker import Broker
from server.core._sublist import Held, Sublist

from . import target
from .target import BYTEWISE, run

CORPUS = sorted((Path(__file__).parent / "corpus").iterdir())


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_corpus_file(path: Path) -> None:
    data = path.read_bytes()
    run(data)
    for settings in (0, 1, 2, 4, 8, 16, 32, 63, 64, 128, 255):
        for cut in (BYTEWISE, 2, 13):
            run(bytes([settings, cut]) + data[2:])


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_corpus_file_truncated_everywhere(path: Path) -> None:
    data = path.read_bytes()
    for end in range(2, len(data)):
        run(data[:end])


def test_memory_that_is_left_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Held] = []
    converse = target.converse

    def leaves_some(broker: Broker, data: bytes, bits: int, cut: int) -> tuple[bytes, bytes, bool]:
        kept.append(Sublist().add(b"x"))
        return converse(broker, data, bits, cut)

    monkeypatch.setattr(target, "converse", leaves_some)
    with pytest.raises(AssertionError, match="C memory is left"):
        run(b"\0\0PING\r\n")
