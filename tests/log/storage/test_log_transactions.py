"""Transactions in the log: whole or not at all, whatever the disk does, and in the same state after every restart."""

from collections.abc import Callable

import pytest

from ledger import SETTINGS, Caller, Ledger
from log_contents import content_of, snapshot_of
from semel.log.core.entries import TransactionEnded
from semel.log.core.partition import PRODUCER_EXPIRATION_MS
from semel.log.storage.examination import examine
from semel.log.storage.partition_log import PartitionLog, Watcher
from semel.testing.faulty import Fault, FaultyFiles
from semel.wire.sequences import Outcome
from semel.wire.steps import finish

Step = Callable[[Caller], None]


def opened(files: FaultyFiles, ledger: Ledger | None = None) -> Caller:
    return Caller(files, ledger or Ledger())


def begun(files: FaultyFiles, **configs: str) -> tuple[Caller, PartitionLog, PartitionLog]:
    """A log with a topic of two partitions and an owner of the transactional id "one"."""
    caller = opened(files)
    topic = caller.create("orders", 2, **configs)
    assert topic is not None
    caller.claim("one")
    one, two = caller.log.state.partitions.of(topic)
    return caller, one, two


def send(caller: Caller, name: str, index: int, transactional_id: str = "", size: int = 100) -> None:
    topic = caller.log.state.catalog.named(name)
    if topic is None:
        return
    target = caller.log.state.partitions.of(topic)[index]
    found = caller.log.state.transactions.described(transactional_id)
    producer_id = -1 if found is None else found.owner.producer_id
    appended = caller.append(target, caller.next_batch(target, producer_id, 2, size))
    assert appended is not None
    assert appended.outcome is Outcome.ACCEPTED


def marks(caller: Caller) -> list[object]:
    """Everything a partition knows of transactions."""
    known: list[object] = []
    for partition in caller.log.state.partitions.all():
        state, end = partition.state, partition.readable.offset
        listed = [partition.aborted.between(begin, end) for begin in range(state.log_start, end)]
        known.append((partition.readable, partition.stable, state.stable_offset, state.open_transactions, listed))
    return known


STEPS: tuple[Step, ...] = (
    lambda caller: send(caller, "orders", 0),
    lambda caller: send(caller, "orders", 0, "one", 600),
    lambda caller: send(caller, "orders", 1, "one"),
    lambda caller: send(caller, "orders", 0, "two", 600),
    lambda caller: caller.commit_offset("readers", caller.log.state.partitions.all()[0], 3, "one"),
    lambda caller: send(caller, "payments", 0, "two"),
    lambda caller: caller.end("one", False, raises_epoch=False),
    lambda caller: send(caller, "orders", 0, "one"),
    lambda caller: caller.delete("payments"),
    lambda caller: caller.end("two", False, raises_epoch=True),
    lambda caller: caller.commit_offset("readers", caller.log.state.partitions.all()[0], 5, "one"),
    lambda caller: caller.delete_records(caller.log.state.partitions.all()[0], 3),
    lambda caller: caller.end("one", True, raises_epoch=True),
    lambda caller: send(caller, "orders", 0, "two", 600),
)


@pytest.mark.parametrize("checkpoint_after", range(len(STEPS) + 1))
def test_after_a_restart_at_any_point_everything_about_transactions_is_as_it_was(checkpoint_after: int) -> None:
    for count in range(checkpoint_after, len(STEPS) + 1):
        files = FaultyFiles()
        caller, _, _ = begun(files, segment_bytes="1024")
        caller.create("payments")
        caller.claim("two")
        for number, step in enumerate(STEPS[:count]):
            if number == checkpoint_after:
                assert caller.checkpoint()
            step(caller)
            caller.sync()
        again = opened(files.after_kill(), caller.ledger)
        assert content_of(again.log) == content_of(caller.log) == caller.ledger.content(len(caller.ledger.changes))
        assert marks(again) == marks(caller)
        again.check_windows()
        examined = examine(files.after_kill(), SETTINGS.aborted_blocks)
        assert examined.stopped is None
        assert list(examined.state.transactions.all_described()) == list(caller.log.state.transactions.all_described())
        assert snapshot_of(examined.state.groups) == snapshot_of(caller.log.state.groups)
        for partition in caller.log.state.partitions.all():
            found = examined.state.partitions.named(*partition.name).state
            assert found.open_transactions == partition.state.open_transactions
            assert list(found.producers.items()) == list(partition.state.producers.items())
        caller.log.abandon()
        again.log.abandon()


class Moved(Watcher):
    """Counts how often it was told."""

    def __init__(self) -> None:
        self.count = 0

    def moved(self, partition: PartitionLog) -> None:
        self.count += 1


def test_the_end_counts_in_all_partitions_at_once_and_not_before_it_is_durable() -> None:
    caller, one, two = begun(FaultyFiles())
    for index in (0, 1):
        send(caller, "orders", index, "one")
        send(caller, "orders", index)
    caller.sync()
    watchers = [Moved(), Moved()]
    one.watchers[watchers[0]] = two.watchers[watchers[1]] = None
    caller.end("one", True, raises_epoch=True)
    assert [(partition.stable.offset, partition.readable.offset) for partition in (one, two)] == [(0, 4), (0, 4)]
    assert [watcher.count for watcher in watchers] == [0, 0]
    caller.sync()
    assert [(partition.stable, partition.readable.offset) for partition in (one, two)] == [
        (one.readable, 5),
        (two.readable, 5),
    ]
    assert [watcher.count for watcher in watchers] == [1, 1]
    caller.log.abandon()


def test_while_no_transaction_is_open_what_is_stable_is_what_is_readable() -> None:
    caller, one, _ = begun(FaultyFiles())
    send(caller, "orders", 0)
    caller.sync()
    assert one.stable is one.readable
    caller.log.abandon()


def test_an_end_that_the_disk_refuses_has_not_happened_anywhere() -> None:
    def prepared(*faults: Fault) -> tuple[FaultyFiles, Caller]:
        files = FaultyFiles(*faults)
        caller, one, _ = begun(files, segment_bytes="1024")
        for index in (0, 1):
            send(caller, "orders", index, "one", 1000)
        caller.commit_offset("readers", one, 7, "one")
        caller.sync()
        return files, caller

    files, caller = prepared()
    first = len(files.calls)
    caller.end("one", False, raises_epoch=True)
    calls = [call for call in files.calls[first:] if call.kind == "write"]
    # Two segments are sealed, two markers are written, and then there is the one entry.
    assert len(calls) == 5
    for call in calls:
        files, caller = prepared(Fault("ENOSPC", call.number, keep=call.size // 2, lasting=True))
        before = content_of(caller.log)
        caller.end("one", False, raises_epoch=True)
        assert caller.refused == 2
        assert content_of(caller.log) == before
        assert caller.log.state.transactions.open_count == 1
        files.disarm()
        send(caller, "orders", 0)
        caller.end("one", True, raises_epoch=True)
        caller.sync()
        assert content_of(caller.log) == caller.ledger.content(len(caller.ledger.changes))
        again = opened(files.after_kill(), caller.ledger)
        assert content_of(again.log) == content_of(caller.log)
        caller.log.abandon()
        again.log.abandon()


def test_committed_reads_end_at_the_right_batch_though_the_segment_has_been_sealed() -> None:
    caller, one, _ = begun(FaultyFiles(), segment_bytes="1024")
    for _ in range(3):
        send(caller, "orders", 0, size=200)
    send(caller, "orders", 0, "one", 200)
    for _ in range(9):
        send(caller, "orders", 0, size=200)
    caller.sync()
    assert one.stable.segment_base < one.readable.segment_base
    for bytes_max in (1, 200, 500, 1000, 10_000):
        data, behind = one.read(0, bytes_max, one.stable, whole_first_batch=True)
        assert len(data) == min(max(bytes_max // 200, 1), 3) * 200
        assert behind == len(data) // 100
    assert one.read(6, 10_000, one.stable, whole_first_batch=True) == (b"", 6)
    caller.log.abandon()


def test_a_producer_is_on_record_as_long_as_its_transaction_is_open() -> None:
    caller, one, _ = begun(FaultyFiles())
    send(caller, "orders", 0, "one")
    began_ms = caller.now_ms
    finish(caller.log.forget(began_ms, 0))
    caller.now_ms += PRODUCER_EXPIRATION_MS + 1
    finish(caller.log.forget(caller.now_ms, caller.now_ms - began_ms))
    assert caller.log.state.partitions.producer_count == len(one.state.producers) == 1
    send(caller, "orders", 0, "one")
    caller.end("one", True, raises_epoch=False)
    caller.now_ms += PRODUCER_EXPIRATION_MS + 1
    finish(caller.log.forget(caller.now_ms, caller.now_ms - began_ms))
    assert caller.log.state.partitions.producer_count == len(one.state.producers) == 0
    caller.log.abandon()


def test_markers_that_are_written_beforehand_are_the_same_whatever_comes_between() -> None:
    files = FaultyFiles()
    caller, one, two = begun(files)
    send(caller, "orders", 0, "one")
    send(caller, "orders", 1, "one")
    owner = caller.log.state.transactions.owners()[0]

    def decided() -> TransactionEnded:
        said = "one", owner.producer_id, owner.producer_epoch, False
        decide = caller.log.state.transaction_rules.decide_end
        entry = decide(*said, lambda: 99, caller.now_ms, raises_epoch=False).entry
        assert entry is not None
        return entry

    prepared = finish(caller.log.prepare_end(decided()))
    assert (one.state.next_offset, two.state.next_offset) == (2, 2), "nobody sees it"
    send(caller, "orders", 0)
    # What the disk refused lies where the marker was.
    files.arm(Fault("EIO", call="write", path="journal*"))
    with pytest.raises(OSError, match="journal"):
        caller._append(two, caller.next_batch(two, -1))
    caller.log.commit = lambda entry: caller._commit(entry, prepared)  # type: ignore[method-assign,call-arg]
    end = decided()
    caller.log.commit(end)
    caller._note(end)
    caller.sync()
    assert caller.log.state.partitions.producer_count == 2
    again = Caller(files.after_kill(), caller.ledger)
    assert marks(again) == marks(caller)
    assert content_of(again.log) == content_of(caller.log)
