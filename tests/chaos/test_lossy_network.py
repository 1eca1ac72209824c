"""The promise of the whole log, kept on a bad network; and that a log which breaks it would be caught.

SEMEL_CHAOS_SECONDS=60 makes the run as long as `semel chaos` makes it.
"""

import os

import pytest
from figures import figures_of

import semel
from semel.chaos import run
from semel.chaos.plan import Fault
from semel.log.core import batch_checks
from semel.wire.sequences import ACCEPTED, Judgement

SECONDS = float(os.environ.get("SEMEL_CHAOS_SECONDS", "8"))


@pytest.mark.timeout(SECONDS + 180)
def test_on_a_lossy_network_nothing_is_lost_doubled_or_out_of_order() -> None:
    figures = figures_of("--seconds", str(SECONDS), "--seed", "1")
    assert {figures[name] for name in ("lost", "doubled", "out of order", "misplaced", "unanswered")} == {"0"}
    assert int(figures["duplicates absorbed"]) > 0
    assert all(int(figures[f"fault {fault}"]) > 0 for fault in run.ODDS)
    assert figures["records sent"] == figures["acknowledged"] == figures["stored"]


def test_a_broker_that_recognises_no_duplicate_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_checks, "judge", lambda *_: Judgement(ACCEPTED))
    with semel.broker() as broker:
        report = run.run(broker.bootstrap, lambda: 0, seconds=0, seed=1, note=lambda _: None)
    assert report.doubled > 0
    assert all(report.fired[fault] for fault in run.ODDS), "however short, the run lasts until all faults have struck"
    assert "the broker met no duplicate" in report.violations


def test_every_broken_promise_is_a_violation() -> None:
    report = run.Report(1, 1.0, sent=5, acknowledged=4, stored=4, duplicates_absorbed=1)
    report.fired.update(Fault)
    assert report.violations == []
    for name in ("lost", "doubled", "out_of_order", "misplaced", "unanswered"):
        setattr(report, name, 1)
        assert len(report.violations) == 1, name
        setattr(report, name, 0)
    del report.fired[Fault.CUT]
    assert report.violations == ["the fault cut never struck"]


def test_zeros_are_among_the_figures() -> None:
    lines = run.Report(1, 1.0).lines()
    assert "lost                 0" in lines
    assert "fault drop_ack       0" in lines
