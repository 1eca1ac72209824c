"""The claim of a place: the record at an offset is accepted if no record at it, or after it, was accepted before.

The statement that updates the row compares it. So if two consumers have the partition for a moment, as in a rebalance,
only one does the effect: the other one waits for its commit, and then gets a duplicate. Offsets have gaps where a
transaction ended or compaction removed a record, so the next offset need not be one more.
"""

from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, select, update

from semel.database import AsyncHandle, Handle, within, within_async
from semel.database.dialects import insert_new, is_new
from semel.database.effects import Work, work_on
from semel.database.errors import told_remedy
from semel.database.kinds import check_kind
from semel.offsets.tables import offsets

OFFSET_MAX: Final = 2**63 - 2


class OffsetsDoNotFit(RuntimeError):
    """The partition does not have the offset at which the table says to continue."""


_OF_PARTITION: Final = (
    offsets.c.consumer == bindparam("of_consumer"),
    offsets.c.topic == bindparam("of_topic"),
    offsets.c.partition == bindparam("of_partition"),
)
_MOVE: Final = (
    update(offsets)
    .where(*_OF_PARTITION, offsets.c.next_offset <= bindparam("of_offset"))
    .values(next_offset=bindparam("next_offset"))
)
_BEGIN: Final = insert_new(offsets)


def advance(handle: Handle, consumer: str, topic: str, partition: int, offset: int) -> bool:
    """Note in the caller's transaction that this record was read. True if its effect is due."""
    row = _row(consumer, topic, partition, offset)
    with within(handle) as connection:
        is_due, work = _moved(connection, row)
    return _begun(is_due, work)


async def advance_async(handle: AsyncHandle, consumer: str, topic: str, partition: int, offset: int) -> bool:
    """`advance` on an asynchronous connection or session."""
    row = _row(consumer, topic, partition, offset)
    is_due, work = await within_async(handle, lambda connection: _moved(connection, row))
    return _begun(is_due, work)


@told_remedy()
def next_offsets(connection: Connection, consumer: str) -> dict[tuple[str, int], int]:
    """The offset at which this consumer continues, for each partition from which it has read; the next record may have
    a higher one."""
    rows = connection.execute(select(offsets).where(offsets.c.consumer == consumer))
    return {(row.topic, row.partition): row.next_offset for row in rows}


def forget(handle: Handle, consumer: str, topic: str) -> None:
    """Delete the offsets of this topic, so that the consumer begins again where `auto.offset.reset` says: for a
    recreated topic."""
    with within(handle) as connection:
        connection.execute(delete(offsets).where(offsets.c.consumer == consumer, offsets.c.topic == topic))


def _row(consumer: str, topic: str, partition: int, offset: int) -> dict[str, Any]:
    check_kind("consumer", consumer, str)
    check_kind("topic", topic, str)
    check_kind("partition", partition, int)
    check_kind("offset", offset, int)
    if not consumer or not topic:
        raise ValueError("an offset belongs to a consumer and a topic, which both have names")
    if partition < 0 or not 0 <= offset <= OFFSET_MAX:
        raise ValueError(f"there is no offset {offset} in a partition {partition}")
    return {"consumer": consumer, "topic": topic, "partition": partition, "next_offset": offset + 1}


def _moved(connection: Connection, row: dict[str, Any]) -> tuple[bool, Work]:
    move = {"of_offset": row["next_offset"] - 1, "next_offset": row["next_offset"]}
    move |= {f"of_{column}": row[column] for column in ("consumer", "topic", "partition")}

    def is_moved() -> bool:
        return connection.execute(_MOVE, move).rowcount > 0

    # Another consumer may begin at the same moment, with a record before this one.
    return is_moved() or is_new(connection, _BEGIN, row) or is_moved(), work_on(connection)


def _begun(is_due: bool, work: Work) -> bool:
    if is_due:
        work.begin()
    return is_due
