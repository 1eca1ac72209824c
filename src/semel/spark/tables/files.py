"""A table of files: tasks write new ones, and one commit, the next version of the table, adds them with the claim.

No version contains the files before the commit, so no reader sees them; the driver learns their names and sizes, never
their rows. A format says how it opens a table, where its claim is, how tasks write files, and how a commit is made that
succeeds only as the next one after the table that was read. If that commit is lost to another writer, or nobody heard
how it ended, the claim is read again and judged: this module must never repeat a commit before that.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from semel.spark.claims import Outcome
from semel.spark.tables.bad_rows import bad_row
from semel.spark.tables.claims import TableClaim
from semel.spark.tables.file_rows import as_row, judge_quarantined, kept, quarantined
from semel.spark.tables.sink import EVERYTHING, Choice
from semel.spark.tables.table import Rule, TableSink

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

# Each failed commit means that another writer of the same table committed first.
COMMITS_MAX = 1000

Version = TypeVar("Version")
File = TypeVar("File")


@dataclass(frozen=True)
class Staged(Generic[File]):
    """The files of one attempt at a batch."""

    attempt: int
    files: Sequence[File]
    bad: DataFrame | None
    """The rows that the table cannot have, which go into the quarantine."""


class FileTable(ABC, Generic[Version, File]):
    """One table as a format keeps it. `Version` is the table as it was at one time."""

    sink_id: str
    where: str
    """The table's name in messages."""
    quarantine: FileTable[Any, Any] | None = None
    """The table of the rows that this one cannot have; without it they end the query."""

    @abstractmethod
    def opened(self, schema: StructType) -> Version:
        """The table as it is now, made or widened as the sink may; raises if such rows do not fit it."""

    @abstractmethod
    def held(self, version: Version) -> TableClaim | None:
        """The last claim of the sink whose rows this version has; raises if nobody can tell."""

    @abstractmethod
    def attempt(self, version: Version) -> int | None:
        """The attempt that wrote the last claim."""

    def kept(self, claim: TableClaim) -> TableClaim:
        """The claim as the format can keep it."""
        return claim

    @abstractmethod
    def reasons(self, version: Version, rows: DataFrame) -> Column | None:
        """Why the table cannot have a row: a column, which is null if it can. None if it can have every row."""

    @abstractmethod
    def written(self, version: Version, rows: DataFrame, attempt: int) -> list[File]:
        """Has the tasks write the rows. If that fails, none of the files counts."""

    def form(self, version: Version) -> object:
        """What the files were written for: a version with another one would not read them as they were meant."""
        return None

    @abstractmethod
    def committed(self, version: Version, files: Sequence[File], claim: TableClaim, attempt: int) -> bool:
        """Adds the files and the claim as the next commit after this version. False if another commit came first, or if
        nobody heard how this one ended; it may then be there."""

    @contextmanager
    def connected(self, schema: StructType) -> Iterator[OpenedTable]:
        yield OpenedTable(self, schema)


class OpenedTable:
    def __init__(self, table: FileTable[Any, Any], schema: StructType) -> None:
        self.table = table
        self.schema = schema
        self.version = table.opened(schema)
        self.aside = 0

    def held(self) -> TableClaim | None:
        return self.table.held(self.version)

    @contextmanager
    def staged(self, rows: DataFrame) -> Iterator[Staged[Any]]:
        attempt, bad = secrets.randbits(62), self.table.reasons(self.version, rows)
        if bad is not None and self.table.quarantine is not None:
            aside = quarantined(rows, bad)
            yield Staged(attempt, self.table.written(self.version, rows.where(bad.isNull()), attempt), aside)
            return
        try:
            files = self.table.written(self.version, rows, attempt)
        except Exception as error:
            # Spark names neither the row nor the column.
            if bad is None or not (found := rows.where(bad.isNotNull()).select(bad, as_row(rows)).head(1)):
                raise
            raise bad_row(self.table.where, *found[0]) from error
        yield Staged(attempt, files, None)

    def commit(self, staged: Staged[Any], claim: TableClaim, rule: Rule) -> Outcome:
        if staged.bad is not None:
            # Before the table has its claim: afterwards nobody would run the batch again.
            self.put_aside(staged.bad, claim)
        form = self.table.form(self.version)
        for _ in range(COMMITS_MAX):
            if rule(self.held()) is Outcome.DUPLICATE:
                # It may be this very attempt, whose commit succeeded although it seemed to fail. The files stay in any
                # case: that commit may be below the one whose claim was read.
                is_own = self.table.attempt(self.version) == staged.attempt
                return Outcome.ACCEPTED if is_own else Outcome.DUPLICATE
            if self.table.form(self.version) != form:
                raise RuntimeError(
                    f"{self.table.where} has other columns or partitions than when the tasks wrote the files of batch "
                    f"{claim.batch_id}, or was dropped and created again. The files were not committed: start the "
                    "query again, and it writes the batch for the table as it is now"
                )
            if self.table.committed(self.version, staged.files, claim, staged.attempt):
                return Outcome.ACCEPTED
            self.version = self.table.opened(self.schema)
        raise RuntimeError(
            f"{COMMITS_MAX} commits to {self.table.where} were lost to other writers. Nothing was written: start the "
            "query again when fewer of them write"
        )

    def put_aside(self, bad: DataFrame, claim: TableClaim) -> None:
        """Writes the rows into the quarantine, with a claim of its own there, which a replay finds."""
        quarantine = self.table.quarantine
        self.aside = bad.count()
        if not self.aside or quarantine is None:
            return
        rows = kept(bad, self.table.sink_id, claim)
        rule = partial(judge_quarantined, claim=quarantine.kept(claim))
        with quarantine.connected(rows.schema) as keeper:
            if rule(keeper.held()) is not Outcome.DUPLICATE:
                with keeper.staged(rows) as staged:
                    keeper.commit(staged, claim, rule)


class FileSink(TableSink):
    """A sink that appends to a table of files."""

    def __init__(
        self, name: str, files: FileTable[Any, Any], choice: Choice = EVERYTHING, accept_after: str | None = None
    ) -> None:
        super().__init__(name, files, choice, accept_after)
        self.files = files
        self.quarantine = None if files.quarantine is None else files.quarantine.where

    def kept(self, claim: TableClaim) -> TableClaim:
        return self.files.kept(claim)
