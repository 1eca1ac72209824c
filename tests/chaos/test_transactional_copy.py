"""A copy by transactions is whole, in order and without doubles, whoever is killed on the way; and a copy that is not
would be caught.

SEMEL_COPY_RECORDS=100000 makes the run as long as `semel chaos copy` makes it.
"""

import os
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from figures import figures_of

from semel.chaos.copy import BROKER, PARTITIONS, SOURCE, CopyPlan, CopyReport, compare, write_source
from semel.chaos.topic_reader import to_the_end
from semel.testing.served import ServedBroker

RECORDS = int(os.environ.get("SEMEL_COPY_RECORDS", "6000"))
KILLS = int(os.environ.get("SEMEL_COPY_KILLS", "2"))
WORKERS = 2
PLAN = CopyPlan(records=8, workers=WORKERS, transaction_records=2, kills=3, seed=1)


@pytest.mark.timeout(600)
def test_a_copy_is_whole_although_workers_and_broker_are_killed() -> None:
    sizes = ("--records", str(RECORDS), "--workers", str(WORKERS), "--kills", str(KILLS))
    figures = figures_of("copy", "--transaction", "100", *sizes)
    assert int(figures["records copied"]) == RECORDS
    assert {figures[name] for name in ("lost", "doubled", "out of order", "foreign", "seen otherwise")} == {"0"}
    assert int(figures["workers killed"]) == WORKERS * KILLS
    assert int(figures["broker killed"]) == KILLS


def test_more_records_than_the_queue_of_a_client_holds_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue of a client holds 100,000 records by default."""
    producer = confluent_kafka.Producer

    def with_short_queue(settings: dict[str, Any]) -> confluent_kafka.Producer:
        return producer({**settings, "queue.buffering.max.messages": 10})

    monkeypatch.setattr(confluent_kafka, "Producer", with_short_queue)
    with ServedBroker(tmp_path) as broker:
        write_source(broker.bootstrap, 100)
        assert sum(1 for _ in to_the_end(broker.bootstrap, SOURCE, committed=True)) == 100


def test_the_seed_replays_the_kills() -> None:
    faults = PLAN.faults()
    assert faults == PLAN.faults()
    assert faults != CopyPlan(8, WORKERS, 2, 3, seed=2).faults()
    assert sorted(kill.victim for kill in faults) == [BROKER] * 3 + [0] * 3 + [1] * 3
    assert [kill.at_records for kill in faults] == sorted(kill.at_records for kill in faults)


GOOD = [[0, 4], [1, 5], [2, 6], [3, 7]]
"""Each partition's numbers, as four partitions hold eight records."""


def compared(stored: list[list[int | None]]) -> CopyReport:
    assert len(stored) == PARTITIONS
    report = CopyReport(PLAN)
    compare(report, stored, stored)
    return report


def test_a_whole_copy_has_no_violations() -> None:
    assert compared([*GOOD]).violations == []


@pytest.mark.parametrize(
    ("partition", "violation"),
    [
        ([0], "1 records were lost"),
        ([0, 4, 4], "1 records are stored twice"),
        ([4, 0], "1 records are out of order"),
        ([0, 4, None], "1 records are copies of nothing"),
        ([0, 4, 8], "1 records are copies of nothing"),
    ],
)
def test_every_broken_promise_of_a_copy_is_a_violation(partition: list[int | None], violation: str) -> None:
    assert compared([partition, *GOOD[1:]]).violations == [violation]


def test_a_reader_that_saw_something_else_is_a_violation() -> None:
    report = CopyReport(PLAN)
    compare(report, GOOD, [[0, 4], [1], [2, 6], [7, 3]])
    assert report.violations == ["3 records were read otherwise than they are stored"]


def test_a_kill_that_never_struck_is_a_violation() -> None:
    assert CopyReport(PLAN, kills_missed=1).violations == ["1 kills never struck"]
