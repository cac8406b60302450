"""The cases: every field of a configuration at its default, valid, at the edge, invalid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.differential.jetstream.play import Ask, Case, Publish

MS = 1_000_000
SECOND = 1_000 * MS
Config = dict[str, Any]


def config(name: str = "S", **more: Any) -> Config:
    """In memory unless said otherwise."""
    return {"name": name, "storage": "memory"} | more


def create(name: str = "S", **more: Any) -> Ask:
    return Ask(f"STREAM.CREATE.{name}", config(name, **more))


def update(name: str = "S", **more: Any) -> Ask:
    return Ask(f"STREAM.UPDATE.{name}", config(name, **more))


def info(name: str = "S", **body: Any) -> Ask:
    return Ask(f"STREAM.INFO.{name}", body or b"")


# key -> values to create a stream with, each alone
VALUES: dict[str, list[Any]] = {
    "description": ["", "words", "x" * 4096, "x" * 4097, "é" * 2048, "é" * 2049],
    "subjects": [
        [],
        ["a"],
        ["a", "b.*", "c.>"],
        ["a", "a"],
        ["a.*", "a.b"],
        ["a.>", "*.b"],
        [">"],
        ["*"],
        ["a..b"],
        ["a b"],
        [""],
        ["a."],
        [".a"],
        ["a.>.b"],
        ["$JS.API.x"],
        ["$JS.EVENT.>"],
        ["$JS.>"],
        ["$SYS.>"],
        ["$SYS.ACCOUNT.>"],
        ["$JSC.a"],
        ["$NRG.a"],
        ["$KV.b.>"],
        ["a*b"],
        ["a>"],
        ["é.ü"],
        ["*.*", "x"],
        None,
        ["a", ""],
    ],
    "retention": ["limits", "interest", "workqueue", "", "Limits"],
    "max_consumers": [-2, -1, 0, 1, 5],
    "max_msgs": [-2, -1, 0, 1, 2**63 - 1],
    "max_bytes": [-2, -1, 0, 1, 1024],
    "max_age": [-1, 0, 1, 99 * MS, 100 * MS, SECOND, 3600 * SECOND],
    "max_msgs_per_subject": [-2, -1, 0, 1, 100],
    "max_msg_size": [-2, -1, 0, 1, 2**31 - 1],
    "discard": ["old", "new", "NEW", "Old", "x"],
    "storage": ["x", "", "MEMORY", 1],
    "num_replicas": [-1, 0, 1, 2, 3, 5, 6],
    "no_ack": [True, False],
    "duplicate_window": [-1, 0, 1, 99 * MS, 100 * MS, SECOND, 120 * SECOND, 7200 * SECOND],
    "placement": [
        {},
        {"cluster": "c"},
        {"tags": ["a"]},
        {"tags": []},
        {"preferred": "x"},
        None,
        {"cluster": "", "tags": None},
    ],
    "compression": ["none", "s2", "S2", ""],
    "first_seq": [0, 1, 10, 2**64 - 1, 2**64],
    "subject_transform": [
        {},
        None,
        {"src": "S", "dest": "x"},
        {"src": "", "dest": "x.>"},
        {"src": ">", "dest": "x"},
        {"src": "a..b", "dest": "x"},
        {"src": "*", "dest": "x.$1"},
        {"src": "*", "dest": "x.$2"},
        {"src": "a.*", "dest": "b.{{wildcard(1)}}"},
        {"src": "a.*", "dest": "b.{{Wildcard(2)}}"},
        {"src": "a.*", "dest": "b.{{unknown(1)}}"},
        {"src": "a.*", "dest": "b.{{wildcard()}}"},
        {"src": "a.*", "dest": "b.{{wildcard(1,2)}}"},
        {"src": "a.*", "dest": "b.{{wildcard(x)}}"},
        {"src": "a.*", "dest": "b.{{partition(3,1)}}"},
        {"src": "a.*", "dest": "b.{{split(1)}}"},
        {"src": "a.*", "dest": "b.{{split(1,-)}}"},
        {"src": "a.*", "dest": "b.{{split(1,-,2)}}"},
        {"src": "a.*", "dest": "b.{{split(1, .)}}"},
        {"src": "a.*", "dest": "b.{{left(1,2)}}"},
        {"src": "a.*", "dest": "b.{{right(1,2)}}"},
        {"src": "a.*", "dest": "b.{{random(5)}}"},
        {"src": "a.*", "dest": "b.{{splitFromLeft(1,2)}}"},
        {"src": "a.*", "dest": "b..c"},
        {"src": "a.*", "dest": "b.{{SliceFromRight(1,2)}}"},
        {"src": "a.*", "dest": "b.*"},
        {"src": "a.*", "dest": "b.{{slicefromleft(1)}}"},
        {"src": "a.>", "dest": "b.>"},
        {"src": "a.*", "dest": "b.{{partition(x,1)}}"},
        {"src": "a.*", "dest": "b c"},
        {"src": "a.*", "dest": "b.{{partition(3,5)}}"},
        {"src": "a", "dest": "{{wildcard(1)}}"},
        {"src": "a", "dest": "{{partition(4)}}"},
        {"src": "a", "dest": ">.b"},
        {"src": "a.*", "dest": "b.{{partition(2147483648,1)}}"},
        {"src": "a", "dest": "$SYS.x"},
        {"src": "a.*.*", "dest": "b.$2.$1"},
        {"src": "a.*", "dest": "b.$0"},
        {"src": "a.*", "dest": "b.{{ wildcard( 1 ) }}"},
        {"src": "a.*", "dest": "b.{{}}"},
        {"src": "a.*", "dest": "b.{{random(1,2)}}"},
        {"src": "a.*", "dest": "b.{{wildcard(1}}"},
    ],
    "republish": [
        {},
        None,
        {"dest": "r.>"},
        {"src": "S", "dest": "r"},
        {"src": ">", "dest": "r.>"},
        {"src": "S", "dest": "S"},
        {"src": "*", "dest": "r.$1"},
        {"src": "*", "dest": "r.$2"},
        {"src": ">", "dest": ">"},
        {"src": "S", "dest": "r", "headers_only": True},
        {"src": "S"},
        {"src": "a b", "dest": "r"},
        {"src": ">", "dest": "r"},
    ],
    "allow_direct": [True],
    "mirror_direct": [True],
    "discard_new_per_subject": [True],
    "sealed": [True],
    "deny_delete": [True],
    "deny_purge": [True],
    "allow_rollup_hdrs": [True],
    "consumer_limits": [
        {},
        {"inactive_threshold": SECOND},
        {"max_ack_pending": 5},
        {"inactive_threshold": -1},
        {"max_ack_pending": -1},
        None,
    ],
    "allow_msg_ttl": [True],
    "subject_delete_marker_ttl": [-1, 0, 1, SECOND - 1, SECOND, 60 * SECOND],
    "allow_msg_counter": [True],
    "allow_atomic": [True],
    "allow_msg_schedules": [True],
    "persist_mode": ["", "default", "async", "Async"],
    "allow_batched": [True],
    "metadata": [
        {},
        None,
        {"a": "b"},
        {"a": ""},
        {"_nats.level": "9", "_nats.ver": "x", "x": "y"},
        {"_nats.req.level": "7"},
        {"k": "x" * (128 * 1024)},
        {"k": "x" * (128 * 1024 + 1)},
        {"a": None},
        {"z": "1", "a": "2"},
    ],
    "pedantic": [True, False],
    "template_owner": ["x"],
}

# Several keys at once.
TOGETHER: dict[str, Config] = {
    "capture all without acks": {"subjects": [">"], "no_ack": True},
    "capture all with replicas": {"subjects": [">"], "no_ack": True, "num_replicas": 3},
    "api without acks": {"subjects": ["$JS.API.>"], "no_ack": True},
    "discard per subject": {
        "discard": "new",
        "discard_new_per_subject": True,
        "max_msgs_per_subject": 1,
    },
    "discard per subject, no cap": {"discard": "new", "discard_new_per_subject": True},
    "discard per subject, old": {"discard_new_per_subject": True, "max_msgs_per_subject": 1},
    "window of a short age": {"max_age": SECOND},
    "window beyond age": {"max_age": SECOND, "duplicate_window": 2 * SECOND},
    "window equal to age": {"max_age": SECOND, "duplicate_window": SECOND},
    "rollup with deny_purge": {"allow_rollup_hdrs": True, "deny_purge": True},
    "markers clear deny_purge": {"subject_delete_marker_ttl": SECOND, "deny_purge": True},
    "markers with ttl": {"subject_delete_marker_ttl": SECOND, "allow_msg_ttl": True},
    "counter, discard new": {"allow_msg_counter": True, "discard": "new"},
    "counter, ttl": {"allow_msg_counter": True, "allow_msg_ttl": True},
    "counter, schedules": {"allow_msg_counter": True, "allow_msg_schedules": True},
    "counter, interest": {"allow_msg_counter": True, "retention": "interest"},
    "counter, markers": {"allow_msg_counter": True, "subject_delete_marker_ttl": SECOND},
    "schedules, discard new": {"allow_msg_schedules": True, "discard": "new"},
    "schedules with deny_purge": {"allow_msg_schedules": True, "deny_purge": True},
    "everything that needs levels": {"allow_atomic": True, "allow_batched": True},
    "async in memory": {"persist_mode": "async"},
    "transform and republish": {
        "subjects": ["a.*"],
        "subject_transform": {"src": "a.*", "dest": "b.$1"},
        "republish": {"src": ">", "dest": ">"},
    },
    "republish to itself": {"subjects": ["a.>"], "republish": {"src": "a.>", "dest": "a.b.>"}},
    "pedantic max_msgs": {"pedantic": True, "max_msgs": -5},
    "pedantic max_bytes": {"pedantic": True, "max_bytes": -5},
    "pedantic max_msg_size": {"pedantic": True, "max_msg_size": -5},
    "pedantic max_consumers": {"pedantic": True, "max_consumers": -5},
    "pedantic per subject": {"pedantic": True, "max_msgs_per_subject": -5},
    "pedantic window": {"pedantic": True, "max_age": SECOND},
    "pedantic markers": {"pedantic": True, "subject_delete_marker_ttl": SECOND},
    "pedantic markers, ttl": {
        "pedantic": True,
        "subject_delete_marker_ttl": SECOND,
        "allow_msg_ttl": True,
    },
    "pedantic schedules": {"pedantic": True, "allow_msg_schedules": True},
    "pedantic republish": {"pedantic": True, "republish": {"dest": "r.>"}},
    "mirror": {"mirror": {"name": "O"}},
    "mirror of itself": {"mirror": {"name": "S"}},
    "mirror with direct": {"mirror": {"name": "O"}, "mirror_direct": True},
    "mirror, subjects": {"mirror": {"name": "O"}, "subjects": ["a"]},
    "mirror, sources": {"mirror": {"name": "O"}, "sources": [{"name": "P"}]},
    "mirror, first_seq": {"mirror": {"name": "O"}, "first_seq": 2},
    "mirror, counter": {"mirror": {"name": "O"}, "allow_msg_counter": True},
    "mirror, atomic": {"mirror": {"name": "O"}, "allow_atomic": True},
    "mirror, batched": {"mirror": {"name": "O"}, "allow_batched": True},
    "mirror, schedules": {"mirror": {"name": "O"}, "allow_msg_schedules": True},
    "mirror, markers": {"mirror": {"name": "O"}, "subject_delete_marker_ttl": SECOND},
    "mirror, window": {"mirror": {"name": "O"}, "duplicate_window": SECOND},
    "mirror, bad name": {"mirror": {"name": "a.b"}},
    "mirror, no name": {"mirror": {}},
    "mirror, filter": {"mirror": {"name": "O", "filter_subject": "a.*"}},
    "mirror, bad filter": {"mirror": {"name": "O", "filter_subject": "a..b"}},
    "mirror, transforms": {
        "mirror": {"name": "O", "subject_transforms": [{"src": "a.*", "dest": "b.$1"}]},
    },
    "mirror, filter and transforms": {
        "mirror": {"name": "O", "filter_subject": "a", "subject_transforms": [{"src": "a"}]},
    },
    "mirror, bad transform source": {
        "mirror": {"name": "O", "subject_transforms": [{"src": "a..b", "dest": "x"}]},
    },
    "mirror, bad transform": {
        "mirror": {"name": "O", "subject_transforms": [{"src": "a.*", "dest": "{{x(1)}}"}]},
    },
    "mirror, overlapping transforms": {
        "mirror": {
            "name": "O",
            "subject_transforms": [{"src": "a.*", "dest": "x.$1"}, {"src": "*.b", "dest": "y.$1"}],
        },
    },
    "mirror, start": {"mirror": {"name": "O", "opt_start_seq": 7}},
    "mirror, start time": {"mirror": {"name": "O", "opt_start_time": "2024-01-02T03:04:05.120Z"}},
    "mirror, start time in a zone": {
        "mirror": {"name": "O", "opt_start_time": "2024-01-02T03:04:05+02:00"},
    },
    "mirror, consumer": {
        "mirror": {"name": "O", "consumer": {"name": "c", "deliver_subject": "d"}}
    },
    "mirror, consumer with filter": {
        "mirror": {
            "name": "O",
            "filter_subject": "a",
            "consumer": {"name": "c", "deliver_subject": "d"},
        },
    },
    "mirror, consumer without name": {
        "mirror": {"name": "O", "consumer": {"deliver_subject": "d"}}
    },
    "mirror, consumer to a wildcard": {
        "mirror": {"name": "O", "consumer": {"name": "c", "deliver_subject": "d.*"}},
    },
    "mirror, external": {"mirror": {"name": "O", "external": {"api": "$JS.x.API", "deliver": "d"}}},
    "mirror, external api in use": {"mirror": {"name": "O", "external": {"api": "$JS.API"}}},
    "mirror, external api wild": {"mirror": {"name": "O", "external": {"api": "a.*"}}},
    "mirror, external deliver wild": {
        "mirror": {"name": "O", "external": {"api": "a", "deliver": "d.*"}},
    },
    "mirror, external empty": {"mirror": {"name": "O", "external": {}}},
    "pedantic mirror": {"pedantic": True, "mirror": {"name": "O"}},
    "sources": {"sources": [{"name": "O"}]},
    "sources and subjects": {"sources": [{"name": "O"}], "subjects": ["a"]},
    "source of itself": {"sources": [{"name": "S"}]},
    "source of itself, apart": {
        "sources": [{"name": "S", "filter_subject": "x"}],
        "subjects": ["a"],
    },
    "sources twice": {"sources": [{"name": "O"}, {"name": "O"}]},
    "sources with filters": {
        "sources": [{"name": "O", "filter_subject": "a"}, {"name": "O", "filter_subject": "b"}],
    },
    "source, bad name": {"sources": [{"name": "a*"}]},
    "source, null": {"sources": [None]},
    "source, filter and transforms": {
        "sources": [{"name": "O", "filter_subject": "a", "subject_transforms": [{"src": "a"}]}],
    },
    "source, bad filter": {"sources": [{"name": "O", "filter_subject": "a b"}]},
    "source, bad transform source": {
        "sources": [{"name": "O", "subject_transforms": [{"src": ".a", "dest": "b"}]}],
    },
    "source, bad transform": {
        "sources": [{"name": "O", "subject_transforms": [{"src": "a", "dest": "b.$1"}]}],
    },
    "source, overlapping transforms": {
        "sources": [
            {"name": "O", "subject_transforms": [{"src": "a.b", "dest": "x"}, {"src": "a.*"}]},
        ],
    },
    "source, consumer": {
        "sources": [{"name": "O", "consumer": {"name": "c", "deliver_subject": "d"}}],
    },
    "source, consumer twice": {
        "sources": [
            {"name": "O", "consumer": {"name": "c", "deliver_subject": "d"}},
            {"name": "O", "consumer": {"name": "c", "deliver_subject": "e"}},
        ],
    },
    "source, consumer and start": {
        "sources": [
            {"name": "O", "opt_start_seq": 1, "consumer": {"name": "c", "deliver_subject": "d"}},
        ],
    },
    "source, external": {"sources": [{"name": "O", "external": {"api": "x.API", "deliver": ""}}]},
    "source, schedules": {"sources": [{"name": "O"}], "allow_msg_schedules": True},
    "source, counter": {"sources": [{"name": "O"}], "allow_msg_counter": True},
}

NAMES = [
    "A",
    "a-b_c",
    "x" * 255,
    "x" * 256,
    "é",
    "a/b",
    "a\\b",
    "a$b",
    "{}",
]

# What a stream is made with, and what it is changed to.
UPDATES: dict[str, tuple[Config, Config]] = {
    "nothing": ({}, {}),
    "description": ({}, {"description": "x"}),
    "subjects": ({"subjects": ["a"]}, {"subjects": ["a", "b"]}),
    "subjects to the name": ({"subjects": ["a"]}, {}),
    "storage": ({}, {"storage": "file"}),
    "to interest": ({}, {"retention": "interest"}),
    "from interest": ({"retention": "interest"}, {}),
    "to workqueue": ({}, {"retention": "workqueue"}),
    "from workqueue": ({"retention": "workqueue"}, {}),
    "max_consumers": ({"max_consumers": 1}, {"max_consumers": 2}),
    "max_msgs": ({"max_msgs": 5}, {"max_msgs": 2}),
    "max_bytes": ({"max_bytes": 500}, {"max_bytes": 200}),
    "max_age": ({}, {"max_age": SECOND}),
    "max_age with window": ({}, {"max_age": SECOND, "duplicate_window": 120 * SECOND}),
    "discard": ({}, {"discard": "new"}),
    "replicas": ({}, {"num_replicas": 3}),
    "compression": ({}, {"compression": "s2"}),
    "window": ({}, {"duplicate_window": SECOND}),
    "seal": ({"max_age": SECOND}, {"max_age": SECOND, "sealed": True}),
    "seal with rollup": ({"allow_rollup_hdrs": True}, {"allow_rollup_hdrs": True, "sealed": True}),
    "deny_delete on": ({}, {"deny_delete": True}),
    "deny_delete off": ({"deny_delete": True}, {}),
    "deny_purge on": ({}, {"deny_purge": True}),
    "deny_purge off": ({"deny_purge": True}, {}),
    "rollup": ({}, {"allow_rollup_hdrs": True}),
    "ttl on": ({}, {"allow_msg_ttl": True}),
    "ttl off": ({"allow_msg_ttl": True}, {}),
    "markers on": ({}, {"subject_delete_marker_ttl": SECOND}),
    "markers off": ({"subject_delete_marker_ttl": SECOND}, {}),
    "markers off, ttl stays": ({"subject_delete_marker_ttl": SECOND}, {"allow_msg_ttl": True}),
    "counter on": ({}, {"allow_msg_counter": True}),
    "counter off": ({"allow_msg_counter": True}, {}),
    "atomic on": ({}, {"allow_atomic": True}),
    "atomic off": ({"allow_atomic": True}, {}),
    "batched on": ({}, {"allow_batched": True}),
    "schedules on": ({}, {"allow_msg_schedules": True}),
    "schedules off": ({"allow_msg_schedules": True}, {}),
    "persist mode": ({}, {"persist_mode": "async"}),
    "mirror added": ({}, {"mirror": {"name": "O"}}),
    "mirror removed": ({"mirror": {"name": "O"}}, {"subjects": ["a"]}),
    "mirror changed": ({"mirror": {"name": "O"}}, {"mirror": {"name": "P"}}),
    "mirror kept": ({"mirror": {"name": "O"}}, {"mirror": {"name": "O"}, "description": "x"}),
    "sources added": ({}, {"sources": [{"name": "O"}], "subjects": ["S"]}),
    "sources removed": ({"sources": [{"name": "O"}]}, {"subjects": ["a"]}),
    "transform": ({}, {"subject_transform": {"src": "S", "dest": "x"}}),
    "republish": ({}, {"republish": {"src": "S", "dest": "r"}}),
    "placement": ({}, {"placement": {"cluster": "c"}}),
    "metadata": ({"metadata": {"a": "b"}}, {"metadata": {"c": "d"}}),
    "metadata gone": ({"metadata": {"a": "b"}}, {}),
    "first_seq": ({}, {"first_seq": 5}),
    "allow_direct": ({}, {"allow_direct": True}),
    "mirror_direct": ({}, {"mirror_direct": True}),
    "consumer limits": ({}, {"consumer_limits": {"max_ack_pending": 5}}),
    "pedantic": ({}, {"max_msgs": -7, "pedantic": True}),
    "unknown key": ({}, {"x": 1}),
}

# Bodies that are no configuration, sent to STREAM.CREATE.A as they are.
BODIES: list[bytes] = [
    b"",
    b" ",
    b"{",
    b'{"name"',
    b'{"name":',
    b'{"name":"A"',
    b'{"name":"A",}',
    b"{name:1}",
    b"x",
    b"[1]",
    b'"s"',
    b"1",
    b"null",
    b'{"name":"A"} x',
    b'{"name":1}',
    b'{"max_msgs":"1"}',
    b'{"max_msgs":1.5}',
    b'{"max_msgs":1e2}',
    b'{"max_msgs":9223372036854775808}',
    b'{"max_msg_size":2147483648}',
    b'{"first_seq":-1}',
    b'{"foo":1}',
    b'{"mirror":{"foo":1}}',
    b'{"mirror":{"opt_start_seq":"x"}}',
    b'{"mirror":{"opt_start_time":"x"}}',
    b'{"mirror":{"opt_start_time":5}}',
    b'{"mirror":[]}',
    b'{"subjects":"x"}',
    b'{"subjects":[1]}',
    b'{"retention":"x"}',
    b'{"retention":1}',
    b'{"storage":"Memory"}',
    b'{"compression":"x"}',
    b'{"compression":1}',
    b'{"compression":null}',
    b'{"persist_mode":"x"}',
    b'{"no_ack":1}',
    b'{"metadata":{"a":1}}',
    b'{"metadata":[]}',
    b'{"max_age":"1s"}',
    b'{"sources":[{"name":1}]}',
    b'{"consumer_limits":{"max_ack_pending":"x"}}',
    b'{"subject_transform":{"src":1}}',
    b'{"sources":[{"subject_transforms":[{"src":1}]}]}',
    b'{"pedantic":1}',
    b'{"x":1,"y":2}',
    b'{"name":"A\x01"}',
    b'{"name":"A\\x"}',
    b'{"max_msgs":01}',
    b'{"max_msgs":-}',
    b'{"name":tru}',
    b'{"max_consumers":"x"}',
    b'{"num_replicas":1.0}',
    b'{"retention":null}',
    b'{"name":{}}',
    b'{"mirror":{"external":{"api":1}}}',
    b'{"mirror":{"consumer":{"name":1}}}',
    b'{"name":[]}',
    b'{"placement":{"tags":1}}',
    b'{"placement":1}',
    b'{"republish":{"headers_only":"x"}}',
    b'{"mirror":{"opt_start_time":"2020-01-01T00:00:00"}}',
    b"[" * 10001,
    b'{"a"1}',
    b'{"mirror":{"opt_start_time":"2020-13-01T00:00:00Z"}}',
    b'{"a":1 "b"}',
    b"[1 2]",
    b'{"mirror":{"opt_start_time":"2020-02-30T00:00:00Z"}}',
    b'{"a":nul}',
    b"-",
    b'{"max_msgs":1.}',
    b'{"mirror":{"opt_start_time":"2020-01-01T25:00:00Z"}}',
    b'{"max_msgs":1e}',
    b'{"sources":{}}',
    b'{"name":"\\u12x4"}',
    b'{"name":"\xff"}',
    b"}",
    b'{"max_msgs":true}',
    b'{"sources":[1]}',
    b'{"Name":"A","STORAGE":"memory"}',
    b'{"name":"A","maxmsgs":5}',
    b'{"name":"A","name":"B"}',
    b'{"name":"A","storage":"memory"}{"max_msgs":7}',
    b'{"name":"\\ud800"}',
    b'{"discard":" old"}',
    b'{"subjects":null,"name":"A","storage":"memory"}',
    b'{"name":null}',
    b'{"name":"A"',
    b'{"subjects":["a",null],"name":"A","storage":"memory"}',
    b'{"max_msgs":-0}',
    b'{"":1}',
    b'{"first_seq":18446744073709551616}',
    b'{"a":"\\',
    b'{"a":"\\u',
    b'{"a":1,"b"',
    b'{"a":1]',
    b"[}",
    b"\xef\xbb\xbf{}",
    b"tru",
    b"trux",
    b"nulL",
    b"1.e",
    b'{"x":0x1}',
    b'{"x":.5}',
    b'{"x":+1}',
]

STORED = [
    Publish("a.1", b"one"),
    Publish("a.2", b"two", b"NATS/1.0\r\nX: y\r\n\r\n"),
    Publish("a.1", b"three"),
    Publish("b", b""),
    Publish("a.3", b"\x00\xff" * 20),
]
FULL = create(subjects=["a.*", "b"])

GETS: list[Any] = [
    b"",
    {},
    {"seq": 1},
    {"seq": 2},
    {"seq": 2, "no_hdr": True},
    {"seq": 4},
    {"seq": 6},
    {"seq": 0},
    {"last_by_subj": "a.1"},
    {"last_by_subj": "a.*"},
    {"last_by_subj": ">"},
    {"last_by_subj": "z"},
    {"next_by_subj": "a.1"},
    {"next_by_subj": "a.1", "seq": 2},
    {"next_by_subj": "a.*", "seq": 4},
    {"next_by_subj": "a.*", "seq": 6},
    {"next_by_subj": ">"},
    {"next_by_subj": "b", "seq": 5},
    {"seq": 1, "last_by_subj": "b"},
    {"last_by_subj": "b", "next_by_subj": "b"},
    {"start_time": "2020-01-01T00:00:00Z"},
    {"start_time": "2100-01-01T00:00:00Z"},
    {"start_time": "2020-01-01T00:00:00Z", "next_by_subj": "b"},
    {"seq": 1, "batch": 2},
    {"start_time": "2020-01-01T00:00:00Z", "seq": 1},
    {"seq": 1, "max_bytes": 5},
    {"seq": -1},
    {"start_time": "2020-01-01T00:00:00Z", "last_by_subj": "b"},
    {"x": 1},
    {"seq": "1"},
    b"1",
    {"multi_last": ["a"]},
    {"start_time": "x"},
    {"seq": 1, "up_to_seq": 5},
    {"batch": -1, "seq": 1},
]
DELETES: list[Any] = [
    b"",
    {},
    {"seq": 1},
    {"seq": 1, "no_erase": True},
    {"seq": 3},
    {"seq": 5},
    {"seq": 9},
    {"seq": 0, "no_erase": True},
    {"x": 1},
    b"x",
    {"seq": 2.5},
]
PURGES: list[Any] = [
    b"",
    {},
    b"x",
    b"[]",
    b"[",
    {"seq": 1},
    {"seq": 3},
    {"seq": 5},
    {"seq": 6},
    {"seq": 100},
    {"keep": 1},
    {"keep": 2},
    {"keep": 9},
    {"keep": 0},
    {"seq": 2, "keep": 1},
    {"filter": "a.1"},
    {"filter": "a.*"},
    {"filter": ">"},
    {"filter": "z"},
    {"filter": "a.1", "keep": 1},
    {"filter": "a.*", "keep": 1},
    {"filter": "a.*", "seq": 3},
    {"filter": "", "seq": 3},
    {"x": 1},
    {"filter": "a.*", "seq": 1},
    {"filter": "b", "seq": 100},
    {"seq": -1},
    {"filter": 1},
]
INFOS: list[Any] = [
    b"",
    {},
    b"x",
    b"[]",
    b"[1]",
    {"deleted_details": True},
    {"subjects_filter": ">"},
    {"subjects_filter": "a.*"},
    {"subjects_filter": "z"},
    {"subjects_filter": "b", "offset": 1},
    {"subjects_filter": "a.*", "offset": 1},
    {"subjects_filter": ">", "offset": 99},
    {"offset": 5},
    {"offset": -5},
    {"x": 1},
    {"subjects_filter": 1},
    {"deleted_details": "x"},
]
MISSING = (
    "STREAM.INFO.X",
    "STREAM.UPDATE.X",
    "STREAM.DELETE.X",
    "STREAM.PURGE.X",
    "STREAM.MSG.GET.X",
    "STREAM.MSG.DELETE.X",
    "STREAM.SNAPSHOT.X",
    "STREAM.RESTORE.X",
    "STREAM.LEADER.STEPDOWN.X",
    "STREAM.PEER.REMOVE.X",
    "STREAM.PEER.EVACUATE.X",
    "STREAM.CANCEL_MOVE.X",
    "CONSUMER.NAMES.X",
    "CONSUMER.LIST.X",
    "CONSUMER.INFO.X.Y",
    "CONSUMER.DELETE.X.Y",
    "CONSUMER.PAUSE.X.Y",
    "CONSUMER.UNPIN.X.Y",
    "CONSUMER.LEADER.STEPDOWN.X.Y",
)
MISSING_BODIES: tuple[Any, ...] = (
    b"",
    {},
    {"x": 1},
    {"seq": 1},
    {"group": "g"},
    b"x",
    {"name": "X"},
)
LEVELS = (b"0", b"1", b"4", b"99", b"x", b"-1", b"", b"+2", b"1.0", b" 3")
OFFSETS: list[Any] = [
    b"",
    {},
    {"offset": 0},
    {"offset": 1},
    {"offset": 2},
    {"offset": 9},
    {"offset": -1},
    {"subject": "a"},
    {"subject": "a.b"},
    {"subject": ">"},
    {"subject": "*.x"},
    {"subject": "zz"},
    {"subject": 1},
    {"x": 1},
    b"[]",
    b"x",
    {"subject": "a.*", "offset": 1},
    {"offset": "1"},
]


def made(name: str, more: Config) -> Case:
    """Created and looked at; not where the looking itself would be stored."""
    hears_us = any(s in (">", "$JS.API.>", "$JS.EVENT.>") for s in more.get("subjects") or ())
    return Case(name, (create(**more),) if hears_us else (create(**more), info()))


def config_cases() -> Iterator[Case]:
    for key, values in VALUES.items():
        for at, value in enumerate(values):
            yield made(f"create {key} {at}", {key: value})
    for name, more in TOGETHER.items():
        yield made(f"create {name}", more)
    for at, name in enumerate(NAMES):
        yield Case(f"create name {at}", (create(name), info(name)))
    for name, (before, after) in UPDATES.items():
        yield Case(f"update {name}", (create(**before), update(**after), info()))


def body_cases() -> Iterator[Case]:
    for at, body in enumerate(BODIES):
        yield Case(f"body {at}", (Ask("STREAM.CREATE.A", body),))


def plain_cases() -> Iterator[Case]:
    """Requests that need no stored message."""
    for subject in MISSING:
        for at, body in enumerate(MISSING_BODIES):
            yield Case(f"missing {subject} {at}", (Ask(subject, body),))
    for level in LEVELS:
        header = b"NATS/1.0\r\nNats-Required-Api-Level: " + level + b"\r\n\r\n"
        for subject in ("INFO", "STREAM.NAMES", "STREAM.INFO.X", "STREAM.LEADER.STEPDOWN.X"):
            yield Case(f"level {level!r} {subject}", (Ask(subject, b"", header),))
    yield Case("create twice", (create(subjects=["a"]), create(subjects=["a"])))
    yield Case("create another", (create(subjects=["a"]), create(subjects=["b"])))
    yield Case("create with defaults written out", (create(), create(max_msgs=-1, discard="old")))
    yield Case("create overlapping", (create(subjects=["a.>"]), create("T", subjects=["a.b"])))
    yield Case(
        "update overlapping", (create(subjects=["a"]), create("T"), update("T", subjects=["a"]))
    )
    yield Case("create under another name", (Ask("STREAM.CREATE.A", config("B")),))
    yield Case("update under another name", (create(), Ask("STREAM.UPDATE.S", config("B"))))
    yield Case("update a missing one", (update(),))
    yield Case("cycle", (create(sources=[{"name": "T"}]), create("T", sources=[{"name": "S"}])))
    yield Case("cycle by mirror", (create(mirror={"name": "T"}), create("T", mirror={"name": "S"})))
    yield Case(
        "mirror inherits direct", (create("O", allow_direct=True), create(mirror={"name": "O"}))
    )
    yield Case(
        "pedantic mirror, direct origin",
        (create("O", allow_direct=True), create(mirror={"name": "O"}, pedantic=True)),
    )
    yield Case(
        "mirror, smaller messages",
        (create("O", max_msg_size=9), create(mirror={"name": "O"}, max_msg_size=5)),
    )
    yield Case(
        "source, smaller messages",
        (create("O", max_msg_size=9), create(sources=[{"name": "O"}], max_msg_size=5)),
    )
    yield Case(
        "external deliver overlaps",
        (
            create("O", subjects=["*.a"]),
            create(
                sources=[{"name": "O"}, {"name": "P", "external": {"api": "x", "deliver": "d"}}]
            ),
        ),
    )
    for at, body in enumerate((b"", {}, {"x": 1}, b"x", b" {} ", b"[]", b"null")):
        yield Case(f"delete {at}", (create(), Ask("STREAM.DELETE.S", body), Ask("STREAM.NAMES")))
    three = (create("B", subjects=["a.b"]), create("A", subjects=["a.x"]), create("C"))
    for at, body in enumerate(OFFSETS):
        yield Case(f"names {at}", (*three, Ask("STREAM.NAMES", body)))
        yield Case(f"list {at}", (*three, Ask("STREAM.LIST", body)))
    for subject in ("NAMES", "LIST"):
        for at, body in enumerate((b"", {"offset": 3}, {"x": 1}, b"x")):
            yield Case(f"consumer {subject} {at}", (create(), Ask(f"CONSUMER.{subject}.S", body)))
    for at, body in enumerate((b"", {}, {"x": 1})):
        for verb in ("INFO", "DELETE", "PAUSE", "UNPIN"):
            yield Case(f"consumer {verb} {at}", (create(), Ask(f"CONSUMER.{verb}.S.C", body)))
    yield Case("unpin with a group", (create(), Ask("CONSUMER.UNPIN.S.C", {"group": "g"})))


def on_file(case: Case) -> Case:
    """The same with streams on disk."""
    steps = (
        replace(step, body={**step.body, "storage": "file"})
        if isinstance(step, Ask) and isinstance(step.body, dict) and "storage" in step.body
        else step
        for step in case.steps
    )
    return Case(f"{case.name}, on file", tuple(steps))


# What the kind of storage may matter to.
FILE_KEYS = ("compression", "persist_mode", "first_seq", "max_bytes", "max_msgs", "max_age")


def file_cases() -> Iterator[Case]:
    for case in stored_cases():
        yield on_file(case)
    for key in FILE_KEYS:
        for at, value in enumerate(VALUES[key]):
            yield on_file(made(f"create {key} {at}", {key: value}))
    for name, (before, after) in UPDATES.items():
        yield on_file(Case(f"update {name}", (create(**before), update(**after), info())))
    for name in ("async in memory", "everything that needs levels", "mirror", "sources"):
        yield on_file(made(f"create {name}", TOGETHER[name]))
    default = Ask("STREAM.CREATE.S", {"name": "S"})
    yield Case("storage is file by default", (default, create(), default))
    for more in ({"allow_atomic": True}, {"num_replicas": 3}, {"compression": "s2"}):
        asked = config(storage="file", persist_mode="async", **more)
        yield Case(f"async {more}", (Ask("STREAM.CREATE.S", asked), info()))


def stored_cases() -> Iterator[Case]:
    """Requests about messages."""
    filled = (FULL, *STORED)
    holes = (Ask("STREAM.MSG.DELETE.S", {"seq": 2}), Ask("STREAM.MSG.DELETE.S", {"seq": 4}))
    for at, body in enumerate(GETS):
        yield Case(f"get {at}", (*filled, Ask("STREAM.MSG.GET.S", body)))
        yield Case(f"get {at} of an empty stream", (FULL, Ask("STREAM.MSG.GET.S", body)))
    for at, body in enumerate(DELETES):
        details = info(deleted_details=True)
        yield Case(f"delete message {at}", (*filled, Ask("STREAM.MSG.DELETE.S", body), details))
    for at, body in enumerate(PURGES):
        yield Case(f"purge {at}", (*filled, Ask("STREAM.PURGE.S", body), info()))
        yield Case(f"purge {at} with holes", (*filled, *holes, Ask("STREAM.PURGE.S", body), info()))
    for at, body in enumerate(INFOS):
        yield Case(f"info {at}", (*filled, *holes, Ask("STREAM.INFO.S", body)))
    yield Case("purged, then stored", (*filled, Ask("STREAM.PURGE.S"), STORED[0], info()))
    yield Case("first_seq is used", (create(first_seq=100, subjects=["a.1"]), STORED[0], info()))
    sealed = update(subjects=["a.*", "b"], sealed=True)
    for verb, body in (("PURGE", b""), ("MSG.DELETE", {"seq": 1}), ("MSG.GET", {"seq": 1})):
        yield Case(f"sealed {verb}", (*filled, sealed, Ask(f"STREAM.{verb}.S", body)))
    for flag, verb, body in (
        ("deny_purge", "PURGE", b""),
        ("deny_delete", "MSG.DELETE", {"seq": 1}),
    ):
        denied = create(subjects=["a.*", "b"], **{flag: True})
        yield Case(flag, (denied, *STORED, Ask(f"STREAM.{verb}.S", body)))
    for key, value in (("max_msgs", 2), ("max_bytes", 60), ("max_msgs_per_subject", 1)):
        tight = update(subjects=["a.*", "b"], **{key: value})
        yield Case(f"tightened {key}", (*filled, tight, info(deleted_details=True)))
    yield Case("list with messages", (*filled, Ask("STREAM.LIST")))
    yield Case("account use", (*filled, create("T", max_bytes=1000), Ask("INFO")))
