"""What takes too long is ended by the broker itself, and who was silent for too long is forgotten."""

import asyncio
import errno
import logging
import os

import pytest
from skipping import SkippingLoop, run, until

from asking import Asker
from eventually import eventually
from semel.log.broker.alarm import DUE_AGAIN_MS
from semel.log.broker.broker import Broker
from semel.log.broker.chores import forget_silent_transactional_ids
from semel.log.broker.exposition import exposition
from semel.log.core.entries import Entry, PartitionName, TransactionEnded
from semel.log.core.transactions import State
from semel.log.embedded import EmbeddedBroker
from semel.log.storage.files import MemoryFiles
from semel.log.storage.log import Log
from semel.log.storage.markers import PreparedEnd
from semel.testing.clock import Clock
from semel.wire.errors import ErrorCode
from semel.wire.steps import finish
from semel.wire.versions import FETCH
from transacting import TransactionalProducer, committed, described

WEEK_SECONDS = 604_800


def begin(broker: Broker, name: str, timeout_ms: int = 60_000) -> int:
    """Open a transaction in partition 0 of the first topic; answers the producer id."""
    if broker.log.state.catalog.named("orders") is None:
        broker.runtime.commit(broker.log.state.catalog.decide_create("orders", 1, {}, bytes(16), 0))
    topic = broker.log.state.catalog.existing("orders")
    claim = broker.transactions.claim(name, timeout_ms, None)
    producer = (name, claim.producer_id, claim.producer_epoch)
    broker.transactions.add_partitions(*producer, [PartitionName(topic.number, 0)])
    return claim.producer_id


def state_of(broker: Broker, name: str) -> State:
    found = broker.log.state.transactions.described(name)
    assert found is not None
    return found.state


def shown(broker: Broker) -> set[str]:
    return set(exposition(broker).splitlines())


def test_readers_of_committed_records_wait_no_longer_than_the_timeout_of_who_went_silent() -> None:
    with EmbeddedBroker() as broker:
        ask = Asker(broker.bootstrap)
        ask.create("orders")
        silent = TransactionalProducer(ask, "silent")
        silent.claim(timeout_ms=50)
        silent.send("orders", "never", version=12)
        wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000_000, "log_start_offset": -1}
        answer = ask(
            FETCH,
            12,
            max_wait_ms=30_000,
            min_bytes=1,
            max_bytes=1_000_000,
            isolation_level=1,
            session_id=0,
            session_epoch=-1,
            replica_id=-1,
            forgotten_topics_data=[],
            topics=[{"topic": "orders", "partitions": [wanted]}],
        )
        (partition,) = answer.responses[0].partitions
        assert partition.last_stable_offset == partition.high_watermark == 2
        assert committed(ask, "orders") == []
        assert described(ask, "silent").transaction_state == "CompleteAbort"
        assert silent.send("orders", "late", version=12) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert silent.end(version=4) == ErrorCode.PRODUCER_FENCED
        assert silent.end(version=5) == ErrorCode.INVALID_TXN_STATE
        ask.close()


def test_a_transaction_that_goes_on_growing_ends_at_its_deadline_all_the_same() -> None:
    """Or a producer could keep all readers of committed records waiting for ever."""

    async def scenario(loop: SkippingLoop) -> None:
        async with Broker() as broker:
            producer_id = begin(broker, "busy", 100_000)
            begin(broker, "idle", 100_000)
            for group in ("one", "two"):
                loop.skipped_s += 40
                broker.transactions.add_group("busy", producer_id, 0, group)
            loop.skipped_s += 30
            await until(lambda: state_of(broker, "idle") is State.COMPLETE_ABORT)
            assert state_of(broker, "busy") is State.COMPLETE_ABORT

    run(scenario)


def test_a_restart_gives_no_transaction_its_time_anew() -> None:
    files, clock = MemoryFiles(), Clock()

    async def scenario(loop: SkippingLoop) -> None:
        async with Broker(files=files, clock=clock.time) as broker:
            begin(broker, "old", 100_000)
        loop.skip(clock, 90)
        async with Broker(files=files, clock=clock.time) as broker:
            begin(broker, "new", 14_000)
            loop.skip(clock, 15)
            await until(lambda: state_of(broker, "new") is State.COMPLETE_ABORT)
            assert state_of(broker, "old") is State.COMPLETE_ABORT

    run(scenario)


def test_every_transaction_ends_at_its_own_deadline_and_is_told_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(loop: SkippingLoop) -> None:
        async with Broker() as broker:
            begin(broker, "slow", 50_000)
            begin(broker, "fast", 10_000)
            assert "semel_open_transactions 2" in shown(broker)
            loop.skipped_s += 11
            await until(lambda: broker.log.state.transactions.open_count == 1)
            assert state_of(broker, "fast") is State.COMPLETE_ABORT
            assert state_of(broker, "slow") is State.ONGOING
            loop.skipped_s += 40
            await until(lambda: broker.log.state.transactions.open_count == 0)
            assert {
                'semel_transactions_total{outcome="timed_out"} 2',
                'semel_transactions_total{outcome="committed"} 0',
                "semel_open_transactions 0",
                "semel_transactional_ids 2",
            } <= shown(broker)

    run(scenario)
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        f"event=transaction_timed_out transactional_id={name} producer_id={producer_id} partitions=1 groups=0"
        for name, producer_id in (("fast", 1001), ("slow", 1000))
    ]


def test_a_transaction_that_somebody_else_has_aborted_is_told_with_its_id(caplog: pytest.LogCaptureFixture) -> None:
    """By a command, or by a producer that was started again; and nothing is told if nothing was open."""

    async def scenario() -> None:
        async with Broker() as broker:
            begin(broker, "stuck", 50_000)
            for _ in range(2):
                finish(broker.transactions.claim_in_steps("stuck", 50_000, None, "10.0.0.7"))

    asyncio.run(scenario())
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "event=transaction_fenced transactional_id=stuck producer_id=1000 claimed_from=10.0.0.7 partitions=1 groups=0"
    ]


def test_a_transaction_that_its_offsets_alone_have_opened_ends_at_its_deadline() -> None:
    """Whoever reads its group's stable offsets waits for it."""
    with EmbeddedBroker() as broker, Asker(broker.bootstrap) as ask:
        ask.create("orders")
        silent = TransactionalProducer(ask, "silent")
        silent.claim(timeout_ms=50)
        assert silent.commit_offset("readers", "orders", 5, version=5) == 0
        assert eventually(lambda: described(ask, "silent").transaction_state == "CompleteAbort")


async def test_a_transaction_of_before_a_restart_keeps_its_deadline() -> None:
    files, clock = MemoryFiles(), Clock()
    broker = Broker(files=files, clock=clock.time)
    await broker.start()
    begin(broker, "silent", 10_000)
    await broker.kill()
    clock.ms += 10_000
    async with Broker(files=files, clock=clock.time) as again:
        await until(lambda: again.log.state.transactions.open_count == 0)
        assert state_of(again, "silent") is State.COMPLETE_ABORT


def test_a_transaction_that_began_under_a_clock_far_ahead_gets_no_more_than_its_time_after_a_restart() -> None:
    files, clock = MemoryFiles(), Clock()

    async def scenario(loop: SkippingLoop) -> None:
        broker = Broker(files=files, clock=clock.time)
        await broker.start()
        begin(broker, "silent", 10_000)
        await broker.kill()
        clock.ms -= WEEK_SECONDS * 1000
        async with Broker(files=files, clock=clock.time) as again:
            loop.skipped_s += 11
            await until(lambda: again.log.state.transactions.open_count == 0)
            assert state_of(again, "silent") is State.COMPLETE_ABORT

    run(scenario)


def test_an_end_that_the_disk_refuses_is_tried_again_until_it_is_done(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    refused = 0

    def refuse(log: Log, entry: Entry, prepared: object = None) -> None:
        nonlocal refused
        refused += 1
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def scenario(loop: SkippingLoop) -> None:
        def skip() -> None:
            loop.skipped_s += DUE_AGAIN_MS / 1000

        async with Broker() as broker:
            begin(broker, "silent", 10_000)
            loop.skipped_s += 11
            monkeypatch.setattr(Log, "commit", refuse)
            await until(lambda: refused >= 3, skip)
            assert state_of(broker, "silent") is State.ONGOING
            monkeypatch.undo()
            await until(lambda: state_of(broker, "silent") is State.COMPLETE_ABORT, skip)
            assert broker.metrics.storage_errors == refused

    run(scenario)


def test_an_overdue_transaction_that_cannot_be_ended_holds_up_none_of_those_behind_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    commit, stuck = Log.commit, 0
    tried: list[int] = []

    def slip(log: Log, entry: Entry, prepared: PreparedEnd | None = None) -> None:
        if isinstance(entry, TransactionEnded) and entry.producer_id == stuck:
            tried.append(stuck)
            raise ValueError("this cannot follow on what is there")
        commit(log, entry, prepared)

    async def scenario(loop: SkippingLoop) -> None:
        nonlocal stuck

        def skip() -> None:
            loop.skipped_s += DUE_AGAIN_MS / 1000

        async with Broker() as broker:
            stuck = begin(broker, "stuck", 10_000)
            begin(broker, "behind", 10_001)
            monkeypatch.setattr(Log, "commit", slip)
            loop.skipped_s += 11
            await until(lambda: state_of(broker, "behind") is State.COMPLETE_ABORT)
            await until(lambda: len(tried) >= 2, skip)
            assert state_of(broker, "stuck") is State.ONGOING
            monkeypatch.undo()
            await until(lambda: state_of(broker, "stuck") is State.COMPLETE_ABORT, skip)

    run(scenario)
    assert "event=housekeeping_failed" in [record.getMessage() for record in caplog.records]


def test_ids_that_nobody_used_for_a_week_are_forgotten_for_good() -> None:
    files, clock = MemoryFiles(), Clock()

    async def scenario(loop: SkippingLoop) -> None:
        broker = Broker(files=files, clock=clock.time)
        await broker.start()
        finish(forget_silent_transactional_ids(broker.runtime))
        broker.transactions.claim("old", 60_000, None)
        loop.skip(clock, 1)
        broker.transactions.claim("young", 60_000, None)
        loop.skip(clock, WEEK_SECONDS - 1)
        finish(forget_silent_transactional_ids(broker.runtime))
        assert broker.metrics.forgotten_transactional_ids == 1
        await broker.kill()
        async with Broker(files=files, clock=clock.time) as again:
            transactions = again.log.state.transactions
            assert [found.owner.transactional_id for found in transactions.all_described()] == ["young"]

    run(scenario)


def test_a_broker_looks_for_silent_ids_by_itself() -> None:
    clock = Clock()

    async def scenario(loop: SkippingLoop) -> None:
        async with Broker(clock=clock.time) as broker:
            broker.transactions.claim("old", 60_000, None)
            finish(forget_silent_transactional_ids(broker.runtime))
            loop.skip(clock, WEEK_SECONDS)
            await until(lambda: len(broker.log.state.transactions) == 0)

    run(scenario)
