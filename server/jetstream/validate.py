"""Defaults, refusals and update rules of a stream's configuration. Pure: look-ups are arguments.

The order of the checks is the reference's: the first broken rule is the one that is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from config.limits import MILLISECOND_NS, SECOND_NS
from config.options import AccountJetStreamOptions
from server.core.subject import is_subset, is_valid_literal, is_valid_subject, overlaps
from server.core.transform import SubjectTransform, TransformError, check_mapping
from server.jetstream import errors
from server.jetstream.apierror import ApiError
from server.jetstream.config import (
    Placement,
    StreamConfig,
    StreamConsumerSource,
    StreamSource,
    SubjectTransformConfig,
)
from server.jetstream.gotime import duration_text
from server.jetstream.subjectindex import any_covered, first_overlap

NAME_BYTES_MAX: Final = 255
DESCRIPTION_BYTES_MAX: Final = 4096
METADATA_BYTES_MAX: Final = 128 * 1024
REPLICAS_MAX: Final = 5
DUPLICATE_WINDOW_NS: Final = 120 * SECOND_NS
SHORTEST_NS: Final = 100 * MILLISECOND_NS
NOT_IN_NAMES: Final = frozenset(" \t\r\n\f.*>\\/")
API_PREFIX: Final = "$JS.API"
NO_SUBJECT: Final = " "
"""In place of an empty subject: one token that no subject has."""
UNLIMITED_FIELDS: Final = (
    "max_msgs",
    "max_msgs_per_subject",
    "max_bytes",
    "max_msg_size",
    "max_consumers",
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a configuration is checked against, beside itself."""

    limits: AccountJetStreamOptions
    duplicate_window_max_ns: int  # 0: no limit of the server
    config_of: Callable[[str], StreamConfig | None]  # another stream of the account


def invalid(text: str) -> ApiError:
    return errors.STREAM_INVALID_CONFIG(err=text)


def pedantic_error(text: str) -> ApiError:
    return errors.PEDANTIC(err=text)


def is_valid_name(name: str) -> bool:
    return bool(name) and NOT_IN_NAMES.isdisjoint(name)


def check_config(asked: StreamConfig, around: Surroundings, pedantic: bool) -> StreamConfig:
    """The configuration with its defaults; ApiError when it cannot be."""
    config = asked.copy()
    check_texts(config)
    fill_limits(config, pedantic)
    check_times(config, around, pedantic)
    check_features(config, pedantic)
    origin_subjects: list[str] = []
    if config.mirror is not None:
        origin_subjects += check_mirror(config, config.mirror, around, pedantic)
    if config.sources and config.allow_msg_schedules:
        raise errors.SOURCE_WITH_MSG_SCHEDULES()
    origin_subjects += check_sources(config, around)
    check_externals(config, origin_subjects)
    check_cycles(config, around)
    check_subjects(config)
    check_max_bytes(config, around.limits)
    check_transform(config)
    check_republish(config, pedantic)
    if config.placement is not None:
        if config.placement == Placement():
            config.placement = None
        elif config.placement.preferred:
            raise invalid("preferred server not permitted in placement")
    return config


def check_texts(config: StreamConfig) -> None:
    if not is_valid_name(config.name):
        raise invalid("stream name is required and can not contain '.', '*', '>', '\\', '/'")
    if len(config.name.encode()) > NAME_BYTES_MAX:
        raise invalid(f"stream name is too long, maximum allowed is {NAME_BYTES_MAX}")
    if len(config.description.encode()) > DESCRIPTION_BYTES_MAX:
        most = DESCRIPTION_BYTES_MAX
        raise invalid(f"stream description is too long, maximum allowed is {most}")
    metadata = config.metadata or {}
    if sum(len(k.encode()) + len(v.encode()) for k, v in metadata.items()) > METADATA_BYTES_MAX:
        raise invalid(f"stream metadata exceeds maximum size of {METADATA_BYTES_MAX} bytes")


def fill_limits(config: StreamConfig, pedantic: bool) -> None:
    if config.num_replicas == 0:
        config.num_replicas = 1
    if config.num_replicas > REPLICAS_MAX:
        raise invalid(f"maximum replicas is {REPLICAS_MAX}")
    if config.num_replicas < 0:
        raise errors.REPLICAS_COUNT_CANNOT_BE_NEGATIVE()
    for name in UNLIMITED_FIELDS:
        value = getattr(config, name)
        if value < -1 and pedantic:
            raise pedantic_error(f"{name} must be set to -1")
        if value == 0 or value < -1:
            setattr(config, name, -1)


def check_times(config: StreamConfig, around: Surroundings, pedantic: bool) -> None:
    age = config.max_age
    if age < 0:
        raise invalid("max age can not be negative")
    if 0 < age < SHORTEST_NS:
        raise invalid("max age needs to be >= 100ms")
    most = around.duplicate_window_max_ns
    if config.duplicate_window == 0 and config.mirror is None and not config.sources:
        config.duplicate_window = default_window(age, most, pedantic)
    window = config.duplicate_window
    if window < 0:
        raise invalid("duplicates window can not be negative")
    if age and window > age:
        raise invalid("duplicates window can not be larger then max age")
    if 0 < most < window:
        limit = duration_text(most)
        raise invalid(f"duplicates window can not be larger then server limit of {limit}")
    if 0 < window < SHORTEST_NS:
        raise invalid("duplicates window needs to be >= 100ms")


def default_window(age_ns: int, most_ns: int, pedantic: bool) -> int:
    window = DUPLICATE_WINDOW_NS
    if 0 < most_ns < window:
        if pedantic:
            raise pedantic_error("duplicate window limits are higher than current limits")
        window = most_ns
    if 0 < age_ns < window:
        if pedantic:
            raise pedantic_error("duplicate window cannot be bigger than max age")
        window = age_ns
    return window


def check_features(config: StreamConfig, pedantic: bool) -> None:
    if config.deny_purge and config.allow_rollup_hdrs:
        raise invalid("roll-ups require the purge permission")
    if config.allow_msg_counter:
        check_counter(config)
    check_discard(config)
    check_markers(config, pedantic)
    if config.allow_msg_schedules:
        if config.discard == "new":
            raise invalid("message scheduling cannot use discard new")
        imply_rollup(config, pedantic, "message scheduling")
    if config.persist_mode == "async":
        if config.storage != "file":
            raise invalid("async persist mode is only supported on file storage")
        if config.num_replicas > 1:
            raise invalid("async persist mode is not supported on replicated streams")
        if config.allow_atomic:
            raise invalid("async persist mode is not supported with atomic batch publish")


def check_counter(config: StreamConfig) -> None:
    if config.discard == "new":
        raise invalid("counter stream cannot use discard new")
    if config.allow_msg_ttl:
        raise invalid("counter stream cannot use message TTLs")
    if config.allow_msg_schedules:
        raise invalid("counter stream cannot use message schedules")
    if config.retention != "limits":
        raise invalid("counter stream can only use limits retention")


def check_discard(config: StreamConfig) -> None:
    if not config.discard_new_per_subject:
        return
    if config.discard != "new":
        raise invalid("discard new per subject requires discard new policy to be set")
    if config.max_msgs_per_subject <= 0:
        raise invalid("discard new per subject requires max msgs per subject > 0")


def check_markers(config: StreamConfig, pedantic: bool) -> None:
    ttl = config.subject_delete_marker_ttl
    if ttl < 0:
        raise invalid("subject delete marker TTL must not be negative")
    if ttl == 0:
        return
    if ttl < SECOND_NS:
        raise invalid("subject delete marker TTL must be at least 1 second")
    if not config.allow_msg_ttl:
        if pedantic:
            raise invalid("subject delete marker cannot be set if message TTLs are disabled")
        config.allow_msg_ttl = True
    imply_rollup(config, pedantic, "subject delete marker")


def imply_rollup(config: StreamConfig, pedantic: bool, what: str) -> None:
    if config.allow_rollup_hdrs:
        return
    if pedantic:
        raise invalid(f"{what} cannot be set if roll-ups are disabled")
    config.allow_rollup_hdrs, config.deny_purge = True, False


# Mirrors and sources


def check_mirror(
    config: StreamConfig, mirror: StreamSource, around: Surroundings, pedantic: bool
) -> list[str]:
    """The subjects of the origin, when it is known."""
    check_mirror_alone(config)
    if not durable_consumer_fits(mirror):
        raise errors.MIRROR_DURABLE_CONSUMER_CFG_INVALID()
    if mirror.filter_subject and mirror.subject_transforms:
        raise errors.MIRROR_MULTIPLE_FILTERS_NOT_ALLOWED()
    if config.subject_delete_marker_ttl > 0:
        raise invalid("subject delete markers forbidden on mirrors")
    check_mirror_transforms(mirror.subject_transforms)
    if mirror.external is not None:
        return []
    if not is_valid_name(mirror.name):
        raise errors.MIRROR_INVALID_STREAM_NAME()
    origin = around.config_of(mirror.name)
    if origin is None:
        return []
    if 0 < config.max_msg_size < origin.max_msg_size:
        raise errors.MIRROR_MAX_MESSAGE_SIZE_TOO_BIG()
    if pedantic and config.mirror_direct != origin.allow_direct:
        raise pedantic_error("origin stream has direct get set, mirror has it disabled")
    config.mirror_direct = origin.allow_direct
    return origin.subjects


def check_mirror_alone(config: StreamConfig) -> None:
    for forbidden, refusal in (
        (config.first_seq > 0, errors.MIRROR_WITH_FIRST_SEQ),
        (bool(config.subjects), errors.MIRROR_WITH_SUBJECTS),
        (bool(config.sources), errors.MIRROR_WITH_SOURCES),
        (config.allow_msg_counter, errors.MIRROR_WITH_COUNTERS),
        (config.allow_atomic, errors.MIRROR_WITH_ATOMIC_PUBLISH),
        (config.allow_batched, errors.MIRROR_WITH_BATCH_PUBLISH),
        (config.allow_msg_schedules, errors.MIRROR_WITH_MSG_SCHEDULES),
    ):
        if forbidden:
            raise refusal()


def check_mirror_transforms(transforms: list[SubjectTransformConfig]) -> None:
    colliding = first_collision([transform.src or NO_SUBJECT for transform in transforms])
    for at, transform in enumerate(transforms):
        if transform.src and not is_valid_subject(transform.src):
            raise errors.MIRROR_INVALID_SUBJECT_FILTER(err=f"invalid subject {transform.src}")
        try:
            check_mapping(transform.src, transform.dest)
        except TransformError as error:
            raise errors.MIRROR_INVALID_TRANSFORM_DESTINATION(err=error) from error
        if colliding is not None and at == colliding[0]:
            raise errors.MIRROR_OVERLAPPING_SUBJECT_FILTERS()


def durable_consumer_fits(source: StreamSource) -> bool:
    """Whether a consumer that was made beforehand is named well and alone decides what comes."""
    consumer = source.consumer
    return consumer is None or (
        is_valid_name(consumer.name)
        and is_valid_literal(consumer.deliver_subject)
        and source.opt_start_seq == 0
        and source.opt_start_time is None
        and not source.filter_subject
    )


def check_sources(config: StreamConfig, around: Surroundings) -> list[str]:
    """The subjects of all origins that are known."""
    identities: set[object] = set()
    consumers: set[object] = set()
    origin_subjects: list[str] = []
    for source in config.sources:
        if source is None or not is_valid_name(source.name):
            raise errors.SOURCE_INVALID_STREAM_NAME()
        identity = source_identity(source)
        if identity in identities:
            raise errors.SOURCE_DUPLICATE_DETECTED()
        identities.add(identity)
        check_source(source)
        if source.consumer is not None:
            named = consumer_identity(source, source.consumer)
            if named in consumers:
                raise errors.SOURCE_DURABLE_CONSUMER_DUPLICATE_DETECTED()
            consumers.add(named)
        origin = around.config_of(source.name) if source.external is None else None
        if origin is not None:
            origin_subjects += origin.subjects
            if 0 < config.max_msg_size < origin.max_msg_size:
                raise errors.SOURCE_MAX_MESSAGE_SIZE_TOO_BIG()
    return origin_subjects


def source_identity(source: StreamSource) -> object:
    """What makes two sources the same one."""
    transforms = source.subject_transforms
    filters = [t.src or ">" for t in transforms] if transforms else [source.filter_subject or ">"]
    targets = [t.dest or ">" for t in transforms] if transforms else [">"]
    api = source.external.api if source.external is not None else None
    consumer = source.consumer.name if source.consumer is not None else None
    return source.name, api, consumer, tuple(filters), tuple(targets)


def consumer_identity(source: StreamSource, consumer: StreamConsumerSource) -> object:
    api = source.external.api if source.external is not None else None
    return source.name, api, consumer.name


def check_source(source: StreamSource) -> None:
    transforms = source.subject_transforms
    if source.filter_subject and transforms:
        raise errors.SOURCE_MULTIPLE_FILTERS_NOT_ALLOWED()
    for transform in transforms:
        if transform.src and not is_valid_subject(transform.src):
            raise errors.SOURCE_INVALID_SUBJECT_FILTER(err=f"invalid subject {transform.src}")
        try:
            check_mapping(transform.src, transform.dest)
        except TransformError as error:
            raise errors.SOURCE_INVALID_TRANSFORM_DESTINATION(err=error) from error
    if any_covered([transform.src or NO_SUBJECT for transform in transforms]):
        raise errors.SOURCE_OVERLAPPING_SUBJECT_FILTERS()
    if not durable_consumer_fits(source):
        raise errors.SOURCE_DURABLE_CONSUMER_CFG_INVALID()


def every_origin(config: StreamConfig) -> Iterator[StreamSource]:
    if config.mirror is not None:
        yield config.mirror
    yield from config.sources


def check_externals(config: StreamConfig, origin_subjects: Iterable[str]) -> None:
    externals = [o.external for o in every_origin(config) if o.external is not None]
    for prefix in (external.deliver for external in externals if external.deliver):
        if not is_valid_literal(prefix):
            raise errors.STREAM_INVALID_EXTERNAL_DELIVERY_SUBJ(prefix=prefix)
        for subject in origin_subjects:
            if overlaps(subject, f"{prefix}.{subject}"):
                raise errors.STREAM_EXTERNAL_DEL_PREFIX_OVERLAPS(prefix=prefix, subject=subject)
    for prefix in (external.api for external in externals if external.api):
        if not is_valid_literal(prefix):
            shown = f'"{prefix}"'
            raise invalid(
                f"stream external api prefix {shown} must be a valid subject without wildcards"
            )
        if overlaps(prefix, API_PREFIX):
            raise errors.STREAM_EXTERNAL_API_OVERLAP(prefix=prefix, subject=API_PREFIX)


def check_cycles(config: StreamConfig, around: Surroundings) -> None:
    """No stream may feed itself through its sources and mirrors in this account."""
    waiting, visited = [config], set()
    while waiting:
        current = waiting.pop(0)
        visited.add(current.name)
        for source in current.sources:
            if source.external is not None:
                continue
            if source.name in visited:
                if feeds(current.subjects, source.filter_subject):
                    raise invalid("detected cycle")
            elif (origin := around.config_of(source.name)) is not None:
                waiting.append(origin)
        mirror = current.mirror
        if mirror is not None and mirror.external is None:
            if mirror.name in visited:
                raise invalid("detected cycle")
            if (origin := around.config_of(mirror.name)) is not None:
                waiting.append(origin)


def feeds(subjects: list[str], filter_subject: str) -> bool:
    return not filter_subject or any(collide(subject, filter_subject) for subject in subjects)


def collide(one: str, other: str) -> bool:
    return overlaps(one, other)


# Subjects and what is done with them


def check_subjects(config: StreamConfig) -> None:
    if not config.subjects:
        if config.mirror is None and not config.sources:
            config.subjects = [config.name]
        return
    colliding = first_collision(config.subjects)
    for at, subject in enumerate(config.subjects):
        if not is_valid_subject(subject):
            raise invalid("invalid subject")
        check_reserved(config, subject)
        if colliding is not None and at == colliding[0]:
            other = config.subjects[colliding[1]]
            raise invalid(f'subject "{subject}" overlaps with "{other}"')


def first_collision(subjects: list[str]) -> tuple[int, int] | None:
    """The places of the first two of the valid ones that overlap."""
    valid = [at for at, each in enumerate(subjects) if each == NO_SUBJECT or is_valid_subject(each)]
    found = first_overlap([subjects[at] for at in valid])
    return None if found is None else (valid[found[0]], valid[found[1]])


def check_reserved(config: StreamConfig, subject: str) -> None:
    """What the server itself speaks on may only be captured without acks."""
    if subject == ">":
        if not config.no_ack:
            raise invalid("capturing all subjects requires no-ack to be true")
        if config.num_replicas != 1:
            raise invalid("capturing all subjects requires replicas of 1")
    if config.no_ack:
        return
    for space in ("$JS.>", "$JSC.>", "$NRG.>"):
        if overlaps(subject, space) and not is_subset(subject, "$JS.EVENT.>"):
            raise invalid("subjects that overlap with jetstream api require no-ack to be true")
    if overlaps(subject, "$SYS.>") and not is_subset(subject, "$SYS.ACCOUNT.>"):
        raise invalid("subjects that overlap with system api require no-ack to be true")


def check_max_bytes(config: StreamConfig, limits: AccountJetStreamOptions) -> None:
    in_memory = config.storage == "memory"
    most = limits.memory_max_stream_bytes if in_memory else limits.store_max_stream_bytes
    if limits.max_bytes_required and config.max_bytes <= 0:
        raise errors.STREAM_MAX_BYTES_REQUIRED()
    if 0 < most < config.max_bytes:
        raise errors.STREAM_MAX_STREAM_BYTES_EXCEEDED()


def check_transform(config: StreamConfig) -> None:
    transform = config.subject_transform
    if transform is None:
        return
    if transform.src and not is_valid_subject(transform.src):
        raise errors.STREAM_TRANSFORM_INVALID_SOURCE(err=f"invalid subject {transform.src}")
    try:
        check_mapping(transform.src, transform.dest)
    except TransformError as error:
        raise errors.STREAM_TRANSFORM_INVALID_DESTINATION(err=error) from error


def check_republish(config: StreamConfig, pedantic: bool) -> None:
    republish, transform = config.republish, config.subject_transform
    if republish is None:
        return
    if not republish.src:
        if pedantic:
            raise pedantic_error("republish source can not be empty")
        republish.src = ">"
    if (
        republish.src == republish.dest == ">"
        and transform is not None
        and config.subjects == [transform.src]
    ):
        if pedantic:
            raise pedantic_error("implicit republish based on subject transform")
        republish.src = republish.dest = transform.dest
    if republish.dest and any(collide(republish.dest, subject) for subject in config.subjects):
        raise invalid("stream configuration for republish destination forms a cycle")
    if not republish.dest:
        return
    try:
        SubjectTransform(republish.src, republish.dest)
    except TransformError as error:
        raise invalid(
            f"stream configuration for republish with transform from '{republish.src}' to "
            f"'{republish.dest}' not valid"
        ) from error


def check_filters(config: StreamConfig) -> None:
    """Filters of mirror and sources: looked at only when the stream is really made."""
    if config.mirror is not None and not config.mirror.subject_transforms:
        wanted = config.mirror.filter_subject
        if wanted and not is_valid_subject(wanted):
            raise errors.STREAM_CREATE(
                err=f"subject filter '{wanted}' for the mirror invalid subject"
            )
    for source in config.sources:
        wanted = source.filter_subject
        if not source.subject_transforms and wanted and not is_valid_subject(wanted):
            raise errors.STREAM_CREATE(
                err=f"subject filter '{wanted}' for the source: invalid subject"
            )


# Updates


def check_update(
    old: StreamConfig, asked: StreamConfig, around: Surroundings, pedantic: bool
) -> StreamConfig:
    """The new configuration of a stream; ApiError when the change may not be made."""
    config = check_config(asked, around, pedantic)
    if config.name != old.name:
        raise invalid("stream configuration name must match original")
    if config.num_replicas > 1:
        raise errors.STREAM_REPLICAS_NOT_SUPPORTED()
    check_one_way(old, config)
    if config.mirror is not None and config.mirror != old.mirror:
        raise errors.STREAM_MIRROR_NOT_UPDATABLE()
    check_discard(config)
    check_features_kept(old, config)
    if config.sealed:
        config.max_age, config.discard = 0, "new"
        config.deny_delete = config.deny_purge = True
        config.allow_rollup_hdrs = False
    return config


def check_one_way(old: StreamConfig, new: StreamConfig) -> None:
    change = "stream configuration update can not "
    if new.storage != old.storage:
        raise invalid(change + "change storage type")
    if new.retention != old.retention and "workqueue" in (new.retention, old.retention):
        raise invalid(change + "change retention policy to/from workqueue")
    if old.sealed and not new.sealed:
        raise invalid(change + "unseal a sealed stream")
    if old.deny_delete and not new.deny_delete:
        raise invalid(change + "cancel deny message deletes")
    if old.deny_purge and not new.deny_purge:
        raise invalid(change + "cancel deny purge")


def check_features_kept(old: StreamConfig, new: StreamConfig) -> None:
    if old.allow_msg_ttl and not new.allow_msg_ttl:
        raise invalid("message TTL status can not be disabled")
    if old.allow_msg_counter != new.allow_msg_counter:
        raise invalid("stream configuration update can not change message counter setting")
    if old.allow_msg_schedules and not new.allow_msg_schedules:
        raise invalid("message schedules can not be disabled")
    if old.persist_mode != new.persist_mode:
        raise invalid("stream configuration update can not change persist mode")
