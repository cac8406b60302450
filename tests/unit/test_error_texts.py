"""The error texts by which client libraries decide what to do; they look for them in any case."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.feature("1-103")
@pytest.mark.parametrize(
    "text",
    [
        "authorization violation",
        "authentication timeout",
        "stale connection",
        "permissions violation",
        "maximum connections exceeded",
        "maximum account active connections exceeded",
    ],
)
def test_the_server_still_says_what_clients_look_for(text: str) -> None:
    sources = [path for kind in ("*.pyx", "*.py") for path in (ROOT / "server").rglob(kind)]
    assert any(text in path.read_text().lower() for path in sources)
