"""aiokafka behind the contract of the tests: its event loop runs in a thread of its own, as long as the client is
there, so that what the library does in the background goes on between two calls."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import BrokerResponseError, ProducerFenced, for_code
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

T = TypeVar("T")


@contextmanager
def translated_errors() -> Iterator[None]:
    try:
        yield
    except BrokerResponseError as error:
        raise ClientError(error.errno, error) from error
    except ProducerFenced as error:
        raise ClientError(PRODUCER_FENCED, error) from error


def raise_for(code: int) -> None:
    if code:
        raise for_code(code)


class LoopThread:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="aiokafka", daemon=True)
        self._thread.start()

    def wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        with translated_errors():
            return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(2 * WAIT_SECONDS_MAX)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class AiokafkaProducer(Producer):
    def __init__(self, thread: LoopThread, settings: dict[str, Any]) -> None:
        self._thread = thread

        async def start() -> AIOKafkaProducer:
            producer = AIOKafkaProducer(**settings)
            await producer.start()
            return producer

        self._producer = thread.wait_for(start())

    def send(self, topic: str, partition: int, records: Sequence[Record]) -> list[int]:
        async def send() -> list[int]:
            futures = [
                await self._producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    partition=partition,
                    headers=list(record.headers),
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            return [(await future).offset for future in futures]

        return self._thread.wait_for(send())

    def begin(self) -> None:
        self._thread.wait_for(self._producer.begin_transaction())

    def commit(self) -> None:
        self._thread.wait_for(self._producer.commit_transaction())

    def abort(self) -> None:
        self._thread.wait_for(self._producer.abort_transaction())

    def send_offsets(self, member: Member, offsets: Mapping[Place, int]) -> None:
        assert isinstance(member, AiokafkaMember)
        named = {TopicPartition(*place): offset for place, offset in offsets.items()}
        self._thread.wait_for(self._producer.send_offsets_to_transaction(named, member.group))

    def close(self) -> None:
        self._thread.wait_for(self._producer.stop())


class AiokafkaConsumer(Consumer):
    def __init__(self, thread: LoopThread, settings: dict[str, Any], topic: str, starts: Mapping[int, Start]) -> None:
        self._thread = thread

        async def start() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(**settings)
            await consumer.start()
            consumer.assign([TopicPartition(topic, partition) for partition in starts])
            for partition, start in starts.items():
                place = TopicPartition(topic, partition)
                if start == "earliest":
                    await consumer.seek_to_beginning(place)
                elif start == "latest":
                    await consumer.seek_to_end(place)
                else:
                    consumer.seek(place, start)
            return consumer

        self._consumer = thread.wait_for(start())

    def read(self, count: int, seconds_max: float = WAIT_SECONDS_MAX) -> list[Stored]:
        async def read() -> list[Stored]:
            records: list[Stored] = []
            deadline = time.monotonic() + seconds_max
            while len(records) < count and (left := deadline - time.monotonic()) > 0:
                batches = await self._consumer.getmany(timeout_ms=int(left * 1000), max_records=count - len(records))
                records += [_stored(message) for messages in batches.values() for message in messages]
            return records

        return self._thread.wait_for(read())

    def seek(self, topic: str, partition: int, offset: int) -> None:
        async def seek() -> None:
            self._consumer.seek(TopicPartition(topic, partition), offset)

        self._thread.wait_for(seek())

    def close(self) -> None:
        self._thread.wait_for(self._consumer.stop())


class AiokafkaMember(Member):
    def __init__(
        self, thread: LoopThread, settings: dict[str, Any], topics: Sequence[str], pattern: str | None
    ) -> None:
        self._thread = thread
        self.group: str = settings["group_id"]

        async def start() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(**settings)
            consumer.subscribe(topics=list(topics), pattern=pattern)
            await consumer.start()
            return consumer

        self._consumer = thread.wait_for(start())

    def poll(self, seconds_max: float) -> list[Stored]:
        batches = self._thread.wait_for(self._consumer.getmany(timeout_ms=int(seconds_max * 1000)))
        return [_stored(message) for messages in batches.values() for message in messages]

    def assignment(self) -> set[Place]:
        return {(place.topic, place.partition) for place in self._consumer.assignment()}

    def commit(self, offsets: Mapping[Place, int]) -> None:
        named = {TopicPartition(*place): offset for place, offset in offsets.items()}
        self._thread.wait_for(self._consumer.commit(named))

    def committed(self, place: Place) -> int | None:
        found = self._thread.wait_for(self._consumer.committed(TopicPartition(*place)))
        return None if found is None else int(found)

    def position(self, place: Place) -> int:
        return int(self._thread.wait_for(self._consumer.position(TopicPartition(*place))))

    def close(self) -> None:
        self._thread.wait_for(self._consumer.stop())


def _stored(message: Any) -> Stored:
    record = Record(message.value, message.key, tuple(message.headers), message.timestamp)
    return Stored(message.partition, message.offset, record)


class AiokafkaClient(Client):
    name = "aiokafka"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    group_protocols = ("eager",)

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._settings = {"bootstrap_servers": bootstrap, "retry_backoff_ms": 20}
        self._thread = LoopThread()

        async def start() -> tuple[AIOKafkaAdminClient, AIOKafkaConsumer]:
            admin = AIOKafkaAdminClient(**self._settings)
            await admin.start()
            consumer = AIOKafkaConsumer(**self._settings, metadata_max_age_ms=1000)
            await consumer.start()
            return admin, consumer

        self._admin, self._consumer = self._thread.wait_for(start())

    def close(self) -> None:
        self._thread.wait_for(self._consumer.stop())
        self._thread.wait_for(self._admin.close())
        self._thread.stop()

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
            "request_timeout_ms": patience_ms,
            "transactional_id": transactional_id,
            "metadata_max_age_ms": 1000,
        }
        return AiokafkaProducer(self._thread, settings)

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
            "metadata_max_age_ms": 1000,
        }
        return AiokafkaConsumer(self._thread, settings, topic, starts)

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
            "group_id": group,
            "group_instance_id": static_name,
            "partition_assignment_strategy": (RangePartitionAssignor,),
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "isolation_level": "read_committed",
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
            "metadata_max_age_ms": 1000,
        }
        return AiokafkaMember(self._thread, settings, topics, pattern)

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        async def create() -> None:
            wanted = NewTopic(topic, partitions, 1, topic_configs=dict(configs or {}))
            answer = await self._admin.create_topics([wanted])
            raise_for(answer.topic_errors[0][1])

        self._thread.wait_for(create())

    def delete_topic(self, topic: str) -> None:
        async def delete() -> None:
            answer = await self._admin.delete_topics([topic])
            raise_for(answer.topic_error_codes[0][1])

        self._thread.wait_for(delete())

    def create_partitions(self, topic: str, total: int) -> None:
        async def create() -> None:
            answer = await self._admin.create_partitions({topic: NewPartitions(total)})
            raise_for(answer.topic_errors[0][1])

        self._thread.wait_for(create())

    def topics(self) -> set[str]:
        return set(self._thread.wait_for(self._admin.list_topics()))

    def partitions_of(self, topic: str) -> dict[int, int]:
        described = {each["topic"]: each for each in self._thread.wait_for(self._admin.describe_topics())}
        partitions = described.get(topic, {"partitions": []})["partitions"]
        return {partition["partition"]: partition["leader"] for partition in partitions}

    def config(self, topic: str, name: str) -> str:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (answer,) = self._thread.wait_for(self._admin.describe_configs([resource]))
        (described,) = answer.resources
        with translated_errors():
            raise_for(described[0])
        return str({entry[0]: entry[1] for entry in described[4]}[name])

    def set_config(self, topic: str, name: str, value: str) -> None:
        """aiokafka knows AlterConfigs alone, which sets everything: what is not named falls back to its default."""
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})
        (answer,) = self._thread.wait_for(self._admin.alter_configs([resource]))
        with translated_errors():
            raise_for(answer.resources[0][0])

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        place = TopicPartition(topic, partition)
        answer = self._thread.wait_for(self._admin.delete_records({place: RecordsToDelete(before_offset)}))
        return int(answer[place])

    def earliest(self, topic: str, partition: int) -> int:
        place = TopicPartition(topic, partition)
        return int(self._thread.wait_for(self._consumer.beginning_offsets([place]))[place])

    def latest(self, topic: str, partition: int) -> int:
        place = TopicPartition(topic, partition)
        return int(self._thread.wait_for(self._consumer.end_offsets([place]))[place])

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        place = TopicPartition(topic, partition)
        found = self._thread.wait_for(self._consumer.offsets_for_times({place: timestamp_ms}))[place]
        return None if found is None else int(found.offset)
