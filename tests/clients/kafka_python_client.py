"""kafka-python behind the contract of the tests."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from client_contract import (
    HEARTBEAT_INTERVAL_MS,
    REQUEST_TIMED_OUT,
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
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import BrokerResponseError, KafkaConnectionError, KafkaTimeoutError
from kafka.structs import OffsetAndMetadata


@contextmanager
def translated_errors() -> Iterator[None]:
    try:
        yield
    except BrokerResponseError as error:
        raise ClientError(error.errno, error) from error
    except KafkaTimeoutError as error:
        raise ClientError(REQUEST_TIMED_OUT, error) from error


class KafkaPythonProducer(Producer):
    def __init__(self, settings: dict[str, Any]) -> None:
        self._producer = KafkaProducer(**settings)
        if "transactional_id" in settings:
            with translated_errors():
                self._producer.init_transactions()

    def send(self, topic: str, partition: int, records: Sequence[Record]) -> list[int]:
        with translated_errors():
            futures = [
                self._producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    partition=partition,
                    headers=list(record.headers),
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            return [future.get(WAIT_SECONDS_MAX).offset for future in futures]

    def begin(self) -> None:
        with translated_errors():
            self._producer.begin_transaction()

    def commit(self) -> None:
        with translated_errors():
            self._producer.commit_transaction()

    def abort(self) -> None:
        with translated_errors():
            self._producer.abort_transaction()

    def send_offsets(self, member: Member, offsets: Mapping[Place, int]) -> None:
        assert isinstance(member, KafkaPythonMember)
        with translated_errors():
            self._producer.send_offsets_to_transaction(offsets_of(offsets), member.metadata())

    def close(self) -> None:
        self._producer.close(timeout=WAIT_SECONDS_MAX)


class KafkaPythonConsumer(Consumer):
    def __init__(self, settings: dict[str, Any], topic: str, starts: Mapping[int, Start]) -> None:
        self._consumer = KafkaConsumer(**settings)
        self._consumer.assign([TopicPartition(topic, partition) for partition in starts])
        for partition, start in starts.items():
            place = TopicPartition(topic, partition)
            if start == "earliest":
                self._consumer.seek_to_beginning(place)
            elif start == "latest":
                self._consumer.seek_to_end(place)
            else:
                self._consumer.seek(place, start)
        self._given: list[Stored] = []

    def read(self, count: int, seconds_max: float = WAIT_SECONDS_MAX) -> list[Stored]:
        deadline = time.monotonic() + seconds_max
        while len(self._given) < count and (left := deadline - time.monotonic()) > 0:
            with translated_errors():
                batches = self._consumer.poll(timeout_ms=int(left * 1000))
            self._given += [_stored(message) for messages in batches.values() for message in messages]
        read, self._given = self._given[:count], self._given[count:]
        return read

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self._given = [stored for stored in self._given if stored.partition != partition]
        self._consumer.seek(TopicPartition(topic, partition), offset)

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonMember(Member):
    def __init__(self, settings: dict[str, Any], topics: Sequence[str], pattern: str | None) -> None:
        self._consumer = KafkaConsumer(**settings)
        self._consumer.subscribe(topics=list(topics), pattern=pattern)
        # A poll that ends between the answers to JoinGroup and SyncGroup makes kafka-python 3.0 forget that it was
        # joining: it has no partitions from then on, and sends no heartbeats. So joining takes as long as it takes.
        coordinator = self._consumer._coordinator
        join = coordinator.ensure_active_group
        coordinator.ensure_active_group = lambda timeout_ms: join(WAIT_MS_MAX)

    def metadata(self) -> Any:
        return self._consumer.group_metadata()

    def poll(self, seconds_max: float) -> list[Stored]:
        try:
            with translated_errors():
                batches = self._consumer.poll(timeout_ms=int(seconds_max * 1000))
        except KafkaConnectionError:
            # Now and then kafka-python 3.0 raises this where other clients wait: the broker is away, and may come back.
            return []
        return [_stored(message) for messages in batches.values() for message in messages]

    def assignment(self) -> set[Place]:
        return {(place.topic, place.partition) for place in self._consumer.assignment()}

    def commit(self, offsets: Mapping[Place, int]) -> None:
        with translated_errors():
            self._consumer.commit(offsets_of(offsets))

    def committed(self, place: Place) -> int | None:
        with translated_errors():
            found = self._consumer.committed(TopicPartition(*place))
        return None if found is None else int(found)

    def position(self, place: Place) -> int:
        with translated_errors():
            return int(self._consumer.position(TopicPartition(*place)))

    def close(self) -> None:
        self._consumer.close()


def offsets_of(offsets: Mapping[Place, int]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()}


def _stored(message: Any) -> Stored:
    record = Record(message.value, message.key, tuple(message.headers), message.timestamp)
    return Stored(message.partition, message.offset, record)


class KafkaPythonClient(Client):
    name = "kafka-python"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    group_protocols = ("eager", "cooperative")
    sends_null_headers = False
    reads_on_in_a_topic_made_anew_on_kafka = False

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._settings = {
            "bootstrap_servers": bootstrap,
            "reconnect_backoff_ms": 20,
            "reconnect_backoff_max_ms": 200,
            "retry_backoff_ms": 20,
        }
        self._admin = KafkaAdminClient(**self._settings)
        self._consumer = KafkaConsumer(**self._settings)

    def close(self) -> None:
        self._consumer.close()
        self._admin.close()

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
            "enable_idempotence": True,
            "compression_type": None if codec == "none" else codec,
            "linger_ms": linger_ms,
            "max_request_size": request_bytes_max,
            "max_block_ms": patience_ms,
            "delivery_timeout_ms": patience_ms,
            "request_timeout_ms": patience_ms // 2,
            "metadata_max_age_ms": 1000,
        }
        if transactional_id is not None:
            settings["transactional_id"] = transactional_id
        return KafkaPythonProducer(settings)

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
            "auto_offset_reset": "earliest",
            "isolation_level": isolation,
            "fetch_max_wait_ms": fetch_wait_ms,
            "request_timeout_ms": fetch_wait_ms + WAIT_MS_MAX,
            "connections_max_idle_ms": fetch_wait_ms + 2 * WAIT_MS_MAX,
            "metadata_max_age_ms": 1000,
        }
        return KafkaPythonConsumer(settings, topic, starts)

    def member(
        self,
        group: str,
        topics: Sequence[str],
        *,
        protocol: GroupProtocol = "eager",
        static_name: str | None = None,
        pattern: str | None = None,
    ) -> Member:
        assignor = RangePartitionAssignor if protocol == "eager" else CooperativeStickyAssignor
        settings = {
            **self._settings,
            "group_id": group,
            "group_instance_id": static_name,
            "partition_assignment_strategy": [assignor],
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "isolation_level": "read_committed",
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
            "metadata_max_age_ms": 1000,
        }
        return KafkaPythonMember(settings, topics, pattern)

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        with translated_errors():
            self._admin.create_topics([NewTopic(topic, partitions, -1, topic_configs=dict(configs or {}))])

    def delete_topic(self, topic: str) -> None:
        with translated_errors():
            self._admin.delete_topics([topic])

    def create_partitions(self, topic: str, total: int) -> None:
        with translated_errors():
            self._admin.create_partitions({topic: total})

    def topics(self) -> set[str]:
        return set(self._admin.list_topics())

    def partitions_of(self, topic: str) -> dict[int, int]:
        described = {each["name"]: each for each in self._admin.describe_topics()}
        partitions = described.get(topic, {"partitions": []})["partitions"]
        return {partition["partition_index"]: partition["leader_id"] for partition in partitions}

    def config(self, topic: str, name: str) -> str:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        described = self._admin.describe_configs([resource], config_filter="all")
        return str(described["topic"][topic][name]["value"])

    def set_config(self, topic: str, name: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})
        answer = self._admin.alter_configs([resource], raise_on_unknown=False)["topic"][topic]
        if answer != "OK":
            # The library gives the error as text, "[Error 40] ..." and the like.
            raise ClientError(int(answer.split("]")[0].removeprefix("[Error ")), answer)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        place = TopicPartition(topic, partition)
        return int(self._admin.delete_records({place: before_offset})[place]["low_watermark"])

    def earliest(self, topic: str, partition: int) -> int:
        place = TopicPartition(topic, partition)
        return int(self._consumer.beginning_offsets([place])[place])

    def latest(self, topic: str, partition: int) -> int:
        place = TopicPartition(topic, partition)
        return int(self._consumer.end_offsets([place])[place])

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        place = TopicPartition(topic, partition)
        found = self._consumer.offsets_for_times({place: timestamp_ms})[place]
        return None if found is None else int(found.offset)
