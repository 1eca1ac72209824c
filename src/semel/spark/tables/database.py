"""The interface of a database for the SQL sink: it stages rows, and commits them with the claim.

This file must never depend on PostgreSQL or on SQLite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from semel.spark.claims import Outcome
from semel.spark.tables.claims import TableClaim
from semel.spark.tables.statements import Write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Rule = Callable[[TableClaim | None], Outcome]
"""The verdict on the batch, given the last claim of the sink; raises if it is refused."""


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


class Connected(Protocol):
    """One connection of the driver, for one batch. The tables exist."""

    aside: int
    """How many rows the commit has written into the quarantine."""

    def held(self) -> TableClaim | None: ...

    def staged(self, rows: DataFrame) -> AbstractContextManager[Staged]: ...

    def commit(self, staged: Staged, claim: TableClaim, rule: Rule) -> Outcome:
        """One transaction: locks the claim, asks the rule, writes the staged rows and the claim."""


class Database(Protocol):
    def columns(self) -> Sequence[str]:
        """The columns that the table has, none if there is no such table; raises if the database cannot be reached."""

    def connected(self, schema: StructType) -> AbstractContextManager[Connected]: ...
