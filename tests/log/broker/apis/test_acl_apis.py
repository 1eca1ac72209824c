"""The APIs of ACLs: rules are added, shown and removed as in Apache Kafka, and outlive a kill."""

from collections.abc import Iterator
from typing import Any

import pytest

from asking import Asker
from guarded import ALL_RIGHTS, CLUSTER, GROUP, READ, TOPIC, WRITE, GuardedBroker, creation, rule
from semel.log.broker.apis.access_rules import RULES_PER_ENTRY_MAX
from semel.log.broker.limits import Limits
from semel.log.core.access import Operation, Pattern, Permission
from semel.log.core.entries import AccessRule
from semel.testing.broker import FaultyBroker
from semel.wire.errors import ErrorCode
from semel.wire.versions import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS

ANY = 1
ORDERS = rule(TOPIC, "orders", WRITE, principal="User:app", host="*")
PAYMENTS = rule(TOPIC, "pay", READ, pattern=Pattern.PREFIXED, principal="User:app", host="10.0.0.7")
READERS = rule(GROUP, "readers", READ, Permission.DENY, principal="User:*", host="*")


@pytest.fixture
def ask(broker: GuardedBroker) -> Iterator[Asker]:
    with broker.administrator() as asker:
        yield asker


def wanted(**fields: object) -> dict[str, object]:
    codes = dict.fromkeys(("resource_type_filter", "pattern_type_filter", "operation", "permission_type"), ANY)
    return {**codes, **dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter")), **fields}


def create(ask: Asker, *rules: AccessRule, version: int = 3) -> list[int]:
    return [int(one.error_code) for one in ask(CREATE_ACLS, version, creations=map(creation, rules)).results]


def described(ask: Asker, version: int = 3, **fields: object) -> list[AccessRule]:
    answer = ask(DESCRIBE_ACLS, version, **wanted(**fields))
    assert answer.error_code == 0, answer.error_message
    return [
        AccessRule(
            *(resource.resource_type, resource.resource_name, resource.pattern_type),
            *(one.principal, one.host, one.operation, one.permission_type),
        )
        for resource in answer.resources
        for one in resource.acls
    ]


def delete(ask: Asker, *filters: dict[str, object], version: int = 3) -> list[Any]:
    return list(ask(DELETE_ACLS, version, filters=filters).filter_results)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_rules_are_added_shown_and_removed_in_every_version(broker: GuardedBroker, ask: Asker, version: int) -> None:
    assert create(ask, ORDERS, PAYMENTS, READERS, version=version) == [0, 0, 0]
    assert set(described(ask, version, principal_filter="User:app")) == {ORDERS, PAYMENTS}
    (result,) = delete(ask, wanted(principal_filter="User:app"), version=version)
    assert {(one.resource_name, one.error_code) for one in result.matching_acls} == {("orders", 0), ("pay", 0)}
    assert set(described(ask, version)) == {*ALL_RIGHTS, READERS}
    assert set(broker.rules()) == {*ALL_RIGHTS, READERS}


def test_a_rule_that_was_acknowledged_holds_after_a_kill_and_one_that_was_removed_does_not(
    broker: GuardedBroker, ask: Asker
) -> None:
    create(ask, ORDERS, PAYMENTS)
    delete(ask, wanted(resource_name_filter="orders"))
    broker.kill()
    broker.start()
    assert broker.rules() == [*ALL_RIGHTS, PAYMENTS]


def test_a_rule_that_holds_already_is_no_error_and_is_kept_once(broker: GuardedBroker, ask: Asker) -> None:
    assert create(ask, ORDERS, ORDERS) == [0, 0]
    assert create(ask, ORDERS) == [0]
    assert broker.rules() == [*ALL_RIGHTS, ORDERS]


def test_a_rule_that_means_nothing_does_not_keep_the_others_out(broker: GuardedBroker, ask: Asker) -> None:
    wrong = [
        ORDERS._replace(name=""),
        ORDERS._replace(principal="app"),
        ORDERS._replace(operation=Operation.ANY),
        rule(CLUSTER, "orders", WRITE),
    ]
    refused = int(ErrorCode.INVALID_REQUEST)
    assert create(ask, wrong[0], ORDERS, *wrong[1:]) == [refused, 0, refused, refused, refused]
    assert broker.rules() == [*ALL_RIGHTS, ORDERS]


def test_a_filter_names_a_resource_and_finds_all_rules_that_decide_about_it(ask: Asker) -> None:
    create(ask, ORDERS, PAYMENTS)
    match = {"resource_type_filter": TOPIC, "pattern_type_filter": Pattern.MATCH, "principal_filter": "User:app"}
    assert described(ask, **match, resource_name_filter="payments") == [PAYMENTS]
    assert described(ask, **match, resource_name_filter="orders") == [ORDERS]
    literal = {**match, "pattern_type_filter": Pattern.LITERAL}
    assert described(ask, **literal, resource_name_filter="payments") == []


def test_an_address_in_a_filter_means_the_same_however_it_is_written(ask: Asker) -> None:
    create(ask, ORDERS._replace(host="0:0:0:0:0:0:0:1"))
    assert described(ask, host_filter="::1") == [ORDERS._replace(host="::1")]
    assert described(ask, host_filter="0::1") == [ORDERS._replace(host="::1")]


@pytest.mark.parametrize("field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"])
@pytest.mark.parametrize("number", [0, 99, -1])
def test_a_filter_with_an_unknown_number_is_refused_and_removes_nothing(
    broker: GuardedBroker, ask: Asker, field: str, number: int
) -> None:
    assert ask(DESCRIBE_ACLS, **wanted(**{field: number})).error_code == ErrorCode.INVALID_REQUEST
    (result,) = delete(ask, wanted(**{field: number}))
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert broker.rules() == ALL_RIGHTS


def test_many_rules_go_in_several_entries_and_all_of_them_hold(broker: GuardedBroker, ask: Asker) -> None:
    many = [ORDERS._replace(name=f"orders-{number}") for number in range(2 * RULES_PER_ENTRY_MAX + 1)]
    assert set(create(ask, *many)) == {0}
    assert set(described(ask, principal_filter="User:app")) == set(many)
    (result,) = delete(ask, wanted(principal_filter="User:app"))
    assert len(result.matching_acls) == len(many)
    assert broker.rules() == ALL_RIGHTS


def test_rules_that_deny_come_first_and_go_last(broker: GuardedBroker, ask: Asker) -> None:
    denying = ORDERS._replace(permission=Permission.DENY)
    create(ask, ORDERS, denying)
    assert broker.rules() == [*ALL_RIGHTS, denying, ORDERS]


def test_there_is_room_for_so_many_rules_and_no_more() -> None:
    with GuardedBroker(limits=Limits(access_rules_max=5)) as broker, broker.administrator() as ask:
        assert create(ask, ORDERS, PAYMENTS) == [ErrorCode.POLICY_VIOLATION] * 2
        assert create(ask, ORDERS) == [0]
        assert create(ask, ORDERS) == [0]
        assert create(ask, PAYMENTS) == [ErrorCode.POLICY_VIOLATION]


def test_a_client_without_the_right_neither_sees_nor_changes_rules(broker: GuardedBroker) -> None:
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with broker.stranger() as ask:
        assert create(ask, ORDERS, PAYMENTS) == [refused, refused]
        assert ask(DESCRIBE_ACLS, **wanted()).error_code == refused
        assert [one.error_code for one in delete(ask, wanted(), wanted())] == [refused, refused]
        broker.add(rule(CLUSTER, "kafka-cluster", Operation.DESCRIBE))
        assert len(described(ask)) == len(ALL_RIGHTS) + 1
        assert create(ask, ORDERS) == [refused]
    assert ORDERS not in broker.rules()


def test_where_no_rules_are_in_force_none_are_kept() -> None:
    with FaultyBroker() as broker, Asker(broker.bootstrap) as ask:
        disabled = ErrorCode.SECURITY_DISABLED
        assert create(ask, ORDERS) == [disabled]
        assert ask(DESCRIBE_ACLS, **wanted()).error_code == disabled
        assert [one.error_code for one in delete(ask, wanted())] == [disabled]
