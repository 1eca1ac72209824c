"""The table of offsets: one row for each consumer and partition, in the same form on SQLite and PostgreSQL."""

from typing import Final

from sqlalchemy import BigInteger, Column, MetaData, PrimaryKeyConstraint, Table, Text

metadata: Final = MetaData()

offsets: Final = Table(
    "semel_offsets",
    metadata,
    Column("consumer", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("partition", BigInteger, nullable=False, autoincrement=False),
    # The first offset whose effect is not stored.
    Column("next_offset", BigInteger, nullable=False),
    PrimaryKeyConstraint("consumer", "topic", "partition", name="semel_offsets_pkey"),
)
