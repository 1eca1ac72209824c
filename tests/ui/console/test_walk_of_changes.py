"""An administrator's day in a real browser: what is changed on the pages is changed on the cluster, and nothing before
the administrator has agreed. With SEMEL_TEST_BOOTSTRAP the same on Apache Kafka. It needs Playwright and a Chromium.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition

from browsing import settings_of
from committed_records import commit_offsets, make_topic
from console_pages import troubles, visit
from eventually import SECONDS_MAX, eventually
from logged_in import BrokerOfUsers
from secured import PASSWORD
from semel.client import admin, groups, users
from semel.client.cluster import Cluster
from semel_command import serving
from takeover_pair import Pair

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.slow


@pytest.fixture
def any_cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(settings_of(bootstrap)) as cluster:
        yield cluster


@pytest.fixture
def page(chromium: Browser, bootstrap: str) -> Iterator[Page]:
    with opened(chromium, bootstrap) as page:
        yield page


@contextmanager
def opened(chromium: Browser, bootstrap: str) -> Iterator[Page]:
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


def test_a_group_is_deleted(page: Page, bootstrap: str, any_cluster: Cluster) -> None:
    topic, group = f"walk-{uuid.uuid4()}", f"reads-{uuid.uuid4()}"
    make_topic(bootstrap, topic, 1)
    commit_offsets(bootstrap, group, TopicPartition(topic, 0, 0))
    visit(page, f"/group?group={group}")
    dialog = asked(page, "Delete the group ...")
    dialog.get_by_label(f"Type {group} to confirm it").fill(group)
    agree(page, dialog, "Delete it", f"Group {group} is deleted.")
    page.get_by_role("heading", name="Consumer groups").wait_for()
    assert eventually(lambda: group not in groups.listed(any_cluster))


def test_a_user_is_added_and_removed(page: Page, any_cluster: Cluster, axe: str) -> None:
    user = f"anna-{uuid.uuid4()}"
    visit(page, "/access")
    dialog = asked(page, "Add the user ...", Name_of_a_user=user)
    assert seen_by_axe(page, axe) == []
    dialog.get_by_label("Password").fill("a secret that nobody guesses")
    agree(page, dialog, "Add the user", f"User {user} can log in with this password.")
    page.get_by_role("row").filter(has_text=user).wait_for()
    dialog = asked(page, f"Remove {user}")
    dialog.get_by_label(f"Type {user} to confirm it").fill(user)
    agree(page, dialog, "Remove the user", f"User {user} is removed.")
    assert eventually(lambda: user not in users.users_of(any_cluster))


@pytest.mark.parametrize("width", [360, 1400])
def test_a_rule_is_added_and_removed(chromium: Browser, axe: str, width: int) -> None:
    """On a broker of semel whose rules are in force; Apache Kafka has some only with an authorizer."""
    said = "allow User:app read topic:orders from any host"
    with BrokerOfUsers() as broker, opened(chromium, broker.open) as page:
        page.set_viewport_size({"width": width, "height": 800})
        broker.add_user("app", PASSWORD)
        visit(page, "/access")
        dialog = asked(page, "Add the rule ...", Principal="User:app", Operations="read", Resource="topic:orders")
        assert dialog.get_by_role("row").last.locator("th, td").all_inner_texts() == [said, "denied", "allowed"]
        agree(page, dialog, "Add it", f"Added: {said}.")
        page.get_by_role("row").filter(has_text="topic:orders").wait_for()
        assert troubles(page, "/access", axe, width) == []
        dialog = asked(page, "Remove allow User:app read topic:orders")
        assert seen_by_axe(page, axe) == []
        agree(page, dialog, "Remove it", f"Removed: {said}.")
        page.get_by_role("row").filter(has_text="topic:orders").wait_for(state="detached")


def test_an_administrator_goes_on_after_a_takeover(chromium: Browser, tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    try:
        with opened(chromium, pair.bootstrap) as page:
            visit(page, "/topics")
            dialog = asked(page, "Create ...", Name_of_the_new_topic="before")
            agree(page, dialog, "Create it", "Topic before is created.")
            pair.take_over("kill")
            dialog = asked(page, "Add partitions ...", How_many_partitions="2")
            agree(page, dialog, "Add them", "Topic before has 2 partitions.")
            page.get_by_role("row").filter(has_text=pair.active.bootstrap).first.wait_for()
            dialog = asked(page, "Delete the topic ...")
            dialog.get_by_label("Type before to confirm it").fill("before")
            agree(page, dialog, "Delete it", "Topic before is deleted.")
            page.get_by_text("There is no topic yet.").wait_for()
    finally:
        pair.end()
