"""A topic as a reader of committed records sees it, and topics to be read, on any cluster."""

from __future__ import annotations

import contextlib

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from eventually import eventually

_WAIT_SECONDS_MAX = 120.0


def make_topic(bootstrap: str, topic: str, partitions: int = 1, **configs: str) -> None:
    """Make a topic, and return when it can be written to."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    [made] = admin.create_topics([NewTopic(topic, partitions, config=settings)]).values()
    try:
        made.result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    while len(admin.list_topics(topic, _WAIT_SECONDS_MAX).topics[topic].partitions) < partitions:
        pass


def commit_offsets(bootstrap: str, group: str, *places: TopicPartition) -> None:
    """Commit offsets of a group without members; a cluster that was just started has no coordinator for a moment."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})

    def is_committed() -> bool:
        try:
            reader.commit(offsets=list(places), asynchronous=False)
        except KafkaException:
            return False
        return True

    assert eventually(is_committed)
    reader.close()


def wait_for_markers(admin: AdminClient, partitions: list[TopicPartition]) -> None:
    """Until no transaction is open: Kafka answers a commit before its marker is in the log."""

    def ends(isolation: IsolationLevel) -> list[int]:
        latest = admin.list_offsets({one: OffsetSpec.latest() for one in partitions}, isolation_level=isolation)
        return [answer.result(_WAIT_SECONDS_MAX).offset for answer in latest.values()]

    assert eventually(lambda: ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED))


def committed_records(bootstrap: str, topic: str, partition: int = 0) -> list[Message]:
    """All that a reader of committed records finds, once no transaction is open any more."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wait_for_markers(admin, [TopicPartition(topic, partition)])
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "committed-records",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    found = []
    with contextlib.closing(reader):
        reader.assign([TopicPartition(topic, partition, 0)])
        while True:
            message = reader.poll(_WAIT_SECONDS_MAX)
            assert message is not None, f"{topic} cannot be read"
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                return found


def committed_values(bootstrap: str, topic: str, partition: int = 0) -> list[bytes | str | None]:
    return [message.value() for message in committed_records(bootstrap, topic, partition)]
