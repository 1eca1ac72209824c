"""The transactional outbox: a message that a transaction adds is in the log once if it commits, and never if it does
not.

    with engine.begin() as connection:
        book(connection, order)
        outbox.add(connection, "orders", key=order.id, value=order.json())

    Relay(engine, "127.0.0.1:9092").run()

The claim is (shard, batch number): the relay fixes it in the database before it sends anything, and publishes under
that number with a Publisher, whose epoch is the fence. This room must never begin, commit or roll back the caller's
transaction.
"""

import importlib.util

if importlib.util.find_spec("sqlalchemy") is None or importlib.util.find_spec("confluent_kafka") is None:
    raise ImportError("semel.outbox needs SQLAlchemy and confluent-kafka, and one is missing: pip install 'semel[app]'")

from semel.outbox import quarantine, tables
from semel.outbox.errors import (
    MessageRefused,
    OutboxError,
    OutOfStep,
    RelayFailed,
    RelayFenced,
    RelayRefused,
    Unsettled,
)
from semel.outbox.layout import ShardStatus, Status, status
from semel.outbox.messages import Message, add, add_async, add_many, add_many_async
from semel.outbox.relay import Progress, Relay
from semel.outbox.sender import Delivery
from semel.outbox.tables import metadata

__all__ = [
    "Delivery",
    "Message",
    "MessageRefused",
    "OutOfStep",
    "OutboxError",
    "Progress",
    "Relay",
    "RelayFailed",
    "RelayFenced",
    "RelayRefused",
    "ShardStatus",
    "Status",
    "Unsettled",
    "add",
    "add_async",
    "add_many",
    "add_many_async",
    "metadata",
    "quarantine",
    "status",
    "tables",
]
