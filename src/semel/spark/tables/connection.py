"""What the driver's connection does in the same way with each database: it counts what is staged, and puts rows aside.

This module must never know a database: each says itself how a statement is answered and how a row is kept.
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from semel.spark.tables.bad_rows import as_json
from semel.spark.tables.claims import TableClaim
from semel.spark.tables.database import Staged, Target
from semel.spark.tables.statements import count_statement, keyless, keyless_statement, listed


class SqlConnection:
    drop_temporary = "DROP TABLE"
    nulls = " NULLS FIRST"
    place_key = ""
    long: Collection[str] = ()
    loss = "the server crashed meanwhile, or somebody emptied the staging table"
    """Why staged rows may be gone."""

    target: Target
    types: dict[str, str]

    @abstractmethod
    def answer(self, statement: str) -> Iterable[Any]:
        """The rows with which the database answers, none if it gives none."""

    @abstractmethod
    def keep(self, bad: Any, claim: TableClaim) -> int:
        """Writes rows into the quarantine, each with the reason; how many they are."""

    def number_of(self, statement: str) -> int:
        return next((row[0] for row in self.answer(statement)), 0)

    def put_aside(self, rows: str, reason: str, claim: TableClaim) -> int:
        return self.keep(((reason, row) for row in self.as_json(rows)), claim)

    def one_of(self, rows: str) -> str:
        return next(self.as_json(rows))

    def as_json(self, rows: str) -> Iterator[str]:
        found = self.answer(f"SELECT {listed(self.types)} FROM {rows} AS bad")
        return (as_json(dict(zip(self.types, row, strict=True))) for row in found)

    def check_whole(self, staged: Staged) -> None:
        write = self.target.write
        [(count, without_key)] = self.answer(count_statement(write, staged.rows))
        if staged.bad_count:
            count += self.number_of(f"SELECT count(*) FROM {staged.bad} AS bad")
        if count != staged.count + staged.bad_count:
            raise RuntimeError(
                f"{staged.count + staged.bad_count} rows were staged for {self.target.table} and {count} are left: "
                f"{self.loss}. Nothing was written; the batch has to run again"
            )
        if without_key and self.target.quarantine is None:
            [one] = self.answer(keyless_statement(write, staged.rows))
            raise keyless(write, without_key, dict(zip(self.types, one, strict=False)))


def stage_prefix(sink: str, claims: Iterable[str]) -> str:
    """How the names of this sink's staging tables begin. Sinks with one name are different ones if their claims tables
    are; a claims table is the same one whether or not its schema is named."""
    return f"semel_stage_{hashlib.sha256(json.dumps([sink, *claims]).encode()).hexdigest()[:16]}_"
