"""When a partition is compacted, and which of its segments: each bound holds to the millisecond and the byte."""

import pytest

from semel.log.compaction.plan import is_to_roll, plan
from semel.log.core.configs import TopicConfigs, parse
from semel.log.core.partition import Partition
from semel.log.core.producer_table import Snapshot
from semel.log.storage.aborted_blocks import BLOCK_LAYOUT
from semel.log.storage.checkpoint import PartitionParts
from semel.log.storage.files import MemoryFiles
from semel.log.storage.partition_log import Mark, PartitionLog
from semel.log.storage.segment import Index
from semel.log.storage.segment_files import SegmentFiles


def configs(**values: object) -> TopicConfigs:
    given = {name.replace("_", "."): str(value) for name, value in values.items()}
    return parse({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1", **given})


def segmented(
    *begun_at_ms: int, cleaned_until: int = 0, latest_ms: int = 0, horizon_ms: int = -1, last_bytes: int = 100
) -> PartitionLog:
    """A partition with a record and 100 bytes in each segment, of which the last one grows."""
    partition = PartitionLog(0, 0, "topics/0-orders/0", SegmentFiles(MemoryFiles()), BLOCK_LAYOUT, Partition())
    sizes = [*[100] * (len(begun_at_ms) - 1), last_bytes]
    segments = [
        (number, number + 1, size, latest_ms, begun_ms, 0, horizon_ms, 0)
        for number, (size, begun_ms) in enumerate(zip(sizes, begun_at_ms, strict=True))
    ]
    end = len(segments)
    record = {
        "log_start": 0,
        "next_offset": end,
        "epochs": [],
        "cleaned_until": cleaned_until,
        "segments": segments,
        "given_up": [],
    }
    partition.restore(record, PartitionParts(Index(), Snapshot({}, []), {}, b"", b""))
    partition.readable = partition.stable = partition.end_mark()
    return partition


def count(partition: PartitionLog, given: TopicConfigs, now_ms: int, *, is_unfinished: bool = False) -> int:
    """How many segments are compacted."""
    planned = plan(partition, given, now_ms, is_unfinished=is_unfinished)
    return 0 if planned is None else len(planned.segments)


def test_only_more_than_the_share_that_may_be_new_is_compacted() -> None:
    half_new = segmented(0, 0, 0, cleaned_until=1)
    assert count(half_new, configs(min_cleanable_dirty_ratio=0.5), 0) == 0
    assert count(half_new, configs(min_cleanable_dirty_ratio=0.49), 0) == 2


def test_nothing_is_compacted_over_and_over_where_nothing_has_to_be_new() -> None:
    assert count(segmented(0, 0, cleaned_until=1), configs(min_cleanable_dirty_ratio=0), 0) == 0


def test_a_pass_that_did_not_get_to_the_end_is_gone_on_with_however_little_is_left() -> None:
    partition = segmented(0, 0, 0, cleaned_until=1)
    assert [count(partition, configs(), 0, is_unfinished=one) for one in (False, True)] == [0, 2]
    assert count(segmented(0, 0, cleaned_until=1), configs(), 0, is_unfinished=True) == 0


@pytest.mark.parametrize("has_times", [True, False], ids=["by its time", "by its stay"])
def test_a_record_is_left_alone_until_it_is_exactly_as_old_as_it_has_to_be(has_times: bool) -> None:
    partition = segmented(500, 500, latest_ms=500 if has_times else -1)
    lag = configs(min_compaction_lag_ms=1_000, min_cleanable_dirty_ratio=0)
    assert [count(partition, lag, now_ms) for now_ms in (1_499, 1_500)] == [0, 1]


def test_the_first_new_segment_waits_for_exactly_as_long_as_a_record_may() -> None:
    lag = configs(max_compaction_lag_ms=1_000)
    partition = segmented(0, 500, 900, cleaned_until=1)
    assert [count(partition, lag, now_ms) for now_ms in (1_499, 1_500)] == [0, 2]


def test_what_may_still_be_aborted_and_all_that_follows_is_not_compacted() -> None:
    partition = segmented(0, 0, 0, 0)
    partition.stable = Mark(2, 2, 0)
    assert count(partition, configs(min_cleanable_dirty_ratio=0), 0) == 2


def test_marks_of_deletion_go_when_their_time_is_up_though_nothing_is_new() -> None:
    partition = segmented(0, 0, cleaned_until=2, horizon_ms=700)
    assert [count(partition, configs(), now_ms) for now_ms in (699, 700)] == [0, 1]
    assert count(segmented(0, 0, cleaned_until=2, horizon_ms=0), configs(), 700) == 0


def test_the_growing_segment_of_a_quiet_topic_is_sealed_when_it_is_old_enough_unless_it_is_empty() -> None:
    age = configs(segment_ms=1_000)
    assert [is_to_roll(segmented(0, 500), age, now_ms) for now_ms in (1_499, 1_500)] == [False, True]
    assert not is_to_roll(segmented(0, 500, last_bytes=0), age, 1_500)
