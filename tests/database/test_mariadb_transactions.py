"""On MariaDB nothing commits without its claim: not after a deadlock, nor what a statement commits by itself; keys are
compared byte by byte, and what would not hold this is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pymysql
import pytest
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import OperationalError, StatementError

from databases import wait_for_waiter
from semel import offsets, schema
from semel.database import CommitTooEarly, NotInTransaction, TransactionBroken, engine_of, is_passing, read_only
from semel.database.refusals import UnknownConnection, UnsafeSettings
from semel.inbox import claim_many, next_version, once


@pytest.fixture
def engine(mariadb_url: str) -> Iterator[Engine]:
    made = engine_of(mariadb_url)
    schema.make(made)
    with made.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE effects (number INT PRIMARY KEY, value INT) ENGINE = InnoDB")
        connection.exec_driver_sql("INSERT INTO effects VALUES (1, 0), (2, 0)")
    yield made
    made.dispose()


def add(connection: Connection, number: int) -> None:
    connection.execute(text("INSERT INTO effects VALUES (:number, 0)"), {"number": number})


def stored(engine: Engine) -> tuple[list[int], int]:
    """The effects, and how many claims there are."""
    with engine.connect() as connection:
        effects = list(connection.scalars(text("SELECT number FROM effects WHERE number > 2 ORDER BY number")))
        return effects, connection.scalar(text("SELECT count(*) FROM semel_inbox")) or 0


def change(connection: Connection, number: int) -> None:
    connection.execute(text("UPDATE effects SET value = value + 1 WHERE number = :number"), {"number": number})


@pytest.mark.parametrize("in_a_block", [True, False])
def test_after_a_deadlock_that_was_caught_nothing_is_committed(engine: Engine, in_a_block: bool) -> None:
    """InnoDB has undone the claim, and would begin another transaction with the next statement."""
    with engine.connect() as other, ThreadPoolExecutor() as pool:
        other.begin()
        # The one that has changed less is undone.
        for number in range(100, 120):
            add(other, number)
        change(other, 1)

        def work(connection: Connection) -> None:
            change(connection, 2)
            waiting = pool.submit(change, other, 2)
            wait_for_waiter(connection, waiting)
            with pytest.raises(OperationalError, match="Deadlock"):
                change(connection, 1)
            waiting.result(60)
            with contextlib.suppress(TransactionBroken):
                add(connection, 3)

        def claimed() -> None:
            with engine.begin() as connection:
                if in_a_block:
                    with once(connection, consumer="billing", message_id="e-1"):
                        work(connection)
                else:
                    assert claim_many(connection, "billing", ["e-1"]) == {"e-1"}
                    work(connection)

        with pytest.raises(TransactionBroken):
            claimed()
        other.rollback()
    assert stored(engine) == ([], 0)


def handle(engine: Engine, statement: str) -> None:
    with engine.begin() as connection, once(connection, consumer="billing", message_id="e-1"):
        add(connection, 3)
        with contextlib.suppress(CommitTooEarly):
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql(statement)


@pytest.mark.parametrize(
    "statement",
    [
        *("CREATE TABLE more (number INT)", "/* now */ alter table effects ADD COLUMN more INT", "BEGIN"),
        *("TRUNCATE effects", "SET autocommit = 1", "SET @@session.autocommit=1", "LOCK TABLES effects WRITE"),
        *("DROP TABLE effects", "CREATE OR REPLACE VIEW v AS SELECT 1", "START TRANSACTION", "COMMIT"),
        *(
            "/*!50001 CREATE TABLE x (a int) */",
            "/*M!100100 DROP TABLE effects*/",
            "# c\nTRUNCATE effects",
            "/*!COMMIT*/",
        ),
        *("SET sql_mode='', autocommit=1", "SET SESSION `autocommit`=1", "DROP/**/TABLE effects", "# c\nCOMMIT"),
        *("/*!COMMIT*/", "IF 1 THEN COMMIT; END IF", "BEGIN NOT ATOMIC COMMIT; END"),
        "SET STATEMENT max_statement_time=1 FOR CREATE TABLE x (a int)",
    ],
)
def test_a_statement_that_commits_by_itself_is_refused_before_it_is_sent(engine: Engine, statement: str) -> None:
    with pytest.raises(CommitTooEarly):
        handle(engine, statement)
    assert stored(engine) == ([], 0)


def test_after_a_claim_an_application_may_commit_in_sql_and_what_commits_nothing_hides_nothing(engine: Engine) -> None:
    with engine.begin() as connection:
        assert claim_many(connection, "billing", ["e-1"])
        connection.exec_driver_sql("CREATE TABLE more (number INT)")
        add(connection, 3)
    with engine.connect() as connection, connection.begin():
        assert claim_many(connection, "billing", ["e-2"])
        connection.exec_driver_sql("SET @word = 'autocommit'")
        # As a deadlock that was caught undoes the claim.
        connection.connection.cursor().execute("ROLLBACK")
        with pytest.raises(TransactionBroken):
            add(connection, 4)
        connection.rollback()
    assert stored(engine) == ([3], 1)


def test_a_commit_inside_of_a_statement_is_noticed(engine: Engine) -> None:
    with pytest.raises(TransactionBroken):
        handle(engine, "EXECUTE IMMEDIATE 'COMMIT'")


def test_tables_that_are_temporary_and_savepoints_do_no_harm(engine: Engine) -> None:
    with engine.begin() as connection, once(connection, consumer="billing", message_id="e-1"):
        connection.exec_driver_sql("CREATE TEMPORARY TABLE some (number INT)")
        connection.exec_driver_sql("CREATE OR REPLACE TEMPORARY TABLE some (number INT)")
        connection.exec_driver_sql("DROP TEMPORARY TABLE some")
        for statement in (
            "SET @creation = 1, sql_mode = ''",
            "USE information_schema",
            f"USE {engine.url.database}",
            "DO 0",
        ):
            connection.exec_driver_sql(statement)
        for statement in ("PREPARE p FROM 'SELECT 1'", "DEALLOCATE PREPARE p", "SHOW TABLES", "DESC effects"):
            connection.exec_driver_sql(statement)
        with contextlib.suppress(OperationalError), connection.begin_nested():
            add(connection, 4)
            raise OperationalError(None, None, Exception())
        add(connection, 3)
    assert stored(engine) == ([3], 1)


def test_keys_are_compared_byte_by_byte(engine: Engine) -> None:
    ids = ["a", "A", "ä", "a ", " a", "a\u0308", "ß", "ss", "\U0001f600"]
    with engine.begin() as connection:
        assert claim_many(connection, "billing", ids) == set(ids)
        assert claim_many(connection, "Billing", ["a", "b"]) == {"a", "b"}
        assert claim_many(connection, "billing", ["b", *ids]) == {"b"}
        assert next_version(connection, "billing", "order", 1)
        assert next_version(connection, "billing", "Order", 1)
        assert offsets.advance(connection, "billing", "orders", 0, 5)
        assert offsets.advance(connection, "billing ", "orders", 0, 5)
        assert offsets.next_offsets(connection, "billing ") == {("orders", 0): 6}


def test_a_key_is_never_cut_off(engine: Engine) -> None:
    with pytest.raises(StatementError, match="2048 bytes at most"), engine.begin() as connection:
        offsets.advance(connection, "x" * 2049, "orders", 0, 5)


def test_a_time_of_more_bits_than_the_column_has_is_refused(engine: Engine) -> None:
    event: dict[str, Any] = {"consumer": "billing", "message_id": "e-1", "event_time_ms": 2**63}
    with pytest.raises(StatementError, match="64 bits"), engine.begin() as connection, once(connection, **event):
        pass
    assert stored(engine) == ([], 0)


def test_what_a_claim_could_be_lost_on_is_refused(engine: Engine, mariadb_url: str) -> None:
    with pytest.raises(NotInTransaction), engine.execution_options(isolation_level="AUTOCOMMIT").connect() as one:
        claim_many(one, "billing", ["e-1"])
    dirty = engine.execution_options(isolation_level="READ UNCOMMITTED")
    with pytest.raises(UnsafeSettings, match="READ UNCOMMITTED"), dirty.connect() as one:
        claim_many(one, "billing", ["e-1"])
    latin = create_engine(f"{mariadb_url}?charset=latin1")
    with pytest.raises(UnsafeSettings, match="charset=utf8mb4"), latin.connect() as one:
        claim_many(one, "billing", ["e-1"])
    with pytest.raises(NotInTransaction), read_only(engine).connect() as one:
        claim_many(one, "billing", ["e-1"])
    with pytest.raises(OperationalError, match="READ ONLY"), read_only(engine).connect() as one:
        add(one, 3)
    url = engine.url
    raw = pymysql.connect(host=url.host, port=url.port or 0, user=url.username, database=url.database)
    with pytest.raises(UnknownConnection), contextlib.closing(raw):
        claim_many(raw, "billing", ["e-1"])  # type: ignore[arg-type]


def test_a_table_that_rolls_nothing_back_is_refused(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE semel_outbox ENGINE = MyISAM")
    for call in (schema.check, schema.make):
        with pytest.raises(schema.SchemaDiffers, match="ALTER TABLE semel_outbox ENGINE = InnoDB"):
            call(engine)


def test_a_server_that_is_away_and_a_lock_wait_pass_and_a_mistake_does_not(engine: Engine) -> None:
    def error_of(statement: str, one: Engine) -> BaseException:
        with pytest.raises(OperationalError) as raised, one.connect() as connection:
            connection.exec_driver_sql(statement)
        return raised.value

    away = engine_of(engine.url.set(port=1))
    assert is_passing(error_of("SELECT 1", away))
    assert not is_passing(error_of("SELECT nonsense FROM effects", engine))
    with engine.begin() as connection:
        change(connection, 1)
        held = "SELECT * FROM effects WHERE number = 1 FOR UPDATE NOWAIT"
        assert is_passing(error_of(held, engine))
