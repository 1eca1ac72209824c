"""An administrator's day in a real browser: what is changed on the pages is changed on the cluster, and nothing before
the administrator has agreed. With SEMEL_TEST_BOOTSTRAP the same on Apache Kafka. It needs Playwright and a Chromium.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from browsing import settings_of
from console_pages import visit
from eventually import SECONDS_MAX, eventually
from semel.client import admin
from semel.client.cluster import Cluster
from semel_command import serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.slow


@pytest.fixture
def any_cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(settings_of(bootstrap)) as cluster:
        yield cluster


@pytest.fixture
def page(chromium: Browser, bootstrap: str) -> Iterator[Page]:
    """A page of a console that may change things; errors of its scripts fail the test."""
    errors: list[str] = []
    with serving("console", "--listen=127.0.0.1:0", f"--bootstrap={bootstrap}", "--allow-changes") as console:
        assert console.stdout is not None
        page = chromium.new_context().new_page()
        page.set_default_timeout(SECONDS_MAX * 1000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(console.stdout.readline().removeprefix("semel console on ").strip())
        page.get_by_role("heading", name="Overview", exact=True).wait_for()
        yield page
        page.context.close()
    assert errors == []


def asked(page: Page, button: str, **fields: str) -> Locator:
    """Fill in fields by the first words of their labels, press a button, and answer the dialog with the plan."""
    for label, value in fields.items():
        page.get_by_label(re.compile(rf"^{label.replace('_', ' ')}\b")).fill(value)
    page.get_by_role("button", name=button).click()
    dialog = page.get_by_role("dialog")
    dialog.wait_for()
    return dialog


def agree(page: Page, dialog: Locator, button: str, said: str) -> None:
    dialog.get_by_role("button", name=button).click()
    page.locator("#notice").filter(has_text=said).wait_for()


def seen_by_axe(page: Page, axe: str) -> list[str]:
    page.evaluate(axe)
    return [violation["id"] for violation in page.evaluate("axe.run()")["violations"]]


def test_a_topic_is_created_changed_and_deleted(page: Page, any_cluster: Cluster, axe: str) -> None:
    topic = f"walk-{uuid.uuid4()}"
    visit(page, "/topics")
    dialog = asked(page, "Create ...", Name_of_the_new_topic=topic, Partitions="2", Settings="retention.ms=60000")
    assert topic not in any_cluster.every_topic()
    assert seen_by_axe(page, axe) == []
    dialog.get_by_role("button", name="Leave it as it is").click()
    dialog = asked(page, "Create ...")
    agree(page, dialog, "Create it", f"Topic {topic} is created.")
    # The page of the new topic.
    page.get_by_role("heading", name=f"Topic {topic}").wait_for()
    page.get_by_role("row").filter(has_text="retention.ms").first.wait_for()
    dialog = asked(page, "Set ...", Setting="retention.ms", Value="70000")
    assert dialog.get_by_role("row").last.locator("th, td").all_inner_texts() == ["retention.ms", "60000", "70000"]
    agree(page, dialog, "Change it", f"retention.ms of topic {topic} is 70000.")
    dialog = asked(page, "Add partitions ...", How_many_partitions="3")
    agree(page, dialog, "Add them", f"Topic {topic} has 3 partitions.")
    assert eventually(lambda: any_cluster.topics([topic])[topic].partitions == 3)
    assert {one.name: one.value for one in admin.configs_of(any_cluster, topic, ["retention.ms"])} == {
        "retention.ms": "70000"
    }
    dialog = asked(page, "Delete the topic ...")
    assert seen_by_axe(page, axe) == []
    assert dialog.get_by_role("button", name="Delete it").is_disabled()
    dialog.get_by_label(f"Type {topic} to confirm it").fill(topic)
    agree(page, dialog, "Delete it", f"Topic {topic} is deleted.")
    page.get_by_role("heading", name="Topics", exact=True).wait_for()
    assert eventually(lambda: topic not in any_cluster.every_topic())


def test_what_cannot_be_done_is_one_line_and_no_question(page: Page, any_cluster: Cluster) -> None:
    visit(page, "/topics")
    page.get_by_label("Name of the new topic").fill("no/name")
    page.get_by_role("button", name="Create ...").click()
    page.locator("#notice.bad").filter(has_text="no/name").wait_for()
    assert page.get_by_role("dialog").count() == 0
