"""Procedures, which are written once for threads and for coroutines: generators that yield each of their operations.

In a thread, the procedure does an operation before it yields, yields the result, and gets it back. With asyncio, it
yields a coroutine; `drive_async` awaits it, and its result or its error comes back at the same line. `drive` and
`drive_async` must never know what an operation is.
"""

import asyncio
from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from semel.database.errors import told_remedy

T = TypeVar("T")

Procedure: TypeAlias = Generator[Any, Any, T]


def drive(procedure: Procedure[T]) -> T:
    """Runs a procedure in this thread: each operation is done when the procedure yields its result."""
    try:
        result = next(procedure)
        while True:
            result = procedure.send(result)
    except StopIteration as end:
        value: T = end.value
        return value


async def drive_async(procedure: Procedure[T]) -> T:
    """Runs a procedure whose operations are coroutines."""
    try:
        operation = next(procedure)
        while True:
            try:
                result = await operation
            except BaseException as error:
                operation = procedure.throw(error)
            else:
                operation = procedure.send(result)
    except StopIteration as end:
        value: T = end.value
        return value


def is_in_loop() -> bool:
    """Whether an event loop runs in this thread, which a wait of this thread would hold up."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def transaction(engine: Engine | AsyncEngine, work: Callable[[Connection], T]) -> Any:
    """The operation that does `work` in a new transaction."""
    if isinstance(engine, AsyncEngine):
        return _transaction_async(engine, work)
    with told_remedy(), engine.begin() as connection:
        return work(connection)


async def _transaction_async(engine: AsyncEngine, work: Callable[[Connection], T]) -> T:
    with told_remedy():
        async with engine.begin() as connection:
            return await connection.run_sync(work)
