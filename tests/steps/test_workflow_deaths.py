"""A worker dies at every point at which it begins or ends a transaction, and another one goes on: each recorded step
has its effect once, each workflow ends, and whoever wakes up late writes nothing."""

from __future__ import annotations

import contextvars
from collections import Counter

import pytest
from flows import Died, Mortal, all_booked, order
from sqlalchemy import Engine

from semel.steps import State, Worker, look_up, start
from semel.testing.clock import Clock

LEASE_MS = 30_000


class World:
    """A database, a clock and a bank that outlive the workers."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.clock = Clock()
        self.bank: Counter[str] = Counter()
        self.log: list[str] = []
        self.flow = order(self.log, self.bank)
        with engine.begin() as connection:
            self.id = start(connection, self.flow, 1, clock=self.clock)

    def live(self, database: Mortal) -> None:
        """Two days of a worker."""
        for _ in range(2):
            self.worker(database).drain()
            self.clock.ms += 86_400_000

    def worker(self, database: Mortal) -> Worker:
        return Worker(database, [self.flow], lease_ms=LEASE_MS, clock=self.clock)

    def run_to_the_end(self) -> None:
        """What other workers do, who live: each lease runs out, and each night is over."""
        for _ in range(3):
            self.worker(Mortal(self.engine)).drain()
            self.clock.ms += 86_400_000

    def check(self) -> None:
        with self.engine.begin() as connection:
            found = look_up(connection, self.id)
        assert (found.state, found.result) == (State.DONE, 8)
        assert all_booked(self.engine) == ["1-0", "1-1"]
        # The call may have been made twice, and the bank knows it again: it has always the same key.
        assert len(self.bank) == 1


def points_of_a_life(engine: Engine) -> int:
    world, database = World(engine), Mortal(engine)
    world.live(database)
    world.check()
    assert world.log == ["begins", "begins"]
    assert list(world.bank.values()) == [1]
    return database.points


def stride(engine: Engine) -> int:
    """Every point on SQLite, and some on PostgreSQL, where each takes longer."""
    return 1 if engine.dialect.name == "sqlite" else 5


def test_each_step_counts_once_wherever_a_worker_dies(engine: Engine) -> None:
    points = points_of_a_life(engine)
    assert points > 30
    for dies_at in range(1, points + 1, stride(engine)):
        with engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM booked")
        world, database = World(engine), Mortal(engine, dies_at)
        with pytest.raises(Died):
            world.live(database)
        world.run_to_the_end()
        world.check()


def test_a_worker_that_wakes_up_late_writes_nothing(engine: Engine) -> None:
    """It stood still at each point in turn for longer than its lease, while another one went on."""
    for stands_at in range(1, points_of_a_life(engine), stride(engine)):
        with engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM booked")
        world, late = World(engine), Mortal(engine)
        stood: list[int] = []

        def stand_still(point: int, world: World = world, stands_at: int = stands_at, stood: list[int] = stood) -> None:
            # In a transaction nobody else can take the workflow over.
            if point >= stands_at and not stood:
                stood.append(point)
                world.clock.ms += LEASE_MS
                # As in another process, which is not inside of a step.
                contextvars.Context().run(world.run_to_the_end)

        late.between = stand_still
        world.live(late)
        world.check()
        assert stood
