"""Workers of workflows, killed: each recorded step is done once, and each workflow ends.

The call goes to somebody outside, who knows a key that he has seen. The clock of a worker goes on by a lease whenever
it finds nothing due: so the clocks of two workers run apart, and each takes over from the other while that one lives.
"""

from __future__ import annotations

import time
from typing import Final

from sqlalchemy import Column, Connection, Engine, Integer, MetaData, String, Table, func, insert, select

from crash_kit.survey import Place
from semel.database import elsewhere, engine_of
from semel.steps import Run, State, Worker, Workflow, look_up, metadata, start, workflow

NAME = "steps"
_LEASE_MS: Final = 60_000
_TABLES = MetaData()
_EFFECTS = Table(
    "step_effects",
    _TABLES,
    Column("id", Integer, primary_key=True),
    Column("label", String, nullable=False),
    Column("what", String, nullable=False),
)


def prepare(place: Place) -> None:
    engine = engine_of(place.url)
    for tables in (metadata, _TABLES):
        tables.create_all(engine)
    engine.dispose()


def work(place: Place) -> None:
    engine, waited_ms = engine_of(place.url), 0
    flow = _order(engine, place)
    worker = Worker(
        engine,
        [flow],
        queues={place.label: 1},
        lease_ms=_LEASE_MS,
        clock=lambda: time.time_ns() // 1_000_000 + waited_ms,
    )
    with engine.begin() as connection:
        start(connection, flow, id=place.label, queue=place.label)
    while True:
        worker.drain()
        with engine.begin() as connection:
            found = look_up(connection, place.label)
        if found.state == State.DONE:
            break
        assert found.state in (State.RUNNING, State.WAITING), found
        waited_ms += _LEASE_MS
    engine.dispose()


def audit(place: Place) -> None:
    engine = engine_of(place.url)
    with engine.begin() as connection:
        found = look_up(connection, place.label)
        assert found.state == State.DONE, found
        effects = select(_EFFECTS.c.what).where(_EFFECTS.c.label == place.label).order_by(_EFFECTS.c.what)
        assert list(connection.scalars(effects)) == ["booked 0", "booked 1", "charged"]
    engine.dispose()


def _order(engine: Engine, place: Place) -> Workflow:
    @workflow(name="order")
    def order(run: Run) -> int:
        run.call("charge", lambda key: _call_outside(engine, place.label, key))
        run.sleep("a while", 2 * _LEASE_MS / 1000)
        for item in range(2):
            with run.step(f"book-{item}") as step:
                if step.first:
                    _add(step.connection(), place.label, f"booked {item}")
        return 1

    return order


def _call_outside(engine: Engine, label: str, key: str) -> None:
    """Somebody who commits on his own, and does nothing for a key that he has seen."""
    with elsewhere(), engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(1)))
        if not connection.scalar(select(func.count()).where(_EFFECTS.c.label == key)):
            _add(connection, key, "known")
            _add(connection, label, "charged")


def _add(connection: Connection, label: str, what: str) -> None:
    connection.execute(insert(_EFFECTS).values(label=label, what=what))
