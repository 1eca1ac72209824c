"""A console goes on when another broker of the store has taken over: its pages show what they showed, and its changes
are made on the broker that is active now. It was told the address of one broker alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from browsing import Browser, browse
from console_changes import added
from semel.ui.console.askers import THREADS
from takeover_pair import Pair


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    pair.end()


@pytest.mark.parametrize("how", ["stop", "lost"])
def test_pages_and_changes_follow_a_takeover(pair: Pair, how: str) -> None:
    async def story(browser: Browser) -> None:
        await browser.enter()
        assert (await browser.change("create_topic", {"topic": "before"})).status == 200
        plan = (await browser.get("/plan/delete_topic?topic=before")).told
        # The active broker looks for the others every few seconds.
        while len((await browser.get("/api/overview")).told["overview"]["brokers"]) < 2:
            pass
        await asyncio.to_thread(pair.take_over, how)
        # Each of the console's threads has a connection of its own.
        answers = [await browser.get("/api/topics") for _ in range(3 * THREADS)]
        assert [one.told.get("error") for one in answers[-THREADS:]] == [None] * THREADS
        assert (await browser.change("create_topic", {"topic": "after"})).status == 200
        token = (await browser.get("/api/session")).told["change_token"]
        done = await browser.post("/do/delete_topic", {"topic": "before", **added(plan)}, X_Semel_Change=token)
        assert done.status == 200, "it still is the topic that was shown"
        assert [one["name"] for one in (await browser.get("/api/topics")).told["topics"]] == ["after"]

    browse(pair.active.bootstrap, story, allow_changes=True)
