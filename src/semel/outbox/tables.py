"""The tables of the outbox: messages that are not known to be in the log, the state of each shard, and refused
messages.

A time is in milliseconds since 1970; rows are the same on SQLite and PostgreSQL. An application writes only to the
first table, and does not know the shards: a row holds a hash, from which a relay computes the shard.
"""

from typing import Final

from sqlalchemy import Column, Index, MetaData, PrimaryKeyConstraint, Table

from semel.database.columns import BYTES, INTEGER, NUMBER, TEXT, key, with_options

metadata: Final = MetaData()

# One row for each message, inserted in the application's transaction. It is never changed, and deleted when the message
# is known to be in the log.
messages: Final = Table(
    "semel_outbox",
    metadata,
    # Rises in the order of inserts, not of commits.
    Column("number", NUMBER, nullable=False, autoincrement=True),
    Column("topic", TEXT, nullable=False),
    Column("key", BYTES),
    Column("value", BYTES),
    # As JSON: a list of [name, value in hexadecimal digits or null]; null if there are none.
    Column("headers", TEXT),
    # Messages of one aggregate keep their order; null if the message has none.
    Column("aggregate", BYTES),
    # A hash of the aggregate. The shard is this hash modulo the number of shards.
    Column("bucket", INTEGER, nullable=False),
    Column("added_at_ms", INTEGER, nullable=False),
    PrimaryKeyConstraint("number", name="semel_outbox_pkey"),
    # A number is never used twice, even after the last row was deleted.
    sqlite_autoincrement=True,
)

# One row for each shard: the last batch that was made, its messages, and the relay that has the shard.
shards: Final = Table(
    "semel_outbox_shards",
    metadata,
    Column("shard", INTEGER, nullable=False, autoincrement=False),
    Column("last_batch", INTEGER, nullable=False),
    # The numbers of the batch's messages, in JSON: a list of [first, last]; null once they are known to be in the log.
    Column("at_hand", TEXT),
    # The relay that has the shard: a random id, and a name for people.
    Column("owner", TEXT),
    Column("owner_name", TEXT),
    Column("owned_since_ms", INTEGER),
    # By the database's clock: a relay that stands by takes over after this. Null if the owner renews no lease.
    Column("lease_until_ms", INTEGER),
    PrimaryKeyConstraint("shard", name="semel_outbox_shards_pkey"),
)

# One row: the name under which relays publish the outbox, and the number of shards.
relays: Final = Table(
    "semel_outbox_relays",
    metadata,
    Column("name", key(255), nullable=False),
    # Random, so that the publishers of two databases have different names even if their relays have the same.
    Column("random", TEXT, nullable=False),
    Column("shards", INTEGER, nullable=False),
    PrimaryKeyConstraint("name", name="semel_outbox_relays_pkey"),
)

# One row for each message that the broker refuses.
quarantine: Final = Table(
    "semel_outbox_quarantine",
    metadata,
    Column("number", INTEGER, nullable=False, autoincrement=False),
    Column("aggregate", BYTES),
    Column("reason", TEXT, nullable=False),
    Column("refused_at_ms", INTEGER, nullable=False),
    PrimaryKeyConstraint("number", name="semel_outbox_quarantine_pkey"),
    Index("semel_outbox_quarantine_by_aggregate", "aggregate", mysql_length=255, mariadb_length=255),
)

with_options(metadata)
