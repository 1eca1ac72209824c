"""Topics are created, changed and deleted from a page: as its plan says, with the rights of the console's login, and
only if they still are what the page has shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from browsing import Browser, browse
from console_changes import agreed, planned
from logged_in import MECHANISM, BrokerOfUsers
from secured import PASSWORD
from semel.client import admin
from semel.client.cluster import Cluster
from semel.client.errors import LogError
from semel.testing.broker import FaultyBroker
from semel.ui.console import topics
from semel.ui.console.http import PageRefused
from semel.ui.console.query import Query
from semel_command import semel_lines

LOGIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": MECHANISM.sasl_name,
    "sasl_username": "console",
    "sasl_password": PASSWORD,
}


@pytest.fixture
def users() -> Iterator[BrokerOfUsers]:
    """A broker whose console may look at everything, and change nothing."""
    with BrokerOfUsers() as broker:
        broker.add_user("console", PASSWORD)
        broker.create_topic("payments")
        semel_lines("acls", "for", "console", "User:console", "--add", "--bootstrap", broker.open)
        yield broker


def partitions_of(cluster: Cluster, name: str) -> int:
    return cluster.topics([name])[name].partitions


def settings_of(cluster: Cluster, name: str) -> dict[str, str | None]:
    return {one["name"]: one["value"] for one in topics.one_topic(cluster, Query({"topic": name}))["settings"]}


def test_a_topic_is_created_as_its_plan_says(broker: FaultyBroker, cluster: Cluster) -> None:
    wish = {"topic": "refunds", "partitions": 3, "settings": "retention.ms=60000  cleanup.policy=compact"}
    plan = planned(topics.create, cluster, **wish)
    assert plan["rows"] == [("partitions", 3), ("retention.ms", "60000"), ("cleanup.policy", "compact")]
    assert "refunds" not in cluster.every_topic()
    assert agreed(topics.create, cluster, plan, **wish) == "Topic refunds is created."
    assert partitions_of(cluster, "refunds") == 3
    assert settings_of(cluster, "refunds") == {"retention.ms": "60000", "cleanup.policy": "compact"}
    # Without a number the brokers choose it, and say it before.
    assert planned(topics.create, cluster, topic="other")["rows"] == [("partitions", 1)]


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"topic": "payments"}, "payments"),
        ({"topic": "no/name"}, "no/name"),
        ({"topic": "new", "partitions": "0"}, "partitions is a whole number"),
        ({"topic": "new", "settings": "retention.ms"}, "write NAME=VALUE"),
        ({"topic": "new", "settings": "retention.ms=soon"}, "retention.ms"),
        ({"topic": "new", "settings": "no.such=1"}, "no.such"),
    ],
)
def test_a_topic_that_cannot_be_created_is_refused_before_anybody_agrees(
    broker: FaultyBroker, cluster: Cluster, wish: dict[str, str], said: str
) -> None:
    broker.create_topic("payments")
    with pytest.raises((LogError, PageRefused)) as refused:
        planned(topics.create, cluster, **wish)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_topic_gets_more_partitions_and_never_fewer(broker: FaultyBroker, cluster: Cluster) -> None:
    broker.create_topic("payments", 2)
    plan = planned(topics.grow, cluster, topic="payments", partitions=5)
    assert plan["rows"] == [("partitions", 2, 5)]
    assert partitions_of(cluster, "payments") == 2
    agreed(topics.grow, cluster, plan, topic="payments", partitions=5)
    assert partitions_of(cluster, "payments") == 5
    for fewer in (5, 1):
        with pytest.raises(PageRefused, match="it can only get more"):
            planned(topics.grow, cluster, topic="payments", partitions=fewer)


def test_a_setting_is_set_and_reset(broker: FaultyBroker, cluster: Cluster) -> None:
    broker.create_topic("payments", 1, {"retention.ms": "60000"})
    wish = {"topic": "payments", "setting": "retention.ms", "value": "70000"}
    plan = planned(topics.configure, cluster, **wish)
    assert plan["rows"] == [("retention.ms", "60000", "70000")]
    assert settings_of(cluster, "payments") == {"retention.ms": "60000"}
    agreed(topics.configure, cluster, plan, **wish)
    assert settings_of(cluster, "payments") == {"retention.ms": "70000"}
    assert "default" in agreed(topics.configure, cluster, topic="payments", setting="retention.ms", value="")
    assert settings_of(cluster, "payments") == {}
    (row,) = planned(topics.configure, cluster, **wish)["rows"]
    assert row[1].endswith(" (the default of the brokers)")
    with pytest.raises(LogError, match=r"no\.such"):
        planned(topics.configure, cluster, topic="payments", setting="no.such", value="1")


def test_a_topic_is_deleted_by_who_types_its_name(broker: FaultyBroker, cluster: Cluster) -> None:
    broker.create_topic("payments", 2)
    broker.seed("payments", "one", "two")
    plan = planned(topics.delete, cluster, topic="payments")
    (warning,) = plan["warns"]
    assert warning.startswith("It has 2 partitions with 2 offsets.")
    for typed in ("", "payment", "payments "):
        with pytest.raises(PageRefused, match="type payments to confirm"):
            agreed(topics.delete, cluster, {**plan, "typed": typed}, topic="payments")
    # It goes on being written to meanwhile.
    broker.seed("payments", "three")
    assert agreed(topics.delete, cluster, plan, topic="payments") == "Topic payments is deleted."
    assert "payments" not in cluster.every_topic()


def test_what_another_person_has_changed_meanwhile_is_not_changed_by_an_old_plan(
    broker: FaultyBroker, cluster: Cluster
) -> None:
    """Another topic has the name of the one that was shown, or somebody else has set the same thing."""
    broker.create_topic("payments", 1, {"retention.ms": "60000"})
    old: list[tuple[Any, dict[str, object]]] = [
        (topics.delete, {"topic": "payments"}),
        (topics.grow, {"topic": "payments", "partitions": 3}),
        (topics.configure, {"topic": "payments", "setting": "retention.ms", "value": "1"}),
    ]
    plans = [planned(make, cluster, **wish) for make, wish in old]
    admin.grow_topic(cluster, "payments", 2)
    admin.alter_configs(cluster, {"payments": {"retention.ms": "70000"}})
    for (make, wish), plan in zip(old, plans, strict=True):
        with pytest.raises(PageRefused, match="look again"):
            agreed(make, cluster, plan, **wish)
    plans = [planned(make, cluster, **wish) for make, wish in old]
    admin.delete_topic(cluster, "payments")
    admin.create_topic(cluster, "payments", 2, {"retention.ms": "70000"})
    for (make, wish), plan in zip(old, plans, strict=True):
        with pytest.raises(PageRefused, match="look again"):
            agreed(make, cluster, plan, **wish)
    assert partitions_of(cluster, "payments") == 2
    assert settings_of(cluster, "payments") == {"retention.ms": "70000"}


@pytest.mark.parametrize(
    ("change", "wish", "right"),
    [
        ("create_topic", {"topic": "new"}, "Create on topic 'new'"),
        ("grow_topic", {"topic": "payments", "partitions": 2}, "Alter on topic 'payments'"),
        (
            "configure_topic",
            {"topic": "payments", "setting": "retention.ms", "value": "1"},
            "AlterConfigs on topic 'payments'",
        ),
        ("delete_topic", {"topic": "payments"}, "Delete on topic 'payments'"),
    ],
)
def test_a_login_without_the_right_gets_one_line_that_names_it(
    users: BrokerOfUsers, change: str, wish: dict[str, object], right: str
) -> None:
    async def story(browser: Browser) -> None:
        await browser.enter()
        assert (await browser.get("/api/topics")).told["count"] == 1
        refused = await browser.change(change, wish)
        assert refused.status == 502
        assert f"needs the right {right}" in refused.told["error"]
        assert "\n" not in refused.told["error"]
        told = (await browser.get("/api/topic?topic=payments")).told
        assert (told["count"], told["settings"]) == (1, [])

    browse(users.bootstrap, story, LOGIN, allow_changes=True)


def test_a_change_goes_through_the_door_and_leaves_a_line(broker: FaultyBroker) -> None:
    async def story(browser: Browser) -> None:
        await browser.enter()
        wish = {"topic": "payments"}
        created = await browser.change("create_topic", wish)
        assert (created.status, created.told) == (200, {"done": "Topic payments is created."})
        plan = (await browser.get("/plan/delete_topic?topic=payments")).told
        fields = {**wish, "typed": "payments", "mark": plan["mark"]}
        token = (await browser.get("/api/session")).told["change_token"]
        for wrong in ({"X_Semel_Change": ""}, {"Origin": "http://evil.example"}, {"Content_Type": "text/plain"}):
            headers = {"X_Semel_Change": token, **wrong}
            assert (await browser.post("/do/delete_topic", fields, **headers)).status in (403, 415)
        assert (await browser.get("/do/delete_topic?topic=payments")).status == 200, "that is the shell"
        assert (await browser.get("/api/topics")).told["count"] == 1
        assert (await browser.change("delete_topic", wish, typed="slip")).status == 400
        assert (await browser.change("delete_topic", wish)).status == 200
        said = [line.partition(" ")[2] for line in browser.lines if "_topic(" in line]
        who = "a browser that was let in from 127.0.0.1: "
        assert said == [
            f"{who}create_topic(topic='payments'): Topic payments is created.",
            f"{who}delete_topic(topic='payments'): error: nothing was done: type payments to confirm it",
            f"{who}delete_topic(topic='payments'): Topic payments is deleted.",
        ]

    browse(broker.bootstrap, story, allow_changes=True)


def test_a_change_whose_answer_is_lost_is_not_called_refused(broker: FaultyBroker) -> None:
    """It may have been made; whoever looks again sees that."""
    broker.create_topic("payments")

    async def story(browser: Browser) -> None:
        await browser.enter()
        broker.drop_acks(api="DeleteTopics")
        lost = await browser.change("delete_topic", {"topic": "payments"})
        assert (lost.status, "nobody knows whether it was done" in lost.told["error"]) == (502, True)
        assert browser.lines[-1].endswith(f": error: {lost.told['error']}")
        again = await browser.change("delete_topic", {"topic": "payments"})
        assert "there is no topic 'payments'" in again.told["error"]

    browse(broker.bootstrap, story, allow_changes=True)
    assert broker.topics() == []
