"""`python -m bench.fetch_clients`: the pipeline's own client beside librdkafka's, from the log into Arrow.

What ADR 0012 rests on. Both read the same topics of four partitions from the same semel, in one process each time, by
turns, all columns of the source; what counts is CPU time, of all threads of the client, for a million rows."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from bench import clients
from bench.clients import LoadFailed
from bench.peers.semel import Semel
from semel.client import EARLIEST, LATEST, Isolation, LogClient, Slice, TopicPartition, from_options
from semel.client.arrow import TYPES, read_slice, schema_of

if TYPE_CHECKING:
    from confluent_kafka import Message

PARTITIONS: Final = 4
ROWS: Final = 1_000_000
VALUE_BYTES: Final = (100, 1000)
ROUNDS: Final = 5
MESSAGES_PER_CALL: Final = 10_000
COLUMNS: Final = list(TYPES)[:7]
MICROSECONDS_PER_MS: Final = 1000

Read = Callable[[str, str], int]


def own(bootstrap: str, topic: str) -> int:
    """With `semel.client`."""
    with LogClient(from_options({"kafka.bootstrap.servers": bootstrap})) as client:
        found = client.topics([topic])[topic]
        places = [TopicPartition(topic, number) for number in range(found.partitions)]
        begins = client.offsets(places, EARLIEST, Isolation.READ_COMMITTED)
        ends = client.offsets(places, LATEST, Isolation.READ_COMMITTED)
        slices = [Slice(found, place.partition, begins[place], ends[place]) for place in places]
        return sum(batch.num_rows for wanted in slices for batch in read_slice(client, wanted, COLUMNS))


def consumed(bootstrap: str, topic: str) -> int:
    """With confluent-kafka, messages alone."""
    return sum(len(messages) for messages in _messages(bootstrap, topic))


def consumed_into_arrow(bootstrap: str, topic: str) -> int:
    """With confluent-kafka, and columns made of the messages."""
    rows = 0
    for messages in _messages(bootstrap, topic):
        times = [message.timestamp() for message in messages]
        columns = [
            [message.key() for message in messages],
            [message.value() for message in messages],
            [message.topic() for message in messages],
            [message.partition() for message in messages],
            [message.offset() for message in messages],
            [time_ms * MICROSECONDS_PER_MS for _, time_ms in times],
            [kind - 1 for kind, _ in times],
        ]
        rows += pa.RecordBatch.from_arrays(
            [pa.array(column, TYPES[name]) for name, column in zip(COLUMNS, columns, strict=True)],
            schema=schema_of(COLUMNS),
        ).num_rows
    return rows


def _messages(bootstrap: str, topic: str) -> Iterator[list[Message]]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer
    from confluent_kafka import TopicPartition as Place

    settings = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, "log_level": 0}
    sizes = {"fetch.message.max.bytes": 4 * 1024 * 1024, "queued.min.messages": 1_000_000}
    consumer = Consumer({**settings, **sizes})
    try:
        places = [Place(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
        marks = [consumer.get_watermark_offsets(place, timeout=30) for place in places]
        left = sum(high - low for low, high in marks)
        consumer.assign(places)
        while left:
            messages = consumer.consume(MESSAGES_PER_CALL, timeout=10)
            if not messages:
                raise LoadFailed(f"{left} messages did not come")
            left -= len(messages)
            yield messages
    finally:
        consumer.close()


READERS: Final[dict[str, Read]] = {
    "own client, into Arrow": own,
    "confluent-kafka, messages alone": consumed,
    "confluent-kafka, into Arrow": consumed_into_arrow,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fetch_clients", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--rows", type=int, default=ROWS)
    arguments = parser.parse_args()
    with Semel(durability="os") as broker:
        for value_bytes in VALUE_BYTES:
            topic = f"values-{value_bytes}"
            clients.create_topic(broker, topic, PARTITIONS)
            clients.run(broker, clients.flood, [(topic, PARTITIONS, value_bytes, arguments.rows, True)])
            seconds: dict[str, list[float]] = {name: [] for name in READERS}
            for _ in range(arguments.rounds):
                for name, read in READERS.items():
                    began = time.process_time()
                    rows = read(broker.bootstrap, topic)
                    seconds[name].append((time.process_time() - began) * 1_000_000 / rows)
            for name, took in seconds.items():
                cpu = median(took)
                print(f"{value_bytes:>5} B  {name:<32} {cpu:6.2f} s of CPU for 1,000,000 rows ({1 / cpu:5.2f} M/s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
