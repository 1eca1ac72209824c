"""A procedure is written once, for threads and for coroutines: a generator that yields each of its operations.

Synchronous code does an operation where the procedure yields it, and gets the result back. Asynchronous code yields a
coroutine, which is awaited outside, and its result or its error comes back at the same line. `drive` and `drive_async`
must never know what an operation is.
"""

from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine

T = TypeVar("T")

Procedure: TypeAlias = Generator[Any, Any, T]


def drive(procedure: Procedure[T]) -> T:
    """Each operation is done by the time it is yielded."""
    try:
        result = next(procedure)
        while True:
            result = procedure.send(result)
    except StopIteration as end:
        value: T = end.value
        return value


async def drive_async(procedure: Procedure[T]) -> T:
    """Each operation is a coroutine."""
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


def transaction(engine: Engine | AsyncEngine, work: Callable[[Connection], T]) -> Any:
    """The operation that does `work` in a transaction of its own."""
    if isinstance(engine, AsyncEngine):
        return _transaction_async(engine, work)
    with engine.begin() as connection:
        return work(connection)


async def _transaction_async(engine: AsyncEngine, work: Callable[[Connection], T]) -> T:
    async with engine.begin() as connection:
        return await connection.run_sync(work)
