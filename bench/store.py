"""The store by itself, without a server around it, so without a peer.

Its loads are `bench.storage` (with a disk) and `bench.storage_index` (the logic, in memory).
"""

import os
from pathlib import Path

from bench.apart import figures_of
from bench.loads import Run
from bench.programs import ROOT

STORE_TIMEOUT_S = 300.0


def with_disk(name: str) -> Run:
    """A row of `bench.storage`, under `build`: where temporary files lie there may be no disk."""
    folder = Path(os.environ.get("TMPDIR") or ROOT / "build")
    folder.mkdir(parents=True, exist_ok=True)
    return figures_of("bench.storage", name, "--dir", str(folder), timeout_s=STORE_TIMEOUT_S)


def in_memory(name: str) -> Run:
    """A group of `bench.storage_index`."""
    return figures_of("bench.storage_index", name, timeout_s=STORE_TIMEOUT_S)
