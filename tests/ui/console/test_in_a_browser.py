"""The console in a real browser: what a person does on each page, and what the page then says, number by number.

`make test-browser` installs Playwright for it; the Chromium is Debian's, or the one that SEMEL_TEST_CHROMIUM names. The
rules of axe are fetched from npm.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import Consumer, TopicPartition
from sqlalchemy import insert

from asking import Asker, at
from console_pages import troubles, visit
from console_scene import STUCK, Stage, scene
from eventually import SECONDS_MAX, eventually
from producing import deliver, idempotent_producer
from semel import outbox, schema
from semel.database import engine_of
from semel.inbox.quarantine import Aside, Cause, put
from semel.outbox.tables import quarantine
from semel.testing.broker import FaultyBroker
from semel.testing.served import ServedBroker
from semel.ui.console import people
from semel.wire.records import Record
from semel_command import serving
from transacting import TransactionalProducer, committed

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

DUPLICATES: Final = 'semel_batches_total{outcome="duplicate"}'
HOSTILE: Final = "<img src=x onerror=document.title='hacked'><script>document.title='hacked'</script>"
PAGES: Final = (
    "/overview",
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
    "/access",
    "/claims",
    "/pipelines",
    "/audits",
    "/standbys",
    "/chaos",
    "/nowhere",
)


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
    with serving(*words) as console:
        assert console.stdout is not None
        address = console.stdout.readline().removeprefix("semel console on ").strip()

        def open_page(**options: Any) -> Page:
            page = chromium.new_context(**options).new_page()
            page.set_default_timeout(SECONDS_MAX * 1000)
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.goto(address)
            page.get_by_role("heading", name="Overview", exact=True).wait_for()
            return page

        yield open_page
        for context in chromium.contexts:
            context.close()
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
    """The texts of the first row with this text, as soon as there is one."""
    found = page.get_by_role("row").filter(has_text=row).first
    found.wait_for()
    return [text.strip() for text in found.locator("th, td").all_inner_texts()]


def test_a_topic_is_followed_from_the_list_to_its_records(
    opened: Callable[..., Page], broker: FaultyBroker, filled: object
) -> None:
    page = opened()
    page.get_by_role("link", name="Topics", exact=True).first.click()
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
    page.get_by_role("link", name="Transactions", exact=True).click()
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
    page.get_by_role("link", name="Groups", exact=True).click()
    page.get_by_role("link", name="billing").click()
    place = page.get_by_label("To earliest, latest, an offset, or a time")
    place.fill("latest")
    page.get_by_role("button", name="Show what it would do").click()
    page.get_by_role("dialog").get_by_text("This skips 1 offset that an open transaction holds back").wait_for()
    page.get_by_role("button", name="Leave it as it is").click()
    place.fill("1")
    page.get_by_role("button", name="Show what it would do").click()
    assert cells(page, "is skipped") == ["payments-0", "0", "1", "1 offset is skipped"]
    page.get_by_role("button", name="Do it").click()
    page.get_by_text("is set to these offsets").wait_for()
    assert eventually(lambda: cells(page, "payments-0")[2] == "1"), "the page is asked for again after what it says"


def test_what_was_put_aside_is_dropped_after_a_question(opened: Callable[..., Page]) -> None:
    page = opened()
    page.get_by_role("link", name="Claims", exact=True).click()
    page.get_by_text("1 message was put aside, and 0 wait behind.").wait_for()
    page.get_by_role("table", name="Refused messages").get_by_role("button", name="Drop message 1").click()
    page.get_by_role("dialog").get_by_role("button", name="Drop").click()
    page.get_by_text("None of them was put aside.").wait_for()
    assert page.get_by_role("row").filter(has_text="poison").count() == 1
    page.get_by_role("table", name="Events put aside").get_by_role("button", name="Retry message 1").click()
    page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    # It was claimed outside of a loop, so there is nothing that a loop could take.
    page.locator("#notice").filter(has_text="has no message that a loop could take").wait_for()


def test_a_broker_that_goes_and_comes_back_leaves_the_page_standing(
    opened: Callable[..., Page], broker: FaultyBroker, filled: object
) -> None:
    page = opened()
    visit(page, "/topics")
    broker.kill()
    page.locator("#state.bad").wait_for()
    assert page.get_by_role("link", name="payments", exact=True).count() == 1
    broker.restart()
    broker.create_topic("new")
    page.get_by_role("link", name="new", exact=True).wait_for()
    assert page.locator("#state").inner_text() == "Live."


def test_a_large_value_is_downloaded_and_shown_in_pieces(opened: Callable[..., Page], filled: object) -> None:
    page = opened()
    visit(page, "/records?topic=large")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the value at offset 0").click()
    assert download.value.suggested_filename == "large-0-0.value"
    assert Path(download.value.path()).read_text() == "é" * 100_000
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
    for _ in range(30):
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
    assert [trouble for path in PAGES for trouble in troubles(page, path, axe, width)] == []


# Those of a cluster with something on every page.
FULL_PAGES: Final = (
    "/overview",
    "/decisions",
    "/transactions",
    "/producers?topic=payments",
    "/topics",
    "/records?topic=payments&partition=0&from=earliest",
    "/records?topic=orders&from=earliest",
    "/groups",
    "/group?group=billing",
    "/claims",
    "/pipelines",
    "/audits",
    "/standbys",
)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_no_full_page_stands_in_the_way_of_anybody(
    full: tuple[Stage, Page], chromium: Browser, axe: str, theme: str, width: int
) -> None:
    _, page = full
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    paths = [*FULL_PAGES]
    visit(page, "/audits")
    paths.append(
        page.get_by_role("row").filter(has_text="not clean").get_by_role("link").first.get_attribute("href") or ""
    )
    assert [trouble for path in paths for trouble in troubles(page, path, axe, width)] == []


@pytest.fixture(scope="module")
def full(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, Page]]:
    """A console of a cluster with something on every page."""
    with (
        scene(tmp_path_factory.mktemp("scene"), has_store=True) as stage,
        serving("console", "--listen", "127.0.0.1:0", *stage.options()) as console,
    ):
        assert console.stdout is not None
        page = chromium.new_context().new_page()
        page.set_default_timeout(SECONDS_MAX * 1000)
        page.goto(console.stdout.readline().removeprefix("semel console on ").strip())
        page.get_by_role("heading", name="Overview").wait_for()
        yield stage, page
        page.context.close()


def test_the_overview_says_what_each_part_of_the_system_says(full: tuple[Stage, Page]) -> None:
    stage, page = full
    visit(page, "/overview")
    page.get_by_text("in quarantine").wait_for()
    counted = stage.broker.metrics()
    lines = [[line for line in tile.splitlines() if line] for tile in page.locator(".tile").all_inner_texts()]
    tiles = {what: figure for figure, what, *_ in lines}
    assert tiles["duplicates not stored"] == f"{counted[DUPLICATES]:.0f}"
    assert int(tiles["duplicates not stored"]) > 0
    assert tiles["open transaction"] == "1"
    assert tiles["messages wait in the outbox"] == "12"
    assert tiles["in quarantine"] == "2"
    assert tiles["lost or doubled in the last audit"] == "0"
    assert STUCK in page.locator(".tiles").inner_text()


def test_a_page_of_another_version_of_the_console_says_so_and_is_not_blank(full: tuple[Stage, Page]) -> None:
    _, page = full
    page.route(re.compile("/(api|events)/claims"), lambda route: route.fulfill(json={"unknown": 1}))
    try:
        page.goto("/".join(page.url.split("/")[:3]) + "/claims")
        page.get_by_text("was started again in another version: load this page again").first.wait_for()
        assert page.get_by_role("heading", name="Claims of the application").count() == 1
    finally:
        page.unroute_all()


def test_a_window_is_what_the_broker_would_know_again(full: tuple[Stage, Page]) -> None:
    _, page = full
    visit(page, "/producers?topic=payments")
    row = page.get_by_role("row").filter(has_text="next 13").first
    assert row.locator(".window li").all_inner_texts() == ["8", "9", "10", "11", "12", "next 13"]


def test_an_audit_names_the_ids_that_are_lost(full: tuple[Stage, Page]) -> None:
    _, page = full
    visit(page, "/audits")
    page.get_by_role("row").filter(has_text="not clean").nth(1).get_by_role("link").click()
    page.get_by_text("12 lost, 4 doubled.").first.wait_for()
    assert page.get_by_role("list", name="Ids that are lost").get_by_role("listitem").count() == 12
    assert page.get_by_role("img", name="stored once, 12 lost, 4 doubled").count() == 1


def test_a_person_logs_in_and_sees_who_they_are(chromium: Browser, broker: FaultyBroker, tmp_path: Path) -> None:
    people.add(tmp_path / "people.json", "alice", "correct horse", may_change=False)
    words = ("--listen=127.0.0.1:0", f"--bootstrap={broker.bootstrap}", f"--users={tmp_path}/people.json")
    with serving("console", *words, "--allow-changes") as console:
        assert console.stdout is not None
        page = chromium.new_context().new_page()
        page.set_default_timeout(SECONDS_MAX * 1000)
        page.goto(console.stdout.readline().removeprefix("semel console on ").strip())
        for password, said in (("wrong horse", "no person has this name and password"), ("correct horse", "alice")):
            page.get_by_label("Name").fill("alice")
            page.get_by_label("Password").fill(password)
            page.get_by_role("button", name="Log in").click()
            page.get_by_text(said).first.wait_for()
        page.get_by_role("heading", name="Overview").wait_for()
        assert page.get_by_text("You may only look.").count() == 1
        # A new password ends the session: the page asks for it, and goes on where it was.
        page.get_by_role("link", name="Topics", exact=True).first.click()
        page.get_by_role("heading", name="Topics", exact=True).wait_for()
        people.add(tmp_path / "people.json", "alice", "another horse", may_change=False)
        broker.create_topic("payments")
        page.get_by_label("Name").fill("alice")
        page.get_by_label("Password").fill("another horse")
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("link", name="payments", exact=True).wait_for()
        page.get_by_role("button", name="Log out").click()
        page.get_by_role("heading", name="Log in").wait_for()
        page.context.close()


def test_a_duplicate_is_absorbed_before_ones_eyes(chromium: Browser, tmp_path: Path) -> None:
    """And what the page counts is what the broker counts, also after many batches; pausing holds it still."""
    with ServedBroker(tmp_path / "data", metrics=True) as served, Asker(served.bootstrap) as asker:
        asker.create("payments")
        producer = {"producer_id": 0, "producer_epoch": 0}
        asker.produce("payments", at(1), base_sequence=0, **producer)
        listen = ("--listen", "127.0.0.1:0", "--bootstrap", served.bootstrap)
        with serving("console", *listen, "--decisions", served.metrics_address) as console:
            assert console.stdout is not None
            page = chromium.new_context().new_page()
            page.set_default_timeout(SECONDS_MAX * 1000)
            page.goto(console.stdout.readline().removeprefix("semel console on ").strip())
            page.get_by_role("link", name="Decisions", exact=True).click()
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
