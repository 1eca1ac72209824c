"""The log keeps its promises through every way of ending: each promise by itself, on a disk that loses what it may."""

import errno
import itertools
import os
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c

from ledger import NOW_MS, SETTINGS, Caller, Ledger, Stopped, batch, check_tidy
from semel.log.storage import checkpoint
from semel.log.storage.encoding import BATCH_HEAD
from semel.log.storage.files import DiskFiles, Files, MemoryFile, MemoryFiles
from semel.log.storage.journal import Damaged
from semel.log.storage.log import Log
from semel.log.storage.partition_log import PartitionLog, Watcher
from semel.testing.faulty import Crashed, Fault, FaultyFiles, keep_all, lose_all
from semel.wire.batch import CHECKED_FROM, read_header
from semel.wire.refusals import Refused
from semel.wire.sequences import Outcome
from semel.wire.steps import finish


@pytest.fixture(params=["memory", "disk"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return MemoryFiles() if request.param == "memory" else DiskFiles(tmp_path)


def opened(files: Files, ledger: Ledger | None = None) -> Caller:
    return Caller(files, ledger or Ledger())


def reopened(files: Files, caller: Caller) -> Caller:
    """The log after a restart on `files`, found to hold what it has to."""
    again = Caller(files, caller.ledger)
    caller.ledger.settle_on(again.log)
    again.check_windows()
    return again


def with_topic(files: Files, **configs: str) -> tuple[Caller, PartitionLog]:
    caller = opened(files)
    topic = caller.create("orders", **configs)
    assert topic is not None
    return caller, caller.log.state.partitions.of(topic)[0]


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
    assert list(again.log.state.catalog) == []


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
    partition = caller.log.state.partitions.all()[0]
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
        again.append(again.log.state.partitions.all()[0], second)
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
    partition = caller.log.state.partitions.all()[0]
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


# What is readable, and when


def test_what_is_not_durable_cannot_be_read_yet(files: Files) -> None:
    caller, partition = with_topic(files)
    caller.append(partition, batch())
    assert partition.readable.offset == 0
    job = caller.log.begin_sync()
    caller.append(partition, batch())
    job.run()
    caller.log.finish_sync(job)
    caller.log.settle(caller.log.synced)
    assert partition.readable.offset == 1
    caller.sync()
    assert partition.readable.offset == 2
    caller.log.abandon()


class Moved(Watcher):
    """Counts how often it was told."""

    def __init__(self) -> None:
        self.count = 0

    def moved(self, partition: PartitionLog) -> None:
        self.count += 1


def test_watchers_hear_of_what_can_be_read_and_of_the_end_of_the_topic() -> None:
    caller, partition = with_topic(MemoryFiles())
    watcher = Moved()
    partition.watchers[watcher] = None
    caller.append(partition, batch())
    assert watcher.count == 0
    caller.sync()
    assert watcher.count == 1
    caller.delete("orders")
    assert watcher.count == 2


def test_a_duplicate_of_a_batch_that_is_not_durable_yet_has_to_wait_for_the_same_sync() -> None:
    caller, partition = with_topic(MemoryFiles())
    sent = batch(2000, 0)
    caller.append(partition, sent)
    answer = caller.append(partition, sent)
    assert answer is not None
    assert answer.outcome is Outcome.DUPLICATE
    assert caller.log.end > caller.log.synced


def test_the_time_of_the_append_is_stamped_and_told_again_to_a_retry(files: Files) -> None:
    caller, partition = with_topic(files, message_timestamp_type="LogAppendTime")
    sent = batch(2000, 0, at_ms=5)
    answer = caller.append(partition, sent)
    assert answer is not None
    assert answer.timestamp_ms == NOW_MS
    caller.now_ms += 1000
    caller.log.close()
    again = Caller(files, caller.ledger)
    again.now_ms += 1000
    partition = again.log.state.partitions.all()[0]
    retry = again.append(partition, sent)
    assert retry is not None
    assert (retry.outcome, retry.timestamp_ms) == (Outcome.DUPLICATE, NOW_MS)
    ((header, stored),) = partition.batches(0, partition.readable)
    assert header.max_timestamp == NOW_MS
    assert accept_stamped(stored)
    again.log.abandon()


def accept_stamped(stored: bytes | memoryview) -> bool:
    return crc32c(memoryview(stored)[CHECKED_FROM:]) == read_header(stored).checksum


# Topics


def test_a_topic_made_again_under_its_name_is_empty_and_takes_a_producer_at_any_number(files: Files) -> None:
    caller, partition = with_topic(files)
    producer = caller.producer_id()
    for number in range(3):
        caller.append(partition, batch(producer, number))
    caller.delete("orders")
    topic = caller.create("orders")
    assert topic is not None
    partition = caller.log.state.partitions.of(topic)[0]
    answer = caller.append(partition, batch(producer, 3, mark=9))
    assert answer is not None
    assert (answer.outcome, answer.base_offset) == (Outcome.ACCEPTED, 0)
    caller.sync()
    caller.checkpoint()
    check_tidy(files, caller.log)
    caller.log.abandon()
    reopened(files, caller).log.abandon()


def test_names_as_long_as_they_may_be_have_their_directory(tmp_path: Path) -> None:
    caller = opened(DiskFiles(tmp_path))
    topic = caller.create("x" * 249)
    assert topic is not None
    assert caller.append(caller.log.state.partitions.of(topic)[0], batch()) is not None
    caller.close()


# What the operator hears


def test_a_directory_that_is_in_use_is_refused(files: Files) -> None:
    caller = opened(files)
    with pytest.raises(BlockingIOError):
        opened(files)
    caller.close()
    opened(files).close()


def test_a_segment_that_is_missing_or_too_short_is_refused_by_name(files: Files) -> None:
    caller, partition = with_topic(files)
    caller.append(partition, batch(size=300))
    path = partition.segments[0].path
    caller.close()
    file = files.open(path)
    file.truncate(299)
    file.close()
    with pytest.raises(Damaged, match=f"{path}: ends at offset 299, the checkpoint knows 300 bytes"):
        opened(files)
    files.remove(path)
    with pytest.raises(Damaged, match=f"{path}: missing, the checkpoint names it"):
        opened(files)


def test_a_journal_without_its_checkpoint_is_refused_and_left_as_it_is(files: Files) -> None:
    caller, partition = with_topic(files)
    caller.append(partition, batch())
    caller.close()
    files.rename(checkpoint.NAME, "elsewhere")
    with pytest.raises(Damaged, match="checkpoint: missing, though a log was kept here"):
        opened(files)
    files.rename("elsewhere", checkpoint.NAME)
    reopened(files, caller).log.abandon()


def test_an_entry_of_a_kind_from_the_future_is_refused_with_its_position() -> None:
    files = MemoryFiles()
    caller = opened(files)
    position = caller.log._journal.append(99, [b"{}"])
    caller.log.abandon()
    with pytest.raises(Damaged, match=f"entry at position {position - 34}, kind 99: entries of kind 99 are not known"):
        opened(files)


@pytest.mark.parametrize(
    ("kind", "payload", "complaint"),
    [
        (1, bytes(10), "a batch in 10 bytes"),
        (1, BATCH_HEAD.pack(7, 0, NOW_MS) + batch(), "no partition 0 of a topic with number 7"),
        (2, b'{"number":1,"name":"orders","colour":"red"}', "not TopicCreated as this version of semel knows it"),
        (3, b'{"number":7,"id_blocks":1,"at_ms":1}', "no topic has number 7"),
        (7, b'{"number":7,"partition":0,"offset":1}', "no partition 0 of a topic with number 7"),
    ],
)
def test_an_intact_entry_that_cannot_be_is_refused_by_its_position_and_not_by_a_traceback(
    kind: int, payload: bytes, complaint: str
) -> None:
    """A later version of semel, or a fault of ours, may have written it."""
    files = FaultyFiles()
    caller = opened(files)
    position = caller.log.end
    caller.log._journal.append(kind, [payload])
    caller.log.sync_now()
    with pytest.raises(Damaged, match=f"entry at position {position}, .*: .*{complaint}"):
        opened(files.after_kill())


def test_progress_is_told_while_the_journal_is_replayed() -> None:
    files = MemoryFiles()
    caller, partition = with_topic(files)
    for _ in range(3):
        caller.append(partition, batch())
    end = caller.log.end
    caller.log.abandon()
    heard: list[int] = []
    log = Log.open(files, new_cluster_id="", settings=SETTINGS, on_progress=heard.append)
    assert heard == sorted(heard)
    assert heard[-1] == log.replayed_bytes == end


def test_the_cluster_keeps_its_id(files: Files) -> None:
    opened(files).close()
    log = Log.open(files, new_cluster_id="another", settings=SETTINGS)
    assert log.state.cluster_id == "a-cluster"
    log.close()


# Refusals and failures


def test_a_failed_start_or_stop_lets_go_of_the_directory() -> None:
    files = FaultyFiles(Fault("EIO", call="rename"))
    with pytest.raises(OSError, match="Input/output"):
        opened(files)
    caller = opened(files)
    files.arm(Fault("EIO", call="rename"))
    with pytest.raises(OSError, match="Input/output"):
        caller.log.close()
    opened(files)


def test_deleting_all_records_writes_nothing_but_its_entry() -> None:
    files = FaultyFiles()
    caller, partition = with_topic(files)
    caller.append(partition, batch())
    caller.sync()
    before = len(files.calls)
    caller.delete_records(partition)
    assert [call.path.split("/")[0] for call in files.calls[before:]] == ["journal"]


class NoSpaceToSync(MemoryFile):
    """A file whose sync finds that there is no space after all, as where blocks are given out late."""

    def sync(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


class LateFiles(MemoryFiles):
    """Files in memory, of which the segments cannot be synced for want of space."""

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        file = super().open(path, create=create)
        return NoSpaceToSync(file.data) if path.startswith("topics/") else file


def test_a_checkpoint_whose_sync_found_no_space_is_not_one_that_may_be_tried_again() -> None:
    caller, partition = with_topic(LateFiles())
    caller.append(partition, batch())
    with pytest.raises(Stopped, match=r"a sync failed: .*No space"):
        caller.checkpoint()


def test_what_a_failed_checkpoint_was_to_sync_is_synced_by_the_next() -> None:
    files = FaultyFiles()
    caller, partition = with_topic(files)
    caller.append(partition, batch())
    caller.append(partition, batch(mark=1))
    caller.sync()
    files.arm(Fault("ENOSPC", call="write", path="checkpoint.new", lasting=True))
    assert not caller.checkpoint()
    files.disarm()
    assert caller.log.checkpoint_due == (caller.log.end >= SETTINGS.checkpoint_bytes)
    assert caller.checkpoint()
    reopened(files.survivors(lose_all), caller)


def test_a_checkpoint_that_was_given_up_leaves_everything_to_the_next() -> None:
    files = FaultyFiles()
    caller, partition = with_topic(files)
    caller.append(partition, batch())
    caller.sync()
    caller.log.fail_checkpoint(finish(caller.log.begin_checkpoint()))
    assert caller.checkpoint()
    reopened(files.survivors(lose_all), caller)


def test_files_that_a_failed_checkpoint_was_to_let_go_of_go_with_the_next() -> None:
    files = FaultyFiles()
    caller, partition = with_topic(files)
    caller.append(partition, batch())
    caller.checkpoint()
    caller.delete("orders")
    files.arm(Fault("ENOSPC", call="write", path="checkpoint.new", lasting=True))
    assert not caller.checkpoint()
    files.disarm()
    assert caller.log.checkpoint_due
    assert files.names("topics")
    assert caller.checkpoint()
    assert not files.names("topics")


def test_what_was_written_behind_the_end_is_cut_off_at_the_start() -> None:
    files = FaultyFiles()
    caller, partition = with_topic(files)
    caller.append(partition, batch(size=100))
    caller.sync()
    files.arm(Fault("EIO", call="write", path="journal/*", lasting=True))
    assert caller.append(partition, batch(size=500)) is None
    path = partition.segments[0].path
    left = files.after_kill()
    assert left.open(path).size() == 600
    again = reopened(left, caller)
    assert left.open(path).size() == 100
    assert again.log.put_aside == [f"{path}.from-100"]


def test_one_producer_more_than_there_may_be_is_refused_and_the_others_go_on() -> None:
    caller = Caller(MemoryFiles(), Ledger(), replace(SETTINGS, producer_states_max=2))
    topic = caller.create("orders")
    assert topic is not None
    partition = caller.log.state.partitions.of(topic)[0]
    for producer in (2000, 3000):
        caller.append(partition, batch(producer, 0))
    with pytest.raises(Refused, match="2 producers are on record"):
        caller.append(partition, batch(4000, 0))
    caller.append(partition, batch(2000, 1))
    caller.append(partition, batch())
    assert finish(caller.log.forget(caller.now_ms, 0)) == 0
    later_ms = caller.log.settings.producer_expiration_ms + 1
    assert finish(caller.log.forget(caller.now_ms + later_ms, later_ms)) == 2
    caller.append(partition, batch(4000, 0))


def test_no_file_stays_open_behind_a_log_that_was_let_go(tmp_path: Path) -> None:
    def descriptors() -> int:
        # Only of files here: threads of clients that other tests have left may open and close what they like.
        return sum(link.resolve().is_relative_to(tmp_path.resolve()) for link in Path("/proc/self/fd").iterdir())

    if not os.path.exists("/proc/self/fd"):
        pytest.skip("this system does not list open files")
    files = DiskFiles(tmp_path)
    before = descriptors()
    caller, partition = with_topic(files, segment_bytes="1024")
    for _ in range(20):
        caller.append(partition, batch(size=700))
    caller.sync()
    # Two for the lock, the file of the journal, the notes of its end, and one for each segment.
    assert descriptors() <= before + 4 + len(partition.segments)
    caller.delete("orders")
    caller.checkpoint()
    assert descriptors() <= before + 4
    caller.log.begin_sync()
    caller.close()
    assert descriptors() == before
