"""Tasks of Celery through the outbox and the inbox, with the real Celery: on its broker in memory, and on a Redis."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, Table, insert, select
from sqlalchemy.exc import TimeoutError as PoolExhausted
from sqlalchemy.ext.asyncio import create_async_engine

from semel import inbox, outbox
from semel.outbox import Relay

celery: Any = pytest.importorskip("celery", reason="needs Celery: pip install 'celery[redis]>=5.4'")

effects = MetaData()
booked = Table("booked_tasks", effects, Column("id", Integer, primary_key=True), Column("number", Integer))


@pytest.fixture
def tables(engine: Engine) -> Engine:
    for metadata in (inbox.metadata, effects):
        metadata.create_all(engine)
    return engine


def app_of(name: str, **settings: Any) -> Any:
    app = celery.Celery(name, broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.update(settings)
    return app


def numbers(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        return sorted(connection.scalars(select(booked.c.number)))


def test_a_task_exists_if_its_transaction_commits_and_has_its_effect_once(tables: Engine) -> None:
    from celery.contrib.testing.worker import start_worker

    from semel.celery import enqueue, once, sender

    app = app_of("committed", task_acks_late=True, task_reject_on_worker_lost=True)
    tries: list[str] = []

    @app.task(name="book", autoretry_for=(ConnectionError,), default_retry_delay=0, max_retries=3)
    @once(tables)
    def book(connection: Any, number: int) -> str:
        connection.execute(insert(booked).values(number=number))
        tries.append(celery.current_task.request.id)
        if len(tries) == 1:
            raise ConnectionError
        return "booked"

    with tables.begin() as connection:
        id = enqueue(connection, book, [7])
    with tables.connect() as connection, connection.begin() as transaction:
        enqueue(connection, "book", [8])
        transaction.rollback()
    sent: list[Any] = []
    send = sender(app)
    relay = Relay(tables, send=lambda delivery: (sent.append(delivery), send(delivery)))
    assert relay.drain() == 1
    with start_worker(app, pool="solo", perform_ping_check=False):
        assert app.AsyncResult(id).get(timeout=60) == "booked"
        # The relay has died before it knew that the task is sent; and somebody calls the task by hand.
        send(sent[0])
        by_hand = book.apply_async([9])
        assert by_hand.get(timeout=60) == "booked"
    assert tries == [id, id, by_hand.id]
    assert numbers(tables) == [7, 9]


@pytest.mark.parametrize("settings", [{}, {"acks_late": True}])
def test_a_task_that_its_worker_could_lose_is_refused_at_its_first_run(
    tables: Engine, settings: dict[str, bool]
) -> None:
    from semel.celery import LosesTasks, once

    app = app_of("early")

    @app.task(name="book", **settings)
    @once(tables)
    def book(connection: Any) -> None:
        connection.execute(insert(booked).values(number=1))

    with pytest.raises(LosesTasks, match="reject_on_worker_lost=True"):
        book.apply(throw=True)
    with pytest.raises(RuntimeError, match="runs as a task"):
        book()
    assert numbers(tables) == []


def test_once_refuses_at_once_what_would_claim_a_task_and_not_run_it(tables: Engine) -> None:
    from semel.celery import once
    from semel.database.kinds import WrongKind

    async def coroutine(connection: Any) -> None: ...

    def generator(connection: Any) -> Iterator[None]:
        yield

    for function in (coroutine, generator):
        with pytest.raises(WrongKind, match="without"):
            once(tables)(function)
    with tables.connect() as connection, pytest.raises(WrongKind, match="one connection"):
        once(connection)
    with pytest.raises(WrongKind, match="asynchronous engine"):
        once(create_async_engine("sqlite+aiosqlite://"))


def test_a_call_that_would_take_the_id_of_the_task_around_it_is_refused(tables: Engine) -> None:
    from semel.celery import once

    app = app_of("nested", task_acks_late=True, task_reject_on_worker_lost=True)

    @once(tables)
    def helper(connection: Any, number: int) -> None:
        connection.execute(insert(booked).values(number=number))

    @app.task(name="loop")
    def loop() -> None:
        for number in range(2):
            helper(number)

    @app.task(name="again", bind=True, autoretry_for=(ConnectionError,))
    @once(tables)
    def again(connection: Any, task: Any, number: int) -> None:
        connection.execute(insert(booked).values(number=number))
        if number:
            task.run(number - 1)

    for task, arguments in ((loop, ()), (again, (1,))):
        with pytest.raises(RuntimeError, match="tasks of their own"):
            task.apply(arguments, throw=True)
    assert numbers(tables) == []
    again.apply((0,), throw=True)
    assert numbers(tables) == [0]


def test_a_task_that_finds_the_database_away_comes_again_and_takes_no_retry(tables: Engine) -> None:
    from celery.app.trace import build_tracer

    from semel.celery import once

    app = app_of("away", task_acks_late=True, task_reject_on_worker_lost=True, task_default_queue="away")

    @app.task(name="book", max_retries=0)
    @once(tables)
    def book(connection: Any, number: int) -> None:
        raise PoolExhausted

    traced = build_tracer("book", book, app=app)("one", [7], {}, {"id": "one", "retries": 0})
    assert traced.info.state == "RETRY"
    with app.connection_for_read() as connection:
        message = connection.default_channel.basic_get("away", no_ack=True)
    assert (message.headers["id"], message.headers["retries"]) == ("one", 0)
    assert message.headers["eta"] is not None


def test_a_broker_that_confirms_nothing_is_refused() -> None:
    from semel.celery import LosesTasks, sender

    with pytest.raises(LosesTasks, match="confirm_publish"):
        sender(celery.Celery(broker="amqp://127.0.0.1:1", set_as_current=False))


def test_a_task_leaves_not_before_its_time_and_says_its_time_zone(tables: Engine) -> None:
    from semel.celery import enqueue

    later = datetime.now(UTC) + timedelta(hours=1)
    with tables.begin() as connection:
        enqueue(connection, "book", not_before=later)
        with pytest.raises(ValueError, match="no time zone"):
            enqueue(connection, "book", not_before=later.replace(tzinfo=None))
        [row] = connection.scalars(select(outbox.tables.messages.c.value))
    assert later.isoformat().encode() in row


WORKER = """
import os, signal, sys
from celery import Celery
from sqlalchemy import text
from semel.celery import once
from semel.database import engine_of

app = Celery("killed", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True, worker_prefetch_multiplier=1)

@app.task(name="book")
@once(engine_of(os.environ["DATABASE"]))
def book(connection, number):
    connection.execute(text("INSERT INTO booked_tasks (number) VALUES (:number)"), {"number": number})
    marker = f"died-{number}"
    if not os.path.exists(marker):
        open(marker, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return "booked"
"""


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[str]:
    pytest.importorskip("redis", reason="needs the client of Redis")
    if shutil.which("redis-server") is None:
        pytest.skip("needs redis-server")
    socket = tmp_path / "redis.sock"
    command = ["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        while "ready to accept" not in server.stdout.readline():
            assert server.poll() is None
        yield f"redis+socket://{socket}"
        server.terminate()


def test_a_task_whose_process_is_killed_runs_again_and_has_its_effect_once(
    tables: Engine, url: str, redis: str, tmp_path: Path
) -> None:
    from semel.celery import enqueue, sender

    (tmp_path / "killed.py").write_text(WORKER)
    app = celery.Celery("killed", broker=redis, backend=redis, set_as_current=False)
    with tables.begin() as connection:
        ids = [enqueue(connection, "book", [number]) for number in range(2)]
    send = sender(app)
    Relay(tables, send=lambda delivery: (send(delivery), send(delivery))).drain()
    environment = {**os.environ, "BROKER": redis, "DATABASE": url, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "celery", "-A", "killed", "worker", "-P", "prefork", "-c", "1", "-l", "ERROR"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL) as worker:
        for id in ids:
            app.AsyncResult(id).get(timeout=120)
        worker.terminate()
        worker.wait(timeout=60)
    assert numbers(tables) == [0, 1]
    assert {path.name for path in tmp_path.glob("died-*")} == {"died-0", "died-1"}
