"""What semel knows of MySQL without a server: its statements, its words for errors, and the types of its keys."""

from __future__ import annotations

import pymysql
import pytest
from sqlalchemy.exc import OperationalError

from semel import schema
from semel.database import is_missing_table, is_passing
from semel.database.columns import INTEGER, key
from semel.database.dialects import DIALECTS, dialect_named
from semel.database.errors import is_conflict

MYSQL = dialect_named("mysql")


COMMITS = [
    *("ALTER TABLE t ADD c INT", "/* x */ create table t (i INT)", "DROP VIEW v", "begin", "TRUNCATE t"),
    *("LOCK TABLES t READ", "# c\nTRUNCATE t", "-- c\nDROP/**/TABLE t", "/* x */# y\n-- z\nTRUNCATE t"),
    *("/*!50001 CREATE TABLE x (a int) */", "/*M!100100 DROP TABLE x*/", "/*!CREATE*/ TEMPORARY TABLE t (i INT)"),
    *(
        "CREATE /*! TABLE t (i INT) */",
        "DROP /*M! TABLE*/ TEMPORARY",
        "/*!COMMIT*/ SELECT 1",
        "/* SELECT 1",
        "; COMMIT",
    ),
    *(
        "SET autocommit=0",
        "SET @@session.autocommit = 1",
        "SET sql_mode='', autocommit=1",
        "SET\n@a = 1,\nautocommit=1",
    ),
    *("SET SESSION `autocommit`=1", "set /*!autocommit*/ = 1", "SET PASSWORD = 'x'", "SET @a = 1, PASSWORD = 'x'"),
    *("SET STATEMENT max_statement_time=1 FOR CREATE TABLE t (i INT)", "SET DEFAULT ROLE NONE", "ROLLBACK/**/WORK"),
    *("IF 1 THEN COMMIT; END IF", "BEGIN NOT ATOMIC COMMIT; END", "l: LOOP COMMIT; END LOOP", "XA END 'x'", ""),
    *("CREATE OR REPLACE TABLE t (i INT)", "CREATE TEMPORARY SEQUENCE s", "LOAD INDEX INTO CACHE t", "SELECTED"),
    *("DROP TABLE t, temporary", "SHUTDOWN", "ANALYZE TABLE t", "# c\nCOMMIT", "/* SELECT 1"),
]
KEEPS = [
    *("SELECT 1", "(SELECT 1) UNION (SELECT 2)", "INSERT INTO t VALUES (1)", "# c\nUPDATE t SET autocommit = 1"),
    *("WITH a AS (SELECT 1) SELECT * FROM a", "SELECT /*!40001 SQL_NO_CACHE */ 1", "REPLACE t VALUES (1)", "TABLE t"),
    *("SAVEPOINT one", "RELEASE SAVEPOINT one", "ROLLBACK TO one", "rollback work/**/to savepoint one", "CALL begin()"),
    *("SET @created = 1", "SET NAMES utf8mb4", "SET max_statement_time = 1", "SET TRANSACTION READ ONLY", "DO 0"),
    *("CREATE TEMPORARY TABLE t (i INT)", "CREATE OR REPLACE TEMPORARY TABLE t (i INT)", "DROP TEMPORARY TABLE t"),
    *("create/* x */temporary # y\n table t (i INT)", "LOAD DATA INFILE 'x' INTO TABLE t", "EXPLAIN SELECT 1"),
    *("PREPARE p FROM 'COMMIT'", "EXECUTE p", "DEALLOCATE PREPARE p", "SHOW TABLES", "DESC t", "USE other"),
]


@pytest.mark.parametrize(("statement", "commits"), [(one, one in COMMITS) for one in COMMITS + KEEPS])
def test_only_what_is_known_to_commit_nothing_is_sent(statement: str, commits: bool) -> None:
    assert MYSQL.commits_by_itself(statement) == commits
    others = [dialect for dialect in DIALECTS if dialect is not MYSQL]
    assert not any(dialect.commits_by_itself(statement) for dialect in others)


@pytest.mark.parametrize(
    ("statement", "may_commit"),
    [
        *[(one, True) for one in ("CALL f()", "# c\nEXECUTE p", "SELECT 1; TRUNCATE t", "SELECT 1;/*!COMMIT*/")],
        *[(one, False) for one in ("SELECT 1", "SELECT 1;", "SELECT 1; -- done", "SELECT 1; /* TRUNCATE t */ ;\n")],
    ],
)
def test_what_may_commit_inside_of_a_statement_is_known(statement: str, may_commit: bool) -> None:
    assert MYSQL.may_commit(statement) == may_commit


def test_a_key_is_its_bytes_and_is_never_cut_off() -> None:
    kind = key(4).dialect_impl(MYSQL.sqlalchemy())
    to_bytes, to_text = kind.bind_processor(MYSQL.sqlalchemy()), kind.result_processor(MYSQL.sqlalchemy(), None)
    assert to_bytes is not None
    assert to_text is not None
    assert to_bytes("ä  ") == b"\xc3\xa4  "
    assert to_text(b"\xc3\xa4  ") == "ä  "
    with pytest.raises(ValueError, match="4 bytes at most"):
        to_bytes("ä   ")


def test_a_number_of_more_bits_than_a_column_has_is_refused() -> None:
    to_number = INTEGER.dialect_impl(MYSQL.sqlalchemy()).bind_processor(MYSQL.sqlalchemy())
    assert to_number is not None
    assert [to_number(number) for number in (-(2**63), 2**63 - 1, None)] == [-(2**63), 2**63 - 1, None]
    for number in (-(2**63) - 1, 2**63):
        with pytest.raises(ValueError, match="64 bits"):
            to_number(number)


def test_a_deadlock_passes_and_a_mistake_does_not() -> None:
    def error(number: int) -> OperationalError:
        return OperationalError("SELECT 1", None, pymysql.err.OperationalError(number, "semel_inbox"))

    assert [is_passing(error(number)) for number in (2013, 1064, 1062)] == [True, False, False]
    assert not is_conflict(error(2013))
    # A lock wait, a deadlock, a row that has changed since the snapshot of MariaDB, NOWAIT.
    for number in (1205, 1213, 1020, 3572):
        assert is_conflict(error(number))
        assert is_passing(error(number))
    assert is_missing_table(error(1146))
    assert not is_missing_table(error(1213))


def test_each_table_is_in_innodb_and_no_key_is_longer_than_an_index_can_hold() -> None:
    printed = schema.ddl("mysql")
    assert printed.count("CREATE TABLE") == printed.count("ENGINE=InnoDB")
    for table in schema.metadata.sorted_tables:
        lengths = [getattr(column.type.dialect_impl(MYSQL.sqlalchemy()), "length", 8) for column in table.primary_key]
        assert sum(lengths) <= 3072, table.name
