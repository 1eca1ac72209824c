"""What a start stops at although its bytes are intact: it says which entry, and a person may have it set aside."""

import contextlib
import json
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from damage.scenes import COMPACTED, compact, topic_of
from ledger import SETTINGS, Caller, Ledger, batch
from semel.log.core.entries import (
    ConsumerGroupChanged,
    ConsumerPosition,
    ConsumerSubscription,
    Entry,
    HeldSpan,
    OffsetsCommitted,
    StoredOffset,
    TransactionalIdClaimed,
    TransactionGrew,
)
from semel.log.core.groups.consumer import ConsumerGroup
from semel.log.core.groups.consumer_members import new_subscription
from semel.log.storage.encoding import encode
from semel.log.storage.examination import examine
from semel.log.storage.files import DiskFiles, ReadOnlyFiles
from semel.log.storage.journal import Damaged, Lost, Misfit
from semel.log.storage.log import Log
from semel.log.storage.remedy import mend
from semel.log.storage.repair import SettingAside
from semel.log.storage.segment import Mark
from semel.testing.faulty import FaultyFiles
from semel.wire.batch import read_header
from semel.wire.records import Record, encode_batch


def member(member_id: str, instance_id: str | None = None) -> ConsumerSubscription:
    return new_subscription(member_id, instance_id)


def has(member_id: str, partition: int) -> ConsumerPosition:
    return ConsumerPosition(member_id, 1, 0, 0, (HeldSpan(0, partition, partition + 1, 1),), ())


def step(*positions: ConsumerPosition, left: tuple[str, ...] = ()) -> ConsumerGroupChanged:
    subscriptions = tuple(member(position.member_id) for position in positions)
    return ConsumerGroupChanged("readers", 1, 1, "", left, subscriptions, (), positions, 0)


def written(caller: Caller, entry: Entry) -> int:
    """The position of an entry that nobody has judged."""
    position = caller.log.end
    caller.log._journal.append(*encode(entry))
    return position


def begun(path: Path) -> Caller:
    caller = Caller(DiskFiles(path), Ledger())
    caller.create("orders")
    return caller


def repaired(path: Path) -> tuple[Log, list[str]]:
    """The log after everything that stood in its way was set aside, and what was told of that."""
    told: list[str] = []
    files = DiskFiles(path)
    repair = SettingAside(files, told.append)
    for _ in range(10):
        try:
            Log.open(files, new_cluster_id="", settings=SETTINGS, repair=repair).close()
        except Misfit as misfit:
            repair.skip(misfit)
        else:
            return Log.open(files, new_cluster_id="", settings=SETTINGS), told
    raise AssertionError(told)


MISFITS: dict[str, tuple[Entry, str]] = {
    "two owners": (step(has("a", 0), has("b", 0)), "ConsumerGroupChanged group readers: partition 0 of topic 0"),
    "nobody leaves": (step(left=("a",)), "ConsumerGroupChanged group readers: 'a' is no member"),
    "no owner": (TransactionGrew(7, 0, (), (), 0), "TransactionGrew producer id 7: no transactional id has producer"),
    "no sequence": (replace(step(), positions=(7,)), "ConsumerGroupChanged group readers: TypeError"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("kind", MISFITS)
def test_a_start_that_meets_an_entry_that_cannot_be_says_where_it_lies_and_which_it_is(
    tmp_path: Path, kind: str
) -> None:
    entry, complaint = MISFITS[kind]
    caller = begun(tmp_path)
    position = written(caller, entry)
    caller.log.abandon()
    for _ in range(2):
        with pytest.raises(Damaged) as damage:
            Log.open(DiskFiles(tmp_path), new_cluster_id="")
        assert f"{tmp_path}/journal/{0:016x}:{position}: entry at position {position}, " in str(damage.value)
        assert complaint in str(damage.value)
    assert examine(ReadOnlyFiles(tmp_path)).stopped == str(damage.value)


@pytest.mark.parametrize("kind", MISFITS)
def test_what_comes_behind_an_entry_that_was_set_aside_is_there_and_a_copy_of_it_is_kept(
    tmp_path: Path, kind: str
) -> None:
    entry, complaint = MISFITS[kind]
    caller = begun(tmp_path)
    position = written(caller, entry)
    written(caller, OffsetsCommitted("readers", (StoredOffset(0, 0, 5, -1, ""),), -1, 0))
    caller.log.abandon()
    log, (told,) = repaired(tmp_path)
    copy = tmp_path / "set-aside" / f"entry-{position}.json"
    assert complaint in told
    assert told.endswith(f"; kept in {copy}")
    kept = json.loads(copy.read_text())
    assert (kept["kind"], b64decode(kept["payload"])) == (encode(entry)[0], b"".join(encode(entry)[1]))
    group = log.state.groups.named("readers")
    assert group is not None
    assert [offset.offset for _, offset in group.offsets.committed] == [5]
    log.close()


def test_all_that_rests_on_an_entry_that_cannot_be_is_set_aside_with_it(tmp_path: Path) -> None:
    caller = begun(tmp_path)
    caller.claim("one")
    (owner,) = caller.owners()
    written(caller, TransactionalIdClaimed("two", owner.producer_id, 5, -1, -1, 1000, 0))
    written(caller, TransactionGrew(owner.producer_id + 1, 0, (), (), 0))
    written(caller, TransactionGrew(owner.producer_id, 0, (), ("readers",), 0))
    caller.log.abandon()
    log, told = repaired(tmp_path)
    assert [line.split(", ")[1].split()[0] for line in told] == ["TransactionalIdClaimed", "TransactionGrew"]
    assert log.state.transactions.is_open(owner.producer_id)
    log.close()


def test_a_batch_that_was_set_aside_leaves_a_hole_and_no_more(tmp_path: Path) -> None:
    """The batches behind it keep their offsets: consumers know them by these."""
    caller = begun(tmp_path)
    (partition,) = caller.log.state.partitions.all()
    for mark in range(3):
        caller.append(partition, batch(mark=mark))
    caller.log.abandon()
    files = DiskFiles(tmp_path)
    repair = SettingAside(files, lambda _: None)
    second = [sight.entry for sight in _entries(files)][-2]
    repair.skip(Misfit(files, second, "BatchAppended", "for a test"))
    Log.open(files, new_cluster_id="", repair=repair).close()
    log = Log.open(files, new_cluster_id="")
    (partition,) = log.state.partitions.all()
    found = [header.base_offset for header, _ in partition.batches(0, partition.readable)]
    assert (found, partition.state.next_offset) == ([0, 2], 3)
    log.close()


def _entries(files: DiskFiles) -> list[object]:
    from semel.log.storage import journal

    return [sight for start in journal.starts_of(files) for sight in journal.look_into(files, start)]


def with_checkpoint(tmp_path: Path, spoil: Callable[[Log], None]) -> None:
    """A directory whose checkpoint was written after something was spoilt."""
    caller = begun(tmp_path)
    caller.claim("one")
    (owner,) = caller.owners()
    (partition,) = caller.log.state.partitions.all()
    caller.append(partition, caller.next_batch(partition, owner.producer_id))
    spoil(caller.log)
    caller.log.close()


def test_an_open_transaction_that_nobody_owns_is_found_at_the_start_and_given_an_owner_on_request(
    tmp_path: Path,
) -> None:
    def forget(log: Log) -> None:
        log.state.transactions._open.clear()
        log.state.transactions._owners.clear()
        log.state.transactions._producer_ids.clear()

    with_checkpoint(tmp_path, forget)
    with pytest.raises(Damaged, match="0-orders/0: a transaction of producer 1000 is open from offset 0 on, and no"):
        Log.open(DiskFiles(tmp_path), new_cluster_id="")
    assert "producer 1000 is open, and no transactional id has it" in (examine(ReadOnlyFiles(tmp_path)).stopped or "")
    log, (told,) = repaired(tmp_path)
    assert "no transactional id has the transaction of producer 1000 from offset 0 on; the next start aborts it" in told
    ((producer_id, due_ms),) = log.state.transactions.deadlines()
    assert (producer_id, due_ms) == (1000, 1)
    log.commit(log.state.transaction_rules.decide_timeout(1000, 5))
    assert log.state.partitions.all()[0].state.open_transactions == {}
    log.close()


def test_a_transaction_gets_its_own_owner_back_with_the_epoch_of_its_producer(tmp_path: Path) -> None:
    caller = begun(tmp_path)
    for _ in range(2):
        caller.claim("one")
    (owner,) = caller.owners()
    (partition,) = caller.log.state.partitions.all()
    caller.append(partition, caller.next_batch(partition, owner.producer_id))
    caller.log.state.transactions._open.clear()
    caller.log.close()
    log, (told,) = repaired(tmp_path)
    assert "the next start aborts it" in told
    (described,) = log.state.transactions.all_described()
    assert described.owner.transactional_id == "one"
    assert (described.owner.producer_epoch, log.state.transactions.is_open(owner.producer_id)) == (1, True)
    log.close()


def test_an_owner_that_a_repair_makes_up_has_the_epoch_of_the_producer(tmp_path: Path) -> None:
    def forget(log: Log) -> None:
        for one in (log.state.transactions._open, log.state.transactions._owners, log.state.transactions._producer_ids):
            one.clear()

    caller = begun(tmp_path)
    for _ in range(2):
        caller.claim("one")
    (owner,) = caller.owners()
    (partition,) = caller.log.state.partitions.all()
    caller.append(partition, caller.next_batch(partition, owner.producer_id))
    forget(caller.log)
    caller.log.close()
    log, _ = repaired(tmp_path)
    (described,) = log.state.transactions.all_described()
    assert (described.owner.producer_id, described.owner.producer_epoch) == (owner.producer_id, 1)
    log.close()


@pytest.mark.parametrize("seed", range(20))
def test_what_a_repair_keeps_survives_a_loss_of_power(seed: int) -> None:
    """The records that are whole, and the copies of the rest: the damaged files are gone by then."""
    files = FaultyFiles()
    caller = Caller(files, Ledger())
    caller.create("orders")
    (partition,) = caller.log.state.partitions.all()
    for mark in range(3):
        caller.append(partition, batch(mark=mark))
    caller.log.checkpoint_now()
    position = written(caller, MISFITS["nobody leaves"][0])
    caller.log.abandon()
    (segment,) = partition.segments
    with contextlib.closing(files.open(segment.path)) as file:
        (first, *_) = [header.batch_bytes for header, _ in partition.batches(0, partition.end_mark())]
        file.write_at([b"?"], first + first // 2)
        file.sync()
    mend(files, lambda _: None)
    after = files.survivors(seed)
    with contextlib.closing(after.open(f"set-aside/entry-{position}.json")) as kept:
        assert json.loads(bytes(kept.read_at(kept.size(), 0)))["position"] == position
    log = Log.open(after, new_cluster_id="", settings=SETTINGS)
    (partition,) = log.state.partitions.all()
    assert [header.base_offset for header, _ in partition.batches(0, partition.readable)] == [0, 2]
    log.close()


def test_what_a_repair_keeps_of_a_segment_is_compacted_when_that_was(tmp_path: Path) -> None:
    caller = begun(tmp_path)
    (partition,) = caller.log.state.partitions.all()
    for mark in range(3):
        caller.append(partition, batch(mark=mark))
    partition.segments[0].horizon_ms = 77
    caller.log.close()
    (segment,) = (tmp_path / "topics").glob("*/0/*.log")
    content = bytearray(segment.read_bytes())
    content[90] ^= 1
    segment.write_bytes(content)
    mend(DiskFiles(tmp_path), lambda _: None)
    log = Log.open(DiskFiles(tmp_path), new_cluster_id="", settings=SETTINGS)
    (partition,) = log.state.partitions.all()
    assert {segment.horizon_ms for segment in partition.segments if segment.size} == {77}
    log.close()


def test_members_that_contradict_each_other_are_found_at_the_start_and_left_out_on_request(tmp_path: Path) -> None:
    """As a version before this one may have left them in a checkpoint."""

    def double(log: Log) -> None:
        log.state.groups.consumer("readers").apply(step(has("a", 0)))
        log.state.groups.consumer("readers").apply(step(has("b", 0)))

    with_checkpoint(tmp_path, double)
    with pytest.raises(Damaged, match=r"checkpoint: .*partition 0 of topic 0 belongs to 'a'"):
        Log.open(DiskFiles(tmp_path), new_cluster_id="")
    assert "belongs to 'a'" in (examine(ReadOnlyFiles(tmp_path)).stopped or "")
    log, (told,) = repaired(tmp_path)
    assert "group 'readers'" in told
    assert json.loads((tmp_path / "set-aside/members-0.json").read_text())["members"]["kind"] == "consumer"
    group = log.state.groups.named("readers")
    assert group is None or not isinstance(group.machine, ConsumerGroup)
    log.close()


@pytest.mark.parametrize("damaged", range(5))
def test_whatever_batch_a_repair_gives_up_an_open_transaction_stays_hidden(tmp_path: Path, damaged: int) -> None:
    """Its first batch is offset 3, and lies elsewhere in the segment that a repair makes of what is whole."""
    caller = begun(tmp_path)
    caller.claim("one")
    (partition,) = caller.log.state.partitions.all()
    for mark in range(3):
        caller.append(partition, batch(mark=mark, size=100 + mark))
    for _ in range(2):
        caller.append(partition, caller.next_batch(partition, caller.owners()[0].producer_id))
    caller.log.close()
    (segment,) = (tmp_path / "topics").glob("*/0/*.log")
    content = bytearray(segment.read_bytes())
    sizes = [header.batch_bytes for header, _ in partition.batches(0, partition.end_mark())]
    content[sum(sizes[: damaged + 1]) - 1] ^= 1
    segment.write_bytes(content)
    mend(DiskFiles(tmp_path), lambda _: None)
    log = Log.open(DiskFiles(tmp_path), new_cluster_id="", settings=SETTINGS)
    (partition,) = log.state.partitions.all()
    log.sync_now()

    def found(begin: int, until: Mark) -> list[int]:
        return [header.base_offset for header, _ in partition.batches(begin, until)]

    for begin in range(3):
        assert found(begin, partition.stable) == [offset for offset in range(begin, 3) if offset != damaged]
    assert partition.stable.offset == 3
    assert found(0, partition.readable) == [offset for offset in range(5) if offset != damaged]
    log.close()


@pytest.mark.parametrize("harm", ["a bit", "the end", "all"])
@pytest.mark.parametrize("deleted_below", [0, 3, 7])
def test_which_transactions_were_aborted_is_found_again_in_the_records(harm: str, deleted_below: int) -> None:
    """Without that, a bit in a small file would cost the whole log."""
    files = FaultyFiles()
    caller = Caller(files, Ledger())
    topic = caller.create("orders", segment_bytes="1024")
    assert topic is not None
    (partition,) = caller.log.state.partitions.of(topic)
    for number in range(7):
        # Two at a time, one of which is committed now and then.
        for name in ("one", "two"):
            caller.append(partition, caller.next_batch(partition, caller.claim(name)))
        caller.append(partition, caller.next_batch(partition, -1))
        caller.end("two", number % 3 == 0, raises_epoch=False)
        caller.end("one", number % 3 == 1, raises_epoch=False)
        caller.sync()
    caller.delete_records(partition, deleted_below)
    caller.sync()
    begin, end = deleted_below, partition.state.next_offset
    everything = [partition.aborted.between(at, at + size) for at in range(begin, end) for size in (1, 4, end)]
    path, size, *_ = partition.aborted.files()[0]
    caller.close()
    left = files.after_kill()
    if harm == "all":
        left.remove(path)
    elif harm == "the end":
        left.open(path).truncate(size - 1)
    else:
        left.open(path).write_at([b"\xff"], size - 10)
    with pytest.raises(Lost, match=rf"{path}: .*; the records of the partition tell which these were$"):
        Caller(left, caller.ledger)
    told: list[str] = []
    mend(left, told.append, SETTINGS)
    assert len(told) == 1
    for _ in range(2):
        again = Caller(left, caller.ledger)
        (found,) = again.log.state.partitions.all()
        assert [found.aborted.between(at, at + size) for at in range(begin, end) for size in (1, 4, end)] == everything
        again.append(found, again.next_batch(found, -1))
        again.close()
        left = left.after_kill()


def test_what_compaction_has_left_of_a_transaction_is_not_taken_for_an_aborted_one(tmp_path: Path) -> None:
    """It removes markers, so that records of a commit might seem to go on until the next abort."""
    files = DiskFiles(tmp_path / "log")
    caller = Caller(files, Ledger())
    caller.create("table", **COMPACTED)
    topic, (partition,) = topic_of(caller, "table")

    def transact(key: bytes, *, committed: bool) -> None:
        producer_id = caller.claim("one")
        header = read_header(caller.next_batch(partition, producer_id, 1))
        record = Record(key=key, value=bytes(250), timestamp_ms=caller.now_ms)
        sender = {
            "producer_id": producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
        }
        caller.append(partition, encode_batch([record], **sender, transactional=True))
        caller.end("one", committed, raises_epoch=False)
        caller.sync()

    for number in range(12):
        transact(b"%d" % (number % 5), committed=number % 3 > 0)
    caller.now_ms += 100 * 86_400_000
    compact(caller, topic, partition)
    assert partition.state.aborted.floor > 0
    for number in range(9):
        transact(b"%d" % number, committed=number % 3 == 1)
    compact_until = partition.state.aborted.floor
    end = partition.state.next_offset
    everything = [partition.aborted.between(at, end) for at in range(end)]
    (path, *_) = partition.aborted.files()[-1]
    caller.close()
    (tmp_path / "log" / path).unlink()
    mend(DiskFiles(tmp_path / "log"), lambda _: None, SETTINGS)
    again = Caller(DiskFiles(tmp_path / "log"), caller.ledger)
    (found,) = again.log.state.partitions.all()
    assert [found.aborted.between(at, end) for at in range(end)] == everything
    assert len(everything[compact_until]) == 6
    again.close()
