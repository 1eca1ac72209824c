"""Deletes keys whose result has expired, on connections of its own. It must never take a key that somebody holds.

An expired key is free whether it was reaped or not: the reaper only gives back space. It goes by the clock of the
database, as leases do.
"""

from typing import Final

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from semel.database.clock import database_now_ms
from semel.http.claims import reap_batch

# Keys that are reaped in one transaction, so that nobody waits long for the reaper.
REAPED_ROWS_MAX: Final = 1000


def reap(engine: Engine, now_ms: int | None = None, rows_max: int = REAPED_ROWS_MAX) -> int:
    """Delete all that has expired, in transactions of `rows_max` keys; answer how many keys that were."""
    if isinstance(engine, AsyncEngine):
        raise TypeError("reap takes an Engine; on an AsyncEngine it is `await reap_async(engine)`")
    reaped = 0
    while True:
        with engine.begin() as connection:
            count = _reap_batch(connection, now_ms, rows_max)
        reaped += count
        if count < rows_max:
            return reaped


async def reap_async(engine: AsyncEngine, now_ms: int | None = None, rows_max: int = REAPED_ROWS_MAX) -> int:
    """`reap` on an asynchronous engine."""
    reaped = 0
    while True:
        async with engine.begin() as connection:
            count = await connection.run_sync(_reap_batch, now_ms, rows_max)
        reaped += count
        if count < rows_max:
            return reaped


def _reap_batch(connection: Connection, now_ms: int | None, rows_max: int) -> int:
    return reap_batch(connection, database_now_ms(connection) if now_ms is None else now_ms, rows_max)
