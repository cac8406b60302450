"""The servers that scripts and conversations share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .servers import Pool


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    pool = Pool()
    yield pool
    pool.stop()
