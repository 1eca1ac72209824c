"""The table of offsets: one row for each consumer and partition, in the same form on SQLite and PostgreSQL."""

from typing import Final

from sqlalchemy import Column, MetaData, PrimaryKeyConstraint, Table

from semel.database.columns import INTEGER, key, with_options

metadata: Final = MetaData()

offsets: Final = Table(
    "semel_offsets",
    metadata,
    Column("consumer", key(2048), nullable=False),
    Column("topic", key(255), nullable=False),
    Column("partition", INTEGER, nullable=False, autoincrement=False),
    # The first offset whose effect is not stored.
    Column("next_offset", INTEGER, nullable=False),
    PrimaryKeyConstraint("consumer", "topic", "partition", name="semel_offsets_pkey"),
)

with_options(metadata)
