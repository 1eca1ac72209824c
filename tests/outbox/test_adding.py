"""What is added is sent if the transaction commits and never if it does not, whatever kind of connection it is on."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from typing import Any

import psycopg
import pytest
from relaying import Relays, orders
from sqlalchemy import Engine, func, insert, make_url, select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from committed_records import committed_records, committed_values
from semel import outbox
from semel.database import NotInTransaction, begin_immediately, engine_of
from semel.outbox import Message, MessageRefused, add, add_async, add_many, add_many_async


def raw_url(engine: Engine) -> str:
    return engine.url.set(drivername="postgresql").render_as_string(hide_password=False)


def test_a_message_leaves_as_it_was_added(engine: Engine, topic: str, bootstrap: str, relays: Relays) -> None:
    headers = {"type": "order", "none": None, "bytes": b"\xff\x00"}
    with engine.begin() as connection:
        add(connection, topic, b"\x00key", "välue", headers, clock=lambda: 1_770_000_000_000)
        add(connection, topic)
    assert relays.drain() == 2
    first, second = committed_records(bootstrap, topic)
    assert (first.key(), first.value()) == (b"\x00key", "välue".encode())
    assert first.headers() == [("type", b"order"), ("none", None), ("bytes", b"\xff\x00")]
    assert first.timestamp()[1] == 1_770_000_000_000
    assert (second.key(), second.value(), second.headers()) == (None, None, None)


def test_what_is_rolled_back_is_never_sent_and_the_effect_goes_with_it(
    engine: Engine, topic: str, bootstrap: str, relays: Relays
) -> None:
    def fail() -> None:
        with engine.begin() as connection:
            connection.execute(insert(orders), {"name": "half"})
            add(connection, topic, value="half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with engine.begin() as connection:
        with connection.begin_nested() as part:
            add(connection, topic, value="part")
            part.rollback()
        add(connection, topic, value="whole")
    assert relays.drain() == 1
    assert committed_values(bootstrap, topic) == [b"whole"]
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(orders)) == 0


def test_a_session_adds_in_its_transaction(engine: Engine, topic: str, bootstrap: str, relays: Relays) -> None:
    with Session(engine) as session:
        add(session, topic, value="rolled back")
        session.rollback()
        add(session, topic, value="committed")
        session.commit()
    relays.drain()
    assert committed_values(bootstrap, topic) == [b"committed"]


def test_a_raw_connection_adds_in_its_transaction(engine: Engine, topic: str, bootstrap: str, relays: Relays) -> None:
    raw: Any
    if engine.dialect.name == "mysql":
        pytest.skip("a raw connection is refused there")
    if engine.dialect.name == "postgresql":
        raw = psycopg.connect(raw_url(engine))
    else:
        raw = sqlite3.connect(str(engine.url.database), isolation_level=None)
        with pytest.raises(NotInTransaction):
            add(raw, topic, value="in no transaction")
        raw.execute("BEGIN IMMEDIATE")
    add(raw, topic, value="first")
    add_many(raw, [Message(topic, value=f"{number}") for number in range(3)])
    raw.commit()
    raw.close()
    relays.drain()
    assert committed_values(bootstrap, topic) == [b"first", b"0", b"1", b"2"]


@pytest.mark.parametrize("driver", ["sqlite+aiosqlite", "postgresql+asyncpg", "postgresql+psycopg"])
def test_an_asynchronous_connection_adds_in_its_transaction(
    engine: Engine, url: str, topic: str, bootstrap: str, relays: Relays, driver: str
) -> None:
    if driver.partition("+")[0] not in url:
        pytest.skip("another database")

    async def work() -> None:
        made = create_async_engine(make_url(url).set(drivername=driver))
        begin_immediately_on_sqlite(made)
        async with made.begin() as connection:
            await add_async(connection, topic, "k", "first", {"a": "b"})
        async with AsyncSession(made) as session:
            await add_async(session, topic, "k", "rolled back")
            await session.rollback()
            await add_many_async(session, [Message(topic, "k", f"{number}") for number in range(3)])
            await session.commit()
        await made.dispose()

    asyncio.run(work())
    relays.drain()
    assert committed_values(bootstrap, topic) == [b"first", b"0", b"1", b"2"]


def begin_immediately_on_sqlite(made: AsyncEngine) -> None:
    if made.dialect.name == "sqlite":
        begin_immediately(made.sync_engine)


def test_many_keep_their_order_and_none_are_no_statement(
    engine: Engine, topic: str, bootstrap: str, relays: Relays
) -> None:
    with engine.begin() as connection:
        add_many(connection, [])
        add_many(connection, (Message(topic, "k", f"{number}") for number in range(2_000)))
    assert relays.drain() == 2_000
    assert committed_values(bootstrap, topic) == [b"%d" % number for number in range(2_000)]


HALF_A_CHARACTER = "\ud800"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"topic": "no topic"}, "'no topic' is no topic: letters, digits"),
        ({"topic": ""}, "'' is no topic"),
        ({"topic": ".."}, r"'\.\.' is no topic"),
        ({"topic": "t" * 250}, "249 at most"),
        ({"key": 17}, "a key is bytes, text or None, and not int"),
        ({"value": {"a": 1}}, "a value is bytes, text or None, and not dict"),
        ({"value": HALF_A_CHARACTER}, "a value is text with half a character in it"),
        ({"headers": [("a",)]}, "is no header: a name and a value are"),
        ({"headers": {"a": 1}}, "a header's value is bytes, text or None, and not int"),
        ({"headers": {HALF_A_CHARACTER: "a"}}, "a header's name is text with half a character"),
        ({"headers": {"a\0b": "c"}}, "librdkafka would end it at the NUL"),
        ({"aggregate": 1}, "an aggregate is bytes, text or None, and not int"),
    ],
)
def test_what_can_be_no_record_is_refused_where_it_is_added(engine: Engine, wrong: dict[str, Any], says: str) -> None:
    with engine.begin() as connection:
        with pytest.raises(MessageRefused, match=says):
            add_many(connection, [Message("good"), Message(**{"topic": "orders", **wrong})])
        assert outbox.status(connection).waiting == 0


def test_a_database_without_the_tables_says_what_makes_them(url: str) -> None:
    engine = engine_of(url)
    with pytest.raises(Exception, match="semel_outbox") as raised, engine.begin() as connection:
        add(connection, "orders")
    assert "semel schema" in "".join(getattr(raised.value, "__notes__", []))
    engine.dispose()


def test_adding_from_a_loop_that_is_given_no_asynchronous_connection_says_so(engine: Engine) -> None:
    with engine.connect() as connection, pytest.raises(TypeError, match="no connection that semel knows"):
        asyncio.run(add_async(connection, "orders"))  # type: ignore[arg-type]


# In a process of its own: a tracer is set up once.
TRACED = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from sqlalchemy import select
from semel import outbox
from semel.database import engine_of
from semel.outbox.tables import messages

trace.set_tracer_provider(TracerProvider())
engine = engine_of("sqlite://")
with engine.begin() as connection:
    outbox.metadata.create_all(connection)
    outbox.add(connection, "orders", value="outside of a trace")
    with trace.get_tracer("shop").start_as_current_span("pay") as span:
        outbox.add(connection, "orders", headers={"type": "order"})
        outbox.add(connection, "orders", headers=[("traceparent", "mine")])
    expected = f"00-{span.get_span_context().trace_id:032x}-{span.get_span_context().span_id:016x}-"
    first, second, third = connection.scalars(select(messages.c.headers))
assert first is None
assert bytes.fromhex(dict(eval(second))["traceparent"]).decode().startswith(expected), second
assert eval(third) == [["traceparent", b"mine".hex()]]
print("traced")
"""


def test_a_message_carries_the_trace_in_which_it_was_added() -> None:
    """The relay that sends it knows nothing of the request; a message that names its trace keeps it."""
    ran = subprocess.run([sys.executable, "-c", TRACED], capture_output=True, text=True, timeout=60)
    assert ran.stdout == "traced\n", ran.stderr
