"""The messages of Apache Kafka 4.3.1, a module for each API, imported when it is first named.

    request = kafka.metadata.MetadataRequest(topics=None, ...)

`make messages` writes this package from Kafka's own definitions: software developed at The Apache Software Foundation
(https://www.apache.org/), under the Apache License 2.0.
`semel.wire.message` says what the classes can do. Nothing here may be written by hand.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semel.wire.kafka import add_offsets_to_txn as add_offsets_to_txn
    from semel.wire.kafka import add_partitions_to_txn as add_partitions_to_txn
    from semel.wire.kafka import alter_client_quotas as alter_client_quotas
    from semel.wire.kafka import alter_configs as alter_configs
    from semel.wire.kafka import alter_partition_reassignments as alter_partition_reassignments
    from semel.wire.kafka import alter_replica_log_dirs as alter_replica_log_dirs
    from semel.wire.kafka import alter_share_group_offsets as alter_share_group_offsets
    from semel.wire.kafka import alter_user_scram_credentials as alter_user_scram_credentials
    from semel.wire.kafka import api_versions as api_versions
    from semel.wire.kafka import consumer_group_describe as consumer_group_describe
    from semel.wire.kafka import consumer_group_heartbeat as consumer_group_heartbeat
    from semel.wire.kafka import create_acls as create_acls
    from semel.wire.kafka import create_partitions as create_partitions
    from semel.wire.kafka import create_topics as create_topics
    from semel.wire.kafka import delete_acls as delete_acls
    from semel.wire.kafka import delete_groups as delete_groups
    from semel.wire.kafka import delete_records as delete_records
    from semel.wire.kafka import delete_share_group_offsets as delete_share_group_offsets
    from semel.wire.kafka import delete_topics as delete_topics
    from semel.wire.kafka import describe_acls as describe_acls
    from semel.wire.kafka import describe_client_quotas as describe_client_quotas
    from semel.wire.kafka import describe_cluster as describe_cluster
    from semel.wire.kafka import describe_configs as describe_configs
    from semel.wire.kafka import describe_groups as describe_groups
    from semel.wire.kafka import describe_log_dirs as describe_log_dirs
    from semel.wire.kafka import describe_producers as describe_producers
    from semel.wire.kafka import describe_quorum as describe_quorum
    from semel.wire.kafka import describe_share_group_offsets as describe_share_group_offsets
    from semel.wire.kafka import describe_topic_partitions as describe_topic_partitions
    from semel.wire.kafka import describe_transactions as describe_transactions
    from semel.wire.kafka import describe_user_scram_credentials as describe_user_scram_credentials
    from semel.wire.kafka import elect_leaders as elect_leaders
    from semel.wire.kafka import end_txn as end_txn
    from semel.wire.kafka import fetch as fetch
    from semel.wire.kafka import find_coordinator as find_coordinator
    from semel.wire.kafka import heartbeat as heartbeat
    from semel.wire.kafka import incremental_alter_configs as incremental_alter_configs
    from semel.wire.kafka import init_producer_id as init_producer_id
    from semel.wire.kafka import join_group as join_group
    from semel.wire.kafka import leave_group as leave_group
    from semel.wire.kafka import list_config_resources as list_config_resources
    from semel.wire.kafka import list_groups as list_groups
    from semel.wire.kafka import list_offsets as list_offsets
    from semel.wire.kafka import list_partition_reassignments as list_partition_reassignments
    from semel.wire.kafka import list_transactions as list_transactions
    from semel.wire.kafka import metadata as metadata
    from semel.wire.kafka import offset_commit as offset_commit
    from semel.wire.kafka import offset_delete as offset_delete
    from semel.wire.kafka import offset_fetch as offset_fetch
    from semel.wire.kafka import offset_for_leader_epoch as offset_for_leader_epoch
    from semel.wire.kafka import produce as produce
    from semel.wire.kafka import sasl_authenticate as sasl_authenticate
    from semel.wire.kafka import sasl_handshake as sasl_handshake
    from semel.wire.kafka import share_acknowledge as share_acknowledge
    from semel.wire.kafka import share_fetch as share_fetch
    from semel.wire.kafka import share_group_describe as share_group_describe
    from semel.wire.kafka import share_group_heartbeat as share_group_heartbeat
    from semel.wire.kafka import sync_group as sync_group
    from semel.wire.kafka import txn_offset_commit as txn_offset_commit


def __getattr__(name: str) -> ModuleType:
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError:
        raise AttributeError(f"Kafka has no API {name}") from None
