"""Subject transforms: what each function makes of a subject."""

from __future__ import annotations

import pytest

from server.core.transform import SubjectTransform, TransformError

MAPPED = [
    ("foo", "bar", "foo", "bar"),
    ("foo", "bar", "baz", None),
    ("*.b", "x.$1", "a.b", "x.a"),
    ("*.*", "$2.{{wildcard(1)}}", "a.b", "b.a"),
    ("a.>", "b.>", "a.c.d", "b.c.d"),
    ("a.*.>", "b.$1.>", "a.c.d.e", "b.c.d.e"),
    ("", "x.>", "a.b", "x.a.b"),
    ("*", "{{splitFromLeft(1,2)}}", "abcd", "ab.cd"),
    ("*", "{{SplitFromRight(1,1)}}", "abcd", "abc.d"),
    ("*", "{{sliceFromLeft(1,2)}}", "abcde", "ab.cd.e"),
    ("*", "{{sliceFromRight(1,2)}}", "abcde", "a.bc.de"),
    ("*", "{{split(1,-)}}", "-a--b-", "a.b"),
    ("*", "{{left(1,2)}}", "abc", "ab"),
    ("*", "{{right(1,2)}}", "abc", "bc"),
    ("*", "{{left(1,9)}}", "abc", "abc"),
    ("*", "$SYS.$1", "a", "$SYS.a"),
    (">", "x.{{random(7)}}.>", "a", "x.6.a"),
]


@pytest.mark.feature("4-050", "4-052", "4-055")
@pytest.mark.parametrize(("source", "target", "subject", "expected"), MAPPED)
def test_apply(source: str, target: str, subject: str, expected: str | None) -> None:
    transform = SubjectTransform(source, target, random_below=lambda bound: bound - 1)
    assert transform.apply(subject) == expected


@pytest.mark.feature("4-051")
def test_partitions_are_fnv_1a_of_the_tokens() -> None:
    # FNV-1a 32 of "a" is 0xE40C292C, of "foobar" 0xBF9CF968 (its published test vectors).
    assert SubjectTransform("*", "{{partition(1000,1)}}").apply("a") == str(0xE40C292C % 1000)
    both = SubjectTransform("*.*", "{{partition(1000,1,2)}}")
    assert both.apply("foo.bar") == str(0xBF9CF968 % 1000)


@pytest.mark.feature("4-054")
def test_imports_may_only_use_wildcards_and_all_of_them() -> None:
    with pytest.raises(TransformError, match="only mapping function allowed"):
        SubjectTransform("*", "{{left(1,1)}}", strict=True)
    with pytest.raises(TransformError, match="not using all"):
        SubjectTransform("*.*", "a.$1", strict=True)
