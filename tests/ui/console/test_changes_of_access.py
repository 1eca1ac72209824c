"""Users and access rules are changed from a page: as its plan says, with the rights of the console's login, and only if
they still are what the page has shown. No password gets into an answer or a line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from browsing import Browser, browse
from browsing import settings_of as settings_at
from console_changes import agreed, planned
from logged_in import MECHANISM, BrokerOfUsers
from secured import PASSWORD
from semel.client.cluster import Cluster
from semel.client.errors import LogError
from semel.ui.cli import main
from semel.ui.console import access
from semel.ui.console.http import PageRefused, as_json
from semel.ui.console.query import Query
from semel_command import semel_lines

LOGIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": MECHANISM.sasl_name,
    "sasl_username": "console",
    "sasl_password": PASSWORD,
}
RULE = {"principal": "User:app", "operations": "read", "resource": "topic:orders"}
SECRET = "a secret that nobody guesses"


@pytest.fixture
def guarded() -> Iterator[BrokerOfUsers]:
    with BrokerOfUsers() as broker:
        yield broker


@pytest.fixture
def administrator(guarded: BrokerOfUsers) -> Iterator[Cluster]:
    """The cluster as somebody sees it who may do everything."""
    with Cluster(settings_at(guarded.open)) as cluster:
        yield cluster


def shown(cluster: Cluster, **values: str) -> dict[str, Any]:
    return access.everybody(cluster, Query(values))


def rules_of(cluster: Cluster, find: str) -> list[str]:
    return [
        " ".join(one[name] for name in ("permission", "principal", "operations", "resource"))
        + ("..." if one["prefixed"] else "")
        for one in shown(cluster, find=find)["rules"]["rules"]
    ]


def test_rules_are_added_and_removed_and_the_plan_says_what_they_change(administrator: Cluster) -> None:
    wish = {**RULE, "operations": "read describe"}
    plan = planned(access.add_rule, administrator, **wish)
    assert plan["rows"] == [
        ("allow User:app read topic:orders from any host", "denied", "allowed"),
        ("allow User:app describe topic:orders from any host", "denied", "allowed"),
    ]
    assert rules_of(administrator, "user:app") == []
    agreed(access.add_rule, administrator, plan, **wish)
    assert rules_of(administrator, "user:app") == [
        "allow User:app read topic:orders",
        "allow User:app describe topic:orders",
    ]
    # To read is to describe as well, and a rule that denies counts more.
    (row,) = planned(access.remove_rule, administrator, **{**RULE, "operations": "describe"})["rows"]
    assert row[1:] == ("allowed", "allowed")
    denial = {**RULE, "permission": "deny", "resource": "topic:ord", "prefixed": "1"}
    agreed(access.add_rule, administrator, **denial)
    assert "deny User:app read topic:ord..." in rules_of(administrator, "user:app")
    (row,) = planned(access.remove_rule, administrator, **RULE)["rows"]
    assert row[1:] == ("denied", "denied")
    agreed(access.remove_rule, administrator, **wish)
    assert rules_of(administrator, "user:app") == ["deny User:app read topic:ord..."]
    with pytest.raises(PageRefused, match="no such rule any more"):
        planned(access.remove_rule, administrator, **RULE)
    with pytest.raises(PageRefused, match="has this already"):
        planned(access.add_rule, administrator, **denial)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"operations": "fly"}, "'fly' is not an operation"),
        ({"operations": " "}, "operations are missing"),
        ({"resource": "orders"}, "'orders' is not a resource"),
        ({"resource": "topic:"}, "is not a resource"),
        ({"principal": "app"}, "app"),
    ],
)
def test_a_rule_that_means_nothing_is_refused_before_anybody_agrees(
    administrator: Cluster, wrong: dict[str, str], said: str
) -> None:
    with pytest.raises((LogError, PageRefused)) as refused:
        planned(access.add_rule, administrator, **{**RULE, **wrong})
    assert said in str(refused.value)


def test_a_rule_is_not_removed_by_who_has_not_seen_what_another_person_added(administrator: Cluster) -> None:
    agreed(access.add_rule, administrator, **RULE)
    plan = planned(access.remove_rule, administrator, **RULE)
    # It leaves the verdicts of the plan as they are.
    agreed(access.add_rule, administrator, **{**RULE, "operations": "write", "permission": "deny"})
    with pytest.raises(PageRefused, match="look again"):
        agreed(access.remove_rule, administrator, plan, **RULE)
    assert "allow User:app read topic:orders" in rules_of(administrator, "user:app")


@pytest.mark.parametrize("verb", ["add", "remove"])
def test_the_command_of_a_plan_does_the_same(guarded: BrokerOfUsers, administrator: Cluster, verb: str) -> None:
    wish = {**RULE, "operations": "read write", "prefixed": "1", "permission": "deny", "host": "10.0.0.7"}
    if verb == "remove":
        agreed(access.add_rule, administrator, **wish)
    make = access.add_rule if verb == "add" else access.remove_rule
    _, noun, *words = planned(make, administrator, **wish)["command"].split()
    with pytest.raises(SystemExit) as ended:
        main([noun, words[0], f"--bootstrap={guarded.open}", *words[1:]])
    assert ended.value.code in (0, None)
    assert len(rules_of(administrator, "from 10.0.0.7")) == (2 if verb == "add" else 0)


def test_a_user_is_added_gets_another_password_and_is_removed(guarded: BrokerOfUsers, administrator: Cluster) -> None:
    lines: list[str] = []

    async def story(browser: Browser) -> None:
        await browser.enter()
        empty = await browser.change("set_password", {"user": "anna"})
        assert (empty.status, "empty" in empty.told["error"]) == (400, True)
        assert (await browser.change("set_password", {"user": "anna"}, password=SECRET)).status == 200
        assert (await browser.get("/api/access")).told["users"]["users"] == [
            {"user": "anna", "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"]}
        ]
        plan = (await browser.get("/plan/set_password?user=anna")).told
        assert (plan["title"], plan["asks_password"]) == ("Give user anna another password?", True)
        assert (await browser.change("set_password", {"user": "anna"}, password=PASSWORD)).status == 200
        lines.extend(browser.lines)

    browse(guarded.open, story, allow_changes=True)
    assert sum("set_password(user='anna')" in line for line in lines) == 3
    assert not any(SECRET in line or PASSWORD in line for line in lines)
    # Only the second password opens the door.
    guarded.log_in("anna").close()
    plan = planned(access.remove_user, administrator, user="anna")
    with pytest.raises(PageRefused, match="type anna to confirm"):
        agreed(access.remove_user, administrator, {**plan, "typed": "ann"}, user="anna")
    agreed(access.remove_user, administrator, plan, user="anna")
    assert shown(administrator)["users"]["count"] == 0
    with pytest.raises(PageRefused, match="there is no user 'anna'"):
        planned(access.remove_user, administrator, user="anna")


def test_many_rules_come_in_pages(administrator: Cluster) -> None:
    count = access.ROWS_MAX + 3
    for number in range(count):
        agreed(access.add_rule, administrator, **{**RULE, "resource": f"topic:t{number:03}"})
    page = shown(administrator, find="USER:app", page="2")["rules"]
    assert (page["count"], page["pages"]) == (count, 2)
    assert [one["resource"] for one in page["rules"]] == ["topic:t100", "topic:t101", "topic:t102"]
    assert as_json(page)


@pytest.mark.parametrize(
    ("change", "wish"),
    [
        ("add_rule", RULE),
        ("remove_rule", {**RULE, "resource": "topic:*", "principal": "User:console"}),
        ("set_password", {"user": "anna"}),
        ("remove_user", {"user": "console"}),
    ],
)
def test_a_login_that_may_only_look_changes_nothing_and_is_told_the_right(
    guarded: BrokerOfUsers, change: str, wish: dict[str, object]
) -> None:
    guarded.add_user("console", PASSWORD)
    semel_lines("acls", "for", "console", "User:console", "--add", "--bootstrap", guarded.open)

    async def story(browser: Browser) -> None:
        await browser.enter()
        before = (await browser.get("/api/access")).told
        assert before["users"]["count"] == 1
        given = {"password": SECRET} if change == "set_password" else {}
        refused = await browser.change(change, wish, **given)
        assert (refused.status, "needs the right Alter on the cluster" in refused.told["error"]) == (502, True)
        assert (await browser.get("/api/access")).told == before

    browse(guarded.bootstrap, story, LOGIN, allow_changes=True)


def test_what_a_login_may_not_see_is_a_line_in_its_place(guarded: BrokerOfUsers) -> None:
    guarded.add_user("console", PASSWORD)

    async def story(browser: Browser) -> None:
        await browser.enter()
        told = (await browser.get("/api/access")).told
        for part in ("users", "rules"):
            assert "needs the right Describe on the cluster" in told[part]["error"]

    browse(guarded.bootstrap, story, LOGIN)
