"""The console in a real browser: what a person does on each page, and what the page then says, number by number.

It needs Playwright (`pip install playwright`) and a Chromium: Debian's, or the one that SEMEL_TEST_CHROMIUM names. The
rules of axe are fetched from npm.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import Consumer, TopicPartition
from sqlalchemy import insert

from asking import Asker, at
from eventually import SECONDS_MAX
from producing import deliver, idempotent_producer
from semel import outbox, schema
from semel.database import engine_of
from semel.inbox.quarantine import Aside, Cause, put
from semel.outbox.tables import quarantine
from semel.testing.broker import FaultyBroker
from semel.testing.served import ServedBroker
from semel.wire.records import Record
from semel_command import started
from transacting import TransactionalProducer, committed

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

ROOT: Final = Path(__file__).parent.parent.parent
AXE: Final = "axe-core@4.14.1"
HOSTILE: Final = "<img src=x onerror=document.title='hacked'><script>document.title='hacked'</script>"
PAGES: Final = (
    "/topics",
    "/topic?topic=payments",
    "/records?topic=payments",
    "/records?topic=large",
    "/transactions",
    "/producers",
    "/producers?topic=payments",
    "/decisions",
    "/groups",
    "/group?group=billing",
    "/claims",
    "/pipelines",
    "/nowhere",
)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")
    found = os.environ.get("SEMEL_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("needs a Chromium: apt-get install chromium, or SEMEL_TEST_CHROMIUM")
    with playwright.sync_playwright() as started_playwright:
        browser = started_playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The script that finds what a screen reader, or a person who sees less, would stumble over."""
    folder = ROOT / "build/axe"
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("*.tgz")):
        try:
            subprocess.run(["npm", "pack", AXE], cwd=folder, check=True, capture_output=True, timeout=SECONDS_MAX)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"needs {AXE} from npm: {error}")
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        script = archive.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


@pytest.fixture
def opened(chromium: Browser, broker: FaultyBroker, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Opens a console of the broker, with a database, in a browser of its own; errors of its scripts fail the test."""
    url = f"sqlite:///{tmp_path}/shop.db"
    engine = engine_of(url)
    schema.make(engine)
    with engine.begin() as connection:
        outbox.add(connection, "orders", key=HOSTILE, value="a")
        connection.execute(insert(quarantine), {"number": 1, "reason": HOSTILE, "refused_at_ms": 7})
        put(connection, Aside("billing", f"id:{HOSTILE}", Cause.FAILED, "poison", 9))
    engine.dispose()
    words = (
        "console",
        "--listen",
        "127.0.0.1:0",
        "--bootstrap",
        broker.bootstrap,
        "--allow-changes",
        "--database",
        url,
    )
    errors: list[str] = []
    with started(*words) as console:
        assert console.stdout is not None
        address = console.stdout.readline().removeprefix("semel console on ").strip()

        def open_page(**options: Any) -> Page:
            page = chromium.new_context(**options).new_page()
            page.set_default_timeout(SECONDS_MAX * 1000)
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.goto(address)
            page.get_by_role("heading", name="Topics", exact=True).wait_for()
            return page

        yield open_page
        for context in chromium.contexts:
            context.close()
        console.terminate()
        assert console.wait(SECONDS_MAX) == 0
    assert errors == []


@pytest.fixture
def filled(broker: FaultyBroker, ask: Asker) -> TransactionalProducer:
    """Something on each page, hostile names among it; answers the producer of an open transaction."""
    broker.create_topic("payments", 2, {"retention.ms": "3600000"})
    broker.seed("payments", Record(HOSTILE.encode(), HOSTILE.encode(), [(HOSTILE, b"x")], 1_700_000_000_000))
    broker.seed("large", "é" * 100_000)
    deliver(idempotent_producer(broker), "payments", [b"one"])
    for group in ("billing", HOSTILE):
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})
        consumer.commit(offsets=[TopicPartition("payments", 0, 0)], asynchronous=False)
        consumer.close()
    ended = TransactionalProducer(ask, "ended")
    ended.claim()
    ended.add("payments")
    ended.send("payments", "never seen")
    ended.end(committed=False)
    stuck = TransactionalProducer(ask, HOSTILE)
    stuck.claim(timeout_ms=900_000)
    stuck.add("payments")
    stuck.send("payments", "held")
    return stuck


def cells(page: Page, row: str) -> list[str]:
    """The texts of the first row with this text."""
    return [
        text.strip() for text in page.get_by_role("row").filter(has_text=row).first.locator("th, td").all_inner_texts()
    ]


def visit(page: Page, path: str) -> None:
    page.goto(page.url.split("/", 3)[0] + "//" + page.url.split("/")[2] + path)
    page.get_by_role("heading", level=1).wait_for()


def test_a_topic_is_followed_from_the_list_to_its_records(
    opened: Callable[..., Page], broker: FaultyBroker, filled: object
) -> None:
    page = opened()
    page.get_by_role("link", name="payments", exact=True).click()
    page.get_by_role("row").filter(has_text=broker.bootstrap).first.wait_for()
    assert page.get_by_role("row").filter(has_text="retention.ms").count() == 1
    page.get_by_role("table").first.get_by_role("link", name="0", exact=True).click()
    page.get_by_text("never seen").wait_for()
    assert "line-through" in page.get_by_text("never seen").evaluate("e => getComputedStyle(e).textDecorationLine")
    assert "held back" in " ".join(cells(page, "held"))
    assert page.get_by_text(HOSTILE).count() >= 2
    assert page.title().startswith("Records of payments")
    # What is written now appears without a reload.
    broker.seed("payments", "appears")
    page.get_by_text("appears").wait_for()


def test_a_stuck_transaction_is_found_and_ended_and_the_reader_goes_on(
    opened: Callable[..., Page], ask: Asker, filled: TransactionalProducer
) -> None:
    page = opened()
    before = committed(ask, "payments")
    page.get_by_role("link", name="Transactions").click()
    page.get_by_role("heading", name=HOSTILE).wait_for()
    page.get_by_text("Readers of committed records wait for it in 1 partition.").wait_for()
    assert f"{filled.identity[0]} in epoch {filled.identity[1]}" in page.locator("article").inner_text()
    page.get_by_role("button", name="Abort ...").click()
    page.get_by_role("dialog").get_by_role("button", name="Leave it as it is").click()
    assert page.get_by_role("dialog").count() == 0
    page.get_by_role("button", name="Abort ...").click()
    page.get_by_role("button", name="Abort it").click()
    page.get_by_text("No transaction is open.").wait_for()
    assert "is aborted" in page.locator("#notice").inner_text()
    assert committed(ask, "payments") == before
    assert filled.end() != 0


def test_a_group_is_set_elsewhere_after_a_preview(
    opened: Callable[..., Page], broker: FaultyBroker, filled: object
) -> None:
    page = opened()
    page.get_by_role("link", name="Groups").click()
    page.get_by_role("link", name="billing").click()
    page.get_by_label("To earliest, latest, an offset, or a time").fill("1")
    page.get_by_role("button", name="Show what it would do").click()
    assert cells(page, "are skipped") == ["payments-0", "0", "1", "1 are skipped"]
    page.get_by_role("button", name="Do it").click()
    page.get_by_text("is set to these offsets").wait_for()
    assert cells(page, "payments-0")[2] == "1"


def test_what_was_put_aside_is_dropped_after_a_question(opened: Callable[..., Page]) -> None:
    page = opened()
    page.get_by_role("link", name="Claims").click()
    page.get_by_text("1 message was refused by the broker, and 0 wait behind.").wait_for()
    page.get_by_role("table", name="Refused messages").get_by_role("button", name="Drop message 1").click()
    page.get_by_role("dialog").get_by_role("button", name="Drop").click()
    page.get_by_text("The broker has refused none of them.").wait_for()
    assert page.get_by_role("row").filter(has_text="poison").count() == 1
    page.get_by_role("table", name="Events put aside").get_by_role("button", name="Retry message 1").click()
    page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    # It was claimed outside of a loop, so there is nothing that a loop could take.
    page.locator("#notice").filter(has_text="has no message that a loop could take").wait_for()


def test_a_broker_that_goes_and_comes_back_leaves_the_page_standing(
    opened: Callable[..., Page], broker: FaultyBroker, filled: object
) -> None:
    page = opened()
    broker.kill()
    page.locator("#state.bad").wait_for()
    assert page.get_by_role("link", name="payments", exact=True).count() == 1
    broker.restart()
    broker.create_topic("new")
    page.get_by_role("link", name="new", exact=True).wait_for()
    assert page.locator("#state").inner_text() == "Live."


def test_a_large_value_is_shown_in_pieces(opened: Callable[..., Page], filled: object) -> None:
    page = opened()
    visit(page, "/records?topic=large")
    page.get_by_role("button", name="Show all 200.0 KB").click()
    page.get_by_text("65536 of 200000 bytes are shown.").wait_for()
    for _ in range(3):
        page.get_by_role("button", name="Show the next piece").click()
    page.get_by_text("All 200000 bytes are shown.").wait_for()
    assert page.get_by_role("dialog").locator("pre").inner_text() == "é" * 100_000


def test_the_pages_are_reached_by_the_keyboard_alone(opened: Callable[..., Page], filled: object) -> None:
    page = opened()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the page"
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Groups":
            break
    page.keyboard.press("Enter")
    page.get_by_role("link", name="billing").wait_for()
    assert page.evaluate("document.activeElement.id") == "main"


def test_a_link_that_was_sent_opens_for_a_browser_that_was_let_in_and_for_no_other(
    opened: Callable[..., Page], chromium: Browser, filled: object
) -> None:
    page = opened()
    visit(page, "/records?topic=payments&partition=0&from=0")
    page.get_by_text("never seen").wait_for()
    stranger = chromium.new_context().new_page()
    stranger.goto(page.url)
    stranger.get_by_text("has not been let in").wait_for()
    assert "never seen" not in stranger.content()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_no_page_stands_in_the_way_of_anybody(
    opened: Callable[..., Page], axe: str, filled: object, theme: str, width: int
) -> None:
    """axe finds no violation, nothing hostile has run, and nothing is wider than the screen."""
    page = opened(viewport={"width": width, "height": 800}, color_scheme=theme)
    found: list[str] = []
    for path in PAGES:
        visit(page, path)
        page.locator("main details.words, main .empty").first.wait_for()
        page.evaluate(axe)
        for violation in page.evaluate("axe.run()")["violations"]:
            places = [node["html"][:150] for node in violation["nodes"][:3]]
            found.append(f"{path}: {violation['id']}: {violation['help']}: {places}")
        wide = page.evaluate("document.documentElement.scrollWidth")
        if wide > width:
            found.append(f"{path}: {wide} pixels wide")
        assert "hacked" not in page.title()
    assert found == []


def test_a_duplicate_is_absorbed_before_ones_eyes(chromium: Browser, tmp_path: Path) -> None:
    """And what the page counts is what the broker counts, also after many batches; pausing holds it still."""
    with ServedBroker(tmp_path / "data", metrics=True) as served, Asker(served.bootstrap) as asker:
        asker.create("payments")
        producer = {"producer_id": 0, "producer_epoch": 0}
        asker.produce("payments", at(1), base_sequence=0, **producer)
        listen = ("--listen", "127.0.0.1:0", "--bootstrap", served.bootstrap)
        with started("console", *listen, "--decisions", served.metrics_address) as console:
            assert console.stdout is not None
            page = chromium.new_context().new_page()
            page.set_default_timeout(SECONDS_MAX * 1000)
            page.goto(console.stdout.readline().removeprefix("semel console on ").strip())
            page.get_by_role("link", name="Decisions").click()
            page.get_by_text("0 duplicates were not stored.").wait_for()
            asker.produce("payments", at(1), base_sequence=0, **producer)
            page.get_by_text("1 duplicate was not stored.").wait_for()
            page.get_by_text("DUPLICATE offset:0").wait_for()
            for sequence in range(1, 200):
                asker.produce("payments", at(1), base_sequence=sequence, **producer)
            page.get_by_text("OK offset:199").wait_for()
            page.get_by_role("link", name="Duplicates").click()
            page.get_by_text("DUPLICATE offset:0").wait_for()
            assert page.get_by_role("row").count() == 2, "the head, and the one duplicate"
            page.get_by_role("button", name="Pause").click()
            asker.produce("payments", at(1), base_sequence=199, **producer)
            assert page.get_by_text("1 duplicate was not stored.").count() == 1
            page.get_by_role("button", name="Pause").click()
            page.get_by_text("2 duplicates were not stored.").wait_for()
            page.context.close()
            console.terminate()
            assert console.wait(SECONDS_MAX) == 0
