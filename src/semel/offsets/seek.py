"""Lets a consumer of confluent-kafka begin at the offsets of the table, and not at those of its group.

An offset that the partition does not have is refused, and never corrected: a recreated topic begins at 0, and a
consumer that continued at the old offset would silently skip the records before it.
"""

from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine

from semel.database.engines import read_only
from semel.database.kinds import check_engine
from semel.offsets.places import OffsetsDoNotFit, next_offsets

WATERMARK_SECONDS = 30.0


def seeking(engine: Engine, consumer: str, *, cooperative: bool = False) -> Callable[[Any, list[Any]], None]:
    """A callback for `subscribe(topics, on_assign=...)`. `cooperative` is for
    `partition.assignment.strategy=cooperative-sticky`. A partition without a row begins where `auto.offset.reset`
    says."""
    check_engine("the engine", engine)

    def assigned(client: Any, partitions: list[Any]) -> None:
        with read_only(engine).connect() as connection:
            known = next_offsets(connection, consumer)
        for place in partitions:
            next_offset = known.get((place.topic, place.partition))
            if next_offset is not None:
                low, high = client.get_watermark_offsets(place, timeout=WATERMARK_SECONDS)
                _check_there(consumer, f"{place.topic}:{place.partition}", next_offset, low, high)
                place.offset = next_offset
        (client.incremental_assign if cooperative else client.assign)(partitions)

    return assigned


def _check_there(consumer: str, place: str, next_offset: int, low: int, high: int) -> None:
    if low <= next_offset <= high:
        return
    what = "records after it were deleted before they were read" if next_offset < low else "the topic was made again"
    raise OffsetsDoNotFit(
        f"{consumer!r} goes on at offset {next_offset} of {place}, which has {low} to {high}: {what}, or it is another "
        "cluster. semel.offsets.forget(connection, consumer, topic) begins again"
    )
