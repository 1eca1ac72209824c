"""What a log goes through in the crash matrix, and how what is left of it is judged.

A scenario is short and its files are tiny, so that within some hundred calls to the disk there is every kind of them:
batches, rolls of the journal and of segments, retention, deleted records and topics, checkpoints, a clean stop, a kill,
and the recovery after each. It must go on where it can when a change is refused, as clients do.
"""

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Final

from ledger import SETTINGS, Caller, Ledger, Stopped, check_tidy
from log_contents import content_of
from semel.log.core.entries import BatchAppended
from semel.log.storage.files import Files
from semel.log.storage.log import Log
from semel.log.storage.partition_log import PartitionLog
from semel.testing.faulty import Call, Crashed, Fault, FaultKind, FaultyFiles, every_fault
from semel.wire.batch import read_header
from semel.wire.refusals import Refused

Scenario = Callable[[Files, Ledger], Caller]


KINDS: Final[tuple[FaultKind, ...]] = ("crash before", "crash after", "torn", "EIO", "ENOSPC", "failed sync")
# A crash on either side of such a call leaves what one after the last change has left.
_CHANGE_NOTHING: Final = ("open", "read", "size", "names", "close", "lock")
# To every how many of the calls each kind of fault happens. `make verify` sets it to 1: every fault at every call.
_EVERY: Final = int(os.environ.get("SEMEL_CRASH_EVERY", "6"))


def faults_to_try(kind: FaultKind, calls: Sequence[Call]) -> Sequence[Fault]:
    """The faults of one kind that happen to these calls, one in each run. The kinds begin at different calls, so that
    some kind of fault happens to every call."""
    faults = [
        fault
        for fault in every_fault(calls)
        if fault.kind == kind and not (kind.startswith("crash") and fault.call in _CHANGE_NOTHING)
    ]
    return faults[KINDS.index(kind) % _EVERY :: _EVERY]


def partition(caller: Caller, name: str, index: int = 0) -> PartitionLog | None:
    topic = caller.log.state.catalog.named(name)
    return caller.log.state.partitions.at(topic.number, index) if topic is not None else None


def send(caller: Caller, name: str, index: int, *sizes: int, producer: int = -1, records: int = 2) -> None:
    """The next batches of a producer to a partition, if that exists."""
    target = partition(caller, name, index)
    for size in sizes if target is not None else ():
        assert target is not None
        caller.append(target, caller.next_batch(target, producer, records, size))


def opened(files: Files, ledger: Ledger) -> Caller:
    """The log after a start. What was not acknowledged before may or may not be there."""
    try:
        caller = Caller(files, ledger)
        ledger.settle_on(caller.log)
    except OSError as error:
        raise Stopped(str(error)) from error
    return caller


def killed(caller: Caller) -> None:
    """The process dies, the machine goes on."""
    caller.log.abandon()


def a_life(files: Files, ledger: Ledger) -> Caller:
    """Everything that a log does, in three lives: one that ends well, one that is killed, one that recovers."""
    caller = opened(files, ledger)
    caller.create("orders", 2, segment_bytes="1024", retention_bytes="1500", retention_ms="-1")
    caller.create("short-lived")
    one = caller.producer_id()
    send(caller, "orders", 0, 300, 300, 700, producer=one)
    send(caller, "short-lived", 0, 200, producer=one)
    send(caller, "orders", 1, 200)
    caller.sync()
    send(caller, "orders", 0, 600, 600, 600, producer=one)

    def meanwhile() -> None:
        """What happens while a checkpoint is being written is not in it."""
        send(caller, "orders", 1, 1000, 1000, 1000, producer=one)
        caller.sync()
        if (target := partition(caller, "orders")) is not None:
            caller.delete_records(target, 4)

    caller.checkpoint(meanwhile)
    send(caller, "orders", 0, 300, producer=one)
    caller.sync()
    caller.delete("short-lived")
    send(caller, "orders", 1, 900, 900, producer=one)
    caller.sync()
    caller.retain()
    caller.checkpoint()
    caller.close()

    caller = opened(files, ledger)
    two = caller.producer_id()
    if (topic := caller.log.state.catalog.named("orders")) is not None:
        caller.commit(caller.log.state.catalog.decide_configs("orders", {**topic.configs, "segment.ms": "60000"}))
    send(caller, "orders", 0, 500, 500, producer=two)
    caller.create("short-lived")
    send(caller, "short-lived", 0, 100, producer=two)
    caller.sync()
    caller.checkpoint()
    # All of these wait for their first checkpoint when the kill comes.
    if (emptied := partition(caller, "orders", 1)) is not None:
        caller.delete_records(emptied)
    send(caller, "orders", 0, 400, producer=one)
    send(caller, "short-lived", 0, 100, 100, producer=two)
    caller.sync()
    caller.delete("short-lived")
    caller.create("large", message_timestamp_type="LogAppendTime")
    send(caller, "large", 0, 5000, producer=two)
    caller.now_ms += 100_000
    send(caller, "orders", 0, 400, producer=two)
    if caller.log.state.catalog.named("large") is not None:
        caller.commit(caller.log.state.catalog.decide_partitions("large", 2))
    caller.sync()
    send(caller, "large", 1, 300, 300, producer=one)
    killed(caller)

    caller = opened(files, ledger)
    send(caller, "orders", 1, 200, 200, producer=two)
    caller.sync()
    caller.retain()
    caller.checkpoint()
    send(caller, "orders", 1, 1500, 1500, producer=two)
    caller.sync()
    caller.close()
    return caller


def a_steady_life(files: Files, ledger: Ledger) -> Caller:
    """Batches all of one size, so that whatever was in a file before stands exactly where the next one goes."""
    caller = opened(files, ledger)
    caller.create("orders")
    one, two = caller.producer_id(), caller.producer_id()

    def some() -> None:
        for producer in (one, two, -1):
            send(caller, "orders", 0, 400, 400, producer=producer)

    some()
    caller.sync()
    caller.checkpoint(some)
    some()
    caller.sync()
    caller.checkpoint(some)
    caller.sync()
    some()
    killed(caller)
    caller = opened(files, ledger)
    some()
    caller.sync()
    some()
    caller.checkpoint(some)
    caller.close()
    return caller


def a_life_in_transactions(files: Files, ledger: Ledger) -> Caller:
    """Transactions over several partitions, topics and groups: ended, fenced, and open at every kind of end."""
    caller = opened(files, ledger)
    caller.create("orders", 2, segment_bytes="1024")
    caller.create("short-lived")
    one = caller.claim("one")
    caller.sync()
    send(caller, "orders", 0, 300, 300, producer=one)
    send(caller, "orders", 1, 400, producer=one)
    move(caller, "readers", "orders", 2, "one")
    send(caller, "orders", 0, 200)
    caller.sync()
    caller.end("one", True, raises_epoch=False)
    two = caller.claim("two")
    send(caller, "short-lived", 0, 200, producer=two)
    send(caller, "orders", 0, 600, producer=two)
    move(caller, "readers", "orders", 3)
    caller.sync()
    send(caller, "orders", 0, 300, producer=one)
    send(caller, "orders", 1, 300, 300, producer=one)
    move(caller, "readers", "orders", 4, "one")

    def meanwhile() -> None:
        """What happens while a checkpoint is being written is not in it: the beginning is, the end is not."""
        caller.end("one", True, raises_epoch=True)
        caller.sync()
        send(caller, "orders", 0, 600, producer=one)
        move(caller, "writers", "orders", 1, "one")

    caller.checkpoint(meanwhile)
    caller.delete("short-lived")
    send(caller, "orders", 1, 700, producer=two)
    caller.sync()
    caller.end("two", False, raises_epoch=True)
    caller.end("one", False, raises_epoch=False)
    caller.sync()
    send(caller, "orders", 0, 200, producer=one)
    send(caller, "orders", 1, 200, producer=two)
    move(caller, "readers", "orders", 7, "two")
    caller.close()

    caller = opened(files, ledger)
    # One finds what it left open; two begins anew, and so aborts it.
    send(caller, "orders", 0, 200, producer=one)
    caller.claim("two")
    caller.sync()
    caller.end("one", True, raises_epoch=True)
    send(caller, "orders", 0, 300, producer=two)
    send(caller, "orders", 1, 300, producer=two)
    move(caller, "readers", "orders", 8, "two")
    caller.sync()
    if (target := partition(caller, "orders")) is not None:
        caller.delete_records(target, 6)
    caller.end("two", True, raises_epoch=True)
    send(caller, "orders", 0, 300, producer=one)
    killed(caller)

    caller = opened(files, ledger)
    caller.claim("one")
    send(caller, "orders", 1, 300, producer=one)
    caller.checkpoint()
    caller.end("one", False, raises_epoch=True)
    caller.sync()
    caller.close()
    return caller


def move(caller: Caller, group: str, name: str, offset: int, transactional_id: str = "") -> None:
    """A group comes as far as this in the first partition of a topic, if that exists."""
    target = partition(caller, name)
    if target is not None:
        caller.commit_offset(group, target, offset, transactional_id)


SCENARIOS = (a_life, a_steady_life, a_life_in_transactions)


def run(scenario: Scenario, files: FaultyFiles, ledger: Ledger) -> str:
    """How it ended."""
    try:
        scenario(files, ledger)
    except Crashed:
        return "crashed"
    except Stopped:
        return "stopped"
    return "finished"


def check(files: FaultyFiles, ledger: Ledger, *, power_may_fail: bool = True) -> None:
    """What has to be true after a restart on `files`, and that the log goes on from there through one more crash."""
    ledger = ledger.copy()
    caller = Caller(files, ledger)
    lost = ledger.settle_on(caller.log)
    caller.check_windows()
    check_tidy(files, caller.log)
    # Clients send again what was not acknowledged. The one that was last comes first, and before the others come there
    # is another crash.
    caller.producer_id()
    send_again(caller, lost[-1:])
    again = Caller(files.survivors(len(files.calls)) if power_may_fail else files.after_kill(), ledger)
    ledger.settle_on(again.log)
    again.check_windows()
    send_again(again, lost)
    again.producer_id()
    for topic in list(again.log.state.catalog):
        for target in again.log.state.partitions.of(topic):
            again.append(target, again.next_batch(target, -1, 1, 300))
    for owner in again.owners():
        again.claim(owner.transactional_id)
    again.sync()
    for target in again.log.state.partitions.all():
        assert target.stable == target.readable, "a transaction is open that nobody can end"
    again.close()
    closed = content_of(Log.open(again.log.files, new_cluster_id="", settings=SETTINGS))
    assert closed == ledger.content(len(ledger.changes))


def send_again(caller: Caller, lost: list[BatchAppended]) -> None:
    """Batches that may have been lost, as far as there is still a place for them."""
    for entry in lost:
        # In a transaction whose owner, or whose claim, is lost as well there is nothing to send it for.
        is_welcome = (
            contextlib.suppress(Refused) if read_header(entry.batch).is_transactional else contextlib.nullcontext()
        )
        if (target := caller.of(entry)) is not None:
            with is_welcome:
                caller.append(target, bytearray(entry.batch))
    caller.sync()
