"""What a table is, whatever keeps it, and the steps in which every sink into one writes a batch.

A table is prepared for the rows (`connected`), says the last claim that it holds, takes rows into a place that no
reader sees, and commits them together with the claim, after it has asked the rule once more. This module must never
depend on what keeps a table: it knows no database and no format of files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from semel.spark.claims import Batch, Outcome
from semel.spark.tables.claims import TableClaim, claim_of, judge
from semel.spark.tables.output_modes import Kind, check_output
from semel.spark.tables.sink import EVERYTHING, Choice, Sink, named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_LOG: Final = logging.getLogger(__name__)

Rule = Callable[[TableClaim | None], Outcome]
"""The verdict on the batch, given the last claim of the sink; raises if it is refused."""


class Connected(Protocol):
    """The table as the driver has opened it for one batch. It exists, and rows of this schema fit it."""

    aside: int
    """How many rows the commit has written into the quarantine."""

    def held(self) -> TableClaim | None:
        """The last claim whose rows the table has."""

    def staged(self, rows: DataFrame) -> AbstractContextManager[Any]:
        """Has the tasks write the rows where no reader sees them."""

    def commit(self, staged: Any, claim: TableClaim, rule: Rule) -> Outcome:
        """Asks the rule about the claim that the table has now, and makes the staged rows visible in one commit with
        the claim. If another writer commits first, it begins again with the rule."""


class Table(Protocol):
    def connected(self, schema: StructType) -> AbstractContextManager[Connected]:
        """The table, made or widened as the sink may; raises if such rows do not fit it."""


class TableSink(Sink):
    """Writes each batch into one table once."""

    kind: Kind = "append"
    afresh: str
    """How a sink into such a table begins again, for a refusal."""
    quarantine: str | None = None

    def __init__(self, name: str, table: Table, choice: Choice = EVERYTHING, accept_after: str | None = None) -> None:
        self.name = name
        self.table = table
        self.choice = choice
        self.accept_after = accept_after

    def check(self, rows: DataFrame) -> None:
        columns = self.chosen(rows).columns
        with named(self.name):
            self.check_columns(columns)

    def check_columns(self, columns: Sequence[str]) -> None:
        """Raises if the sink cannot take rows with these columns."""

    def kept(self, claim: TableClaim) -> TableClaim:
        """The claim as the table can keep it."""
        return claim

    def write(self, rows: DataFrame, batch: Batch) -> Outcome:
        check_output(self.name, self.kind, batch)
        rows = self.chosen(rows)
        with named(self.name):
            return self.written(rows, batch)

    def written(self, rows: DataFrame, batch: Batch) -> Outcome:
        self.check_columns(rows.columns)
        claim = claim_of(batch)
        rule = partial(
            judge,
            self.name,
            claim=self.kept(claim),
            accept_after=self.accept_after,
            state=batch.state,
            afresh=self.afresh,
        )
        with self.table.connected(rows.schema) as connected:
            # The commit applies the same rule again, and decides; this check only saves the staging of a batch that is
            # refused or a duplicate.
            if rule(connected.held()) is Outcome.DUPLICATE:
                return Outcome.DUPLICATE
            with connected.staged(rows) as staged:
                outcome = connected.commit(staged, claim, rule)
            log_aside(self.name, batch, connected.aside, self.quarantine)
            return outcome


def log_aside(sink: str, batch: Batch, rows: int, quarantine: object) -> None:
    if rows:
        _LOG.warning(
            "sink %s, query %s, batch %d: %d %s in %s, because the table refuses %s",
            sink,
            batch.query_id,
            batch.batch_id,
            rows,
            "row is" if rows == 1 else "rows are",
            quarantine,
            "it" if rows == 1 else "them",
        )
