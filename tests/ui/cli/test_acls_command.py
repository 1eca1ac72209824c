"""What `semel acls` promises: rules go in and out by the same words, and it says which rule decides."""

from collections.abc import Iterator

import pytest

from guarded import ALL_RIGHTS, GuardedBroker
from semel.testing.broker import FaultyBroker
from semel_command import semel_failure, semel_lines


@pytest.fixture(scope="module")
def broker() -> Iterator[GuardedBroker]:
    with GuardedBroker() as broker:
        yield broker


@pytest.fixture(autouse=True)
def only_the_administrators(broker: GuardedBroker) -> Iterator[None]:
    yield
    added = [rule for rule in broker.rules() if rule not in ALL_RIGHTS]
    if added:
        broker.remove(*added)


def acls(broker: GuardedBroker, *words: str) -> list[str]:
    return semel_lines("acls", *words, "--bootstrap", broker.bootstrap)


def refused(broker: GuardedBroker, *words: str) -> str:
    return semel_failure("acls", *words, "--bootstrap", broker.bootstrap)


def test_rules_are_added_listed_and_removed_by_the_same_words(broker: GuardedBroker) -> None:
    rules = ("User:app", "read", "Describe_Configs", "topic:orders")
    prefixed = ("User:app", "read", "group:app-", "--prefixed", "--host", "10.0.0.7")
    assert acls(broker, "add", *rules) == [
        "added: allow User:app read topic:orders from any host",
        "added: allow User:app describe-configs topic:orders from any host",
    ]
    assert acls(broker, "add", *prefixed) == ["added: allow User:app read group:app-... from 10.0.0.7"]
    listed = [line.split() for line in acls(broker, "list", "--principal", "User:app")]
    assert listed == [
        ["PRINCIPAL", "HOST", "PERMISSION", "OPERATION", "RESOURCE"],
        ["User:app", "*", "allow", "read", "topic:orders"],
        ["User:app", "*", "allow", "describe-configs", "topic:orders"],
        ["User:app", "10.0.0.7", "allow", "read", "group:app-..."],
    ]
    assert acls(broker, "remove", *prefixed) == ["removed: allow User:app read group:app-... from 10.0.0.7"]
    assert len(acls(broker, "remove", *rules)) == 2
    assert broker.rules() == ALL_RIGHTS


def test_explain_names_the_rule_that_decides(broker: GuardedBroker) -> None:
    question = ("explain", "User:app", "write", "topic:orders")
    (denied, super_user) = acls(broker, *question, "--host", "10.0.0.7")
    assert denied == "denied: User:app write topic:orders: no rule of 1 rule about topic:orders allows it"
    assert "super user" in super_user
    acls(broker, "add", "User:app", "all", "topic:ord", "--prefixed")
    assert acls(broker, *question, "--host", "10.0.0.7") == [
        "allowed: User:app write topic:orders: by the rule: allow User:app all topic:ord... from any host"
    ]
    acls(broker, "add", "User:*", "write", "topic:orders", "--deny", "--host", "10.0.0.7")
    assert acls(broker, *question, "--host", "10.0.0.7")[0] == (
        "denied: User:app write topic:orders: by the rule: deny User:* write topic:orders from 10.0.0.7"
    )
    anywhere, note = acls(broker, *question)
    assert anywhere.startswith("allowed: ")
    assert "--host" in note


def test_the_rules_about_a_resource_are_those_that_decide_about_it(broker: GuardedBroker) -> None:
    acls(broker, "add", "User:app", "read", "topic:ord", "--prefixed")
    acls(broker, "add", "User:app", "read", "topic:payments")
    lines = acls(broker, "list", "--resource", "topic:orders", "--principal", "User:app")
    assert [line.split()[-1] for line in lines] == ["RESOURCE", "topic:ord..."]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("add", "app", "read", "topic:orders"), "a principal is a type and a name with a colon in between"),
        (("add", "User:app", "read", "topic:a", "topic:b"), "'topic:a' is a resource, and a command names one"),
        (("add", "User:app", "create", "cluster", "topic:b"), "'cluster' is a resource, and a command names one"),
        (("add", "User:app", "reed", "topic:orders"), "'reed' is not an operation: choose all, read, write"),
        (("add", "User:app", "read", "orders"), "'orders' is not a resource: write cluster, "),
        (("add", "User:app", "read", "topic:"), "is not a resource"),
        (
            ("remove", "User:app", "read", "topic:orders"),
            "there is no rule to remove: allow User:app read ",
        ),
    ],
)
def test_words_that_mean_nothing_are_one_line(broker: GuardedBroker, words: tuple[str, ...], told: str) -> None:
    assert told in refused(broker, *words)
    assert broker.rules() == ALL_RIGHTS


def test_a_broker_without_rules_in_force_says_what_turns_them_on() -> None:
    with FaultyBroker() as plain:
        told = semel_failure("acls", "list", "--bootstrap", plain.bootstrap)
    assert "--access-rules" in told
    assert "SECURITY_DISABLED" in told


def test_a_user_without_the_right_is_told_which_right_it_takes(broker: GuardedBroker) -> None:
    broker.remove(*ALL_RIGHTS)
    try:
        assert "needs the right Alter on the cluster" in refused(broker, "add", "User:app", "read", "topic:orders")
        assert "needs the right Describe on the cluster" in refused(broker, "list")
    finally:
        broker.add(*ALL_RIGHTS)
