"""What a sink says when its database is away, goes away, or fails: one line with the sink, the table and the server.
And how long it waits for a connection.
"""

from __future__ import annotations

import socket
from typing import Any

import pyarrow
import pytest
from test_bad_rows import SERVER
from test_table_commits import APPEND, FIRST, SCHEMA, asked, rule_of, staged, stored, table_of

from semel.database.engines import driver_settings
from semel.spark.tables import mysql_rows, postgres_copy
from semel.spark.tables.mysql_rows import Sending, send_rows
from semel.spark.tables.postgres_columns import staging_types
from semel.spark.tables.postgres_copy import Copying, copy_rows
from semel.spark.tables.servers import CONNECT_SECONDS_MAX, Server
from semel.spark.tables.sql_sink import sql_sink
from semel.spark.tables.statements import TASK_COLUMN, create_table

NUMBERS = pyarrow.record_batch({"id": pyarrow.array([1, 2], pyarrow.int64())})
NOBODY = "127.0.0.1:1/shop"


def cut(url: str, connected: Any) -> None:
    """Ends the driver's connection."""
    if url.startswith("sqlite"):
        connected.connection.close()
    elif url.startswith("mysql"):
        asked(url, f"KILL {connected.connection.thread_id()}")
    else:
        asked(url, f"SELECT pg_terminate_backend({connected.connection.info.backend_pid})")


def test_a_database_that_goes_away_is_told_in_a_line_that_names_sink_table_and_server(url: str) -> None:
    database = table_of(url, APPEND)
    # The server under mysql:// is MariaDB.
    product, place = {"s": ("SQLite", "/test.db"), "p": ("PostgreSQL", "@")}.get(url[0], ("MariaDB", "@"))
    where = place if place != "@" else url.rpartition("@")[2]
    said = rf"^sink '\S+:payments' cannot write into payments of {product} .*{where}: .+\. No row is stored without"

    def commit_after_the_cut() -> None:
        with database.connected(SCHEMA) as connected:
            cut(url, connected)
            connected.commit(staged(database, ("a", 1, 1, "one")), FIRST, rule_of(FIRST))

    with pytest.raises(RuntimeError, match=said) as failed:
        commit_after_the_cut()
    assert "\n" not in str(failed.value)
    assert stored(url) == []


def test_a_key_that_the_table_does_not_have_is_refused_with_the_name_of_the_sink_when_it_is_made(url: str) -> None:
    asked(url, "CREATE TABLE payments (tenant text, id bigint, version bigint, name text)")
    for key, said in (
        (["tenant", "number"], r"key=\.\.\. names 'number', and table payments has no such column: it has tenant, id"),
        (["tenant", "id"], r"table payments needs a primary key or a unique index on exactly \(tenant, id\)"),
    ):
        with pytest.raises(ValueError, match=rf"^sink '\S+:payments': {said}"):
            sql_sink(url, "payments", "upsert", key=key)
    asked(url, "DROP TABLE payments", "CREATE TABLE payments (tenant text NOT NULL, id bigint, UNIQUE (tenant, id))")
    assert sql_sink(url, "payments", "upsert", key=["tenant", "id"]).target.table == "payments"


def test_a_task_that_cannot_reach_the_database_names_sink_table_and_server() -> None:
    said = rf"^sink 'postgresql:payments' cannot reach .*{NOBODY} and write into payments: .*refused.* No row"
    server = Server("postgresql:payments", "payments", f"PostgreSQL at {NOBODY}")
    with pytest.raises(ConnectionError, match=said):
        copy_rows(Copying(f"postgresql://app:secret@{NOBODY}", server, "stage", None, set()), 7, iter([NUMBERS]))
    with pytest.raises(ConnectionError, match=said):
        send_rows(Sending(driver_settings(f"mysql://app:secret@{NOBODY}"), server, "stage", None, {}), 7, [NUMBERS])


def test_a_task_that_loses_its_staging_table_names_sink_table_and_server(url: str) -> None:
    if url.startswith("sqlite"):
        pytest.skip("its tasks have no database")

    def send() -> None:
        if url.startswith("mysql"):
            send_rows(Sending(driver_settings(url), SERVER, "gone", None, {}), 7, [NUMBERS])
        else:
            copy_rows(Copying(url, SERVER, "gone", None, set()), 7, iter([NUMBERS]))

    said = r"^sink 'postgresql:payments' cannot write into payments of PostgreSQL: .*gone"
    with pytest.raises(RuntimeError, match=said):
        send()


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_a_server_that_never_answers_is_given_up(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (postgres_copy, mysql_rows):
        monkeypatch.setattr(module, "CONNECT_SECONDS_MAX", 2)
    monkeypatch.delenv("PGCONNECT_TIMEOUT", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}/shop"
        with pytest.raises(ConnectionError, match=rf"cannot reach [\w ]+ at {address}.*(timeout|timed out)"):
            table_of(f"{scheme}://app@{address}").check()


def test_a_text_that_is_too_long_for_its_column_in_postgresql_is_told_with_column_and_row(postgres_url: str) -> None:
    types = {"id": "bigint", "the name": "character varying(5)"}
    stage = create_table("stage", {**staging_types(types, types, ()), TASK_COLUMN: "bigint"}, ())
    asked(postgres_url, stage, f"CREATE TABLE bad (reason text, row text, {TASK_COLUMN} bigint)")
    batch = pyarrow.record_batch({"id": [1, 2], "the name": ["short", "long, 7)\nname"]})
    with pytest.raises(ValueError, match="payments refuses a row") as failed:
        copy_rows(Copying(postgres_url, SERVER, "stage", None, set()), 7, iter([batch]))
    assert "a row, (2, long, 7) name): column the name: over 5 characters. Nothing" in str(failed.value)
    copy_rows(Copying(postgres_url, SERVER, "stage", "bad", set()), 7, iter([batch]))
    assert asked(postgres_url, "SELECT reason FROM bad") == [("column the name: over 5 characters",)]


def test_a_connection_is_given_as_long_as_the_url_says(postgres_url: str) -> None:
    server = Server("postgresql:payments", "payments", "PostgreSQL")
    with postgres_copy.connection_of(f"{postgres_url}?connect_timeout=77", server) as connection:
        assert connection.info.get_parameters()["connect_timeout"] == "77"
    with postgres_copy.connection_of(postgres_url, server) as connection:
        assert connection.info.get_parameters()["connect_timeout"] == str(CONNECT_SECONDS_MAX)
