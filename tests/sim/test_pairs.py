"""Whole histories of two or three brokers on one store, any of which dies or stands still: nothing is lost, doubled
or out of order over a takeover. A few of the many that `make sim ARGS=--pairs` runs."""

from collections import Counter

import pytest

from sim.faults import KINDS_OF_PAIRS, never_fired
from sim.simulation import simulate_pair

# Short ones, with takeovers by brokers that are stopped, killed and fenced.
FEW = (7, 10)
MANY = range(200)


@pytest.mark.parametrize("seed", FEW)
def test_no_history_of_a_pair_shows_an_anomaly(seed: int) -> None:
    outcome = simulate_pair(seed)
    assert outcome.anomalies == [], f"make sim ARGS=--pairs SEED={seed}"
    assert outcome.fired["takeover"] > 0


def test_a_seed_replays_the_history_of_a_pair() -> None:
    assert simulate_pair(14).digest == simulate_pair(14).digest


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_history_of_many_pairs_shows_an_anomaly_and_every_kind_of_fault_fires() -> None:
    fired: Counter[str] = Counter()
    for seed in MANY:
        outcome = simulate_pair(seed)
        assert outcome.anomalies == [], f"make sim ARGS=--pairs SEED={seed}"
        fired += outcome.fired
    assert never_fired(fired, KINDS_OF_PAIRS) == []
