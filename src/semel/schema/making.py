"""Brings the tables of a database to where this semel needs them, in one transaction; and looks whether they are there.

Two processes that do so at once do it one after the other, and the second finds it done. Tables of a later semel are
refused, and so are those that are not as they should be: this must never guess what somebody else has made.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, Engine, delete, func, insert, inspect, select

from semel.database import within
from semel.schema.errors import SchemaDiffers
from semel.schema.rooms import Room, chosen, versions

_COMMAND: Final = "semel schema --database URL"
# Of the advisory locks of a PostgreSQL database the one for this; the bytes of "semel".
_LOCK: Final = int.from_bytes(b"semel")


@dataclass(frozen=True)
class Made:
    """What became of a room's tables. `version_before` is None where no version was noted."""

    room: str
    version: int
    version_before: int | None
    tables: tuple[str, ...]


def make(given: Engine | Connection, *rooms: str) -> list[Made]:
    """Make what is not there of the tables of these rooms, or of all, and bring older ones up to date.

    On a connection it is done in the caller's transaction, and others who make tables wait until that ends.
    """
    wanted = chosen(rooms)
    begun = given.begin() if isinstance(given, Engine) else nullcontext(given)
    with begun as own, within(own) as connection:
        if connection.dialect.name == "postgresql":
            # On SQLite there is one writer anyway.
            connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        versions.create(connection, checkfirst=True)
        return [_bring(connection, room) for room in wanted]


def check(given: Engine | Connection, *rooms: str) -> None:
    """Raise SchemaDiffers where the tables of these rooms, or of all, are missing, older or newer."""
    wanted = chosen(rooms)
    with given.connect() if isinstance(given, Engine) else nullcontext(given) as connection:
        for room in wanted:
            noted = _noted_version(connection, room)
            if noted is not None and noted < room.version:
                raise SchemaDiffers(
                    f"the {room.name} tables of this database are of version {noted}, and this semel needs version "
                    f"{room.version}: run {_COMMAND}"
                )
            missing = _missing_tables(connection, room)
            if missing:
                raise SchemaDiffers(f"this database has no table {missing[0]}: run {_COMMAND}")
            _compare(connection, room)


def _bring(connection: Connection, room: Room) -> Made:
    noted = _noted_version(connection, room)
    if noted is not None:
        for step in room.steps[noted - 1 :]:
            step(connection)
    missing = _missing_tables(connection, room)
    room.metadata.create_all(connection, tables=[table for table in room.tables if table.name in missing])
    _compare(connection, room)
    if noted != room.version:
        connection.execute(delete(versions).where(versions.c.room == room.name))
        connection.execute(insert(versions).values(room=room.name, version=room.version))
    return Made(room.name, room.version, noted, tuple(missing))


def _noted_version(connection: Connection, room: Room) -> int | None:
    """None where nobody noted one, as with tables that Alembic or `create_all` has made."""
    if not inspect(connection).has_table(versions.name):
        return None
    noted = connection.scalar(select(versions.c.version).where(versions.c.room == room.name))
    if noted is not None and noted > room.version:
        raise SchemaDiffers(
            f"the {room.name} tables of this database are of version {noted}, and this semel knows them up to version "
            f"{room.version}: install the semel that made them, or a later one"
        )
    return noted


def _missing_tables(connection: Connection, room: Room) -> list[str]:
    inspector = inspect(connection)
    return [table.name for table in room.tables if not inspector.has_table(table.name)]


def _compare(connection: Connection, room: Room) -> None:
    """Tables whose version nobody noted still have to have our columns; and a column that we do not know may be one
    that a later semel cannot do without."""
    inspector = inspect(connection)
    for table in room.tables:
        there = {column["name"] for column in inspector.get_columns(table.name)}
        ours = set(table.columns.keys())
        for column in sorted(ours - there):
            raise SchemaDiffers(
                f"the table {table.name} of this database lacks the column {column}: an older semel made it, or "
                f"something else; compare it with {_COMMAND} --print"
            )
        for column in sorted(there - ours):
            raise SchemaDiffers(
                f"the table {table.name} of this database has a column {column} that this semel does not know: a later "
                f"semel made it, or something else; compare it with {_COMMAND} --print"
            )
