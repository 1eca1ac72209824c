"""Decides which partitions are worth a pass, and makes the pass, on the event loop and without changing anything.

A pass may rewrite sealed segments that are old enough and have only durable records without open transactions. It is
worth while if enough of them is new since the last pass, as in Apache Kafka; it is also due when a record has waited
too long, or when the time of an earlier pass's tombstones is up.
"""

from collections.abc import Callable

from semel.log.compaction.passes import Pass
from semel.log.compaction.rewrite import AT_NEXT_PASS, Rules, has_gone_by
from semel.log.core.configs import TopicConfigs
from semel.log.core.values import value
from semel.log.storage.files import Files
from semel.log.storage.partition_log import PartitionLog
from semel.log.storage.segment import Segment


@value
class Bounds:
    """The limits of a pass."""

    key_bytes_max: int
    opened_bytes_max: int


@value
class Plan:
    """A partition that is worth a pass; the larger its new part, the more urgent."""

    partition: PartitionLog
    configs: TopicConfigs
    segments: list[Segment]
    dirty_ratio: float

    def begin(self, files: Files, bounds: Bounds, now_ms: int, pause: Callable[[], None]) -> Pass:
        """Make the pass, from values that do not change any more."""
        partition, configs = self.partition, self.configs
        return Pass(
            files=files,
            directory=partition.directory,
            segments=self.segments,
            cleaned_until=partition.cleaned_until,
            aborted=partition.aborted.for_thread(),
            rules=Rules(
                now_ms=now_ms,
                delete_retention_ms=configs.delete_retention_ms,
                last_offset=self.segments[-1].next_offset - 1,
                opened_bytes_max=bounds.opened_bytes_max,
            ),
            key_bytes_max=bounds.key_bytes_max,
            segment_bytes=configs.segment_bytes,
            pause=pause,
            given_up=partition.given_up,
        )


def plan(partition: PartitionLog, configs: TopicConfigs, now_ms: int, *, is_unfinished: bool = False) -> Plan | None:
    """The plan for a partition, or None if it can wait. `is_unfinished` means that the last pass did not get to the
    end.
    """
    segments = _cleanable(partition, configs, now_ms)
    if not segments:
        return None
    dirty = [segment for segment in segments if segment.next_offset > partition.cleaned_until]
    dirty_ratio = sum(segment.size for segment in dirty) / max(sum(segment.size for segment in segments), 1)
    has_waited = bool(dirty) and now_ms - dirty[0].begun_at_ms >= configs.compaction_lag_max_ms
    if (
        dirty_ratio > configs.dirty_ratio_min
        or (dirty and is_unfinished)
        or has_waited
        or any(is_overdue(segment, now_ms) for segment in segments)
    ):
        return Plan(partition, configs, segments, dirty_ratio)
    return None


def is_overdue(segment: Segment, now_ms: int) -> bool:
    """Whether the time of tombstones in a segment is up, and a pass now could remove them."""
    return segment.horizon_ms != AT_NEXT_PASS and has_gone_by(segment.horizon_ms, now_ms)


def is_to_roll(partition: PartitionLog, configs: TopicConfigs, now_ms: int) -> bool:
    """Whether the growing segment is old enough to be sealed; without this, a quiet topic would never be compacted."""
    segments = partition.segments
    return bool(segments) and segments[-1].size > 0 and now_ms - segments[-1].begun_at_ms >= configs.segment_ms


def _cleanable(partition: PartitionLog, configs: TopicConfigs, now_ms: int) -> list[Segment]:
    """The sealed segments, from the first one up to the first with a record that is too young or not yet stable."""
    cleanable = []
    stable_offset = partition.stable.offset
    lag_min_ms = configs.compaction_lag_min_ms
    for segment in partition.segments[:-1]:
        latest_ms = segment.max_timestamp if segment.max_timestamp >= 0 else segment.begun_at_ms
        if segment.next_offset > stable_offset or (lag_min_ms and now_ms - latest_ms < lag_min_ms):
            break
        cleanable.append(segment)
    return cleanable
