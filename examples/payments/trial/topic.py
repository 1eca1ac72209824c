"""The topic between the two sides: how often each payment is in it, and whether the ledger has consumed it all.

It reads without joining the ledger's group, and must never commit an offset.
"""

import json
from collections import Counter
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

POLL_SECONDS: Final = 0.2
ASK_SECONDS_MAX: Final = 5.0
CREATE_SECONDS_MAX: Final = 30.0
# A person who watches a trial need not see librdkafka's messages about its connections.
SILENT: Final = {"log_level": 0}


def create(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **SILENT})
    admin.create_topics([NewTopic(name, partitions)])[name].result(CREATE_SECONDS_MAX)


class Topic:
    def __init__(self, bootstrap: str, name: str, partitions: int, group: str) -> None:
        # For each payment, the number of its events.
        self.events: Counter[str] = Counter()
        self._consumer = Consumer(
            {
                **SILENT,
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        self._places = [TopicPartition(name, number, 0) for number in range(partitions)]
        # The offset after the last event of each partition.
        self._ends = dict.fromkeys(range(partitions), 0)
        self._consumer.assign(self._places)

    def read_on(self) -> None:
        """Read until no more events come."""
        while (message := self._consumer.poll(POLL_SECONDS)) is not None:
            if message.error() is None:
                self.events[json.loads(message.value() or b"")["id"]] += 1
                self._ends[int(message.partition() or 0)] = int(message.offset() or 0) + 1

    def is_consumed(self) -> bool:
        """Whether the group has committed the offsets after all events that were read."""
        try:
            committed = self._consumer.committed(self._places, timeout=ASK_SECONDS_MAX)
        except KafkaException:
            return False
        return all(
            place.offset >= self._ends[place.partition] or not self._ends[place.partition] for place in committed
        )

    def close(self) -> None:
        self._consumer.close()
