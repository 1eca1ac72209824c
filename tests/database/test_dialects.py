"""What semel knows of MySQL without a server: its statements, its words for errors, and the types of its keys."""

from __future__ import annotations

import pymysql
import pytest
from sqlalchemy.exc import OperationalError

from semel import schema
from semel.database import is_missing_table, is_passing
from semel.database.columns import key
from semel.database.dialects import DIALECTS, dialect_named
from semel.database.errors import is_conflict

MYSQL = dialect_named("mysql")


@pytest.mark.parametrize(
    ("statement", "commits"),
    [
        *[(one, True) for one in ("ALTER TABLE t ADD c INT", "/* x */ create table t (i INT)", "DROP VIEW v", "begin")],
        *[
            (one, True)
            for one in ("SET autocommit=0", "SET @@session.autocommit = 1", "TRUNCATE t", "LOCK TABLES t READ")
        ],
        *[(one, False) for one in ("SELECT 1", "INSERT INTO t VALUES (1)", "SAVEPOINT one", "SET @created = 1")],
        *[(one, False) for one in ("CREATE TEMPORARY TABLE t (i INT)", "DROP TEMPORARY TABLE t", "CALL begin()")],
    ],
)
def test_what_commits_by_itself_is_known(statement: str, commits: bool) -> None:
    assert MYSQL.commits_by_itself(statement) == commits
    others = [dialect for dialect in DIALECTS if dialect is not MYSQL]
    assert not any(dialect.commits_by_itself(statement) for dialect in others)


def test_a_key_is_its_bytes_and_is_never_cut_off() -> None:
    kind = key(4).dialect_impl(MYSQL.sqlalchemy())
    to_bytes, to_text = kind.bind_processor(MYSQL.sqlalchemy()), kind.result_processor(MYSQL.sqlalchemy(), None)
    assert to_bytes is not None
    assert to_text is not None
    assert to_bytes("ä  ") == b"\xc3\xa4  "
    assert to_text(b"\xc3\xa4  ") == "ä  "
    with pytest.raises(ValueError, match="4 bytes at most"):
        to_bytes("ä   ")


def test_a_deadlock_passes_and_a_mistake_does_not() -> None:
    def error(number: int) -> OperationalError:
        return OperationalError("SELECT 1", None, pymysql.err.OperationalError(number, "semel_inbox"))

    assert [is_passing(error(number)) for number in (1205, 1213, 2013, 1064, 1062)] == [True, True, True, False, False]
    assert [is_conflict(error(number)) for number in (1205, 1213, 2013)] == [True, True, False]
    assert is_missing_table(error(1146))
    assert not is_missing_table(error(1213))


def test_each_table_is_in_innodb_and_no_key_is_longer_than_an_index_can_hold() -> None:
    printed = schema.ddl("mysql")
    assert printed.count("CREATE TABLE") == printed.count("ENGINE=InnoDB")
    for table in schema.metadata.sorted_tables:
        lengths = [getattr(column.type.dialect_impl(MYSQL.sqlalchemy()), "length", 8) for column in table.primary_key]
        assert sum(lengths) <= 3072, table.name
