"""Rows into a table of a database, each batch once: staged first, then one transaction that holds the claim.

This module chooses the database, and knows none. Staged rows do not count until the transaction that reads them also
writes the claim; the next batch deletes what a crash left staged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from pyspark.sql import is_remote

from semel.spark.tables.bad_rows import checked_choice, quarantine_of
from semel.spark.tables.database import Database, Target
from semel.spark.tables.output_modes import kind_of
from semel.spark.tables.sink import Choice, named
from semel.spark.tables.statements import check_columns, checked
from semel.spark.tables.table import TableSink

CLAIMS_TABLE = "semel_batches"


class SqlSink(TableSink):
    def __init__(self, name: str, database: Database, target: Target, choice: Choice, accept_after: str | None) -> None:
        super().__init__(name, database, choice, accept_after)
        self.target = target
        self.kind = kind_of(target.write)
        self.quarantine = target.quarantine
        self.afresh = (
            "delete, in one transaction, the rows from there on and the sink's claim (DELETE FROM "
            f"{target.claims_table} WHERE sink_id = '{target.sink}')"
        )

    def check_columns(self, columns: Sequence[str]) -> None:
        check_columns(self.target.write, columns)


def sql_sink(
    url: str,
    table: str,
    mode: str = "append",
    *,
    key: Sequence[str] | str = (),
    version: str | None = None,
    merge: Mapping[str, str] | str | None = None,
    columns: Sequence[str] = (),
    where: str | None = None,
    on_bad_row: str = "fail",
    add_columns: bool = False,
    sink_id: str | None = None,
    accept_after: str | None = None,
    claims_table: str = CLAIMS_TABLE,
) -> SqlSink:
    """A sink into `table` of `postgresql://...`, `mysql://...`, `mariadb://...` or `sqlite:///path`, made if missing.

    `mode="append"` adds the rows; `"upsert"` replaces the row of the same `key`, where `version` says which one is
    later; `"merge"` combines them with the stored rows: `merge={"balance": "sum"}` by columns (sum, min, max), or as a
    statement of your own in which `{rows}` stands for the rows. `where` chooses which rows are written, and `columns`
    what of them, as expressions of Spark's SQL; without them, all rows and all columns. A row that the table refuses
    ends the query, or is written into `<table>_quarantine` with `on_bad_row="quarantine"`. A new column is refused, or
    added to the table with `add_columns=True`. The batch is claimed in `claims_table` of the same database under
    `sink_id`, which is the table's name unless you say otherwise. `accept_after` lets one batch follow that was
    refused: the refusal says which value. A database that cannot be reached is refused at once, and so is a
    table that has no unique index on exactly the key.
    """
    write = checked(mode, key, version, merge)
    if add_columns and isinstance(merge, str):
        raise ValueError("add_columns=True has no meaning for a merge statement of your own, which names the columns")
    quarantine = quarantine_of(table) if checked_choice(on_bad_row, write) == "quarantine" else None
    target = Target(sink_id or table, table, claims_table, write, quarantine, add_columns)
    database = database_of(url, target)
    if not is_remote():
        # With Spark Connect another machine writes the rows, and this one need not reach the database.
        with named(database.server.sink):
            database.check()
    return SqlSink(database.server.sink, database, target, Choice(tuple(columns), where), accept_after)


def database_of(url: str, target: Target) -> Database:
    scheme = urlsplit(url).scheme.partition("+")[0]
    if scheme in ("postgresql", "postgres"):
        from semel.spark.tables.postgres import Postgres

        return Postgres(url, target)
    if scheme == "sqlite":
        from semel.spark.tables.sqlite import Sqlite

        return Sqlite(path_of(url), target)
    if scheme in ("mysql", "mariadb"):
        from semel.spark.tables.mysql import Mysql

        return Mysql(url, target)
    raise ValueError(
        "a SQL sink takes postgresql://..., mysql://..., mariadb://... or sqlite:///path, not "
        f"{scheme or 'an address without one'}"
    )


def path_of(url: str) -> str:
    """As usual in such addresses: three slashes before a relative path, four before an absolute one. Or none and one,
    as in an address of the audit."""
    path = url.removeprefix("sqlite:///") if url.startswith("sqlite://") else url.removeprefix("sqlite:")
    if path in ("", ":memory:") or path.startswith("sqlite:"):
        raise ValueError("a SQLite sink takes a file: sqlite:///relative/path or sqlite:////absolute/path")
    return path
