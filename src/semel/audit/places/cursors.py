"""What a cursor of a database gives next, in bounded memory."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from semel.audit.places import BATCH_ROWS

# After so many rows their bytes are counted.
_FEW_ROWS: Final = 256


def columns_of(cursor: Any, names: Sequence[str], bytes_max: int) -> Iterator[dict[str, tuple[Any, ...]]]:
    """The values of each column, of as many rows at a time as are held."""
    while rows := fetched(cursor, bytes_max):
        yield dict(zip(names, zip(*rows, strict=True), strict=True))


def fetched(cursor: Any, bytes_max: int) -> list[tuple[Any, ...]]:
    """The next rows, as many as are held at a time."""
    rows: list[tuple[Any, ...]] = []
    size = 0
    while len(rows) < BATCH_ROWS and size < bytes_max and (few := cursor.fetchmany(_FEW_ROWS)):
        rows += few
        size += sum(len(value) for row in few for value in row if isinstance(value, bytes))
    return rows
