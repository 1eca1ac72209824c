"""What the pair of brokers promises to people who test with it."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import pytest
from confluent_kafka import Producer

import semel
from producing import deliver
from semel.log.store import Exists, StoreRefused
from semel.testing.pair import BrokerPair
from semel.testing.ports import free_port
from semel.testing.stores import Objects

SETTINGS = {"log_level": 0, "retry.backoff.ms": 20, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50}


def producer_of(pair: BrokerPair) -> Producer:
    return Producer({**SETTINGS, "bootstrap.servers": pair.bootstrap, "enable.idempotence": True})


def values_in(pair: BrokerPair, topic: str) -> list[bytes | None]:
    return [record.value for record in pair.active.log(topic)]


def test_what_was_acknowledged_is_there_after_each_takeover(semel_pair: BrokerPair) -> None:
    """With one producer that goes on, to and fro."""
    producer = producer_of(semel_pair)
    bootstrap = semel_pair.bootstrap
    hows: Sequence[Literal["kill", "stop"]] = ("kill", "stop", "kill")
    for number, how in enumerate(hows):
        before = semel_pair.active
        assert deliver(producer, "payments", [b"%d" % number]) == [number]
        semel_pair.take_over(how)
        assert semel_pair.standby is before
        assert values_in(semel_pair, "payments") == [b"%d" % each for each in range(number + 1)]
    assert semel_pair.bootstrap == bootstrap


def test_a_takeover_in_the_middle_of_sending_stores_everything_once(semel_pair: BrokerPair) -> None:
    producer = producer_of(semel_pair)
    values = [b"%d" % number for number in range(2000)]
    first = threading.Event()

    def send() -> None:
        for value in values:
            producer.produce("payments", value, callback=lambda *_: first.set())
            producer.poll(0)
        assert producer.flush(120) == 0

    with ThreadPoolExecutor() as threads:
        sending = threads.submit(send)
        assert first.wait(120)
        semel_pair.take_over()
        sending.result()
    assert values_in(semel_pair, "payments") == values


def test_both_brokers_can_misbehave(semel_pair: BrokerPair) -> None:
    """The one that takes over loses the first answers."""
    producer = producer_of(semel_pair)
    deliver(producer, "payments", [b"before"])
    semel_pair.standby.drop_acks(1)
    semel_pair.take_over()
    deliver(producer, "payments", [b"after"])
    assert values_in(semel_pair, "payments") == [b"before", b"after"]


def test_settings_are_those_of_both_brokers() -> None:
    with BrokerPair(partitions_default=3) as pair:
        pair.take_over("stop")
        pair.active.seed("payments", b"paid", partition=2)
        assert [(record.partition, record.value) for record in pair.active.log("payments")] == [(2, b"paid")]


def test_of_many_threads_one_creates_an_object() -> None:
    """Two brokers of a pair have an event loop each."""
    objects = Objects()
    threads_count = 8
    barrier = threading.Barrier(threads_count)

    def create(thread: int) -> int:
        created = 0
        barrier.wait()
        for number in range(200):
            try:
                objects.create(str(number), b"%d" % thread)
                created += 1
            except Exists:
                pass
        return created

    with ThreadPoolExecutor(threads_count) as threads:
        assert sum(threads.map(create, range(threads_count))) == 200


def test_a_pair_that_cannot_start_leaves_no_broker_behind() -> None:
    """One port is too few for two."""

    def brokers() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "semel-broker"]

    before = brokers()
    with pytest.raises(OSError, match="in use"):
        BrokerPair(port=free_port()).start()
    assert brokers() == before


def test_an_embedded_broker_takes_the_url_of_a_store_and_another_one_goes_on_from_it(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    with semel.broker(store=url) as first, semel.broker(store=url) as second:
        producer = Producer({**SETTINGS, "bootstrap.servers": f"{first.bootstrap},{second.bootstrap}"})
        assert deliver(producer, "payments", [b"a"]) == [0]
        first.stop()
        # Each start opens the store again.
        first.start()
        assert deliver(producer, "payments", [b"b"]) == [1]


def test_a_url_that_is_no_store_is_refused() -> None:
    with pytest.raises(StoreRefused, match="write file:///srv/semel"):
        semel.broker(store="nowhere").start()
