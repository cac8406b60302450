"""`python -m tests.golden.make NAME ...` writes `storage-NAME.json`: a small data directory.

Never again for a name that is there: the file stands for what that version wrote.
"""

from __future__ import annotations

import json
import sys
import tempfile
import zlib
from base64 import b85encode
from pathlib import Path
from typing import Any

from storage._directory import DataDirectory
from storage.keys import ServerKeys
from tests.golden.content import GONE, KEY, LAST, RESERVED, message

FOLDER = Path(__file__).parent
SIZES: dict[str, Any] = {
    "segment_size": 16 << 10,
    "block_size_min": 2048,
    "block_size_max": 4096,
    "threaded": False,
}
VARIANTS: dict[str, tuple[str, ServerKeys | None]] = {
    "plain": ("none", None),
    "zstd": ("zstd", None),
    "s2": ("s2", None),
    "lz4": ("lz4", None),
    "chacha": ("none", ServerKeys(KEY)),
    "aes": ("none", ServerKeys(KEY, cipher="aes")),
    "zstd-chacha": ("zstd", ServerKeys(KEY)),
    "lz4-aes": ("lz4", ServerKeys(KEY, cipher="aes")),
}


def fill(path: Path, codec: str, keys: ServerKeys | None) -> None:
    """Framed, sealed and active blocks, and a log that a start has to replay."""
    directory = DataDirectory(path, codec_of=lambda settings: codec, keys=keys, **SIZES)
    home = directory.create_stream({"name": "golden", "detail": "as it was"})
    seq = 0
    while seq < LAST:
        seq += 1
        if seq == RESERVED[0]:
            home.reserve(*RESERVED)
            seq += RESERVED[1] - 1
            continue
        home.append_many([message(seq)])
        if seq == LAST // 2:
            directory.wait(directory.commit())
            directory.wait_applied()
            directory.wait_rewritten()
    for number, gone in enumerate(GONE):
        home.delete(gone, erase=number % 2 == 0)
    directory.wait(directory.commit())
    directory.wait_applied()
    directory.close(clean=False)


def packed(path: Path) -> dict[str, str]:
    return {
        str(file.relative_to(path)): b85encode(zlib.compress(file.read_bytes(), 9)).decode()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name != "lock"
    }


def main() -> None:
    for name in sys.argv[1:] or VARIANTS:
        target = FOLDER / f"storage-{name}.json"
        if target.exists():
            print(f"{target.name} is there and stays as it is")
            continue
        with tempfile.TemporaryDirectory() as folder:
            fill(Path(folder, "data"), *VARIANTS[name])
            target.write_text(json.dumps(packed(Path(folder, "data")), indent=1) + "\n")


if __name__ == "__main__":
    main()
