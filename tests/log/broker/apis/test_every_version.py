"""Every version of every API that is announced is answered, in the shape of that version."""

import pytest

from asking import Asker, at
from semel.log.broker.apis import APIS
from semel.log.core.groups.consumer_protocol import write_assignment
from semel.wire.errors import ErrorCode
from semel.wire.records import encode_batch
from semel.wire.versions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    ALTER_CLIENT_QUOTAS,
    ALTER_CONFIGS,
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_REPLICA_LOG_DIRS,
    ALTER_SHARE_GROUP_OFFSETS,
    ALTER_USER_SCRAM_CREDENTIALS,
    API_VERSIONS,
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    CREATE_ACLS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_ACLS,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DELETE_SHARE_GROUP_OFFSETS,
    DELETE_TOPICS,
    DESCRIBE_ACLS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_QUORUM,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    DESCRIBE_TOPIC_PARTITIONS,
    DESCRIBE_TRANSACTIONS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    ELECT_LEADERS,
    END_TXN,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    LIST_OFFSETS,
    LIST_PARTITION_REASSIGNMENTS,
    LIST_TRANSACTIONS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    SHARE_GROUP_DESCRIBE,
    SHARE_GROUP_HEARTBEAT,
    SYNC_GROUP,
    TXN_OFFSET_COMMIT,
)
from sensible import requests_of_own_tests

TOPIC = 2
# What a classic member says that reads `orders`.
SUBSCRIPTION = b"\0\0\0\0\0\1\0\6orders" + b"\xff" * 4


def requests(topic_id: bytes, producer_id: int, member_id: str = "") -> dict[int, dict[str, object]]:
    """One sensible request for each API, about the topic `orders` with two partitions; all versions' fields at once."""
    batch = bytes(encode_batch(at(1000)))
    created = {"name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    resource = {"resource_type": TOPIC, "resource_name": "orders"}
    shared = {"partition_index": 0, "acknowledgement_batches": []}
    sharing: dict[str, object] = {
        "group_id": "workers",
        "member_id": "ada",
        "is_renew_ack": False,
        "topics": [{"topic_id": topic_id, "partitions": [shared]}],
    }
    change = {"name": "retention.ms", "value": "1000", "config_operation": 0}
    place = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, "log_start_offset": -1}
    epoch = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    committed = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": 0, "committed_metadata": None}
    producer = {"transactional_id": "payments", "producer_id": producer_id, "producer_epoch": 0}
    joining = [{"name": "orders", "partitions": [0, 1]}]
    asked = [{"name": "orders", "topic_id": topic_id, "partition_indexes": [0]}]
    identity = {"member_id": member_id, "group_instance_id": "till"}
    member = {"group_id": "tills", **identity}
    rules = {"operation": 1, "permission_type": 1} | dict.fromkeys(("resource_type_filter", "pattern_type_filter"), 1)
    rules |= dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"), None)
    rule = {"resource_type": TOPIC, "resource_name": "orders", "resource_pattern_type": 3, "principal": "User:app"}
    rule |= {"host": "*", "operation": 4, "permission_type": 3}
    named: dict[int, dict[str, object]] = {
        CREATE_ACLS: {"creations": [rule]},
        DESCRIBE_ACLS: rules,
        DELETE_ACLS: {"filters": [rules]},
        PRODUCE: {
            "transactional_id": None,
            "acks": -1,
            "timeout_ms": 1000,
            "topic_data": [
                {"name": "orders", "topic_id": topic_id, "partition_data": [{"index": 0, "records": batch}]},
            ],
        },
        FETCH: {
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": 1000,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "replica_id": -1,
            "forgotten_topics_data": [],
            "topics": [{"topic": "orders", "topic_id": topic_id, "partitions": [wanted]}],
        },
        LIST_OFFSETS: {
            "replica_id": -1,
            "isolation_level": 0,
            "timeout_ms": 1000,
            "topics": [{"name": "orders", "partitions": [place]}],
        },
        METADATA: {
            "topics": [{"name": "orders", "topic_id": bytes(16)}],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": True,
            "include_topic_authorized_operations": True,
        },
        FIND_COORDINATOR: {"key": "readers", "key_type": 0, "coordinator_keys": ["readers"]},
        API_VERSIONS: {"client_software_name": "test", "client_software_version": "1"},
        CREATE_TOPICS: {"topics": [created], "timeout_ms": 1000, "validate_only": False},
        DELETE_TOPICS: {
            "topic_names": ["orders"],
            "topics": [{"name": None, "topic_id": topic_id}],
            "timeout_ms": 1000,
        },
        DELETE_RECORDS: {
            "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "offset": -1}]}],
            "timeout_ms": 1000,
        },
        INIT_PRODUCER_ID: {
            "transactional_id": "payments",
            "transaction_timeout_ms": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        },
        ADD_PARTITIONS_TO_TXN: {
            **{f"v3_and_below_{field}": value for field, value in {**producer, "topics": joining}.items()},
            "transactions": [{**producer, "verify_only": False, "topics": joining}],
        },
        ADD_OFFSETS_TO_TXN: {**producer, "group_id": "readers"},
        END_TXN: {**producer, "committed": True},
        TXN_OFFSET_COMMIT: {
            **producer,
            "group_id": "readers",
            "topics": [{"name": "orders", "partitions": [committed]}],
        },
        DESCRIBE_TRANSACTIONS: {"transactional_ids": ["payments"]},
        LIST_TRANSACTIONS: {
            "state_filters": ["Ongoing"],
            "producer_id_filters": [producer_id],
            "duration_filter": 1000,
            "transactional_id_pattern": "pay.*",
        },
        OFFSET_COMMIT: {
            "group_id": "readers",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "retention_time_ms": -1,
            "topics": [{"name": "orders", "topic_id": topic_id, "partitions": [committed]}],
        },
        OFFSET_FETCH: {
            "group_id": "readers",
            "topics": asked,
            "groups": [{"group_id": "readers", "topics": asked}],
            "require_stable": True,
        },
        OFFSET_DELETE: {
            "group_id": "readers",
            "topics": [{"name": "orders", "partitions": [{"partition_index": 0}]}],
        },
        OFFSET_FOR_LEADER_EPOCH: {"replica_id": -1, "topics": [{"topic": "orders", "partitions": [epoch]}]},
        DESCRIBE_CONFIGS: {
            "resources": [{**resource, "configuration_keys": None}],
            "include_synonyms": True,
            "include_documentation": True,
        },
        ALTER_CONFIGS: {
            "resources": [{**resource, "configs": [{"name": "retention.ms", "value": "1000"}]}],
            "validate_only": False,
        },
        ALTER_REPLICA_LOG_DIRS: {"dirs": [{"path": "/nowhere", "topics": [{"name": "orders", "partitions": [0]}]}]},
        DESCRIBE_LOG_DIRS: {"topics": None},
        ELECT_LEADERS: {
            "election_type": 0,
            "topic_partitions": [{"topic": "orders", "partitions": [0]}],
            "timeout_ms": 1000,
        },
        ALTER_PARTITION_REASSIGNMENTS: {
            "timeout_ms": 1000,
            "allow_replication_factor_change": True,
            "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "replicas": None}]}],
        },
        LIST_PARTITION_REASSIGNMENTS: {"timeout_ms": 1000, "topics": None},
        DESCRIBE_QUORUM: {
            "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}],
        },
        CREATE_PARTITIONS: {
            "topics": [{"name": "orders", "count": 3, "assignments": None}],
            "timeout_ms": 1000,
            "validate_only": False,
        },
        INCREMENTAL_ALTER_CONFIGS: {"resources": [{**resource, "configs": [change]}], "validate_only": False},
        DESCRIBE_CLUSTER: {
            "include_cluster_authorized_operations": True,
            "endpoint_type": 1,
            "include_fenced_brokers": False,
        },
        DESCRIBE_PRODUCERS: {"topics": [{"name": "orders", "partition_indexes": [0]}]},
        JOIN_GROUP: {
            **member,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
            "reason": "to read",
        },
        SYNC_GROUP: {
            **member,
            "generation_id": 1,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": member_id, "assignment": write_assignment([("orders", (0,))])}],
        },
        HEARTBEAT: {**member, "generation_id": 1},
        LEAVE_GROUP: {
            "group_id": "tills",
            "member_id": member_id,
            "members": [{**identity, "reason": "it is late"}],
        },
        DESCRIBE_GROUPS: {"groups": ["tills"], "include_authorized_operations": True},
        LIST_GROUPS: {"states_filter": ["Empty"], "types_filter": ["classic"]},
        DELETE_GROUPS: {"groups_names": ["readers"]},
        CONSUMER_GROUP_HEARTBEAT: {
            "group_id": "consumers",
            "member_id": "someone",
            "member_epoch": 0,
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": ["orders"],
            "subscribed_topic_regex": "ord.*",
            "server_assignor": "uniform",
            "topic_partitions": [],
        },
        CONSUMER_GROUP_DESCRIBE: {"group_ids": ["consumers"], "include_authorized_operations": True},
        SASL_HANDSHAKE: {"mechanism": "SCRAM-SHA-256"},
        SASL_AUTHENTICATE: {"auth_bytes": b""},
        DESCRIBE_CLIENT_QUOTAS: {
            "components": [{"entity_type": "user", "match_type": 2, "match": None}],
            "strict": False,
        },
        ALTER_CLIENT_QUOTAS: {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "app"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
                }
            ],
            "validate_only": False,
        },
        DESCRIBE_USER_SCRAM_CREDENTIALS: {"users": []},
        ALTER_USER_SCRAM_CREDENTIALS: {
            "deletions": [],
            "upsertions": [
                {"name": "app", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": bytes(32)}
            ],
        },
        DESCRIBE_TOPIC_PARTITIONS: {"topics": [{"name": "orders"}], "response_partition_limit": 10, "cursor": None},
        SHARE_FETCH: {
            **sharing,
            "share_session_epoch": 0,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1000,
            "max_records": 10,
            "batch_size": 10,
            "share_acquire_mode": 0,
            "forgotten_topics_data": [],
        },
        SHARE_ACKNOWLEDGE: {**sharing, "share_session_epoch": -1},
    }
    return named | requests_of_own_tests()


def error_codes(answer: object) -> list[int]:
    """Every error code in an answer, wherever it stands."""
    if isinstance(answer, tuple):
        return [code for item in answer for code in error_codes(item)]
    found = []
    for name in getattr(answer, "FIELDS", ()):
        value = getattr(answer, name)
        found += [int(value)] if name.endswith("error_code") else error_codes(value)
    return found


# What has to be asked for before, so that there is something to ask about.
BEFORE: dict[int, tuple[int, ...]] = {
    CONSUMER_GROUP_DESCRIBE: (CONSUMER_GROUP_HEARTBEAT,),
    **dict.fromkeys((SHARE_GROUP_DESCRIBE, SHARE_FETCH, DESCRIBE_SHARE_GROUP_OFFSETS), (SHARE_GROUP_HEARTBEAT,)),
    SHARE_ACKNOWLEDGE: (SHARE_GROUP_HEARTBEAT, SHARE_FETCH),
    DELETE_SHARE_GROUP_OFFSETS: (ALTER_SHARE_GROUP_OFFSETS,),
    DESCRIBE_GROUPS: (JOIN_GROUP,),
    DELETE_GROUPS: (OFFSET_COMMIT,),
    OFFSET_DELETE: (OFFSET_COMMIT,),
    END_TXN: (ADD_PARTITIONS_TO_TXN,),
    TXN_OFFSET_COMMIT: (ADD_OFFSETS_TO_TXN,),
}

ASKED_BY_A_MEMBER = {SYNC_GROUP, HEARTBEAT, LEAVE_GROUP}
TOLD = {
    # The broker of this test has no rules in force.
    **dict.fromkeys((CREATE_ACLS, DESCRIBE_ACLS, DELETE_ACLS), ErrorCode.SECURITY_DISABLED),
    # There is one broker, with one directory.
    ELECT_LEADERS: ErrorCode.ELECTION_NOT_NEEDED,
    ALTER_PARTITION_REASSIGNMENTS: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    ALTER_REPLICA_LOG_DIRS: ErrorCode.LOG_DIR_NOT_FOUND,
}
# Static members, which version 5 brought, are members at once.
TOLD_AN_ID_FIRST = {(JOIN_GROUP, 4): ErrorCode.MEMBER_ID_REQUIRED}

# Refused by a listener that asks for no login; tests/log/security asks them elsewhere.
OF_A_LOGIN = {SASL_HANDSHAKE, SASL_AUTHENTICATE}

VERSIONS = [(key, version) for key, api in APIS.items() if key not in OF_A_LOGIN for version in api.served]


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_a_sensible_request_is_granted_in_every_version(ask: Asker, api_key: int, version: int) -> None:
    topic_id = ask.create("orders", partitions=2).topic_id
    producer_id = ask(INIT_PRODUCER_ID, **requests(topic_id, -1)[INIT_PRODUCER_ID]).producer_id
    sensible = requests(topic_id, producer_id)
    for before in BEFORE.get(api_key, ()):
        ask(before, **sensible[before])
    if api_key in ASKED_BY_A_MEMBER:
        member_id = ask(JOIN_GROUP, **sensible[JOIN_GROUP]).member_id
        sensible = requests(topic_id, producer_id, member_id)
    answer = ask(api_key, version, **sensible[api_key])
    told = TOLD.get(api_key, TOLD_AN_ID_FIRST.get((api_key, version), 0))
    assert set(error_codes(answer)) <= {0, told}
    assert ask(API_VERSIONS, 0).error_code == 0, "the connection is still good"
