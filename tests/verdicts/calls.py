"""What each principal asks in each round: every API, about things that exist and things that do not.

A call leaves things as they were, or as the administrator puts them back before the next one, so that both brokers are
asked the same. Transactions are asked about with a producer id that nobody has: what counts is which check comes first.
"""

import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from asking import NEWEST, at
from semel.wire import versions as v
from semel.wire.records import encode_batch
from sensible import requests_of_own_tests

NOBODY: Final = 999_999
# Old records would be deleted meanwhile.
NOW_MS: Final = time.time_ns() // 1_000_000
NO_OPERATIONS: Final = {"include_topic_authorized_operations": False, "include_cluster_authorized_operations": False}
OPERATIONS: Final = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
TOPICS: Final = ("orders", "payments", "missing")


class Call(NamedTuple):
    """One request."""

    name: str
    api_key: int
    version: int
    fields: Mapping[str, Any]


def calls(ids: Mapping[str, bytes]) -> list[Call]:
    """All requests. `ids` are those of the topics that exist; an unknown id stands for `missing`."""
    plain = bytes(encode_batch(at(NOW_MS)))
    owned = {"producer_id": NOBODY, "producer_epoch": 0}
    transactional = bytes(encode_batch(at(NOW_MS), **owned, base_sequence=0, transactional=True))
    owner = {"transactional_id": "till", **owned}
    of_id = {"orders": ids["orders"], "payments": ids["payments"], "missing": bytes(15) + b"\7"}
    committed = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}

    def to_write(batch: bytes, *names: str, by_id: bool = False) -> list[dict[str, Any]]:
        data = [{"index": 0, "records": batch}]
        return [
            {"topic_id": of_id[name]} | {"partition_data": data} if by_id else {"name": name, "partition_data": data}
            for name in names
        ]

    def each(
        fields: Mapping[str, Any], *names: str, key: str = "name", inner: str = "partitions"
    ) -> list[dict[str, Any]]:
        return [{key: name, inner: [fields]} for name in names]

    wanted = {
        "partition": 0,
        "fetch_offset": 0,
        "partition_max_bytes": 1000,
        "log_start_offset": -1,
        "current_leader_epoch": -1,
        "last_fetched_epoch": -1,
    }
    fetch = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 100_000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "rack_id": "",
        "forgotten_topics_data": [],
    }
    adding = {"topics": [{"name": name, "partitions": [0]} for name in ("orders", "payments")]}
    one = {"topics": [{"name": "orders", "partitions": [0]}]}
    member = {"group_id": "readers", "member_id": "nobody", "group_instance_id": None}
    resource = {"resource_type": 2, "configuration_keys": ["retention.ms"]}
    configs = [{**resource, "resource_name": name} for name in TOPICS]
    configs += [
        {"resource_type": 32, "resource_name": "readers", "configuration_keys": ["consumer.session.timeout.ms"]}
    ]
    changed = [{"resource_type": 2, "resource_name": name, "configs": []} for name in TOPICS]
    any_rule = {"resource_type_filter": 1, "resource_name_filter": "nothing", "pattern_type_filter": 3}
    any_rule |= {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
    no_rule = {"resource_type": 2, "resource_name": "", "resource_pattern_type": 3, "principal": "User:x", "host": "*"}
    no_rule |= {"operation": 3, "permission_type": 3}
    quotas = [
        {"entity": [{"entity_type": "user", "entity_name": "x"}], "ops": [{"key": key, "value": 1e9, "remove": False}]}
        for key in ("producer_byte_rate", "nothing")
    ]
    new_topics = [
        {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        for name in ("new", "orders", "more")
    ]
    grown = [{"name": name, "count": 3, "assignments": None} for name in TOPICS]
    beat = {"group_id": "readers", "member_id": "nobody", "member_epoch": 7, "instance_id": None, "rack_id": None}
    beat |= {"rebalance_timeout_ms": 60_000, "server_assignor": None, "topic_partitions": []}
    epoch = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    claim = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}

    asked = [
        Call(
            "Produce",
            v.PRODUCE,
            9,
            {"transactional_id": None, "acks": -1, "timeout_ms": 9000, "topic_data": to_write(plain, *TOPICS)},
        ),
        Call(
            "Produce by id",
            v.PRODUCE,
            13,
            {
                "transactional_id": None,
                "acks": 1,
                "timeout_ms": 9000,
                "topic_data": to_write(plain, *TOPICS, by_id=True),
            },
        ),
        Call(
            "Produce in a transaction",
            v.PRODUCE,
            9,
            {
                "transactional_id": "till",
                "acks": -1,
                "timeout_ms": 9000,
                "topic_data": to_write(transactional, "orders"),
            },
        ),
        Call(
            "Produce without a transactional id",
            v.PRODUCE,
            9,
            {"transactional_id": None, "acks": -1, "timeout_ms": 9000, "topic_data": to_write(transactional, "orders")},
        ),
        Call("Fetch", v.FETCH, 12, {**fetch, "topics": each(wanted, *TOPICS, key="topic")}),
        Call(
            "Fetch by id",
            v.FETCH,
            16,
            {**fetch, "topics": [{"topic_id": of_id[name], "partitions": [wanted]} for name in TOPICS]},
        ),
        Call(
            "ListOffsets",
            v.LIST_OFFSETS,
            7,
            {
                "replica_id": -1,
                "isolation_level": 0,
                "topics": each({"partition_index": 0, "current_leader_epoch": -1, "timestamp": -2}, *TOPICS),
            },
        ),
        Call(
            "Metadata",
            v.METADATA,
            9,
            {"topics": [{"name": name} for name in TOPICS], "allow_auto_topic_creation": False, **OPERATIONS},
        ),
        Call("Metadata of all", v.METADATA, 12, {"topics": None, "allow_auto_topic_creation": False, **NO_OPERATIONS}),
        Call(
            "Metadata by id",
            v.METADATA,
            12,
            {
                "topics": [{"name": None, "topic_id": of_id[name]} for name in TOPICS],
                "allow_auto_topic_creation": False,
                **OPERATIONS,
            },
        ),
        Call(
            "Metadata, creating",
            v.METADATA,
            12,
            {"topics": [{"name": "made", "topic_id": bytes(16)}], "allow_auto_topic_creation": True, **NO_OPERATIONS},
        ),
        Call(
            "OffsetCommit",
            v.OFFSET_COMMIT,
            8,
            {
                "group_id": "readers",
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "group_instance_id": None,
                "topics": each(committed, *TOPICS),
            },
        ),
        Call(
            "OffsetCommit by id",
            v.OFFSET_COMMIT,
            10,
            {
                "group_id": "readers",
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "group_instance_id": None,
                "topics": [{"topic_id": of_id[name], "partitions": [committed]} for name in TOPICS],
            },
        ),
        Call(
            "OffsetFetch",
            v.OFFSET_FETCH,
            7,
            {
                "group_id": "readers",
                "require_stable": False,
                "topics": [{"name": name, "partition_indexes": [0]} for name in TOPICS],
            },
        ),
        Call(
            "OffsetFetch, oldest",
            v.OFFSET_FETCH,
            1,
            {"group_id": "readers", "topics": [{"name": name, "partition_indexes": [0]} for name in TOPICS]},
        ),
        Call(
            "OffsetFetch of all",
            v.OFFSET_FETCH,
            8,
            {
                "require_stable": False,
                "groups": [{"group_id": "readers", "topics": None}, {"group_id": "others", "topics": None}],
            },
        ),
        Call("FindCoordinator of a group", v.FIND_COORDINATOR, 3, {"key": "readers", "key_type": 0}),
        Call(
            "FindCoordinator of groups",
            v.FIND_COORDINATOR,
            4,
            {"key_type": 0, "coordinator_keys": ["readers", "others"]},
        ),
        Call(
            "FindCoordinator of transactions",
            v.FIND_COORDINATOR,
            4,
            {"key_type": 1, "coordinator_keys": ["till", "other"]},
        ),
        Call(
            "JoinGroup",
            v.JOIN_GROUP,
            7,
            {
                "group_id": "readers",
                "session_timeout_ms": 1,
                "rebalance_timeout_ms": 1,
                "member_id": "",
                "group_instance_id": None,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": b""}],
            },
        ),
        Call(
            "SyncGroup",
            v.SYNC_GROUP,
            5,
            {**member, "generation_id": 3, "protocol_type": "consumer", "protocol_name": "range", "assignments": []},
        ),
        Call("Heartbeat", v.HEARTBEAT, 4, {**member, "generation_id": 3}),
        Call(
            "LeaveGroup",
            v.LEAVE_GROUP,
            4,
            {"group_id": "readers", "members": [{"member_id": "nobody", "group_instance_id": None}]},
        ),
        Call("LeaveGroup, oldest", v.LEAVE_GROUP, 0, {"group_id": "readers", "member_id": "nobody"}),
        Call(
            "DescribeGroups",
            v.DESCRIBE_GROUPS,
            5,
            {"groups": ["readers", "others"], "include_authorized_operations": True},
        ),
        Call("ListGroups", v.LIST_GROUPS, 4, {"states_filter": []}),
        Call("ApiVersions", v.API_VERSIONS, 3, {"client_software_name": "test", "client_software_version": "1"}),
        Call("CreateTopics", v.CREATE_TOPICS, 5, {"topics": new_topics, "timeout_ms": 9000, "validate_only": True}),
        Call("DeleteTopics by name", v.DELETE_TOPICS, 5, {"topic_names": ["missing", "doomed"], "timeout_ms": 9000}),
        Call(
            "DeleteTopics by id",
            v.DELETE_TOPICS,
            6,
            {
                "timeout_ms": 9000,
                "topics": [{"name": None, "topic_id": of_id["missing"]}, {"name": None, "topic_id": ids["doomed"]}],
            },
        ),
        Call(
            "DeleteRecords",
            v.DELETE_RECORDS,
            2,
            {"timeout_ms": 9000, "topics": each({"partition_index": 0, "offset": 0}, *TOPICS)},
        ),
        Call("InitProducerId", v.INIT_PRODUCER_ID, 4, {"transactional_id": None, **claim}),
        Call("InitProducerId of a transactional id", v.INIT_PRODUCER_ID, 4, {"transactional_id": "till", **claim}),
        Call(
            "OffsetForLeaderEpoch",
            v.OFFSET_FOR_LEADER_EPOCH,
            4,
            {"replica_id": -1, "topics": each(epoch, *TOPICS, key="topic")},
        ),
        Call(
            "AddPartitionsToTxn",
            v.ADD_PARTITIONS_TO_TXN,
            3,
            {f"v3_and_below_{key}": value for key, value in {**owner, **adding}.items()},
        ),
        Call(
            "AddPartitionsToTxn of one",
            v.ADD_PARTITIONS_TO_TXN,
            3,
            {f"v3_and_below_{key}": value for key, value in {**owner, **one}.items()},
        ),
        Call(
            "AddPartitionsToTxn by a broker",
            v.ADD_PARTITIONS_TO_TXN,
            4,
            {"transactions": [{**owner, "verify_only": True, **one}]},
        ),
        Call("AddOffsetsToTxn", v.ADD_OFFSETS_TO_TXN, 3, {**owner, "group_id": "readers"}),
        Call("EndTxn", v.END_TXN, 3, {**owner, "committed": False}),
        Call(
            "TxnOffsetCommit",
            v.TXN_OFFSET_COMMIT,
            3,
            {
                **owner,
                "group_id": "readers",
                "generation_id": -1,
                "member_id": "",
                "group_instance_id": None,
                "topics": each(committed, *TOPICS),
            },
        ),
        Call("DescribeAcls", v.DESCRIBE_ACLS, 2, any_rule),
        Call("CreateAcls", v.CREATE_ACLS, 2, {"creations": [no_rule, no_rule]}),
        Call("DeleteAcls", v.DELETE_ACLS, 2, {"filters": [any_rule]}),
        Call(
            "DescribeConfigs",
            v.DESCRIBE_CONFIGS,
            4,
            {"resources": configs, "include_synonyms": False, "include_documentation": False},
        ),
        Call(
            "DescribeConfigs of a broker",
            v.DESCRIBE_CONFIGS,
            4,
            {
                "include_synonyms": False,
                "include_documentation": False,
                "resources": [{"resource_type": 4, "resource_name": "1", "configuration_keys": ["log.retention.ms"]}],
            },
        ),
        Call("AlterConfigs", v.ALTER_CONFIGS, 2, {"resources": changed, "validate_only": True}),
        Call("IncrementalAlterConfigs", v.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": changed, "validate_only": True}),
        Call(
            "IncrementalAlterConfigs of a group",
            v.INCREMENTAL_ALTER_CONFIGS,
            1,
            {"validate_only": True, "resources": [{"resource_type": 32, "resource_name": "readers", "configs": []}]},
        ),
        Call("DescribeClientQuotas", v.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False}),
        Call("AlterClientQuotas", v.ALTER_CLIENT_QUOTAS, 1, {"entries": quotas, "validate_only": True}),
        Call("DescribeLogDirs", v.DESCRIBE_LOG_DIRS, 4, {"topics": None}),
        Call(
            "AlterReplicaLogDirs",
            v.ALTER_REPLICA_LOG_DIRS,
            2,
            {"dirs": [{"path": "/nowhere", "topics": [{"name": "missing", "partitions": [0]}]}]},
        ),
        Call(
            "ElectLeaders",
            v.ELECT_LEADERS,
            2,
            {
                "election_type": 0,
                "topic_partitions": [{"topic": name, "partitions": [0, 7]} for name in TOPICS],
                "timeout_ms": 9000,
            },
        ),
        Call(
            "ElectLeaders of every partition",
            v.ELECT_LEADERS,
            2,
            {"election_type": 0, "topic_partitions": None, "timeout_ms": 9000},
        ),
        Call(
            "AlterPartitionReassignments",
            v.ALTER_PARTITION_REASSIGNMENTS,
            1,
            {
                "allow_replication_factor_change": True,
                "topics": each({"partition_index": 0, "replicas": None}, *TOPICS),
                "timeout_ms": 9000,
            },
        ),
        Call("ListPartitionReassignments", v.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": None, "timeout_ms": 9000}),
        Call(
            "DescribeQuorum",
            v.DESCRIBE_QUORUM,
            2,
            {"topics": each({"partition_index": 0}, "__cluster_metadata", key="topic_name")},
        ),
        Call("CreatePartitions", v.CREATE_PARTITIONS, 3, {"topics": grown, "timeout_ms": 9000, "validate_only": True}),
        Call("DeleteGroups", v.DELETE_GROUPS, 2, {"groups_names": ["nobodys", "readers-2"]}),
        Call(
            "OffsetDelete",
            v.OFFSET_DELETE,
            0,
            {"group_id": "readers", "topics": each({"partition_index": 0}, "payments", "missing")},
        ),
        Call("DescribeCluster", v.DESCRIBE_CLUSTER, 0, {"include_cluster_authorized_operations": True}),
        Call(
            "DescribeProducers",
            v.DESCRIBE_PRODUCERS,
            0,
            {"topics": [{"name": name, "partition_indexes": [0]} for name in TOPICS]},
        ),
        Call("DescribeTransactions", v.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["till", "other"]}),
        Call("ListTransactions", v.LIST_TRANSACTIONS, 0, {"state_filters": [], "producer_id_filters": []}),
        Call("ConsumerGroupHeartbeat", v.CONSUMER_GROUP_HEARTBEAT, 0, {**beat, "subscribed_topic_names": ["orders"]}),
        Call(
            "ConsumerGroupDescribe",
            v.CONSUMER_GROUP_DESCRIBE,
            0,
            {"group_ids": ["readers", "others"], "include_authorized_operations": True},
        ),
        Call(
            "DescribeTopicPartitions",
            v.DESCRIBE_TOPIC_PARTITIONS,
            0,
            {"cursor": None, "topics": [{"name": name} for name in sorted(TOPICS)], "response_partition_limit": 2000},
        ),
        Call(
            "DescribeTopicPartitions of all",
            v.DESCRIBE_TOPIC_PARTITIONS,
            0,
            {"topics": [], "cursor": None, "response_partition_limit": 2000},
        ),
    ]
    own = requests_of_own_tests()
    return asked + [Call(v.NAMES[key], key, NEWEST[key], fields) for key, fields in own.items()]
