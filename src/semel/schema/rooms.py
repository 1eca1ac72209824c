"""Which rooms have tables, of which version they are, and the table in which a database says which version it has.

A room that changes its tables adds a step here, which leads there from the version before. A step that was released is
never changed. This does no IO.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from sqlalchemy import BigInteger, Column, Connection, MetaData, Table, Text

from semel.http.tables import metadata as http_metadata
from semel.inbox.tables import metadata as inbox_metadata
from semel.outbox.tables import metadata as outbox_metadata
from semel.schema.errors import UnknownRoom

# Leads the tables of a room from one version to the next, in the transaction in which the version is noted.
Step: TypeAlias = Callable[[Connection], None]


@dataclass(frozen=True)
class Room:
    """`metadata` is what the tables are now; `steps` are what has led there from the first version."""

    name: str
    metadata: MetaData
    steps: tuple[Step, ...] = ()

    @property
    def version(self) -> int:
        return 1 + len(self.steps)

    @property
    def tables(self) -> list[Table]:
        return self.metadata.sorted_tables


ROOMS: Final = (Room("outbox", outbox_metadata), Room("inbox", inbox_metadata), Room("http", http_metadata))


def _combined() -> MetaData:
    combined = MetaData()
    for room in ROOMS:
        for table in room.tables:
            table.to_metadata(combined)
    return combined


# All of semel's tables, for `create_all` and for Alembic.
metadata: Final = _combined()

# A row for each room whose tables `semel schema` has made or found to be of this version.
versions: Final = Table(
    "semel_schema",
    metadata,
    Column("room", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
)


def chosen(names: Sequence[str]) -> list[Room]:
    """The rooms of these names; all, where none is named."""
    known = {room.name: room for room in ROOMS}
    for name in names:
        if name not in known:
            raise UnknownRoom(f"{name!r} has no tables; there are {', '.join(known)}")
    return [room for room in ROOMS if not names or room.name in names]
