"""The topic between the two sides: how often each payment is in it, and whether the ledger is through with it.

It reads on its own, as no member of the ledger's group, and must never commit an offset.
"""

import json
from collections import Counter
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

POLL_SECONDS: Final = 0.2
ASK_SECONDS_MAX: Final = 5.0
CREATE_SECONDS_MAX: Final = 30.0
# Somebody who watches a trial need not see what librdkafka logs about its connections.
SILENT: Final = {"log_level": 0}


def create(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **SILENT})
    admin.create_topics([NewTopic(name, partitions)])[name].result(CREATE_SECONDS_MAX)


class Topic:
    def __init__(self, bootstrap: str, name: str, partitions: int, group: str) -> None:
        # For each payment how many events there are that tell of it.
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
        # The place after the last event of each partition.
        self._ends = dict.fromkeys(range(partitions), 0)
        self._consumer.assign(self._places)

    def read_on(self) -> None:
        """Read until nothing comes any more."""
        while (message := self._consumer.poll(POLL_SECONDS)) is not None:
            if message.error() is None:
                self.events[json.loads(message.value() or b"")["id"]] += 1
                self._ends[int(message.partition() or 0)] = int(message.offset() or 0) + 1

    def is_consumed(self) -> bool:
        """Whether the group has committed what lies after all that was read."""
        try:
            committed = self._consumer.committed(self._places, timeout=ASK_SECONDS_MAX)
        except KafkaException:
            return False
        return all(
            place.offset >= self._ends[place.partition] or not self._ends[place.partition] for place in committed
        )

    def close(self) -> None:
        self._consumer.close()
