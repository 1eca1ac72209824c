"""Which types of PostgreSQL and MariaDB are ids, and with which text; and what is said of a place that is not there."""

from __future__ import annotations

import uuid
from decimal import Decimal

import psycopg
import pytest
from test_audit_places import listed

from mariadb_under_test import asked
from semel.audit import AuditFailed, Given, audit
from semel.testing.postgres import PostgresServer


def found_in_postgres(postgres: PostgresServer, kind: str, values: list[object]) -> list[str]:
    url = postgres.new_database()
    with psycopg.connect(url) as connection:
        connection.execute(f"CREATE TABLE rows (id {kind})")  # type: ignore[arg-type]
        connection.cursor().executemany("INSERT INTO rows VALUES (%s)", [(value,) for value in values])
    return listed(audit(Given([]), f"{url}/rows?id=id"))


SOME_UUID = uuid.UUID("018FA0B0-0000-7000-8000-00000000000A")


@pytest.mark.parametrize(
    ("kind", "values", "ids"),
    [
        ("smallint", [-3, 17], ["-3", "17"]),
        ("bigint", [2**63 - 1], ["9223372036854775807"]),
        ("numeric", [Decimal("17.00"), Decimal(10**30)], ["1" + "0" * 30, "17"]),
        ("uuid", [SOME_UUID], ["018fa0b0-0000-7000-8000-00000000000a"]),
        ("bytea", [b"17", b"\xff\x00"], ["17", "0xff00"]),
        ("varchar(10)", ["", "NULL", r"\N"], ["0x", "NULL", r"\N"]),
        ("char(5)", ["17"], ["17"]),
    ],
)
def test_an_id_of_postgresql_is_its_text(
    postgres: PostgresServer, kind: str, values: list[object], ids: list[str]
) -> None:
    assert sorted(found_in_postgres(postgres, kind, values)) == sorted(ids)


@pytest.mark.parametrize("kind", ["double precision", "timestamptz", "jsonb", "boolean"])
def test_postgresql_holds_types_that_are_no_ids(postgres: PostgresServer, kind: str) -> None:
    with pytest.raises(AuditFailed, match="an id is text, bytes, a whole number or a UUID"):
        found_in_postgres(postgres, kind, [])


def found_in_mariadb(url: str, kind: str, *values: str) -> list[str]:
    inserts = [f'INSERT INTO "rows" VALUES ({value})' for value in values]
    asked(url, f'CREATE TABLE "rows" (id {kind})', *inserts)
    return listed(audit(Given([]), f"{url}/rows?id=id"))


@pytest.mark.parametrize(
    ("kind", "values", "ids"),
    [
        ("smallint", ["-3", "17"], ["-3", "17"]),
        ("bigint unsigned", ["18446744073709551615"], ["18446744073709551615"]),
        ("int(5) zerofill", ["17", "0", "1234567"], ["0", "1234567", "17"]),
        ("decimal(9,2) zerofill", ["17", "0.5", "0"], ["0", "0.5", "17"]),
        ("decimal(40,2)", ["17.00", "10.5", "1" + "0" * 30], ["1" + "0" * 30, "10.5", "17"]),
        ("uuid", [f"'{SOME_UUID}'"], [str(SOME_UUID)]),
        ("varbinary(9)", ["'17'", "X'ff00'"], ["0xff00", "17"]),
        ("varchar(10) CHARACTER SET latin1", ["''", "'NULL'", "'ä '"], ["0x", "NULL", "ä "]),
    ],
)
def test_an_id_of_mariadb_is_its_text(mariadb_url: str, kind: str, values: list[str], ids: list[str]) -> None:
    assert sorted(found_in_mariadb(mariadb_url, kind, *values)) == sorted(ids)


@pytest.mark.parametrize("kind", ["double", "datetime(6)", "bit(8)", "year"])
def test_mariadb_holds_types_that_are_no_ids(mariadb_url: str, kind: str) -> None:
    with pytest.raises(AuditFailed, match="an id is text, bytes or a whole number"):
        found_in_mariadb(mariadb_url, kind)


def test_of_mariadb_a_table_and_a_server_that_are_not_there_are_told_in_a_line(mariadb_url: str) -> None:
    secret = mariadb_url.replace("semel@", "semel:secret@")
    for address, said in (
        (f"{secret}/nothing?id=id", "there is no table 'nothing'"),
        (f"{secret}_not/rows?id=id", "Unknown database"),
        (f"{secret}/rows?id=id&charsets=x", "charsets"),
        ("mysql://semel:secret@127.0.0.1:1/shop/rows?id=id", "127.0.0.1"),
        ("mysql:semel:secret@127.0.0.1/shop/rows?id=id", "two slashes"),
    ):
        with pytest.raises(AuditFailed, match=said) as failed:
            audit(Given([]), address)
        assert "secret" not in str(failed.value)
        assert "\n" not in str(failed.value)
