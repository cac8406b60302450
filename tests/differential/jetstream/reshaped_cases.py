"""Publishes to streams that rename, copy or replace what they get: the fields of `publishes`."""

from __future__ import annotations

from collections.abc import Iterator

from tests.differential.jetstream.publishes import PLAIN, ROLLUP, TTL, Config, Publishes, Send, pub

SUBJECTS = ("s.a", "s.abcdef.b", "s.a.b.c.d", "s.x-y--z.b", "s.ä.öß", "s.*.>")
TRANSFORMS = (
    ("", "t.>"),
    ("s.>", "t.>"),
    ("s.*", "t.$1"),
    ("*.*.>", "{{wildcard(2)}}.$1.>"),
    ("s.*.*", "t.{{partition(7,1)}}.{{partition(5,2,1)}}.{{wildcard(2)}}"),
    ("s.a", "t.{{partition(9)}}"),
    ("*.*.*", "t.$3.$3.$0"),
    ("s.*.b", "t.{{splitFromLeft(1,2)}}.{{splitFromRight(1,2)}}"),
    ("s.*.b", "t.{{sliceFromLeft(1,2)}}.{{sliceFromRight(1,4)}}"),
    ("s.*.*", "t.{{split(1,-)}}.$2"),
    ("s.*.*", "t.{{left(1,1)}}.{{right(2,1)}}"),
    ("s.a.*.c.*", "t.$2.$1"),
)


def transform_cases() -> Iterator[Publishes]:
    for number, (source, target) in enumerate(TRANSFORMS):
        config: Config = {**ROLLUP, "subject_transform": {"src": source, "dest": target}}
        steps = [pub(to=subject) for subject in SUBJECTS]
        steps += [pub("Nats-Rollup: sub", to=subject) for subject in SUBJECTS[:3]]
        yield Publishes(f"transform-{number}", config, tuple(steps))
    renamed: Config = {**ROLLUP, "subject_transform": {"src": "s.*", "dest": "t.x"}}
    yield Publishes(
        "transform-expectations",
        {**renamed, "max_msgs_per_subject": 2},
        (
            pub("Nats-Expected-Last-Subject-Sequence: 0"),
            pub("Nats-Expected-Last-Subject-Sequence: 0", to="s.b"),
            pub("Nats-Expected-Last-Subject-Sequence: 1", "Nats-Msg-Id: 1", to="s.b"),
            pub("Nats-Msg-Id: 1"),
            pub(),
            pub("Nats-Rollup: all", to="s.c"),
        ),
    )
    longer: Config = {**PLAIN, "subject_transform": {"src": "s.*", "dest": "t" + ".$1" * 20}}
    yield Publishes("transform-longer", longer, (pub(to="s." + "x" * 200), pub(to="s.y")))


def republish_cases() -> Iterator[Publishes]:
    for number, (source, target) in enumerate(
        (
            ("", "_R.copy.>"),
            ("s.*", "_R.copy.$1.{{partition(3,1)}}"),
            ("s.*.b", "_R.copy.$1.{{left(1,2)}}"),
            ("*.>", "_R.copy.$1.>"),
        )
    ):
        for only in (False, True):
            config: Config = {
                **PLAIN,
                "republish": {"src": source, "dest": target, "headers_only": only},
            }
            copied = [1 + (number != 2), 1 + (number in (0, 2, 3)), 1 + (number in (0, 3))]
            steps = [
                Send(subject, b"x" * size, block, answers)
                for subject, answers in zip(SUBJECTS[:3], copied, strict=True)
                for size, block in ((0, b""), (9, b"NATS/1.0\r\nA: b\r\n\r\n"), (5000, b""))
            ]
            yield Publishes(f"republish-{number}-{only}", config, tuple(steps))
    yield from republish_meets_others()


def republish_meets_others() -> Iterator[Publishes]:
    copy = {"republish": {"src": ">", "dest": "_R.copy.>"}}
    renamed = {"subject_transform": {"src": "s.*", "dest": "t.$1"}}
    twice = Send("s.a", b"x", b"", 2)
    yield Publishes("republish-renamed", {**PLAIN, **copy, **renamed}, (twice, twice))
    yield Publishes("republish-no-ack", {**PLAIN, **copy, "no_ack": True}, (Send("s.a"),) * 2)
    rolled = Send("s.a", b"x", b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n", 2)
    yield Publishes("republish-rollup", {**ROLLUP, **copy}, (twice, twice, rolled, twice, rolled))
    lives = Send("s.a", b"x", b"NATS/1.0\r\nNats-TTL: 1h\r\n\r\n", 2)
    yield Publishes("republish-ttl", {**TTL, **copy}, (twice, lives, lives, lives))
    few: Config = {**PLAIN, **copy, "max_msgs": 2, "discard": "new"}
    yield Publishes("republish-refused", few, (twice, twice, pub(), pub()))
    same = Send("s.a", b"x", b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n")
    once = Send("s.a", b"x", same.headers, 2)
    yield Publishes("republish-duplicate", {**PLAIN, **copy}, (once, same, same))


def rollup_cases() -> Iterator[Publishes]:
    before = (pub(), pub(to="s.b"), pub(), pub(to="s.b"))
    sub, everything = "Nats-Rollup: sub", "nats-rollup: all"
    yield Publishes("rollup-again", ROLLUP, (*before, pub(sub), pub(sub), pub(sub, to="s.b")))
    yield Publishes("rollup-case", ROLLUP, (*before, pub("Nats-Rollup: SuB"), pub(everything)))
    yield Publishes("rollup-all", ROLLUP, (*before, pub("Nats-Rollup: ALL"), pub()))
    yield Publishes("rollup-first", ROLLUP, (pub(sub), pub("Nats-Rollup: all", to="s.b")))
    yield Publishes("rollup-wildcard", ROLLUP, (*before, pub(sub, to="s.*"), pub(sub, to="s.>")))
    denied: Config = {**PLAIN, "deny_purge": True}
    yield Publishes("rollup-denied", denied, (*before, pub(sub), pub("Nats-Rollup: all")))
    lives: Config = {**TTL, "allow_rollup_hdrs": True}
    yield Publishes("rollup-ttl", lives, (*before, *(pub(sub, "Nats-TTL: 1h"),) * 3))
    yield Publishes("rollup-twice", ROLLUP, (*before, pub(sub, "Nats-Rollup: all")))
    interest: Config = {**ROLLUP, "retention": "interest"}
    yield Publishes("rollup-unwanted", interest, (pub(), pub(sub), pub("Nats-Rollup: all")))
    for limit in ({"max_msgs": 3}, {"max_msgs_per_subject": 1}, {"max_bytes": 120}):
        for discard in ("old", "new"):
            config: Config = {**ROLLUP, **limit, "discard": discard}
            name = f"rollup-{next(iter(limit))}-{discard}"
            yield Publishes(name, config, (*before, pub(sub), pub(sub, payload=b"x" * 90), pub()))
    expected = pub(sub, "Nats-Expected-Last-Subject-Sequence: 3", "Nats-Msg-Id: 1")
    yield Publishes("rollup-expected", ROLLUP, (*before, expected, expected))


GROUPS = {
    "transform": transform_cases,
    "republish": republish_cases,
    "rollup": rollup_cases,
}
