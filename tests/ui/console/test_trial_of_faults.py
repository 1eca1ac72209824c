"""The switches of a trial do what they say: to the broker of the trial, and where changes are allowed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from browsing import Browser, browse
from committed_records import committed_values
from console_changes import agreed
from producing import deliver, idempotent_producer
from semel.ui.console.broker_door import BrokerDoor
from semel.ui.console.http import PageRefused
from semel.ui.console.query import Query
from semel.ui.console.trial import Trial


class Clients:
    """Those who produce through the faulty network."""

    def __init__(self, trial: Trial) -> None:
        self.bootstrap = trial.clients_bootstrap


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    trial = Trial(str(tmp_path / "data")).start()
    yield trial
    trial.stop()


def test_what_a_switch_does_is_counted_and_a_lost_ack_is_a_duplicate_that_is_not_stored(trial: Trial) -> None:
    async def story(browser: Browser) -> None:
        await browser.enter()
        done = await browser.change("strike", {"fault": "drop_ack"})
        assert done.told == {"done": "The next acknowledgement of a batch is lost."}
        producer = idempotent_producer(Clients(trial))
        assert len(deliver(producer, "payments", [b"one", b"two"])) == 2
        answers = browser.events("/events/chaos")
        while (told := await anext(answers)).get("counts", {}) in ({}, None) or told["counts"]["duplicate"] != 1:
            pass
        await answers.aclose()
        assert told["counts"]["accepted"] in (1, 2), "both may have gone in one batch"
        assert {one["fault"]: one["struck"] for one in told["trial"]["faults"]}["drop_ack"] == 1
        killed = await browser.change("kill", {})
        assert "kill -9" in killed.told["done"]
        assert (await browser.get("/api/chaos")).told["trial"]["kills"] == 1
        assert len(deliver(producer, "payments", [b"three"])) == 1

    browse(trial.bootstrap, story, trial=trial, decisions=BrokerDoor(*trial.metrics_address), allow_changes=True)
    assert sorted(committed_values(trial.bootstrap, "payments")) == [b"one", b"three", b"two"]


def test_the_switches_are_changes_and_refused_where_nothing_may_be_changed(trial: Trial) -> None:
    async def story(browser: Browser) -> None:
        await browser.enter()
        for change in ("strike", "lose", "calm", "kill"):
            assert (await browser.post(f"/do/{change}", {})).status == 403
        assert (await browser.get("/api/chaos")).told["trial"]["kills"] == 0

    browse(trial.bootstrap, story, trial=trial, decisions=BrokerDoor(*trial.metrics_address))
    for query in ({"fault": "dribble"}, {"fault": "x"}, {"fault": "cut", "times": "0"}):
        with pytest.raises(PageRefused):
            trial.strike(Query(query))
    assert agreed(Trial.lose, trial, percent=7) == "7 % of all acknowledgements are lost."
    assert trial.status()["trial"]["percent"] == 7
    assert agreed(Trial.calm, trial) == "Nothing more goes wrong."
    assert trial.status()["trial"]["percent"] == 0


def test_without_a_trial_the_page_says_how_to_begin_one() -> None:
    async def story(browser: Browser) -> None:
        await browser.enter()
        refused = await browser.get("/api/chaos")
        assert (refused.status, "--trial DIR" in refused.told["error"]) == (404, True)
        assert (await browser.get("/events/chaos")).status == 404

    browse("127.0.0.1:1", story)
