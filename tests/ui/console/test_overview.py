"""The first page has a part of each thing that the console was given, and a part that is away hides no other."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from asking import Asker
from browsing import Browser, browse
from semel.testing.broker import FaultyBroker
from semel.ui.console import site
from semel.ui.console.audits import Audits
from semel.ui.console.broker_door import BrokerDoor
from semel.ui.console.claims import Databases
from transacting import TransactionalProducer


def test_each_part_says_what_it_knows_or_why_not(broker: FaultyBroker, ask: Asker, tmp_path: Path) -> None:
    broker.create_topic("payments")
    stuck = TransactionalProducer(ask, "stuck")
    stuck.claim()
    stuck.add("payments")
    stuck.send("payments", "held")

    async def story(browser: Browser) -> None:
        await browser.enter()
        told = (await browser.get("/api/overview")).told
        assert told["overview"]["transactions"]["count"] == 1
        assert told["overview"]["transactions"]["oldest"]["id"] == "stuck"
        assert told["overview"]["brokers"] == [broker.bootstrap]
        assert "no such directory" in told["audits"]["error"]
        assert "does not tell its decisions" in told["decisions"]["error"]
        answers = browser.events("/events/overview")
        assert set(await anext(answers)) == {"overview", "audits", "decisions"}
        broker.kill()
        while "error" not in (told := await anext(answers))["overview"]:
            pass
        assert "127.0.0.1" in told["overview"]["error"]
        await answers.aclose()
        broker.restart()

    browse(broker.bootstrap, story, audits=Audits(tmp_path / "nowhere"), decisions=BrokerDoor("127.0.0.1", 1))


def test_a_database_that_hangs_hides_no_other_part_and_no_page_waits_for_ever(
    semel_broker: FaultyBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    monkeypatch.setattr(site, "PART_SECONDS_MAX", 0.3)
    monkeypatch.setattr(site, "ANSWER_SECONDS_MAX", 0.3)
    databases = Databases([f"sqlite:///{tmp_path}/app.db"])
    monkeypatch.setattr(databases, "every", lambda query: goes_on.wait(60) and {})

    async def story(browser: Browser) -> None:
        await browser.enter()
        # The first time the client is imported, which may take longer.
        while "error" in (told := (await browser.get("/api/overview")).told)["overview"]:
            pass
        assert told["overview"]["brokers"] == [semel_broker.bootstrap]
        assert told["claims"] == {"error": "there is no answer after 0.3 s"}
        watched = browser.events("/events/claims")
        assert await anext(watched) == {"error": "there is no answer after 0.3 s"}
        await watched.aclose()

    try:
        browse(semel_broker.bootstrap, story, databases=databases, deadline_seconds=5)
    finally:
        goes_on.set()
