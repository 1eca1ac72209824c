"""An entry that was written and could not be applied: the broker stops at once, answers nobody, and a restart has it.

Otherwise the retry of a batch that nobody can read would hear that it is there.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from skipping import SkippingLoop, run

from asking import Asker, ConnectionEnded
from ledger import Caller, Ledger
from semel.log.broker.broker import Broker
from semel.log.broker.chores import RETENTION_SECONDS
from semel.log.broker.failure import BrokerFailed
from semel.log.core.batch_checks import check_sent
from semel.log.core.entries import ConsumerGroupChanged, OffsetsForgotten
from semel.log.core.groups.consumer import ConsumerGroup
from semel.log.core.partition import Partition
from semel.log.core.state import State
from semel.log.core.transactions import Transactions
from semel.log.storage.log import Log, Torn
from semel.log.storage.partition_log import PartitionLog
from semel.testing.broker import FaultyBroker
from semel.testing.faulty import FaultyFiles
from semel.wire.records import Record, encode_batch
from semel.wire.versions import CONSUMER_GROUP_HEARTBEAT, INIT_PRODUCER_ID, OFFSET_COMMIT, PRODUCE

BATCH = bytes(encode_batch([Record(b"one")], producer_id=1000, producer_epoch=0, base_sequence=0))


def fail_once(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, error: Exception) -> None:
    """The first call of this method breaks off."""
    whole = getattr(owner, name)

    def break_off(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(owner, name, whole)
        raise error

    monkeypatch.setattr(owner, name, break_off)


def produce(ask: Asker, acks: int = -1) -> Any:
    data = [{"name": "orders", "partition_data": [{"index": 0, "records": BATCH}]}]
    answer = ask(PRODUCE, 9, transactional_id=None, acks=acks, timeout_ms=1000, topic_data=data)
    return answer.responses[0].partition_responses[0]


def claim(ask: Asker) -> Any:
    return ask(
        INIT_PRODUCER_ID, 4, transactional_id="one", transaction_timeout_ms=9_000, producer_id=-1, producer_epoch=-1
    )


def commit_offset(ask: Asker) -> Any:
    offset = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}
    topics = [{"name": "orders", "partitions": [offset]}]
    return ask(OFFSET_COMMIT, 8, group_id="readers", member_id="", generation_id_or_member_epoch=-1, topics=topics)


@pytest.fixture
def ask(semel_broker: FaultyBroker) -> Iterator[Asker]:
    asker = Asker(semel_broker.bootstrap)
    asker.create("orders")
    asker(INIT_PRODUCER_ID, transactional_id=None, transaction_timeout_ms=0, producer_id=-1, producer_epoch=-1)
    yield asker
    asker.close()


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize(
    ("owner", "step"),
    [
        (State, "apply_batch"),
        (PartitionLog, "apply_append"),
        (Partition, "apply_append"),
        (PartitionLog, "end_mark"),
    ],
)
@pytest.mark.parametrize("error", [MemoryError(), OSError(5, "an error of the disk"), ValueError("a slip")])
def test_a_batch_that_was_written_and_not_applied_stops_the_broker_and_is_there_after_a_restart(
    semel_broker: FaultyBroker,
    ask: Asker,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    step: str,
    error: Exception,
    acks: int,
) -> None:
    fail_once(monkeypatch, owner, step, error)
    with pytest.raises(ConnectionEnded):
        produce(ask, acks)
    with pytest.raises(ConnectionRefusedError):
        Asker(semel_broker.bootstrap)
    semel_broker.restart()
    ask = Asker(semel_broker.bootstrap)
    again = produce(ask)
    assert (again.error_code, again.base_offset) == (0, 0)
    assert [record.value for record in semel_broker.log("orders")] == [b"one"]
    ask.close()


@pytest.mark.parametrize(
    ("owner", "step", "change"),
    [(Transactions, "apply", claim), (State, "apply", claim), (State, "apply", commit_offset)],
)
def test_any_other_entry_that_was_written_and_not_applied_stops_the_broker(
    semel_broker: FaultyBroker,
    ask: Asker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    owner: type,
    step: str,
    change: Callable[[Asker], Any],
) -> None:
    caplog.set_level(logging.DEBUG)
    fail_once(monkeypatch, owner, step, MemoryError())
    with pytest.raises(ConnectionEnded):
        change(ask)
    (stopped,) = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert "failed after a part of it was applied: MemoryError()" in stopped.getMessage()
    assert stopped.exc_info is None, "an operator reads one line; where it broke off is for who looks for the cause"
    assert [record.exc_info is not None for record in caplog.records if "where" in record.getMessage()] == [True]
    semel_broker.restart()
    ask = Asker(semel_broker.bootstrap)
    change(ask)
    ask.close()


def test_a_step_of_a_chore_that_was_written_and_not_applied_stops_the_broker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Log, "retain", lambda log, now_ms: log.commit(OffsetsForgotten("readers", ())))
    fail_once(monkeypatch, State, "apply", MemoryError())

    async def scenario(loop: SkippingLoop) -> None:
        broker = Broker()
        await broker.start()
        loop.skipped_s += RETENTION_SECONDS
        with pytest.raises(BrokerFailed, match="failed after a part of it was applied: MemoryError"):
            await broker.failed
        await broker.stop()

    run(scenario)
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL]


def test_a_torn_log_vouches_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even as it is closed: a checkpoint would make what memory holds the truth."""
    files = FaultyFiles()
    caller = Caller(files, Ledger())
    topic = caller.create("orders")
    assert topic is not None
    partition = caller.log.state.partitions.of(topic)[0]
    fail_once(monkeypatch, Partition, "apply_append", MemoryError())
    for _ in range(2):
        with pytest.raises(Torn):
            caller.log.append(topic, partition, check_sent(BATCH, len(BATCH)), bytearray(BATCH), 0)
    for vouch in (caller.log.sync_now, caller.log.checkpoint_now, caller.log.close):
        with pytest.raises(Torn):
            vouch()
    again = Log.open(files.after_kill(), new_cluster_id="")
    assert again.state.partitions.all()[0].state.next_offset == 1


def test_what_could_not_be_applied_is_not_written(
    semel_broker: FaultyBroker, ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of ours in a decision costs one request, and not every start that follows."""
    wrong = ConsumerGroupChanged("readers", 1, 1, "", ("nobody",), (), (), (), 0)
    monkeypatch.setattr(ConsumerGroup, "decide_heartbeat", lambda *_: wrong)
    joins = {"group_id": "readers", "member_id": "a", "member_epoch": 0, "rebalance_timeout_ms": 1_000}
    with pytest.raises(ConnectionEnded):
        ask(CONSUMER_GROUP_HEARTBEAT, 1, **joins, subscribed_topic_names=["orders"], topic_partitions=[])
    ask = Asker(semel_broker.bootstrap)
    assert produce(ask).error_code == 0
    semel_broker.kill()
    semel_broker.start()
    assert [record.value for record in semel_broker.log("orders")] == [b"one"]
    ask.close()
