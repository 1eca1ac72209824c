"""The tables of the inbox. A time is in milliseconds since 1970; rows are the same on SQLite and PostgreSQL.

They are plain tables on both, and old rows are deleted by range. If PostgreSQL partitioned a table by time, its primary
key would have to contain the time, so an event could be claimed once in each partition: only ids that contain their own
time would stay unique, and most ids do not.
"""

from typing import Final

from sqlalchemy import (
    Column,
    Index,
    MetaData,
    PrimaryKeyConstraint,
    Table,
)
from sqlalchemy import UniqueConstraint as Unique

from semel.database.columns import BYTES, INTEGER, NUMBER, TEXT, key, with_options

# At four bytes for each character.
CONSUMER_BYTES_MAX: Final = 512
ID_BYTES_MAX: Final = 2048

metadata: Final = MetaData()

# One row for each event that a consumer has had: the claim.
claims: Final = Table(
    "semel_inbox",
    metadata,
    Column("consumer", key(CONSUMER_BYTES_MAX), nullable=False),
    Column("message_id", key(ID_BYTES_MAX), nullable=False),
    # When the event happened, as far as that is known. The later of the two times decides how long the claim is kept.
    Column("event_time_ms", INTEGER, nullable=False),
    Column("claimed_at_ms", INTEGER, nullable=False),
    # The span in which it was made, for those of its duplicates; null outside of a trace.
    Column("traceparent", TEXT),
    PrimaryKeyConstraint("consumer", "message_id", name="semel_inbox_pkey"),
    Index("semel_inbox_by_claim", "consumer", "claimed_at_ms", "event_time_ms"),
)

# One row for each aggregate that a consumer follows: the last version that it has accepted.
versions: Final = Table(
    "semel_inbox_versions",
    metadata,
    Column("consumer", key(CONSUMER_BYTES_MAX), nullable=False),
    Column("aggregate", key(ID_BYTES_MAX), nullable=False),
    Column("version", INTEGER, nullable=False),
    Column("claimed_at_ms", INTEGER, nullable=False),
    PrimaryKeyConstraint("consumer", "aggregate", name="semel_inbox_versions_pkey"),
)

# For each consumer that has forgotten claims, the time just after the latest event among them: an id from before it is
# never taken for new.
floors: Final = Table(
    "semel_inbox_floors",
    metadata,
    Column("consumer", key(CONSUMER_BYTES_MAX), nullable=False),
    Column("floor_ms", INTEGER, nullable=False),
    PrimaryKeyConstraint("consumer", name="semel_inbox_floors_pkey"),
)

# One row for each message that was put aside, with the message itself if a loop had it.
quarantine: Final = Table(
    "semel_inbox_quarantine",
    metadata,
    Column("number", NUMBER, nullable=False, autoincrement=True),
    Column("consumer", key(CONSUMER_BYTES_MAX), nullable=False),
    # Unique for each consumer: an event id, a version, or a record that has neither.
    Column("subject", key(ID_BYTES_MAX + 64), nullable=False),
    # held, due, done or dropped
    Column("state", key(16), nullable=False),
    # failed, undecodable, gap or floor
    Column("cause", TEXT, nullable=False),
    Column("reason", TEXT, nullable=False),
    Column("attempts", INTEGER, nullable=False),
    Column("quarantined_at_ms", INTEGER, nullable=False),
    Column("topic", TEXT),
    Column("partition", INTEGER),
    Column("offset", INTEGER),
    Column("timestamp_ms", INTEGER),
    Column("key", BYTES),
    Column("value", BYTES),
    # As JSON: a list of [name, value in hexadecimal digits or null].
    Column("headers", TEXT),
    PrimaryKeyConstraint("number", name="semel_inbox_quarantine_pkey"),
    Unique("consumer", "subject", name="semel_inbox_quarantine_subject"),
    Index("semel_inbox_quarantine_by_state", "state", "consumer", "number"),
)

with_options(metadata)
