"""What the tests of the inbox share: an effect that can be counted, and ids with a time."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Connection, Engine, Integer, MetaData, Table, Text, insert, select

effects = Table(
    "effects",
    MetaData(),
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("name", Text, nullable=False),
)


def do(connection: Connection, name: str) -> None:
    """The effect of an event."""
    connection.execute(insert(effects), {"name": name})


def done(engine: Engine) -> list[str]:
    """All effects, in their order."""
    with engine.connect() as connection:
        return list(connection.scalars(select(effects.c.name).order_by(effects.c.number)))


def uuid7(at_ms: int, number: int = 0) -> str:
    """An id that says when it was made."""
    digits = f"{at_ms:012x}"
    return f"{digits[:8]}-{digits[8:]}-7000-8000-{number:012x}"
