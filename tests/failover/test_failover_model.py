"""Holds that the protocol of the replicated journal loses nothing, in every state of small worlds, and that each of its
rules is needed: left out, it leads to a state that a person can follow step by step."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

import pytest

from failover.protocol import Protocol
from failover.rules import RULES
from failover.search import exhaust, reached, shortest, without
from failover.states import Size
from failover.worlds import ASKED, ASKED_AT_ANY_TIME, REMOVED, SMALL, world_without


@pytest.mark.parametrize("size", SMALL, ids=str)
def test_in_no_state_is_anything_lost_that_was_acknowledged(size: Size) -> None:
    outcome = exhaust(size)
    assert not outcome.violation, outcome.told()
    # A search that ended early would have found nothing, too.
    assert outcome.states > 5_000


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_missed_when_it_is_left_out(rule: str) -> None:
    outcome = shortest(world_without(rule), without(rule))
    assert outcome.violation, f"nobody notices that {rule} is left out"
    assert len(outcome.trace) < 25
    assert outcome.told().count("\n") == len(outcome.trace)


def test_all_that_can_happen_does_happen_in_the_small_worlds() -> None:
    """A step that no state has would prove nothing about the rule that it belongs to."""
    assert steps_of(ASKED_AT_ANY_TIME) - steps_of(SMALL[0]) == {
        "writer N is asked what it knows",
        "writer N looks for a proof, and finds slot N missing",
        "writer N looks for a proof, and finds slot N, which it has sent",
        "writer N answers",
    }
    assert steps_of(REMOVED) - steps_of(SMALL[0]) == {
        "writer N renews the lease",
        "the entry N in slot N is removed by a person",
        "the fence of epoch N in slot N is removed by a person",
        "writer N finds slot N after all, and reads it again",
    }
    assert steps_of(SMALL[0]) == {
        "writer N starts: it reads from the floor",
        "writer N reads slot N: nothing",
        "writer N reads slot N: entry N",
        "writer N reads slot N: fence of epoch N",
        "writer N applies slot N",
        "writer N finds slot N below the floor, and begins again",
        "writer N sends a fence to slot N",
        "writer N hears that slot N is taken, and reads it",
        "writer N knows that its fence is in slot N",
        "writer N finds its fence above the floor: it is active",
        "writer N finds its fence below the floor, and begins again",
        "writer N sends entry N to slot N",
        "writer N takes a checkpoint of the slots below N",
        "writer N moves the floor to slot N",
        "writer N knows that slot N is created",
        "writer N finds slot N taken: it is fenced, and ends",
        "the entry N of writer N lands in slot N",
        "the fence of epoch N of writer N lands in slot N",
        "the entry N in slot N is deleted",
        "the fence of epoch N in slot N is deleted",
    }


@cache
def told(size: Size) -> Counter[str]:
    """Each step that is taken in this world, and in how many states."""
    return Counter(step for step, _ in reached(Protocol(size)))


def steps_of(size: Size) -> set[str]:
    return {re.sub(r"\d+", "N", step) for step in told(size)}


def test_who_was_replaced_is_asked_and_never_answers_what_is_out_of_date() -> None:
    """Such a question comes in many states, and its answer leaves in none."""
    assert sum(count for step, count in told(ASKED).items() if "is asked" in step) > 1_000
    assert not any("answers" in step for step in told(ASKED))


def test_a_hole_is_never_fenced_and_every_hole_is_noticed() -> None:
    """Where nobody looks, the shortest way to a loss is a removal and a fence in its place."""
    trace = shortest(REMOVED, without("holes_are_looked_for_before_the_fence")).trace
    assert any("is removed by a person" in step for step in trace)
    assert trace[-1].endswith("it is active")


def test_a_search_finds_the_shortest_way_there_is() -> None:
    outcome = shortest(SMALL[0], without("answers_leave_in_order"))
    assert outcome.trace == (
        "writer 0 sends entry 10 to slot 0",
        "writer 0 sends entry 11 to slot 1",
        "writer 0 knows that slot 1 is created",
    )
    assert outcome.violation == "writer 0 acknowledged [10 11], a recovery reads []"
    assert exhaust(SMALL[0], without("answers_leave_in_order")).violation == outcome.violation
