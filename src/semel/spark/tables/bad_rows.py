"""Rows that a table refuses: they end the query, or go into a table of their own, in the commit of the others.

A database refuses a statement, and not a row: so the rows are written in halves, and halves of these, until those that
are refused are alone. They are written in the order in which all of them together would count, so that the table has
the same rows in the end as if the refused ones had never come. This module knows no database; it must never lose a row
without a word: each is in the table, or in the quarantine, or the batch fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from semel.spark.tables.claims import TableClaim
from semel.spark.tables.database import Staged, Target
from semel.spark.tables.statements import PLACE_COLUMN, Write, by_age, doubled_keys, has_null, listed, shown

if TYPE_CHECKING:
    import pyarrow

ON_BAD_ROW: Final = ("fail", "quarantine")
# A table of the transaction: the rows with their place in the order.
NUMBERED: Final = "semel_numbered"
# How much is shown of a row, which may be long.
ROW_SHOWN_MAX: Final = 500


class Mover(Protocol):
    """A connection of the driver, in the transaction of a batch."""

    drop_temporary: str
    """How a table of the transaction is dropped."""
    nulls: str
    """What has nulls come first in an order, where that is not so by itself."""
    place_key: str
    """What makes the place the primary key of such a table, where a server may ask for one."""
    long: Collection[str]
    """The columns of which the database sorts only the beginning."""

    def tried(self, rows: str) -> str | None:
        """Moves these rows into the table. If the table refuses one of them, moves none, and says why."""

    def number_of(self, statement: str) -> int:
        """The number with which the database answers; 0 if it gives none."""

    def put_aside(self, rows: str, reason: str, claim: TableClaim) -> int:
        """Writes these rows into the quarantine; how many they are."""

    def one_of(self, rows: str) -> str:
        """One of these rows as JSON."""


def checked_choice(on_bad_row: str, write: Write | None = None) -> str:
    if on_bad_row not in ON_BAD_ROW:
        raise ValueError(f"on_bad_row={on_bad_row!r} is none of {', '.join(ON_BAD_ROW)}")
    if on_bad_row != "fail" and write is not None and isinstance(write.merge, str):
        raise ValueError(
            f"on_bad_row={on_bad_row!r} writes a batch in several steps if a row is refused, and only you know "
            "whether your own merge statement may run several times: leave bad rows out there, or in where=..."
        )
    return on_bad_row


def quarantine_of(table: str) -> str:
    return f"{table}_quarantine"


def move(mover: Mover, target: Target, columns: Sequence[str], staged: Staged, claim: TableClaim) -> int:
    """Moves the staged rows into the table, and those that it refuses into the quarantine, if there is one. Returns
    how many are in the quarantine."""
    write, rows, aside = target.write, staged.rows, 0
    if target.quarantine is not None and write.key:
        keyless = f"null in the key ({', '.join(write.key)})"
        aside += mover.put_aside(f"(SELECT * FROM {rows} AS staged WHERE {has_null(write)})", keyless, claim)
        rows = f"(SELECT * FROM {rows} AS staged WHERE NOT ({has_null(write)}))"
    reason = mover.tried(rows) if staged.count else None
    if reason is None:
        return aside
    if isinstance(write.merge, str):
        raise bad_row(target.table, reason)
    doubled = doubled_keys(write, rows)
    if doubled is not None and mover.number_of(doubled):
        raise doubled_key(write)
    ordered = in_order(write, columns, rows, mover)
    mover.number_of(f"CREATE TEMPORARY TABLE {NUMBERED} {mover.place_key}AS {ordered}")
    count = mover.number_of(f"SELECT count(*) FROM {NUMBERED}")
    for place, why in refused(0, count, lambda first, end: mover.tried(between(columns, first, end))):
        one = between(columns, place, place + 1)
        if target.quarantine is None:
            raise bad_row(target.table, why, mover.one_of(one))
        aside += mover.put_aside(one, why, claim)
    mover.number_of(f"{mover.drop_temporary} {NUMBERED}")
    return aside


def refused(first: int, end: int, tried: Callable[[int, int], str | None]) -> Iterator[tuple[int, str]]:
    """Writes the rows from `first` up to `end`, and gives the place of each that is refused, with the reason."""
    reason = tried(first, end)
    if reason is None:
        return
    if end - first == 1:
        yield first, reason
        return
    middle = (first + end) // 2
    yield from refused(first, middle, tried)
    yield from refused(middle, end, tried)


def in_order(write: Write, columns: Sequence[str], rows: str, mover: Mover) -> str:
    """The rows, each with its place. If two have one key, the one that has to stay is the later one."""
    order = ""
    if write.version is not None:
        ascending = ", ".join(f"{term}{mover.nulls}" for term in by_age(write, columns, mover.long))
        order = f"ORDER BY {listed(write.key)}, {ascending}"
    return f"SELECT {listed(columns)}, row_number() OVER ({order}) - 1 AS {PLACE_COLUMN} FROM {rows} AS staged"


def between(columns: Sequence[str], first: int, end: int) -> str:
    return f"(SELECT {listed(columns)} FROM {NUMBERED} WHERE {PLACE_COLUMN} >= {first} AND {PLACE_COLUMN} < {end})"


def doubled_key(write: Write) -> ValueError:
    return ValueError(
        f"two rows of one batch have the same key ({', '.join(write.key)}), and nothing says which is the later one: "
        "name a version=... column, or bring one row for each key"
    )


def bad_row(table: str, reason: str, row: str = "") -> ValueError:
    which = f", {shown(row, ROW_SHOWN_MAX)}" if row else ""
    return ValueError(
        f"{table} refuses a row{which}: {reason}. Nothing was written. Change the row (columns=...) or the table, "
        "leave such rows out (where=...), or write them into a table beside it (on_bad_row='quarantine')"
    )


def as_json(row: Mapping[str, Any]) -> str:
    """A row as the quarantine keeps it: bytes are hexadecimal digits, as PostgreSQL writes them."""
    return json.dumps(row, ensure_ascii=False, default=_text)


def values_of(batch: pyarrow.RecordBatch, place: int) -> dict[str, Any]:
    """One row of Arrow, also if Python has no such text or time."""
    return {name: _value(batch.column(number).slice(place, 1)) for number, name in enumerate(batch.schema.names)}


def _value(one: pyarrow.Array) -> Any:
    import pyarrow

    try:
        return one[0].as_py()
    except UnicodeDecodeError:
        return one.cast(pyarrow.binary())[0].as_py().decode(errors="backslashreplace")
    except (ValueError, OverflowError):
        return str(one.cast(pyarrow.int32() if pyarrow.types.is_date32(one.type) else pyarrow.int64())[0])


def _text(value: Any) -> str:
    return f"\\x{value.hex()}" if isinstance(value, bytes) else str(value)
