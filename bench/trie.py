"""Speed and size of the subject trie: `python -m bench.trie [millions of subscriptions]`.

Prints one JSON line for each row. The loops are compiled (bench/_trie.pyx) the first time.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from types import ModuleType

from bench.compiled import loops, resident_bytes


def timed_ns(work: Callable[[], object], rounds: int) -> float:
    started = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - started) / rounds


def row(name: str, **figures: float) -> None:
    print(json.dumps({"row": name, **{key: round(value, 1) for key, value in figures.items()}}))


def matching_ns(compiled: ModuleType, trie: object, pattern: bytes, distinct: int) -> float:
    """The best of three passes over subjects spread over the whole range."""
    rounds = max(distinct, 2_000_000 // distinct * distinct)
    stride = max(1, 1_000_000 // distinct)
    best = float("inf")
    for _ in range(3):
        steps = compiled.match(trie, pattern, distinct, rounds, stride)
        next(steps)
        best = min(best, timed_ns(functools.partial(next, steps), rounds))
    return best


def measure(compiled: ModuleType, name: str, pattern: bytes, count: int, distinct: int) -> None:
    from server.core._sublist import Sublist

    before = resident_bytes()
    herd = compiled.Herd(pattern, count, distinct)
    trie = Sublist(seed=time.perf_counter_ns())
    insert_ns = timed_ns(lambda: herd.insert(trie), count)
    size = (resident_bytes() - before - 8 * count) / count
    churn_ns = timed_ns(lambda: herd.churn(trie, count // 3, count), count)
    figures = {"insert_ns": insert_ns, "remove_insert_ns": churn_ns, "bytes_each": size}
    if distinct == count:
        literal = pattern.replace(b"*", b"x")
        figures["match_cached_1_ns"] = matching_ns(compiled, trie, literal, 1)
        figures["match_cached_200_ns"] = matching_ns(compiled, trie, literal, 200)
        figures["match_uncached_ns"] = matching_ns(compiled, trie, literal, count)
        wild = [trie.add(subject) for subject in (b"orders.*.us", b"*.7.eu", b"orders.7.>")]
        figures["match_uncached_with_wildcards_ns"] = matching_ns(compiled, trie, literal, count)
        wild.clear()
    figures["remove_ns"] = timed_ns(lambda: herd.remove(trie), count)
    row(name, subscriptions=count, **figures)


def main() -> None:
    count = int(float(sys.argv[1]) * 1_000_000) if len(sys.argv) > 1 else 1_000_000
    compiled = loops("_trie", "server/core")
    rows = [
        ("unique literals", b"orders.%d.eu", count),
        ("unique wildcards", b"orders.%d.*", count),
        ("few wildcards", b"orders.%d.*", 4),
        ("one subject", b"orders.eu", 1),
    ]
    for name, pattern, distinct in rows:
        # A process of its own: memory that an earlier row gave back would hide what this one takes.
        process = get_context("fork").Process(
            target=measure, args=(compiled, name, pattern, count, distinct)
        )
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(process.exitcode)


if __name__ == "__main__":
    main()
