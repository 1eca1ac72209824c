"""On asyncio: the same promises, the loop goes on, and whoever is cancelled leaves nothing half done."""

from __future__ import annotations

import asyncio

import pytest

from cluster_under_test import CLIENT
from committed_records import committed_values
from semel.publish import AsyncPublisher, Gap, PublishRefused, Receipt, Record


def numbered(topic: str, number: int) -> Record:
    return Record(topic, value=b"%d" % number, partition=0)


async def test_numbers_are_published_in_the_order_of_the_calls(bootstrap: str, name: str, topic: str) -> None:
    async with AsyncPublisher(bootstrap, name, client=CLIENT) as publisher:
        assert await publisher.last() == -1
        outcomes = await asyncio.gather(*(publisher.publish(n, numbered(topic, n)) for n in range(5)))
        assert outcomes == [Receipt.ACCEPTED] * 5
        assert await publisher.publish_many([(n, [numbered(topic, n)]) for n in (4, 5)]) == [
            Receipt.DUPLICATE,
            Receipt.ACCEPTED,
        ]
        with pytest.raises(Gap):
            await publisher.publish(9)
    await publisher.close()
    with pytest.raises(PublishRefused, match="was closed"):
        await publisher.last()
    assert committed_values(bootstrap, topic) == [b"%d" % n for n in range(6)]


def test_a_call_that_is_cancelled_is_finished_or_was_never_begun(bootstrap: str, name: str, topic: str) -> None:
    async def publish() -> int:
        async with AsyncPublisher(bootstrap, name, client=CLIENT) as publisher:
            await publisher.publish(0, numbered(topic, 0))
            under_way = asyncio.create_task(publisher.publish(1, numbered(topic, 1)))
            waiting = asyncio.create_task(publisher.publish(2, numbered(topic, 2)))
            await asyncio.sleep(0)
            under_way.cancel()
            waiting.cancel()
            for cancelled in (under_way, waiting):
                with pytest.raises(asyncio.CancelledError):
                    await cancelled
            # Whatever was under way is over when this is answered.
            return await publisher.last()

    last = asyncio.run(publish())
    assert committed_values(bootstrap, topic) == [b"%d" % n for n in range(last + 1)]


def test_a_setting_is_refused_where_the_publisher_is_made() -> None:
    with pytest.raises(PublishRefused, match="acks"):
        AsyncPublisher("h:1", "orders", client={"acks": 1})
