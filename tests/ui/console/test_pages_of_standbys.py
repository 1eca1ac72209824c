"""The page of standbys says who is active, who stands by, and who took over, as the store says it."""

from __future__ import annotations

from pathlib import Path

from browsing import Browser, browse
from eventually import eventually
from semel.testing.served import ServedBroker
from semel.ui.console.query import Query
from semel.ui.console.standbys import Stores

NOWHERE = "127.0.0.1:1"


def test_a_takeover_is_seen(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    options = (f"--store={url}", "--lease-seconds=1")
    with ServedBroker(tmp_path / "a", *options) as first, ServedBroker(tmp_path / "b", *options) as second:
        stores = Stores(url)
        assert eventually(lambda: len(stores.status(Query({}))["standbys"]) == 1)
        before = stores.status(Query({}))
        assert (before["is_active"], before["addresses"], before["takeovers"]) == (
            True,
            {"PLAINTEXT": first.bootstrap},
            [],
        )
        assert before["standbys"][0]["addresses"] == {"PLAINTEXT": second.bootstrap}
        first.kill()
        second.wait_until_active()
        after = eventually(lambda: (found := stores.status(Query({})))["is_active"] and found)
        assert (after["epoch"], after["addresses"]) == (before["epoch"] + 1, {"PLAINTEXT": second.bootstrap})
        (takeover,) = after["takeovers"]
        assert (takeover["epoch"], takeover["addresses"]) == (after["epoch"], after["addresses"])


def test_a_store_where_nobody_ever_was_and_a_console_without_one_are_one_line(tmp_path: Path) -> None:
    async def empty(browser: Browser) -> None:
        await browser.enter()
        refused = await browser.get("/api/standbys")
        assert (refused.status, "no broker was ever here" in refused.told["error"]) == (502, True)

    browse(NOWHERE, empty, stores=Stores(f"file://{tmp_path}/store"))

    async def without(browser: Browser) -> None:
        await browser.enter()
        refused = await browser.get("/api/standbys")
        assert (refused.status, "--store URL" in refused.told["error"]) == (404, True)

    browse(NOWHERE, without)
