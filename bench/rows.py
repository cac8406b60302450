"""What is measured, in which unit, and how good it has to be.

A measurement runs servers and gives several numbers; a row is one of those numbers with its goal.
Rows of one measurement share its runs. A new row is a `Row` below; a new load is a function in
`loads` and a `Measurement`.
"""

from dataclasses import dataclass
from enum import Enum

from bench import apart, buckets, consumers, copies, features, jetstream, loads, store


class Better(Enum):
    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True)
class Goal:
    """A bound for Martlet's number itself, or for its ratio to the peer's."""

    bound: float
    of_ratio: bool

    def text(self, better: Better) -> str:
        sign = ">=" if better is Better.HIGHER else "<="
        return f"{sign} {self.bound:g}{'x' if self.of_ratio else ''}"

    def met(self, better: Better, martlet: float, ratio: float | None) -> bool | None:
        """None: there is no ratio to judge."""
        value = ratio if self.of_ratio else martlet
        if value is None:
            return None
        return value >= self.bound if better is Better.HIGHER else value <= self.bound


def times(bound: float) -> Goal:
    return Goal(bound, of_ratio=True)


def absolute(bound: float) -> Goal:
    return Goal(bound, of_ratio=False)


@dataclass(frozen=True)
class Measurement:
    name: str
    run: loads.Run
    rounds: int = 3
    has_peer: bool = True


@dataclass(frozen=True)
class Row:
    name: str
    group: str
    measurement: Measurement
    key: str
    unit: str
    better: Better
    goal: Goal | None
    about: str


def _stream(
    name: str, publishers: int, subscribers: int, subjects: int, size: int, goal: float, about: str
) -> Row:
    run = loads.stream(publishers=publishers, subscribers=subscribers, subjects=subjects, size=size)
    return Row(
        name, "core", Measurement(name, run), "delivered_per_s", "msg/s", Better.HIGHER,
        times(goal), about,
    )  # fmt: skip


def _lower(
    name: str, measurement: Measurement, key: str, unit: str, goal: Goal | None, about: str
) -> Row:
    return Row(name, "core", measurement, key, unit, Better.LOWER, goal, about)


def _higher(
    name: str, measurement: Measurement, key: str, unit: str, goal: Goal | None, about: str
) -> Row:
    return Row(name, "core", measurement, key, unit, Better.HIGHER, goal, about)


def _jetstream(
    name: str, storage: str, in_flight: int, sync: str, peer_sync: str, goal: float, about: str
) -> Row:
    run = loads.jetstream(storage=storage, in_flight=in_flight, sync=sync, peer_sync=peer_sync)
    return Row(
        name, "jetstream", Measurement(name, run), "acks_per_s", "msg/s", Better.HIGHER,
        times(goal), about,
    )  # fmt: skip


_REQUEST = Measurement("request", loads.latency(requesters=1, responders=1))
_QUEUE = Measurement("request_queue", loads.latency(requesters=8, responders=4))
_CONNECTIONS = Measurement("connections", loads.connections)
_SUBSCRIPTIONS = Measurement("subscriptions", loads.subscriptions)
_IDLE = Measurement("idle", loads.idle, rounds=1)
_READY = Measurement("ready", loads.ready, rounds=1)
_ISOLATION = Measurement("isolation", loads.isolation, rounds=1)
_PERMISSIONS = Measurement("permissions", loads.permissions, rounds=1)
_STREAMS_FILE = Measurement("js_streams_file", jetstream.many_streams("file"), rounds=1)
_STREAMS_MEMORY = Measurement("js_streams_memory", jetstream.many_streams("memory"), rounds=1)


def _streams(
    name: str, measurement: Measurement, key: str, unit: str, bound: float, about: str
) -> Row:
    return Row(name, "streams", measurement, key, unit, Better.LOWER, absolute(bound), about)


def _fleet(name: str, storage: str, acked: bool, about: str) -> Row:
    measurement = Measurement(name, jetstream.fleet(storage, acked))
    return _streams(name, measurement, "cpu_percent", "%", 40, about)


_DELIVERED = Measurement("js_delivered", consumers.delivered)
_MANY_CONSUMERS = Measurement("js_many_consumers", consumers.many, rounds=1)


def _consumer(
    name: str, run: loads.Run, goal: float, about: str, key: str = "messages_per_s"
) -> Row:
    return Row(
        name, "consumers", Measurement(name, run), key, "msg/s", Better.HIGHER,
        times(goal), about,
    )  # fmt: skip


def _feature(name: str, run: loads.Run, about: str) -> Row:
    return Row(
        f"js_publish_{name}", "features", Measurement(f"js_publish_{name}", run), "acks_per_s",
        "msg/s", Better.HIGHER, times(1.0), about,
    )  # fmt: skip


def _delivered(key: str, goal: Goal | None, about: str) -> Row:
    return Row(
        f"js_delivered_{key.removesuffix('_us')}", "consumers", _DELIVERED, key, "us",
        Better.LOWER, goal, about,
    )  # fmt: skip


def _many(key: str, unit: str, goal: float, about: str) -> Row:
    return Row(
        f"js_many_consumers_{key}", "consumers", _MANY_CONSUMERS, key, unit, Better.LOWER,
        absolute(goal), about,
    )  # fmt: skip


def _alone(name: str, run: loads.Run) -> Measurement:
    return Measurement(f"store_{name}", run, rounds=1, has_peer=False)


_APPEND_128 = _alone("append_128", store.with_disk("append_128_durable"))
_APPEND_LAZY = _alone("append_128_lazy", store.with_disk("append_128_lazy"))
_APPEND_8K = _alone("append_8k", store.with_disk("append_8k_durable"))
_TRIMMED = _alone("trimmed", store.with_disk("append_128_trimmed"))
_LOAD_WARM = _alone("load_warm", store.with_disk("load_warm"))
_RECOVERY = _alone("recovery", store.with_disk("recovery"))
_COMPRESSING = _alone("compressing", store.with_disk("pause_while_compressing"))
_LOAD = _alone("load", store.in_memory("load"))
_PENDING = _alone("pending", store.in_memory("pending"))
_PURGE = _alone("purge", store.in_memory("purge"))
_EXPIRE = _alone("expire", store.in_memory("expire"))
_SUBJECTS = _alone("subjects", store.in_memory("subjects"))


ANALYTICS_TIMEOUT_S = 1200.0


def _analytics(part: str, *words: str, name: str = "") -> Measurement:
    run = apart.figures_of("bench.analytics", part, *words, timeout_s=ANALYTICS_TIMEOUT_S)
    return Measurement(f"analytics_{name or part}", run, rounds=1, has_peer=False)


# Payloads that do not compress are the harder ones to decode, text is to beat Parquet with.
_BLOCKS = _analytics("blocks", "--payloads", "random")
_SPARK = _analytics("spark", "--payloads", "json", "--count", "3000000")
_SPARK_RANDOM = _analytics("spark", "--payloads", "random", name="spark_random")
_BESIDE = _analytics("beside")
_BESIDE_SPARK = _analytics("beside_spark")


def _analysed(
    name: str,
    load: Measurement,
    unit: str,
    better: Better,
    bound: float,
    about: str,
    figure: str = "",
) -> Row:
    goal = absolute(bound)
    return Row(name, "analytics", load, f"{figure or name}.martlet", unit, better, goal, about)


def _at_least(name: str, load: Measurement, key: str, unit: str, bound: float, about: str) -> Row:
    return Row(name, "store", load, key, unit, Better.HIGHER, absolute(bound), about)


def _at_most(name: str, load: Measurement, key: str, unit: str, bound: float, about: str) -> Row:
    return Row(name, "store", load, key, unit, Better.LOWER, absolute(bound), about)


ROWS: tuple[Row, ...] = (
    _stream("publish_16", 1, 0, 1, 16, 4.0, "publish only, up to the PONG behind the last message"),
    _stream("one_to_one_16", 1, 1, 1, 16, 4.0, "1 publisher, 1 subscriber"),
    _stream("one_to_one_128", 1, 1, 1, 128, 2.5, "1 publisher, 1 subscriber"),
    _stream("one_to_one_8k", 1, 1, 1, 8192, 1.2, "1 publisher, 1 subscriber"),
    _stream("fan_out_8_16", 1, 8, 1, 16, 3.0, "1 publisher, 8 subscribers: deliveries"),
    _stream("pairs_4_128", 4, 4, 4, 128, 2.0, "4 publishers on 4 subjects, 1 subscriber each"),
    _stream("mesh_4_128", 4, 4, 1, 128, 2.0, "4 publishers, 4 subscribers, 1 subject: deliveries"),
    _stream("fan_in_4_16", 4, 1, 1, 16, 1.0, "4 publishers, 1 subscriber"),
    _lower("request_p50", _REQUEST, "p50_us", "us", times(0.9), "request-reply, 1 in flight"),
    _lower("request_p99", _REQUEST, "p99_us", "us", times(0.9), "request-reply, 1 in flight"),
    _lower("request_p999", _REQUEST, "p999_us", "us", None, "request-reply, 1 in flight"),
    _higher("request_queue_rate", _QUEUE, "requests_per_s", "req/s", times(1.0),
            "8 requesters with 1 in flight each, 4 responders in a queue group"),
    _lower("request_queue_p99", _QUEUE, "p99_us", "us", times(1.0), "the same: latency"),
    _lower("connection_memory", _CONNECTIONS, "rss_bytes_each", "B", absolute(12 * 1024),
           "10,000 idle connections: memory of each beyond the idle server"),
    _higher("accept_rate", _CONNECTIONS, "per_s", "conn/s", times(1.0),
            "connect, INFO, CONNECT, PING, PONG; 64 at once"),
    _lower("subscription_memory", _SUBSCRIPTIONS, "rss_bytes_each", "B", absolute(300),
           "1 million subscriptions, unique subjects bench.<0-999>.<0-999>, over 10 connections"),
    _higher("subscribe_rate", _SUBSCRIPTIONS, "per_s", "SUB/s", times(1.0), "the same: speed"),
    _lower("idle_memory", _IDLE, "rss_mb", "MB", absolute(60), "resident, nobody connected"),
    _lower("idle_cpu", _IDLE, "cpu_percent", "%", absolute(0.5), "of one core over 10 s"),
    _lower("ready_median", _READY, "median_ms", "ms", absolute(300), "exec to first INFO, of 10"),
    _lower("ready_best", _READY, "best_ms", "ms", absolute(300), "exec to first INFO, of 10"),
    _lower("isolation_slow", _ISOLATION, "slow_ratio", "x", absolute(2.0),
           "p99 of others beside a subscriber that reads 3 of 32 MB/s, against quiet"),
    _lower("isolation_deaf", _ISOLATION, "deaf_ratio", "x", absolute(2.0),
           "p99 of others beside a subscriber that never reads 32 MB/s, against quiet"),
    _lower("isolation_garbage", _ISOLATION, "garbage_ratio", "x", None,
           "p99 of others beside 1,000 connections/s that send nonsense, against quiet"),
    _lower("isolation_garbage_alone", _ISOLATION, "alone_ratio", "x", None,
           "the same with the nonsense sent to a port of its own, which no server hears"),
    _lower("isolation_garbage_heard", _ISOLATION, "garbage_heard_ratio", "x", absolute(2.0),
           "the first of the two against the second: what hearing it costs others"),
    _higher("permissions", _PERMISSIONS, "share", "", absolute(0.95),
            "1 publisher, 1 subscriber, 16 B, with permissions: share of the rate without"),
    _jetstream("js_file_durable_lazy", "file", 4096, "", "", 2.0,
               "file, 128 B, 4,096 in flight: durable, against the peer's lazy default"),
    _jetstream("js_file_durable_always", "file", 4096, "", "always", 100.0,
               "the same, against the peer's sync_interval always"),
    _jetstream("js_file_lazy", "file", 4096, "2m", "", 2.0, "the same, both lazy"),
    _jetstream("js_memory", "memory", 4096, "", "", 2.0, "memory, 128 B, 4,096 in flight"),
    _jetstream("js_awaited_durable", "file", 1, "", "always", 1.0,
               "file, one by one, both durable"),
    _jetstream("js_awaited_lazy", "file", 1, "2m", "", 1.0, "file, one by one, both lazy"),
    _consumer("js_fetch_acks", consumers.fetched(acks=True), 2.0,
              "pull, batches of 500, 128 B, each message acknowledged; memory"),
    _consumer("js_fetch", consumers.fetched(acks=False), 2.0, "the same without acks"),
    _consumer("js_ordered", consumers.ordered, 2.0, "ordered consumer: push, flow control"),
    _consumer("js_watch", consumers.watched, 1.5, "a bucket's watch: the last of each key"),
    _consumer("js_kv_put", buckets.puts, 1.5, "100,000 keys, file, 128 B, 256 in flight: durable, "
              "against the peer's lazy default", "acks_per_s"),
    _consumer("js_kv_get", buckets.gets, 1.5, "their values, direct get, 256 in flight; memory",
              "acks_per_s"),
    _delivered("p50_us", times(1.0), "publish to delivery, 1 in flight, file, both durable"),
    _delivered("p99_us", None, "the same"),
    _consumer("js_mirror_copy", copies.copied({"mirror": {"name": "B"}}), 1.0,
              "a mirror catches up with 300,000 messages of 128 B: memory to file"),
    _consumer("js_source_copy", copies.copied({"sources": [{"name": "B"}]}), 1.0,
              "the same by a source"),
    _many("create_p50_ms", "ms", 1.0, "making a durable consumer beside 10,000 others"),
    _many("create_s", "s", 10.0, "making 10,000 durable consumers, 200 under way"),
    _many("cpu_percent", "%", 30.0, "10,000 filtered durables, 1 message a second each, acked"),
    _feature("header", features.OTHER_HEADER, "memory, 128 B, 4,096 in flight, a user's header"),
    _feature("msg_id", features.MSG_ID, "the same with message ids"),
    _feature("last_seq", features.LAST_SEQ, "the same with the expected last sequence"),
    _feature("last_subject_seq", features.LAST_SUBJECT_SEQ, "the same for the subject"),
    _feature("ttl", features.TTL, "the same with a time to live of their own"),
    _feature("rollup", features.ROLLUP, "the same, each replaces all before it"),
    _feature("republish", features.REPUBLISH, "without headers, republished"),
    _feature("transform", features.TRANSFORM, "without headers, the subject transformed"),
    _streams("js_create_file", _STREAMS_FILE, "create_s", "s", 60,
             "100,000 streams in files, 256 requests in flight"),
    _streams("js_list_page_file", _STREAMS_FILE, "page_max_ms", "ms", 50,
             "slowest page of STREAM.LIST over them while a publisher awaits its acks"),
    _streams("js_list_p99_file", _STREAMS_FILE, "p99_ratio", "x", 3,
             "that publisher's p99 against the same without listing"),
    _streams("js_create_memory", _STREAMS_MEMORY, "create_s", "s", 60, "the same in memory"),
    _streams("js_list_page_memory", _STREAMS_MEMORY, "page_max_ms", "ms", 50, "the same in memory"),
    _streams("js_list_p99_memory", _STREAMS_MEMORY, "p99_ratio", "x", 3, "the same in memory"),
    _fleet("js_fleet_file", "file", False,
           "1,000 streams in files, one publisher each, 100 msg/s each: CPU of the server"),
    _fleet("js_fleet_file_acked", "file", True, "the same, each publish acknowledged"),
    _fleet("js_fleet_memory", "memory", False, "the same in memory, without acks"),
    _fleet("js_fleet_memory_acked", "memory", True, "the same in memory, acknowledged"),
    Row("js_fleet_bare", "streams", Measurement("js_fleet_bare", jetstream.bare_fleet),
        "cpu_percent", "%", Better.LOWER, None,
        "the same without streams: each publisher hears its own messages"),
    _at_least("store_append_128_durable", _APPEND_128, "append_128_durable.messages_per_s", "msg/s",
              1.5e6, "append 128 B on 1,000 subjects, batches of 256, durable"),
    _at_least("store_append_128_lazy", _APPEND_LAZY, "append_128_lazy.messages_per_s", "msg/s", 3e6,
              "the same, lazy"),
    _at_least("store_append_8k", _APPEND_8K, "append_8k_durable.share", "", 0.6,
              "append 8 KB, durable: share of plain sequential writing of the same bytes"),
    _at_least("store_trimmed", _TRIMMED, "append_128_trimmed.share", "", 0.9,
              "append at max_msgs: share of the rate without"),
    _at_least("store_load_warm", _LOAD_WARM, "load_warm.scattered_per_s", "msg/s", 2e6,
              "load by sequence, warm, scattered over 2 M"),
    _at_least("store_load_next", _LOAD, "load_next_literal.per_s", "msg/s", 5e5,
              "load next of a subject among 1 M, from anywhere"),
    _at_least("store_load_next_wildcard", _LOAD, "load_next_wildcard.per_s", "msg/s", 5e5,
              "the same by a wildcard"),
    _at_least("store_load_last", _LOAD, "load_last.per_s", "msg/s", 1e6,
              "load the last of a subject among 1 M"),
    _at_most("store_pending", _PENDING, "pending_wildcard.first_ms", "ms", 5,
             "num pending, a wildcard over 1 M subjects, first asked"),
    _at_most("store_purge", _PURGE, "purge.seconds", "s", 3, "purge by filter half of 10 M"),
    _at_most("store_purge_slice", _PURGE, "purge.longest_ms", "ms", 2, "its longest slice"),
    _at_most("store_expire", _EXPIRE, "expire.seconds", "s", 1, "expire 1 M by age"),
    _at_most("store_expire_slice", _EXPIRE, "expire.longest_ms", "ms", 2, "its longest slice"),
    _at_most("store_subject", _SUBJECTS, "subjects_10m.bytes_each", "B", 120,
             "10 M subjects: memory of each beyond its text"),
    _at_most("store_compressing", _COMPRESSING, "pause_while_compressing.p999_ms", "ms", 2,
             "a turn beside blocks being rewritten, p99.9"),
    _at_most("store_recovery_kill", _RECOVERY, "recovery.after_kill.seconds", "s", 2,
             "open 10 M messages of 128 B on 1,000 subjects after a kill"),
    _at_most("store_recovery_clean", _RECOVERY, "recovery.after_clean_stop.seconds", "s", 0.3,
             "the same after a clean stop"),
    _at_most("store_recovery_memory", _RECOVERY, "recovery.after_kill.rss_mb", "MB", 150,
             "resident after the kill's recovery"),
    _analysed("analytics_decode", _BLOCKS, "row/s", Better.HIGHER, 8e6,
              "blocks to Arrow on one core: subject, seq, ts_ns, payload of 128 to 256 B"),
    _analysed("analytics_time_range", _BLOCKS, "", Better.LOWER, 0.02,
              "share of the blocks' bytes that a hundredth of the time reads"),
    _analysed("spark_source", _SPARK, "row/s", Better.HIGHER, 2e6,
              "Spark, local[2], two sums over all columns, payloads of 130 B of text"),
    _analysed("spark_scan_rows_ratio", _SPARK, "x", Better.LOWER, 1.2,
              "every row, all columns, text: time of blocks against Parquet of the same rows"),
    _analysed("spark_scan_hash_ratio", _SPARK, "x", Better.LOWER, 1.2,
              "a hash of every payload of text: the same"),
    _analysed("spark_scan_rows_random", _SPARK_RANDOM, "x", Better.LOWER, 1.2,
              "every row, all columns, payloads that do not compress: the same",
              figure="spark_scan_rows_ratio"),
    _analysed("spark_scan_hash_random", _SPARK_RANDOM, "x", Better.LOWER, 1.2,
              "a hash of every payload that does not compress: the same",
              figure="spark_scan_hash_ratio"),
    _analysed("analytics_beside_p99", _BESIDE, "x", Better.LOWER, 1.1,
              "p99 of durable publishes beside an export without Spark, against it stopped"),
    _analysed("analytics_beside_spark_p99", _BESIDE_SPARK, "x", Better.LOWER, 1.1,
              "the same beside `analytics run` on Spark"),
)  # fmt: skip


def select(names: list[str]) -> list[Row]:
    """Rows by their own name, their measurement's or their group's; `all` is every one."""
    chosen: list[Row] = []
    for name in names:
        found = [r for r in ROWS if name in ("all", r.name, r.group, r.measurement.name)]
        if not found:
            raise LookupError(f"no row is called {name!r}; see python -m bench --list")
        chosen += [row for row in found if row not in chosen]
    return chosen
