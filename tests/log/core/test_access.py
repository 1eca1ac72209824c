"""Access rules: their promises one by one, then all of them held against Apache Kafka's own algorithms done naively."""

from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from administration import read_again
from refusal import refused
from semel.log.core.access import (
    AccessRules,
    Asker,
    Operation,
    Pattern,
    Permission,
    ResourceType,
    RuleFilter,
    canonical_host,
    checked,
)
from semel.log.core.entries import AccessRule, AccessRulesAdded, AccessRulesRemoved
from semel.wire.refusals import INVALID_REQUEST, POLICY_VIOLATION
from semel.wire.steps import finish

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIXED = Pattern.LITERAL, Pattern.PREFIXED
APP = Asker("User:app", "10.0.0.7")
ANY_RULE = RuleFilter(ResourceType.ANY, None, Pattern.ANY, None, None, Operation.ANY, Permission.ANY)


def rule(
    name: str = "orders",
    operation: Operation = WRITE,
    permission: Permission = ALLOW,
    *,
    resource_type: ResourceType = TOPIC,
    pattern: Pattern = LITERAL,
    principal: str = "User:app",
    host: str = "*",
) -> AccessRule:
    return AccessRule(resource_type, name, pattern, principal, host, operation, permission)


def holding(*rules: AccessRule) -> AccessRules:
    access = AccessRules()
    add(access, *rules)
    return access


def add(access: AccessRules, *rules: AccessRule) -> None:
    entry = access.decide_add(rules)
    if entry is not None:
        access.check(entry)
        access.apply(entry)


def remove(access: AccessRules, *rules: AccessRule) -> None:
    entry = access.decide_remove(rules)
    if entry is not None:
        access.check(entry)
        access.apply(entry)


def test_what_no_rule_allows_is_denied() -> None:
    assert not AccessRules().allows(APP, WRITE, TOPIC, "orders")
    assert AccessRules().verdict(APP, WRITE, TOPIC, "orders") == (False, None)


ABOUT_ORDERS = [rule("orders"), rule("or", pattern=PREFIXED), rule("*"), rule(operation=ALL), rule(principal="User:*")]


@pytest.mark.parametrize("denying", ABOUT_ORDERS)
@pytest.mark.parametrize("allowing", ABOUT_ORDERS)
def test_a_rule_that_denies_wins_over_every_rule_that_allows(allowing: AccessRule, denying: AccessRule) -> None:
    denying = denying._replace(permission=DENY)
    access = holding(allowing, denying)
    assert access.verdict(APP, WRITE, TOPIC, "orders") == (False, denying)
    remove(access, denying)
    assert access.verdict(APP, WRITE, TOPIC, "orders") == (True, allowing)


def test_a_prefix_is_no_name_and_a_name_is_no_prefix() -> None:
    access = holding(rule("orders"), rule("pay", pattern=PREFIXED))
    assert not access.allows(APP, WRITE, TOPIC, "orders-2")
    assert not access.allows(APP, WRITE, TOPIC, "order")
    assert access.allows(APP, WRITE, TOPIC, "payments")
    assert access.allows(APP, WRITE, TOPIC, "pay")
    assert not access.allows(APP, WRITE, TOPIC, "pa")


def test_a_rule_about_topics_says_nothing_of_groups() -> None:
    assert not holding(rule(operation=READ)).allows(APP, READ, GROUP, "orders")


@pytest.mark.parametrize("implying", [READ, WRITE, Operation.DELETE, Operation.ALTER])
def test_describing_is_allowed_with_what_implies_it_and_not_denied_with_it(implying: Operation) -> None:
    assert holding(rule(operation=implying)).allows(APP, DESCRIBE, TOPIC, "orders")
    described = holding(rule(operation=DESCRIBE), rule(operation=implying, permission=DENY))
    assert described.allows(APP, DESCRIBE, TOPIC, "orders")


def test_altering_configurations_implies_describing_them_and_nothing_else() -> None:
    access = holding(rule(operation=Operation.ALTER_CONFIGS))
    assert access.allows(APP, Operation.DESCRIBE_CONFIGS, TOPIC, "orders")
    assert not access.allows(APP, DESCRIBE, TOPIC, "orders")


def test_a_rule_for_one_host_is_none_for_another() -> None:
    access = holding(rule(host="10.0.0.7"))
    assert access.allows(APP, WRITE, TOPIC, "orders")
    assert not access.allows(APP._replace(host="10.0.0.70"), WRITE, TOPIC, "orders")


@pytest.mark.parametrize(
    ("written", "meant"),
    [("0:0:0:0:0:0:0:1", "::1"), ("::ffff:10.0.0.7", "10.0.0.7"), ("FE80::1", "fe80::1"), ("*", "*"), ("a:b", "a:b")],
)
def test_an_address_is_the_same_however_it_is_written(written: str, meant: str) -> None:
    assert canonical_host(written) == meant
    access = holding(checked(rule(host=written)))
    assert access.allows(APP._replace(host=written), WRITE, TOPIC, "orders")
    assert access.allows(APP._replace(host=meant), WRITE, TOPIC, "orders")


def test_a_change_of_the_rules_counts_from_the_next_question_on() -> None:
    access = AccessRules()
    for _ in range(2):
        assert not access.allows(APP, WRITE, TOPIC, "orders")
        assert not access.allows_some(APP, WRITE, TOPIC)
        add(access, rule())
        assert access.allows(APP, WRITE, TOPIC, "orders")
        assert access.allows_some(APP, WRITE, TOPIC)
        remove(access, rule())


def test_a_right_to_some_topic_is_none_where_every_such_topic_is_denied() -> None:
    access = holding(rule("orders"), rule("orders-eu", pattern=PREFIXED))
    assert access.allows_some(APP, WRITE, TOPIC)
    add(access, rule("orders-e", permission=DENY, pattern=PREFIXED))
    assert access.allows_some(APP, WRITE, TOPIC)
    add(access, rule("orders", permission=DENY))
    assert not access.allows_some(APP, WRITE, TOPIC)
    remove(access, rule("orders", permission=DENY))
    add(access, rule("order", permission=DENY, pattern=PREFIXED))
    assert not access.allows_some(APP, WRITE, TOPIC)


def test_a_prefix_that_goes_leaves_the_others_of_its_length() -> None:
    access = holding(rule("ord", pattern=PREFIXED), rule("pay", pattern=PREFIXED))
    remove(access, rule("pay", pattern=PREFIXED))
    assert access.allows(APP, WRITE, TOPIC, "orders")


def test_a_rule_that_holds_is_not_added_and_one_that_does_not_is_not_removed() -> None:
    access = holding(rule())
    assert access.decide_add([rule()]) is None
    assert access.decide_remove([rule("payments")]) is None
    assert access.decide_add([rule("payments"), rule("payments"), rule()]) == AccessRulesAdded((rule("payments"),))
    assert access.decide_remove([rule("payments"), rule(), rule()]) == AccessRulesRemoved((rule(),))


def test_an_entry_that_comes_twice_changes_nothing_the_second_time() -> None:
    access = AccessRules()
    for entry in (AccessRulesAdded((rule(),)), AccessRulesAdded((rule(),)), AccessRulesRemoved((rule(),))):
        access.apply(entry)
    access.apply(AccessRulesRemoved((rule(),)))
    assert list(access) == []
    assert not access.allows(APP, WRITE, TOPIC, "orders")


def test_those_about_whom_there_are_the_same_rules_are_alike() -> None:
    access = holding(
        rule(principal="User:app"),
        rule(principal="User:*", host="10.0.0.9"),
        rule(principal="User:other", resource_type=GROUP),
    )
    everybody = Asker("User:*", "*")
    assert access.alike(Asker("User:app", "10.0.0.7"), TOPIC) == Asker("User:app", "*")
    assert access.alike(Asker("User:other", "10.0.0.7"), TOPIC) == everybody
    assert access.alike(Asker("User:other", "::ffff:10.0.0.9"), TOPIC) == Asker("User:*", "10.0.0.9")
    assert access.alike(Asker("User:app", "10.0.0.9"), TOPIC) == Asker("User:app", "10.0.0.9")
    assert access.alike(Asker("User:app", "10.0.0.7"), GROUP) == everybody


def test_there_are_no_more_rules_than_are_allowed() -> None:
    access = AccessRules(rules_max=2)
    add(access, rule("a"), rule("b"))
    with refused(POLICY_VIOLATION, r"2 rules, no more are allowed \(access_rules_max\)"):
        access.decide_add([rule("c")])
    assert access.decide_add([rule("a")]) is None


@pytest.mark.parametrize(
    "wrong",
    [
        rule(resource_type=ResourceType.ANY),
        rule(resource_type=ResourceType.UNKNOWN),
        rule()._replace(resource_type=99),
        rule(pattern=Pattern.MATCH),
        rule(operation=Operation.ANY),
        rule()._replace(operation=16),
        rule(permission=Permission.ANY),
        rule(""),
        rule("other-cluster", resource_type=ResourceType.CLUSTER),
        rule("*", resource_type=ResourceType.CLUSTER),
        rule(principal="app"),
        rule("x" * 1025),
        rule(principal="User:" + "ä" * 600),
    ],
)
def test_a_rule_that_means_nothing_is_refused(wrong: AccessRule) -> None:
    with refused(INVALID_REQUEST):
        checked(wrong)


@pytest.mark.parametrize("wrong", [(1, 2), (2, 7, 3, "User:app", "*", 4, 3), (2, "a", "b", "User:app", "*", 4, 3)])
def test_an_entry_that_no_version_wrote_is_noticed(wrong: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        AccessRules().check(AccessRulesAdded((wrong,)))  # type: ignore[arg-type]


# -- against Kafka's own algorithms ---------------------------------------------------------------------------------

NAMES = ["*", "a", "ab", "abc", "b", "hardcode", "har"]
PRINCIPALS = ["User:app", "User:*", "User:other", "Group:app"]
HOSTS = ["10.0.0.7", "*", "::1"]
OPERATIONS = [ALL, READ, WRITE, DESCRIBE, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS]
RULES = st.builds(
    AccessRule,
    st.sampled_from([TOPIC, TOPIC, GROUP]),
    st.sampled_from(NAMES),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from([ALLOW, ALLOW, DENY]),
)
ASKERS = [Asker(*who) for who in product(["User:app", "User:other", "Group:app"], ["10.0.0.7", "::1"])]


def applies(one: AccessRule, asker: Asker) -> bool:
    return one.principal in (asker.principal, "User:*") and one.host in (asker.host, "*")


def naive(rules: set[AccessRule], operation: Operation, name: str) -> bool:
    """StandardAuthorizerData.findAclRule, by looking at every rule about the asker and the type."""
    about = [one for one in rules if (one.name in (name, "*") if one.pattern == LITERAL else name.startswith(one.name))]
    implied_by = {
        DESCRIBE: {DESCRIBE, READ, WRITE, Operation.DELETE, Operation.ALTER},
        Operation.DESCRIBE_CONFIGS: {Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS},
    }
    if any(one.permission == DENY and one.operation in (ALL, operation) for one in about):
        return False
    allowing = {ALL, *implied_by.get(operation, {operation})}
    return any(one.permission == ALLOW and one.operation in allowing for one in about)


def naive_some(rules: set[AccessRule], operation: Operation) -> bool:
    """Authorizer.authorizeByResourceType, by looking at every rule about the asker and the type."""
    if naive(rules, operation, "hardcode"):
        return True
    about = [one for one in rules if one.operation in (ALL, operation)]
    denied = {(one.pattern, one.name) for one in about if one.permission == DENY}
    allowed = {(one.pattern, one.name) for one in about if one.permission == ALLOW}
    if (LITERAL, "*") in denied:
        return False
    if (LITERAL, "*") in allowed:
        return True
    return any(
        not (pattern == LITERAL and (LITERAL, name) in denied)
        and not any((PREFIXED, name[: end + 1]) in denied for end in range(len(name)))
        for pattern, name in allowed
    )


@settings(max_examples=25)
@given(st.lists(st.tuples(st.booleans(), st.lists(RULES, min_size=1, max_size=4)), max_size=12))
@example([(True, [rule("a", pattern=PREFIXED)]), (True, [rule("ab", WRITE, DENY, pattern=PREFIXED)])])
def test_every_verdict_is_that_of_apache_kafka_after_every_change(
    changes: list[tuple[bool, list[AccessRule]]],
) -> None:
    access = AccessRules()
    model: set[AccessRule] = set()
    for adds, rules in changes:
        if adds:
            add(access, *rules)
            model |= set(rules)
        else:
            remove(access, *rules)
            model -= set(rules)
        assert set(access) == model
        for asker, resource_type in product(ASKERS, [TOPIC, GROUP]):
            about = {one for one in model if applies(one, asker) and one.resource_type == resource_type}
            alike = access.alike(asker, resource_type)
            for operation, name in product(OPERATIONS[1:], (*NAMES, "abcd", "c")):
                expected = naive(about, operation, name)
                assert access.allows(alike, operation, resource_type, name) == expected
                verdict = access.verdict(asker, operation, resource_type, name)
                assert verdict.is_allowed == expected
                assert verdict.rule is None or verdict.rule in about
            for operation in (READ, WRITE):
                assert access.allows_some(asker, operation, resource_type) == naive_some(about, operation)
    restored = AccessRules()
    restored.restore(read_again(access.snapshot()))
    assert list(restored) == list(access)
    assert restored.changes != AccessRules().changes, "answers from before are kept by nobody"


# -- filters -------------------------------------------------------------------------------------------------------

EACH = [rule("orders"), rule("ord", pattern=PREFIXED), rule("*"), rule("pay"), rule("orders", READ, DENY, host="::1")]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"name": "orders"}, [0, 4]),
        ({"name": "orders", "pattern": LITERAL}, [0, 4]),
        ({"name": "ord", "pattern": PREFIXED}, [1]),
        ({"name": "orders", "pattern": PREFIXED}, []),
        ({"name": "orders", "pattern": Pattern.MATCH}, [0, 1, 2, 4]),
        ({"name": "payments", "pattern": Pattern.MATCH}, [2]),
        ({"pattern": Pattern.MATCH}, [0, 1, 2, 3, 4]),
        ({"name": "*", "pattern": LITERAL}, [2]),
        ({"resource_type": GROUP}, []),
        ({"permission": DENY}, [4]),
        ({"operation": READ}, [4]),
        ({"operation": ALL}, []),
        ({"principal": "User:*"}, []),
        ({"principal": "User:app", "host": "*"}, [0, 1, 2, 3]),
    ],
)
def test_a_filter_means_the_rules_that_it_means_in_apache_kafka(wanted: dict[str, object], found: list[int]) -> None:
    matching = finish(holding(*EACH).matching(ANY_RULE._replace(**wanted)))
    assert matching == [EACH[place] for place in found]
