"""An application with an outbox and its relay, killed: each order is booked once and is in the log once, in its order.

The application adds a message in the transaction in which it books the order, and the relay publishes what waits. Every
run has an outbox that nobody has relayed before, so that what the first relay does is killed, too.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Column, Engine, MetaData, String, Table, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from committed_records import committed_values, make_topic
from crash_kit.survey import Place
from semel import outbox
from semel.database import engine_of
from semel.outbox import Relay, RelayFenced

NAME = "outbox"
_TABLES = MetaData()
_ORDERS = Table(
    "outbox_orders",
    _TABLES,
    Column("label", String, primary_key=True),
    Column("name", String, primary_key=True),
)
_NAMES: Final = ("a1", "b1", "a2")
_CLIENT: Final = {"reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 20, "linger.ms": 0, "log_level": 0}
# Two batches, of which the second has one message.
_BATCH_ROWS: Final = 2
_INSERT: Final = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def prepare(place: Place) -> None:
    engine = engine_of(place.url)
    for tables in (outbox.metadata, _TABLES):
        tables.create_all(engine)
    with engine.begin() as connection:
        for table in outbox.metadata.sorted_tables:
            connection.execute(delete(table))
    engine.dispose()
    make_topic(place.bootstrap, place.label)


def work(place: Place) -> None:
    engine = engine_of(place.url)
    for name in _NAMES:
        _book(engine, place, name)
    relay = Relay(engine, {"bootstrap.servers": place.bootstrap, **_CLIENT}, batch_rows=_BATCH_ROWS)
    try:
        relay.drain()
    except RelayFenced:
        # A rival has the outbox: whoever began this one begins it anew when the rival is gone.
        return
    finally:
        engine.dispose()


def audit(place: Place) -> None:
    engine = engine_of(place.url)
    with engine.connect() as connection:
        booked = sorted(connection.scalars(select(_ORDERS.c.name).where(_ORDERS.c.label == place.label)))
        status = outbox.status(connection)
    engine.dispose()
    assert booked == sorted(_NAMES), f"booked are {booked}"
    values = [str(value, "utf-8") for value in committed_values(place.bootstrap, place.label) if value]
    assert sorted(values) == sorted(_NAMES), f"the log has {values}"
    for aggregate in "ab":
        of_one = [value for value in values if value[0] == aggregate]
        assert of_one == sorted(of_one), f"the log has {values}"
    assert (status.waiting, status.quarantined) == (0, 0), f"{status}"
    assert not any(shard.is_at_hand for shard in status.shards), f"{status}"


def _book(engine: Engine, place: Place, name: str) -> None:
    """As a handler would whose request comes again: what is booked is not booked again."""
    with engine.begin() as connection:
        order = _INSERT[engine.dialect.name](_ORDERS).on_conflict_do_nothing().returning(_ORDERS.c.name)
        if connection.execute(order, {"label": place.label, "name": name}).first() is not None:
            outbox.add(connection, place.label, key=name[0], value=name)
