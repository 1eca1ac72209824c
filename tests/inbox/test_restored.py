"""What becomes of a consumer whose database is restored to last night while the offsets of its group are at today: the
audit names each event that is missing, and what the guide says brings them back, each once."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import Producer
from effects import done, effects
from sqlalchemy import Engine, delete, insert, select
from test_loop import run_until

from semel.audit import audit
from semel.inbox import Counts, metadata
from semel_command import semel_lines

TABLES = (*metadata.sorted_tables, effects)
NIGHT = datetime.fromtimestamp(int(time.time()), UTC) - timedelta(hours=12)

Backup = dict[Any, list[dict[str, Any]]]


def send(bootstrap: str, topic: str, *numbers: int) -> None:
    """Events with the times at which they happened: the first three before the night."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in numbers:
        at = NIGHT + timedelta(hours=number - 3)
        value = json.dumps({"id": f"event-{number}"})
        producer.produce(topic, value, partition=0, timestamp=int(at.timestamp() * 1000))
    assert producer.flush(30) == 0


def backup(engine: Engine) -> Backup:
    with engine.connect() as connection:
        return {table: [dict(row._mapping) for row in connection.execute(select(table))] for table in TABLES}


def restore(engine: Engine, rows: Backup) -> None:
    with engine.begin() as connection:
        for table in TABLES:
            connection.execute(delete(table))
            if rows[table]:
                connection.execute(insert(table), rows[table])


def test_what_was_lost_with_a_restored_database_is_named_and_comes_back_once(
    engine: Engine, url: str, bootstrap: str, topic: str
) -> None:
    def consume(count: int) -> Counts:
        return run_until(engine, bootstrap, topic, lambda counts: counts.consumed == count).counts

    def lost() -> list[str]:
        address = f"{url.replace('sqlite:///', 'sqlite:')}/effects?id=name"
        [sink] = audit(f"semel://{bootstrap}/{topic}?id=value.$.id", address).sinks
        assert not sink.doubled.listed
        return sorted(one.text for one in sink.lost.listed)

    send(bootstrap, topic, 0, 1, 2)
    consume(3)
    last_night = backup(engine)
    send(bootstrap, topic, 3, 4, 5)
    consume(3)
    restore(engine, last_night)
    send(bootstrap, topic, 6)
    assert consume(1) == Counts(first_time=1)
    assert lost() == ["event-3", "event-4", "event-5"]
    before = (NIGHT - timedelta(hours=1)).isoformat().replace("+00:00", "Z")
    semel_lines("groups", "reset", topic, "--topic", topic, "--to", before, "--execute", "--bootstrap", bootstrap)
    assert consume(5) == Counts(first_time=3, duplicate=2)
    assert lost() == []
    assert sorted(done(engine)) == [f"event-{number}" for number in range(7)]
