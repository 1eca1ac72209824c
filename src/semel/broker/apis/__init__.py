"""One file for each API of the protocol, and the table that leads to them.

A handler gets the request's body, decides with the help of the log, and answers through the exchange. It runs on the
event loop and must not wait for anything.
"""

from typing import TYPE_CHECKING, Final

from semel.broker.apis import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from semel.wire import versions

if TYPE_CHECKING:
    from semel.broker.connection import Handler

HANDLERS: Final[dict[int, "Handler"]] = {
    versions.PRODUCE: produce.handle,
    versions.FETCH: fetch.handle,
    versions.LIST_OFFSETS: list_offsets.handle,
    versions.METADATA: metadata.handle,
    versions.FIND_COORDINATOR: find_coordinator.handle,
    versions.API_VERSIONS: api_versions.handle,
    versions.CREATE_TOPICS: create_topics.handle,
    versions.DELETE_TOPICS: delete_topics.handle,
    versions.DELETE_RECORDS: delete_records.handle,
    versions.INIT_PRODUCER_ID: init_producer_id.handle,
    versions.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.handle,
    versions.DESCRIBE_CONFIGS: describe_configs.handle,
    versions.ALTER_CONFIGS: alter_configs.handle,
    versions.DESCRIBE_LOG_DIRS: describe_log_dirs.handle,
    versions.CREATE_PARTITIONS: create_partitions.handle,
    versions.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.handle,
    versions.DESCRIBE_CLUSTER: describe_cluster.handle,
    versions.DESCRIBE_PRODUCERS: describe_producers.handle,
    versions.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions.handle,
}
