"""What tests of transactions write with, and what they find in the log."""

import numpy as np
import pyarrow as pa

from semel.client import LogClient, TopicPartition, from_options
from semel.client.arrow.encoding import Columns, encoded
from semel.client.transaction import Transaction
from semel.testing.broker import FaultyBroker

NAME = "sink-0"
TIMEOUT_MS = 60_000


def client_of(bootstrap: str, **options: object) -> LogClient:
    given = {f"kafka.{name.replace('_', '.')}": str(value) for name, value in options.items()}
    return LogClient(from_options({"kafka.bootstrap.servers": bootstrap, "kafka.retry.backoff.ms": "10", **given}))


def write(transaction: Transaction, where: TopicPartition, numbers: range) -> None:
    """Each number as one batch of one record, so that there are many requests."""
    transaction.join([where])
    for number in numbers:
        columns = Columns(pa.array([b"%d" % number]), None, np.array([1_000]))
        for records in encoded(columns, 10_000):
            transaction.write(where, records)


def stored(broker: FaultyBroker, topic: str = "payments") -> list[int]:
    """What consumers of committed records get, partition by partition."""
    return [int(record.value or b"") for record in broker.log(topic, committed_only=True)]


def places(count: int, topic: str = "payments") -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in range(count)]
