"""The log that the pipeline is tested on, through real clients only: semel's own, or any cluster of Kafka's protocol.

    SEMEL_TEST_BOOTSTRAP=127.0.0.1:9092 pytest tests/spark/source tests/spark/lanes tests/spark/test_whole_pipeline.py

runs the same promises against another cluster. What needs a broker that can be killed is skipped then.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from committed_records import wait_for_markers

_numbers = itertools.count(1)
_SECONDS_MAX = 120


class LogUnderTest:
    """Topics and records, made and unmade as tests need it."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._settings = {"bootstrap.servers": bootstrap, "log_level": 2}
        self._admin = AdminClient(self._settings)
        self._producer = self._new_producer()

    def _new_producer(self) -> Producer:
        """One that remembers no topic: the others believe for minutes what they know of partitions."""
        return Producer({**self._settings, "enable.idempotence": True, "linger.ms": 0})

    def new_name(self, kind: str = "topic") -> str:
        """A name that no test has used: of this run, of this process."""
        return f"spark-{kind}-{os.getpid()}-{next(_numbers)}"

    def make(self, partitions: int = 1, name: str | None = None, **configs: str) -> str:
        name = name or self.new_name()
        # Many tests write records of years ago, and the broker would delete them five minutes after its start.
        config = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in configs.items()}
        topic = NewTopic(name, partitions, 1, config=config)
        _result(self._admin.create_topics([topic]))
        # Kafka answers before all of its metadata has it.
        while name not in self._admin.list_topics(timeout=_SECONDS_MAX).topics:
            pass
        return name

    def delete(self, name: str) -> None:
        _result(self._admin.delete_topics([name]))
        while name in self._admin.list_topics(timeout=_SECONDS_MAX).topics:
            pass
        self._producer = self._new_producer()

    def make_anew(self, name: str, partitions: int = 1) -> None:
        self.delete(name)
        self.make(partitions, name)

    def add_partitions(self, name: str, total: int) -> None:
        _result(self._admin.create_partitions([NewPartitions(name, total)]))
        while len(self._partitions(name)) < total:
            pass
        self._producer = self._new_producer()

    def delete_records(self, name: str, before: int, partition: int = 0) -> None:
        _result(self._admin.delete_records([ClientPartition(name, partition, before)]))

    def put(self, name: str, *values: str, partition: int = 0, **more: Any) -> None:
        """Records with these values, in a batch or several."""
        for value in values:
            self._producer.produce(name, value.encode(), partition=partition, on_delivery=_check, **more)
        assert self._producer.flush(_SECONDS_MAX) == 0

    def values(self, name: str, *, committed_only: bool = False) -> list[bytes | None]:
        """All that consumers get of a topic, partition by partition, when its transactions have ended."""
        level = "read_committed" if committed_only else "read_uncommitted"
        more = {"group.id": self.new_name("group"), "isolation.level": level, "enable.partition.eof": True}
        consumer = Consumer({**self._settings, **more, "enable.auto.commit": False})
        partitions = [ClientPartition(name, number, 0) for number in self._partitions(name)]
        if committed_only:
            wait_for_markers(self._admin, partitions)
        consumer.assign(partitions)
        found: dict[int, list[bytes | None]] = {partition.partition: [] for partition in partitions}
        ended: set[int] = set()
        while len(ended) < len(partitions):
            message = consumer.poll(_SECONDS_MAX)
            assert message is not None, f"nobody says where {name} ends"
            if message.error() is None:
                found[message.partition()].append(message.value())
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
        consumer.close()
        return [value for partition in sorted(found) for value in found[partition]]

    @contextmanager
    def transaction(self, name: str, *values: str, commits: bool = True) -> Iterator[None]:
        """Records in a transaction that stays open for the length of a block, and has ended behind it."""
        producer = Producer({**self._settings, "transactional.id": self.new_name("transaction")})
        producer.init_transactions(_SECONDS_MAX)
        producer.begin_transaction()
        for value in values:
            producer.produce(name, value.encode(), partition=0, on_delivery=_check)
        assert producer.flush(_SECONDS_MAX) == 0
        yield
        (producer.commit_transaction if commits else producer.abort_transaction)(_SECONDS_MAX)
        wait_for_markers(self._admin, [ClientPartition(name, 0)])

    def committed(self, group: str, topic: str) -> int:
        """The offset of a group in the first partition of a topic; negative if it has none."""
        consumer = Consumer({**self._settings, "group.id": group})
        (found,) = consumer.committed([ClientPartition(topic, 0)], _SECONDS_MAX)
        consumer.close()
        return int(found.offset)

    def commit(self, group: str, topic: str, offset: int) -> None:
        """As an application does that has ended since."""
        consumer = Consumer({**self._settings, "group.id": group})
        consumer.commit(offsets=[ClientPartition(topic, 0, offset)], asynchronous=False)
        consumer.close()

    @contextmanager
    def member(self, group: str, topic: str) -> Iterator[None]:
        """A member of a group that has been given its partitions."""
        consumer = Consumer({**self._settings, "group.id": group, "enable.auto.commit": False})
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(0.05)
        yield
        consumer.close()

    def _partitions(self, name: str) -> list[int]:
        return sorted(self._admin.list_topics(name, timeout=_SECONDS_MAX).topics[name].partitions)


def _check(error: Any, _message: Any) -> None:
    assert error is None, error


def _result(futures: dict[Any, Future[Any]]) -> None:
    for future in futures.values():
        future.result(_SECONDS_MAX)
