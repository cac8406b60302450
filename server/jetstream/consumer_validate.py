"""Defaults, refusals and update rules of a consumer's configuration. Pure: look-ups are arguments.

The order of the checks is the reference's: the first broken rule is the one that is told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from config.limits import MILLISECOND_NS, SECOND_NS
from config.options import AccountJetStreamOptions, JetStreamOptions
from server.core.subject import (
    has_wildcards,
    is_subset,
    is_valid_subject,
    overlaps,
)
from server.jetstream import deadletter, errors
from server.jetstream.apierror import ApiError
from server.jetstream.config import StreamConfig
from server.jetstream.consumer_config import ConsumerConfig
from server.jetstream.gojson import quoted
from server.jetstream.gotime import duration_text, store_ns, time_ns
from server.jetstream.validate import (
    DESCRIPTION_BYTES_MAX,
    METADATA_BYTES_MAX,
    NAME_BYTES_MAX,
    is_valid_name,
)

MAX_WAITING: Final = 512
ACK_WAIT_NS: Final = 30 * SECOND_NS
MAX_ACK_PENDING: Final = 1000
PINNED_TTL_NS: Final = 120 * SECOND_NS
INACTIVE_THRESHOLD_NS: Final = 5 * SECOND_NS
FLOW_CONTROL_HEARTBEAT_NS: Final = SECOND_NS
HEARTBEAT_MIN_NS: Final = 100 * MILLISECOND_NS
GROUP_NAME: Final = re.compile(r"[a-zA-Z0-9/_=-]{1,16}")
INTEGER: Final = re.compile(r"[+-]?[0-9]+")
INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """What a configuration is checked against, beside itself."""

    stream: StreamConfig
    server: JetStreamOptions
    account: AccountJetStreamOptions


def invalid(text: str) -> ApiError:
    return errors.STREAM_INVALID_CONFIG(err=text)


def check_config(asked: ConsumerConfig, limits: Limits, pedantic: bool) -> ConsumerConfig:
    """The configuration with its defaults; ApiError when it cannot be."""
    config = asked.copy()
    fill_defaults(config, limits, pedantic)
    check_names(config)
    check_replicas(config, limits.stream)
    check_acks(config)
    if len(config.description.encode()) > DESCRIPTION_BYTES_MAX:
        raise errors.CONSUMER_DESCRIPTION_TOO_LONG(max=DESCRIPTION_BYTES_MAX)
    if config.is_push:
        check_push(config, limits.stream)
    else:
        check_pull(config, limits)
    check_limits(config, limits)
    check_filters(config)
    check_start(config)
    check_sampling(config.sample_freq)
    if config.flow_control and config.idle_heartbeat == 0:
        raise errors.CONSUMER_WITH_FLOW_CONTROL_NEEDS_HEARTBEATS()
    if config.durable_name and config.name and config.name != config.durable_name:
        raise errors.CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH()
    metadata = config.metadata or {}
    if sum(len(k.encode()) + len(v.encode()) for k, v in metadata.items()) > METADATA_BYTES_MAX:
        raise errors.CONSUMER_METADATA_LENGTH(limit=f"{METADATA_BYTES_MAX // 1024}KB")
    check_priority(config)
    deadletter.check(config, limits.stream.subjects)
    return config


# Defaults

# What is below the number in a field becomes that number, or is refused in the pedantic mode.
LOWEST: Final = (
    ("max_deliver", -1, "max_deliver must be set to -1"),
    ("max_waiting", 0, "max_waiting must not be negative"),
    ("max_ack_pending", -1, "max_ack_pending must be set to -1"),
    ("max_batch", 0, "max_batch must not be negative"),
    ("max_expires", 0, "max_expires must not be negative"),
    ("max_bytes", 0, "max_bytes must not be negative"),
    ("idle_heartbeat", 0, "idle_heartbeat must not be negative"),
    ("inactive_threshold", 0, "inactive_threshold must not be negative"),
    ("priority_timeout", 0, "priority_timeout must not be negative"),
)


def fill_defaults(config: ConsumerConfig, limits: Limits, pedantic: bool) -> None:
    def refuse_if_pedantic(broken: bool, text: str) -> None:
        if pedantic and broken:
            raise errors.PEDANTIC(err=text)

    for name, lowest, text in LOWEST:
        if getattr(config, name) < lowest:
            refuse_if_pedantic(True, text)
            setattr(config, name, lowest)
    config.max_deliver = config.max_deliver or -1
    if not config.is_push and config.max_waiting == 0:
        config.max_waiting = MAX_WAITING
    if config.ack_wait == 0 and config.ack_policy in ("explicit", "all"):
        config.ack_wait = ACK_WAIT_NS
    if config.backoff:
        text = "first backoff value has to equal batch AckWait"
        refuse_if_pedantic(config.ack_wait != config.backoff[0], text)
        config.ack_wait = config.backoff[0]
    own = limits.stream.consumer_limits
    if config.max_ack_pending == 0:
        text = "max_ack_pending must be set if it's configured in stream limits"
        refuse_if_pedantic(own.max_ack_pending > 0, text)
        config.max_ack_pending = own.max_ack_pending
    if config.inactive_threshold == 0:
        text = "inactive_threshold must be set if it's configured in stream limits"
        refuse_if_pedantic(own.inactive_threshold > 0, text)
        config.inactive_threshold = own.inactive_threshold
    if config.max_ack_pending == 0 and config.ack_policy != "none":
        config.max_ack_pending = default_ack_pending(limits)
    if not config.is_push and config.max_batch == 0 and limits.server.max_request_batch > 0:
        refuse_if_pedantic(True, "max_request_batch must be set if it's JetStream limits are set")
        config.max_batch = limits.server.max_request_batch
    if config.priority_policy == "pinned_client" and config.priority_timeout == 0:
        config.priority_timeout = PINNED_TTL_NS
    if config.ack_policy == "flow_control" and not pedantic:
        config.flow_control = True
        config.idle_heartbeat = FLOW_CONTROL_HEARTBEAT_NS


def default_ack_pending(limits: Limits) -> int:
    most = (limits.server.max_ack_pending, limits.account.max_ack_pending)
    return min([MAX_ACK_PENDING, *(each for each in most if each > 0)])


def fill_threshold(config: ConsumerConfig) -> None:
    """Ephemeral consumers always have a time after which they go."""
    if not config.is_durable and config.inactive_threshold <= 0:
        config.inactive_threshold = INACTIVE_THRESHOLD_NS


# Refusals


def check_names(config: ConsumerConfig) -> None:
    for name, title in ((config.name, "name"), (config.durable_name, "durable name")):
        if name and not is_valid_name(name):
            raise invalid(f"consumer {title} can not contain '.', '*', '>', '\\', '/'")


def check_replicas(config: ConsumerConfig, stream: StreamConfig) -> None:
    if config.num_replicas > stream.num_replicas:
        raise errors.CONSUMER_REPLICAS_EXCEEDS_STREAM()
    if config.num_replicas < 0:
        raise errors.REPLICAS_COUNT_CANNOT_BE_NEGATIVE()
    if stream.retention != "limits" and config.num_replicas not in (0, stream.num_replicas):
        raise errors.CONSUMER_REPLICAS_SHOULD_MATCH_STREAM()


def check_acks(config: ConsumerConfig) -> None:
    if any(wait_ns < 0 for wait_ns in config.backoff):
        raise errors.CONSUMER_BACK_OFF_NEGATIVE()
    if config.ack_wait < 0:
        raise errors.CONSUMER_ACK_WAIT_NEGATIVE()
    if config.ack_policy == "flow_control":
        check_flow_control_acks(config)
    check_backoff(config)


def check_flow_control_acks(config: ConsumerConfig) -> None:
    if not config.is_push:
        raise errors.CONSUMER_ACK_FC_REQUIRES_PUSH()
    if not config.flow_control:
        raise errors.CONSUMER_ACK_FC_REQUIRES_FC()
    if config.idle_heartbeat != FLOW_CONTROL_HEARTBEAT_NS:
        raise invalid("flow control ack policy heartbeat needs to be 1s")
    if config.max_ack_pending <= 0:
        raise errors.CONSUMER_ACK_FC_REQUIRES_MAX_ACK_PENDING()
    if config.ack_wait or config.backoff:
        raise errors.CONSUMER_ACK_FC_REQUIRES_NO_ACK_WAIT()
    if config.max_deliver > 0:
        raise errors.CONSUMER_ACK_FC_REQUIRES_NO_MAX_DELIVER()


def check_backoff(config: ConsumerConfig) -> None:
    if config.backoff and config.max_deliver != -1 and len(config.backoff) > config.max_deliver:
        raise errors.CONSUMER_MAX_DELIVER_BACKOFF()


def check_push(config: ConsumerConfig, stream: StreamConfig) -> None:
    subject = config.deliver_subject
    if has_wildcards(subject):
        raise errors.CONSUMER_DELIVER_TO_WILDCARDS()
    if not is_valid_subject(subject):
        raise errors.CONSUMER_INVALID_DELIVER_SUBJECT()
    if any(is_subset(subject, own) for own in stream.subjects):
        raise errors.CONSUMER_DELIVER_CYCLE()
    if config.max_waiting:
        raise errors.CONSUMER_PUSH_MAX_WAITING()
    if config.max_ack_pending > 0 and config.ack_policy == "none":
        raise errors.CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED()
    if 0 < config.idle_heartbeat < HEARTBEAT_MIN_NS:
        raise errors.CONSUMER_SMALL_HEARTBEAT()


def check_pull(config: ConsumerConfig, limits: Limits) -> None:
    if config.ack_policy == "none" and limits.stream.retention == "workqueue":
        raise errors.CONSUMER_PULL_REQUIRES_ACK()
    if config.rate_limit_bps > 0:
        raise errors.CONSUMER_PULL_WITH_RATE_LIMIT()
    if config.idle_heartbeat > 0:
        raise errors.CONSUMER_HB_REQUIRES_PUSH()
    if config.flow_control:
        raise errors.CONSUMER_FC_REQUIRES_PUSH()
    if 0 < config.max_expires < MILLISECOND_NS:
        raise errors.CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL()
    most = limits.server.max_request_batch
    if 0 < most < config.max_batch:
        raise errors.CONSUMER_MAX_REQUEST_BATCH_EXCEEDED(limit=most)


def check_limits(config: ConsumerConfig, limits: Limits) -> None:
    own = limits.stream.consumer_limits
    for most in (
        limits.server.max_ack_pending,
        limits.account.max_ack_pending,
        own.max_ack_pending,
    ):
        if 0 < most < config.max_ack_pending:
            raise errors.CONSUMER_MAX_PENDING_ACK_EXCESS(limit=most)
    if 0 < own.inactive_threshold < config.inactive_threshold:
        limit = duration_text(own.inactive_threshold)
        raise errors.CONSUMER_INACTIVE_THRESHOLD_EXCESS(limit=limit)
    if config.direct and not config.is_push:
        raise errors.CONSUMER_DIRECT_REQUIRES_PUSH()
    if config.direct and config.is_durable:
        raise errors.CONSUMER_DIRECT_REQUIRES_EPHEMERAL()


def check_filters(config: ConsumerConfig) -> None:
    if config.filter_subject and config.filter_subjects:
        raise errors.CONSUMER_DUPLICATE_FILTER_SUBJECTS()
    if "" in config.filter_subjects:
        raise errors.CONSUMER_EMPTY_FILTER()
    filters = config.filters
    for at, subject in enumerate(filters):
        if not is_valid_subject(subject):
            raise invalid("invalid subject")
        others = filters[:at] + filters[at + 1 :]
        if any(is_subset(subject, other) for other in others):
            raise errors.CONSUMER_OVERLAPPING_SUBJECT_FILTERS()


# policy -> its words in a refusal
START_WORDS: Final = {
    "all": "all",
    "last": "last",
    "last_per_subject": "last per subject",
    "new": "new",
    "by_start_sequence": "by start sequence",
    "by_start_time": "by start time",
}


def check_start(config: ConsumerConfig) -> None:
    policy = config.deliver_policy
    words = START_WORDS[policy]

    def also_set(what: str) -> ApiError:
        text = f"consumer delivery policy is deliver {words}, but optional start {what} is also set"
        return errors.CONSUMER_INVALID_POLICY(err=text)

    def not_set(what: str) -> ApiError:
        text = f"consumer delivery policy is deliver {words}, but optional {what} is not set"
        return errors.CONSUMER_INVALID_POLICY(err=text)

    has_seq, has_time = config.opt_start_seq > 0, config.opt_start_time is not None
    match policy:
        case "by_start_sequence" if not has_seq:
            raise not_set("start sequence")
        case "by_start_time" if not has_time:
            raise not_set("start time")
        case "by_start_time" if has_seq:
            raise also_set("start sequence")
    if has_seq and policy not in ("by_start_sequence", "by_start_time"):
        raise also_set("sequence")
    if has_time and policy != "by_start_time":
        raise also_set("time")
    if policy == "last_per_subject" and not config.filters:
        raise not_set("filter subject")


def check_sampling(text: str) -> None:
    if not text:
        return
    number = text.removesuffix("%")
    if not INTEGER.fullmatch(number):
        problem = f"strconv.Atoi: parsing {quoted(number)}: invalid syntax"
        raise errors.CONSUMER_INVALID_SAMPLING(err=problem)
    if not -INT64_MAX - 1 <= int(number) <= INT64_MAX:
        problem = f"strconv.Atoi: parsing {quoted(number)}: value out of range"
        raise errors.CONSUMER_INVALID_SAMPLING(err=problem)
    if int(number) < 0:
        # The reference has no words for it either.
        raise errors.CONSUMER_INVALID_SAMPLING(err="<nil>")


def check_priority(config: ConsumerConfig) -> None:
    if config.priority_policy == "none":
        if config.priority_groups:
            raise errors.CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE()
        if config.priority_timeout > 0:
            raise errors.CONSUMER_PINNED_TTL_WITHOUT_PRIORITY_POLICY_NONE()
        return
    if config.is_push:
        raise errors.CONSUMER_PUSH_WITH_PRIORITY_GROUP()
    if not config.priority_groups:
        raise errors.CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP()
    for group in config.priority_groups:
        if not group:
            raise errors.CONSUMER_EMPTY_GROUP_NAME()
        if not GROUP_NAME.fullmatch(group):
            raise errors.CONSUMER_INVALID_GROUP_NAME()


# Next to others, and over time


def check_work_queue(
    config: ConsumerConfig, name: str, others: Iterable[tuple[str, ConsumerConfig]]
) -> None:
    """Whether a new consumer may be on a work queue next to the others."""
    if config.ack_policy not in ("explicit", "flow_control"):
        raise errors.CONSUMER_WQ_REQUIRES_EXPLICIT_ACK()
    if config.deliver_policy != "all":
        raise errors.CONSUMER_WQ_CONSUMER_NOT_DELIVER_ALL()
    public = [(n, other) for n, other in others if is_limited(other)]
    if public and not config.filters:
        raise errors.CONSUMER_WQ_MULTIPLE_UNFILTERED()
    if not is_partition(config, name, public):
        raise errors.CONSUMER_WQ_CONSUMER_NOT_UNIQUE()


def is_limited(config: ConsumerConfig) -> bool:
    """Whether a consumer counts; those that other streams make do not."""
    return not config.direct and not config.sourcing


def is_partition(
    config: ConsumerConfig, name: str, others: Iterable[tuple[str, ConsumerConfig]]
) -> bool:
    """Whether no other consumer hears what this one asks for."""
    for other_name, other in others:
        if other_name == name or not is_limited(other) or not config.filters:
            continue
        if not other.filters or any(
            overlaps(mine, theirs) for mine in config.filters for theirs in other.filters
        ):
            return False
    return True


# field -> the words of its refusal, in the order they are asked
FIXED: Final = (
    ("deliver_policy", "deliver policy can not be updated"),
    ("mem_storage", "storage type can not be updated"),
    ("direct", "direct can not be updated"),
    ("sourcing", "sourcing can not be updated"),
    ("opt_start_seq", "start sequence can not be updated"),
    ("opt_start_time", "start time can not be updated"),
    ("ack_policy", "ack policy can not be updated"),
    ("replay_policy", "replay policy can not be updated"),
    ("idle_heartbeat", "heart beats can not be updated"),
    ("flow_control", "flow control can not be updated"),
)


def check_update(
    old: ConsumerConfig, new: ConsumerConfig, has_interest: Callable[[str], bool]
) -> None:
    """ApiError when the one cannot become the other."""
    for name, text in FIXED:
        if moment_or_value(old, name) != moment_or_value(new, name):
            raise errors.CONSUMER_CREATE(err=text)
    if old.deliver_subject != new.deliver_subject:
        if not old.is_push:
            raise errors.CONSUMER_CREATE(err="can not update pull consumer to push based")
        if not new.is_push:
            raise errors.CONSUMER_CREATE(err="can not update push consumer to pull based")
        if has_interest(old.deliver_subject):
            raise errors.CONSUMER_NAME_EXIST()
    if old.max_waiting != new.max_waiting:
        raise errors.CONSUMER_CREATE(err="max waiting can not be updated")
    check_backoff(new)


def moment_or_value(config: ConsumerConfig, name: str) -> object:
    """A field to compare: one moment can be written in several ways."""
    if name == "opt_start_time" and config.opt_start_time is not None:
        return time_ns(config.opt_start_time)
    value: object = getattr(config, name)
    return value


def check_reset(config: ConsumerConfig, seq: int, seq_of_time: Callable[[int], int]) -> None:
    """ApiError when a consumer may not be set to `seq`; 0 (behind its ack floor) always may."""
    if seq == 0 or config.deliver_policy == "all":
        return
    if config.deliver_policy == "by_start_sequence":
        if seq < config.opt_start_seq:
            raise errors.CONSUMER_INVALID_RESET(err="below start seq")
        return
    if config.deliver_policy == "by_start_time" and config.opt_start_time is not None:
        if seq < seq_of_time(store_ns(config.opt_start_time)):
            raise errors.CONSUMER_INVALID_RESET(err="below start time")
        return
    raise errors.CONSUMER_INVALID_RESET(err="not allowed")


def check_durable_length(config: ConsumerConfig) -> None:
    if len(config.durable_name.encode()) > NAME_BYTES_MAX:
        raise errors.CONSUMER_NAME_TOO_LONG(max=NAME_BYTES_MAX)
