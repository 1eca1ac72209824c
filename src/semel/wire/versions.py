"""The APIs, the versions of each that this broker announces, and which of these are flexible.

The parser of every request header calls `is_flexible`, so it must be fast. This file must never announce a version that
is still unstable in Apache Kafka, or one that no handler answers.
"""

from typing import Final, NamedTuple

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
DELETE_RECORDS: Final = 21
INIT_PRODUCER_ID: Final = 22
OFFSET_FOR_LEADER_EPOCH: Final = 23
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
TXN_OFFSET_COMMIT: Final = 28
DESCRIBE_ACLS: Final = 29
CREATE_ACLS: Final = 30
DELETE_ACLS: Final = 31
DESCRIBE_CONFIGS: Final = 32
ALTER_CONFIGS: Final = 33
ALTER_REPLICA_LOG_DIRS: Final = 34
DESCRIBE_LOG_DIRS: Final = 35
SASL_AUTHENTICATE: Final = 36
CREATE_PARTITIONS: Final = 37
DELETE_GROUPS: Final = 42
ELECT_LEADERS: Final = 43
INCREMENTAL_ALTER_CONFIGS: Final = 44
ALTER_PARTITION_REASSIGNMENTS: Final = 45
LIST_PARTITION_REASSIGNMENTS: Final = 46
OFFSET_DELETE: Final = 47
DESCRIBE_CLIENT_QUOTAS: Final = 48
ALTER_CLIENT_QUOTAS: Final = 49
DESCRIBE_USER_SCRAM_CREDENTIALS: Final = 50
ALTER_USER_SCRAM_CREDENTIALS: Final = 51
DESCRIBE_QUORUM: Final = 55
DESCRIBE_CLUSTER: Final = 60
DESCRIBE_PRODUCERS: Final = 61
DESCRIBE_TRANSACTIONS: Final = 65
LIST_TRANSACTIONS: Final = 66
CONSUMER_GROUP_HEARTBEAT: Final = 68
CONSUMER_GROUP_DESCRIBE: Final = 69
DESCRIBE_TOPIC_PARTITIONS: Final = 75


class VersionRange(NamedTuple):
    """The first and the last version, both included."""

    min: int
    max: int


# The answer to ApiVersions. Produce is announced from 0 because librdkafka otherwise silently turns compression off;
# versions below PRODUCE_SERVED_MIN have the old message formats, and the broker refuses them.
ANNOUNCED: Final[dict[int, VersionRange]] = {
    PRODUCE: VersionRange(0, 13),
    FETCH: VersionRange(4, 18),
    LIST_OFFSETS: VersionRange(1, 11),
    METADATA: VersionRange(0, 13),
    OFFSET_COMMIT: VersionRange(2, 10),
    OFFSET_FETCH: VersionRange(1, 10),
    FIND_COORDINATOR: VersionRange(0, 6),
    JOIN_GROUP: VersionRange(0, 9),
    HEARTBEAT: VersionRange(0, 4),
    LEAVE_GROUP: VersionRange(0, 5),
    SYNC_GROUP: VersionRange(0, 5),
    DESCRIBE_GROUPS: VersionRange(0, 6),
    LIST_GROUPS: VersionRange(0, 5),
    # Without version 0, librdkafka assumes that the broker has no SASL; the broker refuses a request of version 0.
    SASL_HANDSHAKE: VersionRange(0, 1),
    API_VERSIONS: VersionRange(0, 4),
    CREATE_TOPICS: VersionRange(2, 7),
    DELETE_TOPICS: VersionRange(1, 6),
    DELETE_RECORDS: VersionRange(0, 2),
    # Version 6 (two-phase commit) is unstable in Apache Kafka 4.3.
    INIT_PRODUCER_ID: VersionRange(0, 5),
    OFFSET_FOR_LEADER_EPOCH: VersionRange(2, 4),
    ADD_PARTITIONS_TO_TXN: VersionRange(0, 5),
    ADD_OFFSETS_TO_TXN: VersionRange(0, 4),
    END_TXN: VersionRange(0, 5),
    TXN_OFFSET_COMMIT: VersionRange(0, 5),
    DESCRIBE_ACLS: VersionRange(1, 3),
    CREATE_ACLS: VersionRange(1, 3),
    DELETE_ACLS: VersionRange(1, 3),
    DESCRIBE_CONFIGS: VersionRange(1, 4),
    ALTER_CONFIGS: VersionRange(0, 2),
    ALTER_REPLICA_LOG_DIRS: VersionRange(1, 2),
    DESCRIBE_LOG_DIRS: VersionRange(1, 5),
    SASL_AUTHENTICATE: VersionRange(0, 2),
    CREATE_PARTITIONS: VersionRange(0, 3),
    DELETE_GROUPS: VersionRange(0, 2),
    ELECT_LEADERS: VersionRange(0, 2),
    INCREMENTAL_ALTER_CONFIGS: VersionRange(0, 1),
    ALTER_PARTITION_REASSIGNMENTS: VersionRange(0, 1),
    LIST_PARTITION_REASSIGNMENTS: VersionRange(0, 0),
    OFFSET_DELETE: VersionRange(0, 0),
    DESCRIBE_CLIENT_QUOTAS: VersionRange(0, 1),
    ALTER_CLIENT_QUOTAS: VersionRange(0, 1),
    DESCRIBE_USER_SCRAM_CREDENTIALS: VersionRange(0, 0),
    ALTER_USER_SCRAM_CREDENTIALS: VersionRange(0, 0),
    DESCRIBE_QUORUM: VersionRange(0, 2),
    DESCRIBE_CLUSTER: VersionRange(0, 2),
    DESCRIBE_PRODUCERS: VersionRange(0, 0),
    DESCRIBE_TRANSACTIONS: VersionRange(0, 0),
    LIST_TRANSACTIONS: VersionRange(0, 2),
    CONSUMER_GROUP_HEARTBEAT: VersionRange(0, 1),
    CONSUMER_GROUP_DESCRIBE: VersionRange(0, 1),
    DESCRIBE_TOPIC_PARTITIONS: VersionRange(0, 0),
}

PRODUCE_SERVED_MIN: Final = 3

# Features that concern several APIs, with their supported levels; the highest level is in force. transaction.version 2
# is Produce 12, TxnOffsetCommit 5 and EndTxn 5 together, group.version 1 the groups of KIP-848.
FEATURES: Final[dict[str, VersionRange]] = {
    "transaction.version": VersionRange(0, 2),
    "group.version": VersionRange(0, 1),
}

# The version from which on messages have compact lengths and tagged fields. An API that is missing here has no such
# version.
_FLEXIBLE_FROM: Final[dict[int, int]] = {
    PRODUCE: 9,
    FETCH: 12,
    LIST_OFFSETS: 6,
    METADATA: 9,
    OFFSET_COMMIT: 8,
    OFFSET_FETCH: 6,
    FIND_COORDINATOR: 3,
    JOIN_GROUP: 6,
    HEARTBEAT: 4,
    LEAVE_GROUP: 4,
    SYNC_GROUP: 4,
    DESCRIBE_GROUPS: 5,
    LIST_GROUPS: 3,
    API_VERSIONS: 3,
    CREATE_TOPICS: 5,
    DELETE_TOPICS: 4,
    DELETE_RECORDS: 2,
    INIT_PRODUCER_ID: 2,
    OFFSET_FOR_LEADER_EPOCH: 4,
    ADD_PARTITIONS_TO_TXN: 3,
    ADD_OFFSETS_TO_TXN: 3,
    END_TXN: 3,
    TXN_OFFSET_COMMIT: 3,
    DESCRIBE_ACLS: 2,
    CREATE_ACLS: 2,
    DELETE_ACLS: 2,
    DESCRIBE_CONFIGS: 4,
    ALTER_CONFIGS: 2,
    ALTER_REPLICA_LOG_DIRS: 2,
    DESCRIBE_LOG_DIRS: 2,
    SASL_AUTHENTICATE: 2,
    CREATE_PARTITIONS: 2,
    DELETE_GROUPS: 2,
    ELECT_LEADERS: 2,
    INCREMENTAL_ALTER_CONFIGS: 1,
    ALTER_PARTITION_REASSIGNMENTS: 0,
    LIST_PARTITION_REASSIGNMENTS: 0,
    DESCRIBE_CLIENT_QUOTAS: 1,
    ALTER_CLIENT_QUOTAS: 1,
    DESCRIBE_USER_SCRAM_CREDENTIALS: 0,
    ALTER_USER_SCRAM_CREDENTIALS: 0,
    DESCRIBE_QUORUM: 0,
    DESCRIBE_CLUSTER: 0,
    DESCRIBE_PRODUCERS: 0,
    DESCRIBE_TRANSACTIONS: 0,
    LIST_TRANSACTIONS: 0,
    CONSUMER_GROUP_HEARTBEAT: 0,
    CONSUMER_GROUP_DESCRIBE: 0,
    DESCRIBE_TOPIC_PARTITIONS: 0,
}

_NEVER: Final = 1 << 16


def is_flexible(api_key: int, version: int) -> bool:
    """Whether the request header is version 2 (else 1) and, except for ApiVersions, the response header 1 (else 0)."""
    return version >= _FLEXIBLE_FROM.get(api_key, _NEVER)


def is_announced(api_key: int, version: int) -> bool:
    """Whether the answer to ApiVersions includes this version."""
    announced = ANNOUNCED.get(api_key)
    return announced is not None and announced.min <= version <= announced.max
