"""What a session has to write is written before the message takes its number: the lock of an aggregate is its order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from relaying import Relays
from sqlalchemy import Engine, make_url
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from committed_records import committed_values
from semel.outbox import add, add_async


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "accounts"
    id: Mapped[int] = mapped_column(primary_key=True)
    cents: Mapped[int]


@pytest.fixture(autouse=True)
def accounts(engine: Engine) -> Iterator[None]:
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add(Account(id=1, cents=0))
    yield
    Base.metadata.drop_all(engine)


def is_locked(engine: Engine) -> bool:
    """Whether somebody else has the account, as a third connection finds it."""
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql("SELECT * FROM accounts WHERE id = 1 FOR UPDATE NOWAIT")
    except OperationalError:
        return True
    return False


@pytest.mark.parametrize("kind", [Session, lambda engine: scoped_session(sessionmaker(engine, autoflush=False))])
def test_the_aggregate_is_locked_before_the_message_takes_its_number(
    engine: Engine, topic: str, bootstrap: str, relays: Relays, kind: Any
) -> None:
    """Two payments of one account that overlap: the second waits for the first, so its message is behind it."""

    def pay(cents: int) -> None:
        session = kind(engine)
        with session.begin():
            account = session.get(Account, 1)
            account.cents += cents
            add(session, topic, "account-1", str(cents))
        session.close()

    first = kind(engine)
    with first.begin(), ThreadPoolExecutor(1) as threads:
        first.get(Account, 1).cents += 1
        add(first, topic, "account-1", "1")
        if engine.dialect.name == "postgresql":
            assert is_locked(engine)
        second = threads.submit(pay, 2)
        first.commit()
        second.result(60)
    first.close()
    assert relays.drain() == 2
    assert committed_values(bootstrap, topic) == [b"1", b"2"]


@pytest.mark.parametrize("kind", [AsyncSession, "scoped"])
async def test_so_is_it_in_an_asynchronous_session(engine: Engine, url: str, topic: str, kind: Any) -> None:
    if engine.dialect.name == "sqlite":
        pytest.skip("its one writer has the lock from the start")
    made = create_async_engine(make_url(url).set(drivername="postgresql+asyncpg"))
    session: Any = AsyncSession(made)
    if kind == "scoped":
        session = async_scoped_session(lambda: AsyncSession(made, autoflush=False), scopefunc=asyncio.current_task)
    async with session.begin():
        account = await session.get(Account, 1)
        account.cents += 1
        await add_async(session, topic, "account-1", "1")
        assert is_locked(engine)
    await session.close()
    await made.dispose()
