"""An offset never goes back by itself: neither for open transactions, nor for a cut log or a lost topic."""

from __future__ import annotations

import json

import pytest
from log_under_test import LogUnderTest
from small_driver import DRIVERS, Checkpoint, SmallDriver, query, values

from semel.spark.source.errors import DataLoss, OptionRefused


@pytest.mark.parametrize("lenient", ["true", "false"])
def test_a_query_that_stands_behind_the_last_stable_offset_waits_there(log: LogUnderTest, lenient: str) -> None:
    """Its checkpoint is of the time when it read uncommitted records, or of Spark's own source, which does."""
    topic = log.make()
    uncommitted = SmallDriver(query(log, topic, **{"kafka.isolation.level": "read_uncommitted"}))
    with log.transaction(topic, *"abcde"):
        log.put(topic, "f")
        assert values(uncommitted.batch()) == [*"abcdef"]
        committed = SmallDriver(query(log, topic, failOnDataLoss=lenient), uncommitted.checkpoint)
        assert committed.batch() is None
        now = SmallDriver(query(log, topic, failOnDataLoss=lenient), uncommitted.checkpoint, available_now=True)
        assert now.batch() is None
        log.put(topic, "g")
        assert committed.batch() is None
    assert [row["value"] for row in committed.everything()] == [b"g"]


def test_a_query_that_begins_behind_the_last_stable_offset_waits_there_and_reads_nothing_before(
    log: LogUnderTest,
) -> None:
    """Offsets that a consumer of uncommitted records has written down, for example."""
    topic = log.make()
    with log.transaction(topic, *"abcde"):
        log.put(topic, "f")
        begin = {"startingOffsets": json.dumps({topic: {"0": 5}})}
        driver, now = (
            SmallDriver(query(log, topic, **begin)),
            SmallDriver(query(log, topic, **begin), available_now=True),
        )
        for run in (driver, now):
            assert values(run.batch()) == []
            assert run.batch() is None
        with pytest.raises(OptionRefused, match=f"{topic}-0 ends at offset 6, and the options name offset 7"):
            SmallDriver(query(log, topic, startingOffsets=json.dumps({topic: {"0": 7}}))).batch()
    assert [row["value"] for row in driver.everything()] == [b"f"]
    again = SmallDriver(query(log, topic, **begin), now.checkpoint)
    assert [row["value"] for row in again.everything()] == [b"f"]


@pytest.mark.parametrize("driver_of", DRIVERS)
def test_a_topic_that_is_read_again_goes_on_where_it_was_and_not_at_its_beginning(
    log: LogUnderTest, caplog: pytest.LogCaptureFixture, driver_of: type[SmallDriver]
) -> None:
    topic, other = log.make(2), log.make()
    both = query(log, f"{topic},{other}", failOnDataLoss="false")
    log.put(topic, "a", "b")
    log.put(topic, "c", partition=1)
    log.put(other, "x")
    first = driver_of(both)
    assert len(first.everything()) == 4
    # Without it for a while: by mistake, or because a broker did not show it.
    without = driver_of(query(log, other, failOnDataLoss="false"), first.checkpoint)
    log.put(other, "y")
    assert values(without.batch()) == ["y"]
    assert f"topic {topic} is deleted, or not subscribed to any more" in caplog.text
    assert without.batch() is None
    # The loss was said, and does not fail a stricter query later.
    assert driver_of(query(log, other), without.checkpoint).batch() is None
    log.put(topic, "d")
    log.put(topic, "e", partition=1)
    again = driver_of(both, without.checkpoint)
    assert sorted(row["value"] for row in again.everything()) == [b"d", b"e"]


@pytest.mark.parametrize("driver_of", DRIVERS)
def test_a_topic_made_anew_while_it_was_not_read_is_read_from_its_beginning(
    log: LogUnderTest, driver_of: type[SmallDriver]
) -> None:
    topic, other = log.make(), log.make()
    both = query(log, f"{topic},{other}", failOnDataLoss="false")
    log.put(topic, "a", "b")
    first = driver_of(both)
    first.everything()
    without = driver_of(query(log, other, failOnDataLoss="false"), first.checkpoint)
    without.batch()
    log.make_anew(topic)
    log.put(topic, "x", "y", "z")
    assert [row["value"] for row in driver_of(both, without.checkpoint).everything()] == [b"x", b"y", b"z"]


@pytest.mark.parametrize("driver_of", DRIVERS)
def test_a_log_that_lost_its_end_is_gone_on_with_behind_the_query_and_said_once(
    log: LogUnderTest, caplog: pytest.LogCaptureFixture, driver_of: type[SmallDriver]
) -> None:
    topic = log.make()
    log.put(topic, *"abc")
    first = driver_of(query(log, topic))
    first.batch()
    [planned] = first.checkpoint.planned
    # As if the log had gone to offset 5 when the query read it.
    checkpoint = Checkpoint([planned.replace('"0": 3', '"0": 5')], 1)
    with pytest.raises(DataLoss, match=f"{topic}-0 ends at offset 3, and the query has come to 5"):
        driver_of(query(log, topic), checkpoint).batch()
    lenient = driver_of(query(log, topic, failOnDataLoss="false"), checkpoint)
    assert lenient.batch() is None
    log.put(topic, "d")
    assert lenient.batch() is None
    log.put(topic, "e", "f")
    assert values(lenient.batch()) == ["f"]
    said = [record.getMessage() for record in caplog.records if record.name.startswith("semel.spark")]
    assert ["its last records were lost" in line for line in said] == [True]
