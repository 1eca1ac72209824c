"""The log keeps its promises through every way of ending: each promise by itself, on a disk that loses what it may."""

import itertools
from typing import Any

import pytest

from ledger import SETTINGS, Caller, Ledger, batch, content_of
from semel.storage.files import Files
from semel.storage.log import Log
from semel.testing.faulty import Crashed, Fault, FaultyFiles, keep_all, lose_all


def opened(files: Files, ledger: Ledger | None = None) -> Caller:
    return Caller(files, ledger or Ledger())


def reopened(files: Files, caller: Caller) -> Caller:
    """The log after a restart on `files`, found to hold what it has to."""
    again = Caller(files, caller.ledger)
    caller.ledger.settle_on(again.log)
    again.check_windows()
    return again


# A topic with a batch, for tests that start from there


def with_topic(files: Files, **configs: str) -> tuple[Caller, Any]:
    caller = opened(files)
    topic = caller.create("orders", **configs)
    assert topic is not None
    return caller, caller.log.partitions_of(topic)[0]


def test_a_producer_id_is_never_handed_out_twice_across_a_crash() -> None:
    files = FaultyFiles()
    caller = opened(files)
    first = caller.producer_id()
    again = Caller(files.after_kill(), caller.ledger)
    assert again.producer_id() != first


def test_a_topic_that_was_written_to_and_deleted_before_the_crash_does_not_keep_the_log_from_starting() -> None:
    files = FaultyFiles()
    caller, partition = with_topic(files)
    caller.append(partition, batch())
    caller.delete("orders")
    caller.sync()
    again = reopened(files.after_kill(), caller)
    assert content_of(again.log) == {}


def test_a_crash_during_recovery_finds_every_file_that_the_old_checkpoint_names() -> None:
    files = FaultyFiles()
    caller, partition = with_topic(files)
    caller.append(partition, batch())
    caller.checkpoint()
    caller.delete("orders")
    caller.sync()
    rehearsal = files.after_kill()
    opened(rehearsal)
    for call in rehearsal.calls:
        during = files.after_kill(Fault("crash after", call.number))
        with pytest.raises(Crashed):
            opened(during)
        for survivors in (during.after_kill(), during.survivors(keep_all), during.survivors(lose_all)):
            Log.open(survivors, new_cluster_id="", settings=SETTINGS)


def test_a_partition_that_was_emptied_takes_batches_again() -> None:
    files = FaultyFiles()
    caller, partition = with_topic(files)
    caller.append(partition, batch())
    caller.sync()
    caller.delete_records(partition)
    caller.checkpoint()
    assert caller.append(partition, batch(mark=1)) is not None
    caller.sync()
    reopened(files.after_kill(), caller)


def test_what_a_crash_left_in_the_journal_is_not_taken_for_what_came_after_it() -> None:
    """Of two batches of equal size the first is lost with the power; the second gets the place of the first."""
    files = FaultyFiles()
    caller, partition = with_topic(files)
    caller.close()
    caller = reopened(files, caller)
    partition = caller.log.partitions()[0]
    first, second = batch(2000, 0, size=512, mark=1), batch(3000, 0, size=512, mark=2)
    caller.append(partition, first)
    caller.append(partition, second)
    resent = 0
    for lost in itertools.count():
        steps = itertools.count()
        survivors = files.survivors(lambda options, lost=lost, steps=steps: int(next(steps) != lost))
        if next(steps) <= lost:
            break
        ledger = Ledger(list(caller.ledger.changes), caller.ledger.acknowledged)
        again = Caller(survivors, ledger)
        if len(ledger.settle_on(again.log)) < 2:
            continue
        resent += 1
        again.append(again.log.partitions()[0], second)
        again.sync()
        reopened(survivors.survivors(keep_all), again)
    assert resent


def test_a_crash_while_the_journal_rolls_does_not_hide_what_is_acknowledged_later() -> None:
    files = FaultyFiles()
    caller, partition = with_topic(files)
    caller.checkpoint()
    caller.append(partition, batch(size=3000))
    caller.sync()
    files.arm(Fault("crash before", 0, "write", "journal/*"))
    with pytest.raises(Crashed):
        caller.append(partition, batch(size=1500, mark=1))
    files = files.survivors(keep_all)
    caller = reopened(files, caller)
    partition = caller.log.partitions()[0]
    caller.append(partition, batch(size=500, mark=2))
    caller.sync()
    caller.checkpoint()
    caller.append(partition, batch(size=500, mark=3))
    caller.sync()
    reopened(files.after_kill(), caller)


def test_a_roll_of_the_journal_that_was_refused_does_not_hide_what_is_acknowledged_later() -> None:
    files = FaultyFiles()
    caller, partition = with_topic(files)
    caller.append(partition, batch(size=3000))
    files.arm(Fault("ENOSPC", 0, "write", "journal/*", lasting=True))
    assert caller.append(partition, batch(size=1500, mark=1)) is None
    files.disarm()
    caller.append(partition, batch(size=200, mark=2))
    caller.sync()
    caller.checkpoint()
    caller.append(partition, batch(size=200, mark=3))
    caller.sync()
    reopened(files.after_kill(), caller)


def test_a_checkpoint_is_never_ahead_of_the_names_in_the_journal() -> None:
    files = FaultyFiles()
    caller, partition = with_topic(files)
    caller.append(partition, batch(size=3000))
    caller.append(partition, batch(size=3000, mark=1))
    caller.checkpoint()
    for seed in range(30):
        ledger = Ledger(list(caller.ledger.changes), len(caller.ledger.changes))
        ledger.settle_on(Caller(files.survivors(seed), ledger).log)
