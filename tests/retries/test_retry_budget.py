"""A retry budget gives out no more than was earned, saved and filled in by time, whichever way it is used."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.retries import Retries, RetryBudget
from semel.testing.clock import Clock

STEPS = st.lists(
    st.one_of(
        st.just(("earn", 0)),
        st.just(("take", 0)),
        st.just(("credit", 0)),
        st.tuples(st.just("wait"), st.integers(0, 5_000)),
    ),
    max_size=60,
)


@given(STEPS, st.integers(0, 10), st.integers(1, 20), st.integers(1, 20))
def test_it_does_what_a_list_of_single_thousandths_does(
    steps: list[tuple[str, int]], tenths: int, per_second: int, reserve: int
) -> None:
    """The model counts in whole thousandths of a token, one after another."""
    clock = Clock()
    budget = RetryBudget(tenths / 10, per_second=per_second, reserve=reserve, clock=clock)
    full = tokens = reserve * 1000
    for what, ms in steps:
        if what == "earn":
            budget.earn()
            tokens = min(tokens + tenths * 100, full)
        elif what == "wait":
            clock.ms += ms
            tokens = min(tokens + ms * per_second, full)
        elif what == "take":
            assert budget.take() == (tokens >= 1000)
            tokens -= 1000 if tokens >= 1000 else 0
        else:
            tokens -= 1000
            assert budget.take_on_credit() == pytest.approx(max(-tokens, 0) / per_second / 1000)
        assert budget.tokens == pytest.approx(tokens / 1000)


def test_an_outage_costs_a_share_of_the_requests_more_and_no_storm() -> None:
    """A thousand calls that all fail at once: 10 retries that were saved, and one for each ten calls."""
    budget = RetryBudget(0.1, per_second=1, reserve=10, clock=Clock())
    retries = 0
    for _ in range(1_000):
        budget.earn()
        while budget.take():
            retries += 1
    # What the first call earned found the bucket full.
    assert retries == 10 + 99


def test_loops_that_have_to_go_on_retry_no_faster_than_time_fills_the_bucket() -> None:
    clock = Clock()
    budget = RetryBudget(per_second=2, reserve=1, clock=clock)
    assert [budget.take_on_credit() for _ in range(4)] == [0.0, 0.5, 1.0, 1.5]
    clock.ms += 1_500
    assert budget.take_on_credit() == 0.5


@pytest.mark.parametrize("wrong", [{"share": -0.1}, {"share": 1.1}, {"per_second": 0}, {"reserve": 0}])
def test_a_budget_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="a share is 0 to 1"):
        RetryBudget(**wrong)  # type: ignore[arg-type]


def test_waits_double_up_to_their_limit_whatever_the_number() -> None:
    retries = Retries(first_wait_ms=100, wait_ms_max=1_000)
    assert [retries.wait_seconds(n, 0.0) for n in (1, 2, 4, 5, 10**9)] == [0.1, 0.2, 0.8, 1.0, 1.0]


def test_the_random_part_of_a_wait_is_half_of_it_at_most() -> None:
    """Else some would retry at once, and a service that is too slow would get them all the same."""
    retries = Retries(first_wait_ms=100, wait_ms_max=1_000)
    assert [retries.wait_seconds(n, 0.5) for n in (1, 2)] == [0.075, 0.15]
    assert 0.05 <= retries.wait_seconds(1, 1 - 2**-53) < 0.051
