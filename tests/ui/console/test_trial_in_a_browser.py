"""The page of a trial in a real browser: its switches do what they say, and nobody stumbles over it while it runs.

`make test-browser` installs what it needs, as for `test_in_a_browser.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from console_pages import troubles
from eventually import SECONDS_MAX
from producing import deliver, idempotent_producer
from semel_command import serving

if TYPE_CHECKING:
    from confluent_kafka import Producer
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow


class Reached(NamedTuple):
    """An address as a producer of the tests takes it."""

    bootstrap: str


@contextmanager
def trial(chromium: Browser, data: Path) -> Iterator[tuple[Page, Producer]]:
    """The page of a trial, on which the next acknowledgement was lost, and the producer that had to repeat itself."""
    with serving("console", "--listen=127.0.0.1:0", f"--trial={data}", "--allow-changes") as console:
        assert console.stdout is not None
        clients = console.stdout.readline().split()[3].rstrip(",")
        page = chromium.new_context().new_page()
        page.set_default_timeout(SECONDS_MAX * 1000)
        page.goto(console.stdout.readline().removeprefix("semel console on ").strip())
        page.get_by_role("link", name="Chaos", exact=True).click()
        page.get_by_role("button", name="Lose the next ACK").click()
        page.get_by_text("The next acknowledgement of a batch is lost.").wait_for()
        producer = idempotent_producer(Reached(clients))
        deliver(producer, "payments", [b"one"])
        yield page, producer
        page.context.close()


def test_the_switches_of_a_trial_are_seen_to_react(chromium: Browser, tmp_path: Path) -> None:
    with trial(chromium, tmp_path / "data") as (page, producer):
        # On a busy machine the producer may have sent it more than twice.
        page.locator(".tile").filter(has_text="not stored").filter(has_text=re.compile("^[1-9]")).wait_for()
        page.get_by_role("button", name="Kill the broker ...").click()
        page.get_by_role("button", name="Kill it").click()
        page.get_by_text("The broker was killed (kill -9)").wait_for()
        deliver(producer, "payments", [b"two"])
        page.locator(".tile").filter(has_text="kill of the broker").filter(has_text="1").wait_for()


@pytest.fixture(scope="module")
def tried(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A console of a trial in which an acknowledgement was lost, and some of the next ones will be."""
    with trial(chromium, tmp_path_factory.mktemp("trial") / "data") as (page, _):
        page.get_by_label("Lose so many of all ACKs, in percent").fill("7")
        page.get_by_role("button", name="Lose them").click()
        page.get_by_text("7 % of all ACKs are lost now.").wait_for()
        yield page


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_the_page_of_a_trial_that_runs_stands_in_nobodys_way(tried: Page, axe: str, theme: str, width: int) -> None:
    tried.set_viewport_size({"width": width, "height": 800})
    tried.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    assert troubles(tried, "/chaos", axe, width) == []
    assert tried.locator(".tile").filter(has_text="duplicate").filter(has_text=re.compile("^[1-9]")).count() == 1
    assert tried.locator("figure.chart svg path").count() > 0
