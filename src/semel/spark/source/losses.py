"""What a query has not read and never will, and where it goes on: its offsets compared with the log. Pure.

A topic is told from another one of the same name by its id. Where brokers give topics no ids, nothing is said of that.
This must never take a query back to an offset of the same topic that it has passed, whatever else is wrong.
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
    """Whether a topic is the one that was read before, as far as ids can tell."""
    before, current = known.ids.get(name, NO_ID), now.ids[name]
    return before == current or NO_ID in (before, current)


def gone(known: Offsets, now: Offsets) -> list[str]:
    """What was read before and is not there any more: topics and partitions, one sentence for each topic."""
    sentences = []
    offsets_of: dict[str, dict[TopicPartition, int]] = {name: {} for name in sorted(known.ids)}
    for place in sorted(known.at):
        offsets_of[place.topic][place] = known.at[place]
    for name, offsets in offsets_of.items():
        if not offsets:
            # All of it was gone before, and that was logged.
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
    """Partitions in which the query is ahead of what may be read now. It is no loss if the log goes on to there: a
    query that read uncommitted records has passed transactions that are open."""
    return [
        place
        for place, offset in sorted(known.reached.items())
        if place in now.at and is_same_topic(known, now, place.topic) and offset > now.at[place]
    ]


def behind_the_end(known: Offsets, log_ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
    """Partitions that end before the place where the query stands: the end of the log was lost."""
    reached = known.reached
    return {
        place: f"{place} ends at offset {end}, and the query has come to {reached[place]}: its last records were lost, "
        f"and what is written from now on is read from offset {reached[place]} on"
        for place, end in log_ends.items()
        if reached[place] > end
    }


def going_on(known: Offsets, now: Offsets) -> Offsets:
    """The records that exist now, from the place where the query stands on; and how far it came in partitions that are
    gone, because they may come back."""
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
    """Where the query goes on in each partition: where it was, or at the beginning of what is new to it."""
    reached = known.reached
    return {place: reached.get(place, 0) if is_same_topic(known, now, place.topic) else 0 for place in sorted(now.at)}


def truncated(expected: Mapping[TopicPartition, int], log_starts: Mapping[TopicPartition, int]) -> list[str]:
    """Partitions whose log begins after the place where the query goes on: records were deleted before it came."""
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
