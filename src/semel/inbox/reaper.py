"""Takes away the claims that are older than the retention, after raising the floor that stands in for them.

The floor is committed before the first claim goes, so that no id is ever unknown and above it. Each step is a
transaction of its own, and short: whoever claims meanwhile waits for one step at most. This must never lower a floor.
"""

from typing import Final

from sqlalchemy import ColumnElement, Connection, Engine, Table, and_, delete, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncEngine

from semel.database.clock import Clock, now_ms
from semel.inbox.asides import State
from semel.inbox.errors import RetentionTooShort
from semel.inbox.identities import checked_consumer
from semel.inbox.statements import insert_new, is_new
from semel.inbox.tables import claims, floors, quarantine
from semel.inbox.times import DAY_MS, RETENTION_MIN_MS, RETENTION_MS

# Claims that go in one transaction: SQLite has one writer, who is kept waiting for as long as that takes.
STEP_ROWS: Final = 1_000
_NEW_FLOOR: Final = insert_new(floors)
_SETTLED: Final = (State.DONE.value, State.DROPPED.value)


def reap(engine: Engine, *, consumer: str, retention_ms: int = RETENTION_MS, clock: Clock = now_ms) -> int:
    """Raise the consumer's floor to `retention_ms` ago, delete the claims below it, and say how many there were."""
    name, floor_ms = checked_consumer(consumer), clock() - checked_retention(retention_ms)
    with engine.begin() as connection:
        floor_ms = raise_floor(connection, name, floor_ms)
    deleted = 0
    while True:
        with engine.begin() as connection:
            step = delete_step(connection, name, floor_ms)
        deleted += step
        if step < STEP_ROWS:
            return deleted


async def reap_async(
    engine: AsyncEngine, *, consumer: str, retention_ms: int = RETENTION_MS, clock: Clock = now_ms
) -> int:
    """`reap` on an asynchronous engine."""
    name, floor_ms = checked_consumer(consumer), clock() - checked_retention(retention_ms)
    async with engine.begin() as connection:
        floor_ms = await connection.run_sync(raise_floor, name, floor_ms)
    deleted = 0
    while True:
        async with engine.begin() as connection:
            step = await connection.run_sync(delete_step, name, floor_ms)
        deleted += step
        if step < STEP_ROWS:
            return deleted


def checked_retention(retention_ms: int) -> int:
    if retention_ms < RETENTION_MIN_MS:
        raise RetentionTooShort(
            f"a retention of {retention_ms} ms is too short: claims are kept for at least {RETENTION_MIN_MS // DAY_MS} "
            "day, because clocks differ and events are delivered again"
        )
    return retention_ms


def raise_floor(connection: Connection, consumer: str, floor_ms: int) -> int:
    """The floor as it is then: a clock that went back lowers nothing."""
    is_new(connection, _NEW_FLOOR, {"consumer": consumer, "floor_ms": floor_ms})
    connection.execute(
        update(floors).where(floors.c.consumer == consumer, floors.c.floor_ms < floor_ms).values(floor_ms=floor_ms)
    )
    return int(connection.execute(select(floors.c.floor_ms).where(floors.c.consumer == consumer)).scalar_one())


def delete_step(connection: Connection, consumer: str, floor_ms: int) -> int:
    """How many claims went. What was decided in the quarantine is forgotten with the claims of that time."""
    old = and_(claims.c.consumer == consumer, claims.c.event_time_ms < floor_ms)
    settled = and_(
        quarantine.c.consumer == consumer,
        quarantine.c.state.in_(_SETTLED),
        quarantine.c.quarantined_at_ms < floor_ms,
    )
    _delete_some(connection, quarantine, settled)
    return _delete_some(connection, claims, old)


def _delete_some(connection: Connection, table: Table, old: ColumnElement[bool]) -> int:
    key = table.primary_key.columns
    some = select(*key).where(old).limit(STEP_ROWS)
    return connection.execute(delete(table).where(tuple_(*key).in_(some))).rowcount
