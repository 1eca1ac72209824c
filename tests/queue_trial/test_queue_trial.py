"""The queue that the how-to shows, with everything killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from queue_trial.run import run_trial
from semel.testing.served import ServedBroker


@pytest.mark.slow
def test_each_job_takes_effect_once_although_consumers_and_broker_are_killed(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data") as broker:
        report = run_trial(tmp_path, 200, 3, 2, broker, 7)
    assert (report.doubled, report.missing, report.brokers_killed) == (0, 0, 2)
    assert report.booked + report.put_aside == 200
