"""Whatever is lost on the way, the publisher finds out by itself whether its number is there, or says it cannot."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from publishers import Publishers, outcome_in_the_end

from cluster_under_test import CLIENT
from committed_records import committed_values, make_topic
from semel.chaos.plan import Fault, FaultPlan
from semel.chaos.proxy import ChaosProxy
from semel.publish import (
    CursorRefused,
    Fenced,
    Publisher,
    PublishFailed,
    PublishUncertain,
    Receipt,
    Record,
    RecordRefused,
)
from semel.publish.clients import Deadline
from semel.publish.transaction import Client, Interrupted, Transaction
from semel.testing.broker import FaultyBroker

LIST_OFFSETS, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN = 2, 22, 24, 26


def numbered(topic: str, number: int) -> Record:
    return Record(topic, value=b"%d" % number, partition=0)


@pytest.fixture
def proxy(bootstrap: str) -> Iterator[ChaosProxy]:
    """A network between publisher and cluster, on which nothing happens until it is asked for."""
    with ChaosProxy(bootstrap) as proxy:
        yield proxy


@pytest.mark.parametrize(
    ("fault", "api_key"),
    [
        (Fault.TRUNCATE, END_TXN),
        (Fault.RESET, END_TXN),
        (Fault.TRUNCATE, ADD_PARTITIONS),
        (Fault.DROP_ACK, None),
        (Fault.CUT, None),
    ],
    ids=lambda given: str(given),
)
def test_a_number_is_there_once_whatever_the_network_loses(
    publishers: Publishers, proxy: ChaosProxy, bootstrap: str, topic: str, fault: Fault, api_key: int | None
) -> None:
    publisher = publishers(bootstrap=proxy.bootstrap)
    publisher.open()
    for number in range(4):
        proxy.plan.arm(fault, 1 + number % 2, api_key)
        assert publisher.publish(number, numbered(topic, number)) is Receipt.ACCEPTED
    assert proxy.fired[fault] >= 4
    assert committed_values(bootstrap, topic) == [b"0", b"1", b"2", b"3"]


class GoneWithTheCommit(FaultPlan):
    """A network that is gone once a commit was asked for: before the broker hears of it, or after."""

    def __init__(self, *, broker_hears: bool) -> None:
        super().__init__()
        self._broker_hears = broker_hears
        self._commits_to_pass = -1
        self._is_gone = False

    def go_with_the_next_commit(self) -> None:
        self._commits_to_pass = 0

    def count_request(self, api_key: int | None) -> None:
        super().count_request(api_key)
        if self._is_gone:
            self._is_gone = False
            self.arm(Fault.RESET, 100_000)
        elif self._commits_to_pass == 0 and api_key == END_TXN:
            self._commits_to_pass = -1
            self._is_gone = self._broker_hears
            self.arm(*((Fault.TRUNCATE, 1, END_TXN) if self._broker_hears else (Fault.RESET, 100_000)))


@pytest.mark.parametrize("broker_hears", [True, False])
def test_who_cannot_find_out_says_so_and_the_next_call_knows(
    publishers: Publishers, bootstrap: str, topic: str, broker_hears: bool
) -> None:
    plan = GoneWithTheCommit(broker_hears=broker_hears)
    with ChaosProxy(bootstrap, plan) as proxy:
        publisher = publishers(bootstrap=proxy.bootstrap, timeout_seconds=1.5)
        outcome_in_the_end(publisher, 0, numbered(topic, 0))
        plan.go_with_the_next_commit()
        for _ in range(2):
            with pytest.raises(PublishUncertain, match="number 1") as uncertain:
                publisher.publish(1, numbered(topic, 1))
            assert uncertain.value.number == 1
        plan.calm()
        outcome = outcome_in_the_end(publisher, 1, numbered(topic, 1))
        # Where the broker had not heard of the commit, the producer that was given up may still ask for it.
        assert outcome is Receipt.DUPLICATE or not broker_hears
    assert committed_values(bootstrap, topic) == [b"0", b"1"]


@pytest.mark.parametrize("broker_hears", [True, False])
def test_who_can_find_out_goes_on_as_if_nothing_had_been(
    publishers: Publishers, bootstrap: str, topic: str, broker_hears: bool
) -> None:
    plan = GoneWithTheCommit(broker_hears=broker_hears)
    with ChaosProxy(bootstrap, plan) as proxy, called_when_interrupted(plan.calm):
        publisher = publishers(bootstrap=proxy.bootstrap, timeout_seconds=8.0)
        publisher.publish(0, numbered(topic, 0))
        plan.go_with_the_next_commit()
        assert publisher.publish(1, numbered(topic, 1)) is Receipt.ACCEPTED
        assert publisher.publish(2, numbered(topic, 2)) is Receipt.ACCEPTED
    assert committed_values(bootstrap, topic) == [b"0", b"1", b"2"]


class OutOfTime:
    """A producer whose commit is under way when its time is up, which is a moment before the deadline."""

    def __init__(self) -> None:
        self.seconds_of_commits: list[float] = []

    def commit_transaction(self, seconds: float) -> None:
        self.seconds_of_commits.append(seconds)
        assert len(self.seconds_of_commits) == 1, "it is asked for again"
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "retry call to resume", retriable=True))


def test_a_commit_that_has_timed_out_is_not_asked_for_again() -> None:
    """librdkafka 2.16 would abort the process if it had no time for the second call and the first one succeeded."""
    producer = OutOfTime()
    with pytest.raises(Interrupted, match="resume"):
        Transaction(Client(cast(Producer, producer)), Deadline(60.0)).commit()


@contextlib.contextmanager
def called_when_interrupted(then: Callable[[], None]) -> Iterator[None]:
    """Does something at the moment when a publisher gives up its producer and begins to find out."""
    handler = logging.Handler()
    handler.emit = lambda _record: then()  # type: ignore[method-assign]
    told = logging.getLogger("semel.publish.publisher")
    level = told.level
    told.setLevel(logging.INFO)
    told.addHandler(handler)
    yield
    told.removeHandler(handler)
    told.setLevel(level)


class CalledAt(FaultPlan):
    """Does something before the broker hears of the first request of some kind."""

    def __init__(self, api_key: int, then: Callable[[], None] | None = None) -> None:
        super().__init__()
        self.api_key = api_key
        self.then = then

    def count_request(self, api_key: int | None) -> None:
        if api_key == self.api_key and self.then is not None:
            then, self.then = self.then, None
            then()


def test_what_the_last_life_commits_until_it_is_fenced_counts(
    publishers: Publishers, bootstrap: str, topic: str
) -> None:
    first = publishers()
    first.publish(0, numbered(topic, 0))
    plan = CalledAt(INIT_PRODUCER_ID, lambda: first.publish(1, numbered(topic, 1)) and None)
    with ChaosProxy(bootstrap, plan) as proxy:
        second = publishers(bootstrap=proxy.bootstrap)
        assert second.last() == 1
        assert second.publish(1, numbered(topic, 1)) is Receipt.DUPLICATE
    assert committed_values(bootstrap, topic) == [b"0", b"1"]


def test_a_cursor_behind_a_strangers_open_transaction_is_never_overlooked(
    publishers: Publishers, bootstrap: str, name: str, topic: str
) -> None:
    publisher = publishers()
    publisher.open()
    stranger = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{name}-stranger", "log_level": 0})
    stranger.init_transactions(30)
    stranger.begin_transaction()
    stranger.produce(f"semel-publish-{name}", b"of a stranger", key=b"stranger")
    assert stranger.flush(30) == 0
    publisher.publish(0, numbered(topic, 0))
    with pytest.raises(PublishFailed, match="not this publisher's"):
        publishers(timeout_seconds=1.0).open()
    stranger.abort_transaction(30)
    assert publishers().last() == 0


def test_a_publisher_that_finds_out_late_does_not_take_the_name_back(
    publishers: Publishers, bootstrap: str, topic: str
) -> None:
    plan = GoneWithTheCommit(broker_hears=False)
    with ChaosProxy(bootstrap, plan) as proxy:
        late = publishers(bootstrap=proxy.bootstrap, timeout_seconds=1.5)
        outcome_in_the_end(late, 0, numbered(topic, 0))
        plan.go_with_the_next_commit()
        with pytest.raises(PublishUncertain):
            late.publish(1, numbered(topic, 1))
        successor = publishers()
        assert successor.publish(1, numbered(topic, 1)) is Receipt.ACCEPTED
        plan.calm()
        with pytest.raises(Fenced, match="by process"):
            outcome_in_the_end(late, 1, numbered(topic, 1))
        assert successor.publish(2, numbered(topic, 2)) is Receipt.ACCEPTED
    assert committed_values(bootstrap, topic) == [b"0", b"1", b"2"]


def test_what_cannot_be_sent_in_time_is_known_not_to_be_there(
    publishers: Publishers, proxy: ChaosProxy, bootstrap: str, topic: str
) -> None:
    publisher = publishers(bootstrap=proxy.bootstrap, timeout_seconds=1.5)
    outcome_in_the_end(publisher, 0, numbered(topic, 0))
    proxy.plan.arm(Fault.RESET, 100_000)
    with pytest.raises(PublishFailed):
        publisher.publish(1, numbered(topic, 1))
    proxy.plan.calm()
    assert outcome_in_the_end(publisher, 1, numbered(topic, 1)) is Receipt.ACCEPTED
    assert committed_values(bootstrap, topic) == [b"0", b"1"]


def test_who_was_fenced_by_one_that_died_at_its_start_hears_of_it_and_does_not_wait(
    publishers: Publishers, bootstrap: str, name: str, topic: str
) -> None:
    publishers().publish(0, numbered(topic, 0))

    def come_and_die() -> None:
        """Begins with the note of a start, and is never heard of again."""
        successor.init_transactions(30)
        successor.begin_transaction()
        successor.produce(f"semel-publish-{name}", b"never committed", key=name)
        assert successor.flush(30) == 0

    successor = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"semel-publish-{name}", "log_level": 0})
    plan = CalledAt(LIST_OFFSETS, come_and_die)
    with ChaosProxy(bootstrap, plan) as proxy, pytest.raises(Fenced):
        publishers(bootstrap=proxy.bootstrap, timeout_seconds=30.0).open()


def test_a_broker_that_dies_and_returns_costs_nothing(publishers: Publishers, faulty: FaultyBroker, topic: str) -> None:
    publisher = publishers()
    for number in range(3):
        assert publisher.publish(number, numbered(topic, number)) is Receipt.ACCEPTED
        faulty.kill()
        faulty.start()
    assert [record.value for record in faulty.log(topic, committed_only=True)] == [b"0", b"1", b"2"]


def test_a_topic_that_nobody_makes_takes_its_call_with_it_and_nothing_else(name: str) -> None:
    with FaultyBroker(auto_create_topics=False) as strict:
        make_topic(strict.bootstrap, "there")
        with Publisher(strict.bootstrap, name, client=CLIENT) as publisher:
            with pytest.raises(RecordRefused, match="'missing'"):
                publisher.publish(0, Record("there", value=b"0"), Record("missing", value=b"0"))
            assert publisher.publish(0, Record("there", value=b"0")) is Receipt.ACCEPTED
        assert [record.value for record in strict.log("there", committed_only=True)] == [b"0"]


def test_a_name_that_the_broker_has_forgotten_goes_on_from_its_cursor(
    publishers: Publishers, faulty: FaultyBroker, name: str, topic: str
) -> None:
    quiet = publishers()
    for number in range(50):
        quiet.publish(number, numbered(topic, number))
    forget_transactional_ids(faulty)
    faulty.compact()
    # The one that was quiet, in its place, and then one that begins anew.
    assert quiet.publish(49, numbered(topic, 49)) is Receipt.DUPLICATE
    assert quiet.publish(50, numbered(topic, 50)) is Receipt.ACCEPTED
    forget_transactional_ids(faulty)
    faulty.compact()
    fresh = publishers()
    assert fresh.last() == 50
    assert fresh.publish(50, numbered(topic, 50)) is Receipt.DUPLICATE
    assert fresh.publish(51, numbered(topic, 51)) is Receipt.ACCEPTED
    assert [record.value for record in faulty.log(topic, committed_only=True)] == [b"%d" % n for n in range(52)]


def test_a_publisher_that_finds_its_successor_only_behind_its_fence_publishes_nothing_more(
    publishers: Publishers, faulty: FaultyBroker, topic: str
) -> None:
    """The successor began after the late one had looked, and before that one claimed the name again."""
    successor = publishers()
    plan = CalledAt(LIST_OFFSETS)

    def has_looked() -> None:
        plan.api_key = INIT_PRODUCER_ID
        plan.then = lambda: successor.publish(1, numbered(topic, 1)) and None

    with ChaosProxy(faulty.bootstrap, plan) as proxy:
        late = publishers(bootstrap=proxy.bootstrap)
        late.publish(0, numbered(topic, 0))
        forget_transactional_ids(faulty)
        plan.then = has_looked
        for _ in range(2):
            with pytest.raises(Fenced, match="by process"):
                late.publish(1, numbered(topic, 77))
    assert plan.then is None
    assert [record.value for record in faulty.log(topic, committed_only=True)] == [b"0", b"1"]


def test_a_running_publisher_whose_cursor_is_gone_publishes_nothing_more(
    publishers: Publishers, faulty: FaultyBroker, name: str, topic: str
) -> None:
    """It cannot tell any more which numbers are in the log. Only a person can say that the name begins anew."""
    publisher = publishers()
    publisher.publish(0, numbered(topic, 0))
    admin = AdminClient({"bootstrap.servers": faulty.bootstrap})
    admin.delete_topics([f"semel-publish-{name}"])[f"semel-publish-{name}"].result(30)
    make_topic(faulty.bootstrap, f"semel-publish-{name}", cleanup_policy="compact")
    forget_transactional_ids(faulty)
    for _ in range(2):
        with pytest.raises(CursorRefused, match="is gone from topic"):
            publisher.publish(1, numbered(topic, 1))
    assert [record.value for record in faulty.log(topic, committed_only=True)] == [b"0"]


def forget_transactional_ids(broker: FaultyBroker) -> None:
    """What the broker does after seven days of silence, with its own code: they are over at once."""

    async def forget() -> None:
        inside = broker._broker
        for entry in list(inside.log.state.transaction_rules.silent(inside.clock.now_ms(), -1)):
            inside.runtime.commit(entry)
        assert not list(inside.log.state.transactions.all_described())

    broker._call(forget())


KILLED = """
import sys
from semel.publish import Publisher, Record

bootstrap, name, topic = sys.argv[1:]
with Publisher(bootstrap, name) as publisher:
    while True:
        number = publisher.last() + 1
        publisher.publish(number, Record(topic, value=b"%d" % number, partition=0))
        print(number, flush=True)
"""


def test_a_program_that_is_killed_in_the_middle_is_gone_on_from(
    publishers: Publishers, bootstrap: str, name: str, topic: str
) -> None:
    acknowledged = -1
    for _ in range(3):
        command = [sys.executable, "-c", KILLED, bootstrap, name, topic]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            for _ in range(20):
                acknowledged = int(program.stdout.readline())
            os.kill(program.pid, signal.SIGKILL)
    last = publishers().last()
    assert last >= acknowledged
    assert committed_values(bootstrap, topic) == [b"%d" % number for number in range(last + 1)]


def test_an_id_that_was_fenced_by_nobody_known_is_fenced_all_the_same(
    publishers: Publishers, bootstrap: str, name: str, topic: str
) -> None:
    publisher = publishers()
    publisher.publish(0, numbered(topic, 0))
    stranger = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"semel-publish-{name}", "log_level": 0})
    stranger.init_transactions(30)
    with pytest.raises(Fenced, match="not noted itself"):
        publisher.publish(1, numbered(topic, 1))
