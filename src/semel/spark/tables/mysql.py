"""MySQL and MariaDB: the executors send their rows into a staging table, and the driver moves them in one transaction.

A row is staged with the number of the task attempt that wrote it, and the transaction reads only the attempts whose
results Spark accepted. CREATE TABLE and the like commit what a transaction has done, so all tables are made before it
begins; and every table that takes part has to be in InnoDB, because the other engines roll nothing back.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import StructType

from semel.database.dialects import dialect_named
from semel.database.engines import driver_settings
from semel.spark.claims import Outcome
from semel.spark.columns_by_number import map_in_arrow
from semel.spark.tables.bad_rows import doubled_key, move
from semel.spark.tables.claims import TableClaim
from semel.spark.tables.columns import in_hexadecimal, travelling
from semel.spark.tables.connection import SqlConnection, stage_prefix
from semel.spark.tables.database import Staged, Target
from semel.spark.tables.mysql_columns import Column, check_columns, check_key, schema_of, staging_types, table_types
from semel.spark.tables.mysql_rows import (
    SORTED_BYTES_MAX,
    Fit,
    Sending,
    bytes_of_packet,
    check_length,
    opened,
    send_task,
)
from semel.spark.tables.servers import Server, server_at
from semel.spark.tables.statements import (
    PLACE_COLUMN,
    ROW_COLUMN,
    TASK_COLUMN,
    Write,
    added_columns,
    by_duplicate_key,
    check_generated,
    check_new_columns,
    check_table,
    create_table,
    doubled_keys,
    listed,
    literal,
    no_index,
    one_line,
    qualified,
    quoted,
    write_statement,
)
from semel.spark.tables.table import Rule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

try:
    import pymysql
except ImportError as error:
    raise ImportError("a sink into MySQL or MariaDB needs PyMySQL: pip install 'semel[mysql]'") from error

ENGINE: Final = "InnoDB"
# How long the drop of a table that a crash left waits for a zombie that still writes to it: the next batch tries again.
DROP_WAIT_SECONDS: Final = 1
# For so long the driver's connection may be silent while tasks stage, and then in a transaction, whose lock would else
# stay for hours when the driver's machine is gone.
STAGING_SECONDS_MAX: Final = 30 * 24 * 60 * 60
IDLE_SECONDS_MAX: Final = 600
SAVEPOINT: Final = "semel_moving"
NOW: Final = "UTC_TIMESTAMP(6)"
# The key of a table whose rows need none: servers can be told to take no table without (innodb_force_primary_key,
# sql_require_primary_key), and clusters of Galera expect one in each.
COUNTED: Final = {ROW_COLUMN: "bigint AUTO_INCREMENT PRIMARY KEY"}
TICK: Final = "`"
EITHER: Final = "MySQL or MariaDB"

_NO_KEY: Final = (1173, 3750)
_NO_SAVEPOINT, _DUPLICATE_COLUMN, _LOCK_WAIT = 1305, 1060, 1205
# With this error the statement that is guarded refuses a row.
_TWO_ROWS: Final = 1242
# What the server, or a trigger in it, says of a row that it refuses: no place for a value, a broken constraint.
_REFUSALS: Final = frozenset(
    {
        *(1048, 1062, _TWO_ROWS, 1216, 1217, 1264, 1265, 1292, 1364, 1365, 1366, 1406, 1451, 1452, 1526, 1644, 1690),
        *(1888, 3140, 3819, 4025, 4078),
    }
)

_COLUMNS: Final = (
    "SELECT column_name, data_type, column_type, character_maximum_length, character_octet_length, numeric_scale, "
    "datetime_precision, collation_name, is_nullable, generation_expression FROM information_schema.columns "
    "WHERE {} ORDER BY ordinal_position"
)
_UNIQUE: Final = (
    "SELECT index_name, column_name, sub_part FROM information_schema.statistics WHERE {} AND non_unique = 0"
)


class Mysql:
    def __init__(self, url: str, target: Target) -> None:
        self.settings = driver_settings(url)
        self.is_mariadb = url.startswith("mariadb")
        self.target = target
        self.server = server_at(url, "MariaDB" if self.is_mariadb else EITHER, target.sink, target.table)
        if isinstance(target.write.merge, str) and dialect_named("mysql").commits_by_itself(target.write.merge):
            raise ValueError(
                "merge=...: this statement may commit by itself, so its rows could be stored without the claim: begin "
                "it with INSERT, UPDATE, REPLACE or DELETE"
            )

    def check(self) -> None:
        with self.opened() as connection:
            connected = MysqlConnection(connection, self.settings, self.server, self.target, StructType())
            if isinstance(self.target.write.merge, str) or not connected.check_engine(self.target.table):
                return
            check_table(self.target.write, self.target.table, [*columns_of(connection, self.target.table)])
            connected.look_at_columns()

    @contextmanager
    def opened(self) -> Iterator[Any]:
        try:
            connection = opened(self.settings, self.server)
        except TypeError as error:
            raise ValueError(f"a sink into {self.target.table}: an option of the URL is unknown: {error}") from None
        # Only the server knows: a URL of mysql:// is right for either.
        product = "MariaDB" if is_mariadb(connection) else "MySQL"
        self.server = replace(self.server, name=self.server.name.replace(EITHER, product, 1))
        # What is not committed when it is closed is undone.
        with self.server.failing(pymysql.err.Error), closing(connection):
            if self.is_mariadb and not is_mariadb(connection):
                raise ValueError("a URL of mariadb://, and the server is none: write mysql://")
            yield connection

    @contextmanager
    def connected(self, schema: StructType) -> Iterator[MysqlConnection]:
        with self.opened() as connection:
            connected = MysqlConnection(connection, self.settings, self.server, self.target, schema)
            connected.run(f"SET wait_timeout = {STAGING_SECONDS_MAX}")
            connected.make_tables()
            yield connected


def is_mariadb(connection: Any) -> bool:
    return "mariadb" in connection.get_server_info().lower()


class MysqlConnection(SqlConnection):
    drop_temporary = "DROP TEMPORARY TABLE"
    nulls = ""
    place_key = f"(PRIMARY KEY ({PLACE_COLUMN})) "

    def __init__(
        self, connection: Any, settings: Mapping[str, Any], server: Server, target: Target, schema: StructType
    ) -> None:
        self.connection = connection
        self.settings = settings
        self.server = server
        self.target = target
        self.schema = schema
        # Byte by byte, spaces at the end included: what both servers have in common is not.
        self.collation = "utf8mb4_nopad_bin" if is_mariadb(connection) else "utf8mb4_0900_bin"
        self.text = f"longtext CHARACTER SET utf8mb4 COLLATE {self.collation}"
        self.types = table_types(schema, target.write.key, self.collation)
        self.long = [*(name for name, type_ in staging_types(schema, "").items() if type_.startswith("long"))]
        self.existing: dict[str, Column] = {}
        self.claims = qualified(target.claims_table)
        self.is_guarded = False
        self.aside = 0

    def answer(self, statement: str) -> Iterable[Any]:
        with self.connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def run(self, statement: str) -> int:
        with self.connection.cursor() as cursor:
            return int(cursor.execute(statement))

    def make_tables(self) -> None:
        """Makes the tables that are missing, and checks those that exist: their engines, what their columns keep, and
        how keys are compared. With a merge statement that the user wrote, the rows may have other columns than the
        table, and the table has to exist."""
        name = f"varchar(255) CHARACTER SET utf8mb4 COLLATE {self.collation}"
        claim = {"sink_id": name, "query_id": name, "batch_id": "bigint", "digest": name}
        noted = {**claim, "row_count": "bigint", "committed_at": "datetime(6)"}
        self.make_own(self.target.claims_table, noted, "sink_id")
        if self.target.quarantine is not None:
            bad = {"sink_id": name, "query_id": name, "batch_id": "bigint", "reason": self.text, "row": self.text}
            self.make_own(self.target.quarantine, {**bad, "written_at": "datetime(6)"})
        if isinstance(self.target.write.merge, str):
            self.check_engine(self.target.table)
        else:
            self.make(self.target.table, self.types, *self.target.write.key)
            self.look_at_columns()
        # In a transaction of its own: two drivers that insert it and then lock it would be in each other's way.
        with self.waiting(), suppress(pymysql.err.IntegrityError):
            self.run(f"INSERT INTO {self.claims} (sink_id) VALUES ({literal(self.target.sink)})")

    def make_own(self, table: str, types: Mapping[str, str], *key: str) -> None:
        """Makes a table of the sink's own. Somebody may have converted one that exists, so that two sinks are one."""
        self.make(table, types if key else {**types, **COUNTED}, *key)
        columns = columns_of(self.connection, table)
        check_columns(table, schema_of(types), columns)
        if key:
            self.check_unique(table, Write("upsert", key))
            check_key(table, key, columns, self.collation)

    def make(self, table: str, types: Mapping[str, str], *key: str) -> None:
        if self.check_engine(table):
            return
        try:
            self.run(f"{create_table(table, types, key)} ENGINE={ENGINE}")
        except pymysql.err.Error as error:
            if error.args[0] not in _NO_KEY:
                raise
            raise ValueError(
                f"the server takes no table without a primary key, and rows that are appended to {table} have none: "
                f"make the table yourself, with a key that counts, such as {ROW_COLUMN} {COUNTED[ROW_COLUMN]}"
            ) from None
        self.check_engine(table)

    def check_engine(self, table: str) -> bool:
        """Whether there is such a table; raises if it would keep rows whose claim is undone."""
        for engine, kind in self.answer(f"SELECT engine, table_type FROM information_schema.tables WHERE {of(table)}"):
            if engine != ENGINE:
                what = "a view" if engine is None else f"in the engine {engine}, which rolls nothing back"
                raise ValueError(
                    f"{table} is {what}, so its rows and the claim would not be committed together: "
                    f"{'take the table itself' if engine is None else f'ALTER TABLE {table} ENGINE = {ENGINE}'}"
                )
            return bool(kind)
        return False

    def look_at_columns(self) -> None:
        table, key = self.target.table, self.target.write.key
        existing = columns_of(self.connection, table)
        if self.target.add_columns:
            for statement in added_columns(table, self.types, [*existing]):
                try:
                    self.run(statement)
                except pymysql.err.OperationalError as error:
                    # Another driver may have added it meanwhile.
                    if error.args[0] != _DUPLICATE_COLUMN:
                        raise
            existing = columns_of(self.connection, table)
        check_new_columns(table, self.types, [*existing], TICK)
        generated = [column.name for column in existing.values() if column.is_generated]
        check_generated(self.target.write, table, self.types, generated)
        check_columns(table, self.schema, existing)
        self.existing = existing
        if key:
            self.is_guarded = self.check_unique(table, self.target.write) > 1
            check_key(table, key, existing, self.collation)

    def check_unique(self, table: str, write: Write) -> int:
        """How many unique indexes there are; raises if none is on exactly the key."""
        indexes: dict[str, list[tuple[str, int | None]]] = {}
        for index, column, part in self.answer(_UNIQUE.format(of(table))):
            indexes.setdefault(index, []).append((column, part))
        whole = sorted((name, None) for name in write.key)
        if whole not in [sorted(parts, key=str) for parts in indexes.values()]:
            raise no_index(write, table)
        return len(indexes)

    def held(self) -> TableClaim | None:
        [row] = self.claim("")
        return None if row[0] is None else TableClaim(*row)

    def claim(self, lock: str) -> list[Any]:
        where = f"sink_id = {literal(self.target.sink)}"
        found = list(self.answer(f"SELECT query_id, batch_id, digest FROM {self.claims} WHERE {where} {lock}"))
        if not found:
            raise RuntimeError(
                f"the row of sink {self.target.sink!r} in {self.target.claims_table} is gone since the batch began: "
                "somebody deleted it. Nothing was written; the batch has to run again"
            )
        return found

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While another driver may hold the claim."""
        try:
            yield
        except pymysql.err.OperationalError as error:
            if error.args[0] != _LOCK_WAIT:
                raise
            raise RuntimeError(
                f"another driver holds the claim of sink {self.target.sink!r} in {self.target.claims_table} for longer "
                "than innodb_lock_wait_timeout: it still writes, or its machine is gone and the server does not know "
                f"yet, which ends after {IDLE_SECONDS_MAX} s. Nothing was written; run the batch again, or end that "
                "connection (SHOW PROCESSLIST, KILL)"
            ) from None

    @contextmanager
    def staged(self, rows: DataFrame) -> Iterator[Staged]:
        """Has the tasks stage all rows, and drops the staging table in the end, whether or not the rows were
        written."""
        prefix = self.stage_prefix()
        left = f"table_schema = DATABASE() AND left(table_name, {len(prefix)}) = {literal(prefix)}"
        for (name,) in self.answer(f"SELECT table_name FROM information_schema.tables WHERE {left}"):
            self.drop(name)
        table = prefix + secrets.token_hex(6)
        types = staging_types(self.schema, self.collation)
        self.run(f"{create_table(table, {**types, TASK_COLUMN: 'bigint', **COUNTED}, ())} ENGINE={ENGINE}")
        bad = None if self.target.quarantine is None else f"{table}_bad"
        if bad is not None:
            kept = {"reason": self.text, "row": self.text, TASK_COLUMN: "bigint", **COUNTED}
            self.run(f"{create_table(bad, kept, ())} ENGINE={ENGINE}")
        try:
            sending = send_task(Sending(self.settings, self.server, table, bad, self.fits(types)))
            counts = "task bigint, row_count bigint, bad_count bigint"
            done = map_in_arrow(travelling(rows, in_hexadecimal), sending, counts).collect()
            tasks = ", ".join(str(task.task) for task in done)
            chosen = f"WHERE {TASK_COLUMN} IN ({tasks})" if done else "WHERE false"
            yield Staged(
                f"(SELECT {listed(types)} FROM {quoted(table)} {chosen})",
                sum(task.row_count for task in done),
                None if bad is None else f'(SELECT reason, "row" FROM {quoted(bad)} {chosen})',
                sum(task.bad_count for task in done),
            )
        finally:
            # If the connection was lost, the drop fails too, and its error must not hide the first one.
            with suppress(pymysql.err.Error):
                for staging in filter(None, (table, bad)):
                    self.drop(staging)

    def fits(self, types: Mapping[str, str]) -> dict[str, Fit]:
        fits = {}
        for name, type_ in types.items():
            column = self.existing.get(name)
            limits = Fit() if column is None else Fit(column.characters_max, column.bytes_max, column.is_needed)
            bytes_max = limits.bytes_max
            if name in (*self.target.write.key, self.target.write.version):
                bytes_max = min(bytes_max or SORTED_BYTES_MAX, SORTED_BYTES_MAX)
            # A null in the key has a message of its own.
            is_needed = limits.is_needed and name not in self.target.write.key
            fits[name] = Fit(limits.characters_max, bytes_max, is_needed, type_ == "longblob")
        return fits

    def stage_prefix(self) -> str:
        schema, table = parted(self.target.claims_table)
        [(full,)] = self.answer(f"SELECT {schema}")
        return stage_prefix(self.target.sink, (str(full), table))

    def drop(self, table: str) -> None:
        self.run(f"SET lock_wait_timeout = {DROP_WAIT_SECONDS}")
        with suppress(pymysql.err.OperationalError):
            self.run(f"DROP TABLE IF EXISTS {quoted(table)}")
        self.run("SET lock_wait_timeout = DEFAULT")

    def commit(self, staged: Staged, claim: TableClaim, rule: Rule) -> Outcome:
        self.run(f"SET wait_timeout = {IDLE_SECONDS_MAX}")
        self.connection.begin()
        try:
            with self.waiting():
                [held] = self.claim("FOR UPDATE")
            if rule(None if held[0] is None else TableClaim(*held)) is Outcome.DUPLICATE:
                return Outcome.DUPLICATE
            self.check_whole(staged)
            self.aside = move(self, self.target, list(self.types), staged, claim)
            if staged.bad is not None:
                self.aside += self.keep(self.answer(f'SELECT reason, "row" FROM {staged.bad} AS bad'), claim)
            values = {"query_id": claim.query_id, "batch_id": claim.batch_id, "digest": claim.digest}
            noted = ", ".join(f"{name} = {literal(value)}" for name, value in values.items())
            self.run(
                f"UPDATE {self.claims} SET {noted}, row_count = {staged.count}, committed_at = {NOW} "
                f"WHERE sink_id = {literal(self.target.sink)}"
            )
            self.connection.commit()
        finally:
            with suppress(pymysql.err.Error):
                self.connection.rollback()
        return Outcome.ACCEPTED

    def tried(self, rows: str) -> str | None:
        self.run(f"SAVEPOINT {SAVEPOINT}")
        try:
            self.move(rows)
        except pymysql.err.Error as error:
            if error.args[0] not in _REFUSALS:
                raise
            self.run(f"ROLLBACK TO SAVEPOINT {SAVEPOINT}")
            return self.reason_of(error)
        try:
            self.run(f"RELEASE SAVEPOINT {SAVEPOINT}")
        except pymysql.err.OperationalError as error:
            if error.args[0] != _NO_SAVEPOINT:
                raise
            raise RuntimeError(
                f"the statement that writes into {self.target.table} has ended the transaction of the claim: some of "
                "its rows may be stored, and the batch is not claimed. Leave COMMIT, and what commits by itself, out "
                "of it and of what it calls"
            ) from None
        return None

    def reason_of(self, error: Any) -> str:
        if self.is_guarded and error.args[0] == _TWO_ROWS:
            return "another row has the same value in another unique index"
        return one_line(error.args[1])

    def keep(self, bad: Iterable[tuple[str, str]], claim: TableClaim) -> int:
        whose = ", ".join(map(literal, (self.target.sink, claim.query_id, claim.batch_id)))
        columns = listed(("sink_id", "query_id", "batch_id", "reason", "row", "written_at"))
        into = f"INSERT INTO {qualified(str(self.target.quarantine))} ({columns}) VALUES"
        packet_bytes = bytes_of_packet(self.connection)
        count = 0
        for reason, row in bad:
            statement = f"{into} ({whose}, {literal(reason)}, {literal(row)}, {NOW})"
            check_length(self.target.table, reason, row, statement, packet_bytes)
            count += self.run(statement)
        return count

    def move(self, rows: str) -> None:
        write, table, columns = self.target.write, self.target.table, list(self.types)
        if not write.key:
            self.run(write_statement(write, table, columns, rows))
            return
        doubled = doubled_keys(write, rows)
        if doubled is not None and self.number_of(doubled):
            raise doubled_key(write)
        stored = {
            name: f"CONVERT({qualified(table)}.{quoted(name)} USING utf8mb4) COLLATE {self.collation}"
            for name, column in self.existing.items()
            if column.is_text or column.kind == "json"
        }
        self.run(by_duplicate_key(write, table, columns, rows, self.is_guarded, stored, self.long))


def parted(table: str) -> tuple[str, str]:
    """The schema, as it stands in a statement, and the name."""
    schema, point, name = table.partition(".")
    return (literal(schema), name) if point else ("DATABASE()", table)


def of(table: str) -> str:
    """The condition on information_schema for this table."""
    schema, name = parted(table)
    return f"table_schema = {schema} AND table_name = {literal(name)}"


def columns_of(connection: Any, table: str) -> dict[str, Column]:
    """The columns of the table, in their order; none if there is no such table."""
    with connection.cursor() as cursor:
        cursor.execute(_COLUMNS.format(of(table)))
        found = cursor.fetchall()
    columns = {}
    for name, kind, declared, characters, octets, scale, fraction, collation, is_nullable, computed in found:
        is_short = str(kind) == "varchar"
        columns[name] = Column(
            name,
            str(kind).lower(),
            str(declared),
            characters if is_short else None,
            None if is_short or octets is None else int(octets),
            scale,
            fraction,
            collation,
            is_nullable == "NO",
            bool(computed),
        )
    return columns
