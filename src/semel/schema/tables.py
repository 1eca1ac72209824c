"""Brings the tables of each room to the present version in one transaction, checks or empties them, or prints them as
SQL.

If two processes do this at the same time, one waits for the other, and then finds it done. A room that changes its
tables adds a step here, from the version before to the new one. A released step is never changed. Tables of a later
semel are refused, and so are tables with other columns than ours: this module must never guess what another program has
made.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Dialect,
    Engine,
    MetaData,
    Table,
    delete,
    insert,
    inspect,
    select,
)
from sqlalchemy.schema import CreateIndex, CreateTable

from semel.database import UnknownDatabase, within
from semel.database.columns import key, with_options
from semel.database.dialects import DIALECTS, dialect_of
from semel.database.kinds import check_engine
from semel.http.tables import metadata as http_metadata
from semel.inbox.tables import metadata as inbox_metadata
from semel.offsets.tables import metadata as offsets_metadata
from semel.outbox.tables import metadata as outbox_metadata
from semel.steps.tables import metadata as steps_metadata

# Changes the tables of a room from one version to the next, in the transaction that stores the new version.
Step: TypeAlias = Callable[[Connection], None]


@dataclass(frozen=True)
class Room:
    """`metadata` has the present tables; `steps` are the changes from the first version to them."""

    name: str
    metadata: MetaData
    steps: tuple[Step, ...] = ()

    @property
    def version(self) -> int:
        return 1 + len(self.steps)

    @property
    def tables(self) -> list[Table]:
        return self.metadata.sorted_tables


ROOMS: Final = (
    Room("outbox", outbox_metadata),
    Room("inbox", inbox_metadata),
    Room("http", http_metadata),
    # The table of steps is of both: whichever is made first makes it.
    Room("steps", steps_metadata),
    Room("offsets", offsets_metadata),
)


def _combined() -> MetaData:
    combined = MetaData()
    for table in _tables_of(ROOMS):
        table.to_metadata(combined)
    return combined


def _tables_of(rooms: Sequence[Room]) -> list[Table]:
    """Each table once."""
    return list({table.name: table for room in rooms for table in room.tables}.values())


# All of semel's tables, for `create_all` and for Alembic.
metadata: Final = _combined()

# A row for each room whose tables `make` has made or checked, with their version.
versions: Final = Table(
    "semel_schema",
    metadata,
    Column("room", key(64), primary_key=True),
    Column("version", BigInteger, nullable=False),
)
with_options(metadata)


def rooms_named(names: Sequence[str]) -> list[Room]:
    """The rooms of these names, or all."""
    known = {room.name: room for room in ROOMS}
    for name in names:
        if name not in known:
            raise UnknownRoom(f"{name!r} has no tables; there are {', '.join(known)}")
    return [room for room in ROOMS if not names or room.name in names]


class SchemaDiffers(RuntimeError):
    """This database or its tables do not fit this version of semel."""


class UnknownRoom(ValueError):
    """No room of this name has tables."""


# -- make and check ----------------------------------------------------------------------------------------------------


_COMMAND: Final = "semel schema --database URL"
# The lock for making tables: the bytes of "semel".
_LOCK: Final = int.from_bytes(b"semel")


@dataclass(frozen=True)
class Made:
    """A room's tables after `make`. `version_before` is None if no version was stored."""

    room: str
    version: int
    version_before: int | None
    tables: tuple[str, ...]


def make(handle: Engine | Connection, *rooms: str) -> list[Made]:
    """Make the missing tables of these rooms, or of all, and bring older ones up to date.

    On a connection, this runs in the caller's transaction, and other programs that make tables wait until that ends.
    Raises what `check` raises.
    """
    check_engine("the database", handle, (Engine, Connection))
    selection = rooms_named(rooms)
    begun = handle.begin() if isinstance(handle, Engine) else nullcontext(handle)
    with begun as own, within(own) as connection:
        dialect_of(connection).lock_until_end(connection, _LOCK)
        _check_database(connection)
        versions.create(connection, checkfirst=True)
        return [_bring(connection, room) for room in selection]


def check(handle: Engine | Connection, *rooms: str) -> None:
    """Raise SchemaDiffers if tables of these rooms, or of all, are missing, older or newer, or if the database cannot
    store every id.
    """
    check_engine("the database", handle, (Engine, Connection))
    selection = rooms_named(rooms)
    with handle.connect() if isinstance(handle, Engine) else nullcontext(handle) as connection:
        _check_database(connection)
        for room in selection:
            version = _stored_version(connection, room)
            if version is not None and version < room.version:
                raise SchemaDiffers(
                    f"the {room.name} tables of this database are of version {version}, and this semel needs version "
                    f"{room.version}: run {_COMMAND}"
                )
            missing = _missing_tables(connection, room)
            if missing:
                raise SchemaDiffers(f"this database has no table {missing[0]}: run {_COMMAND}")
            _compare(connection, room)


def empty(handle: Engine | Connection, *rooms: str) -> None:
    """Delete all that these rooms, or all, have stored in this database: for tests whose database outlives their
    broker. Effects stay, so in production this would have each of them done a second time.
    """
    check_engine("the database", handle, (Engine, Connection))
    begun = handle.begin() if isinstance(handle, Engine) else nullcontext(handle)
    with begun as own, within(own) as connection:
        for room in rooms_named(rooms):
            missing = _missing_tables(connection, room)
            for table in room.tables:
                if table.name not in missing:
                    connection.execute(delete(table))


def _check_database(connection: Connection) -> None:
    obstacle = dialect_of(connection).check_database(connection)
    if obstacle is not None:
        raise SchemaDiffers(obstacle)


def _bring(connection: Connection, room: Room) -> Made:
    version = _stored_version(connection, room)
    if version is not None:
        for step in room.steps[version - 1 :]:
            step(connection)
    missing = _missing_tables(connection, room)
    room.metadata.create_all(connection, tables=[table for table in room.tables if table.name in missing])
    _compare(connection, room)
    if version != room.version:
        connection.execute(delete(versions).where(versions.c.room == room.name))
        connection.execute(insert(versions).values(room=room.name, version=room.version))
    return Made(room.name, room.version, version, tuple(missing))


def _stored_version(connection: Connection, room: Room) -> int | None:
    """None if no version is stored, as with tables that Alembic or `create_all` has made."""
    if not inspect(connection).has_table(versions.name):
        return None
    version = connection.scalar(select(versions.c.version).where(versions.c.room == room.name))
    if version is not None and version > room.version:
        raise SchemaDiffers(
            f"the {room.name} tables of this database are of version {version}, and this semel knows them up to "
            f"version {room.version}: install the semel that made them, or a later one"
        )
    return version


def _missing_tables(connection: Connection, room: Room) -> list[str]:
    inspector = inspect(connection)
    return [table.name for table in room.tables if not inspector.has_table(table.name)]


def _compare(connection: Connection, room: Room) -> None:
    """Tables without a stored version must have our columns, too. An unknown column is refused, because a later semel
    may need it."""
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


# -- print -------------------------------------------------------------------------------------------------------------


def ddl(database: str, *rooms: str) -> str:
    """The SQL for a database, such as "postgresql" or "sqlite", that makes the tables of these rooms, or of all."""
    dialects = {dialect.name: dialect for dialect in DIALECTS}
    if database not in dialects:
        raise UnknownDatabase(f"{database!r} is no database that semel knows; there are {', '.join(dialects)}")
    written = dialects[database].sqlalchemy()
    return "\n\n".join(f"{_tidied(statement, written)};" for statement in _statements(rooms)) + "\n"


def _statements(names: tuple[str, ...]) -> Iterator[Any]:
    rooms = rooms_named(names)
    # Only this table may exist already, from making another room's tables.
    yield CreateTable(versions, if_not_exists=True)
    for table in _tables_of(rooms):
        yield CreateTable(table)
        yield from (CreateIndex(index) for index in sorted(table.indexes, key=lambda index: str(index.name)))
    for room in rooms:
        yield insert(versions).values(room=room.name, version=room.version)


def _tidied(statement: Any, dialect: Dialect) -> str:
    written = str(statement.compile(dialect=dialect, compile_kwargs={"literal_binds": True})).strip()
    return re.sub(r"[ \t]+$", "", written.replace("\t", "    "), flags=re.MULTILINE)
