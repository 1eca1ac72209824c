"""The worker in `semel demo log`: orders in, invoices out, in transactions; a real program with a real client.

It is a process of its own, so that it can be killed. It commits when it is told to, so that it can be killed between
its records and its commit: each line on its standard output is a place where it waits for a line on its standard input.
"""

import logging
import sys
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer

_SECONDS_MAX: Final = 20.0


def main(bootstrap: str, orders: str, invoices: str, per_transaction: int) -> None:
    quiet = logging.getLogger("librdkafka")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    shared = {
        "bootstrap.servers": bootstrap,
        # What becomes of it is told at the places where it waits.
        "logger": quiet,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 100,
        # Where the only broker dies and comes back, librdkafka 2.16 starts from scratch by default, and then waits for
        # ever to send the offsets of an open transaction to the coordinator it knew before.
        "metadata.recovery.strategy": "none",
    }
    producer = Producer({**shared, "transactional.id": "billing-1", "linger.ms": 1, "retry.backoff.ms": 10})
    # First of all: from now on a predecessor can commit nothing more, so what is committed will not change under us.
    producer.init_transactions(_SECONDS_MAX)
    consumer = Consumer(
        {
            **shared,
            "group.id": "billing",
            # A static member: its successor takes its place at once, without waiting for it to be missed.
            "group.instance.id": "billing-1",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([orders])
    while True:
        messages = [message for message in consumer.consume(per_transaction, timeout=0.2) if message.error() is None]
        if not messages:
            _wait_at("idle")
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(invoices, b"invoice for " + (message.value() or b""), partition=message.partition() or 0)
        producer.flush(_SECONDS_MAX)
        _wait_at(f"written {len(messages)}")
        try:
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), _SECONDS_MAX)
            producer.commit_transaction(_SECONDS_MAX)
        except KafkaException as refusal:
            _wait_at(f"refused {refusal.args[0].name()}")
            return


def _wait_at(place: str) -> None:
    print(place, flush=True)
    if not sys.stdin.readline():
        sys.exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
