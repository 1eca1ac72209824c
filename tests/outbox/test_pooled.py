"""Through PgBouncer in transaction mode, where each transaction may get another session of the server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from flask import Flask
from flask import request as flask_request
from relaying import Relays, orders
from sqlalchemy import Engine, insert, text

from committed_records import committed_values
from eventually import eventually
from semel import outbox, schema
from semel.database import engine_of
from semel.http import Idempotency, WsgiIdempotency, reap


@pytest.fixture
def pooled(pooled_url: str) -> Iterator[Engine]:
    engine = engine_of(pooled_url)
    yield engine
    engine.dispose()


def test_outbox_and_relay_work_through_a_pooler_of_transactions(
    pooled: Engine, postgres_url: str, topic: str, bootstrap: str
) -> None:
    schema.make(pooled)
    schema.check(pooled)
    orders.metadata.create_all(pooled)
    relays = Relays(pooled, bootstrap)
    running = relays.run(shards=2)
    # More often than the driver waits before it prepares a statement, on several connections.
    for number in range(40):
        with pooled.begin() as first, pooled.begin() as second:
            for place, connection in enumerate((first, second)):
                connection.execute(insert(orders), {"name": f"{number} {place}"})
                outbox.add(connection, topic, f"key {place}", f"{number} {place}")
    assert eventually(lambda: running.relay.progress().messages == 80)
    relays.stop()
    values = committed_values(bootstrap, topic)
    assert sorted(values) == sorted(b"%d %d" % (number, place) for number in range(40) for place in range(2))
    # It has left nothing behind in the sessions of the server, which others get.
    looking = engine_of(postgres_url)
    with looking.connect() as connection:
        here = "(SELECT oid FROM pg_database WHERE datname = current_database())"
        locks = f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = {here}"
        assert connection.scalar(text(locks)) == 0
    with pooled.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM pg_prepared_statements")) == 0
        assert connection.scalar(text("SELECT count(*) FROM pg_listening_channels()")) == 0
    looking.dispose()


def test_http_keys_and_their_steps_work_through_a_pooler_of_transactions(pooled: Engine) -> None:
    schema.make(pooled)
    orders.metadata.create_all(pooled)
    idempotency = Idempotency(pooled, scope=lambda _request: "anna", steps=("/steps",))
    app = Flask("shop")

    @app.post("/orders")
    def order() -> str:
        idempotency.connection(flask_request).execute(insert(orders), {"name": flask_request.get_data(as_text=True)})
        return "ordered"

    @app.post("/steps")
    def steps() -> str:
        with idempotency.key(flask_request).step("book") as step:
            step.connection().execute(insert(orders), {"name": flask_request.get_data(as_text=True)})
        return "booked"

    app.wsgi_app = WsgiIdempotency(app.wsgi_app, idempotency)  # type: ignore[method-assign]
    for number in range(20):
        for path in ("/orders", "/steps"):
            name = f"{path[1:]}-{number}"
            for _ in range(2):
                answer = app.test_client().post(path, data=name, headers={"Idempotency-Key": name})
                assert answer.status_code == 200
    with pooled.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM orders")) == 40
    assert reap(pooled, now_ms=2**60) == 40
