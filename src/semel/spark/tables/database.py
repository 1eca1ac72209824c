"""What a database has besides that of every table (`table.py`): how rows are written, and where they are staged.

This file must never depend on PostgreSQL or on SQLite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from semel.spark.tables.statements import Write
from semel.spark.tables.table import Table

if TYPE_CHECKING:
    from semel.spark.tables.servers import Server


@dataclass(frozen=True)
class Target:
    """The table of the rows, the name under which a batch is claimed, and how rows are written."""

    sink: str
    table: str
    claims_table: str
    write: Write
    quarantine: str | None = None
    """The table of the rows that `table` refuses; without it they end the query."""
    add_columns: bool = False
    """Whether a column that only the rows have is added to the table."""


@dataclass(frozen=True)
class Staged:
    """The rows of one attempt at a batch, stored where the transaction can read them."""

    rows: str
    """A subquery in brackets that gives exactly the rows that Spark reports as written."""
    count: int
    bad: str | None = None
    """A subquery in brackets that gives the rows that could not even be staged, as `reason` and `row`."""
    bad_count: int = 0


class Database(Table, Protocol):
    server: Server

    def check(self) -> None:
        """Raises if the database cannot be reached, or if the table exists and cannot be written in this way."""
