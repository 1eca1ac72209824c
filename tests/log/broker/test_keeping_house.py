"""What a broker does by itself goes on after a fault of its own, or ends loudly where it must not go on."""

import logging

import pytest
from skipping import SkippingLoop, run, until

from semel.log.broker.broker import Broker
from semel.log.broker.chores import RETENTION_SECONDS
from semel.log.broker.failure import BrokerFailed
from semel.log.storage.log import Log
from semel.wire.steps import Steps


def test_a_chore_that_breaks_off_is_told_and_done_again_next_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    times = 0

    async def scenario(loop: SkippingLoop) -> None:
        def skip() -> None:
            loop.skipped_s += RETENTION_SECONDS

        def retain(log: Log, now_ms: int) -> Steps[None]:
            nonlocal times
            times += 1
            yield 1
            if times == 1:
                raise ValueError("a slip")

        monkeypatch.setattr(Log, "retain", retain)
        async with Broker():
            await until(lambda: times >= 2, skip)

    run(scenario)
    assert [record.getMessage() for record in caplog.records] == ["event=housekeeping_failed"]


def test_a_chore_that_takes_longer_than_its_interval_is_not_begun_again_beside_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two of them would delete the same segments."""
    begun = ended = 0
    intervals = 0

    async def scenario(loop: SkippingLoop) -> None:
        def skip() -> None:
            nonlocal intervals
            intervals += 1
            loop.skipped_s += RETENTION_SECONDS

        def retain(log: Log, now_ms: int) -> Steps[None]:
            nonlocal begun, ended
            begun += 1
            while intervals < 5:
                yield 1
            ended += 1

        monkeypatch.setattr(Log, "retain", retain)
        async with Broker():
            await until(lambda: begun == 1, skip)
            await until(lambda: intervals >= 5 or begun > 1, skip)
            assert begun == 1
            await until(lambda: ended >= 2, skip)

    run(scenario)


@pytest.mark.parametrize("step", ["finish_sync", "finish_checkpoint"])
async def test_a_broker_that_loses_track_of_what_is_durable_stops_serving(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    """Or those who wait for an answer would wait for ever."""

    def slip(log: Log, job: object) -> None:
        raise ValueError("a slip")

    broker = Broker()
    await broker.start()
    monkeypatch.setattr(Log, step, slip)
    broker.log.new_producer_id(0)
    broker.pump.sync_soon()
    broker.pump.begin_checkpoint()
    with pytest.raises(BrokerFailed, match="a fault of its own: ValueError"):
        await broker.failed
    await broker.stop()
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL]
