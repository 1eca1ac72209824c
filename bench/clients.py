"""The load: librdkafka through confluent-kafka, the same settings against every broker, each client in a process of its
own. Clients connect and warm up, wait for one another, and only then does the clock run. Nothing here may know which
broker it talks to."""

from __future__ import annotations

import json
import multiprocessing
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from bench.peers.process import Broker, Contender, port_is_open

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

R = TypeVar("R")

ACK_TIMEOUT_SECONDS = 120.0
CLIENT_TIMEOUT_SECONDS = 600.0
CLIENT_END_SECONDS = 10.0
MESSAGES_PER_CALL = 1000
MESSAGES_QUEUED_MAX = 200_000

Barrier = Callable[[], None]
"""A load calls it once, when it is connected and warm; it returns when all clients are."""


class LoadFailed(Exception):
    """A client could not do its work; what it said."""


@dataclass(frozen=True)
class Load(Generic[R]):
    """What one run of clients took. `broker_cpu_seconds` is the broker's share over the same span, and
    `store_cpu_seconds` that of its store."""

    elapsed_seconds: float
    broker_cpu_seconds: float
    store_cpu_seconds: float
    results: list[R]


def run(
    broker: Contender,
    load: Callable[..., R],
    arguments: Sequence[tuple[object, ...]],
    address: str | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> Load[R]:
    """Run `load(bootstrap, *arguments[i], barrier)` in one process each; time from the common start to the last end.
    Clients connect to the `address`, if there is one, and to the broker's own otherwise. `meanwhile` is called when
    they have started."""
    bootstrap = address or broker.bootstrap
    context = multiprocessing.get_context("spawn")
    connections: list[Connection] = []
    processes = []
    try:
        for own in arguments:
            ours, theirs = context.Pipe()
            process = context.Process(target=_client, args=(theirs, load, bootstrap, own), daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            connections.append(ours)
        for connection in connections:
            _receive(connection)
        cpu_before, store_cpu_before = broker.cpu_seconds(), broker.store_cpu_seconds()
        started = time.perf_counter()
        for connection in connections:
            connection.send("go")
        if meanwhile is not None:
            meanwhile()
        outcomes = [_receive(connection) for connection in connections]
        cpu, store_cpu = broker.cpu_seconds() - cpu_before, broker.store_cpu_seconds() - store_cpu_before
        # perf_counter is CLOCK_MONOTONIC and so the same in every process of this machine.
        elapsed = max(ended for ended, _ in outcomes) - started
        return Load(elapsed, cpu, store_cpu, [result for _, result in outcomes])
    except BaseException:
        for process in processes:
            process.kill()
        raise
    finally:
        for process in processes:
            process.join(CLIENT_END_SECONDS)
            process.kill()
            process.join()


def _receive(connection: Connection) -> Any:
    if not connection.poll(CLIENT_TIMEOUT_SECONDS):
        raise LoadFailed(f"a client was silent for {CLIENT_TIMEOUT_SECONDS:.0f} s")
    try:
        kind, payload = connection.recv()
    except EOFError:
        raise LoadFailed("a client process died") from None
    if kind == "failed":
        raise LoadFailed(payload)
    return payload


def _client(connection: Connection, load: Callable[..., object], bootstrap: str, arguments: tuple[object, ...]) -> None:
    def barrier() -> None:
        connection.send(("ready", (0.0, None)))
        connection.recv()

    try:
        result = load(bootstrap, *arguments, barrier)
        connection.send(("done", (time.perf_counter(), result)))
    except (KeyboardInterrupt, BrokenPipeError, EOFError):
        return
    except Exception as failure:
        with suppress(BrokenPipeError):
            connection.send(("failed", f"{type(failure).__name__}: {failure}"))


def create_topic(broker: Contender, topic: str, partitions: int, configs: dict[str, str] | None = None) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    client = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    wanted = NewTopic(topic, partitions, broker.replication_factor, config=configs or {})
    client.create_topics([wanted], operation_timeout=30)[topic].result(60)
    deadline = time.monotonic() + 30
    # Kafka acknowledges a topic before every partition has its leader.
    while time.monotonic() < deadline:
        metadata = client.list_topics(topic, timeout=10).topics[topic]
        if len(metadata.partitions) == partitions and all(p.leader >= 0 for p in metadata.partitions.values()):
            return
        time.sleep(0.05)
    raise LoadFailed(f"topic {topic} had no leaders after 30 s")


def count_stored(broker: Contender, topic: str, partitions: int) -> int:
    """How many records the broker says it has: the check that a fast broker kept what it acknowledged."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "bench", "log_level": 0})
    try:
        marks = [consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30) for p in range(partitions)]
        return sum(high - low for low, high in marks)
    finally:
        consumer.close()


def reached(bootstrap: str) -> dict[str, str | int | bool]:
    """The settings with which a client reaches an address: HOST:PORT, or ssl:AUTHORITY@HOST:PORT for one over TLS with
    the file of the authority to trust."""
    authority, at, servers = bootstrap.removeprefix("ssl:").rpartition("@")
    if not at:
        return {"bootstrap.servers": servers}
    return {"bootstrap.servers": servers, "security.protocol": "SSL", "ssl.ca.location": authority}


def producer_configuration(bootstrap: str, *, idempotent: bool) -> dict[str, str | int | bool]:
    return {
        **reached(bootstrap),
        "enable.idempotence": idempotent,
        "acks": "all",
        # What idempotence imposes, so that with and without differ in nothing else.
        "max.in.flight.requests.per.connection": 5,
        "log_level": 0,
        "message.timeout.ms": int(ACK_TIMEOUT_SECONDS * 1000),
        "queue.buffering.max.messages": 2 * MESSAGES_QUEUED_MAX,
    }


def send_one(producer: Producer, topic: str, value: bytes, partition: int) -> None:
    """Send a message and wait for its acknowledgement."""
    answered: list[KafkaError | None] = []
    producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: answered.append(error))
    while not answered:
        producer.poll(1.0)
    if answered[0] is not None:
        raise LoadFailed(f"not acknowledged: {answered[0]}")


def one_at_a_time(
    bootstrap: str,
    topic: str,
    partitions: Sequence[int],
    value_bytes: int,
    warm: int,
    count: int,
    barrier: Barrier,
    *,
    idempotent: bool = True,
) -> array[float]:
    """Send one message, wait for its acknowledgement, send the next, on the partitions in turn. Returns the
    time that each took in microseconds: the time a user waits who needs to know that it is stored."""
    from confluent_kafka import Producer

    producer = Producer({**producer_configuration(bootstrap, idempotent=idempotent), "linger.ms": 0})
    value = b"x" * value_bytes
    for number in range(warm):
        send_one(producer, topic, value, partitions[number % len(partitions)])
    barrier()
    took = array("d")
    for number in range(count):
        started = time.perf_counter()
        send_one(producer, topic, value, partitions[number % len(partitions)])
        took.append((time.perf_counter() - started) * 1e6)
    return took


def flood(
    bootstrap: str, topic: str, partitions: int, value_bytes: int, count: int, idempotent: bool, barrier: Barrier
) -> int:
    """Send `count` messages as fast as the client can, `acks=all`, librdkafka's own batching, until all are
    acknowledged; returns how many."""
    from confluent_kafka import Producer

    producer = Producer(producer_configuration(bootstrap, idempotent=idempotent))
    return _flood(producer, topic, partitions, value_bytes, count, barrier)


def flood_in_batches(
    bootstrap: str,
    topic: str,
    partitions: int,
    value_bytes: int,
    count: int,
    messages_per_batch: int,
    idempotent: bool,
    barrier: Barrier,
) -> int:
    """The same in batches of equal size, one in each request; returns how many requests there were, by what librdkafka
    itself counts."""
    from confluent_kafka import Producer

    counts: list[int] = []

    def on_statistics(text: str) -> None:
        counts.append(sum(broker["req"].get("Produce", 0) for broker in json.loads(text)["brokers"].values()))

    equal = {"batch.num.messages": messages_per_batch, "linger.ms": 1000}
    told = {"statistics.interval.ms": 100, "stats_cb": on_statistics}
    producer = Producer({**producer_configuration(bootstrap, idempotent=idempotent), **equal, **told})
    _flood(producer, topic, partitions, value_bytes, count, barrier)
    # One that was under way may lack the last requests.
    for _ in range(2):
        counts.clear()
        while not counts:
            producer.poll(1.0)
    return counts[-1]


def _flood(producer: Producer, topic: str, partitions: int, value_bytes: int, count: int, barrier: Barrier) -> int:
    """The list that goes to `produce_batch` is built once, so that Python is not the limit."""
    value = b"x" * value_bytes
    batch = [{"value": value}] * MESSAGES_PER_CALL
    for partition in range(partitions):
        producer.produce(topic, value, partition=partition)
    if producer.flush(ACK_TIMEOUT_SECONDS) > 0:
        raise LoadFailed("the first messages were not acknowledged")
    barrier()
    calls = count // MESSAGES_PER_CALL
    for call in range(calls):
        queued = producer.produce_batch(topic, batch, partition=call % partitions)
        if queued != MESSAGES_PER_CALL:
            raise LoadFailed(f"the client queued {queued} of {MESSAGES_PER_CALL} messages")
        while len(producer) > MESSAGES_QUEUED_MAX:
            producer.poll(0.005)
    left = producer.flush(ACK_TIMEOUT_SECONDS)
    if left > 0:
        raise LoadFailed(f"{left} messages were not acknowledged in {ACK_TIMEOUT_SECONDS:.0f} s")
    return calls * MESSAGES_PER_CALL + partitions


def flood_keys(bootstrap: str, topic: str, value_bytes: int, keys: int, count: int, barrier: Barrier) -> int:
    """Send `count` messages to partition 0, whose keys come round again and again, until all are acknowledged."""
    from confluent_kafka import Producer

    producer = Producer(producer_configuration(bootstrap, idempotent=True))
    value = b"x" * value_bytes
    batches = [
        [{"key": b"key-%012d" % number, "value": value} for number in range(first, first + MESSAGES_PER_CALL)]
        for first in range(0, keys, MESSAGES_PER_CALL)
    ]
    producer.list_topics(topic, timeout=30)
    barrier()
    for call in range(count // MESSAGES_PER_CALL):
        if producer.produce_batch(topic, batches[call % len(batches)], partition=0) != MESSAGES_PER_CALL:
            raise LoadFailed("the client did not queue all messages")
        while len(producer) > MESSAGES_QUEUED_MAX:
            producer.poll(0.005)
    if producer.flush(ACK_TIMEOUT_SECONDS) > 0:
        raise LoadFailed(f"not all messages were acknowledged in {ACK_TIMEOUT_SECONDS:.0f} s")
    return count // MESSAGES_PER_CALL * MESSAGES_PER_CALL


def read_keys(bootstrap: str, topic: str, barrier: Barrier) -> tuple[int, int]:
    """Read partition 0 from its beginning to its end; returns how many messages and how many keys there are."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "log_level": 0,
        }
    )
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        barrier()
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        keys: set[bytes] = set()
        seen = offset = 0
        while offset < end - 1:
            messages = consumer.consume(MESSAGES_PER_CALL, timeout=5.0)
            if not messages:
                raise LoadFailed(f"offset {offset} of {end} came, then nothing")
            seen += len(messages)
            offset = messages[-1].offset()
            keys.update(message.key() for message in messages)
        return seen, len(keys)
    finally:
        consumer.close()


def change_config(broker: Contender, topic: str, name: str, value: str) -> None:
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    client = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    client.incremental_alter_configs([resource])[resource].result(30)


def read_all(bootstrap: str, topic: str, partitions: int, count: int, barrier: Barrier) -> int:
    """Read `count` messages from the beginning with `assign`, no group; returns the bytes of their values."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            **reached(bootstrap),
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            # With its defaults librdkafka pauses a full queue for a second at a time, and the broker sleeps with it.
            "fetch.queue.backoff.ms": 5,
            "queued.max.messages.kbytes": 262_144,
            "log_level": 0,
        }
    )
    try:
        consumer.list_topics(topic, timeout=30)
        barrier()
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
        seen = value_bytes = 0
        while seen < count:
            # Asking for more than is left would wait for the timeout.
            messages = consumer.consume(min(MESSAGES_PER_CALL, count - seen), timeout=30.0)
            if not messages:
                raise LoadFailed(f"{seen} of {count} messages came, then nothing for 30 s")
            for message in messages:
                failure = message.error()
                if failure is not None:
                    raise LoadFailed(str(failure))
                value_bytes += len(message)
            seen += len(messages)
        return value_bytes
    finally:
        consumer.close()


def log_in(bootstrap: str, user: str, password: str, count: int, barrier: Barrier) -> None:
    """Log in so many times by SCRAM, over a new connection each time."""
    from semel.client.connection import Connection
    from semel.client.settings import from_options

    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
    options = {"bootstrap.servers": bootstrap, **login, "sasl.username": user, "sasl.password": password}
    settings = from_options({f"kafka.{name}": value for name, value in options.items()})
    (address,) = settings.bootstrap
    Connection(address, settings).close()
    barrier()
    for _ in range(count):
        Connection(address, settings).close()


def delete_topic(broker: Contender, topic: str) -> None:
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    client.delete_topics([topic], operation_timeout=30)[topic].result(60)


def first_ack(broker: Broker, topic: str, *, partitions: int) -> float:
    """Knock until the broker's port opens, then send one message to each partition; returns the `perf_counter` of the
    moment when the last was acknowledged. The topic is created by the first message if need be."""
    from confluent_kafka import Producer

    broker.wait_for(lambda: port_is_open(broker.port))
    producer = Producer(
        {
            **producer_configuration(broker.bootstrap, idempotent=False),
            "linger.ms": 0,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "retry.backoff.ms": 10,
            "topic.metadata.refresh.fast.interval.ms": 10,
        }
    )
    answered: list[KafkaError | None] = []
    for partition in range(partitions):
        producer.produce(
            topic, b"first", partition=partition, on_delivery=lambda error, message: answered.append(error)
        )
    while len(answered) < partitions:
        producer.poll(0.5)
        broker.check_alive()
    failures = [error for error in answered if error is not None]
    if failures:
        raise LoadFailed(f"not acknowledged: {failures[0]}")
    return time.perf_counter()
