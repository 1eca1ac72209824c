"""The tables of the inbox. A time is in milliseconds since 1970; rows are the same on SQLite and PostgreSQL.

They are plain tables on both, and old rows are deleted by range. If PostgreSQL partitioned a table by time, its primary
key would have to contain the time, so an event could be claimed once in each partition: only ids that contain their own
time would stay unique, and most ids do not.
"""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Executable,
    Index,
    Insert,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
)
from sqlalchemy import UniqueConstraint as Unique
from sqlalchemy.dialects import postgresql, sqlite

metadata: Final = MetaData()

# One row for each event that a consumer has had: the claim.
claims: Final = Table(
    "semel_inbox",
    metadata,
    Column("consumer", Text, nullable=False),
    Column("message_id", Text, nullable=False),
    # When the event happened, as far as that is known. The later of the two times decides how long the claim is kept.
    Column("event_time_ms", BigInteger, nullable=False),
    Column("claimed_at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("consumer", "message_id", name="semel_inbox_pkey"),
    Index("semel_inbox_by_claim", "consumer", "claimed_at_ms", "event_time_ms"),
)

# One row for each aggregate that a consumer follows: the last version that it has accepted.
versions: Final = Table(
    "semel_inbox_versions",
    metadata,
    Column("consumer", Text, nullable=False),
    Column("aggregate", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("claimed_at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("consumer", "aggregate", name="semel_inbox_versions_pkey"),
)

# For each consumer that has forgotten claims, the time just after the latest event among them: an id from before it is
# never taken for new.
floors: Final = Table(
    "semel_inbox_floors",
    metadata,
    Column("consumer", Text, nullable=False),
    Column("floor_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("consumer", name="semel_inbox_floors_pkey"),
)

# One row for each message that was put aside, with the message itself if a loop had it.
quarantine: Final = Table(
    "semel_inbox_quarantine",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), nullable=False, autoincrement=True),
    Column("consumer", Text, nullable=False),
    # Unique for each consumer: an event id, a version, or a record that has neither.
    Column("subject", Text, nullable=False),
    # held, due, done or dropped
    Column("state", Text, nullable=False),
    # failed, undecodable, gap or floor
    Column("cause", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("attempts", BigInteger, nullable=False),
    Column("quarantined_at_ms", BigInteger, nullable=False),
    Column("topic", Text),
    Column("partition", BigInteger),
    Column("offset", BigInteger),
    Column("timestamp_ms", BigInteger),
    Column("key", LargeBinary),
    Column("value", LargeBinary),
    # As JSON: a list of [name, value in hexadecimal digits or null].
    Column("headers", Text),
    PrimaryKeyConstraint("number", name="semel_inbox_quarantine_pkey"),
    Unique("consumer", "subject", name="semel_inbox_quarantine_subject"),
    Index("semel_inbox_quarantine_by_state", "state", "consumer", "number"),
)


# -- the insert that the databases spell differently -------------------------------------------------------------------


def insert_new(table: Table) -> dict[str, Executable]:
    """The insert for each dialect, by its name. The inserted rows are counted, which is cheaper than RETURNING."""
    return {
        "postgresql": _counted(postgresql.insert(table).on_conflict_do_nothing()),
        "sqlite": _counted(sqlite.insert(table).on_conflict_do_nothing()),
    }


def _counted(insert: Insert) -> Executable:
    # By default SQLAlchemy does not keep the row count of an insert, and fetches a key that the database has generated.
    return insert.inline().execution_options(preserve_rowcount=True)


def is_new(connection: Connection, statements: Mapping[str, Executable], values: Mapping[str, Any]) -> bool:
    """Inserts the row if it is missing. True if it was."""
    return connection.execute(statements[connection.dialect.name], values).rowcount > 0
