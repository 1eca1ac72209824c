"""Orders of a shop whose requests work on sessions of their own, beside the key."""

import logging
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import NullPool

from semel.http.tables import keys


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str] = mapped_column()


def orders(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return sorted(connection.scalars(select(Order.item)))


def kept(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(keys)) or 0


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "semel.http" and one.levelno == logging.ERROR]


def is_problem(answer: Any) -> bool:
    problem = answer.get_json(force=True) if hasattr(answer, "get_json") else answer.json()
    assert (answer.status_code, problem["type"]) == (500, "urn:semel:problem:written-elsewhere")
    return True


def plain(engine: Engine) -> Engine:
    """An engine as a program without semel makes it: on SQLite, its transactions begin when they write."""
    return create_engine(engine.url, poolclass=NullPool)


class Outer:
    """A middleware outside of the keys, which loads an order, and commits when the request is over."""

    def __init__(self, app: Any, engine: Engine) -> None:
        self.app, self.engine = app, engine

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        with Session(plain(self.engine)) as session:
            scope["order"] = session.scalars(select(Order)).one()
            if scope.get("path") == "/changed-before":
                session.add(Order(item="of the middleware"))
            await self.app(scope, receive, send)
            session.commit()
