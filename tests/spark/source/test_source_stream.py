"""What a query reads, batch by batch, while its log grows, loses records, and is deleted and created again."""

from __future__ import annotations

import json
import logging
from itertools import pairwise
from typing import Any

import pytest
from log_under_test import LogUnderTest
from small_driver import DRIVERS, Checkpoint, SmallDriver, all_available, query, stream_reader, values

from semel.client.errors import UnknownTopic
from semel.spark.source.errors import DataLoss, OptionRefused
from semel.spark.source.reader import SlicePartition


def offsets(checkpoint: Checkpoint, topic: str, turn: int = -1) -> dict[str, Any]:
    entries: dict[str, Any] = json.loads(checkpoint.planned[turn])[topic]
    return {key: value for key, value in entries.items() if key.isdecimal()}


# The way of records


@pytest.mark.parametrize("driver_of", DRIVERS)
def test_records_come_once_in_batches_as_they_are_written(log: LogUnderTest, driver_of: type[SmallDriver]) -> None:
    topic = log.make()
    log.put(topic, "a", "b")
    driver = driver_of(query(log, topic))
    assert values(driver.batch()) == ["a", "b"]
    assert driver.batch() is None
    log.put(topic, "c")
    assert values(driver.batch()) == ["c"]
    assert driver.batch() is None


@pytest.mark.parametrize("driver_of", DRIVERS)
def test_a_query_that_begins_at_the_end_reads_what_comes_after(log: LogUnderTest, driver_of: type[SmallDriver]) -> None:
    topic = log.make()
    log.put(topic, "old")
    driver = driver_of(query(log, topic, startingOffsets="latest"))
    assert values(driver.batch()) == []
    log.put(topic, "new")
    assert values(driver.batch()) == ["new"]


@pytest.mark.parametrize("driver_of", DRIVERS)
def test_a_query_goes_on_from_its_checkpoint_whatever_its_options_say(
    log: LogUnderTest, driver_of: type[SmallDriver]
) -> None:
    topic = log.make()
    log.put(topic, "a")
    first = driver_of(query(log, topic))
    first.batch()
    log.put(topic, "b")
    assert driver_of(query(log, topic, startingOffsets="latest"), first.checkpoint).everything() != []


@pytest.mark.parametrize("driver_of", DRIVERS)
def test_a_first_batch_is_replayed_from_where_it_began_though_latest_is_elsewhere_by_then(
    log: LogUnderTest, driver_of: type[SmallDriver]
) -> None:
    topic = log.make()
    log.put(topic, "old")
    options = query(log, topic, startingOffsets="latest")
    first = driver_of(options)
    began = first.initial()
    log.put(topic, "a", "b")
    assert first.initial() == began
    assert first.plan()
    log.put(topic, "c")
    restarted = driver_of(options, first.checkpoint)
    assert values(restarted.batch()) == ["a", "b"]
    assert values(restarted.batch()) == ["c"]


def test_a_replayed_batch_has_the_same_slices_though_the_limit_and_the_log_changed(log: LogUnderTest) -> None:
    topic = log.make(2)
    for partition in (0, 1):
        log.put(topic, *"abcdef", partition=partition)
    first = SmallDriver(query(log, topic, maxOffsetsPerTrigger="6"))
    first.batch()
    first.plan()
    planned = first.slices()
    log.put(topic, "g")
    again = SmallDriver(query(log, topic, maxOffsetsPerTrigger="100"), first.checkpoint)
    assert again.plan()
    assert again.slices() == planned
    again.finish()
    assert sum(len(batch) for batch in [again.batch()] if batch) == 1


def test_records_of_open_and_aborted_transactions_are_not_read_and_the_offset_moves_on(log: LogUnderTest) -> None:
    topic = log.make()
    driver = SmallDriver(query(log, topic))
    driver.batch()
    with log.transaction(topic, "aborted", commits=False):
        log.put(topic, "behind")
        assert driver.batch() is None
    assert values(driver.batch()) == ["behind"]
    with log.transaction(topic, "committed"):
        assert driver.batch() is None
    assert values(driver.batch()) == ["committed"]
    with log.transaction(topic, "aborted", commits=False):
        pass
    assert values(driver.batch()) == []
    assert driver.batch() is None


def test_all_records_of_transactions_are_read_uncommitted_where_that_is_asked_for(log: LogUnderTest) -> None:
    topic = log.make()
    driver = SmallDriver(query(log, topic, **{"kafka.isolation.level": "read_uncommitted"}))
    with log.transaction(topic, "aborted", commits=False):
        assert values(driver.batch()) == ["aborted"]


# Limits


def test_a_limited_batch_takes_of_each_partition_in_proportion(log: LogUnderTest) -> None:
    topic = log.make(2)
    log.put(topic, *map(str, range(8)), partition=0)
    log.put(topic, *map(str, range(24)), partition=1)
    driver = SmallDriver(query(log, topic, maxOffsetsPerTrigger="8"))
    driver.batch()
    assert offsets(driver.checkpoint, topic) == {"0": 2, "1": 6}
    assert len(driver.everything()) == 24


def test_the_limit_is_put_aside_where_the_trigger_says_so(log: LogUnderTest) -> None:
    topic = log.make()
    log.put(topic, *"abcdef")
    driver = SmallDriver(query(log, topic, maxOffsetsPerTrigger="2", minOffsetsPerTrigger="2"))
    assert values(driver.batch(all_available())) == [*"abcdef"]


def test_a_batch_waits_until_it_has_its_least_size(log: LogUnderTest) -> None:
    topic = log.make()
    log.put(topic, "a")
    driver = SmallDriver(query(log, topic, minOffsetsPerTrigger="3", maxOffsetsPerTrigger="4"))
    assert values(driver.batch()) == ["a"]
    log.put(topic, "b", "c")
    assert driver.batch() is None
    log.put(topic, "d", "e", "f")
    assert values(driver.batch()) == [*"bcde"]
    impatient = SmallDriver(query(log, topic, minOffsetsPerTrigger="3", maxTriggerDelay="0"), driver.checkpoint)
    assert values(impatient.batch()) == ["f"]
    log.put(topic, "g")
    assert values(impatient.batch()) == ["g"]


def test_a_batch_waits_for_its_least_size_also_where_it_has_no_greatest(log: LogUnderTest) -> None:
    topic = log.make()
    log.put(topic, "a")
    driver = SmallDriver(query(log, topic, minOffsetsPerTrigger="3"))
    assert values(driver.batch()) == ["a"]
    log.put(topic, "b", "c")
    assert driver.batch() is None
    log.put(topic, "d", "e")
    assert values(driver.batch()) == [*"bcde"]


def test_what_was_there_at_the_start_is_read_and_no_more_where_the_trigger_is_available_now(log: LogUnderTest) -> None:
    topic = log.make()
    log.put(topic, *"abcde")
    options = query(log, topic, maxOffsetsPerTrigger="2", minOffsetsPerTrigger="2")
    driver = SmallDriver(options, available_now=True)
    log.put(topic, "later")
    log.add_partitions(topic, 2)
    log.put(topic, "elsewhere", partition=1)
    batches = []
    while (found := values(driver.batch())) is not None:
        batches.append(found)
    assert batches == [["a", "b"], ["c", "d"], ["e"]]
    assert [row["value"] for row in SmallDriver(options, driver.checkpoint, available_now=True).everything()] == [
        b"later",
        b"elsewhere",
    ]


def test_large_slices_are_cut_into_tasks(log: LogUnderTest) -> None:
    topic = log.make(2)
    log.put(topic, *map(str, range(10)))
    driver = SmallDriver(query(log, topic, minPartitions="4"))
    driver.plan()
    assert len(driver.slices()) == 4
    assert values(driver.run()) == [str(number) for number in range(10)]
    finer = SmallDriver(query(log, topic, maxRecordsPerPartition="3"))
    finer.plan()
    assert len(finer.slices()) == 4


def test_the_progress_says_where_the_log_ended_and_how_far_behind_a_limited_batch_is(log: LogUnderTest) -> None:
    topic = log.make(2)
    log.put(topic, *"abcdef")
    driver = SmallDriver(query(log, topic, maxOffsetsPerTrigger="2"))
    driver.batch()
    latest = driver.latest()
    assert latest is not None
    assert {key: latest[topic][key] for key in ("0", "1", "behind")} == {"0": 6, "1": 0, "behind": 4}
    driver.everything()
    assert driver.latest()[topic]["behind"] == 0  # type: ignore[index]


def test_a_group_shows_how_far_the_query_is_and_nobody_goes_on_from_there(log: LogUnderTest) -> None:
    topic, group = log.make(), log.new_name("group")
    log.put(topic, *"abc")
    driver = SmallDriver(query(log, topic, maxOffsetsPerTrigger="2", **{"kafka.group.id": group}))
    driver.batch()
    assert log.committed(group, topic) == 0
    assert driver.everything() != []
    assert log.committed(group, topic) == 3
    assert len(SmallDriver(query(log, topic, **{"kafka.group.id": group})).everything()) == 3


def test_a_group_in_which_somebody_else_has_offsets_is_left_alone(
    log: LogUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = log.make(), log.new_name("group")
    log.put(topic, *"abc")
    log.commit(group, topic, 1)
    driver = SmallDriver(query(log, topic, maxOffsetsPerTrigger="1", **{"kafka.group.id": group}))
    assert len(driver.everything()) == 3
    assert log.committed(group, topic) == 1
    said = [record.getMessage() for record in caplog.records if record.name == "semel.spark.source.group"]
    assert len(said) == 1
    assert f"group {group} has offsets of {topic} that no query of semel's has committed" in said[0]


def test_a_group_that_a_query_has_shown_itself_in_goes_on_with_the_next_one(log: LogUnderTest) -> None:
    topic, group = log.make(), log.new_name("group")
    for letters in ("abc", "de"):
        log.put(topic, *letters)
        SmallDriver(query(log, topic, **{"kafka.group.id": group})).everything()
    assert log.committed(group, topic) == 5


def test_a_group_that_has_members_of_its_own_is_left_alone(log: LogUnderTest, caplog: pytest.LogCaptureFixture) -> None:
    topic, group = log.make(), log.new_name("group")
    log.put(topic, *"abc")
    with log.member(group, topic):
        driver = SmallDriver(query(log, topic, maxOffsetsPerTrigger="1", **{"kafka.group.id": group}))
        assert len(driver.everything()) == 3
    # A broker in this process logs here, too.
    said = [record.getMessage() for record in caplog.records if record.name == "semel.spark.source.group"]
    assert [f"group {group} does not show" in line for line in said] == [True]


# What is new


def test_new_partitions_are_read_from_their_beginning(log: LogUnderTest) -> None:
    topic = log.make()
    driver = SmallDriver(query(log, topic, startingOffsets="latest"))
    driver.batch()
    log.add_partitions(topic, 2)
    log.put(topic, "new", partition=1)
    assert [row["value"] for row in driver.everything()] == [b"new"]


def test_a_new_topic_that_the_pattern_means_is_read_from_its_beginning(log: LogUnderTest) -> None:
    stem = log.new_name("pattern")
    options = query(log, "", subscribePattern=f"{stem}-.*", startingOffsets="latest")
    del options["subscribe"]
    driver = SmallDriver(options)
    assert values(driver.batch()) == []
    topic = log.make(name=f"{stem}-a")
    log.put(topic, "a")
    assert [row["value"] for row in driver.everything()] == [b"a"]
    log.put(log.make(name=f"{stem}-b"), "b")
    log.make(name=log.new_name("other"))
    assert [row["value"] for row in driver.everything()] == [b"b"]


def test_only_assigned_partitions_are_read(log: LogUnderTest) -> None:
    topic = log.make(3)
    for partition in range(3):
        log.put(topic, str(partition), partition=partition)
    options = query(log, "", assign=json.dumps({topic: [0, 2]}))
    del options["subscribe"]
    driver = SmallDriver(options)
    assert values(driver.batch()) == ["0", "2"]
    assert offsets(driver.checkpoint, topic) == {"0": 1, "2": 1}
    options["assign"] = json.dumps({topic: [0, 3]})
    with pytest.raises(OptionRefused, match=f"option assign names {topic}-3, and topic {topic} has 3 partitions"):
        SmallDriver(options).batch()


def test_a_query_does_not_begin_on_a_topic_that_is_not_there(log: LogUnderTest) -> None:
    with pytest.raises(UnknownTopic, match="there is no topic source-nowhere: make it before the query starts"):
        SmallDriver(query(log, "source-nowhere")).batch()
    topic = log.make(1)
    with pytest.raises(UnknownTopic, match=f"query starts; was '{topic}' meant"):
        SmallDriver(query(log, f"{topic}s")).batch()


def test_the_checkpoint_of_sparks_own_source_is_gone_on_from(log: LogUnderTest) -> None:
    topic = log.make(2)
    log.put(topic, "a", "b", "c")
    checkpoint = Checkpoint([json.dumps({topic: {"0": 2, "1": 0}})], 1)
    driver = SmallDriver(query(log, topic), checkpoint)
    assert values(driver.batch()) == ["c"]
    assert "id" in json.loads(checkpoint.planned[-1])[topic]


# Where a query begins


def test_offsets_name_a_place_in_every_partition(log: LogUnderTest) -> None:
    topic = log.make(3)
    for partition in range(3):
        log.put(topic, *"abc", partition=partition)
    given = json.dumps({topic: {"0": 1, "1": -1, "2": -2}})
    assert values(SmallDriver(query(log, topic, startingOffsets=given)).batch()) == ["b", "c", "a", "b", "c"]
    with pytest.raises(OptionRefused, match=f"missing: {topic}-1, {topic}-2$"):
        SmallDriver(query(log, topic, startingOffsets=json.dumps({topic: {"0": 1}}))).batch()
    given = json.dumps({topic: {"0": 1, "1": 0, "2": 0, "7": 0}})
    with pytest.raises(OptionRefused, match=f"name what is not read: {topic}-7$"):
        SmallDriver(query(log, topic, startingOffsets=given)).batch()


def test_times_name_the_first_record_that_is_so_late(log: LogUnderTest) -> None:
    topic = log.make(2)
    for hour in range(4):
        log.put(topic, f"0-{hour}", timestamp=1_700_000_000_000 + hour * 3_600_000)
        log.put(topic, f"1-{hour}", partition=1, timestamp=1_700_000_000_000 + hour * 3_600_000)
    at_two = str(1_700_000_000_000 + 2 * 3_600_000)
    one_time = SmallDriver(query(log, topic, startingTimestamp=at_two))
    assert values(one_time.batch()) == ["0-2", "0-3", "1-2", "1-3"]
    own_times = json.dumps({topic: {"0": int(at_two), "1": int(at_two) + 1}})
    assert values(SmallDriver(query(log, topic, startingOffsetsByTimestamp=own_times)).batch()) == ["0-2", "0-3", "1-3"]


def test_a_partition_without_a_record_so_late_is_an_error_unless_its_end_will_do(log: LogUnderTest) -> None:
    topic = log.make()
    log.put(topic, "a", timestamp=1_700_000_000_000)
    late = {"startingTimestamp": "1700000000001"}
    with pytest.raises(OptionRefused, match=f"{topic}-0 has no record as late as 1700000000001"):
        SmallDriver(query(log, topic, **late)).batch()
    driver = SmallDriver(query(log, topic, **late, startingOffsetsByTimestampStrategy="latest"))
    assert values(driver.batch()) == []


# Losses


def test_records_that_are_gone_before_they_were_read_are_a_loss(
    log: LogUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    topic = log.make()
    log.put(topic, "a")
    driver = SmallDriver(query(log, topic))
    driver.batch()
    log.put(topic, *"bcdef")
    log.delete_records(topic, before=4)
    with pytest.raises(DataLoss) as lost:
        driver.batch()
    assert str(lost.value).startswith(
        f"{topic}-0 begins at offset 4 now, and the query has come to 1: 3 offsets were deleted or expired before they "
        "were read. Set failOnDataLoss=false to go on"
    )
    assert len(driver.checkpoint.planned) == 1
    lenient = SmallDriver(query(log, topic, failOnDataLoss="false"), driver.checkpoint)
    with caplog.at_level(logging.WARNING):
        assert values(lenient.batch()) == ["e", "f"]
    said = [record.getMessage() for record in caplog.records if record.name.startswith("semel.spark")]
    assert ["3 offsets were deleted" in line for line in said] == [True]


def test_a_loss_between_planning_and_reading_is_found_by_the_task(
    log: LogUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    topic = log.make()
    log.put(topic, *"abcdef")
    driver = SmallDriver(query(log, topic))
    driver.plan()
    slices = driver.slices()
    log.delete_records(topic, before=4)
    with pytest.raises(DataLoss, match=f"{topic}-0 begins at offset 4 now"):
        driver.read(slices)
    lenient = SmallDriver(query(log, topic, failOnDataLoss="false"), driver.checkpoint)
    assert values(lenient.read(slices)) == ["e", "f"]
    assert "4 offsets were deleted" in caplog.text


def test_a_loss_is_found_when_a_batch_is_replayed(log: LogUnderTest, caplog: pytest.LogCaptureFixture) -> None:
    topic = log.make()
    log.put(topic, *"abcdef")
    SmallDriver(query(log, topic), checkpoint := Checkpoint()).plan()
    log.delete_records(topic, before=4)
    with pytest.raises(DataLoss, match=f"{topic}-0 begins at offset 4 now, and the query has come to 0"):
        SmallDriver(query(log, topic), checkpoint).batch()
    lenient = SmallDriver(query(log, topic, failOnDataLoss="false"), checkpoint)
    assert values(lenient.batch()) == ["e", "f"]
    assert "4 offsets were deleted" in caplog.text


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_topic_that_is_gone_when_a_batch_is_replayed_is_a_loss(
    log: LogUnderTest, caplog: pytest.LogCaptureFixture, is_made_anew: bool
) -> None:
    """Its records were planned, so a replay without them would lose them."""
    topic, other = log.make(), log.make()
    driver = SmallDriver(query(log, f"{topic},{other}"), checkpoint := Checkpoint())
    driver.batch()
    log.put(topic, "a")
    log.put(other, "x")
    driver.plan()
    (log.make_anew if is_made_anew else log.delete)(topic)
    told = f"topic {topic} {'was deleted and created again' if is_made_anew else 'is deleted'}"
    with pytest.raises(DataLoss, match=f"{told}.* has come to offset 1 of {topic}-0"):
        SmallDriver(query(log, f"{topic},{other}"), checkpoint).batch()
    lenient = SmallDriver(query(log, f"{topic},{other}", failOnDataLoss="false"), checkpoint)
    assert values(lenient.batch()) == ["x"]
    assert told in caplog.text


def test_a_batch_begins_where_its_own_plan_did_though_another_one_was_planned_since(log: LogUnderTest) -> None:
    """Its records would be lost, if it began where the later one does."""
    topic = log.make()
    reader = stream_reader(query(log, topic))
    ends = [reader.initialOffset()]
    for value in "ab":
        log.put(topic, value)
        ends.append(reader.latestOffset(ends[-1], all_available()))
    slices = [
        [(one.piece.start, one.piece.end) for one in reader.partitions(*batch) if isinstance(one, SlicePartition)]
        for batch in pairwise(ends)
    ]
    assert slices == [[(0, 1)], [(1, 2)]]


def test_a_deleted_topic_is_a_loss(log: LogUnderTest, caplog: pytest.LogCaptureFixture) -> None:
    topic, other = log.make(), log.make()
    log.put(topic, "a")
    driver = SmallDriver(query(log, f"{topic},{other}"))
    driver.batch()
    log.delete(topic)
    with pytest.raises(DataLoss, match=f"topic {topic} is deleted.* has come to offset 1 of {topic}-0"):
        driver.batch()
    lenient = SmallDriver(query(log, f"{topic},{other}", failOnDataLoss="false"), driver.checkpoint)
    log.put(other, "b")
    assert values(lenient.batch()) == ["b"]
    assert f"topic {topic} is deleted" in caplog.text
    assert lenient.batch() is None


@pytest.mark.parametrize("records", [[], ["x"], ["x", "y", "z"]], ids=["empty", "shorter", "longer"])
def test_a_topic_made_anew_is_a_loss_however_long_it_is(
    log: LogUnderTest, caplog: pytest.LogCaptureFixture, records: list[str]
) -> None:
    topic = log.make()
    log.put(topic, "a", "b")
    driver = SmallDriver(query(log, topic))
    driver.batch()
    log.make_anew(topic)
    log.put(topic, *records)
    told = f"topic {topic} was deleted and created again: its id was .* has come to offset 2"
    with pytest.raises(DataLoss, match=told):
        driver.batch()
    lenient = SmallDriver(query(log, topic, failOnDataLoss="false"), driver.checkpoint)
    assert values(lenient.batch()) == records
    assert "was deleted and created again" in caplog.text
    log.put(topic, "then")
    assert values(lenient.batch()) == ["then"]


def test_a_topic_made_anew_between_planning_and_reading_is_not_read_in_place_of_the_other(
    log: LogUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    topic = log.make()
    log.put(topic, "a", "b")
    driver = SmallDriver(query(log, topic))
    driver.plan()
    slices = driver.slices()
    log.make_anew(topic)
    log.put(topic, "x", "y")
    with pytest.raises(DataLoss, match="created again"):
        driver.read(slices)
    lenient = SmallDriver(query(log, topic, failOnDataLoss="false"), driver.checkpoint)
    assert values(lenient.read(slices)) == []
    assert "created again" in caplog.text
    assert values(lenient.batch()) == []
    assert values(lenient.batch()) == ["x", "y"]


def test_a_partition_that_is_not_assigned_any_more_is_a_loss(log: LogUnderTest) -> None:
    topic = log.make(2)
    options = query(log, "", assign=json.dumps({topic: [0, 1]}))
    del options["subscribe"]
    driver = SmallDriver(options)
    driver.batch()
    options["assign"] = json.dumps({topic: [0]})
    with pytest.raises(DataLoss, match=f"{topic}-1 is not there, or not assigned any more"):
        SmallDriver(options, driver.checkpoint).batch()
