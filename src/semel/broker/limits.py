"""Every bound the broker has, with its default and the reason for it. Nothing a client sends may grow without one."""

from typing import Any, Final

from semel.core.partition import PRODUCER_EXPIRATION_MS
from semel.core.transaction_rules import TransactionBounds
from semel.core.values import value
from semel.storage.log import LogSettings

# The number of a broker that is the only one. On a store it is the epoch: each takeover has another.
NODE_ID: Final = 1


@value
class Limits:
    """Named limits; `semel serve --limit NAME=VALUE` sets any of them."""

    # Connections cost a socket and a receive buffer each; one process on one machine serves this many with ease.
    connections_max: int = 2_000
    # Connections whose clients have yet to log in, in all and from one address: what strangers can take.
    unknown_connections_max: int = 500
    unknown_connections_per_address_max: int = 100
    # How long a client may take from its connection to the end of its login; looked at every five seconds.
    login_ms_max: int = 20_000
    # The largest request of a client that has not logged in: what proves a user is far smaller.
    login_frame_bytes_max: int = 32 * 1024
    # The answer to a login that fails comes this much later, as in Apache Kafka, so that passwords are guessed slowly.
    failed_login_delay_ms: int = 100
    # How long a login is good for; then the client has to repeat it over the same connection (KIP-368), as clients do
    # by themselves, or the connection is closed. As in Apache Kafka (connections.max.reauth.ms): 0 is for ever.
    login_lifetime_ms: int = 0
    # The largest request, which is one that carries records. As in Apache Kafka (socket.request.max.bytes), so that
    # every client's settings fit.
    frame_bytes_max: int = 100 * 1024 * 1024
    # The largest request that carries none: ten thousand partitions in one take about half a megabyte.
    small_request_bytes_max: int = 4 * 1024 * 1024
    # Receive buffers of all connections together; beyond it large requests are read one at a time.
    receive_bytes_max: int = 256 * 1024 * 1024
    # What was appended and waits for a store, with `--store`; beyond it producers are told to try again. Twelve
    # producers that send as fast as they can have so much under way.
    store_pending_bytes_max: int = 64 * 1024 * 1024
    # Requests of one connection that may be under way at once; the next one waits unread. Clients keep 5 or so.
    requests_in_flight_max: int = 128
    # One fetch answer. Clients ask for 50 MB and are content with less.
    fetch_answer_bytes_max: int = 8 * 1024 * 1024
    # Answers that were given but not taken yet, of all connections; beyond it fetches get one batch at a time.
    unsent_bytes_max: int = 256 * 1024 * 1024
    # Partitions in fetches that wait for records; beyond it a fetch is answered at once with the records that exist.
    waiting_partitions_max: int = 1_000_000
    # How long a fetch may wait for records, whatever it asks for.
    fetch_wait_ms_max: int = 60_000
    # Sessions of incremental fetches; consumers beyond these do without, as the protocol allows.
    fetch_sessions_max: int = 1_000
    # Partitions in all of those sessions together.
    fetch_session_partitions_max: int = 200_000
    # The rest of a request that has begun, or its next 64 KB, has to come within this time. The same holds for an
    # answer that goes out.
    stalled_connection_ms_max: int = 60_000
    # A connection on which nothing happens is closed after this time, as in Apache Kafka.
    idle_connection_ms_max: int = 600_000
    # Topics that exist at once; each stands in every checkpoint.
    topics_max: int = 10_000
    # Partitions of all topics together.
    partitions_max: int = 20_000
    # Pairs of producer id and partition on record; all of them are 140 MB in a checkpoint and 300 MB in memory. Once
    # half of that is taken, an address may put no more on record than it leaves free for others: alone it gets half.
    producer_states_max: int = 1_000_000
    # How long a producer is remembered after its last batch, in time in which the broker was there: seven days. A
    # client that sends an acknowledged batch again later has it stored twice; no client goes on trying for so long.
    producer_expiration_ms: int = PRODUCER_EXPIRATION_MS
    # Producers in one answer to DescribeProducers: a million would hold up all other clients for many seconds.
    producers_per_answer_max: int = 10_000
    # Consumer groups that exist at once; each stands in every checkpoint. Once half of that is taken, an address may
    # put no more on record than it leaves free for others: alone it gets half.
    groups_max: int = 10_000
    # So that all of them take no more than 10 MB, whatever clients call them.
    group_name_bytes_max: int = 1_024
    # Offsets of all groups together, those of open transactions included: 250 bytes each in memory.
    group_offsets_max: int = 1_000_000
    # How long a group's offsets are kept after its last member left, or, where there never was one, after they were
    # committed, as in Apache Kafka (offsets.retention.minutes): seven days.
    offsets_retention_ms: int = 604_800_000
    # Members of one group. Each joins again when another comes or goes, and the leader is told about all of them.
    group_members_max: int = 2_000
    # What members of one group bring, and what each of them takes otherwise: 1 KB. The leader gets it in one answer.
    group_bytes_max: int = 8 * 1024 * 1024
    # The members of all groups together.
    groups_bytes_max: int = 256 * 1024 * 1024
    # How long a member may ask to be silent, as in Apache Kafka.
    group_session_timeout_ms_min: int = 6_000
    group_session_timeout_ms_max: int = 1_800_000
    # How much of its session a member has left when the connection over which it spoke goes away, unless it is static:
    # the kernel of one that was killed ends it at once. By their defaults clients send a heartbeat in every third of a
    # session, so one that only has to connect again is heard in time. With 100 a lost connection changes nothing, as in
    # Apache Kafka.
    group_lost_connection_session_percent: int = 40
    # How long the first member of a group waits for others. Apache Kafka has 3 s, and advises 0 for development: what
    # it saves is a rebalance for each member that starts a little later.
    group_initial_rebalance_delay_ms: int = 0
    # How long a member of the new protocol may be silent, and how often it is told to speak, as in Apache Kafka
    # (group.consumer.session.timeout.ms, group.consumer.heartbeat.interval.ms).
    consumer_group_session_timeout_ms: int = 45_000
    consumer_group_heartbeat_interval_ms: int = 5_000
    # How often while members come and go. Apache Kafka knows no such thing, and a member that joins waits there for two
    # intervals: one until another member gives up its partitions, one until it is told that they are free.
    consumer_group_heartbeat_interval_in_motion_ms: int = 500
    # How long a new member may wait to be told its generation, as in Apache Kafka: clients give up after this long.
    group_new_member_join_timeout_ms: int = 300_000
    # What compaction may take to remember keys, at 210 bytes for each; where there are more it goes in several rounds.
    compaction_key_bytes_max: int = 128 * 1024 * 1024
    # What a batch of a compacted topic may be when it is decompressed. A larger one is refused, and one that came
    # before the topic was compacted stays as it is.
    compacted_batch_bytes_max: int = 64 * 1024 * 1024
    # Transactional ids on record: what is known of one takes half a kilobyte, and stands in every checkpoint. Once half
    # of that is taken, an address may put no more on record than it leaves free for others: alone it gets half.
    transactional_ids_max: int = 100_000
    # So that they take no more than 100 MB, whatever clients call themselves. Groups in transactions, too.
    transactional_id_bytes_max: int = 1_024
    # How long a transactional id is kept after it was used last, as in Apache Kafka: seven days.
    transactional_id_expiration_ms: int = 604_800_000
    # Transactions that are open at once, each of which holds back what consumers of committed records may read.
    open_transactions_max: int = 10_000
    # Partitions and groups in one transaction, which stand in the one entry that ends it: no client may see
    # an end half done, and so all of them wait for it, for about 40 ms with this many.
    transaction_partitions_max: int = 3_000
    # The same of all open transactions together: one takes a few hundred bytes, and a group as much as its name.
    open_transaction_partitions_max: int = 200_000
    # The longest a client may ask for as the time that its transactions may take, as in Apache Kafka.
    transaction_timeout_ms_max: int = 900_000
    # Access rules (ACLs): half a kilobyte each in memory, and each stands in every checkpoint.
    access_rules_max: int = 100_000


def log_settings(limits: Limits, *, in_memory: bool) -> LogSettings:
    """What these limits mean to the log."""
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
        transactions=TransactionBounds(
            ids_max=limits.transactional_ids_max,
            id_bytes_max=limits.transactional_id_bytes_max,
            open_max=limits.open_transactions_max,
            partitions_max=limits.transaction_partitions_max,
            open_partitions_max=limits.open_transaction_partitions_max,
            timeout_ms_max=limits.transaction_timeout_ms_max,
        ),
        access_rules_max=limits.access_rules_max,
    )
