"""Holds what the engine for PostgreSQL makes of standbys: nothing counts that the server alone has."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from cut_line import CutLine
from eventually import eventually
from pooler import pooler
from semel.log.store import open_store
from semel.log.store.contract import Exists, Missing, StoreRefused, Unsure
from semel.log.store.postgres import _LOCK, STATEMENT_SECONDS_MAX, TABLE, PostgresStore, _Session
from semel.log.store.threads import CALLS_AT_ONCE_MAX
from semel.testing.postgres import PostgresServer

# Longer than it takes a standby, and a test waits it out where there is none.
CANCELLED_SECONDS = 1.0


def opened(url: str) -> PostgresStore:
    return PostgresStore(urlsplit(url), statement_seconds_max=CANCELLED_SECONDS)


def test_nothing_is_said_to_have_happened_that_no_standby_has(servers: list[PostgresServer]) -> None:
    """The server has it, shows it, and would lose it in a failover: a cancelled wait ends in a warning."""
    primary, standby = servers
    with closing(opened(f"{primary.url()}?prefix=cancelled")) as store:
        version = store.create("floor", b"before")
        standby.crash()
        try:
            with pytest.raises(Unsure, match="the synchronous standby did not confirm it"):
                store.create("journal/0", b"zero")
            # It is there: and neither a refusal nor a read says so.
            with psycopg.connect(primary.url()) as connection:
                query = "SELECT body FROM semel_objects WHERE key = 'cancelled/journal/0'"
                assert connection.execute(query).fetchone() == (b"zero",)
            with pytest.raises(Unsure):
                store.create("journal/0", b"zero")
            with pytest.raises(Unsure):
                store.get("journal/0")
            with pytest.raises(Unsure):
                store.get("journal/1")
            with pytest.raises(Unsure):
                store.replace("floor", b"after", "another version")
            with pytest.raises(Unsure):
                store.delete("floor")
        finally:
            standby.start()

        def is_known() -> bool:
            with pytest.raises((Exists, Unsure)) as refusal:
                store.create("journal/0", b"zero")
            return refusal.type is Exists

        assert eventually(is_known)
        assert store.get("journal/0").body == b"zero"
        with pytest.raises(Missing):
            store.replace("floor", b"after", version)


def test_a_server_that_no_longer_waits_for_a_standby_is_refused(servers: list[PostgresServer]) -> None:
    """Some tools that watch over PostgreSQL take the name away when the standby is gone."""
    url = f"{servers[0].url()}?prefix=emptied"
    with closing(opened(url)) as store:
        version = store.create("floor", b"one")
        servers[0].wait_for("")
        try:

            def is_refused() -> bool:
                try:
                    store.get("floor")
                except StoreRefused as refusal:
                    return "acknowledged data would be on this server alone" in str(refusal)
                return False

            assert eventually(is_refused)
            for call in (lambda: store.create("journal/0", b"x"), lambda: store.replace("floor", b"two", version)):
                with pytest.raises(StoreRefused, match="allow_async=1"):
                    call()
            with closing(opened(url)) as other, pytest.raises(StoreRefused, match="set synchronous_standby_names"):
                other.get("floor")
            with closing(opened(f"{url}&allow_async=1")) as alone:
                alone.create("alone", b"x")
        finally:
            servers[0].wait_for("follower")


def test_through_a_pooler_no_commit_counts_that_has_not_waited(servers: list[PostgresServer], tmp_path: Path) -> None:
    """A pooler may ignore the settings of a connection, and each of its sessions has those of whoever had it before."""
    direct = servers[0].new_database()
    with pooler(direct, tmp_path, "ignore_startup_parameters = options") as pooled:
        with closing(opened(pooled)) as store, closing(opened(f"{pooled}?allow_async=1")) as alone:
            store.create("floor", b"one")
            alone.create("alone", b"one")
            with psycopg.connect(pooled, autocommit=True, prepare_threshold=None) as another:
                for _ in range(2):
                    another.execute("SET synchronous_commit = off")
            for call in (lambda: store.create("journal/0", b"x"), lambda: store.get("floor")):
                with pytest.raises(StoreRefused, match=r"on this server alone: .*synchronous_commit=on"):
                    call()
            with pytest.raises(StoreRefused, match=r"in the server's memory alone: .*synchronous_commit=off"):
                alone.create("journal/1", b"x")
        with closing(opened(pooled)) as late, pytest.raises(StoreRefused, match="synchronous_commit=on"):
            late.get("floor")


def test_a_pooler_that_refuses_the_settings_of_a_connection_is_named(
    servers: list[PostgresServer], tmp_path: Path
) -> None:
    """A broker would wait for it without end."""
    refused = pytest.raises(StoreRefused, match=r"a pooler refuses .*: name the server itself .*ignore_startup_param")
    with pooler(servers[0].new_database(), tmp_path) as pooled, closing(opened(pooled)) as store, refused:
        store.get("floor")


def test_a_standby_is_not_read(servers: list[PostgresServer]) -> None:
    """It may not have what the server has; and after a failover, the next try finds the new server."""
    with closing(opened(f"{servers[1].url()}?prefix=all")) as store, pytest.raises(Unsure, match="read-only"):
        store.get("floor")


def test_after_a_crash_of_the_server_the_next_calls_find_it_again(postgres_to_crash: PostgresServer) -> None:
    with closing(opened(f"{postgres_to_crash.url()}?allow_async=1")) as store:
        store.create("floor", b"one")
        postgres_to_crash.crash()
        for _ in range(2):
            with pytest.raises(Unsure):
                store.get("floor")
        postgres_to_crash.start()
        assert store.get("floor").body == b"one"


def test_who_only_looks_makes_no_table(postgres: PostgresServer) -> None:
    """`semel dump` and `semel status` of a mistyped URL leave nothing behind."""
    url = postgres.new_database()
    with closing(opened(f"{url}?allow_async=1")) as store:
        with pytest.raises(Missing, match=f"floor is not in .*which has no table {TABLE}"):
            store.get("floor")
        assert list(store.list("journal")) == []
        store.delete("journal/0")
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT to_regclass(%s)", (TABLE,)).fetchone() == (None,)
        store.create("floor", b"now")
        assert store.get("floor").body == b"now"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda url: url.replace("/postgres", "/nowhere"), 'database "nowhere" does not exist'),
        (lambda url: url.replace("semel@", "nobody:hidden@"), 'role "nobody" does not exist'),
        (lambda url: url.replace("semel@", "reader:hidden@"), "permission denied"),
    ],
)
def test_what_a_person_has_to_change_is_named_in_one_line(postgres: PostgresServer, change: object, says: str) -> None:
    with psycopg.connect(postgres.url()) as connection:
        connection.execute("DO $$ BEGIN CREATE ROLE reader LOGIN; EXCEPTION WHEN duplicate_object THEN END $$")
    assert callable(change)
    refused = pytest.raises(StoreRefused, match=says)
    with closing(opened(f"{change(postgres.url())}?allow_async=1")) as store, refused as refusal:
        store.create("floor", b"")
    assert "\n" not in str(refusal.value)
    assert "hidden" not in str(refusal.value)


def conninfo_of(url: str) -> dict[str, object]:
    """What the client library is told of a URL."""
    with closing(opened(url)) as store:
        return psycopg.conninfo.conninfo_to_dict(store._conninfo)


def test_user_password_and_options_reach_the_library_as_they_were_meant() -> None:
    told = conninfo_of("postgresql://a%40b:100%25%2F%20%23@[::1]:5433/db?sslrootcert=/with%20space/a+b&prefix=x")
    assert (told["user"], told["password"], told["host"], told["port"]) == ("a@b", "100%/ #", "::1", "5433")
    assert told["sslrootcert"] == "/with space/a+b"
    told = conninfo_of("postgresql://user@host/db?host=/run&password=a%26b")
    assert (told["user"], told["password"], told["host"]) == ("user", "a&b", "/run")


def test_a_password_that_is_not_encoded_is_not_shown_as_a_part_of_the_address() -> None:
    with closing(opened("postgresql://user:one@hidden:100%hidden@host/db?prefix=x")) as store:
        assert store.describe() == "postgresql://host/db?prefix=x"
        assert "hidden" not in store._address


def test_the_schema_that_the_options_of_the_url_name_has_the_table(postgres: PostgresServer) -> None:
    """Two clusters may share a database; and the limit of a role does not lift the one of this process."""
    url = postgres.new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA own")
        with closing(
            opened(f"{url}?allow_async=1&options=-c%20search_path%3Down%20-c%20statement_timeout%3D0")
        ) as store:
            store.create("floor", b"one")
            with store._session("settings") as session:
                assert session.run("SHOW statement_timeout") == [("1s",)]
        assert connection.execute(f"SELECT key FROM own.{TABLE}".encode()).fetchall() == [("floor",)]


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_of_any_encoding_lists_its_keys(postgres: PostgresServer, encoding: str) -> None:
    """A server that was set up without a locale has SQL_ASCII, and its text comes as bytes to a client of the same."""
    with closing(opened(f"{postgres.new_database(encoding)}?allow_async=1")) as store:
        store.create("floor", b"one")
        store.create("journal/0", b"")
        assert [(each.key, each.size_bytes) for page in store.list("") for each in page] == [
            ("floor", 3),
            ("journal/0", 0),
        ]


def test_a_server_that_hangs_at_the_first_statement_keeps_no_thread_for_ever(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other threads wait for that statement as well."""
    was_ended = threading.Event()

    def hangs(session: _Session, *_: Any) -> list[Any]:
        if not was_ended.wait(30):
            raise AssertionError("nobody has ended it")
        raise psycopg.OperationalError("cancelled")

    monkeypatch.setattr(_Session, "run", hangs)
    monkeypatch.setattr(_Session, "cancel", lambda _: was_ended.set())
    with closing(opened(postgres.url())) as store, pytest.raises(Unsure):
        store.get("floor")


class Taken(list[object]):
    """Idle connections, the last of which another thread takes between two steps of this one."""

    def __bool__(self) -> bool:
        return True


def test_a_server_that_goes_while_another_thread_takes_the_last_connection_leaves_the_caller_unsure() -> None:
    """Any other error would end the broker."""
    with closing(opened("postgresql://semel@127.0.0.1:1/postgres?allow_async=1")) as store:
        store._idle = Taken()  # type: ignore[assignment]
        with pytest.raises(Unsure):
            store.get("floor")
        store._idle = []


def test_a_create_is_refused_by_an_object_that_is_deleted_at_that_moment(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(opened(f"{postgres.new_database()}?allow_async=1")) as store:
        store.create("journal/0", b"zero")
        read = store._read

        def deleted_first(*arguments: Any) -> bytes:
            with psycopg.connect(store._conninfo) as connection:
                connection.execute(f"DELETE FROM {TABLE}".encode())
            return read(*arguments)

        monkeypatch.setattr(store, "_read", deleted_first)
        with pytest.raises(Exists):
            store.create("journal/0", b"other")


@pytest.mark.parametrize("code", ["25P03", "25P04", "57P05", "57014"])
def test_a_limit_that_the_operator_has_set_for_a_role_leaves_the_caller_unsure(
    postgres: PostgresServer, code: str
) -> None:
    url = postgres.new_database()
    with closing(opened(f"{url}?allow_async=1")) as store, psycopg.connect(url, autocommit=True) as administrator:
        store.create("floor", b"one")
        administrator.execute(FULL.replace("disk_full", code).encode())
        with pytest.raises(Unsure):
            store.create("journal/0", b"x")


FULL = f"""
CREATE FUNCTION no_space() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$;
CREATE TRIGGER no_space BEFORE INSERT OR UPDATE ON {TABLE} FOR EACH ROW EXECUTE FUNCTION no_space()
"""


def test_a_server_without_space_leaves_the_caller_unsure_until_there_is_some(postgres: PostgresServer) -> None:
    """A broker waits for it as for one that is away. What is there can be read and deleted."""
    url = postgres.new_database()
    with closing(opened(f"{url}?allow_async=1")) as store, psycopg.connect(url, autocommit=True) as administrator:
        version = store.create("floor", b"one")
        store.create("old", b"")
        administrator.execute(FULL.encode())
        with pytest.raises(Unsure, match="journal/0: could not extend file: No space left on device"):
            store.create("journal/0", b"x")
        with pytest.raises(Unsure, match="No space left on device"):
            store.replace("floor", b"two", version)
        assert store.get("floor").body == b"one"
        store.delete("old")
        administrator.execute(f"DROP TRIGGER no_space ON {TABLE}".encode())
        store.create("journal/0", b"x")
        store.replace("floor", b"two", version)


def test_a_server_that_hangs_leaves_the_caller_unsure(postgres_to_crash: PostgresServer) -> None:
    with closing(opened(f"{postgres_to_crash.url()}?allow_async=1")) as store:
        store.create("floor", b"one")
        with psycopg.connect(postgres_to_crash.url()) as connection:
            query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'semel'"
            ((session,),) = connection.execute(query).fetchall()
        os.kill(session, signal.SIGSTOP)
        try:
            with pytest.raises(Unsure):
                store.get("floor")
        finally:
            os.kill(session, signal.SIGCONT)
        assert store.get("floor").body == b"one"


def test_a_process_that_has_stopped_while_it_makes_the_table_holds_nobody_up(postgres: PostgresServer) -> None:
    """In the middle of its transaction it holds a lock, for which every other broker waits: the server ends it."""
    url = f"{postgres.new_database()}?allow_async=1"
    with closing(PostgresStore(urlsplit(url))) as stopped, closing(PostgresStore(urlsplit(url))) as other:
        with stopped._session("floor") as session:
            session.run("BEGIN")
            session.run("SELECT pg_advisory_xact_lock(%s)", _LOCK)
            other.create("floor", b"zero")
        assert other.get("floor").body == b"zero"


def test_calls_that_nobody_answers_and_nobody_waits_for_keep_no_threads(postgres: PostgresServer) -> None:
    """All bytes vanish. Each call is given up after a moment, more of them than there are threads."""

    async def scenario(line: CutLine) -> None:
        store = open_store(line.url)
        try:
            calls = [asyncio.ensure_future(store.create(f"slot/{n}", b"x")) for n in range(CALLS_AT_ONCE_MAX)]
            await asyncio.gather(*calls)
            line.set("vanishes")
            calls = [asyncio.ensure_future(store.get(f"slot/{n}")) for n in range(CALLS_AT_ONCE_MAX)]
            await asyncio.wait(calls, timeout=0.5)
            for call in calls:
                call.cancel()
            line.set("passes")
            # Without a thread this would wait for a timeout of the statements, which is longer than this test may take.
            async with asyncio.timeout(STATEMENT_SECONDS_MAX / 2):
                assert (await store.get("slot/0")).body == b"x"
        finally:
            await store.close()

    with CutLine(f"{postgres.new_database()}?allow_async=1") as line:
        asyncio.run(scenario(line))
