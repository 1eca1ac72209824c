"""All limits of the broker, with their defaults and reasons. Nothing that a client sends may grow without a limit."""

from dataclasses import replace
from typing import Any, Final

from semel.log.core.groups.assigned_group import MemberRules
from semel.log.core.groups.group_configs import GroupRules
from semel.log.core.groups.share_partition import ShareRules
from semel.log.core.partition import PRODUCER_EXPIRATION_MS
from semel.log.core.transaction_rules import TransactionBounds
from semel.log.core.values import value
from semel.log.storage.log_settings import LogSettings

# The node id of a broker without a store. On a store the epoch is the node id, so that each takeover changes it.
NODE_ID: Final = 1


@value
class Limits:
    """Named limits; `semel serve --limit NAME=VALUE` sets any of them."""

    # Connections cost a socket and a receive buffer each; one process on one machine easily serves this many. When half
    # of the limit is taken, an address gets more only while it has taken less than is still free. A newcomer that gets
    # no place takes that of a connection that has never sent a request, or was silent for ten seconds: one of its own
    # address, or one of the address with the most.
    connections_max: int = 2_000
    # The places that are kept for each listener, and for clients on this machine, but at most a twentieth of all: so
    # nobody on one listener can keep the clients of another one out.
    connections_kept: int = 100
    # Connections whose clients have not logged in yet, in all and from one address: the most that strangers can open.
    unknown_connections_max: int = 500
    unknown_connections_per_address_max: int = 100
    # How long a client may take from its connection to the end of its login. The broker checks this every five seconds.
    login_ms_max: int = 20_000
    # The largest request of a client that has not logged in; the messages of a login are far smaller.
    login_frame_bytes_max: int = 32 * 1024
    # The requests that a client may send until it has logged in. Clients send about five; many requests for
    # ApiVersions would take the event loop's time from the clients that are logged in.
    login_requests_max: int = 10
    # How long the answer to a failed login is delayed, as in Apache Kafka, so that passwords can only be guessed
    # slowly.
    failed_login_delay_ms: int = 100
    # How long a login is valid. Then the client has to log in again over the same connection (KIP-368), as clients do
    # automatically, or the broker closes the connection. 0 means for ever, as in Apache Kafka
    # (connections.max.reauth.ms).
    login_lifetime_ms: int = 0
    # The largest request, records included. As in Apache Kafka (socket.request.max.bytes), so that every client's
    # settings fit.
    frame_bytes_max: int = 100 * 1024 * 1024
    # The largest request without records: ten thousand partitions in one take about half a megabyte.
    small_request_bytes_max: int = 4 * 1024 * 1024
    # The receive buffers of all connections together. Beyond this limit the broker reads large requests one at a time.
    # When half of the limit is taken, an address gets more only while it has taken less than is still free.
    receive_bytes_max: int = 256 * 1024 * 1024
    # With `--store`: bytes that were appended and that the store has not acknowledged yet. Beyond this limit producers
    # get a retriable error. Twelve producers that send as fast as they can have this much under way.
    store_pending_bytes_max: int = 64 * 1024 * 1024
    # Requests of one connection that may be under way at once; the broker does not read the next one until one of them
    # is answered. Clients usually have 5 under way.
    requests_in_flight_max: int = 128
    # The size of one fetch answer. Clients ask for 50 MB, and accept less.
    fetch_answer_bytes_max: int = 8 * 1024 * 1024
    # Bytes of answers that clients have not read yet, of all connections together. Beyond this limit fetches get one
    # batch at a time.
    unsent_bytes_max: int = 256 * 1024 * 1024
    # Partitions in fetches that wait for records. Beyond this limit a fetch is answered at once with the records that
    # exist.
    waiting_partitions_max: int = 1_000_000
    # How long a fetch may wait for records, even if it asks for longer.
    fetch_wait_ms_max: int = 60_000
    # Sessions of incremental fetches. Further consumers fetch without a session, as the protocol allows.
    fetch_sessions_max: int = 1_000
    # Partitions in all fetch sessions together.
    fetch_session_partitions_max: int = 200_000
    # How long a client may take to send the rest of a request that has begun, or its next 64 KB. The same limit holds
    # for reading an answer.
    stalled_connection_ms_max: int = 60_000
    # How long a connection may be idle until the broker closes it, as in Apache Kafka.
    idle_connection_ms_max: int = 600_000
    # Topics that exist at once. Every checkpoint contains all of them.
    topics_max: int = 10_000
    # The partitions of all topics together.
    partitions_max: int = 20_000
    # Pairs of producer id and partition on record; all of them take 75 MB on disk and 100 MB in memory. When
    # half of the limit is taken, an address gets more only while it has taken less than is still free: so one address
    # alone gets half.
    producer_states_max: int = 1_000_000
    # How long the broker remembers a producer after its last batch, not counting time during which the broker was down:
    # seven days. If a client sends an acknowledged batch again after that, the batch is stored twice; but no client
    # retries for that long.
    producer_expiration_ms: int = PRODUCER_EXPIRATION_MS
    # Producers in one answer to DescribeProducers: a million would hold up all other clients for many seconds.
    producers_per_answer_max: int = 10_000
    # Consumer groups that exist at once. Every checkpoint contains all of them. When half of the limit is taken, an
    # address gets more only while it has taken less than is still free: so one address alone gets half.
    groups_max: int = 10_000
    # The longest name of a group, so that the names of all groups take no more than 10 MB.
    group_name_bytes_max: int = 1_024
    # Offsets of all groups together, those of open transactions included: 250 bytes each in memory.
    group_offsets_max: int = 1_000_000
    # How long the broker keeps a group's offsets after its last member left, or after their commit if the group never
    # had a member. As in Apache Kafka (offsets.retention.minutes): seven days.
    offsets_retention_ms: int = 604_800_000
    # Members of one group. Each joins again when another joins or leaves, and the leader gets a list of all of them.
    group_members_max: int = 2_000
    # The metadata of all members of one group, with 1 KB for each member. The leader gets all of it in one answer.
    group_bytes_max: int = 8 * 1024 * 1024
    # The same for the members of all groups together.
    groups_bytes_max: int = 256 * 1024 * 1024
    # The bounds of the session timeout that a member may ask for, as in Apache Kafka.
    group_session_timeout_ms_min: int = 6_000
    group_session_timeout_ms_max: int = 1_800_000
    # If a member's connection is closed, this percentage of its session timeout is left to it, unless it is static:
    # when a process is killed, its kernel closes the connection at once. By default clients send three heartbeats in a
    # session, so a client that only has to reconnect does so in time. With 100 a lost connection changes nothing, as in
    # Apache Kafka.
    group_lost_connection_session_percent: int = 40
    # How long the first member of a group waits for others. Apache Kafka has 3 s, and advises 0 for development: a
    # delay saves a rebalance for each member that starts a little later.
    group_initial_rebalance_delay_ms: int = 0
    # The session timeout and the heartbeat interval of members of the new protocol, as in Apache Kafka
    # (group.consumer.session.timeout.ms, group.consumer.heartbeat.interval.ms).
    consumer_group_session_timeout_ms: int = 45_000
    consumer_group_heartbeat_interval_ms: int = 5_000
    # The heartbeat interval while members join and leave. Apache Kafka has no such setting, so there a member that
    # joins waits for two intervals: one until another member gives up its partitions, and one until it learns that they
    # are free.
    consumer_group_heartbeat_interval_in_motion_ms: int = 500
    # The same for members of share groups (group.share.session.timeout.ms, group.share.heartbeat.interval.ms).
    share_group_session_timeout_ms: int = 45_000
    share_group_heartbeat_interval_ms: int = 5_000
    # Members of one share group, as in Apache Kafka (group.share.max.size).
    share_group_members_max: int = 200
    # How often a share group delivers a record that nobody accepts, as in Apache Kafka
    # (group.share.delivery.count.limit).
    share_deliveries_max: int = 5
    # How far the records of a share partition that are delivered may lie after the first one that is not done, as in
    # Apache Kafka (group.share.partition.max.record.locks): so many runs it has at most.
    share_partition_records_max: int = 2_000
    # How long a consumer of a share group holds a record, as in Apache Kafka (group.share.record.lock.duration.ms).
    share_lock_ms: int = 30_000
    # Share partitions: pairs of a share group and a partition that it has used. Every checkpoint contains all of them.
    share_partitions_max: int = 100_000
    # The records in flight of all share partitions together: at worst a run of 16 bytes for each.
    share_records_max: int = 1_000_000
    # Sessions of share consumers, as in Apache Kafka (group.share.max.share.sessions), and their partitions in all.
    share_sessions_max: int = 2_000
    share_session_partitions_max: int = 200_000
    # How long a new member may wait for its generation, as in Apache Kafka: clients give up after this time.
    group_new_member_join_timeout_ms: int = 300_000
    # The memory in which compaction remembers keys, at 210 bytes for each. If there are more keys, it takes several
    # passes.
    compaction_key_bytes_max: int = 128 * 1024 * 1024
    # The decompressed size of a batch in a compacted topic. The broker refuses a larger batch, and compaction skips a
    # larger one that was stored before the topic was compacted.
    compacted_batch_bytes_max: int = 64 * 1024 * 1024
    # Transactional ids on record, at half a kilobyte each. Every checkpoint contains all of them. When half of the
    # limit is taken, an address gets more only while it has taken less than is still free: so one address alone gets
    # half.
    transactional_ids_max: int = 100_000
    # The longest transactional id, so that all of them take no more than 100 MB; also the longest name of a group in a
    # transaction.
    transactional_id_bytes_max: int = 1_024
    # How long the broker keeps a transactional id after its last use, as in Apache Kafka: seven days.
    transactional_id_expiration_ms: int = 604_800_000
    # Transactions that are open at once. Each of them holds back readers of committed records.
    open_transactions_max: int = 10_000
    # Partitions and groups in one transaction. One entry ends it in all of them, so that no client sees half of the
    # end; with this many, all clients wait about 40 ms for it.
    transaction_partitions_max: int = 3_000
    # The same for all open transactions together: a partition takes a few hundred bytes, and a group as many as its
    # name.
    open_transaction_partitions_max: int = 200_000
    # Offsets of groups in one transaction: as many as there are partitions. The entry that ends the transaction commits
    # all of them, which takes 15 ms.
    transaction_offsets_max: int = 20_000
    # The groups of all open transactions together; usually a transaction has one. When a topic or an offset is deleted,
    # that is done in each of them at once.
    open_transaction_groups_max: int = 4_000
    # The longest transaction timeout that a client may ask for, as in Apache Kafka.
    transaction_timeout_ms_max: int = 900_000
    # Access rules (ACLs), at half a kilobyte each in memory. Every checkpoint contains all of them.
    access_rules_max: int = 100_000


def group_rules(limits: Limits) -> GroupRules:
    """The rules of groups that follow from these limits, for groups without configurations of their own."""
    consumers = MemberRules(
        session_timeout_ms=limits.consumer_group_session_timeout_ms,
        heartbeat_interval_ms=limits.consumer_group_heartbeat_interval_ms,
        heartbeat_interval_in_motion_ms=limits.consumer_group_heartbeat_interval_in_motion_ms,
        lost_connection_session_percent=limits.group_lost_connection_session_percent,
        members_max=limits.group_members_max,
    )
    sharers = replace(
        consumers,
        session_timeout_ms=limits.share_group_session_timeout_ms,
        heartbeat_interval_ms=limits.share_group_heartbeat_interval_ms,
        members_max=limits.share_group_members_max,
    )
    shares = ShareRules(
        deliveries_max=limits.share_deliveries_max,
        locks_max=limits.share_partition_records_max,
        lock_ms=limits.share_lock_ms,
    )
    return GroupRules(consumers, sharers, shares)


def log_settings(limits: Limits, *, in_memory: bool, open_segments_max: int) -> LogSettings:
    """The settings of the log that follow from these limits."""
    # In memory the journal protects nothing; a small one costs little.
    sizes: dict[str, Any] = (
        {"journal_file_bytes": 1024 * 1024, "checkpoint_bytes": 4 * 1024 * 1024} if in_memory else {}
    )
    return LogSettings(
        **sizes,
        topics_max=limits.topics_max,
        partitions_max=limits.partitions_max,
        producer_states_max=limits.producer_states_max,
        producer_expiration_ms=limits.producer_expiration_ms,
        groups_max=limits.groups_max,
        group_name_bytes_max=limits.group_name_bytes_max,
        group_offsets_max=limits.group_offsets_max,
        transaction_offsets_max=limits.transaction_offsets_max,
        transactions=TransactionBounds(
            ids_max=limits.transactional_ids_max,
            id_bytes_max=limits.transactional_id_bytes_max,
            open_max=limits.open_transactions_max,
            partitions_max=limits.transaction_partitions_max,
            open_partitions_max=limits.open_transaction_partitions_max,
            open_groups_max=limits.open_transaction_groups_max,
            timeout_ms_max=limits.transaction_timeout_ms_max,
        ),
        access_rules_max=limits.access_rules_max,
        open_segments_max=open_segments_max,
    )
