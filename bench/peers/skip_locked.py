"""The relay of an outbox that one finds in most places, written with care: it polls a table for rows that nobody else
has locked, produces them idempotently, waits until all are acknowledged, and deletes them. A batch is sent again if it
dies before the commit, and several side by side cost the order. It must never lose a row.

Run as `python skip_locked.py DATABASE BOOTSTRAP`."""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

import psycopg
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from sqlalchemy import BigInteger, Column, Integer, LargeBinary, MetaData, Table, Text

# As many as semel's relay takes.
BATCH_ROWS: Final = 2000
# An idle relay asks twenty times a second. Few let it ask as often, and most wait for longer.
POLL_SECONDS: Final = 0.05
FLUSH_SECONDS: Final = 30.0

tables: Final = MetaData()
waiting: Final = Table(
    "outbox",
    tables,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("topic", Text, nullable=False),
    Column("key", LargeBinary),
    Column("value", LargeBinary),
)

SELECT: Final = f"SELECT id, topic, key, value FROM outbox ORDER BY id LIMIT {BATCH_ROWS}"

OutboxRow = tuple[int, str, bytes, bytes]
Batch = AbstractContextManager[list[OutboxRow]]


def main() -> None:
    url, bootstrap = sys.argv[1:]
    # As other careful producers: idempotent, and each batch leaves as it is complete, because it is flushed.
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    relay(postgres_batches(url) if url.startswith("postgresql") else sqlite_batches(url), producer)


def relay(next_batch: Callable[[], Batch], producer: Producer) -> None:
    """Until it is killed."""
    print("relay ready", flush=True)
    while True:
        with next_batch() as rows:
            send(rows, producer)
        if not rows:
            time.sleep(POLL_SECONDS)


def send(rows: list[OutboxRow], producer: Producer) -> None:
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)

    for _, topic, key, value in rows:
        producer.produce(topic, value, key, on_delivery=delivered)
    if producer.flush(FLUSH_SECONDS) or failed:
        raise KafkaException(*failed[:1])


def postgres_batches(url: str) -> Callable[[], Batch]:
    connection = psycopg.connect(url, autocommit=True)

    @contextmanager
    def batch() -> Iterator[list[OutboxRow]]:
        """Locked until they are deleted, so that no other relay sends them meanwhile."""
        with connection.transaction():
            rows = connection.execute(f"{SELECT} FOR UPDATE SKIP LOCKED").fetchall()
            yield rows
            if rows:
                connection.execute("DELETE FROM outbox WHERE id = ANY(%s)", ([row[0] for row in rows],))

    return batch


def sqlite_batches(url: str) -> Callable[[], Batch]:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=30000"):
        connection.execute(f"PRAGMA {pragma}")

    @contextmanager
    def batch() -> Iterator[list[OutboxRow]]:
        """SQLite locks no rows: this is the only relay, and it keeps nobody from writing while it sends."""
        rows = connection.execute(SELECT).fetchall()
        yield rows
        if rows:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("DELETE FROM outbox WHERE id = ?", [(row[0],) for row in rows])
            connection.execute("COMMIT")

    return batch


if __name__ == "__main__":
    main()
