"""What a query has not read and never will: found by holding its offsets against what the log holds now. Pure.

A topic is told from another one of the same name by its id. Where brokers give topics no ids, nothing is said of that.
"""

from collections.abc import Mapping
from typing import Final

from semel.spark.log.places import NO_ID, TopicPartition
from semel.spark.source.offsets import Offsets

ADVICE: Final = (
    "Set failOnDataLoss=false to go on with what there is, or begin anew with another checkpointLocation and "
    "startingOffsets"
)


def is_same_topic(known: Offsets, now: Offsets, name: str) -> bool:
    """Whether a topic is the one that was read before, as far as ids can tell."""
    before, current = known.ids.get(name, NO_ID), now.ids[name]
    return before == current or NO_ID in (before, current)


def gone(known: Offsets, now: Offsets) -> list[str]:
    """What was read before and is not there any more: topics and partitions, one sentence for each topic."""
    said = []
    offsets_of: dict[str, dict[TopicPartition, int]] = {name: {} for name in sorted(known.ids)}
    for place in sorted(known.at):
        offsets_of[place.topic][place] = known.at[place]
    for name, offsets in offsets_of.items():
        reached = ", ".join(f"offset {offset} of {place}" for place, offset in offsets.items())
        if name not in now.ids:
            said.append(f"topic {name} is deleted, or not subscribed to any more; the query has come to {reached}")
        elif not is_same_topic(known, now, name):
            said.append(
                f"topic {name} was deleted and made anew: its id was {known.ids[name]} and is {now.ids[name]}; "
                f"the query has come to {reached}, of the topic that is deleted"
            )
        elif missing := [str(place) for place in offsets if place not in now.at]:
            said.append(f"{', '.join(missing)} is not there, or not assigned any more")
    return said


def behind_the_end(known: Offsets, now: Offsets) -> list[str]:
    """Partitions that end before the place where the query stands: the end of the log was lost."""
    return [
        f"{place} ends at offset {now.at[place]}, and the query has come to {offset}: its last records were lost"
        for place, offset in sorted(known.at.items())
        if place in now.at and is_same_topic(known, now, place.topic) and offset > now.at[place]
    ]


def expected_begins(known: Offsets, now: Offsets) -> dict[TopicPartition, int]:
    """Where the query goes on in each partition: where it was, or at the beginning of what is new to it."""
    return {place: known.at.get(place, 0) if is_same_topic(known, now, place.topic) else 0 for place in sorted(now.at)}


def truncated(expected: Mapping[TopicPartition, int], log_starts: Mapping[TopicPartition, int]) -> list[str]:
    """Partitions whose log begins behind the place where the query goes on: records were deleted before it came."""
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
