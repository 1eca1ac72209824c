"""Where limits multiply: each code path that walks a collection in one turn of the event loop, and its largest product.

`docs/reference/limits.md` shows this table. `tests/log/broker/test_products.py` builds each of these corners, and holds
the counted steps against it.
"""

from typing import Final, NamedTuple


class Product(NamedTuple):
    """One code path. `corner` says how large the collections in it can be at once, and `steps_max` how many steps of
    Python it then takes in one turn, at most.
    """

    name: str
    path: str
    limits: tuple[str, ...]
    corner: str
    steps_max: int


# What may be done in one turn: some 40 ms.
STEPS_MAX: Final = 2_000_000

PRODUCTS: Final = (
    Product(
        "offsets deleted",
        "OffsetDelete, one entry: decided and applied",
        ("open_transaction_groups_max", "partitions_max"),
        "500 partitions, or one with a pending offset in each of 4,000 open transactions",
        1_300_000,
    ),
    Product(
        "offsets expired",
        "the expiry of a group's offsets, one entry: decided and applied",
        ("partitions_max", "open_transaction_groups_max"),
        "a group with offsets in 20,000 partitions and 4,000 open transactions",
        900_000,
    ),
    Product(
        "offsets committed by a transaction",
        "the end of a transaction: applied to groups, on the active broker and on a standby",
        ("transaction_offsets_max", "transaction_partitions_max"),
        "20,000 offsets in one group",
        1_500_000,
    ),
    Product(
        "topic deleted with offsets",
        "the deletion of a topic: applied to groups",
        ("group_offsets_max", "groups_max"),
        "50 groups with 20,000 offsets each in the topic",
        900_000,
    ),
    Product(
        "topic deleted with pending offsets",
        "the deletion of a topic: applied to groups",
        ("open_transaction_groups_max", "groups_max"),
        "an open transaction with a pending offset in each of 4,000 groups",
        2_000_000,
    ),
    Product(
        "offsets fetched",
        "OffsetFetch, one partition of an answer with stable offsets",
        ("open_transaction_groups_max",),
        "4,000 open transactions with a pending offset in the group",
        1_000,
    ),
    Product(
        "fetches told of an append",
        "an append, or the deletion of a topic, before fetches that wait: one step",
        ("waiting_partitions_max", "connections_max", "requests_in_flight_max"),
        "256,000 fetches that wait for one partition",
        10_000,
    ),
    Product(
        "topic created",
        "CreateTopics: encoded and applied, on the active broker and on a standby",
        ("partitions_max",),
        "a topic with 20,000 partitions; each is made when it is first used",
        10_000,
    ),
    Product(
        "partitions added",
        "CreatePartitions: encoded and applied, on the active broker and on a standby",
        ("partitions_max",),
        "20,000 more partitions",
        10_000,
    ),
    Product(
        "topic deleted",
        "the deletion of a topic: applied to partitions",
        ("partitions_max",),
        "a topic with 20,000 partitions that were used",
        2_000_000,
    ),
    Product(
        "catalog copied",
        "a checkpoint: its first step",
        ("topics_max",),
        "10,000 topics",
        400_000,
    ),
    Product(
        "segments copied",
        "a checkpoint: one partition",
        ("SEGMENTS_MAX",),
        "10,000 segments, of which later ones are large",
        2_000,
    ),
    Product(
        "segments looked through",
        "retention, and ListOffsets by time: one partition",
        ("SEGMENTS_MAX",),
        "10,000 segments, all of them too old",
        900_000,
    ),
    Product(
        "segments deleted",
        "DeleteRecords or retention, one partition: applied",
        ("SEGMENTS_MAX",),
        "10,000 segments",
        700_000,
    ),
    Product(
        "aborted transactions found",
        "a fetch of committed records: one partition",
        ("fetch_answer_bytes_max", "open_transactions_max"),
        "65,000 aborted transactions among 8 MiB of records",
        300_000,
    ),
    Product(
        "aborted transactions sent",
        "the answer to a fetch of committed records: one partition",
        ("fetch_answer_bytes_max", "open_transactions_max"),
        "65,000 aborted transactions",
        20_000,
    ),
    Product(
        "fetch session begun",
        "a fetch that begins a session: its partitions noted",
        ("fetch_session_partitions_max",),
        "30,000 partitions in one request",
        1_700_000,
    ),
    Product(
        "silent transactional ids",
        "the expiry of transactional ids: its first step",
        ("transactional_ids_max",),
        "100,000 ids are listed, and a thousand looked at",
        700_000,
    ),
    Product(
        "generation of a classic group begun",
        "the last JoinGroup of a rebalance: all members are answered, each in a step",
        ("group_members_max", "group_bytes_max"),
        "2,000 members",
        500_000,
    ),
    Product(
        "classic group stored",
        "the leader's SyncGroup: encoded and applied, also on a standby; its members are answered, each in a step",
        ("group_members_max", "group_bytes_max"),
        "2,000 members, who bring 6 MB and are assigned 4 MB",
        1_900_000,
    ),
    Product(
        "consumer group joined",
        "ConsumerGroupHeartbeat of a new member: decided and applied, before the assignment",
        ("group_members_max", "topics_max"),
        "2,000 members with the same 10,000 topics",
        2_000_000,
    ),
    Product(
        "consumer group assigned",
        "the assignment of a group: one step",
        ("group_members_max", "partitions_max"),
        "2,000 members with the same 10,000 topics of two partitions",
        1_500_000,
    ),
    Product(
        "consumer group's targets stored",
        "the assignment of a group: one of its entries, also on a standby",
        ("group_members_max", "partitions_max"),
        "the targets of 2,000 members, 500 topics in an entry",
        200_000,
    ),
    Product(
        "share records acquired",
        "ShareFetch, one share partition: decided, encoded and applied",
        ("share_partition_records_max",),
        "4,000 records, no two of which in a row were delivered equally often",
        2_000_000,
    ),
    Product(
        "share records acknowledged",
        "ShareAcknowledge, one share partition: decided, encoded and applied",
        ("share_partition_records_max",),
        "4,000 records, which are released and accepted by turns",
        2_000_000,
    ),
    Product(
        "share records released",
        "the end of a session, or of locks, one share partition: decided, encoded and applied",
        ("share_partition_records_max",),
        "4,000 records, no two of which in a row were delivered equally often",
        2_000_000,
    ),
    Product(
        "share group copied",
        "a checkpoint: one share group",
        ("share_records_max",),
        "a million runs",
        1_000,
    ),
    Product(
        "topic deleted with share partitions",
        "the deletion of a topic: applied to share groups",
        ("share_partitions_max", "partitions_max"),
        "a topic with 20,000 partitions, in each of 5 share groups",
        2_000_000,
    ),
)
