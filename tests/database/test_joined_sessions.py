"""A session on the connection of a claim writes its changes, or the commit says that it has not."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from semel.database import NotFlushed, OpenTransaction, engine_of, kept_open, within


class Base(DeclarativeBase):
    pass


class Number(Base):
    __tablename__ = "numbers"
    number: Mapped[int] = mapped_column(primary_key=True)
    half: Mapped[int] = mapped_column(default=0)


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    made = engine_of(url)
    Base.metadata.create_all(made)
    with Session(made) as session:
        session.add(Number(number=1))
        session.commit()
    yield made
    made.dispose()


def stored(engine: Engine) -> list[tuple[int, int]]:
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(select(Number.number, Number.half).order_by(Number.number))]


def add(session: Session) -> None:
    session.add(Number(number=2))


def change(session: Session) -> None:
    session.get_one(Number, 1).half = 7


def delete(session: Session) -> None:
    session.delete(session.get_one(Number, 1))


def closed(connection: Any, work: Callable[[Session], None]) -> None:
    with Session(connection) as session:
        work(session)


def left(connection: Any, work: Callable[[Session], None]) -> None:
    work(Session(connection))


LOSING = [(closed, add), (closed, change), (left, add), (left, delete)]


@pytest.mark.parametrize(("way", "work"), LOSING)
def test_changes_that_were_not_written_are_an_error(engine: Engine, way: Any, work: Any) -> None:
    def block() -> None:
        with engine.begin() as connection:
            with within(connection):
                pass
            with kept_open(connection, lambda _: True):
                way(connection, work)

    with pytest.raises(NotFlushed, match="Number"):
        block()
    assert stored(engine) == [(1, 0)]


@pytest.mark.parametrize("work", [add, change])
@pytest.mark.parametrize("is_before", [True, False])
def test_they_are_also_without_a_block(engine: Engine, work: Any, is_before: bool) -> None:
    def block() -> None:
        with engine.begin() as connection:
            if is_before:
                closed(connection, work)
            with within(connection):
                pass
            if not is_before:
                closed(connection, work)

    with pytest.raises(NotFlushed):
        block()
    assert stored(engine) == [(1, 0)]
    # The next transaction is not to blame.
    with engine.connect() as connection:
        connection.begin()
        closed(connection, work)
        connection.rollback()
        with within(connection):
            pass
        connection.commit()


@pytest.mark.parametrize("end", [Session.flush, Session.commit])
@pytest.mark.parametrize("work", [add, change, delete])
def test_changes_that_were_written_are_fine(engine: Engine, work: Any, end: Any) -> None:
    with engine.begin() as connection:
        with within(connection):
            pass
        held = OpenTransaction(connection)
        with Session(connection) as session:
            work(session)
            end(session)
        held.check()
        held.release()
    assert stored(engine) == {add: [(1, 0), (2, 0)], change: [(1, 7)], delete: []}[work]


def test_an_object_may_be_taken_out_of_a_session(engine: Engine) -> None:
    with engine.begin() as connection:
        with within(connection):
            pass
        with Session(connection) as session:
            unwanted = Number(number=3)
            session.add_all([Number(number=2), unwanted])
            session.expunge(unwanted)
            session.flush()
        with Session(connection) as session:
            session.get_one(Number, 1)
    assert stored(engine) == [(1, 0), (2, 0)]
