"""The tables of the outbox: what is not known to be in the log, how far each shard is, and what the broker refused.

A time is milliseconds since 1970; rows look the same on SQLite and PostgreSQL. An application writes only to the first
table, and does not know the shards: a row holds the hash that tells a relay its shard.
"""

from typing import Final

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, PrimaryKeyConstraint, Table, Text

metadata: Final = MetaData()

# One row for each message, in the transaction that it belongs to. It is never changed, and goes when the
# message is known to be in the log.
messages: Final = Table(
    "semel_outbox",
    metadata,
    # Goes up with each row that is inserted after another; not with commits.
    Column("number", BigInteger().with_variant(Integer, "sqlite"), nullable=False, autoincrement=True),
    Column("topic", Text, nullable=False),
    Column("key", LargeBinary),
    Column("value", LargeBinary),
    # As JSON: a list of [name, value in hexadecimal digits or null]; null where there are none.
    Column("headers", Text),
    # What order is kept for; null where there is nothing to keep it for.
    Column("aggregate", LargeBinary),
    # A hash of the aggregate: its shard is the remainder by their number.
    Column("bucket", BigInteger, nullable=False),
    Column("added_at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("number", name="semel_outbox_pkey"),
    # A number is never given twice, also not after the last row was deleted.
    sqlite_autoincrement=True,
)

# One row for each shard: the last batch that was made, what is in it, and whose the shard is.
shards: Final = Table(
    "semel_outbox_shards",
    metadata,
    Column("shard", BigInteger, nullable=False, autoincrement=False),
    Column("last_batch", BigInteger, nullable=False),
    # The numbers of the batch's messages, in JSON: a list of [first, last]; null once they are known to be in the log.
    Column("at_hand", Text),
    # A life of a relay: chance, and words for people.
    Column("owner", Text),
    Column("owner_name", Text),
    Column("owned_since_ms", BigInteger),
    PrimaryKeyConstraint("shard", name="semel_outbox_shards_pkey"),
)

# One row: under which name the outbox is relayed, and in how many shards.
relays: Final = Table(
    "semel_outbox_relays",
    metadata,
    Column("name", Text, nullable=False),
    # Chance, so that two databases with relays of one name have publishers of different names.
    Column("random", Text, nullable=False),
    Column("shards", BigInteger, nullable=False),
    PrimaryKeyConstraint("name", name="semel_outbox_relays_pkey"),
)

# One row for each message that the broker refuses.
quarantine: Final = Table(
    "semel_outbox_quarantine",
    metadata,
    Column("number", BigInteger, nullable=False, autoincrement=False),
    Column("aggregate", LargeBinary),
    Column("reason", Text, nullable=False),
    Column("refused_at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("number", name="semel_outbox_quarantine_pkey"),
    Index("semel_outbox_quarantine_by_aggregate", "aggregate"),
)
