"""PostgreSQL: the executors COPY their rows into one staging table, and the driver moves them in one transaction.

A row is staged with the number of the task attempt that wrote it, and the transaction reads only the attempts whose
results Spark accepted: a second run of a task, or one that still runs, adds nothing. The staging table is unlogged, so
a crash of the server empties it: the rows are counted before they are moved, and an incomplete batch is never
committed.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import BinaryType

from semel.spark.claims import Outcome
from semel.spark.columns_by_number import map_in_arrow
from semel.spark.tables.bad_rows import doubled_key, move
from semel.spark.tables.claims import TableClaim
from semel.spark.tables.columns import POSTGRES_TYPES, TIMESTAMPS, in_hexadecimal, travelling, types_of
from semel.spark.tables.connection import SqlConnection, stage_prefix
from semel.spark.tables.database import Staged, Target
from semel.spark.tables.postgres_columns import check_columns, staging_types
from semel.spark.tables.postgres_copy import BAD_ROW, Copying, connection_of, copy_task, reason_of
from semel.spark.tables.servers import Server, server_at
from semel.spark.tables.statements import (
    TASK_COLUMN,
    added_columns,
    check_generated,
    check_new_columns,
    check_table,
    create_table,
    find_index,
    literal,
    no_index,
    qualified,
    quoted,
    upsert_by_merge,
    write_statement,
)
from semel.spark.tables.table import Rule

if TYPE_CHECKING:
    from psycopg import Connection
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

try:
    import psycopg
except ImportError as error:
    raise ImportError("a sink into PostgreSQL needs psycopg: pip install 'semel[postgres]'") from error

MERGE_SINCE = 150_000
# Limits how long dropping a table that a crash left waits for a zombie that still copies into it: the next batch tries
# again.
DROP_TIMEOUT_MS = 1000
# Timestamps as text are slow to write and to read, so they are staged as microseconds since 1970. Both terms are exact.
SINCE_1970 = {
    type_: f"{type_} 'epoch' + {{0}} / 1000000 * interval '1 second' + {{0}} % 1000000 * interval '1 microsecond'"
    for type_ in ("timestamp with time zone", "timestamp without time zone")
}

# Each column of a table, its type, its base type, which differs if the type is a domain, maybe over another domain, and
# whether PostgreSQL computes it.
_COLUMNS = """
    WITH RECURSIVE typed AS (
        SELECT attnum, attname, format_type(atttypid, atttypmod) AS declared, atttypid AS type, atttypmod AS modifier,
            attgenerated <> '' OR attidentity = 'a' AS is_generated
        FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
        UNION ALL
        SELECT attnum, attname, declared, typbasetype, typtypmod, is_generated
        FROM typed JOIN pg_type ON pg_type.oid = typed.type WHERE typtype = 'd'
    )
    SELECT attname, declared, format_type(typed.type, modifier), is_generated
    FROM typed JOIN pg_type ON pg_type.oid = typed.type WHERE typtype <> 'd' ORDER BY attnum
"""

_FULL_NAME = """
    SELECT nspname, relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE pg_class.oid = to_regclass(%s)
"""


class Postgres:
    def __init__(self, url: str, target: Target) -> None:
        self.url = url
        self.target = target
        self.server = server_at(url, "PostgreSQL", target.sink, target.table)

    def check(self) -> None:
        write, table = self.target.write, self.target.table
        with self.server.failing(psycopg.Error), connection_of(self.url, self.server) as connection:
            columns = columns_of(connection, table)
            check_table(write, table, [name for name, *_ in columns])
            check_generated(write, table, (), generated_of(columns))
            if columns and write.key:
                try:
                    connection.execute(find_index(write, table).encode())
                except psycopg.errors.InvalidColumnReference:
                    raise no_index(write, table) from None

    @contextmanager
    def connected(self, schema: StructType) -> Iterator[PostgresConnection]:
        with (
            self.server.failing(psycopg.Error),
            connection_of(self.url, self.server, autocommit=True, prepare_threshold=None) as connection,
        ):
            connected = PostgresConnection(connection, self.url, self.server, self.target, schema)
            connected.make_tables()
            yield connected


class PostgresConnection(SqlConnection):
    def __init__(self, connection: Connection, url: str, server: Server, target: Target, schema: StructType) -> None:
        self.connection = connection
        self.url = url
        self.server = server
        self.target = target
        self.schema = schema
        self.types = types_of(schema, POSTGRES_TYPES)
        self.below: dict[str, str] = {}
        self.claims = qualified(target.claims_table)
        self.aside = 0

    def make_tables(self) -> None:
        """Makes the claims table and the table if they are missing, and reads the type that each column really has.
        With a merge statement that the user wrote, the rows may have other columns than the table, and the table has to
        exist."""
        by_statement = isinstance(self.target.write.merge, str)
        needed = [self.target.claims_table, None if by_statement else self.target.table, self.target.quarantine]
        if not all(table is None or self.exists(table) for table in needed):
            with self.connection.transaction():
                # Without the lock, two sessions could both find that the table is missing, and one would fail to make
                # it.
                self.run("SELECT pg_advisory_xact_lock(hashtext('semel tables'))")
                self.run(
                    f"CREATE TABLE IF NOT EXISTS {self.claims} (sink_id text PRIMARY KEY, query_id text, "
                    "batch_id bigint, digest text, row_count bigint, committed_at timestamptz)"
                )
                if not by_statement:
                    self.run(create_table(self.target.table, self.types, self.target.write.key))
                if self.target.quarantine is not None:
                    self.run(
                        f"CREATE TABLE IF NOT EXISTS {qualified(self.target.quarantine)} (sink_id text, query_id text, "
                        "batch_id bigint, reason text, row text, written_at timestamptz)"
                    )
        columns = columns_of(self.connection, self.target.table)
        if self.target.add_columns and not by_statement:
            columns = self.with_columns([name for name, *_ in columns])
        existing: dict[str, str] = {name: type_ for name, type_, *_ in columns}
        if not by_statement:
            check_new_columns(self.target.table, self.types, [*existing])
            check_generated(self.target.write, self.target.table, self.types, generated_of(columns))
        self.types |= {name: existing[name] for name in self.types if name in existing}
        self.check_bytes()
        # A domain rounds like its base type.
        self.below = {name: below for name, _, below, _ in columns}
        check_columns(self.target.table, self.schema, self.below)

    def with_columns(self, existing: list[str]) -> list[tuple[str, str, str, bool]]:
        """The columns, after those were added that the table lacked. They stay if the batch fails."""
        for statement in added_columns(self.target.table, self.types, existing):
            with suppress(psycopg.errors.DuplicateColumn):
                # Another driver may have added it meanwhile.
                self.run(statement)
        return columns_of(self.connection, self.target.table)

    def check_bytes(self) -> None:
        """Binary values are staged as hexadecimal digits, which a text column would store as text."""
        for field in self.schema.fields:
            if isinstance(field.dataType, BinaryType) and (type_ := self.types[field.name]) != "bytea":
                raise ValueError(
                    f"column {field.name!r} is binary in the rows and {type_} in {self.target.table}: cast it "
                    "before, to string for example"
                )

    def exists(self, table: str) -> bool:
        [row] = self.connection.execute("SELECT to_regclass(%s) IS NOT NULL", [qualified(table)]).fetchone() or [0]
        return bool(row)

    def run(self, statement: str) -> int:
        """Runs the text as it is: without parameters, a percent sign needs no escape."""
        return self.connection.execute(statement.encode()).rowcount

    def held(self) -> TableClaim | None:
        return self.claim("")

    def claim(self, lock: str) -> TableClaim | None:
        row = self.connection.execute(
            f"SELECT query_id, batch_id, digest FROM {self.claims} WHERE sink_id = %s {lock}".encode(),
            [self.target.sink],
        ).fetchone()
        return None if row is None or row[0] is None else TableClaim(*row)

    @contextmanager
    def staged(self, rows: DataFrame) -> Iterator[Staged]:
        """Has the tasks stage all rows, and drops the staging table in the end, whether or not the rows were
        written."""
        full_name = self.connection.execute(_FULL_NAME, [self.claims]).fetchone() or ()
        prefix = stage_prefix(self.target.sink, full_name)
        self.drop_all(prefix)
        table = prefix + secrets.token_hex(6)
        counted = {
            field.name
            for field in self.schema.fields
            if isinstance(field.dataType, TIMESTAMPS) and self.types[field.name] in SINCE_1970
        }
        types = staging_types(self.types, self.below, counted)
        self.run(create_table(table, {**types, TASK_COLUMN: "bigint"}, (), "UNLOGGED TABLE"))
        bad = None if self.target.quarantine is None else f"{table}_bad"
        if bad is not None:
            self.run(create_table(bad, {"reason": "text", "row": "text", TASK_COLUMN: "bigint"}, (), "UNLOGGED TABLE"))
        try:
            copying = copy_task(Copying(self.url, self.server, table, bad, counted))
            counts = "task bigint, row_count bigint, bad_count bigint"
            done = map_in_arrow(travelling(rows, in_hexadecimal), copying, counts).collect()
            tasks = ", ".join(str(task.task) for task in done)
            chosen = ", ".join(
                f"{SINCE_1970[type_].format(quoted(name)) if name in counted else quoted(name)} AS {quoted(name)}"
                for name, type_ in self.types.items()
            )
            kept = f"WHERE {TASK_COLUMN} IN ({tasks})" if done else "WHERE false"
            yield Staged(
                f"(SELECT {chosen} FROM {quoted(table)} {kept})",
                sum(task.row_count for task in done),
                None if bad is None else f"(SELECT reason, row FROM {quoted(bad)} {kept})",
                sum(task.bad_count for task in done),
            )
        finally:
            # If the connection was lost, the drop fails too, and its error must not hide the first one.
            with suppress(psycopg.Error):
                for staging in filter(None, (table, bad)):
                    self.drop(staging)

    def drop_all(self, prefix: str) -> None:
        """Drop the tables that earlier attempts of this sink left: every attempt stages its batch itself."""
        left = self.connection.execute(
            "SELECT relname FROM pg_class "
            "WHERE starts_with(relname, %s) AND relkind = 'r' AND pg_table_is_visible(oid)",
            [prefix],
        ).fetchall()
        for (table,) in left:
            self.drop(table)

    def drop(self, table: str) -> None:
        with suppress(psycopg.errors.LockNotAvailable), self.connection.transaction():
            self.run(f"SET LOCAL lock_timeout = {DROP_TIMEOUT_MS}")
            self.run(f"DROP TABLE IF EXISTS {quoted(table)}")

    def commit(self, staged: Staged, claim: TableClaim, rule: Rule) -> Outcome:
        with self.connection.transaction():
            # A row that does not exist cannot be locked.
            self.connection.execute(
                f"INSERT INTO {self.claims} (sink_id) VALUES (%s) ON CONFLICT DO NOTHING".encode(), [self.target.sink]
            )
            if rule(self.claim("FOR UPDATE")) is Outcome.DUPLICATE:
                return Outcome.DUPLICATE
            # A row that a table refuses only at the end of the transaction could not be told from the others.
            self.run("SET CONSTRAINTS ALL IMMEDIATE")
            self.check_whole(staged)
            self.aside = move(self, self.target, list(self.types), staged, claim)
            if staged.bad is not None:
                self.aside += self.keep(f"SELECT {{}}, reason, row, clock_timestamp() FROM {staged.bad} AS bad", claim)
            self.connection.execute(
                f"UPDATE {self.claims} SET query_id = %s, batch_id = %s, digest = %s, row_count = %s, "
                "committed_at = clock_timestamp() WHERE sink_id = %s".encode(),
                [claim.query_id, claim.batch_id, claim.digest, staged.count, self.target.sink],
            )
        return Outcome.ACCEPTED

    def tried(self, rows: str) -> str | None:
        try:
            with self.connection.transaction():
                self.move(rows)
        except BAD_ROW as error:
            return reason_of(error)
        return None

    def answer(self, statement: str) -> Iterable[Any]:
        cursor = self.connection.execute(statement.encode())
        return cursor if cursor.description else ()

    def put_aside(self, rows: str, reason: str, claim: TableClaim) -> int:
        row = "row_to_json(semel_aside)::text"
        return self.keep(f"SELECT {{}}, {literal(reason)}, {row}, clock_timestamp() FROM {rows} AS semel_aside", claim)

    def keep(self, bad: str, claim: TableClaim) -> int:
        whose = ", ".join(map(literal, (self.target.sink, claim.query_id, claim.batch_id)))
        return self.run(f"INSERT INTO {qualified(str(self.target.quarantine))} {bad.format(whose)}")

    def one_of(self, rows: str) -> str:
        [row] = self.connection.execute(
            f"SELECT row_to_json(semel_one)::text FROM {rows} AS semel_one".encode()
        ).fetchone() or [""]
        return str(row)

    def move(self, rows: str) -> None:
        write = (self.target.write, self.target.table, list(self.types), rows)
        statement = write_statement(*write)
        try:
            if self.target.write.mode == "upsert" and self.connection.info.server_version >= MERGE_SINCE:
                # Fails if the table lacks the unique index that ON CONFLICT needs. MERGE would run without it, and
                # should not.
                self.run(f"EXPLAIN {statement}")
                with suppress(psycopg.errors.UniqueViolation), self.connection.transaction():
                    self.run(upsert_by_merge(*write))
                    return
            self.run(statement)
        except psycopg.errors.CardinalityViolation as error:
            raise doubled_key(self.target.write) from error
        except psycopg.errors.InvalidColumnReference as error:
            raise no_index(self.target.write, self.target.table) from error


def columns_of(connection: Connection, table: str) -> list[tuple[str, str, str, bool]]:
    """As in `_COLUMNS`; none if there is no such table."""
    return connection.execute(_COLUMNS, [qualified(table)]).fetchall()


def generated_of(columns: Iterable[tuple[str, str, str, bool]]) -> list[str]:
    return [name for name, _, _, is_generated in columns if is_generated]
