"""What the guard keeps: answers, so that asking is cheap, and no more of them than a client may fill memory with."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

from guarded import TOPIC, rule
from profiled import profiled
from semel.log.broker.events import Events
from semel.log.broker.guard import ANSWERS_MAX, NAME_CHARACTERS_MAX, Guard
from semel.log.broker.metrics import Metrics
from semel.log.broker.rights import WRITE_TOPIC
from semel.log.core.access import AccessRules, Operation, Principal

REQUEST: Any = SimpleNamespace(principal=Principal("User", "app"), client_host="10.0.0.7")


def guard_of(access: AccessRules) -> Guard:
    return Guard(access, in_force=True, super_users=(), metrics=Metrics(), events=Events())


def test_no_more_answers_are_kept_than_are_allowed() -> None:
    guard = guard_of(AccessRules())
    for number in range(ANSWERS_MAX + 10):
        assert not guard.sees(REQUEST, WRITE_TOPIC, f"topic-{number}")
    assert len(guard._answers) == 10


def test_a_name_that_no_topic_can_have_is_not_kept() -> None:
    guard = guard_of(AccessRules())
    assert not guard.sees(REQUEST, WRITE_TOPIC, "x" * (NAME_CHARACTERS_MAX + 1))
    assert guard._answers == {}


def test_an_answer_counts_for_the_client_that_asked_and_until_a_rule_changes() -> None:
    access = AccessRules()
    guard = guard_of(access)
    other: Any = SimpleNamespace(principal=Principal("User", "other"), client_host="10.0.0.7")
    elsewhere: Any = SimpleNamespace(principal=Principal("User", "app"), client_host="10.0.0.8")
    for _ in range(2):
        assert not guard.sees(REQUEST, WRITE_TOPIC, "orders")
        added = access.decide_add([rule(TOPIC, "orders", Operation.WRITE, principal="User:app", host="10.0.0.7")])
        assert added is not None
        access.apply(added)
        assert guard.sees(REQUEST, WRITE_TOPIC, "orders")
        assert not guard.sees(other, WRITE_TOPIC, "orders")
        assert not guard.sees(elsewhere, WRITE_TOPIC, "orders")
        removed = access.decide_remove(added.rules)
        assert removed is not None
        access.apply(removed)


def test_an_answer_takes_as_many_calls_with_ten_thousand_rules_as_with_one() -> None:
    calls = []
    for others in (0, 5_000):
        access = AccessRules()
        own = rule(TOPIC, "orders", Operation.WRITE, principal="User:app", host="*")
        of_others = [own._replace(principal=f"User:app-{number}") for number in range(others)]
        of_other_topics = [own._replace(name=f"orders-{number}") for number in range(others)]
        added = access.decide_add([*of_others, own, *of_other_topics])
        assert added is not None
        access.apply(added)
        guard = guard_of(access)
        calls.append([calls_of(guard), calls_of(guard)])
    assert calls[0] == calls[1]
    (first, second), _ = calls
    assert second < first


def calls_of(guard: Guard) -> int:
    """How many functions are called until the guard has answered."""
    events: Counter[str] = Counter()
    with profiled(lambda frame, event, about: events.update([event])):
        is_allowed = guard.sees(REQUEST, WRITE_TOPIC, "orders")
    assert is_allowed
    return events["call"] + events["c_call"]
