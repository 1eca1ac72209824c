"""confluent-kafka (librdkafka) behind the contract of the tests."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import confluent_kafka
from client_contract import (
    HEARTBEAT_INTERVAL_MS,
    PRODUCER_FENCED,
    SESSION_TIMEOUT_MS,
    WAIT_MS_MAX,
    WAIT_SECONDS_MAX,
    Client,
    ClientError,
    Consumer,
    GroupProtocol,
    Isolation,
    Member,
    Place,
    Producer,
    Record,
    Start,
    Stored,
)
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

OFFSETS = {"earliest": confluent_kafka.OFFSET_BEGINNING, "latest": confluent_kafka.OFFSET_END}


@contextmanager
def translated_errors() -> Iterator[None]:
    try:
        try:
            yield
        except SystemError as error:
            # The library calls the program back although it is about to raise, and Python minds.
            if isinstance(error.__cause__, KafkaException):
                raise error.__cause__ from None
            raise
    except KafkaException as error:
        code = error.args[0].code()
        # librdkafka has a number of its own for a producer that it knows to be fenced.
        raise ClientError(PRODUCER_FENCED if code == KafkaError._FENCED else code, error) from error


def result_of(futures: Mapping[Any, Future[Any]]) -> Any:
    (future,) = futures.values()
    with translated_errors():
        return future.result(WAIT_SECONDS_MAX)


class ConfluentProducer(Producer):
    def __init__(self, settings: dict[str, Any]) -> None:
        self._producer = confluent_kafka.Producer(settings)
        if "transactional.id" in settings:
            with translated_errors():
                self._producer.init_transactions(WAIT_SECONDS_MAX)

    def send(self, topic: str, partition: int, records: Sequence[Record]) -> list[int]:
        reports: list[tuple[KafkaError | None, int | None]] = []
        for record in records:
            self._producer.produce(
                topic,
                value=record.value,
                key=record.key,
                partition=partition,
                headers=list(record.headers),
                timestamp=record.timestamp_ms,
                on_delivery=lambda error, message: reports.append((error, message.offset())),
            )
        with translated_errors():
            left = self._producer.flush(WAIT_SECONDS_MAX)
        assert left == 0, f"{left} records were neither acknowledged nor refused"
        with translated_errors():
            for error, _ in reports:
                if error is not None:
                    raise KafkaException(error)
        return [offset for _, offset in reports if offset is not None]

    def begin(self) -> None:
        with translated_errors():
            self._producer.begin_transaction()

    def commit(self) -> None:
        with translated_errors():
            self._producer.commit_transaction(WAIT_SECONDS_MAX)

    def abort(self) -> None:
        with translated_errors():
            self._producer.abort_transaction(WAIT_SECONDS_MAX)

    def send_offsets(self, member: Member, offsets: Mapping[Place, int]) -> None:
        assert isinstance(member, ConfluentMember)
        with translated_errors():
            self._producer.send_offsets_to_transaction(topic_partitions(offsets), member.metadata(), WAIT_SECONDS_MAX)

    def close(self) -> None:
        with translated_errors():
            self._producer.close()


class ConfluentConsumer(Consumer):
    def __init__(self, settings: dict[str, Any], topic: str, starts: Mapping[int, Start]) -> None:
        self._consumer = confluent_kafka.Consumer(settings)
        self._consumer.assign(
            [
                TopicPartition(topic, partition, OFFSETS[start] if isinstance(start, str) else start)
                for partition, start in starts.items()
            ]
        )

    def read(self, count: int, seconds_max: float = WAIT_SECONDS_MAX) -> list[Stored]:
        records: list[Stored] = []
        deadline = time.monotonic() + seconds_max
        while len(records) < count and (left := deadline - time.monotonic()) > 0:
            message = self._consumer.poll(left)
            if message is None:
                continue
            with translated_errors():
                if (error := message.error()) is not None:
                    raise KafkaException(error)
            records.append(_stored(message))
        return records

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self._consumer.seek(TopicPartition(topic, partition, offset))

    def close(self) -> None:
        self._consumer.close()


class ConfluentMember(Member):
    def __init__(self, settings: dict[str, Any], topics: Sequence[str]) -> None:
        self._consumer = confluent_kafka.Consumer(settings)
        self._consumer.subscribe(list(topics))

    def metadata(self) -> Any:
        return self._consumer.consumer_group_metadata()

    def poll(self, seconds_max: float) -> list[Stored]:
        message = self._consumer.poll(seconds_max)
        if message is None:
            return []
        with translated_errors():
            if (error := message.error()) is not None:
                raise KafkaException(error)
        return [_stored(message)]

    def assignment(self) -> set[Place]:
        return {(place.topic, place.partition) for place in self._consumer.assignment()}

    def commit(self, offsets: Mapping[Place, int]) -> None:
        with translated_errors():
            for place in self._consumer.commit(offsets=topic_partitions(offsets), asynchronous=False):
                if place.error is not None:
                    raise KafkaException(place.error)

    def committed(self, place: Place) -> int | None:
        with translated_errors():
            (found,) = self._consumer.committed([TopicPartition(*place)], WAIT_SECONDS_MAX)
        return None if found.offset == confluent_kafka.OFFSET_INVALID else int(found.offset)

    def position(self, place: Place) -> int:
        (found,) = self._consumer.position([TopicPartition(*place)])
        return int(found.offset)

    def close(self) -> None:
        self._consumer.close()


def topic_partitions(offsets: Mapping[Place, int]) -> list[TopicPartition]:
    return [TopicPartition(*place, offset) for place, offset in offsets.items()]


def _stored(message: Any) -> Stored:
    record = Record(message.value(), message.key(), tuple(message.headers() or ()), message.timestamp()[1])
    return Stored(message.partition(), message.offset(), record)


class ConfluentClient(Client):
    name = "confluent-kafka"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    group_protocols = ("eager", "cooperative", "consumer")

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._settings = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            # When librdkafka 2.16 has lost all brokers it asks the bootstrap servers anew and lets go of those it knew;
            # if it was connecting to one of them again, it may neither get on nor close.
            "metadata.recovery.strategy": "none",
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
        }
        self._admin = AdminClient(self._settings)
        self._consumer = confluent_kafka.Consumer({**self._settings, "group.id": "not-used"})

    def close(self) -> None:
        self._consumer.close()

    def producer(
        self,
        *,
        codec: str = "none",
        linger_ms: int = 5,
        request_bytes_max: int = 1_000_000,
        patience_ms: int = WAIT_MS_MAX,
        transactional_id: str | None = None,
    ) -> Producer:
        settings = {
            **self._settings,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": linger_ms,
            "message.max.bytes": request_bytes_max,
            "message.timeout.ms": patience_ms,
            "topic.metadata.propagation.max.ms": patience_ms,
            "retry.backoff.ms": 20,
            "topic.metadata.refresh.fast.interval.ms": 50,
            "topic.metadata.refresh.interval.ms": 1000,
        }
        if transactional_id is not None:
            settings["transactional.id"] = transactional_id
        return ConfluentProducer(settings)

    def consumer(
        self,
        topic: str,
        starts: Mapping[int, Start],
        *,
        fetch_wait_ms: int = 500,
        isolation: Isolation = "read_uncommitted",
    ) -> Consumer:
        settings = {
            **self._settings,
            "group.id": "not-used",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "fetch.wait.max.ms": fetch_wait_ms,
            "fetch.error.backoff.ms": 50,
            "topic.metadata.refresh.interval.ms": 1000,
        }
        return ConfluentConsumer(settings, topic, starts)

    def member(
        self,
        group: str,
        topics: Sequence[str],
        *,
        protocol: GroupProtocol = "eager",
        static_name: str | None = None,
        pattern: str | None = None,
    ) -> Member:
        settings = {
            **self._settings,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.error.backoff.ms": 50,
            "topic.metadata.refresh.interval.ms": 1000,
        }
        if static_name is not None:
            settings["group.instance.id"] = static_name
        if protocol == "consumer":
            settings["group.protocol"] = "consumer"
        else:
            settings["partition.assignment.strategy"] = "range" if protocol == "eager" else "cooperative-sticky"
            settings["session.timeout.ms"] = SESSION_TIMEOUT_MS
            settings["heartbeat.interval.ms"] = HEARTBEAT_INTERVAL_MS
        return ConfluentMember(settings, topics if pattern is None else [pattern])

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        result_of(self._admin.create_topics([NewTopic(topic, partitions, config=dict(configs or {}))]))

    def delete_topic(self, topic: str) -> None:
        result_of(self._admin.delete_topics([topic]))

    def create_partitions(self, topic: str, total: int) -> None:
        result_of(self._admin.create_partitions([NewPartitions(topic, total)]))

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=WAIT_SECONDS_MAX).topics)

    def partitions_of(self, topic: str) -> dict[int, int]:
        # A look at one topic would create it; a look at all never does.
        found = self._admin.list_topics(timeout=WAIT_SECONDS_MAX).topics.get(topic)
        return {} if found is None else {number: each.leader for number, each in found.partitions.items()}

    def config(self, topic: str, name: str) -> str:
        entries = result_of(self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
        return str(entries[name].value)

    def set_config(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        result_of(self._admin.incremental_alter_configs([resource]))

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        asked = [TopicPartition(topic, partition, before_offset)]
        return int(result_of(self._admin.delete_records(asked)).low_watermark)

    def earliest(self, topic: str, partition: int) -> int:
        return self._watermarks(topic, partition)[0]

    def latest(self, topic: str, partition: int) -> int:
        return self._watermarks(topic, partition)[1]

    def _watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        with translated_errors():
            return self._consumer.get_watermark_offsets(TopicPartition(topic, partition), WAIT_SECONDS_MAX)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        with translated_errors():
            (found,) = self._consumer.offsets_for_times(
                [TopicPartition(topic, partition, timestamp_ms)], WAIT_SECONDS_MAX
            )
        return None if found.offset == confluent_kafka.OFFSET_END else found.offset
