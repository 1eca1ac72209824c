"""A test whose database outlives its broker begins with empty tables, and keeps what is not semel's."""

from __future__ import annotations

import pytest
from sqlalchemy import select, text

from semel import inbox, outbox, schema
from semel.database import engine_of
from semel.outbox import OutOfStep, Relay
from semel.schema.tables import versions
from semel.testing.broker import FaultyBroker


def test_a_relay_goes_on_with_a_new_broker_once_the_tables_are_empty(url: str, semel_broker: FaultyBroker) -> None:
    engine = engine_of(url)
    schema.make(engine)

    def order(name: str) -> int:
        with engine.begin() as connection:
            outbox.add(connection, "orders", key=name, value=name)
        return Relay(engine, semel_broker.bootstrap).drain()

    assert order("o-1") == 1
    # As a broker of a fixture does, which knows nothing of the tests before.
    semel_broker.clear()
    with pytest.raises(OutOfStep, match=r"a test empties the tables by semel\.schema\.empty\(engine\)"):
        order("o-2")
    schema.empty(engine)
    assert order("o-3") == 1
    assert [record.value for record in semel_broker.log("orders", committed_only=True)] == [b"o-3"]
    engine.dispose()


def test_rooms_are_emptied_alone_and_nothing_else_is(url: str) -> None:
    engine = engine_of(url)
    schema.make(engine, "inbox")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE bookings (name TEXT)"))
        connection.execute(text("INSERT INTO bookings VALUES ('b-1')"))
        inbox.claim_many(connection, "billing", ["e-1"])
    # There are no tables of the outbox.
    schema.empty(engine, "outbox")
    with engine.begin() as connection:
        assert inbox.claim_many(connection, "billing", ["e-1"]) == set()
        schema.empty(connection, "inbox")
        assert inbox.claim_many(connection, "billing", ["e-1"]) == {"e-1"}
        assert connection.scalars(text("SELECT name FROM bookings")).all() == ["b-1"]
        assert connection.scalars(select(versions.c.room)).all() == ["inbox"]
    with pytest.raises(schema.UnknownRoom, match="'outbocks' has no tables"):
        schema.empty(engine, "outbocks")
    engine.dispose()
