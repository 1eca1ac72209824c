"""A number is published at most once and in order, whoever asks, and however often the program begins anew."""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from confluent_kafka import Producer
from publishers import Publishers

from committed_records import committed_records, committed_values, make_topic
from eventually import eventually
from semel.publish import CursorRefused, Fenced, Gap, PublishFailed, PublishRefused, Receipt, Record, RecordRefused
from semel.publish.rules import Cursor, encode, this_instance


def numbered(topic: str, number: int, count: int = 1) -> list[Record]:
    return [Record(topic, value=b"%d.%d" % (number, which), partition=0) for which in range(count)]


def test_what_was_published_is_there_once_and_in_order(publishers: Publishers, bootstrap: str, topic: str) -> None:
    publisher = publishers()
    assert publisher.last() == -1
    for number in (0, 0, 1, 0, 2, 2):
        expected = Receipt.DUPLICATE if number <= publisher.last() else Receipt.ACCEPTED
        assert publisher.publish(number, *numbered(topic, number, 2)) is expected
    assert publisher.last() == 2
    assert committed_values(bootstrap, topic) == [b"0.0", b"0.1", b"1.0", b"1.1", b"2.0", b"2.1"]


def test_a_restart_goes_on_where_the_last_life_ended(publishers: Publishers, bootstrap: str, topic: str) -> None:
    for life in range(3):
        publisher = publishers()
        assert publisher.last() == life - 1
        assert publisher.publish(max(life - 1, 0), *numbered(topic, 99)) is (
            Receipt.DUPLICATE if life else Receipt.ACCEPTED
        )
        if life:
            assert publisher.publish(life, *numbered(topic, life)) is Receipt.ACCEPTED
        publisher.close()
    assert committed_values(bootstrap, topic) == [b"99.0", b"1.0", b"2.0"]


def test_a_gap_is_an_error_and_writes_nothing(publishers: Publishers, bootstrap: str, topic: str) -> None:
    publisher = publishers()
    publisher.publish(0, *numbered(topic, 0))
    with pytest.raises(Gap) as gap:
        publisher.publish_many([(1, numbered(topic, 1)), (3, numbered(topic, 3))])
    assert (gap.value.expected, gap.value.got) == (2, 3)
    assert publisher.last() == 0
    assert publisher.publish(1, *numbered(topic, 1)) is Receipt.ACCEPTED
    assert committed_values(bootstrap, topic) == [b"0.0", b"1.0"]


@pytest.mark.skipif(sys.platform != "linux", reason="counts the threads in /proc")
def test_a_closed_publisher_has_no_client_left_though_its_error_is_kept(publishers: Publishers, topic: str) -> None:
    """A client that is left asks for its topics again and again, and Apache Kafka makes one anew that was deleted."""
    before = client_threads()
    publisher = publishers()
    publisher.publish(0, *numbered(topic, 0))
    with pytest.raises(Gap) as kept:
        publisher.publish(2, *numbered(topic, 2))
    publisher.close()
    assert eventually(lambda: client_threads() <= before, 20), client_threads() - before
    assert kept.value.__traceback__ is not None


def client_threads() -> set[str]:
    """The threads of librdkafka's clients in this process."""
    found = set()
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            if (thread / "comm").read_text().startswith("rdk:"):
                found.add(thread.name)
    return found


def test_numbers_from_outside_may_have_holes_and_only_rise(publishers: Publishers, bootstrap: str, topic: str) -> None:
    publisher = publishers(gaps="allow")
    outcomes = [publisher.publish(number, *numbered(topic, number)) for number in (5, 90, 7, 90, 91)]
    assert outcomes == ["accepted", "accepted", "duplicate", "duplicate", "accepted"]
    assert publishers(gaps="allow").last() == 91
    assert committed_values(bootstrap, topic) == [b"5.0", b"90.0", b"91.0"]


def test_several_numbers_are_one_transaction_without_those_that_were_there(
    publishers: Publishers, bootstrap: str, topic: str
) -> None:
    publisher = publishers()
    publisher.publish_many([(number, numbered(topic, number)) for number in range(3)])
    outcomes = publisher.publish_many([(number, numbered(topic, number)) for number in range(5)])
    assert outcomes == ["duplicate"] * 3 + ["accepted"] * 2
    assert committed_values(bootstrap, topic) == [b"%d.0" % number for number in range(5)]


def test_a_number_may_have_no_records(publishers: Publishers) -> None:
    assert publishers().publish(0) is Receipt.ACCEPTED
    assert publishers().last() == 0
    assert publishers().publish_many([]) == []


@pytest.mark.parametrize("kind", [dict, list, tuple, MappingProxyType])
def test_a_record_is_stored_as_it_was_handed_over(
    publishers: Publishers, bootstrap: str, topic: str, kind: Callable[[Any], Any]
) -> None:
    headers: dict[str, str | bytes | None] = {"type": "order", "none": None}
    given = kind(headers if kind is MappingProxyType else headers.items())
    publishers().publish(0, Record(topic, b"key", "value", given, 1, 1_700_000_000_000))
    [found] = committed_records(bootstrap, topic, partition=1)
    assert (found.key(), found.value()) == (b"key", b"value")
    assert found.headers() == [("type", b"order"), ("none", None)]
    assert found.timestamp()[1] == 1_700_000_000_000


def test_a_queue_that_is_full_loses_nothing(publishers: Publishers, bootstrap: str, topic: str) -> None:
    publisher = publishers(client={"queue.buffering.max.messages": 10})
    publisher.publish(0, *numbered(topic, 0, 3000))
    assert committed_values(bootstrap, topic) == [b"0.%d" % which for which in range(3000)]


@pytest.mark.parametrize("why", ["too large", "no such partition", "too large for the topic", "cut header"])
def test_a_record_that_cannot_be_stored_takes_its_call_with_it_and_nothing_else(
    publishers: Publishers, bootstrap: str, topic: str, name: str, why: str
) -> None:
    publisher = publishers()
    publisher.publish(0, *numbered(topic, 0))
    bad = {
        "too large": Record(topic, value=bytes(2_000_000)),
        "no such partition": Record(topic, partition=77),
        "too large for the topic": Record(f"{name}-small", value=bytes(1000)),
        "cut header": Record(topic, headers={"type\0of order": b"book"}),
    }[why]
    make_topic(bootstrap, f"{name}-small", max_message_bytes="500")
    with pytest.raises(RecordRefused, match=bad.topic) as refused:
        publisher.publish(1, *numbered(topic, 1), bad, Record(bad.topic, value=b"after it", partition=0))
    # What comes after it in the same request fails, too, because of it.
    assert refused.value.record is bad
    assert publisher.last() == 0
    assert publisher.publish(1, *numbered(topic, 1)) is Receipt.ACCEPTED
    assert committed_values(bootstrap, topic) == [b"0.0", b"1.0"]


def test_the_second_instance_fences_the_first_which_says_by_whom_and_stays_fenced(
    publishers: Publishers, bootstrap: str, topic: str, name: str
) -> None:
    first = publishers()
    first.publish(0, *numbered(topic, 0))
    second = publishers()
    assert second.last() == 0
    for _ in range(2):
        with pytest.raises(Fenced, match="fenced by process") as fenced:
            first.publish(1, *numbered(topic, 77))
    [*_, noted] = committed_records(bootstrap, f"semel-publish-{name}")
    assert fenced.value.by is not None
    assert fenced.value.by.instance.random == json.loads(noted.value() or b"")["instance"]["random"]
    assert second.publish(1, *numbered(topic, 1)) is Receipt.ACCEPTED
    assert committed_values(bootstrap, topic) == [b"0.0", b"1.0"]


def test_another_name_that_left_a_transaction_open_is_not_waited_for(
    publishers: Publishers, bootstrap: str, topic: str, name: str
) -> None:
    publishers().publish(0, *numbered(topic, 0))
    other = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{name}-other", "log_level": 0})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(topic, b"open", partition=0)
    assert other.flush(30) == 0
    publisher = publishers()
    assert publisher.last() == 0
    assert publisher.publish(1, *numbered(topic, 1)) is Receipt.ACCEPTED
    other.abort_transaction(30)


def test_a_cursor_behind_many_that_were_aborted_is_found(
    publishers: Publishers, bootstrap: str, topic: str, name: str
) -> None:
    publishers().publish(0, *numbered(topic, 0))
    [*_, cursor] = committed_records(bootstrap, f"semel-publish-{name}")
    too_far = (cursor.value() or b"").replace(b'"number":0', b'"number":9')
    life = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"semel-publish-{name}", "log_level": 0})
    life.init_transactions(30)
    for _ in range(40):
        life.begin_transaction()
        life.produce(f"semel-publish-{name}", too_far, cursor.key())
        assert life.flush(30) == 0
        life.abort_transaction(30)
    assert publishers().last() == 0


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_cursor_topic_that_would_forget_is_refused_in_one_line(
    publishers: Publishers, bootstrap: str, name: str, policy: str
) -> None:
    make_topic(bootstrap, f"semel-publish-{name}", cleanup_policy=policy)
    with pytest.raises(CursorRefused, match=f"cleanup.policy={policy}") as refused:
        publishers().open()
    assert "\n" not in str(refused.value)


OF_ANOTHER_NAME = encode(Cursor(7, this_instance(0), 0))


@pytest.mark.parametrize(
    ("key", "value"), [(None, b"{}"), ("name", b"nonsense"), ("another", b"{}"), ("another", OF_ANOTHER_NAME)]
)
def test_a_cursor_topic_with_something_else_in_it_is_refused(
    publishers: Publishers, bootstrap: str, name: str, key: str | None, value: bytes
) -> None:
    make_topic(bootstrap, f"semel-publish-{name}", cleanup_policy="compact")
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.produce(f"semel-publish-{name}", value, {"name": name}.get(key or "", key or "x"))
    assert producer.flush(30) == 0
    with pytest.raises(CursorRefused, match=f"semel-publish-{name}"):
        publishers().open()


def test_a_publisher_that_was_closed_says_so(publishers: Publishers) -> None:
    with publishers() as publisher:
        publisher.publish(0)
    with pytest.raises(PublishRefused, match="was closed"):
        publisher.publish(1)


def test_a_publisher_that_has_ended_keeps_nothing_of_the_calls_after_that(publishers: Publishers) -> None:
    """A program may go on calling it for days, with megabytes each time."""
    publisher = publishers()
    publisher.close()
    depths = set()
    for number in range(5):
        with pytest.raises(PublishRefused) as refused:
            publisher.publish(number)
        # This one's frame is in the traceback, too.
        depths.add(len(list(traceback.walk_tb(refused.value.__traceback__))))
    assert len(depths) == 1


def test_no_broker_is_an_error_of_one_line_within_the_time(publishers: Publishers) -> None:
    with pytest.raises(PublishFailed) as failed:
        publishers(bootstrap="127.0.0.1:1", timeout_seconds=0.5).publish(0)
    assert "\n" not in str(failed.value)
