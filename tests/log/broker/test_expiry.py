"""What nobody has used for a week is forgotten by itself, for good, and an operator hears of it; downtime is no use."""

import logging

import pytest
from skipping import SkippingLoop, run, until

from ledger import NOW_MS, batch
from semel.log.broker.broker import Broker
from semel.log.broker.chores import forget_old_offsets, forget_silent_producers
from semel.log.broker.exposition import exposition
from semel.log.broker.limits import Limits
from semel.log.core.batch_checks import check_sent
from semel.log.core.entries import StoredOffset
from semel.log.storage.files import MemoryFiles
from semel.testing.clock import Clock
from semel.wire.sequences import Outcome
from semel.wire.steps import finish

WEEK_SECONDS = 7 * 24 * 60 * 60


def commit(broker: Broker, group: str, number: int, offset: int) -> None:
    offsets = [StoredOffset(number, 0, offset, 0, "")]
    broker.runtime.commit(broker.log.state.groups.decide_commit(group, offsets, broker.clock.now_ms(), retention_ms=-1))


def groups(broker: Broker) -> list[str]:
    return [group.name for group in broker.log.state.groups]


def test_offsets_of_a_week_ago_are_forgotten_for_good(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    files, clock = MemoryFiles(), Clock(NOW_MS)

    async def scenario(loop: SkippingLoop) -> None:
        broker = Broker(files=files, clock=clock.time)
        await broker.start()
        finish(forget_old_offsets(broker.runtime))
        created = broker.log.state.catalog.decide_create("orders", 1, {}, bytes(16), 0)
        broker.runtime.commit(created)
        commit(broker, "old", created.number, 5)
        loop.skip(clock, 1)
        commit(broker, "young", created.number, 6)
        loop.skip(clock, WEEK_SECONDS - 1)
        finish(forget_old_offsets(broker.runtime))
        assert groups(broker) == ["young"]
        shown = exposition(broker).splitlines()
        assert {"semel_groups 1", "semel_group_offsets 1", "semel_forgotten_offsets_total 1"} <= set(shown)
        await broker.kill()

        async with Broker(files=files, clock=clock.time) as again:
            assert groups(again) == ["young"]
            # A crash takes what was noted of the time before with it; nobody is forgotten too soon by that.
            finish(forget_old_offsets(again))
            assert groups(again) == ["young"]
            loop.skip(clock, WEEK_SECONDS)
            finish(forget_old_offsets(again))
            assert groups(again) == []

    run(scenario)
    told = [record.getMessage() for record in caplog.records]
    assert "event=offsets_forgotten group=old partitions=1" in told
    assert "event=group_forgotten group=old" in told


def test_a_broker_looks_for_old_offsets_by_itself() -> None:
    clock = Clock(NOW_MS)

    async def scenario(loop: SkippingLoop) -> None:
        async with Broker(clock=clock.time) as broker:
            created = broker.log.state.catalog.decide_create("orders", 1, {}, bytes(16), 0)
            broker.runtime.commit(created)
            finish(forget_old_offsets(broker.runtime))
            commit(broker, "old", created.number, 5)
            loop.skip(clock, WEEK_SECONDS)
            await until(lambda: groups(broker) == [])

    run(scenario)


DAY_SECONDS = 24 * 60 * 60


async def appended(broker: Broker, sent: bytearray) -> Outcome:
    """What becomes of a batch, as a broker judges it that keeps house."""
    finish(forget_silent_producers(broker.runtime))
    topic = broker.log.state.catalog.named("orders")
    if topic is None:
        broker.runtime.commit(broker.log.state.catalog.decide_create("orders", 1, {}, bytes(16), 0))
        topic = broker.log.state.catalog.existing("orders")
    partition = broker.log.state.partitions.of(topic)[0]
    header = check_sent(sent, len(sent))
    return broker.log.append(topic, partition, header, sent, broker.clock.now_ms()).outcome


@pytest.mark.parametrize("dies", [True, False])
async def test_a_batch_that_is_sent_again_after_a_month_of_downtime_is_known(dies: bool) -> None:
    """The client went on sending; it was the broker that was away."""
    files, clock = MemoryFiles(), Clock(NOW_MS)
    broker = Broker(files=files, clock=clock.time)
    await broker.start()
    assert await appended(broker, batch(1000, 0)) is Outcome.ACCEPTED
    await (broker.kill() if dies else broker.stop())
    clock.ms += (30 * DAY_SECONDS) * 1000
    async with Broker(files=files, clock=clock.time) as again:
        assert await appended(again, batch(1000, 0)) is Outcome.DUPLICATE
        assert again.metrics.forgotten_producers == 0


async def test_a_clock_that_is_a_month_ahead_for_a_moment_forgets_no_producer() -> None:
    clock = Clock(NOW_MS)
    async with Broker(clock=clock.time) as broker:
        assert await appended(broker, batch(1000, 0)) is Outcome.ACCEPTED
        for skipped_seconds in (30 * DAY_SECONDS, -30 * DAY_SECONDS):
            clock.ms += skipped_seconds * 1000
            assert await appended(broker, batch(1000, 0)) is Outcome.DUPLICATE


def test_a_producer_that_was_silent_for_as_long_as_the_limit_says_is_forgotten_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock(NOW_MS)

    async def scenario(loop: SkippingLoop) -> None:
        async with Broker(clock=clock.time, limits=Limits(producer_expiration_ms=60_000)) as broker:
            await appended(broker, batch(1000, 0))
            loop.skip(clock, 60)
            finish(forget_silent_producers(broker.runtime))
            assert broker.log.state.partitions.producer_count == 1
            loop.skip(clock, 1)
            finish(forget_silent_producers(broker.runtime))
            assert broker.log.state.partitions.producer_count == 0
            assert "semel_forgotten_producers_total 1" in exposition(broker).splitlines()

    run(scenario)
    assert "event=producers_forgotten producers=1" in [record.getMessage() for record in caplog.records]
