"""Whole histories of the real broker in a world where everything goes wrong: nothing is lost, doubled or out of order.

A few of the many that `make sim` runs. The seed replays a history exactly: `make sim SEED=17`.
"""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from sim.faults import never_fired
from sim.simulation import simulate

SEEDS = range(15)
TESTS = Path(__file__).parent.parent


def test_no_history_shows_an_anomaly_and_every_kind_of_fault_fires() -> None:
    fired: Counter[str] = Counter()
    for seed in SEEDS:
        outcome = simulate(seed)
        assert outcome.anomalies == [], f"make sim SEED={seed}"
        fired += outcome.fired
    assert never_fired(fired) == []


def test_a_seed_replays_its_history_to_the_byte() -> None:
    """In another process, too, where strings hash otherwise and objects lie elsewhere."""
    told = "import sys; from sim.simulation import simulate; sys.stdout.write('\\n'.join(simulate(3).history))"
    histories = {
        subprocess.run(
            [sys.executable, "-c", told],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    histories.add("\n".join(simulate(3).history).encode())
    assert len(histories) == 1
    assert simulate(3).history != simulate(4).history
