"""An end whose markers were written beforehand: whatever comes between the writing and the end, all of them count."""

from collections.abc import Callable

import pytest

from ledger import Caller, Ledger
from log_contents import content_of
from semel.log.core.entries import TransactionEnded
from semel.log.storage.markers import PreparedEnd
from semel.log.storage.partition_log import PartitionLog
from semel.testing.faulty import FaultyFiles
from semel.wire.steps import finish


def begun(files: FaultyFiles) -> tuple[Caller, PartitionLog, PartitionLog]:
    """A log with an open transaction in both partitions of a topic."""
    caller = Caller(files, Ledger())
    topic = caller.create("orders", 2)
    assert topic is not None
    producer_id = caller.claim("one")
    one, two = caller.log.state.partitions.of(topic)
    for partition in (one, two):
        caller.append(partition, caller.next_batch(partition, producer_id, 2))
    caller.sync()
    return caller, one, two


def decided(caller: Caller) -> TransactionEnded:
    owner = caller.log.state.transactions.owners()[0]
    said = "one", owner.producer_id, owner.producer_epoch, True
    entry = caller.log.state.transaction_rules.decide_end(*said, lambda: 99, caller.now_ms, raises_epoch=False).entry
    assert entry is not None
    return entry


def end(caller: Caller, prepared: PreparedEnd) -> None:
    entry = decided(caller)
    caller._commit(entry, prepared)  # type: ignore[call-arg]
    caller._note(entry)
    caller.sync()


BETWEEN: dict[str, Callable[[Caller, PartitionLog], None]] = {
    "the segment is sealed for compaction": lambda caller, partition: partition.roll(caller.now_ms),
    "all records are deleted": lambda caller, partition: caller.delete_records(partition),
    "all records are deleted and the segment is sealed": lambda caller, partition: (
        caller.delete_records(partition),
        partition.roll(caller.now_ms),
    )[0],
}


@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
def test_a_marker_is_where_its_partition_ends_whatever_became_of_the_segment(
    between: Callable[[Caller, PartitionLog], None],
) -> None:
    files = FaultyFiles()
    caller, one, two = begun(files)
    prepared = finish(caller.log.prepare_end(decided(caller)))
    between(caller, one)
    end(caller, prepared)
    assert [partition.state.next_offset for partition in (one, two)] == [3, 3]
    after = content_of(caller.log)
    again = Caller(files.after_kill(), caller.ledger)
    assert content_of(again.log) == after
    again.log.abandon()
    # And the same from a checkpoint, without the journal.
    assert caller.checkpoint()
    caller.log.abandon()
    again = Caller(files.after_kill(), caller.ledger)
    assert content_of(again.log) == after
    again.log.abandon()


@pytest.mark.parametrize("steps_before", range(1, 3))
def test_a_checkpoint_that_is_begun_between_has_nothing_of_the_end(steps_before: int) -> None:
    files = FaultyFiles()
    caller, one, two = begun(files)
    prepared = finish(caller.log.prepare_end(decided(caller)))
    steps = caller.log.begin_checkpoint()
    for _ in range(steps_before):
        next(steps)
    end(caller, prepared)
    job = finish(steps)
    assert [record["next_offset"] for record in job.state["partitions"]] == [2, 2]
    assert caller.end_checkpoint(job)
    again = Caller(files.after_kill(), caller.ledger)
    assert content_of(again.log) == content_of(caller.log)
    assert [partition.state.next_offset for partition in (one, two)] == [3, 3]
