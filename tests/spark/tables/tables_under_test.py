"""The kinds of tables that the contract is held against: how each is made, read, written by others and maintained."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import psycopg
import pyarrow
import pymysql
from deltalake import DeltaTable, write_deltalake
from pymysql import converters
from pymysql.constants import FIELD_TYPE
from pyspark.sql.types import StructType

from semel.database.engines import driver_settings
from semel.spark import delta_sink, iceberg_sink, sql_sink
from semel.spark.tables.sink import Sink
from semel.spark.tables.table import Connected, Table
from semel.testing.seaweedfs import ACCESS_KEY, SECRET_KEY, SeaweedServer

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

NO_TEXT = "concat('bad ', cast(X'ff' AS string))"


class TableUnderTest:
    """One table, called `rows`, and its quarantine."""

    refusing_options: ClassVar[dict[str, Any]] = {}
    """What a sink needs so that the table refuses the name `bad`."""
    has_infinity = True
    """Whether a floating-point number may be NaN or infinite."""
    bad = "repeat('x', 300)"
    """A name of more than 200 characters, or one that no directory can have."""

    def __init__(self, where: str) -> None:
        self.where = where

    def sink(self, **options: Any) -> Sink:
        """A sink into the table, as a driver that starts anew makes it."""
        raise NotImplementedError

    def make_refusing(self) -> None:
        """Makes the table so that it refuses the name `bad`."""

    def rows(self, table: str = "rows") -> list[dict[str, Any]]:
        """What a reader that is not ours finds."""
        raise NotImplementedError

    def append(self, rows: pyarrow.Table) -> None:
        """A commit of another writer's."""
        raise NotImplementedError

    def maintain(self) -> None:
        """What people run at night: merges files, and removes all of the past that can go."""

    def go_back(self) -> Callable[[], None] | None:
        """Remembers how the table is, and gives what takes it back there; None if such a table cannot go back."""
        return None


class SqlUnderTest(TableUnderTest):
    mark: ClassVar[str]
    """What stands for a value in a statement."""

    def run(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        """The rows that the statement returns, if it returns any."""
        raise NotImplementedError

    def make_refusing(self) -> None:
        self.run("CREATE TABLE rows (id bigint, name text CHECK (length(name) < 200))")

    def rows(self, table: str = "rows") -> list[dict[str, Any]]:
        return self.run(f"SELECT * FROM {table}")

    def append(self, rows: pyarrow.Table) -> None:
        for row in rows.to_pylist():
            marks = ", ".join(self.mark for _ in row)
            self.run(f"INSERT INTO rows ({', '.join(row)}) VALUES ({marks})", *row.values())


class SqliteUnderTest(SqlUnderTest):
    mark = "?"

    def sink(self, **options: Any) -> Sink:
        return sql_sink(f"sqlite:///{self.where}", "rows", **options)

    def run(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(self.where)) as file, file:
            cursor = file.execute(statement, values)
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor]

    def maintain(self) -> None:
        with closing(sqlite3.connect(self.where)) as file:
            file.execute("VACUUM")

    def go_back(self) -> Callable[[], None]:
        copy = Path(f"{self.where}.copy")

        def restored() -> None:
            with closing(sqlite3.connect(copy)) as old, closing(sqlite3.connect(self.where)) as now:
                old.backup(now)

        with closing(sqlite3.connect(self.where)) as now, closing(sqlite3.connect(copy)) as old:
            now.backup(old)
        return restored


class PostgresUnderTest(SqlUnderTest):
    mark = "%s"

    def sink(self, **options: Any) -> Sink:
        return sql_sink(self.where, "rows", **options)

    def run(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        with psycopg.connect(self.where, row_factory=psycopg.rows.dict_row) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def maintain(self) -> None:
        with psycopg.connect(self.where, autocommit=True) as connection:
            connection.execute("VACUUM FULL rows")


class MariadbUnderTest(SqlUnderTest):
    mark = "%s"
    has_infinity = False

    def sink(self, **options: Any) -> Sink:
        return sql_sink(self.where, "rows", **options)

    def run(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        # Moments have no zone there: as texts, they cannot be taken for those of another one.
        conversions = {**converters.conversions, FIELD_TYPE.DATETIME: str}
        settings = {**driver_settings(self.where), "conv": conversions, "cursorclass": pymysql.cursors.DictCursor}
        with pymysql.connect(**settings, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(re.sub(r"\brows\b", "`rows`", statement), values or None)
            return list(cursor.fetchall())

    def maintain(self) -> None:
        self.run("OPTIMIZE TABLE rows")


class DeltaUnderTest(TableUnderTest):
    refusing_options: ClassVar[dict[str, Any]] = {"partition_by": "name"}

    storage: ClassVar[dict[str, str]] = {}

    def sink(self, **options: Any) -> Sink:
        return delta_sink(f"{self.where}/rows", storage_options=self.storage, **options)

    def table(self, name: str = "rows") -> DeltaTable:
        return DeltaTable(f"{self.where}/{name}", storage_options=self.storage)

    def rows(self, table: str = "rows") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.table(table).to_pyarrow_table().to_pylist()
        return found

    def append(self, rows: pyarrow.Table) -> None:
        write_deltalake(self.table(), rows, mode="append", schema_mode="merge")

    def maintain(self) -> None:
        table = self.table()
        table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
        table.optimize.compact()
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
        table.create_checkpoint()
        table.cleanup_metadata()

    def go_back(self) -> Callable[[], None]:
        version = self.table().version()
        return lambda: self.table().restore(version) and None


class DeltaInBucketUnderTest(DeltaUnderTest):
    """A name may be long there: it is in no path."""

    bad = NO_TEXT

    def __init__(self, server: SeaweedServer, folder: str) -> None:
        super().__init__(f"s3://contract/{folder}")
        self.storage = {  # type: ignore[misc]
            "AWS_ENDPOINT_URL": server.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }


class IcebergUnderTest(TableUnderTest):
    refusing_options: ClassVar[dict[str, Any]] = {"partition_by": "name"}

    def __init__(self, where: str, warehouse: str = "", **settings: str) -> None:
        super().__init__(where)
        lies = {"uri": f"sqlite:///{where}/catalog.db", "warehouse": warehouse or f"file://{where}/warehouse"}
        self.settings = {"type": "sql", **lies, **settings}

    @property
    def catalog(self) -> Catalog:
        from pyiceberg.catalog import load_catalog

        return load_catalog("lake", **self.settings)

    def sink(self, **options: Any) -> Sink:
        return iceberg_sink("shop.rows", catalog="lake", settings=self.settings, **options)

    def rows(self, table: str = "rows") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.catalog.load_table(f"shop.{table}").scan().to_arrow().to_pylist()
        return found

    def append(self, rows: pyarrow.Table) -> None:
        self.catalog.load_table("shop.rows").append(rows)

    def maintain(self) -> None:
        """Without a merge of files, which pyiceberg does not have."""
        table = self.catalog.load_table("shop.rows")
        current = table.current_snapshot()
        table.maintenance.expire_snapshots().by_ids(
            [one.snapshot_id for one in table.snapshots() if current is None or one.snapshot_id != current.snapshot_id]
        ).commit()

    def go_back(self) -> Callable[[], None]:
        snapshot = self.catalog.load_table("shop.rows").current_snapshot()
        assert snapshot is not None

        def back() -> None:
            manage = self.catalog.load_table("shop.rows").manage_snapshots()
            manage.rollback_to_snapshot(snapshot.snapshot_id).commit()

        return back


def iceberg_in_bucket(server: SeaweedServer, directory: Path) -> IcebergUnderTest:
    keys = {"s3.access-key-id": ACCESS_KEY, "s3.secret-access-key": SECRET_KEY, "s3.region": "us-east-1"}
    warehouse = f"s3://contract/{directory.name}"
    table = IcebergUnderTest(str(directory), warehouse, **{"s3.endpoint": server.endpoint}, **keys)
    table.bad = NO_TEXT
    return table


class Interrupted:
    """A table to whose commit something happens: before it, or after it."""

    def __init__(self, table: Table, *, before: Callable[[], object] = lambda: None, is_heard: bool = True) -> None:
        self.table = table
        self.before = before
        self.is_heard = is_heard

    @contextmanager
    def connected(self, schema: StructType) -> Iterator[Connected]:
        with self.table.connected(schema) as connected:
            commit = connected.commit

            def interrupted(*arguments: Any) -> Any:
                self.before()
                outcome = commit(*arguments)
                if not self.is_heard:
                    raise ConnectionError("no answer")
                return outcome

            connected.commit = interrupted  # type: ignore[method-assign]
            yield connected
