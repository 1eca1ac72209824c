"""A workflow for the tests, its tables, and a database whose process dies at a point that the test names."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator

from sqlalchemy import Column, Connection, Engine, Integer, MetaData, Table, Text, insert, select

from semel.steps import Run, Workflow, workflow

tables = MetaData()
# What is booked with a step, in its transaction.
booked = Table("booked", tables, Column("number", Integer, primary_key=True), Column("what", Text, nullable=False))


def book(connection: Connection, what: str) -> int:
    added = connection.execute(insert(booked).values(what=what))
    number: int = added.inserted_primary_key[0]
    return number


def all_booked(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return sorted(connection.scalars(select(booked.c.what)))


class Died(BaseException):
    """The process was killed here."""


class Mortal:
    """A database as one process has it, which dies at the point `dies_at`: before and after each begin and each end of
    a transaction there is one. A dead process does nothing more. `between` is called at those outside of a transaction,
    to do what other processes do just then."""

    def __init__(self, engine: Engine, dies_at: int | None = None) -> None:
        self._engine = engine
        self._dies_at = dies_at
        self.points = 0
        self.is_dead = False
        self.between: Callable[[int], None] = lambda point: None

    def __call__(self) -> contextlib.AbstractContextManager[Connection]:
        return self._transaction()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Connection]:
        self._point()
        self.between(self.points)
        with self._engine.connect() as connection, connection.begin() as transaction:
            try:
                self._point()
                yield connection
                self._point()
            except BaseException:
                transaction.rollback()
                raise
            transaction.commit()
            self._point()
        self.between(self.points)

    def _point(self) -> None:
        if not self.is_dead:
            self.points += 1
        if self.is_dead or self.points == self._dies_at:
            self.is_dead = True
            raise Died


def order(log: list[str], bank: Counter[str]) -> Workflow:
    """A workflow with a call, a sleep and two bookings. `log` has what its code does outside of steps, in each run; the
    bank counts the calls of each key."""

    @workflow(name="order")
    def flow(run: Run, number: int) -> int:
        def charge(key: str) -> int:
            bank[key] += 1
            return 7

        log.append("begins")
        charged = run.call("charge", charge)
        run.sleep("until tomorrow", 86_400)
        for item in range(2):
            with run.step(f"book-{item}") as step:
                if step.first:
                    step.result = book(step.connection(), f"{number}-{item}")
        return charged + number

    return flow
