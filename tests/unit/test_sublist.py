"""The subject trie: hostile subjects, the cache, how long results hold, statistics, size."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path

import pytest

from server.core._sublist import Held, Sublist
from server.core._subs import live_structures


def sids(trie: Sublist, subject: str) -> set[bytes]:
    plain, groups = trie.matching(subject.encode())
    return {*plain, *(sid for group in groups.values() for sid in group)}


def filled(*subjects: str, cache: bool = True) -> tuple[Sublist, list[Held]]:
    trie = Sublist(cache=cache)
    return trie, [trie.add(subject.encode(), b"", subject.encode()) for subject in subjects]


@pytest.mark.feature("1-060")
def test_wildcards_are_whole_tokens_and_text_elsewhere() -> None:
    trie, _held = filled("foo.*", "foo.>", "foo.b*r", "foo.*r", "f>.x", ">")
    assert sids(trie, "foo.bar") == {b"foo.*", b"foo.>", b">"}
    assert sids(trie, "foo.b*r") == {b"foo.*", b"foo.>", b"foo.b*r", b">"}
    assert sids(trie, "f>.x") == {b"f>.x", b">"}
    assert sids(trie, "foo") == {b">"}
    assert sids(trie, "foo.a.b") == {b"foo.>", b">"}


@pytest.mark.feature("1-060")
@pytest.mark.parametrize("subject", ["", ".", "a.", ".a", "a..b", "a.>.b", ">.a", "*..", ">>.>.>"])
def test_malformed_subjects_are_refused_and_leave_nothing(subject: str) -> None:
    trie = Sublist()
    before = live_structures()
    with pytest.raises(ValueError, match="not a valid subject"):
        trie.add(subject.encode())
    assert live_structures() == before
    assert trie.sizes()["nodes"] == 0
    assert trie.stats()["num_inserts"] == 0


@pytest.mark.feature("1-060")
@pytest.mark.parametrize("subject", ["", ".", "a.", ".a", "a..b", "..", "a.b."])
def test_a_published_subject_with_an_empty_token_matches_nobody(subject: str) -> None:
    trie, _held = filled(">", "*", "*.*", "a.>", "a.*", "*.*.*", "a.*.b")
    assert sids(trie, subject) == set()
    assert not trie.interested(subject.encode())
    assert trie.stats()["num_cache"] == 0


@pytest.mark.feature("1-063")
def test_case_and_bytes_count() -> None:
    trie, _held = filled("Foo", "foo", "fo\u00e9", "fo\u0065\u0301")
    for subject in ("Foo", "foo", "fo\u00e9", "fo\u0065\u0301"):
        assert sids(trie, subject) == {subject.encode()}
    trie.add(b"\xff\xfe.*")
    assert not trie.interested(b"FOO")


@pytest.mark.feature("1-063")
def test_very_long_subjects() -> None:
    deep = ".".join(["a"] * 30_000)
    wide = "w" * 60_000
    trie, held = filled(deep, wide, f"{wide}.*", deep[:-1] + "*", deep[:-1] + ">", f"*.{wide}.>")
    assert sids(trie, deep) == {
        deep.encode(),
        (deep[:-1] + "*").encode(),
        (deep[:-1] + ">").encode(),
    }
    assert sids(trie, deep + ".a") == {(deep[:-1] + ">").encode()}
    assert sids(trie, wide) == {wide.encode()}
    assert sids(trie, f"{wide}.x") == {f"{wide}.*".encode()}
    assert sids(trie, f"x.{wide}.x.y") == {f"*.{wide}.>".encode()}
    held.clear()
    assert trie.sizes()["nodes"] == 0


def test_thousands_of_wildcard_tokens_neither_recurse_nor_explode() -> None:
    stars = ".".join(["*"] * 2000)
    trie, held = filled(stars, stars[:-1] + ">", *(f"{'*.' * n}>" for n in range(0, 2000, 10)))
    assert len(sids(trie, ".".join(["x"] * 2000))) == 202
    assert len(sids(trie, ".".join(["x"] * 1000))) == 100
    held.clear()
    assert trie.sizes()["nodes"] == 0


def test_branching_costs_at_most_one_visit_of_each_node() -> None:
    """Every mix of `a` and `*` over 12 tokens, none of which matches in the end."""
    patterns = [
        ".".join("a*"[number >> bit & 1] for bit in range(12)) + ".end" for number in range(4096)
    ]
    trie, _held = filled(*patterns, cache=False)
    subject = ".".join(["a"] * 12) + ".no"
    started = time.process_time()
    for _ in range(20):
        assert sids(trie, subject) == set()
    assert (time.process_time() - started) / 20 < 0.02
    # A path of stars that may begin anywhere does not multiply: the tree has no cycles.
    assert len(sids(trie, subject[:-3] + ".end")) == 4096


@pytest.mark.feature("1-067")
def test_each_plain_subscription_is_there_once() -> None:
    trie = Sublist()
    held = [
        trie.add(subject, b"", sid) for subject in (b"a.b", b"a.*", b"a.>") for sid in (b"1", b"2")
    ]
    plain, groups = trie.matching(b"a.b")
    assert sorted(plain) == [b"1"] * 3 + [b"2"] * 3
    assert groups == {}
    assert len(held) == 6


@pytest.mark.feature("1-068", "1-073")
def test_queue_names_are_exact_and_pooled_over_subjects() -> None:
    trie = Sublist()
    subs = [
        (b"a.b", b"q"),
        (b"a.*", b"q"),
        (b"a.>", b"q"),
        (b"a.b", b"Q"),
        (b"a.b", b"*"),
        (b">", b"q.>"),
    ]
    held = [trie.add(subject, queue, str(n).encode()) for n, (subject, queue) in enumerate(subs)]
    plain = trie.add(b"a.b", b"", b"plain")
    got, groups = trie.matching(b"a.b")
    assert got == [b"plain"]
    assert {name: sorted(group) for name, group in groups.items()} == {
        b"q": [b"0", b"1", b"2"],
        b"Q": [b"3"],
        b"*": [b"4"],
        b"q.>": [b"5"],
    }
    plain.remove()
    held[1].remove()
    assert sorted(trie.matching(b"a.b")[1][b"q"]) == [b"0", b"2"]


def test_many_queue_names_on_one_subject() -> None:
    trie = Sublist()
    held = [trie.add(b"a", b"q%d" % n, b"%d" % n) for n in range(5000)]
    held += [trie.add(b"*", b"q%d" % n, b"w%d" % n) for n in range(5000)]
    groups = trie.matching(b"a")[1]
    assert all(sorted(groups[b"q%d" % n]) == [b"%d" % n, b"w%d" % n] for n in range(5000))
    held.clear()
    assert trie.matching(b"a") == ([], {})


def test_a_result_holds_until_something_that_may_change_it() -> None:
    trie, held = filled("a.b", "a.*")
    hot = trie.keep(b"a.b")
    for other in ("a.c", "inbox.1", "inbox.*", "b.>", "inbox.>"):
        trie.add(other.encode()).remove()
        assert hot.valid(), other
    generation = trie.generation
    for own in ("a.b", "a.>", "*.b", ">"):
        trie.matching(b"a.b")
        hot = trie.keep(b"a.b")
        assert hot.valid()
        added = trie.add(own.encode())
        assert not hot.valid(), own
        hot = trie.keep(b"a.b")
        assert hot.valid()
        added.remove()
        assert not hot.valid(), own
    assert trie.generation == generation + 8
    assert len(held) == 2


def test_inbox_churn_leaves_hot_subjects_in_the_cache() -> None:
    trie, _held = filled("orders.eu", "orders.*")
    trie.matching(b"orders.eu")
    for n in range(5000):
        inbox = b"_INBOX.%d" % n
        held = trie.add(inbox)
        trie.matching(inbox)
        trie.matching(b"orders.eu")
        held.remove()
    stats = trie.stats()
    assert stats["cache_hits"] == 5000
    assert stats["num_cache"] == 1


def test_pinned_members_stay_while_all_around_them_changes() -> None:
    trie = Sublist()
    held = [trie.add(b"a.*", b"", b"%d" % n) for n in range(500)]
    held += [trie.add(b"a.b", b"q", b"q%d" % n) for n in range(500)]
    kept = trie.keep(b"a.b")
    members = kept.members()
    trie.pins += 1
    for handle in held[:999]:
        handle.remove()
    for n in range(3000):
        trie.matching(b"a.%d" % n)
    assert not kept.valid()
    assert kept.members() == members
    trie.pins -= 1
    assert trie.matching(b"a.b") == ([], {b"q": [b"q499"]})


def test_the_cache_is_bounded_and_swept_and_keeps_what_is_used() -> None:
    trie, _held = filled(">")
    before = 0
    for n in range(10_000):
        trie.matching(b"hot")
        trie.matching(b"s.%d" % n)
        cached = trie.sizes()["cached"]
        assert cached in (before + 1, before + 2 if n == 0 else 1024)
        assert (cached == 1024) == (before in (1023, 4096))
        before = cached
    assert trie.stats()["cache_hits"] == 9999


def test_wide_results_are_bounded_by_their_members() -> None:
    trie = Sublist()
    held = [trie.add(b"a.*") for _ in range(3000)]
    for n in range(1000):
        trie.matching(b"a.%d" % n)
        assert trie.sizes()["cached_members"] <= 1 << 20
    assert trie.stats()["max_fanout"] == 3000
    assert len(held) == 3000


def test_without_a_cache_nothing_is_kept() -> None:
    trie, _held = filled("a.b", "a.*", cache=False)
    kept = trie.keep(b"a.b")
    assert not kept.valid()
    for _ in range(1000):
        assert sids(trie, "a.b") == {b"a.b", b"a.*"}
    assert trie.stats()["num_cache"] == trie.stats()["cache_hits"] == 0
    assert trie.stats()["num_matches"] == 1001


def test_the_cache_may_be_turned_off_while_results_are_kept() -> None:
    trie, _held = filled("a.b", "a.*")
    kept = trie.keep(b"a.b")
    trie.cache = False
    assert not kept.valid()
    assert not trie.keep(b"a.b").valid()
    assert trie.sizes()["cached"] == 0
    trie.cache = True
    assert trie.keep(b"a.b").valid()
    assert trie.cache


def test_the_figures_of_subsz() -> None:
    trie, held = filled("a", "a", "b", ">")
    trie.add(b"a", b"q").remove()
    for subject in (b"a", b"a", b"b", b"c"):
        trie.matching(subject)
    held.pop(2).remove()
    assert trie.stats() == {
        "num_subscriptions": 3,
        "num_cache": 2,
        "num_inserts": 5,
        "num_removes": 2,
        "num_matches": 4,
        "cache_hits": 1,
        "max_fanout": 3,
        "total_fanout": 4,
    }


def test_fanout_counts_a_queue_group_once() -> None:
    trie = Sublist()
    held = [trie.add(b"a", queue) for queue in (b"", b"q", b"q", b"r")]
    trie.matching(b"a")
    assert (trie.stats()["max_fanout"], len(held)) == (3, 4)


def test_nothing_is_left_when_all_is_gone() -> None:
    gc.collect()
    before = live_structures()
    trie, held = filled("a", "a", "a.*", "a.*.b.>", "*.x", "a.*.b.c")
    held += [trie.add(b"a", b"q"), trie.add(b"z.*", b"q"), trie.add(b"z.*", b"q")]
    for subject in (b"a", b"a.b", b"z.z"):
        trie.matching(subject)
    held.clear()
    assert live_structures() == before
    assert (trie.sizes()["nodes"], trie.sizes()["literals"]) == (0, 0)


def test_a_subscription_outlives_no_trie() -> None:
    before = live_structures()
    trie, held = filled("a", "a", "b.*", "b.*")
    del trie
    held.clear()
    assert live_structures() == before


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer pads")
def test_a_subscription_costs_little_memory() -> None:
    """Generous: a Python handle of about 80 bytes is in it."""
    count = 200_000
    trie = Sublist()
    before = resident_bytes()
    held = [trie.add(b"orders.%d.eu" % n, b"", b"%d" % n) for n in range(count)]
    each = (resident_bytes() - before) / count
    assert each < 600
    assert len(held) == len(trie) == count


def test_removal_among_many_equals_does_not_search() -> None:
    """A hundred thousand subscribers of one subject leave from the front."""
    trie = Sublist()
    held = [trie.add(b"same") for _ in range(100_000)]
    started = time.process_time()
    for handle in held:
        handle.remove()
    assert time.process_time() - started < 1.0
