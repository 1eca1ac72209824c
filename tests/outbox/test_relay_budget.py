"""A relay that waits takes its retries out of the budget that the process shares."""

import threading

from semel.outbox.shard import Patience
from semel.retries import RetryBudget
from semel.testing.clock import Clock


def test_a_wait_of_the_relay_costs_a_retry_of_the_budget() -> None:
    budget = RetryBudget(per_second=1, reserve=10, clock=Clock())
    Patience(threading.Event(), budget=budget).wait_for("the brokers", "away")
    assert budget.tokens == 9
