"""Speed and size of the store's logic: `python -m bench.storage_index [--small] [GROUP ...]`.

Prints one JSON line for each row. The loops call the store at C level (bench/_store.pyx, compiled
the first time) over the memory home, or over a home that keeps nothing ("logic").
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from multiprocessing import get_context
from types import ModuleType
from typing import Any

from bench.compiled import loops, resident_bytes

MILLION = 1_000_000
SMALL = 20_000
SECOND = 1_000_000_000


def row(name: str, about: str, **figures: float) -> None:
    shown = {key: round(value, 3) for key, value in figures.items()}
    print(json.dumps({"row": name, "about": about, **shown}), flush=True)


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def new_store(compiled: ModuleType, keep: bool = True, **limits: Any):  # type: ignore[no-untyped-def]
    from storage._memory import MemoryHome
    from storage._store import StreamStore
    from storage.ports import StoreLimits

    return StreamStore(MemoryHome() if keep else compiled.NoHome(), StoreLimits(**limits))


def append(compiled: ModuleType, million: int) -> None:
    for keep in (False, True):
        for distinct in (1, 1000, million):
            store = new_store(compiled, keep)
            took = seconds(lambda: compiled.store(store, 2 * million, distinct, 128, SECOND))  # noqa: B023
            where = "memory" if keep else "logic"
            subjects = f"{distinct} subjects" if distinct < million else "scattered subjects"
            row(
                f"append_{where}_{distinct if distinct < million else 'scattered'}",
                f"append 128 B, {subjects}, {where}",
                per_s=2 * million / took,
            )


def trim(compiled: ModuleType, million: int) -> None:
    plain = new_store(compiled)
    compiled.store(plain, million, 1000, 128, SECOND)
    free = seconds(lambda: compiled.store(plain, 2 * million, 1000, 128, SECOND))
    for limits in (
        {"messages_max": million},
        {"messages_per_subject_max": 1000},
        {"messages_per_subject_max": 5},
        {"messages_per_subject_max": 1},
    ):
        store = new_store(compiled, True, **limits)
        compiled.store(store, million, 1000, 128, SECOND)
        took = seconds(lambda: compiled.store(store, 2 * million, 1000, 128, SECOND))  # noqa: B023
        ((limit, value),) = limits.items()
        row(
            f"trim_{limit}_{value}",
            f"append at the limit {limits}",
            per_s=2 * million / took,
            of_unlimited=free / took,
        )
    store = new_store(compiled, messages_per_subject_max=5)
    compiled.store(store, 6 * million, million, 128, SECOND)
    took = seconds(lambda: compiled.store(store, million, million, 128, SECOND))
    row(
        "trim_scattered",
        "append, as many subjects, with 5 messages each at the limit",
        per_s=million / took,
    )


def load(compiled: ModuleType, million: int) -> None:
    store = new_store(compiled)
    compiled.store(store, 4 * million, million, 128, SECOND)
    took = seconds(lambda: compiled.read(store, 2 * million))
    row("load", "load by sequence", per_s=2 * million / took)
    took = seconds(lambda: compiled.read_last(store, 2 * million, million))
    row("load_last", "load last by subject, 1 M subjects", per_s=2 * million / took)
    took = seconds(lambda: compiled.next_literal(store, million, million))
    about = "load next, random subject from a random place, 1 M subjects"
    row("load_next_literal", about, per_s=million / took)
    for name, filters, count in (
        ("wildcard", "k.*.x", million),
        ("full_wildcard", "k.>", million),
        ("two", ["k.1.x", "k.*.x"], million),
        ("three_subjects", ["k.7.x", "k.8.x", "k.9.x"], 1000),
    ):
        compiled.next_filtered(store, filters, 1)
        took = seconds(lambda: compiled.next_filtered(store, filters, count))  # noqa: B023
        about = f"load next by filter {filters}, 1 M subjects"
        row(f"load_next_{name}", about, per_s=count / took)


def pending(compiled: ModuleType, million: int) -> None:
    store = new_store(compiled, keep=False)
    compiled.store(store, 4 * million, million, 128, SECOND)
    # Every second subject another way, so that no filter is all there is.
    for subject in ("z.1", "z.2"):
        store.store(subject, b"", b"", SECOND)
    for name, filters in (
        ("full_wildcard", "k.>"),
        ("wildcard", "k.*.x"),
        ("one_of_a_wildcard", "*.77.x"),
        ("subject", "k.5.x"),
    ):
        first = seconds(lambda: store.num_pending(2 * million, filters))  # noqa: B023
        again = seconds(lambda: store.num_pending(2 * million + 7, filters))  # noqa: B023
        changed = store.store("k.5.x", b"", b"", SECOND)
        later = seconds(lambda: store.num_pending(changed - million, filters))  # noqa: B023
        row(
            f"pending_{name}",
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


def purge(compiled: ModuleType, million: int) -> None:
    store = new_store(compiled)
    compiled.store(store, 5 * million, 1000, 128, SECOND)
    for _ in range(5):
        compiled.store(store, million, 1000, 128, SECOND)
    filters = [f"k.{number}.x" for number in range(500)]
    job = store.start_purge(filters)
    total, longest = longest_slice(lambda: job.step(4096))
    row(
        "purge",
        "purge by 500 filters half of 10 M, slices of 4,096",
        purged=job.purged,
        seconds=total / 1e3,
        longest_ms=longest,
    )


def expire(compiled: ModuleType, million: int) -> None:
    store = new_store(compiled, age_max_ns=10 * SECOND)
    compiled.store(store, 2 * million, 1000, 128, SECOND, 1000)
    now_ns = SECOND + million * 1000 + 10 * SECOND
    total, longest = longest_slice(lambda: not store.expire(now_ns, 4096).more)
    row(
        "expire",
        "expire 1 M by age, slices of 4,096",
        expired=2 * million - store.messages,
        seconds=total / 1e3,
        longest_ms=longest,
    )


def subjects(compiled: ModuleType, million: int) -> None:
    for name, count in (("subjects_1m", million), ("subjects_10m", 10 * million)):
        store = new_store(compiled, keep=False)
        before = resident_bytes()
        took = seconds(lambda: compiled.store(store, count, count, 16, SECOND, 0, False))  # noqa: B023
        grown = resident_bytes() - before
        text = sum(len(f"k.{n}.x") for n in range(count))
        sequences = store.index_memory_bytes["sequences"]
        row(
            name,
            f"{count} subjects of one message",
            bytes_each=(grown - sequences - text) / count,
            text_bytes_each=text / count,
            counted_each=store.index_memory_bytes["subjects"] / count,
            ns_each=took / count * 1e9,
        )


def reopen(compiled: ModuleType, million: int) -> None:
    from storage._store import StreamStore

    before = resident_bytes()
    store = new_store(compiled, keep=False)
    compiled.store(store, 10 * million, 1000, 128, SECOND)
    grown = (resident_bytes() - before) / 2**20
    row("reopen_indexes", "10 M messages on 1,000 subjects, indexes", mib=grown)
    started = time.perf_counter()
    snapshot = store.snapshot()
    took = time.perf_counter() - started
    row("reopen_snapshot", "its snapshot", ms=took * 1e3, mib=len(snapshot) / 2**20)
    compiled.store(store, million // 20, 1000, 128, SECOND)
    took = seconds(store.snapshot)
    row("reopen_next_snapshot", "the next one, 50,000 messages later", ms=took * 1e3)
    again = StreamStore(store.home, store.limits)
    took = seconds(lambda: again.restore(snapshot))
    row("reopen_restore", "restore from it", ms=took * 1e3)
    whole = new_store(compiled)
    compiled.store(whole, 10 * million, 1000, 128, SECOND)
    took = seconds(whole.rebuild)
    row("reopen_rebuild", "index 10 M records anew from the memory home", seconds=took)


GROUPS = {
    one.__name__: one for one in (append, trim, load, pending, purge, expire, subjects, reopen)
}


def run(name: str, million: int) -> None:
    GROUPS[name](loops("_store"), million)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--small", action="store_true", help="a fiftieth of the work")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.groups if name not in GROUPS]
    if unknown:
        parser.error(f"no such group: {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    loops("_store")
    for name in arguments.groups or GROUPS:
        million = SMALL if arguments.small else MILLION
        worker = get_context("spawn").Process(target=run, args=(name, million))
        worker.start()
        worker.join()
        if worker.exitcode:
            raise SystemExit(f"{name} failed")


if __name__ == "__main__":
    main()
