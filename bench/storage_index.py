"""Speed and size of the store's logic: `python -m bench.storage_index [row ...]`.

Prints one JSON line for each row. The loops call the store at C level (bench/_store.pyx, compiled
the first time) over the memory home, or over a home that keeps nothing ("logic").
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from types import ModuleType
from typing import Any

from bench.compiled import loops, resident_bytes

MILLION = 1_000_000
SECOND = 1_000_000_000


def row(name: str, **figures: float) -> None:
    shown = {key: round(value, 2) for key, value in figures.items()}
    print(json.dumps({"row": name, **shown}), flush=True)


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def new_store(compiled: ModuleType, keep: bool = True, **limits: Any):  # type: ignore[no-untyped-def]
    from storage._memory import MemoryHome
    from storage._store import StreamStore
    from storage.ports import StoreLimits

    return StreamStore(MemoryHome() if keep else compiled.NoHome(), StoreLimits(**limits))


def append(compiled: ModuleType) -> None:
    for keep in (False, True):
        for distinct in (1, 1000, MILLION):
            store = new_store(compiled, keep)
            took = seconds(lambda: compiled.store(store, 2 * MILLION, distinct, 128, SECOND))  # noqa: B023
            name = f"append 128 B, {distinct} subjects, {'memory' if keep else 'logic'}"
            row(name, million_per_s=2 / took)


def trim(compiled: ModuleType) -> None:
    plain = new_store(compiled)
    compiled.store(plain, MILLION, 1000, 128, SECOND)
    free = seconds(lambda: compiled.store(plain, 2 * MILLION, 1000, 128, SECOND))
    for limits in (
        {"messages_max": MILLION},
        {"messages_per_subject_max": 1000},
        {"messages_per_subject_max": 5},
        {"messages_per_subject_max": 1},
    ):
        store = new_store(compiled, True, **limits)
        compiled.store(store, MILLION, 1000, 128, SECOND)
        took = seconds(lambda: compiled.store(store, 2 * MILLION, 1000, 128, SECOND))  # noqa: B023
        row(f"append at the limit {limits}", million_per_s=2 / took, of_unlimited=free / took)
    store = new_store(compiled, messages_per_subject_max=5)
    compiled.store(store, 6 * MILLION, MILLION, 128, SECOND)
    took = seconds(lambda: compiled.store(store, MILLION, MILLION, 128, SECOND))
    row("append, 1 M subjects with 5 messages each at the limit", million_per_s=1 / took)


def load(compiled: ModuleType) -> None:
    store = new_store(compiled)
    compiled.store(store, 4 * MILLION, MILLION, 128, SECOND)
    row("load by sequence", million_per_s=2 / seconds(lambda: compiled.read(store, 2 * MILLION)))
    took = seconds(lambda: compiled.read_last(store, 2 * MILLION, MILLION))
    row("load last by subject, 1 M subjects", million_per_s=2 / took)
    took = seconds(lambda: compiled.next_literal(store, MILLION, MILLION))
    row("load next, random subject from a random place, 1 M subjects", million_per_s=1 / took)
    for filters in ("k.*.x", "k.>", ["k.1.x", "k.*.x"], ["k.7.x", "k.8.x", "k.9.x"]):
        compiled.next_filtered(store, filters, 1)
        count = 1000 if len(filters) == 3 else MILLION
        took = seconds(lambda: compiled.next_filtered(store, filters, count))  # noqa: B023
        row(f"load next by filter {filters}, 1 M subjects", million_per_s=count / MILLION / took)


def pending(compiled: ModuleType) -> None:
    store = new_store(compiled, keep=False)
    compiled.store(store, 4 * MILLION, MILLION, 128, SECOND)
    # Every second subject another way, so that no filter is all there is.
    for subject in ("z.1", "z.2"):
        store.store(subject, b"", b"", SECOND)
    for filters in ("k.>", "k.*.x", "*.77.x", "k.5.x"):
        first = seconds(lambda: store.num_pending(2 * MILLION, filters))  # noqa: B023
        again = seconds(lambda: store.num_pending(2 * MILLION + 7, filters))  # noqa: B023
        changed = store.store("k.5.x", b"", b"", SECOND)
        later = seconds(lambda: store.num_pending(changed - MILLION, filters))  # noqa: B023
        row(
            f"num pending {filters}, 4 M messages on 1 M subjects",
            first_ms=first * 1e3,
            again_ms=again * 1e3,
            after_change_ms=later * 1e3,
        )


def longest_slice(step: Callable[[], bool]) -> tuple[float, float]:
    """Milliseconds: all slices, the longest one."""
    total = longest = 0.0
    done = False
    while not done:
        started = time.perf_counter()
        done = step()
        took = time.perf_counter() - started
        total += took
        longest = max(longest, took)
    return total * 1e3, longest * 1e3


def purge(compiled: ModuleType) -> None:
    store = new_store(compiled)
    compiled.store(store, 5 * MILLION, 1000, 128, SECOND)
    for _ in range(5):
        compiled.store(store, MILLION, 1000, 128, SECOND)
    filters = [f"k.{number}.x" for number in range(500)]
    job = store.start_purge(filters)
    total, longest = longest_slice(lambda: job.step(4096))
    row(
        "purge by 500 filters half of 10 M, slices of 4,096",
        million=job.purged / MILLION,
        seconds=total / 1e3,
        longest_ms=longest,
    )


def expire(compiled: ModuleType) -> None:
    store = new_store(compiled, age_max_ns=10 * SECOND)
    compiled.store(store, 2 * MILLION, 1000, 128, SECOND, 1000)
    now_ns = SECOND + MILLION * 1000 + 10 * SECOND
    total, longest = longest_slice(lambda: not store.expire(now_ns, 4096).more)
    row(
        "expire 1 M by age, slices of 4,096",
        million=2 - store.messages / MILLION,
        seconds=total / 1e3,
        longest_ms=longest,
    )


def subjects(compiled: ModuleType) -> None:
    for count in (MILLION, 10 * MILLION):
        store = new_store(compiled, keep=False)
        before = resident_bytes()
        took = seconds(lambda: compiled.store(store, count, count, 16, SECOND, 0, False))  # noqa: B023
        grown = resident_bytes() - before
        text = (
            sum(
                len(f"k.{n}.x") * m
                for n, m in (
                    (5, 10),
                    (55, 90),
                    (555, 900),
                    (5555, 9000),
                    (55555, 90000),
                    (555555, 900000),
                )
            )
            if count == MILLION
            else 10.89 * count
        )
        sequences = store.index_memory_bytes["sequences"]
        row(
            f"{count} subjects of one message",
            bytes_each=(grown - sequences - text) / count,
            text_bytes_each=text / count,
            counted_each=store.index_memory_bytes["subjects"] / count,
            ns_each=took / count * 1e9,
        )


def reopen(compiled: ModuleType) -> None:
    from storage._store import StreamStore

    before = resident_bytes()
    store = new_store(compiled, keep=False)
    compiled.store(store, 10 * MILLION, 1000, 128, SECOND)
    row("10 M messages on 1,000 subjects, indexes", mib=(resident_bytes() - before) / 2**20)
    started = time.perf_counter()
    snapshot = store.snapshot()
    row("its snapshot", ms=(time.perf_counter() - started) * 1e3, mib=len(snapshot) / 2**20)
    compiled.store(store, 50_000, 1000, 128, SECOND)
    row("the next one, 50,000 messages later", ms=seconds(store.snapshot) * 1e3)
    again = StreamStore(store.home, store.limits)
    row("restore from it", ms=seconds(lambda: again.restore(snapshot)) * 1e3)
    whole = new_store(compiled)
    compiled.store(whole, 10 * MILLION, 1000, 128, SECOND)
    row("index 10 M records anew from the memory home", seconds=seconds(whole.rebuild))


ROWS = [append, trim, load, pending, purge, expire, subjects, reopen]


def run(name: str) -> None:
    next(one for one in ROWS if one.__name__ == name)(loops("_store"))


def main() -> None:
    names = sys.argv[1:] or [one.__name__ for one in ROWS]
    loops("_store")
    for name in names:
        worker = get_context("spawn").Process(target=run, args=(name,))
        worker.start()
        worker.join()
        if worker.exitcode:
            raise SystemExit(f"{name} failed")


if __name__ == "__main__":
    main()
