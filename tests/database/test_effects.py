"""Which statements of a claim's work are refused on another connection, and whom nobody listens to."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine

from djangos import alias_of, configure
from semel.database import WrittenElsewhere, engine_of
from semel.database.effects import effects_on, listen

WRITES = [
    "INSERT INTO numbers VALUES (1)",
    "update numbers set number = 1",
    "DELETE FROM numbers",
    "REPLACE INTO numbers VALUES (1)",
    "WITH one AS (SELECT 1) INSERT INTO numbers SELECT 1",
    "WITH one AS (SELECT 1)\nUPDATE numbers SET number = 2",
    "WITH one AS (SELECT 1) DELETE FROM numbers",
    "SELECT 1; /* then */ DELETE FROM numbers",
    "CALL book(1)",
    "DO $$ BEGIN DELETE FROM numbers; END $$",
]
READS = [
    "SELECT number FROM numbers",
    "WITH one AS (SELECT 1) SELECT * FROM one",
    "SELECT 'INSERT INTO numbers'",
    "PRAGMA user_version",
    "SELECT count(*) AS updates FROM numbers",
    "SELECT ';' AS semicolon, 'DO' AS word",
    "CREATE TABLE IF NOT EXISTS others (number INTEGER)",
    # A claim inside of this one has its own effect.
    "DELETE FROM semel_inbox WHERE consumer = 'nobody'",
    "DELETE FROM semel_http_keys WHERE key = 'nobody'",
]
COMMENTS = st.lists(st.sampled_from([" ", "\n", "-- INSERT\n", "/* UPDATE */", "/* two\nlines */"]), max_size=4)


@dataclass
class Another:
    """The transaction of a claim, on a connection that no statement of a test goes over."""

    driver: object = field(default_factory=object)
    file: str = ""
    is_over: bool = False


@pytest.fixture
def file(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/numbers.db"
    engine = create_engine(url)
    with engine.begin() as connection:
        for table in ("numbers (number INTEGER)", "semel_inbox (consumer TEXT)", "semel_http_keys (key TEXT)"):
            connection.exec_driver_sql(f"CREATE TABLE {table}")
    engine.dispose()
    return url


@pytest.mark.parametrize("statement", WRITES)
def test_a_statement_that_writes_is_refused_whatever_stands_before_it(file: str, statement: str) -> None:
    engine = create_engine(file)

    @given(COMMENTS)
    def refused(comments: list[str]) -> None:
        with engine.connect() as connection, pytest.raises(WrittenElsewhere), effects_on(Another()):
            connection.exec_driver_sql("".join(comments) + statement)

    refused()
    engine.dispose()


@pytest.mark.parametrize("statement", READS)
def test_a_statement_that_only_reads_is_not_refused(file: str, statement: str) -> None:
    engine = create_engine(file)
    with engine.connect() as connection, effects_on(Another()):
        connection.exec_driver_sql(statement)
    engine.dispose()


def test_a_lock_on_rows_is_no_change_of_them(url: str) -> None:
    engine = engine_of(url)
    if engine.dialect.name == "sqlite":
        pytest.skip("it has no such thing")
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE TEMPORARY TABLE numbers (number INTEGER)")
        with effects_on(Another()):
            for lock in ("UPDATE", "NO KEY UPDATE", "SHARE"):
                connection.exec_driver_sql(f"WITH one AS (SELECT 1) SELECT * FROM numbers FOR {lock} SKIP LOCKED")
    engine.dispose()


def test_a_composed_statement_of_psycopg_is_read_by_its_text(url: str) -> None:
    from psycopg import sql

    engine = engine_of(url)
    if engine.dialect.name == "sqlite":
        pytest.skip("it has no such thing")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE numbers (number INTEGER)")
    with alias_of(engine) as alias:
        from django.db import connections

        with connections[alias].cursor() as cursor, effects_on(Another()):
            cursor.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier("numbers")))
        with connections[alias].cursor() as cursor, pytest.raises(WrittenElsewhere), effects_on(Another()):
            cursor.execute(sql.SQL("INSERT INTO {} VALUES (1)").format(sql.Identifier("numbers")))
    engine.dispose()


def test_a_wrapper_of_the_applications_own_ends_with_its_block(file: str) -> None:
    """Django takes the last wrapper away there, and the connection may be made inside of the block."""
    seen: list[str] = []

    def noted(execute: object, statement: str, *more: object) -> object:
        seen.append(statement)
        return execute(statement, *more)  # type: ignore[operator]

    configure()
    listen()
    engine = create_engine(file)
    with alias_of(engine) as alias:
        from django.db import connections

        with connections[alias].execute_wrapper(noted):
            connections[alias].cursor().execute("SELECT 1")
        connections[alias].cursor().execute("SELECT 2")
        assert seen == ["SELECT 1"]
        with pytest.raises(WrittenElsewhere), effects_on(Another()):
            connections[alias].cursor().execute("INSERT INTO numbers VALUES (1)")
    engine.dispose()


def test_a_program_without_django_does_not_import_it() -> None:
    program = "import sys, semel.http, semel.inbox; print([name for name in sys.modules if name.startswith('django')])"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed == "[]\n"
