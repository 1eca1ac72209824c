"""A page stays still for a person's eyes, however fast verdicts fall. It needs Playwright and a Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Producer

from committed_records import make_topic
from eventually import SECONDS_MAX
from semel.testing.served import ServedBroker
from semel_command import serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow

# As many digits before as after, so that no column grows.
BEFORE: Final = 1_000
AFTER: Final = 4_000
# Google's measure calls a page steady below 0.1.
MOVED_MAX: Final = 0.01
_WATCH: Final = """() => {
  window.moved = [];
  const note = (list) => window.moved.push(...list.getEntries().map((one) => one.value));
  new PerformanceObserver(note).observe({ type: "layout-shift" });
  const things = ["table", "tbody tr:last-child", ".lead", ".tile", "svg"];
  window.kept = things.map((one) => document.querySelector(`main ${one}`));
  getSelection().selectAllChildren(document.querySelector("main .lead"));
}"""


def test_nothing_moves_and_what_is_selected_stays_while_thousands_of_verdicts_fall(
    chromium: Browser, tmp_path: Path
) -> None:
    with ServedBroker(tmp_path / "data", metrics=True) as broker:
        make_topic(broker.bootstrap, "payments", 1)
        # Each message is a batch, and gets a verdict of its own.
        settings = {"enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 1, "log_level": 0}
        producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
        words = ("--listen=127.0.0.1:0", f"--bootstrap={broker.bootstrap}", f"--decisions={broker.metrics_address}")
        with serving("console", *words) as console:
            assert console.stdout is not None
            page = chromium.new_context(viewport={"width": 1400, "height": 900}).new_page()
            page.set_default_timeout(SECONDS_MAX * 1000)
            page.goto(console.stdout.readline().removeprefix("semel console on ").strip())
            page.get_by_role("link", name="Decisions", exact=True).click()
            page.get_by_text("0 duplicates were not stored.").wait_for()
            send(producer, BEFORE)
            page.get_by_text(f"OK offset:{BEFORE - 1}", exact=True).wait_for()
            page.evaluate(_WATCH)
            send(producer, AFTER)
            page.get_by_text(f"OK offset:{BEFORE + AFTER - 1}", exact=True).wait_for()
            # The share of the window that moved: a figure beside the chart may get a digit more.
            assert sum(page.evaluate("window.moved")) < MOVED_MAX
            assert page.evaluate("window.kept.every((one) => one.isConnected)"), "it was changed in place"
            assert page.evaluate("getSelection().toString()") == "0 duplicates were not stored."
            page.context.close()


def send(producer: Producer, count: int) -> None:
    for _ in range(count):
        producer.produce("payments", b"x", partition=0)
    assert producer.flush(SECONDS_MAX) == 0
