"""The first page has a part of each thing that the console was given, and a part that is away hides no other."""

from __future__ import annotations

from pathlib import Path

from asking import Asker
from browsing import Browser, browse
from semel.console.audits import Audits
from semel.console.broker_door import BrokerDoor
from semel.testing.broker import FaultyBroker
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
