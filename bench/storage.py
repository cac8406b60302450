"""The store by itself: `python -m bench.storage [--small] [ROW ...]`, one JSON line per row.

Every row works in a fresh directory under `--dir` (on the disk to be measured) and says what it
did, so that a number can be read without this file.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from storage._blockhome import BlockHome
from storage._cipher import aes_available
from storage._directory import DataDirectory
from storage._drill import append, load
from storage.filestore import FileStores
from storage.keys import ServerKeys
from storage.ports import StoreLimits

Row = dict[str, Any]


def seconds_of(work: Callable[..., None], *arguments: Any, **named: Any) -> float:
    started = time.perf_counter()
    work(*arguments, **named)
    return time.perf_counter() - started


def rate(path: Path, count: int, size: int, durable: bool, batch: int = 256, **options: Any) -> Row:
    directory = DataDirectory(path, durable=durable, **options)
    home = directory.create_stream({"name": "bench"})
    seconds = seconds_of(append, directory, home, count, batch, size, 1000)
    stats = directory.stats
    started = time.perf_counter()
    directory.wait_applied()
    settle = time.perf_counter() - started
    directory.close()
    return {
        "messages_per_s": round(count / seconds),
        "mb_per_s": round(count * size / seconds / 1e6),
        "syncs": stats["syncs"],
        "settle_s": round(settle, 3),
    }


def sequential(path: Path, size_bytes: int) -> Row:
    """What writing the same payload bytes in 1 MiB pieces with a final sync reaches."""
    piece = os.urandom(1 << 20)
    fd = os.open(path / "plain", os.O_RDWR | os.O_CREAT, 0o600)
    os.posix_fallocate(fd, 0, size_bytes)
    started = time.perf_counter()
    for offset in range(0, size_bytes, len(piece)):
        os.pwrite(fd, piece, offset)
    os.fdatasync(fd)
    seconds = time.perf_counter() - started
    os.close(fd)
    return {"mb_per_s": round(size_bytes / seconds / 1e6)}


def append_8k(path: Path, small: bool) -> Row:
    """Against writing the same bytes plainly, in turn; the best of each."""
    count = 10_000 if small else 100_000
    rows, plain = [], []
    for turn in range(1 if small else 5):
        folder = path / str(turn)
        folder.mkdir()
        plain.append(sequential(folder, count * 8192)["mb_per_s"])
        rows.append(rate(folder / "data", count, 8192, True))
        shutil.rmtree(folder)
    row = max(rows, key=lambda one: one["mb_per_s"])
    share = round(row["mb_per_s"] / max(plain), 2)
    return row | {"sequential_mb_per_s": max(plain), "share": share}


def trimmed(path: Path, small: bool) -> Row:
    """Appending at a limit of messages against appending without one, in turn; the best of each."""
    count = 50_000 if small else 1_000_000
    best = {0: 0.0, count // 5: 0.0}
    for turn in range(1 if small else 4):
        for limit in best:
            folder = path / f"{turn}-{limit}"
            files = FileStores(folder)
            store = files.create({"name": "bench"}, StoreLimits(messages_max=limit or -1))
            home = files.directory.homes[1]
            run = partial(append, files.directory, home, batch=256, size=128, subjects=1000)
            run(count=count // 5, store=store)
            best[limit] = max(best[limit], count / seconds_of(run, count=count, store=store))
            files.close(clean=False)
            shutil.rmtree(folder)
    free, limited = best.values()
    return {
        "unlimited_per_s": round(free),
        "limited_per_s": round(limited),
        "share": round(limited / free, 2),
    }


def load_warm(path: Path, small: bool) -> Row:
    count = 100_000 if small else 2_000_000
    directory = DataDirectory(path)
    home = directory.create_stream({"name": "bench"})
    append(directory, home, count, 4096, 128, 1000)
    directory.wait_applied()
    load(home, count, 1)
    in_order = seconds_of(load, home, count, 1)
    scattered = seconds_of(load, home, count, 7919)
    directory.close()
    return {
        "in_order_per_s": round(count / in_order),
        "scattered_per_s": round(count / scattered),
    }


def append_encrypted(path: Path, small: bool) -> Row:
    """Beside `append_128_durable`: what each cipher costs."""
    count = 50_000 if small else 2_000_000
    row: Row = {}
    for cipher in ("none", "chacha", "aes"):
        if cipher == "aes" and not aes_available():
            continue
        keys = None if cipher == "none" else ServerKeys("bench", cipher=cipher)
        found = rate(path / cipher, count, 128, True, keys=keys)
        row[f"{cipher}_messages_per_s"] = found["messages_per_s"]
    return row


def fill_with_text(directory: DataDirectory, count: int) -> BlockHome:
    """Messages as sensors send them; random noise would not compress, one letter too well."""
    chance = random.Random(1)
    home = directory.create_stream({"name": "bench"})
    for first in range(1, count + 1, 1000):
        home.append_many(
            [
                (
                    seq,
                    seq,
                    b"sensors.%d" % (seq % 1000),
                    b"",
                    b'{"id":"%x","temperature":%d.%d,"unit":"celsius","at":%d,"state":"nominal"}'
                    % (
                        chance.getrandbits(32),
                        chance.randrange(40),
                        chance.randrange(100),
                        1_700_000_000_000 + seq,
                    ),
                )
                for seq in range(first, min(first + 1000, count + 1))
            ]
        )
        directory.wait(directory.commit())
    directory.wait_applied()
    return home


def always(codec: str, settings: dict[str, Any]) -> str:
    return codec


def compressed(path: Path, small: bool) -> Row:
    """Blocks made into frames in the background, then read."""
    count = 30_000 if small else 400_000
    row: Row = {}
    for codec in ("none", "zstd", "s2", "lz4"):
        directory = DataDirectory(path / codec, codec_of=partial(always, codec))
        home = fill_with_text(directory, count)
        started = time.process_time(), time.perf_counter()
        directory.wait_rewritten()
        cpu_s, seconds = time.process_time() - started[0], time.perf_counter() - started[1]
        plain = sum(block["bytes"] for block in home.describe_blocks() if block["sealed"])
        stored = sum(file.stat().st_blocks * 512 for file in path.glob(f"{codec}/streams/*/*.blk"))
        load(home, count, 1)
        in_order = seconds_of(load, home, count, 1)
        scattered = seconds_of(load, home, count // 50, 7919)
        row[codec] = {
            "stored_mb": round(stored / 1e6, 1),
            "rewritten_mb_per_s": round(plain / seconds / 1e6) if codec != "none" else None,
            "rewrite_cpu_s": round(cpu_s, 2),
            "in_order_per_s": round(count / in_order),
            "scattered_per_s": round(count // 50 / scattered),
        }
        directory.close()
    return row


def pause_while_compressing(path: Path, small: bool) -> Row:
    """The longest that the owner's thread waits in one turn of small commits and polls."""
    directory = DataDirectory(path, codec_of=lambda settings: "zstd")
    home = fill_with_text(directory, 100_000 if small else 400_000)
    directory.maintain()
    turns = []
    deadline = time.monotonic() + 30
    last = home.last_seq
    while time.monotonic() < deadline:
        waits = [b for b in home.describe_blocks() if b["sealed"] and not b["framed"]]
        if not waits:
            break
        last += 1
        started = time.perf_counter()
        home.append_many([(last, last, b"s", b"", b"m")])
        directory.commit()
        directory.poll()
        turns.append(time.perf_counter() - started)
        time.sleep(0.0005)
    directory.close()
    turns.sort()
    return {
        "turns": len(turns),
        "median_ms": round(turns[len(turns) // 2] * 1e3, 3),
        "p999_ms": round(turns[len(turns) * 999 // 1000] * 1e3, 3),
        "longest_ms": round(turns[-1] * 1e3, 3),
    }


def memory_mb(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return round(int(line.split()[1]) * 1024 / 1e6)
    raise LookupError(field)


def open_it(path: str) -> None:
    """In a process of its own: open the store, report time and memory."""
    started = time.perf_counter()
    files = FileStores(path)
    seconds = time.perf_counter() - started
    store = files.stores[1]
    rss_mb, peak_mb = memory_mb("VmRSS"), memory_mb("VmHWM")
    messages = store.messages
    files.close(clean=False)
    print(
        json.dumps(
            {
                "seconds": round(seconds, 3),
                "messages": messages,
                "rss_mb": rss_mb,
                "peak_mb": peak_mb,
            }
        )
    )


def reopened(path: Path) -> Row:
    done = subprocess.run(
        [sys.executable, "-m", "bench.storage", "--open", str(path)],
        check=True,
        capture_output=True,
        text=True,
    )
    row: Row = json.loads(done.stdout)
    return row


def recovery(path: Path, small: bool) -> Row:
    count = 100_000 if small else 10_000_000
    files = FileStores(path)
    store = files.create({"name": "bench"})
    seconds = seconds_of(append, files.directory, store.home, count, 4096, 128, 1000, store)
    files.close(clean=False)
    killed = reopened(path)
    files = FileStores(path)
    files.close()
    return {
        "store_messages_per_s": round(count / seconds),
        "after_kill": killed,
        "after_clean_stop": reopened(path),
    }


ROWS: dict[str, Callable[[Path, bool], Row]] = {
    "append_128_durable": lambda path, small: rate(path, 50_000 if small else 4_000_000, 128, True),
    "append_128_lazy": lambda path, small: rate(path, 50_000 if small else 4_000_000, 128, False),
    "append_8k_durable": append_8k,
    "append_128_trimmed": trimmed,
    "append_128_encrypted": append_encrypted,
    "load_warm": load_warm,
    "compressed": compressed,
    "pause_while_compressing": pause_while_compressing,
    "recovery": recovery,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", help=f"of {', '.join(ROWS)}")
    parser.add_argument("--small", action="store_true", help="a hundredth of the work")
    parser.add_argument("--dir", default=".", help="where to work; on the disk to be measured")
    parser.add_argument("--open", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.open:
        open_it(arguments.open)
        return
    unknown = [name for name in arguments.rows if name not in ROWS]
    if unknown:
        parser.error(f"no such row: {', '.join(unknown)}; there are {', '.join(ROWS)}")
    for name in arguments.rows or ROWS:
        folder = Path(tempfile.mkdtemp(prefix="bench-storage-", dir=arguments.dir))
        try:
            row = ROWS[name](folder, arguments.small)
            print(json.dumps({"row": name, **row}), flush=True)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
