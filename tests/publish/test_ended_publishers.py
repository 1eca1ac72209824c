"""A publisher that has ended has no client left, whatever its caller keeps: a client goes on asking for its topics."""

from __future__ import annotations

import pytest
from publishers import Publishers

from left_running import clients_of_librdkafka
from semel.publish import CursorRefused, Fenced, Record
from semel.testing.broker import FaultyBroker


def test_a_fenced_publisher_whose_error_is_kept_asks_the_brokers_for_nothing_more(
    publishers: Publishers, topic: str
) -> None:
    """The broker would make its topic anew for it, after somebody has deleted that."""
    before = clients_of_librdkafka()
    first = publishers()
    first.publish(0, Record(topic, None, b"one"))
    with publishers() as second:
        with pytest.raises(Fenced) as kept:
            first.publish(1, Record(topic, None, b"two"))
        second.publish(1, Record(topic, None, b"two"))
        assert clients_of_librdkafka() == before + 1
    assert clients_of_librdkafka() == before
    assert kept.value is not None


def test_a_publisher_that_was_refused_asks_the_brokers_for_nothing_more(
    publishers: Publishers, faulty: FaultyBroker, name: str
) -> None:
    before = clients_of_librdkafka()
    faulty.create_topic(f"semel-publish-{name}")
    with pytest.raises(CursorRefused) as kept:
        publishers().open()
    assert clients_of_librdkafka() == before
    assert kept.value is not None
