"""Records and topics that are deleted while a pass works on them: they do not come back, and nobody is alarmed."""

import pytest
from compacting import COMPACTED, TOPIC, CompactingBroker, HeldThreads, consumed, fill, record
from histories import last_values

from asking import Asker
from semel.log.broker.broker import Broker
from semel.log.core.entries import LogStartMoved
from semel.log.storage.files import MemoryFiles
from semel.log.storage.journal import Damaged


@pytest.mark.parametrize("leaves_records", [False, True])
@pytest.mark.parametrize("what", ["records are deleted", "the topic is deleted", "all records are deleted"])
def test_what_goes_while_it_is_compacted_does_not_come_back_and_leaves_no_file(what: str, leaves_records: bool) -> None:
    """Neither if the pass has written a segment with what is left of the first ones, nor if nothing was left."""
    threads, files = HeldThreads(), MemoryFiles()
    with CompactingBroker(files, disk_threads=threads) as broker:
        ask = Asker(broker.bootstrap)
        ask.create(TOPIC, **{**COMPACTED, "cleanup_policy": "compact,delete"})
        if leaves_records:
            ask.produce(TOPIC, [record(b"0"), record(b"never again")])
        fill(ask)
        before = consumed(ask)

        def meanwhile() -> None:
            log = broker._broker.log
            (partition,) = log.state.partitions.all()
            if what == "the topic is deleted":
                topic = next(iter(log.state.catalog))
                log.commit(log.state.catalog.decide_delete(TOPIC, log.state.producer_ids.block_count, broker.now_ms))
                assert log.state.catalog.numbered(topic.number) is None
            else:
                offset = 3 if what == "records are deleted" else partition.readable.offset
                log.commit(LogStartMoved(partition.topic_number, 0, offset))
            log.sync_now()
            log.checkpoint_now()

        broker.run(lambda inner: inner.compactor.look())
        broker.run(lambda _: threads.step())
        broker.run(lambda _: threads.step(meanwhile))
        broker.run(lambda _: [None for _ in iter(threads.step, False)])
        broker.run(lambda inner: inner.log.checkpoint_now())
        partitions = broker.run(lambda inner: inner.log.state.partitions.all())
        known = {segment.path for partition in partitions for segment in partition.segments if segment.size}
        found = {name for name in files._contents if name.startswith("topics/")}
        assert found == known
        if what == "records are deleted":
            assert last_values(consumed(ask, 3)) == last_values(k for k in before if k.offset >= 3)
        ask.close()


@pytest.mark.parametrize("is_in_store", [False, True])
@pytest.mark.parametrize("jobs", [0, 1])
def test_records_deleted_before_the_pass_comes_to_them_are_no_fault(
    jobs: int, is_in_store: bool, caplog: pytest.LogCaptureFixture
) -> None:
    threads = HeldThreads()
    with CompactingBroker(disk_threads=threads) as broker:
        ask = Asker(broker.bootstrap)
        ask.create(TOPIC, **{**COMPACTED, "cleanup_policy": "compact,delete"})
        fill(ask)

        def delete(inner: Broker) -> None:
            (partition,) = inner.log.state.partitions.all()
            inner.log.commit(LogStartMoved(partition.topic_number, 0, partition.segments[-1].base_offset))
            inner.log.sync_now()
            inner.log.checkpoint_now()

        broker.run(lambda inner: inner.compactor.look())
        for _ in range(jobs):
            broker.run(lambda _: threads.step())
        broker.run(delete)
        if is_in_store:
            _, done = threads.held.pop()
            broker.run(lambda _: done(Damaged("the store no longer has this object")))
        broker.run(lambda _: [None for _ in iter(threads.step, False)])
        fill(ask)
        broker.run(lambda inner: inner.compactor.look())
        broker.run(lambda _: [None for _ in iter(threads.step, False)])
        assert broker.metrics.compactions == 1
        assert broker.metrics.storage_errors == 0
        ask.close()
    assert not [entry for entry in caplog.records if entry.levelname == "ERROR"]
