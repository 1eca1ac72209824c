"""What a cursor of a database gives next, in bounded memory."""

from typing import Any, Final

from semel.audit.places import BATCH_ROWS

# After so many rows their bytes are counted.
_FEW_ROWS: Final = 256


def fetched(cursor: Any, bytes_max: int) -> list[tuple[Any, ...]]:
    """The next rows, as many as are held at a time."""
    rows: list[tuple[Any, ...]] = []
    size = 0
    while len(rows) < BATCH_ROWS and size < bytes_max and (few := cursor.fetchmany(_FEW_ROWS)):
        rows += few
        size += sum(len(value) for row in few for value in row if isinstance(value, bytes))
    return rows
