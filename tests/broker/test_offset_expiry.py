"""Offsets that nobody has used for a week are forgotten by themselves, for good, and an operator hears of it."""

import asyncio
import logging

import pytest

from semel.broker.broker import Broker
from semel.broker.exposition import exposition
from semel.broker.offset_expiry import forget_old_offsets
from semel.core.entries import StoredOffset
from semel.storage.files import MemoryFiles
from semel.testing.clock import Clock

WEEK_SECONDS = 7 * 24 * 60 * 60


def commit(broker: Broker, group: str, number: int, offset: int) -> None:
    offsets = [StoredOffset(number, 0, offset, 0, "")]
    broker.commit(broker.log.groups.decide_commit(group, offsets, broker.now_ms(), retention_ms=-1))


def groups(broker: Broker) -> list[str]:
    return [group.name for group in broker.log.groups]


def test_offsets_of_a_week_ago_are_forgotten_for_good(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    files, clock = MemoryFiles(), Clock()

    async def scenario() -> None:
        broker = Broker(files=files, clock=clock.time)
        await broker.start()
        created = broker.log.catalog.decide_create("orders", 1, {}, bytes(16), 0)
        broker.commit(created)
        commit(broker, "old", created.number, 5)
        clock.ms += 1000
        commit(broker, "young", created.number, 6)
        clock.ms += (WEEK_SECONDS - 1) * 1000
        forget_old_offsets(broker)
        assert groups(broker) == ["young"]
        shown = exposition(broker).splitlines()
        assert {"semel_groups 1", "semel_group_offsets 1", "semel_forgotten_offsets_total 1"} <= set(shown)
        await broker.kill()

        async with Broker(files=files, clock=clock.time) as again:
            assert groups(again) == ["young"]
            clock.ms += 1000
            forget_old_offsets(again)
            assert groups(again) == []

    asyncio.run(scenario())
    told = [record.getMessage() for record in caplog.records]
    assert "event=offsets_forgotten group=old partitions=1" in told
    assert "event=group_forgotten group=old" in told


def test_a_broker_looks_for_old_offsets_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semel.broker.broker.EXPIRY_SECONDS", 0.0)

    async def scenario() -> None:
        looked = asyncio.Event()

        def look(broker: Broker) -> None:
            looked.set()

        monkeypatch.setattr("semel.broker.broker.forget_old_offsets", look)
        async with Broker():
            await looked.wait()

    asyncio.run(scenario())
