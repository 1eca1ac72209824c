"""Where limits multiply: each code path that walks a collection in one turn of the event loop, and its largest product.

`docs/reference/limits.md` shows this table. `tests/broker/test_products.py` builds each of these corners, and holds the
counted steps against it.
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
)
