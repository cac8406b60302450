"""What tasks of Spark left out, in files of a folder: they have no other way to who asked."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from uuid import uuid4

from pyspark_jetstream.scan import Tally


def write(folder: Path, tally: Tally) -> None:
    """One file, which is there as a whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f"{uuid4().hex}.new"
    fresh.write_text(json.dumps(asdict(tally)))
    fresh.rename(fresh.with_suffix(".json"))


def take(folder: Path, tally: Tally) -> None:
    """Add what is there to `tally`, once."""
    for path in sorted(folder.glob("*.json")):
        tally.add(Tally(**json.loads(path.read_text())))
        path.unlink()
