"""Consumers: every field of a configuration at its default, valid, at the edge, invalid; updates,
names, pauses, resets, lists and removals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.differential.jetstream.cases import MS, SECOND, create
from tests.differential.jetstream.play import Ask, Case, Publish

Config = dict[str, Any]
STREAM = create(subjects=["a.>"])
WORK_QUEUE = create(subjects=["a.>"], retention="workqueue")
INTEREST = create(subjects=["a.>"], retention="interest")
FILLED = (
    STREAM,
    *(Publish(f"a.{number % 3}", b"%d" % number) for number in range(9)),
    Publish("a.0.b", b"x"),
)
LIST = Ask("CONSUMER.LIST.S")
NAMES = Ask("CONSUMER.NAMES.S")
STREAM_INFO = Ask("STREAM.INFO.S")
PAST, FUTURE = "2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z"


def consumer(name: str = "C", *, action: Any = None, pedantic: bool = False, **more: Any) -> Ask:
    """A named one, made through the newest form."""
    body: dict[str, Any] = {"stream_name": "S", "config": more}
    if action is not None:
        body["action"] = action
    if pedantic:
        body["pedantic"] = True
    return Ask(f"CONSUMER.CREATE.S.{name}", body)


def durable(name: str = "C", **more: Any) -> Ask:
    return consumer(name, durable_name=name, **more)


def push(name: str = "C", **more: Any) -> Ask:
    return consumer(name, **({"deliver_subject": "to"} | more))


def info(name: str = "C", body: Any = b"") -> Ask:
    return Ask(f"CONSUMER.INFO.S.{name}", body)


def delete(name: str = "C", body: Any = b"") -> Ask:
    return Ask(f"CONSUMER.DELETE.S.{name}", body)


def pause(until: Any = FUTURE, name: str = "C") -> Ask:
    return Ask(f"CONSUMER.PAUSE.S.{name}", {"pause_until": until})


def reset(body: Any = b"", name: str = "C") -> Ask:
    return Ask(f"CONSUMER.RESET.S.{name}", body)


# key -> values to make a pull consumer with, each alone
PULL: dict[str, list[Any]] = {
    "description": ["words", "x" * 4096, "x" * 4097, "é" * 2049],
    "deliver_policy": ["all", "last", "new", "undefined", "last_per_subject", "by_start_time", "x"],
    "opt_start_seq": [0, 1, -1, 2**64 - 1, 2**64],
    "opt_start_time": [PAST, "x", None],
    "ack_policy": ["none", "all", "explicit", "flow_control", "x", 1],
    "ack_wait": [0, 1, SECOND, -1, "x"],
    "max_deliver": [0, -1, -2, 1, 7],
    "backoff": [[], [1], [SECOND, 2 * SECOND], [-1], [1, -1], None, ["x"], [1, None], 1],
    "filter_subject": ["", "a.b", "a.>", ">", "zz", "a..b", "a b", "a.>.b"],
    "filter_subjects": [
        [],
        ["a.b"],
        ["a.b", "a.c"],
        ["a.b", "a.*"],
        ["a.*", "a.b"],
        ["a.b", "a.b"],
        ["a.*.c", "a.b.*"],
        [""],
        ["a.b", ""],
        ["a..b"],
        ["zz", "a.b"],
        None,
    ],
    "replay_policy": ["instant", "original", "x"],
    "rate_limit_bps": [0, 1, -1],
    "sample_freq": ["30", "30%", "0", "100%", "200", "x", "-1", "+3", "%", "3.5", "9" * 20, " 3"],
    "max_waiting": [0, 1, -1, 100_000],
    "max_ack_pending": [0, 1, -1, -2, 100_000],
    "flow_control": [True],
    "headers_only": [True, False],
    "max_batch": [0, 1, -1],
    "max_expires": [0, 1, MS - 1, MS, -1],
    "max_bytes": [0, 1, -1],
    "deliver_group": ["g"],
    "idle_heartbeat": [-1, 1, SECOND],
    "inactive_threshold": [0, 1, 60 * SECOND, -1],
    "num_replicas": [0, 1, 2, -1],
    "mem_storage": [True],
    "direct": [True],
    "sourcing": [False],
    "metadata": [
        {},
        {"k": "v"},
        {"_nats.ver": "x", "_nats.level": "9", "_nats.req.level": "9"},
        {"k": "v" * 131071},
        {"k": "v" * 131072},
        None,
    ],
    "pause_until": [PAST, FUTURE, "2100-01-01T00:00:00+02:00", "0001-01-01T00:00:00Z", None],
    "priority_groups": [[], ["a"], None],
    "priority_policy": ["none", "overflow", "pinned_client", "prioritized", "x", None, 1],
    "priority_timeout": [0, 1, -1],
    "unknown": [1],
}

# key -> values to make a push consumer with, each alone
PUSH: dict[str, list[Any]] = {
    "deliver_subject": ["to", "to.*", ">", "to..x", ".to", "t o", "a.b", "a", "a.b.c", "x.a.b"],
    "deliver_group": ["g", ""],
    "max_waiting": [0, 1, -1],
    "max_ack_pending": [0, 1, -1],
    "ack_policy": ["none", "all", "explicit", "flow_control"],
    "flow_control": [True],
    "idle_heartbeat": [0, 1, 100 * MS - 1, 100 * MS, -1],
    "rate_limit_bps": [1, 2**63],
    "priority_policy": ["overflow"],
    "max_batch": [3, -3],
    "max_expires": [1],
    "inactive_threshold": [SECOND],
    "direct": [False],
}

TOGETHER: dict[str, Config] = {
    "start seq": {"deliver_policy": "by_start_sequence", "opt_start_seq": 5},
    "start seq missing": {"deliver_policy": "by_start_sequence"},
    "start seq with time": {
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": 5,
        "opt_start_time": PAST,
    },
    "start time": {"deliver_policy": "by_start_time", "opt_start_time": PAST},
    "start time ahead": {"deliver_policy": "by_start_time", "opt_start_time": FUTURE},
    "start time with seq": {
        "deliver_policy": "by_start_time",
        "opt_start_time": PAST,
        "opt_start_seq": 5,
    },
    "both filters": {"filter_subject": "a.b", "filter_subjects": ["a.c"]},
    "explicit": {"ack_policy": "explicit", "ack_wait": SECOND},
    "explicit pending 0": {"ack_policy": "explicit", "max_ack_pending": 0},
    "all pending -1": {"ack_policy": "all", "max_ack_pending": -1},
    "backoff too long": {"backoff": [1, 2, 3], "max_deliver": 2},
    "backoff as long": {"backoff": [1, 2, 3], "max_deliver": 3},
    "backoff over wait": {"ack_policy": "explicit", "ack_wait": SECOND, "backoff": [2 * SECOND]},
    "push fc": {"deliver_subject": "to", "flow_control": True, "idle_heartbeat": SECOND},
    "push none pending": {"deliver_subject": "to", "max_ack_pending": 5, "ack_policy": "none"},
    "push explicit": {"deliver_subject": "to", "max_ack_pending": 5, "ack_policy": "explicit"},
    "direct durable": {"durable_name": "C", "direct": True, "deliver_subject": "to"},
    "durable other": {"durable_name": "D"},
    "name other": {"name": "D"},
    "push durable group": {"deliver_subject": "to", "deliver_group": "g", "durable_name": "C"},
    "fc acks wait": {"deliver_subject": "to", "ack_policy": "flow_control", "ack_wait": 1},
    "fc acks backoff": {"deliver_subject": "to", "ack_policy": "flow_control", "backoff": [1]},
    "fc acks deliver": {"deliver_subject": "to", "ack_policy": "flow_control", "max_deliver": 1},
    "fc acks pending": {
        "deliver_subject": "to",
        "ack_policy": "flow_control",
        "max_ack_pending": -1,
    },
    "ordered": {
        "deliver_subject": "to",
        "ack_policy": "none",
        "max_deliver": 1,
        "ack_wait": 22 * 3600 * SECOND,
        "idle_heartbeat": 5 * SECOND,
        "flow_control": True,
        "mem_storage": True,
        "num_replicas": 1,
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": 3,
    },
}
for _policy in ("all", "last", "new", "last_per_subject"):
    TOGETHER[f"{_policy} with seq"] = {"deliver_policy": _policy, "opt_start_seq": 2}
    TOGETHER[f"{_policy} with time"] = {"deliver_policy": _policy, "opt_start_time": PAST}
for _group in ("a", "", "a b", "x" * 16, "x" * 17, "a/b_=-Z9", "é", "a\n"):
    TOGETHER[f"group {_group!r}"] = {"priority_policy": "overflow", "priority_groups": [_group]}
for _policy in ("overflow", "pinned_client", "prioritized"):
    TOGETHER[f"{_policy} group"] = {"priority_policy": _policy, "priority_groups": ["a", "b"]}
    TOGETHER[f"{_policy} timeout"] = {
        "priority_policy": _policy,
        "priority_groups": ["a"],
        "priority_timeout": SECOND,
    }

PEDANTIC: dict[str, Config] = {
    "nothing": {},
    "max_deliver": {"max_deliver": -2},
    "max_waiting": {"max_waiting": -1},
    "max_ack_pending": {"max_ack_pending": -2},
    "max_batch": {"max_batch": -1},
    "max_expires": {"max_expires": -1},
    "max_bytes": {"max_bytes": -1},
    "idle_heartbeat": {"idle_heartbeat": -1},
    "inactive_threshold": {"inactive_threshold": -1},
    "priority_timeout": {"priority_timeout": -1},
    "backoff": {"backoff": [SECOND]},
    "backoff equal": {"backoff": [SECOND], "ack_wait": SECOND},
    "fc acks": {"ack_policy": "flow_control", "deliver_subject": "to"},
    "fc acks no heartbeat": {
        "ack_policy": "flow_control",
        "deliver_subject": "to",
        "flow_control": True,
    },
}


def config_cases() -> Iterator[Case]:
    for make, table, kind in ((consumer, PULL, "pull"), (push, PUSH, "push")):
        for key, values in table.items():
            for at, value in enumerate(values):
                yield Case(f"{kind}-{key}-{at}", (STREAM, make(**{key: value}), info()))
    for name, config in TOGETHER.items():
        yield Case(f"together-{name}", (STREAM, consumer(**config), info()))
    for name, config in PEDANTIC.items():
        yield Case(f"pedantic-{name}", (STREAM, consumer(pedantic=True, **config), info()))


OLD_PULL: Config = {"durable_name": "C", "ack_policy": "explicit"}
OLD_PUSH: Config = OLD_PULL | {"deliver_subject": "to"}
CHANGES: dict[str, tuple[Config, list[Config]]] = {
    "pull": (
        OLD_PULL,
        [
            {},
            {"description": "other"},
            {"deliver_policy": "new"},
            {"deliver_policy": "by_start_sequence", "opt_start_seq": 3},
            {"deliver_policy": "by_start_time", "opt_start_time": PAST},
            {"ack_policy": "all"},
            {"ack_policy": "none"},
            {"ack_wait": SECOND},
            {"max_deliver": 4},
            {"backoff": [SECOND, 2 * SECOND]},
            {"backoff": [SECOND, 2 * SECOND], "max_deliver": 1},
            {"filter_subject": "a.b"},
            {"filter_subjects": ["a.b", "a.c"]},
            {"replay_policy": "original"},
            {"sample_freq": "50%"},
            {"max_waiting": 7},
            {"max_ack_pending": 7},
            {"headers_only": True},
            {"max_batch": 5, "max_expires": SECOND, "max_bytes": 1000},
            {"deliver_subject": "to"},
            {"inactive_threshold": 60 * SECOND},
            {"num_replicas": 1},
            {"mem_storage": True},
            {"metadata": {"a": "b"}},
            {"pause_until": FUTURE},
            {"priority_policy": "overflow", "priority_groups": ["a"]},
            {"sourcing": True},
        ],
    ),
    "push": (
        OLD_PUSH,
        [
            {"deliver_subject": "to.other"},
            {"deliver_subject": ""},
            {"deliver_group": "g"},
            {"idle_heartbeat": SECOND},
            {"idle_heartbeat": SECOND, "flow_control": True},
            {"rate_limit_bps": 1000},
        ],
    ),
}


def update_cases() -> Iterator[Case]:
    for kind, (old, changes) in CHANGES.items():
        for at, change in enumerate(changes):
            for action in (None, "create", "update"):
                steps = (
                    STREAM,
                    consumer(**old),
                    consumer(action=action, **(old | change)),
                    info(),
                )
                yield Case(f"{kind}-{at}-{action}", steps)
    for action in ("", "create", "update", "x", None, 1):
        yield Case(f"missing-{action}", (STREAM, consumer(action=action), NAMES))
    yield Case("named ephemeral again", (STREAM, consumer(), consumer(), consumer(action="create")))
    threshold = {"inactive_threshold": 9 * SECOND}
    again = consumer(action="create", **threshold)
    yield Case("named ephemeral same", (STREAM, consumer(**threshold), again))
    times = ("2020-01-01T02:00:00+02:00", "2020-01-01T00:00:00.000Z", "2020-01-01T00:00:01Z")
    for at, time in enumerate(times):
        config = {"deliver_policy": "by_start_time"}
        first = durable(opt_start_time=PAST, **config)
        second = durable(opt_start_time=time, **config)
        yield Case(f"start time again-{at}", (STREAM, first, second, info()))
    interest = Ask("STREAM.CREATE.T", {"name": "T", "storage": "memory", "subjects": ["to"]})
    moved = consumer(**(OLD_PUSH | {"deliver_subject": "to.other"}))
    yield Case("deliver subject in use", (STREAM, interest, consumer(**OLD_PUSH), moved, info()))


NAME_TEXTS = ("a_b-c", "é", "a b", "a*", "a>", "a/b", "a\\b", "x" * 200, "x" * 255, "x" * 256)


def form_cases() -> Iterator[Case]:
    for at, name in enumerate(NAME_TEXTS):
        if " " not in name and "*" not in name and ">" not in name:
            yield Case(f"name-{at}", (STREAM, consumer(name), info(name), NAMES))
            yield Case(f"durable-{at}", (STREAM, durable(name), info(name), NAMES))
        for key in ("name", "durable_name"):
            body = {"stream_name": "S", "config": {key: name}}
            yield Case(f"body {key}-{at}", (STREAM, Ask("CONSUMER.CREATE.S", body), STREAM_INFO))
    bodies: dict[str, Any] = {
        "empty": b"",
        "object": {},
        "array": [],
        "broken": b"{",
        "text": "x",
        "null": None,
        "no config": {"stream_name": "S"},
        "config null": {"stream_name": "S", "config": None},
        "config list": {"stream_name": "S", "config": []},
        "other stream": {"stream_name": "T", "config": {}},
        "number": {"stream_name": 1},
        "unknown": {"stream_name": "S", "x": 1},
        "case": {"STREAM_NAME": "S", "Config": {"Ack_Policy": "explicit"}},
        "plain": {"stream_name": "S", "config": {}},
        "durable": {"stream_name": "S", "config": {"durable_name": "C"}},
        "durable both": {"stream_name": "S", "config": {"durable_name": "C", "name": "C"}},
        "durable differ": {"stream_name": "S", "config": {"durable_name": "D", "name": "C"}},
        "filters": {"stream_name": "S", "config": {"filter_subjects": ["a.b", "a.c"]}},
        "filter": {"stream_name": "S", "config": {"filter_subject": "a.b"}},
    }
    subjects = ("CREATE.S", "CREATE.S.C", "DURABLE.CREATE.S.C", "CREATE.S.C.a.b", "CREATE.S.C.a.>")
    for subject in subjects:
        for name, body in bodies.items():
            yield Case(f"{subject}-{name}", (STREAM, Ask(f"CONSUMER.{subject}", body)))
    for tail in ("S.C/D", "S.C\\D"):
        body = {"stream_name": "S", "config": {"durable_name": tail[2:]}}
        for form in ("CREATE", "DURABLE.CREATE"):
            yield Case(f"separator {form} {tail}", (STREAM, Ask(f"CONSUMER.{form}.{tail}", body)))


def request_cases() -> Iterator[Case]:
    for verb in ("INFO", "DELETE", "PAUSE", "UNPIN", "LEADER.STEPDOWN"):
        body = {"group": "a"} if verb == "UNPIN" else b""
        ask = Ask(f"CONSUMER.{verb}.S.C", body)
        yield Case(f"{verb} no stream", (ask,))
        yield Case(f"{verb} no consumer", (STREAM, ask))
        yield Case(f"{verb} consumer", (STREAM, durable(), ask, ask))
        for at, other in enumerate((b"{}", b"{", {"x": 1}, b" ", b"[]", b"x")):
            steps = (STREAM, durable(), Ask(f"CONSUMER.{verb}.S.C", other))
            yield Case(f"{verb} body-{at}", steps)
    three = (STREAM, durable("b"), durable("a"), consumer("c", **{"inactive_threshold": SECOND}))
    for ask in (NAMES, LIST):
        yield Case(f"{ask.subject} none", (ask,))
        yield Case(f"{ask.subject} empty", (STREAM, ask))
        yield Case(f"{ask.subject} three", (*three, ask))
        for offset in (0, 1, 2, 3, 4, -1, "x", 1.5):
            steps = (*three, Ask(ask.subject, {"offset": offset}))
            yield Case(f"{ask.subject} offset {offset}", steps)
    yield Case("counted", (*three, STREAM_INFO, delete("a"), STREAM_INFO, NAMES, Ask("INFO")))
    gone = (Ask("STREAM.DELETE.S"), info(), STREAM, NAMES, info())
    yield Case("with its stream", (STREAM, durable(), *gone))
    for at, until in enumerate((FUTURE, PAST, "2100-01-01T00:00:00.5+02:00", None, "x", 1, "")):
        steps = (STREAM, durable(), pause(until), info(), pause(None), info())
        yield Case(f"pause-{at}", steps)
    kept = (pause(), durable(description="x"), info(), LIST)
    yield Case("pause outlives an update", (STREAM, durable(), *kept))
    ended = (durable(pause_until=PAST), info())
    yield Case("update pauses nothing", (STREAM, durable(), *ended))


def reset_cases() -> Iterator[Case]:
    for at, body in enumerate(
        (b"", b"{}", {"seq": 0}, {"seq": 1}, {"seq": 5}, {"seq": 99}, b"{", {"seq": -1}, {"x": 1})
    ):
        yield Case(f"reset-{at}", (*FILLED, durable(ack_policy="explicit"), reset(body), info()))
    starts: dict[str, Config] = {
        "new": {"deliver_policy": "new"},
        "last": {"deliver_policy": "last"},
        "per": {"deliver_policy": "last_per_subject", "filter_subject": "a.>"},
        "seq": {"deliver_policy": "by_start_sequence", "opt_start_seq": 4},
        "time": {"deliver_policy": "by_start_time", "opt_start_time": PAST},
    }
    for name, config in starts.items():
        for seq in (0, 3, 4, 6):
            steps = (*FILLED, durable(**config), reset({"seq": seq}), info())
            yield Case(f"reset {name} {seq}", steps)


def start_cases() -> Iterator[Case]:
    for policy in ("all", "last", "new", "last_per_subject"):
        for at, filters in enumerate(
            ([], ["a.0"], ["a.1", "a.2"], ["a.*"], ["a.>"], ["zz"], ["a.0", "zz"])
        ):
            config = {"deliver_policy": policy, "filter_subjects": filters}
            yield Case(f"start {policy}-{at}", (*FILLED, consumer(**config), info()))
            yield Case(f"start empty {policy}-{at}", (STREAM, consumer(**config)))
    for seq in (1, 2, 7, 10, 11, 12, 100, 2**63):
        config = {"deliver_policy": "by_start_sequence", "opt_start_seq": seq}
        yield Case(f"start seq {seq}", (*FILLED, consumer(**config)))
        trimmed = Ask("STREAM.PURGE.S", {"seq": 5})
        yield Case(f"start seq purged {seq}", (*FILLED, trimmed, consumer(**config)))
        yield Case(f"start seq empty {seq}", (STREAM, consumer(**config)))
    for time in (PAST, FUTURE):
        for filters in ([], ["a.1"], ["zz"]):
            config = {
                "deliver_policy": "by_start_time",
                "opt_start_time": time,
                "filter_subjects": filters,
            }
            yield Case(f"start time {time} {filters}", (*FILLED, consumer(**config)))
    purged = (*FILLED, Ask("STREAM.PURGE.S"))
    for policy in ("all", "last", "new"):
        yield Case(f"start purged {policy}", (*purged, consumer(deliver_policy=policy)))


EXPLICIT: Config = {"ack_policy": "explicit"}


def stream_cases() -> Iterator[Case]:
    for retention, stream in (("workqueue", WORK_QUEUE), ("interest", INTEREST)):
        for policy in ("none", "all", "explicit"):
            yield Case(f"{retention} {policy}", (stream, durable(ack_policy=policy)))
            steps = (stream, push(ack_policy=policy, durable_name="C"))
            yield Case(f"{retention} push {policy}", steps)
        for policy in ("new", "last"):
            steps = (stream, durable(deliver_policy=policy, **EXPLICIT))
            yield Case(f"{retention} {policy}", steps)
        for number in (0, 1, 2):
            steps = (stream, durable(num_replicas=number, **EXPLICIT))
            yield Case(f"{retention} replicas {number}", steps)
        for at, (one, other) in enumerate(
            (
                ([], []),
                (["a.b"], []),
                ([], ["a.b"]),
                (["a.b"], ["a.c"]),
                (["a.b"], ["a.*"]),
                (["a.*.c"], ["a.b.*"]),
                (["a.b", "a.c"], ["a.d", "a.c"]),
                (["a.b", "a.c"], ["a.d", "a.e"]),
            )
        ):
            first = durable("C", filter_subjects=one, **EXPLICIT)
            second = durable("D", filter_subjects=other, **EXPLICIT)
            again = durable("C", filter_subjects=["a.z"], **EXPLICIT)
            back = durable("C", filter_subjects=["a.>"], **EXPLICIT)
            yield Case(f"{retention} filters-{at}", (stream, first, second, again, back, LIST))
    limited = create(subjects=["a.>"], max_consumers=1)
    yield Case("max consumers", (limited, durable("C"), durable("C"), durable("D"), consumer("E")))
    own = create(
        subjects=["a.>"],
        consumer_limits={"max_ack_pending": 10, "inactive_threshold": 10 * SECOND},
    )
    for at, config in enumerate(
        (
            {},
            EXPLICIT,
            EXPLICIT | {"max_ack_pending": 10},
            EXPLICIT | {"max_ack_pending": 11},
            EXPLICIT | {"max_ack_pending": -1},
            {"inactive_threshold": 10 * SECOND},
            {"inactive_threshold": 11 * SECOND},
            {"durable_name": "C"},
        )
    ):
        yield Case(f"stream's limits-{at}", (own, consumer(**config)))
        yield Case(f"stream's limits pedantic-{at}", (own, consumer(pedantic=True, **config)))
