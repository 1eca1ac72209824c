"""One file for each API of the protocol, and the table of their handlers.

A handler gets the body of a request, uses the log, and answers through the exchange. It runs on the event loop, in
steps, and must not block.
"""

from typing import Final

from semel.log.broker.apis import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
)
from semel.log.broker.exchange import Exchange
from semel.log.broker.serving import Handler, Serving
from semel.wire import versions
from semel.wire.errors import ProtocolError
from semel.wire.steps import Steps

HANDLERS: Final[dict[int, Handler]] = {
    versions.PRODUCE: produce.handle,
    versions.FETCH: fetch.handle,
    versions.LIST_OFFSETS: list_offsets.handle,
    versions.METADATA: metadata.handle,
    versions.OFFSET_COMMIT: offset_commit.handle,
    versions.OFFSET_FETCH: offset_fetch.handle,
    versions.FIND_COORDINATOR: find_coordinator.handle,
    versions.JOIN_GROUP: join_group.handle,
    versions.HEARTBEAT: heartbeat.handle,
    versions.LEAVE_GROUP: leave_group.handle,
    versions.SYNC_GROUP: sync_group.handle,
    versions.DESCRIBE_GROUPS: describe_groups.handle,
    versions.LIST_GROUPS: list_groups.handle,
    versions.SASL_HANDSHAKE: sasl_handshake.handle,
    versions.API_VERSIONS: api_versions.handle,
    versions.CREATE_TOPICS: create_topics.handle,
    versions.DELETE_TOPICS: delete_topics.handle,
    versions.DELETE_RECORDS: delete_records.handle,
    versions.INIT_PRODUCER_ID: init_producer_id.handle,
    versions.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.handle,
    versions.TXN_OFFSET_COMMIT: txn_offset_commit.handle,
    versions.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn.handle,
    versions.ADD_OFFSETS_TO_TXN: add_offsets_to_txn.handle,
    versions.END_TXN: end_txn.handle,
    versions.DESCRIBE_ACLS: describe_acls.handle,
    versions.CREATE_ACLS: create_acls.handle,
    versions.DELETE_ACLS: delete_acls.handle,
    versions.DESCRIBE_CONFIGS: describe_configs.handle,
    versions.ALTER_CONFIGS: alter_configs.handle,
    versions.ALTER_REPLICA_LOG_DIRS: alter_replica_log_dirs.handle,
    versions.DESCRIBE_LOG_DIRS: describe_log_dirs.handle,
    versions.SASL_AUTHENTICATE: sasl_authenticate.handle,
    versions.CREATE_PARTITIONS: create_partitions.handle,
    versions.DELETE_GROUPS: delete_groups.handle,
    versions.ELECT_LEADERS: elect_leaders.handle,
    versions.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.handle,
    versions.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments.handle,
    versions.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments.handle,
    versions.OFFSET_DELETE: offset_delete.handle,
    versions.DESCRIBE_CLIENT_QUOTAS: describe_client_quotas.handle,
    versions.ALTER_CLIENT_QUOTAS: alter_client_quotas.handle,
    versions.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_user_scram_credentials.handle,
    versions.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials.handle,
    versions.DESCRIBE_QUORUM: describe_quorum.handle,
    versions.DESCRIBE_CLUSTER: describe_cluster.handle,
    versions.DESCRIBE_PRODUCERS: describe_producers.handle,
    versions.DESCRIBE_TRANSACTIONS: describe_transactions.handle,
    versions.LIST_TRANSACTIONS: list_transactions.handle,
    versions.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat.handle,
    versions.CONSUMER_GROUP_DESCRIBE: consumer_group_describe.handle,
    versions.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions.handle,
}


def served_by_its_handler(broker: Serving, exchange: Exchange, body: memoryview) -> Steps[None]:
    """The steps that serve a request. If there is no handler for its API or version, they end in a ProtocolError."""
    if exchange.api_key not in HANDLERS:
        return _refused(f"API {exchange.api_key} is not served")
    if not has_handler(exchange):
        return _refused(f"version {exchange.version} of API {exchange.api_key} is not served")
    return HANDLERS[exchange.api_key](broker, exchange, body)


def has_handler(exchange: Exchange) -> bool:
    """Whether there is a handler for the API and the version of a request. If not, nobody knows how it is encoded."""
    if exchange.api_key == versions.API_VERSIONS:
        # Its handler answers a version that it does not know, too.
        return True
    return exchange.api_key in HANDLERS and versions.is_announced(exchange.api_key, exchange.version)


def _refused(why: str) -> Steps[None]:
    raise ProtocolError(why)
    yield
