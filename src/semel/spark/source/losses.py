"""Compares a query's offsets with the log: which records the query can never read, and where it continues. Pure.

The id of a topic shows whether it was deleted and created again. If the brokers give topics no ids, nobody can see
that. This file must never take a query back to an offset of the same topic that it has passed, whatever else is wrong.
"""

from collections.abc import Mapping
from typing import Final

from semel.client.places import NO_ID, TopicPartition
from semel.spark.source.offsets import Offsets

ADVICE: Final = (
    "Set failOnDataLoss=false to go on with the records that are left, or begin again with another checkpointLocation "
    "and startingOffsets"
)


def is_same_topic(known: Offsets, now: Offsets, name: str) -> bool:
    """Whether this topic is the one that was read before, as far as its id shows it."""
    before, current = known.ids.get(name, NO_ID), now.ids[name]
    return before == current or NO_ID in (before, current)


def gone(known: Offsets, now: Offsets) -> list[str]:
    """The topics and partitions that were read before and do not exist any more, in one sentence for each topic."""
    sentences = []
    offsets_of: dict[str, dict[TopicPartition, int]] = {name: {} for name in sorted(known.ids)}
    for place in sorted(known.at):
        offsets_of[place.topic][place] = known.at[place]
    for name, offsets in offsets_of.items():
        if not offsets:
            # All its partitions were gone earlier already, and that was logged.
            continue
        reached = ", ".join(f"offset {offset} of {place}" for place, offset in offsets.items())
        if name not in now.ids:
            sentences.append(f"topic {name} is deleted, or not subscribed to any more; the query has come to {reached}")
        elif not is_same_topic(known, now, name):
            sentences.append(
                f"topic {name} was deleted and created again: its id was {known.ids[name]} and is {now.ids[name]}; "
                f"the query has come to {reached}, of the topic that is deleted"
            )
        elif missing := [str(place) for place in offsets if place not in now.at]:
            sentences.append(f"{', '.join(missing)} is not there, or not assigned any more")
    return sentences


def ahead(known: Offsets, now: Offsets) -> list[TopicPartition]:
    """Partitions in which the query is ahead of the last offset that may be read now. This is no loss if the log
    reaches that far: a query that read uncommitted records has passed transactions that are open."""
    return [
        place
        for place, offset in sorted(known.reached.items())
        if place in now.at and is_same_topic(known, now, place.topic) and offset > now.at[place]
    ]


def behind_the_end(known: Offsets, log_ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
    """Partitions that end before the offset that the query has reached: the end of the log was lost."""
    reached = known.reached
    return {
        place: f"{place} ends at offset {end}, and the query has come to {reached[place]}: its last records were lost, "
        f"and what is written from now on is read from offset {reached[place]} on"
        for place, end in log_ends.items()
        if reached[place] > end
    }


def going_on(known: Offsets, now: Offsets) -> Offsets:
    """The present ends, but in the same topic never below the offset that the query has reached; and the offsets that
    it had reached in partitions that are gone, because they may come back."""
    reached = known.reached
    at = {
        place: max(offset, reached.get(place, 0)) if is_same_topic(known, now, place.topic) else offset
        for place, offset in now.at.items()
    }
    gone = {
        place: offset
        for place, offset in reached.items()
        if place not in now.at and (place.topic not in now.ids or is_same_topic(known, now, place.topic))
    }
    return Offsets({**{place.topic: known.ids[place.topic] for place in gone}, **now.ids}, at, gone=gone)


def expected_begins(known: Offsets, now: Offsets) -> dict[TopicPartition, int]:
    """Where the query continues in each partition: at the offset that it has reached, or at 0 in a partition that is
    new to it."""
    reached = known.reached
    return {place: reached.get(place, 0) if is_same_topic(known, now, place.topic) else 0 for place in sorted(now.at)}


def truncated(expected: Mapping[TopicPartition, int], log_starts: Mapping[TopicPartition, int]) -> list[str]:
    """Partitions whose log begins after the offset at which the query continues: records were deleted before it read
    them."""
    return [
        truncation(place, offset, log_starts[place])
        for place, offset in sorted(expected.items())
        if log_starts.get(place, 0) > offset
    ]


def truncation(place: TopicPartition, offset: int, log_start: int) -> str:
    return (
        f"{place} begins at offset {log_start} now, and the query has come to {offset}: {log_start - offset} offsets "
        "were deleted or expired before they were read"
    )
