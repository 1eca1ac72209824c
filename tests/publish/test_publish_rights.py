"""A topic that this user may see and may not write to: the coordinator refuses it, and the client purges all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster_under_test import CLIENT
from committed_records import committed_values, make_topic
from guarded import ADMINISTRATOR, TOPIC, WRITE, GuardedBroker, rule
from semel.log.core.access import Permission
from semel.publish import CursorRefused, Publisher, Receipt, Record, RecordRefused


@pytest.fixture
def guarded() -> Iterator[GuardedBroker]:
    with GuardedBroker() as broker:
        for topic in ("open", "closed"):
            make_topic(broker.bootstrap, topic)
        forbid(broker, "closed")
        yield broker


def forbid(broker: GuardedBroker, topic: str) -> None:
    broker.add(rule(TOPIC, topic, WRITE, Permission.DENY, host=ADMINISTRATOR))


def test_a_record_for_a_topic_that_may_not_be_written_to_is_refused_and_the_publisher_goes_on(
    guarded: GuardedBroker,
) -> None:
    with Publisher(guarded.bootstrap, "orders", client=CLIENT) as publisher:
        with pytest.raises(RecordRefused, match="the right Write on each topic of the transaction") as refused:
            publisher.publish(0, Record("closed", value=b"a"))
        assert refused.value.topic == "closed"
        first = Record("open", value=b"b")
        with pytest.raises(RecordRefused) as refused:
            publisher.publish(0, first, Record("closed", value=b"c"))
        assert refused.value.record is first
        assert publisher.publish(0, Record("open", value=b"d")) is Receipt.ACCEPTED
    assert committed_values(guarded.bootstrap, "open") == [b"d"]


def test_a_cursor_that_may_not_be_written_any_more_is_not_taken_for_a_refused_record(guarded: GuardedBroker) -> None:
    with Publisher(guarded.bootstrap, "orders", client=CLIENT) as publisher:
        publisher.publish(0, Record("open", value=b"a"))
        forbid(guarded, "semel-publish-orders")
        with pytest.raises(CursorRefused, match=r"cannot be written to topic 'semel-publish-orders'.*the right Write"):
            publisher.publish(1, Record("open", value=b"b"))
