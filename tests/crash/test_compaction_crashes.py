"""Compaction in the crash matrix: every call to the disk in the life of a compacted topic, and every fault of it.

What comes back has to tell a consumer the same as if nothing had ever been compacted: the same last value of every key,
at its offset, of those transactions that were committed. A pass that fails leaves everything as it was.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import NamedTuple

import pytest
from scenarios import KINDS, faults_to_try, opened, partition

from ledger import Caller, Ledger, Stopped, check_tidy
from log_contents import Content, PartitionContent
from semel.log.compaction.plan import Bounds, is_to_roll, plan
from semel.log.storage.files import Files
from semel.log.storage.partition_log import PartitionLog
from semel.testing.faulty import Call, Crashed, FaultKind, FaultyFiles, lose_all
from semel.wire.batch import read_header
from semel.wire.records import Batch, Record, decode_batches, encode_batch

CONFIGS = {
    "cleanup_policy": "compact,delete",
    "segment_bytes": "1024",
    "min_cleanable_dirty_ratio": "0",
    "delete_retention_ms": "1000",
    "segment_ms": "50000",
    "retention_ms": "-1",
}


class Shown(NamedTuple):
    """A record as far as it matters here."""

    offset: int
    key: bytes | None
    value: bytes | None
    producer_id: int


class Told(NamedTuple):
    """What batches tell: records of transactions that are open yet, and the others that count."""

    open: list[Shown]
    committed: list[Shown]
    aborted: list[Shown]


@lru_cache(maxsize=4096)
def decoded(stored: bytes) -> list[Batch]:
    """The same few batches come again in every run."""
    return list(decode_batches(stored))


def told(batches: Iterable[bytes]) -> Told:
    """By the markers alone."""
    open_records: dict[int, list[Shown]] = {}
    committed: list[Shown] = []
    aborted: list[Shown] = []
    for stored in batches:
        for batch in decoded(stored):
            shown = [Shown(r.offset, r.key, r.value, batch.producer_id) for r in batch.records]
            if batch.is_control:
                is_commit = shown[0].key == b"\0\0\0\1"
                (committed if is_commit else aborted).extend(open_records.pop(batch.producer_id, []))
            elif batch.is_transactional:
                open_records.setdefault(batch.producer_id, []).extend(shown)
            else:
                committed += shown
    return Told([record for records in open_records.values() for record in records], sorted(committed), aborted)


def last_values(records: Iterable[Shown]) -> dict[bytes | None, Shown]:
    table = {}
    for record in records:
        table[record.key] = record
    return {key: record for key, record in table.items() if record.value is not None}


def tells_the_same(found: PartitionContent, whole: PartitionContent) -> bool:
    """Whether one content is what compaction may have left of the other."""
    if (found.log_start, found.next_offset) != (whole.log_start, whole.next_offset):
        return False
    left, all_of_it = told(found.batches), told(whole.batches)
    return (
        left.open == all_of_it.open
        and last_values(left.committed) == last_values(all_of_it.committed)
        and set(left.committed) <= set(all_of_it.committed)
        and set(left.aborted) <= set(all_of_it.aborted)
    )


class CompactedLedger(Ledger):
    """A ledger that is content with what compaction leaves."""

    def is_told_by(self, found: Content, count: int) -> bool:
        whole = self.content(count)
        return (
            whole.committed == found.committed
            and whole.topics.keys() == found.topics.keys()
            and all(
                topic._replace(partitions=()) == found.topics[number]._replace(partitions=())
                and all(map(tells_the_same, found.topics[number].partitions, topic.partitions))
                for number, topic in whole.topics.items()
            )
        )


def send(caller: Caller, producer_id: int, *keys: str, value: bytes | None = b"v" * 120) -> None:
    """One batch of these keys, the next one of its producer."""
    target = partition(caller, "orders")
    if target is None:
        return
    header = read_header(caller.next_batch(target, producer_id, len(keys)))
    mark = b"%d " % len(caller.ledger.changes)
    records = [
        Record(key=key.encode(), value=None if value is None else mark + value, timestamp_ms=caller.now_ms)
        for key in keys
    ]
    caller.append(
        target,
        encode_batch(
            records,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
        ),
    )


def compact(caller: Caller, meanwhile: Callable[[], None] = lambda: None) -> None:
    """One pass, as the broker does it; something else happens between the groups of segments."""
    topic, target = caller.log.state.catalog.named("orders"), partition(caller, "orders")
    if topic is None or target is None:
        return
    try:
        if is_to_roll(target, topic.parsed, caller.now_ms):
            target.roll(caller.now_ms)
        found = plan(target, topic.parsed, caller.now_ms)
        if found is None:
            return
        done = found.begin(caller.log.files, Bounds(10_000, 10_000), caller.now_ms, lambda: None)
        done.survey()
        for group in done.groups():
            rewritten = done.rewrite(group)
            meanwhile()
            if not rewritten.is_changed:
                rewritten.forget_horizons()
            elif not caller.log.swap(target, rewritten.old, rewritten.new):
                if rewritten.new is not None:
                    caller.log.files.remove(rewritten.new.path)
                return
        target.cleaned_until = done.until
    except OSError:
        caller.refused += 1


def a_compacted_life(files: Files, ledger: Ledger) -> Caller:
    """Keys come again and again, go, and are part of transactions; passes at any time; an end that is none, twice."""
    caller = opened(files, ledger)
    caller.create("orders", **CONFIGS)
    one = caller.producer_id()
    two = caller.claim("two")
    for _ in range(3):
        send(caller, one, "a", "b", "c")
        send(caller, two, "b", "d")
        send(caller, -1, "e", "a")
        caller.sync()
    caller.end("two", committed=False, raises_epoch=True)
    send(caller, one, "b", value=None)
    send(caller, -1, "f", "g", "h")
    caller.sync()
    compact(caller)
    send(caller, one, "a", "f")
    caller.sync()
    caller.checkpoint(lambda: compact(caller))
    caller.now_ms += 1_000
    send(caller, two, "x", "a")
    send(caller, -1, "g", "h", "i")
    caller.sync()
    compact(caller, lambda: send(caller, -1, "h"))
    caller.checkpoint(lambda: send(caller, -1, "i"))
    caller.end("two", committed=True, raises_epoch=True)
    for _ in range(3):
        send(caller, one, "a", "b", "c")
    caller.sync()
    compact(caller)
    caller.log.abandon()

    caller = opened(files, ledger)
    caller.now_ms += 60_000
    send(caller, -1, "a", "j", value=None)
    caller.sync()
    compact(caller)
    compact(caller, lambda: delete_some(caller))
    caller.checkpoint()
    caller.now_ms += 60_000
    compact(caller)
    send(caller, one, "c", "d", "e")
    caller.sync()
    caller.log.abandon()

    caller = opened(files, ledger)
    compact(caller)
    caller.checkpoint()
    send(caller, one, "a")
    caller.sync()
    caller.close()
    return caller


def delete_some(caller: Caller) -> None:
    target = partition(caller, "orders")
    if target is not None:
        caller.delete_records(target, min(5, target.readable.offset))
        caller.sync()


def run(files: FaultyFiles, ledger: Ledger) -> str:
    try:
        a_compacted_life(files, ledger)
    except Crashed:
        return "crashed"
    except Stopped:
        return "stopped"
    return "finished"


def check(files: FaultyFiles, ledger: Ledger) -> None:
    """The log comes back, tells the same, and goes on: a pass, a crash, and once more."""
    ledger = ledger.copy()
    caller = opened(files, ledger)
    caller.check_windows()
    check_tidy(files, caller.log)
    check_aborted(caller)
    caller.now_ms += 100_000
    send(caller, -1, "a", "b")
    caller.sync()
    compact(caller)
    again = opened(files.after_kill(), ledger)
    again.now_ms += 100_000
    compact(again)
    check_aborted(again)
    again.close()
    last = opened(again.log.files, ledger)
    check_tidy(again.log.files, last.log)
    assert last.log.replayed_bytes == 0


def check_aborted(caller: Caller) -> None:
    """The list that consumers get says the same as the markers."""
    for target in caller.log.state.partitions.all():
        batches = [bytes(data) for _, data in target.batches(target.state.log_start, target.readable)]
        by_markers = {record.offset for record in told(batches).aborted}
        assert by_markers == {record.offset for record in by_list(target, batches)}


def by_list(target: PartitionLog, batches: list[bytes]) -> list[Shown]:
    """The records that a consumer leaves out because of the list."""
    spans = target.aborted.for_thread()(0, target.state.next_offset)
    return [
        Shown(record.offset, record.key, record.value, batch.producer_id)
        for stored in batches
        for batch in decoded(stored)
        if batch.is_transactional and not batch.is_control
        for record in batch.records
        if any(p == batch.producer_id and first <= record.offset <= marker for p, first, marker in spans)
    ]


@cache
def rehearsed() -> list[Call]:
    files, ledger = FaultyFiles(), CompactedLedger()
    assert run(files, ledger) == "finished"
    check(files.after_kill(), ledger)
    return files.calls


def test_the_life_has_passes_that_write_and_swap_segments() -> None:
    written = {call.path for call in rehearsed() if call.kind == "write" and "-" in call.path.rpartition("/")[2]}
    assert len(written) > 5
    removed = {call.path for call in rehearsed() if call.kind == "remove"}
    assert len(removed & written) > 2


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_happens_to_a_compacted_topic_it_tells_the_same(
    kind: FaultKind, fired: Counter[str], judged: Counter[str]
) -> None:
    for fault in faults_to_try(kind, rehearsed()):
        files, ledger = FaultyFiles(fault), CompactedLedger()
        ended = run(files, ledger)
        assert files.fired[kind] == 1, fault
        assert (ended == "crashed") == (kind in ("crash before", "crash after", "torn")), (fault, ended)
        left = [files.survivors(fault.at)]
        if kind != "crash before":
            left.append(files.survivors(lose_all))
        # Names that a failed sync gave up are there as long as the machine runs, and then nothing saves them.
        if (fault.kind, fault.call) != ("failed sync", "sync_directory"):
            left.append(files.after_kill())
        for number, found in enumerate(left):
            try:
                check(found, ledger)
            except BaseException as error:
                raise AssertionError(f"{fault}, then {number}") from error
            judged["recovered compacted logs judged"] += 1
        fired.update(files.fired)
