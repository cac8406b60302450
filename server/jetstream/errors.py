"""Every API error by name. Made from docs/features/jetstream-errors.tsv: `make docs`."""

from typing import Final

from server.jetstream.apierror import ErrorKind

ACCOUNT_RESOURCES_EXCEEDED: Final = ErrorKind(10002, 400, "resource limits exceeded for account")
BAD_REQUEST: Final = ErrorKind(10003, 400, "bad request")
CLUSTER_INCOMPLETE: Final = ErrorKind(10004, 503, "incomplete results")
CLUSTER_NO_PEERS: Final = ErrorKind(10005, 400, "{err}")
CLUSTER_NOT_ACTIVE: Final = ErrorKind(10006, 500, "JetStream not in clustered mode")
CLUSTER_NOT_ASSIGNED: Final = ErrorKind(10007, 500, "JetStream cluster not assigned to this server")
CLUSTER_NOT_AVAIL: Final = ErrorKind(10008, 503, "JetStream system temporarily unavailable")
CLUSTER_NOT_LEADER: Final = ErrorKind(10009, 500, "JetStream cluster can not handle request")
CLUSTER_REQUIRED: Final = ErrorKind(10010, 503, "JetStream clustering support required")
CLUSTER_TAGS: Final = ErrorKind(10011, 400, "tags placement not supported for operation")
CONSUMER_CREATE: Final = ErrorKind(10012, 500, "{err}")
CONSUMER_NAME_EXIST: Final = ErrorKind(10013, 400, "consumer name already in use")
CONSUMER_NOT_FOUND: Final = ErrorKind(10014, 404, "consumer not found")
SNAPSHOT_DELIVER_SUBJECT_INVALID: Final = ErrorKind(10015, 400, "deliver subject not valid")
CONSUMER_DURABLE_NAME_NOT_IN_SUBJECT: Final = ErrorKind(
    10016, 400, "consumer expected to be durable but no durable name set in subject"
)
CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT: Final = ErrorKind(
    10017, 400, "consumer name in subject does not match durable name in request"
)
CONSUMER_DURABLE_NAME_NOT_SET: Final = ErrorKind(
    10018, 400, "consumer expected to be durable but a durable name was not set"
)
CONSUMER_EPHEMERAL_WITH_DURABLE_IN_SUBJECT: Final = ErrorKind(
    10019, 400, "consumer expected to be ephemeral but detected a durable name set in subject"
)
CONSUMER_EPHEMERAL_WITH_DURABLE_NAME: Final = ErrorKind(
    10020, 400, "consumer expected to be ephemeral but a durable name was set in request"
)
STREAM_EXTERNAL_API_OVERLAP: Final = ErrorKind(
    10021, 400, "stream external api prefix {prefix} must not overlap with {subject}"
)
STREAM_EXTERNAL_DEL_PREFIX_OVERLAPS: Final = ErrorKind(
    10022, 400, "stream external delivery prefix {prefix} overlaps with stream subject {subject}"
)
INSUFFICIENT_RESOURCES: Final = ErrorKind(10023, 503, "insufficient resources")
STREAM_INVALID_EXTERNAL_DELIVERY_SUBJ: Final = ErrorKind(
    10024, 400, "stream external delivery prefix {prefix} must not contain wildcards"
)
INVALID_JSON: Final = ErrorKind(10025, 400, "invalid JSON: {err}")
MAXIMUM_CONSUMERS_LIMIT: Final = ErrorKind(10026, 400, "maximum consumers limit reached")
MAXIMUM_STREAMS_LIMIT: Final = ErrorKind(10027, 400, "maximum number of streams reached")
MEMORY_RESOURCES_EXCEEDED: Final = ErrorKind(10028, 500, "insufficient memory resources available")
MIRROR_CONSUMER_SETUP_FAILED: Final = ErrorKind(10029, 500, "{err}")
MIRROR_MAX_MESSAGE_SIZE_TOO_BIG: Final = ErrorKind(
    10030, 400, "stream mirror must have max message size >= source"
)
MIRROR_WITH_SOURCES: Final = ErrorKind(
    10031, 400, "stream mirrors can not also contain other sources"
)
MIRROR_WITH_START_SEQ_AND_TIME: Final = ErrorKind(
    10032, 400, "stream mirrors can not have both start seq and start time configured"
)
MIRROR_WITH_SUBJECT_FILTERS: Final = ErrorKind(
    10033, 400, "stream mirrors can not contain filtered subjects"
)
MIRROR_WITH_SUBJECTS: Final = ErrorKind(10034, 400, "stream mirrors can not contain subjects")
NO_ACCOUNT: Final = ErrorKind(10035, 503, "account not found")
CLUSTER_UN_SUPPORT_FEATURE: Final = ErrorKind(
    10036, 503, "not currently supported in clustered mode"
)
NO_MESSAGE_FOUND: Final = ErrorKind(10037, 404, "no message found")
NOT_EMPTY_REQUEST: Final = ErrorKind(10038, 400, "expected an empty request payload")
NOT_ENABLED_FOR_ACCOUNT: Final = ErrorKind(10039, 503, "JetStream not enabled for account")
CLUSTER_PEER_NOT_MEMBER: Final = ErrorKind(10040, 400, "peer not a member")
RAFT_GENERAL: Final = ErrorKind(10041, 500, "{err}")
RESTORE_SUBSCRIBE_FAILED: Final = ErrorKind(
    10042, 500, "JetStream unable to subscribe to restore snapshot {subject}: {err}"
)
SEQUENCE_NOT_FOUND: Final = ErrorKind(10043, 400, "sequence {seq} not found")
CLUSTER_SERVER_NOT_MEMBER: Final = ErrorKind(10044, 400, "server is not a member of the cluster")
SOURCE_CONSUMER_SETUP_FAILED: Final = ErrorKind(10045, 500, "{err}")
SOURCE_MAX_MESSAGE_SIZE_TOO_BIG: Final = ErrorKind(
    10046, 400, "stream source must have max message size >= target"
)
STORAGE_RESOURCES_EXCEEDED: Final = ErrorKind(
    10047, 500, "insufficient storage resources available"
)
STREAM_ASSIGNMENT: Final = ErrorKind(10048, 500, "{err}")
STREAM_CREATE: Final = ErrorKind(10049, 500, "{err}")
STREAM_DELETE: Final = ErrorKind(10050, 500, "{err}")
STREAM_GENERAL_ERROR: Final = ErrorKind(10051, 500, "{err}")
STREAM_INVALID_CONFIG: Final = ErrorKind(10052, 500, "{err}")
STREAM_LIMITS: Final = ErrorKind(10053, 500, "{err}")
STREAM_MESSAGE_EXCEEDS_MAXIMUM: Final = ErrorKind(
    10054, 400, "message size exceeds maximum allowed"
)
STREAM_MIRROR_NOT_UPDATABLE: Final = ErrorKind(
    10055, 400, "stream mirror configuration can not be updated"
)
STREAM_MISMATCH: Final = ErrorKind(10056, 400, "stream name in subject does not match request")
STREAM_MSG_DELETE_FAILED: Final = ErrorKind(10057, 500, "{err}")
STREAM_NAME_EXIST: Final = ErrorKind(
    10058, 400, "stream name already in use with a different configuration"
)
STREAM_NOT_FOUND: Final = ErrorKind(10059, 404, "stream not found")
STREAM_NOT_MATCH: Final = ErrorKind(10060, 400, "expected stream does not match")
STREAM_REPLICAS_NOT_UPDATABLE: Final = ErrorKind(
    10061, 400, "Replicas configuration can not be updated"
)
STREAM_RESTORE: Final = ErrorKind(10062, 500, "restore failed: {err}")
STREAM_SEQUENCE_NOT_MATCH: Final = ErrorKind(10063, 503, "expected stream sequence does not match")
STREAM_SNAPSHOT: Final = ErrorKind(10064, 500, "snapshot failed: {err}")
STREAM_SUBJECT_OVERLAP: Final = ErrorKind(10065, 400, "subjects overlap with an existing stream")
STREAM_TEMPLATE_CREATE: Final = ErrorKind(10066, 500, "{err}")
STREAM_TEMPLATE_DELETE: Final = ErrorKind(10067, 500, "{err}")
STREAM_TEMPLATE_NOT_FOUND: Final = ErrorKind(10068, 404, "template not found")
STREAM_UPDATE: Final = ErrorKind(10069, 500, "{err}")
STREAM_WRONG_LAST_MSG_ID: Final = ErrorKind(10070, 400, "wrong last msg ID: {id}")
STREAM_WRONG_LAST_SEQUENCE: Final = ErrorKind(10071, 400, "wrong last sequence: {seq}")
TEMP_STORAGE_FAILED: Final = ErrorKind(
    10072, 500, "JetStream unable to open temp storage for restore"
)
TEMPLATE_NAME_NOT_MATCH_SUBJECT: Final = ErrorKind(
    10073, 400, "template name in subject does not match request"
)
STREAM_REPLICAS_NOT_SUPPORTED: Final = ErrorKind(
    10074, 500, "replicas > 1 not supported in non-clustered mode"
)
PEER_REMAP: Final = ErrorKind(10075, 503, "peer remap failed")
NOT_ENABLED: Final = ErrorKind(10076, 503, "JetStream not enabled")
STREAM_STORE_FAILED: Final = ErrorKind(10077, 503, "{err}")
CONSUMER_CONFIG_REQUIRED: Final = ErrorKind(10078, 400, "consumer config required")
CONSUMER_DELIVER_TO_WILDCARDS: Final = ErrorKind(
    10079, 400, "consumer deliver subject has wildcards"
)
CONSUMER_PUSH_MAX_WAITING: Final = ErrorKind(
    10080, 400, "consumer in push mode can not set max waiting"
)
CONSUMER_DELIVER_CYCLE: Final = ErrorKind(10081, 400, "consumer deliver subject forms a cycle")
CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED: Final = ErrorKind(
    10082, 400, "consumer requires ack policy for max ack pending"
)
CONSUMER_SMALL_HEARTBEAT: Final = ErrorKind(
    10083, 400, "consumer idle heartbeat needs to be >= 100ms"
)
CONSUMER_PULL_REQUIRES_ACK: Final = ErrorKind(
    10084, 400, "consumer in pull mode requires explicit ack policy on workqueue stream"
)
CONSUMER_PULL_NOT_DURABLE: Final = ErrorKind(
    10085, 400, "consumer in pull mode requires a durable name"
)
CONSUMER_PULL_WITH_RATE_LIMIT: Final = ErrorKind(
    10086, 400, "consumer in pull mode can not have rate limit set"
)
CONSUMER_MAX_WAITING_NEGATIVE: Final = ErrorKind(
    10087, 400, "consumer max waiting needs to be positive"
)
CONSUMER_HB_REQUIRES_PUSH: Final = ErrorKind(
    10088, 400, "consumer idle heartbeat requires a push based consumer"
)
CONSUMER_FC_REQUIRES_PUSH: Final = ErrorKind(
    10089, 400, "consumer flow control requires a push based consumer"
)
CONSUMER_DIRECT_REQUIRES_PUSH: Final = ErrorKind(
    10090, 400, "consumer direct requires a push based consumer"
)
CONSUMER_DIRECT_REQUIRES_EPHEMERAL: Final = ErrorKind(
    10091, 400, "consumer direct requires an ephemeral consumer"
)
CONSUMER_ON_MAPPED: Final = ErrorKind(10092, 400, "consumer direct on a mapped consumer")
CONSUMER_FILTER_NOT_SUBSET: Final = ErrorKind(
    10093, 400, "consumer filter subject is not a valid subset of the interest subjects"
)
CONSUMER_INVALID_POLICY: Final = ErrorKind(10094, 400, "{err}")
CONSUMER_INVALID_SAMPLING: Final = ErrorKind(
    10095, 400, "failed to parse consumer sampling configuration: {err}"
)
STREAM_INVALID: Final = ErrorKind(10096, 500, "stream not valid")
STREAM_HEADER_EXCEEDS_MAXIMUM: Final = ErrorKind(
    10097, 400, "header size exceeds maximum allowed of 64k"
)
CONSUMER_WQ_REQUIRES_EXPLICIT_ACK: Final = ErrorKind(
    10098, 400, "workqueue stream requires explicit ack"
)
CONSUMER_WQ_MULTIPLE_UNFILTERED: Final = ErrorKind(
    10099, 400, "multiple non-filtered consumers not allowed on workqueue stream"
)
CONSUMER_WQ_CONSUMER_NOT_UNIQUE: Final = ErrorKind(
    10100, 400, "filtered consumer not unique on workqueue stream"
)
CONSUMER_WQ_CONSUMER_NOT_DELIVER_ALL: Final = ErrorKind(
    10101, 400, "consumer must be deliver all on workqueue stream"
)
CONSUMER_NAME_TOO_LONG: Final = ErrorKind(
    10102, 400, "consumer name is too long, maximum allowed is {max}"
)
CONSUMER_BAD_DURABLE_NAME: Final = ErrorKind(
    10103, 400, "durable name can not contain '.', '*', '>'"
)
CONSUMER_STORE_FAILED: Final = ErrorKind(10104, 500, "error creating store for consumer: {err}")
CONSUMER_EXISTING_ACTIVE: Final = ErrorKind(
    10105, 400, "consumer already exists and is still active"
)
CONSUMER_REPLACEMENT_WITH_DIFFERENT_NAME: Final = ErrorKind(
    10106, 400, "consumer replacement durable config not the same"
)
CONSUMER_DESCRIPTION_TOO_LONG: Final = ErrorKind(
    10107, 400, "consumer description is too long, maximum allowed is {max}"
)
CONSUMER_WITH_FLOW_CONTROL_NEEDS_HEARTBEATS: Final = ErrorKind(
    10108, 400, "consumer with flow control also needs heartbeats"
)
STREAM_SEALED: Final = ErrorKind(10109, 400, "invalid operation on sealed stream")
STREAM_PURGE_FAILED: Final = ErrorKind(10110, 500, "{err}")
STREAM_ROLLUP_FAILED: Final = ErrorKind(10111, 500, "{err}")
CONSUMER_INVALID_DELIVER_SUBJECT: Final = ErrorKind(
    10112, 400, "invalid push consumer deliver subject"
)
STREAM_MAX_BYTES_REQUIRED: Final = ErrorKind(
    10113, 400, "account requires a stream config to have max bytes set"
)
CONSUMER_MAX_REQUEST_BATCH_NEGATIVE: Final = ErrorKind(
    10114, 400, "consumer max request batch needs to be > 0"
)
CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL: Final = ErrorKind(
    10115, 400, "consumer max request expires needs to be >= 1ms"
)
CONSUMER_MAX_DELIVER_BACKOFF: Final = ErrorKind(
    10116, 400, "max deliver is required to be > length of backoff values"
)
STREAM_INFO_MAX_SUBJECTS: Final = ErrorKind(
    10117, 500, "subject details would exceed maximum allowed"
)
STREAM_OFFLINE: Final = ErrorKind(10118, 500, "stream is offline")
CONSUMER_OFFLINE: Final = ErrorKind(10119, 500, "consumer is offline")
NO_LIMITS: Final = ErrorKind(10120, 400, "no JetStream default or applicable tiered limit present")
CONSUMER_MAX_PENDING_ACK_EXCESS: Final = ErrorKind(
    10121, 400, "consumer max ack pending exceeds system limit of {limit}"
)
STREAM_MAX_STREAM_BYTES_EXCEEDED: Final = ErrorKind(
    10122, 400, "stream max bytes exceeds account limit max stream bytes"
)
STREAM_MOVE_AND_SCALE: Final = ErrorKind(
    10123, 400, "can not move and scale a stream in a single update"
)
STREAM_MOVE_IN_PROGRESS: Final = ErrorKind(10124, 400, "stream move already in progress")
CONSUMER_MAX_REQUEST_BATCH_EXCEEDED: Final = ErrorKind(
    10125, 400, "consumer max request batch exceeds server limit of {limit}"
)
CONSUMER_REPLICAS_EXCEEDS_STREAM: Final = ErrorKind(
    10126, 400, "consumer config replica count exceeds parent stream"
)
CONSUMER_NAME_CONTAINS_PATH_SEPARATORS: Final = ErrorKind(
    10127, 400, "Consumer name can not contain path separators"
)
STREAM_NAME_CONTAINS_PATH_SEPARATORS: Final = ErrorKind(
    10128, 400, "Stream name can not contain path separators"
)
STREAM_RECONFIGURE_NOT_IN_PROGRESS: Final = ErrorKind(
    10129, 400, "stream reconfiguration not in progress"
)
STREAM_NAME_EXIST_RESTORE_FAILED: Final = ErrorKind(
    10130, 400, "stream name already in use, cannot restore"
)
CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH: Final = ErrorKind(
    10131, 400, "Consumer create request did not match filtered subject from create subject"
)
CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH: Final = ErrorKind(
    10132, 400, "Consumer Durable and Name have to be equal if both are provided"
)
REPLICAS_COUNT_CANNOT_BE_NEGATIVE: Final = ErrorKind(
    10133, 400, "replicas count cannot be negative"
)
CONSUMER_REPLICAS_SHOULD_MATCH_STREAM: Final = ErrorKind(
    10134, 400, "consumer config replicas must match interest retention stream's replicas"
)
CONSUMER_METADATA_LENGTH: Final = ErrorKind(
    10135, 400, "consumer metadata exceeds maximum size of {limit}"
)
CONSUMER_DUPLICATE_FILTER_SUBJECTS: Final = ErrorKind(
    10136, 400, "consumer cannot have both FilterSubject and FilterSubjects specified"
)
CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED: Final = ErrorKind(
    10137, 400, "consumer with multiple subject filters cannot use subject based API"
)
CONSUMER_OVERLAPPING_SUBJECT_FILTERS: Final = ErrorKind(
    10138, 400, "consumer subject filters cannot overlap"
)
CONSUMER_EMPTY_FILTER: Final = ErrorKind(
    10139, 400, "consumer filter in FilterSubjects cannot be empty"
)
SOURCE_DUPLICATE_DETECTED: Final = ErrorKind(10140, 400, "duplicate source configuration detected")
SOURCE_INVALID_STREAM_NAME: Final = ErrorKind(10141, 400, "sourced stream name is invalid")
MIRROR_INVALID_STREAM_NAME: Final = ErrorKind(10142, 400, "mirrored stream name is invalid")
MIRROR_WITH_FIRST_SEQ: Final = ErrorKind(
    10143, 400, "stream mirrors can not have first sequence configured"
)
SOURCE_MULTIPLE_FILTERS_NOT_ALLOWED: Final = ErrorKind(
    10144, 400, "source with multiple subject transforms cannot also have a single subject filter"
)
SOURCE_INVALID_SUBJECT_FILTER: Final = ErrorKind(10145, 400, "source transform source: {err}")
SOURCE_INVALID_TRANSFORM_DESTINATION: Final = ErrorKind(10146, 400, "source transform: {err}")
SOURCE_OVERLAPPING_SUBJECT_FILTERS: Final = ErrorKind(10147, 400, "source filters can not overlap")
CONSUMER_ALREADY_EXISTS: Final = ErrorKind(10148, 400, "consumer already exists")
CONSUMER_DOES_NOT_EXIST: Final = ErrorKind(10149, 400, "consumer does not exist")
MIRROR_MULTIPLE_FILTERS_NOT_ALLOWED: Final = ErrorKind(
    10150, 400, "mirror with multiple subject transforms cannot also have a single subject filter"
)
MIRROR_INVALID_SUBJECT_FILTER: Final = ErrorKind(10151, 400, "mirror transform source: {err}")
MIRROR_OVERLAPPING_SUBJECT_FILTERS: Final = ErrorKind(
    10152, 400, "mirror subject filters can not overlap"
)
CONSUMER_INACTIVE_THRESHOLD_EXCESS: Final = ErrorKind(
    10153, 400, "consumer inactive threshold exceeds system limit of {limit}"
)
MIRROR_INVALID_TRANSFORM_DESTINATION: Final = ErrorKind(10154, 400, "mirror transform: {err}")
STREAM_TRANSFORM_INVALID_SOURCE: Final = ErrorKind(10155, 400, "stream transform source: {err}")
STREAM_TRANSFORM_INVALID_DESTINATION: Final = ErrorKind(10156, 400, "stream transform: {err}")
PEDANTIC: Final = ErrorKind(10157, 400, "pedantic mode: {err}")
STREAM_DUPLICATE_MESSAGE_CONFLICT: Final = ErrorKind(
    10158, 409, "duplicate message id is in process"
)
CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP: Final = ErrorKind(
    10159, 400, "Setting PriorityPolicy requires at least one PriorityGroup to be set"
)
CONSUMER_INVALID_PRIORITY_GROUP: Final = ErrorKind(
    10160, 400, "Provided priority group does not exist for this consumer"
)
CONSUMER_EMPTY_GROUP_NAME: Final = ErrorKind(10161, 400, "Group name cannot be an empty string")
CONSUMER_INVALID_GROUP_NAME: Final = ErrorKind(
    10162,
    400,
    "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed 16 characters",
)
STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_NOT_READY: Final = ErrorKind(
    10163, 503, "expected last sequence per subject temporarily unavailable"
)
STREAM_WRONG_LAST_SEQUENCE_CONSTANT: Final = ErrorKind(10164, 400, "wrong last sequence")
MESSAGE_TTL_INVALID: Final = ErrorKind(10165, 400, "invalid per-message TTL")
MESSAGE_TTL_DISABLED: Final = ErrorKind(10166, 400, "per-message TTL is disabled")
STREAM_TOO_MANY_REQUESTS: Final = ErrorKind(10167, 429, "too many requests")
MESSAGE_INCR_DISABLED: Final = ErrorKind(10168, 400, "message counters is disabled")
MESSAGE_INCR_MISSING: Final = ErrorKind(10169, 400, "message counter increment is missing")
MESSAGE_INCR_PAYLOAD: Final = ErrorKind(10170, 400, "message counter has payload")
MESSAGE_INCR_INVALID: Final = ErrorKind(10171, 400, "message counter increment is invalid")
MESSAGE_COUNTER_BROKEN: Final = ErrorKind(10172, 400, "message counter is broken")
MIRROR_WITH_COUNTERS: Final = ErrorKind(
    10173, 400, "stream mirrors can not also calculate counters"
)
ATOMIC_PUBLISH_DISABLED: Final = ErrorKind(10174, 400, "atomic publish is disabled")
ATOMIC_PUBLISH_MISSING_SEQ: Final = ErrorKind(10175, 400, "atomic publish sequence is missing")
ATOMIC_PUBLISH_INCOMPLETE_BATCH: Final = ErrorKind(10176, 400, "atomic publish batch is incomplete")
ATOMIC_PUBLISH_UNSUPPORTED_HEADER_BATCH: Final = ErrorKind(
    10177, 400, "atomic publish unsupported header used: {header}"
)
CONSUMER_PUSH_WITH_PRIORITY_GROUP: Final = ErrorKind(
    10178, 400, "priority groups can not be used with push consumers"
)
ATOMIC_PUBLISH_INVALID_BATCH_ID: Final = ErrorKind(10179, 400, "atomic publish batch ID is invalid")
STREAM_MIN_LAST_SEQ: Final = ErrorKind(10180, 412, "min last sequence")
CONSUMER_ACK_POLICY_INVALID: Final = ErrorKind(10181, 400, "consumer ack policy invalid")
CONSUMER_REPLAY_POLICY_INVALID: Final = ErrorKind(10182, 400, "consumer replay policy invalid")
CONSUMER_ACK_WAIT_NEGATIVE: Final = ErrorKind(10183, 400, "consumer ack wait needs to be positive")
CONSUMER_BACK_OFF_NEGATIVE: Final = ErrorKind(10184, 400, "consumer backoff needs to be positive")
REQUIRED_API_LEVEL: Final = ErrorKind(10185, 412, "JetStream minimum api level required")
MIRROR_WITH_MSG_SCHEDULES: Final = ErrorKind(
    10186, 400, "stream mirrors can not also schedule messages"
)
SOURCE_WITH_MSG_SCHEDULES: Final = ErrorKind(
    10187, 400, "stream source can not also schedule messages"
)
MESSAGE_SCHEDULES_DISABLED: Final = ErrorKind(10188, 400, "message schedules is disabled")
MESSAGE_SCHEDULES_PATTERN_INVALID: Final = ErrorKind(
    10189, 400, "message schedules pattern is invalid"
)
MESSAGE_SCHEDULES_TARGET_INVALID: Final = ErrorKind(
    10190, 400, "message schedules target is invalid"
)
MESSAGE_SCHEDULES_TTL_INVALID: Final = ErrorKind(
    10191, 400, "message schedules invalid per-message TTL"
)
MESSAGE_SCHEDULES_ROLLUP_INVALID: Final = ErrorKind(10192, 400, "message schedules invalid rollup")
STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID: Final = ErrorKind(
    10193, 400, "missing sequence for expected last sequence per subject"
)
STREAM_OFFLINE_REASON: Final = ErrorKind(10194, 500, "stream is offline: {err}")
CONSUMER_OFFLINE_REASON: Final = ErrorKind(10195, 500, "consumer is offline: {err}")
CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE: Final = ErrorKind(
    10196, 400, "consumer can not have priority groups when policy is none"
)
CONSUMER_PINNED_TTL_WITHOUT_PRIORITY_POLICY_NONE: Final = ErrorKind(
    10197, 400, "PinnedTTL cannot be set when PriorityPolicy is none"
)
MIRROR_WITH_ATOMIC_PUBLISH: Final = ErrorKind(
    10198, 400, "stream mirrors can not also use atomic publishing"
)
ATOMIC_PUBLISH_TOO_LARGE_BATCH: Final = ErrorKind(
    10199, 400, "atomic publish batch is too large: {size}"
)
ATOMIC_PUBLISH_INVALID_BATCH_COMMIT: Final = ErrorKind(
    10200, 400, "atomic publish batch commit is invalid"
)
ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE: Final = ErrorKind(
    10201, 400, "atomic publish batch contains duplicate message id"
)
CLUSTER_SERVER_MEMBER_CHANGE_INFLIGHT: Final = ErrorKind(
    10202, 400, "cluster member change is in progress"
)
MESSAGE_SCHEDULES_SOURCE_INVALID: Final = ErrorKind(
    10203, 400, "message schedules source is invalid"
)
CONSUMER_INVALID_RESET: Final = ErrorKind(10204, 400, "invalid reset: {err}")
BATCH_PUBLISH_DISABLED: Final = ErrorKind(10205, 400, "batch publish is disabled")
BATCH_PUBLISH_INVALID_PATTERN: Final = ErrorKind(10206, 400, "batch publish pattern is invalid")
BATCH_PUBLISH_INVALID_BATCH_ID: Final = ErrorKind(10207, 400, "batch publish ID is invalid")
BATCH_PUBLISH_UNKNOWN_BATCH_ID: Final = ErrorKind(10208, 400, "batch publish ID unknown")
MIRROR_WITH_BATCH_PUBLISH: Final = ErrorKind(
    10209, 400, "stream mirrors can not also use batch publishing"
)
ATOMIC_PUBLISH_TOO_MANY_INFLIGHT: Final = ErrorKind(10210, 429, "atomic publish too many inflight")
BATCH_PUBLISH_TOO_MANY_INFLIGHT: Final = ErrorKind(10211, 429, "batch publish too many inflight")
MESSAGE_SCHEDULES_SCHEDULER_INVALID: Final = ErrorKind(
    10212, 400, "message schedules invalid scheduler"
)
MIRROR_DURABLE_CONSUMER_CFG_INVALID: Final = ErrorKind(
    10213, 400, "stream mirror consumer config is invalid"
)
MIRROR_CONSUMER_REQUIRES_ACK_FC: Final = ErrorKind(
    10214, 400, "stream mirror consumer requires flow control ack policy"
)
SOURCE_DURABLE_CONSUMER_CFG_INVALID: Final = ErrorKind(
    10215, 400, "stream source consumer config is invalid"
)
SOURCE_DURABLE_CONSUMER_DUPLICATE_DETECTED: Final = ErrorKind(
    10216, 400, "duplicate stream source consumer detected"
)
SOURCE_CONSUMER_REQUIRES_ACK_FC: Final = ErrorKind(
    10217, 400, "stream source consumer requires flow control ack policy"
)
CONSUMER_ACK_FC_REQUIRES_PUSH: Final = ErrorKind(
    10218, 400, "flow control ack policy requires a push based consumer"
)
CONSUMER_ACK_FC_REQUIRES_FC: Final = ErrorKind(
    10219, 400, "flow control ack policy requires flow control"
)
CONSUMER_ACK_FC_REQUIRES_MAX_ACK_PENDING: Final = ErrorKind(
    10220, 400, "flow control ack policy requires max ack pending"
)
CONSUMER_ACK_FC_REQUIRES_NO_ACK_WAIT: Final = ErrorKind(
    10221, 400, "flow control ack policy requires unset ack wait"
)
CONSUMER_ACK_FC_REQUIRES_NO_MAX_DELIVER: Final = ErrorKind(
    10222, 400, "flow control ack policy requires unset max deliver"
)
MESSAGE_SCHEDULES_TIME_ZONE_INVALID: Final = ErrorKind(
    10223, 400, "message schedules time zone is invalid"
)
CLUSTER_RESCUE: Final = ErrorKind(10224, 400, "JetStream system rescue not applied: {err}")
CONSUMER_STREAM_IDENTITY_MISMATCH: Final = ErrorKind(
    10225, 400, "consumer's stream identity does not match: {msg}"
)
STREAM_RECONFIGURE_IN_PROGRESS: Final = ErrorKind(
    10226, 400, "stream reconfiguration already in progress"
)
MESSAGE_SOURCE_HDR_NOT_ALLOWED: Final = ErrorKind(
    10227, 400, "message stream source header is not allowed"
)
