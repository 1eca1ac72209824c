"""What the page of claims says is what the tables hold; and a database that cannot be asked is one line."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, insert, text, update
from sqlalchemy.exc import OperationalError

from browsing import Browser, browse
from console_changes import agreed, planned
from postgres_under_test import lent_database
from semel import outbox, schema
from semel.database import engine_of
from semel.database.engines import reader_of
from semel.inbox.quarantine import Aside, Cause, put
from semel.inbox.tables import floors
from semel.outbox.tables import messages, quarantine
from semel.testing.postgres import PostgresServer
from semel.ui.console import claims
from semel.ui.console.claims import Databases
from semel.ui.console.http import PageRefused, as_json
from semel.ui.console.query import Query
from semel.ui.console.sources import PLANNERS

HOSTILE = "<script>alert(1)</script>"
NOWHERE = "127.0.0.1:1"


def asked(**values: object) -> Query:
    return Query({name: str(value) for name, value in values.items()})


def one(url: str) -> dict[str, Any]:
    """What the page says of the one database, as JSON, so that all of it can be sent."""
    answer = Databases([url]).every(asked())
    assert as_json(answer)
    (shown,) = answer["databases"]
    return dict(shown)


def filled(url: str) -> Engine:
    engine = engine_of(url)
    schema.make(engine)
    with engine.begin() as connection:
        outbox.add(connection, "orders", key=b"\xff", value="a", clock=lambda: 5)
        outbox.add(connection, "orders", value="b", clock=lambda: 6)
        connection.execute(insert(quarantine), {"number": 1, "reason": HOSTILE, "refused_at_ms": 7})
        connection.execute(insert(floors), {"consumer": "billing", "floor_ms": 8})
        put(connection, Aside("billing", f"id:{HOSTILE}", Cause.FAILED, "poison", 9))
    return engine


def test_what_waits_is_shown_as_the_tables_hold_it(url: str) -> None:
    filled(url).dispose()
    shown = one(url)
    waiting = shown["outbox"]
    assert (waiting["waiting"], waiting["oldest_ms"], waiting["quarantined"], waiting["relay"]) == (2, 5, 1, None)
    (refused,) = waiting["refused"]
    assert (refused["number"], refused["reason"], refused["key"]["hex"]) == (1, HOSTILE, "ff")
    assert shown["inbox"]["floors"] == [{"consumer": "billing", "floor_ms": 8}]
    (aside,) = shown["inbox"]["aside"]
    assert (aside["what"], aside["cause"], aside["state"], aside["place"]) == (HOSTILE, "failed", "held", None)
    assert shown["figures"]["semel_http_keys_in_flight"] == 0


def test_a_list_that_is_cut_comes_with_the_number_of_all(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "ROWS_MAX", 1)
    engine = filled(url)
    with engine.begin() as connection:
        connection.execute(insert(floors), {"consumer": "shipping", "floor_ms": 8})
    shown = one(url)["inbox"]
    assert (shown["floor_count"], [floor["consumer"] for floor in shown["floors"]]) == (2, ["billing"])
    engine.dispose()


def test_a_message_is_tried_again_or_dropped_once(url: str) -> None:
    filled(url).dispose()
    databases = Databases([url])
    assert "tried again" in settle(databases, "outbox_retry")
    with pytest.raises(PageRefused, match="there is no 1 in the quarantine"):
        settle(databases, "outbox_drop")
    assert "handled" in settle(databases, "inbox_drop")
    with pytest.raises(PageRefused, match="there is no 1 in the quarantine now: dropped"):
        settle(databases, "inbox_retry")
    with pytest.raises(PageRefused, match="database is"):
        settle(databases, "inbox_drop", database=1)
    shown = one(url)
    assert (shown["outbox"]["quarantined"], shown["outbox"]["waiting"], shown["inbox"]["aside"]) == (0, 2, [])


def settle(databases: Databases, how: str, database: int = 0) -> str:
    return agreed(PLANNERS[how].ask, databases, database=database, message=1)


def test_a_message_that_was_refused_for_another_reason_meanwhile_is_not_dropped(url: str) -> None:
    engine = filled(url)
    databases, drop = Databases([url]), PLANNERS["outbox_drop"].ask
    shown = planned(drop, databases, database=0, message=1)
    with engine.begin() as connection:
        connection.execute(update(quarantine).values(reason="MESSAGE_TOO_LARGE", refused_at_ms=8))
    with pytest.raises(PageRefused, match="look again"):
        agreed(drop, databases, shown, database=0, message=1)
    assert one(url)["outbox"]["waiting"] == 2
    engine.dispose()


def test_a_database_without_tables_says_so(url: str) -> None:
    with engine_of(url).connect():
        pass
    shown = one(url)
    assert (shown["error"], shown["has_tables"], shown["outbox"], shown["inbox"]) == (None, False, None, None)
    with pytest.raises(PageRefused) as refused:
        settle(Databases([url]), "outbox_drop")
    assert "\n" not in str(refused.value)


def test_a_look_at_a_database_changes_nothing_in_its_file(tmp_path: Path) -> None:
    """Not even how it keeps its journal, which semel's own transactions would change."""
    file = tmp_path / "others.db"
    with closing(sqlite3.connect(file)) as other:
        other.execute("CREATE TABLE theirs (number)")
    before = file.read_bytes()
    shown = one(f"sqlite:///{file}")
    assert (shown["error"], shown["has_tables"]) == (None, False)
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["others.db"]
    with reader_of(engine_of(f"sqlite:///{file}")).connect() as connection, pytest.raises(OperationalError):
        connection.execute(text("INSERT INTO theirs VALUES (1)"))


def test_a_table_that_is_being_altered_is_one_line_and_no_hang(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "STATEMENT_MS_MAX", 100)
    with lent_database(postgres) as url:
        engine = filled(url)
        with engine.begin() as connection:
            connection.execute(text(f"LOCK TABLE {messages.name} IN ACCESS EXCLUSIVE MODE"))
            error = one(url)["error"]
        assert "statement timeout" in error
        assert "\n" not in error
        assert one(url)["error"] is None
        engine.dispose()


def test_a_file_that_is_missing_is_named_and_not_made(tmp_path: Path) -> None:
    assert one(f"sqlite:///{tmp_path}/slip.db")["error"] == f"{tmp_path}/slip.db: there is no such file"
    assert list(tmp_path.iterdir()) == []


def test_a_database_that_is_away_hides_no_other_and_no_password_is_shown(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/here.db"
    filled(url).dispose()
    gone = "postgresql://anna:secret@127.0.0.1:1/shop?application_name=console&password=secret&sslpassword=secret"
    away, here = Databases([gone, url]).every(asked())["databases"]
    assert away["name"] == "postgresql+psycopg://anna:***@127.0.0.1:1/shop?application_name=console"
    assert "secret" not in away["error"]
    assert away["error"]
    assert "\n" not in away["error"]
    assert here["outbox"]["waiting"] == 2


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+slip://anna:secret@127.0.0.1/shop",
        "postgresql://anna:secret@127.0.0.1:slip/shop",
        "postgresql anna:secret@127.0.0.1/shop",
    ],
)
def test_an_address_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match="database") as refused:
        Databases([url])
    assert "secret" not in str(refused.value)


def test_the_page_is_asked_and_changed_as_any_other(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/here.db"
    filled(url).dispose()

    async def story(browser: Browser) -> None:
        await browser.enter()
        told = (await browser.get("/api/session")).told
        assert told["has_databases"]
        assert (await browser.get("/api/claims")).told["databases"][0]["outbox"]["quarantined"] == 1
        assert (await browser.change("outbox_drop", {"database": 0, "message": "1"})).status == 200
        assert (await browser.get("/api/claims")).told["databases"][0]["outbox"]["waiting"] == 1

    browse(NOWHERE, story, databases=Databases([url]), allow_changes=True)


def test_a_console_without_a_database_says_how_to_give_it_one() -> None:
    async def story(browser: Browser) -> None:
        await browser.enter()
        refused = await browser.get("/api/claims")
        assert (refused.status, "--database" in refused.told["error"]) == (404, True)

    browse(NOWHERE, story)


def test_the_last_batch_of_each_spark_sink_is_shown(url: str) -> None:
    """When it was committed, too, as a time for the browser: PostgreSQL has it in a type of its own."""
    engine = engine_of(url)
    kind = "timestamptz" if engine.dialect.name == "postgresql" else "text"
    with engine.begin() as connection:
        connection.execute(
            text(
                "CREATE TABLE semel_batches (sink_id text PRIMARY KEY, query_id text, batch_id bigint, digest text, "
                f"row_count bigint, committed_at {kind})"
            )
        )
        connection.execute(
            text("INSERT INTO semel_batches VALUES ('payments', 'q', 7, 'd', 70, '2026-01-31T12:00:00.250Z')")
        )
        # A claim that PostgreSQL is about to write has no time yet.
        connection.execute(text("INSERT INTO semel_batches (sink_id) VALUES ('rows')"))
    engine.dispose()
    assert one(url)["sink_count"] == 2
    payments, rows = one(url)["sinks"]
    assert payments == {
        "sink_id": "payments",
        "query_id": "q",
        "batch_id": 7,
        "row_count": 70,
        "committed_ms": 1_769_860_800_250,
    }
    assert (rows["sink_id"], rows["batch_id"], rows["committed_ms"]) == ("rows", None, None)
