"""SQLite: the executors turn their rows into small databases, and the driver, which has the file, copies them in.

A task's rows travel as the bytes of a SQLite database, one for each Arrow batch, and SQLite itself copies from one
database to the next: the driver makes no Python object for a cell, and needs no file system that the executors share.
The driver first gathers them in a file of its own, so that the table is locked only while the rows are copied into it.
Spark returns the result of each task once, even if a task ran twice.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DecimalType

from semel.spark.claims import Outcome
from semel.spark.columns_by_number import map_in_arrow
from semel.spark.tables.affinities import check_affinities
from semel.spark.tables.bad_rows import as_json, bad_row, doubled_key, move, refused, values_of
from semel.spark.tables.claims import TableClaim
from semel.spark.tables.columns import SQLITE_TYPES, travelling, types_of
from semel.spark.tables.connection import SqlConnection
from semel.spark.tables.database import Staged, Target
from semel.spark.tables.servers import Server
from semel.spark.tables.statements import (
    Write,
    added_columns,
    check_generated,
    check_new_columns,
    check_table,
    create_table,
    doubled_keys,
    find_index,
    listed,
    no_index,
    one_line,
    qualified,
    write_statement,
)
from semel.spark.tables.table import Rule

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

# How long a batch waits for another query that writes into the same file.
BUSY_TIMEOUT_SECONDS = 60.0
STAGE = "semel_stage"
SAVEPOINT = "semel_moving"
NOW = "strftime('%Y-%m-%dT%H:%M:%fZ')"
BAD_ROWS = "CREATE TABLE bad (reason TEXT, row TEXT)"
_COLUMNS = "PRAGMA table_xinfo({})"
# What SQLite says of a sum that no number can hold.
OVERFLOW = "integer overflow"


class Sqlite:
    def __init__(self, path: str, target: Target) -> None:
        self.path = path
        self.target = target
        self.server = Server(f"sqlite:{target.sink}", target.table, f"SQLite in {Path(path).absolute()}")

    def check(self) -> None:
        check_directory(self.path)
        if not Path(self.path).exists():
            return
        write, table = self.target.write, self.target.table
        with (
            self.server.failing(sqlite3.Error),
            closing(sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_SECONDS)) as connection,
        ):
            columns = columns_of(connection, table)
            check_table(write, table, [*columns])
            check_generated(write, table, (), generated_of(connection, table))
            if columns and write.key:
                with refusing_no_index(write, table):
                    connection.execute(find_index(write, table))

    @contextmanager
    def connected(self, schema: StructType) -> Iterator[SqliteConnection]:
        with self.server.failing(sqlite3.Error), closing(opened(self.path)) as connection:
            connected = SqliteConnection(connection, self.target, schema)
            connected.make_tables()
            yield connected


def opened(path: str) -> sqlite3.Connection:
    """A connection whose commits are on the disk when they return, and that does not block readers."""
    check_directory(path)
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def check_directory(path: str) -> None:
    if not Path(path).parent.is_dir():
        raise ValueError(f"a SQLite sink into {path}: there is no directory {Path(path).absolute().parent}")


def columns_of(connection: sqlite3.Connection, table: str) -> dict[str, str]:
    """The declared type of each column of the table; none if there is no such table."""
    return {name: declared for _, name, declared, *_ in connection.execute(_COLUMNS.format(qualified(table)))}


def generated_of(connection: sqlite3.Connection, table: str) -> list[str]:
    """The columns that SQLite computes."""
    return [name for _, name, *_, hidden in connection.execute(_COLUMNS.format(qualified(table))) if hidden in (2, 3)]


class SqliteConnection(SqlConnection):
    loss = "somebody changed the file of temporary rows"

    def __init__(self, connection: sqlite3.Connection, target: Target, schema: StructType) -> None:
        self.connection = connection
        self.target = target
        self.schema = schema
        self.types = types_of(schema, SQLITE_TYPES)
        check_decimals(target.write, schema)
        check_sums(target.write, self.types)
        self.claims = qualified(target.claims_table)
        self.aside = 0

    def make_tables(self) -> None:
        """Makes the claims table and the table if they are missing, and checks that the table has all columns. With a
        merge statement that the user wrote, the rows may have other columns than the table, and the table has to
        exist."""
        self.connection.execute(
            f"CREATE TABLE IF NOT EXISTS {self.claims} (sink_id TEXT PRIMARY KEY NOT NULL, query_id TEXT NOT NULL, "
            "batch_id INTEGER NOT NULL, digest TEXT NOT NULL, row_count INTEGER NOT NULL, committed_at TEXT NOT NULL)"
        )
        if self.target.quarantine is not None:
            self.connection.execute(
                f"CREATE TABLE IF NOT EXISTS {qualified(self.target.quarantine)} (sink_id TEXT, query_id TEXT, "
                "batch_id INTEGER, reason TEXT, row TEXT, written_at TEXT)"
            )
        if isinstance(self.target.write.merge, str):
            return
        self.connection.execute(create_table(self.target.table, self.types, self.target.write.key))
        existing = columns_of(self.connection, self.target.table)
        if self.target.add_columns and added_columns(self.target.table, self.types, [*existing]):
            existing = self.with_columns()
        check_new_columns(self.target.table, self.types, [*existing])
        generated = generated_of(self.connection, self.target.table)
        check_generated(self.target.write, self.target.table, self.types, generated)
        check_affinities(self.target.table, self.schema, existing)

    def with_columns(self) -> dict[str, str]:
        """The columns, after those were added that the table lacked. They stay if the batch fails."""
        # Another driver may add them meanwhile.
        self.connection.execute("BEGIN IMMEDIATE")
        existing = columns_of(self.connection, self.target.table)
        for statement in added_columns(self.target.table, self.types, [*existing]):
            self.connection.execute(statement)
        self.connection.execute("COMMIT")
        return columns_of(self.connection, self.target.table)

    def held(self) -> TableClaim | None:
        row = self.connection.execute(
            f"SELECT query_id, batch_id, digest FROM {self.claims} WHERE sink_id = ?", [self.target.sink]
        ).fetchone()
        return None if row is None else TableClaim(*row)

    @contextmanager
    def staged(self, rows: DataFrame) -> Iterator[Staged]:
        """Gathers the rows in a file of their own, attached to the connection, one partition in memory at a time."""
        packing = Packing(self.target.table, self.types, self.target.quarantine is not None)
        chunks = map_in_arrow(travelling(rows), pack_task(packing), "chunk binary, row_count bigint")
        with tempfile.TemporaryDirectory(prefix="semel-stage-") as directory:
            path = str(Path(directory, "rows.db"))
            count = gather(path, self.types, one_partition_at_a_time(chunks))
            self.connection.execute(f"ATTACH ? AS {STAGE}", [path])
            try:
                yield Staged(f"(SELECT {listed(self.types)} FROM {STAGE}.rows)", count, f"{STAGE}.bad")
            finally:
                self.connection.execute(f"DETACH {STAGE}")

    def commit(self, staged: Staged, claim: TableClaim, rule: Rule) -> Outcome:
        # A transaction that reads first and then writes fails at once if another one wrote in between; this one waits
        # for its lock before it reads.
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            outcome = rule(self.held())
            if outcome is Outcome.ACCEPTED:
                self.check_whole(staged)
                self.aside = move(self, self.target, list(self.types), staged, claim)
                if self.target.quarantine is not None and staged.bad is not None:
                    bad = self.connection.execute(f"SELECT reason, row FROM {staged.bad}")
                    self.aside += self.keep(bad, claim)
                self.connection.execute(
                    f"INSERT OR REPLACE INTO {self.claims} VALUES (?, ?, ?, ?, ?, {NOW})",
                    [self.target.sink, claim.query_id, claim.batch_id, claim.digest, staged.count],
                )
            self.connection.execute("COMMIT")
        finally:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        return outcome

    def tried(self, rows: str) -> str | None:
        self.connection.execute(f"SAVEPOINT {SAVEPOINT}")
        try:
            self.move(rows)
        except sqlite3.Error as error:
            if not (isinstance(error, sqlite3.IntegrityError) or str(error) == OVERFLOW):
                raise
            self.connection.execute(f"ROLLBACK TO {SAVEPOINT}")
            return one_line(error)
        finally:
            if self.connection.in_transaction:
                self.connection.execute(f"RELEASE {SAVEPOINT}")
        return None

    def answer(self, statement: str) -> Iterable[Any]:
        return self.connection.execute(statement)

    def keep(self, bad: Iterable[tuple[str, str]], claim: TableClaim) -> int:
        whose = (self.target.sink, claim.query_id, claim.batch_id)
        into = f"INSERT INTO {qualified(str(self.target.quarantine))} VALUES (?, ?, ?, ?, ?, {NOW})"
        before = self.connection.total_changes
        self.connection.executemany(into, ((*whose, reason, row) for reason, row in bad))
        return self.connection.total_changes - before

    def move(self, rows: str) -> None:
        doubled = doubled_keys(self.target.write, rows)
        if doubled is not None and self.number_of(doubled):
            raise doubled_key(self.target.write)
        with refusing_no_index(self.target.write, self.target.table):
            self.connection.execute(write_statement(self.target.write, self.target.table, list(self.types), rows))


@contextmanager
def refusing_no_index(write: Write, table: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        if "ON CONFLICT clause does not match" not in str(error):
            raise
        raise no_index(write, table) from error


def check_decimals(write: Write, schema: StructType) -> None:
    """A decimal stored as text is exact, but SQLite neither adds it up nor compares it as a number."""
    counted = [write.version, *(write.merge if isinstance(write.merge, Mapping) else ())]
    for field in schema.fields:
        if field.name in counted and isinstance(field.dataType, DecimalType):
            raise ValueError(
                f"column {field.name!r} is a {field.dataType.simpleString()}, for which SQLite has no number: "
                "use an integer of the smallest unit (columns=...)"
            )


def check_sums(write: Write, types: Mapping[str, str]) -> None:
    """SQLite adds up any value: of a text it takes the digits at the beginning."""
    for name, how in write.merge.items() if isinstance(write.merge, Mapping) else ():
        if how == "sum" and types[name] not in ("INTEGER", "REAL"):
            raise ValueError(f"column {name!r} is no number, and cannot be added up: cast it (columns=...)")


def one_partition_at_a_time(rows: DataFrame) -> Iterator[Any]:
    """The rows, in the driver, while Spark computes the next partition.

    `DataFrame.toLocalIterator` does this, too. But Spark 4.3 considers its execution ended before the first of its jobs
    has begun, and never cleans up the jobs of an ended execution: it keeps them, with their plan and their session, as
    long as it runs. The iterator of an RDD has no execution of its own; its jobs are cleaned up with the batch's.
    """
    from pyspark.sql import is_remote

    # With Spark Connect the rows come with the answer, and there are no RDDs.
    source = rows if is_remote() else rows.rdd
    return iter(source.toLocalIterator(prefetchPartitions=True))


def gather(path: str, types: dict[str, str], chunks: Iterator[Any]) -> int:
    """Copies all chunks into one file, which nobody needs after a crash: so no write to it waits for the disk."""
    count = 0
    with closing(sqlite3.connect(path, isolation_level=None)) as staging:
        staging.execute("PRAGMA journal_mode = OFF")
        staging.execute("PRAGMA synchronous = OFF")
        staging.execute(create_table("rows", types, ()))
        staging.execute(BAD_ROWS)
        staging.execute("ATTACH ':memory:' AS chunk")
        for chunk in chunks:
            staging.deserialize(bytes(chunk.chunk), name="chunk")
            staging.execute("INSERT INTO main.rows SELECT * FROM chunk.rows")
            staging.execute("INSERT INTO main.bad SELECT * FROM chunk.bad")
            count += chunk.row_count
    return count


@dataclass(frozen=True)
class Packing:
    """What a task needs to pack its rows; `keeps_bad` keeps those that SQLite cannot hold, which end the query else."""

    table: str
    types: dict[str, str]
    keeps_bad: bool = False


def pack_task(packing: Packing) -> Any:
    """The function with which a task turns each Arrow batch of its rows into a small database."""

    def pack(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        for batch in batches:
            if batch.num_rows:
                chunk, count = packed(batch, packing)
                yield pyarrow.record_batch({"chunk": [chunk], "row_count": [count]})

    return pack


def packed(batch: pyarrow.RecordBatch, packing: Packing) -> tuple[bytes, int]:
    """The rows as a database, and how many they are without those that are kept as bad ones."""
    marks = ", ".join("?" for _ in batch.columns)

    def tried(first: int, end: int) -> str | None:
        try:
            values = [plain(column) for column in batch.slice(first, end - first).columns]
        except ValueError as error:
            return one_line(error)
        chunk.executemany(f"INSERT INTO rows VALUES ({marks})", zip(*values, strict=True))
        return None

    with closing(sqlite3.connect(":memory:", isolation_level=None)) as chunk:
        chunk.execute(create_table("rows", packing.types, ()))
        chunk.execute(BAD_ROWS)
        chunk.execute("BEGIN")
        bad_count = 0
        for place, reason in refused(0, batch.num_rows, tried):
            row = as_json(values_of(batch, place))
            if not packing.keeps_bad:
                raise bad_row(packing.table, reason, row)
            chunk.execute("INSERT INTO bad VALUES (?, ?)", (reason, row))
            bad_count += 1
        chunk.execute("COMMIT")
        return chunk.serialize(), batch.num_rows - bad_count


def plain(column: pyarrow.Array) -> list[Any]:
    """The values as SQLite stores them. A value of a type that SQLite lacks becomes text, which is exact."""
    import pyarrow

    if pyarrow.types.is_timestamp(column.type) and column.type.tz is not None:
        column = column.cast(pyarrow.timestamp("us", "UTC"))
    if not (pyarrow.types.is_integer(column.type) or pyarrow.types.is_floating(column.type)):
        if not (pyarrow.types.is_boolean(column.type) or pyarrow.types.is_binary(column.type)):
            column = column.cast(pyarrow.string())
        return list(column.to_pylist())
    if column.null_count:
        return list(column.to_pylist())
    return list(column.to_numpy().tolist())
