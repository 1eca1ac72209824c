"""Deletes the claims that are older than the retention, after raising the floor, which refuses their events instead.

A claim is as old as its event or as itself, whichever is younger: a consumer that is behind, or reads old events again,
keeps its claims for the whole retention. The floor is just above the latest event whose claim is deleted, so that only
events which may have been forgotten are refused: a consumer that has never forgotten a claim has no floor, and takes
events of any age. The floor is committed before the first claim is deleted, so an id above it always has its claim.
Each step is a short transaction of its own: a claim that is made meanwhile waits for at most one step. This file must
never lower a floor.
"""

from typing import Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Table,
    and_,
    delete,
    exists,
    func,
    not_,
    select,
    tuple_,
    update,
)
from sqlalchemy.ext.asyncio import AsyncEngine

from semel.database.clock import Clock, now_ms, time_by
from semel.database.dialects import dialect_of, insert_new, is_new
from semel.database.procedures import Procedure, drive, drive_async, transaction
from semel.inbox.counters import REAPED
from semel.inbox.events import checked_consumer
from semel.inbox.quarantine import ID_SUBJECT, OPEN, State
from semel.inbox.tables import claims, floors, quarantine

DAY_MS: Final = 24 * 60 * 60 * 1000

# How long a claim is kept by default: longer than the usual retention of topics, so that every event that can be
# delivered again still has its claim.
RETENTION_MS: Final = 30 * DAY_MS
# The shortest retention. The floor is always at least this long before the reaper's time, and an id that is younger
# than FRESH_MS by the clock of the claiming process is not compared with the floor. So two clocks may differ by 23
# hours.
RETENTION_MIN_MS: Final = DAY_MS
FRESH_MS: Final = 60 * 60 * 1000


class RetentionTooShort(ValueError):
    """The retention is too short: clocks that differ a little could still need a claim that was deleted."""


# Claims that are deleted in one transaction: SQLite has only one writer at a time, and others wait for its end.
STEP_ROWS: Final = 1_000
_NEW_FLOOR: Final = insert_new(floors)
# Below every time: the floor of a consumer that has never forgotten a claim.
NO_FLOOR_MS: Final = -(2**63)
_OPEN: Final = tuple(state.value for state in OPEN)
_SETTLED: Final = (State.DONE.value, State.DROPPED.value)


def reap(engine: Engine, *, consumer: str, retention_ms: int = RETENTION_MS, clock: Clock = now_ms) -> int:
    """Delete the consumer's claims that are older than `retention_ms`, after raising its floor above their events, and
    return how many there were."""
    return drive(reap_procedure(engine, consumer, retention_ms, clock))


async def reap_async(
    engine: AsyncEngine, *, consumer: str, retention_ms: int = RETENTION_MS, clock: Clock = now_ms
) -> int:
    """`reap` on an asynchronous engine."""
    return await drive_async(reap_procedure(engine, consumer, retention_ms, clock))


def reap_procedure(engine: Engine | AsyncEngine, consumer: str, retention_ms: int, clock: Clock) -> Procedure[int]:
    name, kept_ms = checked_consumer(consumer), checked_retention(retention_ms)

    def begin(connection: Connection) -> tuple[int, int]:
        # By the machine's clock or by the database's, whichever is behind: one that is ahead by the retention would
        # delete the claim of an event that is delivered again.
        before_ms = min(clock(), time_by(clock, connection)) - kept_ms
        latest_ms = connection.scalar(select(func.max(claims.c.event_time_ms)).where(_old(name, before_ms)))
        return before_ms, NO_FLOOR_MS if latest_ms is None else raise_floor(connection, name, latest_ms + 1)

    before_ms, floor_ms = yield transaction(engine, begin)
    deleted = 0
    while True:
        step: int = yield transaction(engine, lambda connection: delete_step(connection, name, floor_ms, before_ms))
        REAPED.add(name, by=step)
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
    """The floor afterwards: a clock that was set back does not lower it."""
    is_new(connection, _NEW_FLOOR, {"consumer": consumer, "floor_ms": floor_ms})
    connection.execute(
        update(floors).where(floors.c.consumer == consumer, floors.c.floor_ms < floor_ms).values(floor_ms=floor_ms)
    )
    floor = select(floors.c.floor_ms).where(floors.c.consumer == consumer)
    return int(connection.execute(dialect_of(connection).current(floor)).scalar_one())


def delete_step(connection: Connection, consumer: str, floor_ms: int, before_ms: int) -> int:
    """Delete some claims that are below the floor and from before this time, and return how many. Done and dropped rows
    of the quarantine are deleted with the claims of their time."""
    old = and_(_old(consumer, before_ms), claims.c.event_time_ms < floor_ms)
    settled = and_(
        quarantine.c.consumer == consumer,
        quarantine.c.state.in_(_SETTLED),
        quarantine.c.quarantined_at_ms < before_ms,
    )
    _delete_some(connection, quarantine, settled)
    return _delete_some(connection, claims, old)


def _old(consumer: str, before_ms: int) -> ColumnElement[bool]:
    """The claims whose event and which themselves are from before this time. The claim of an event that waits in the
    quarantine stays: its producer may send it again, and a person may have it retried."""
    waiting = exists().where(
        quarantine.c.consumer == consumer,
        quarantine.c.subject == ID_SUBJECT + claims.c.message_id,
        quarantine.c.state.in_(_OPEN),
    )
    return and_(
        claims.c.consumer == consumer,
        claims.c.claimed_at_ms < before_ms,
        claims.c.event_time_ms < before_ms,
        not_(waiting),
    )


def _delete_some(connection: Connection, table: Table, old: ColumnElement[bool]) -> int:
    key = table.primary_key.columns
    some = [tuple(row) for row in connection.execute(select(*key).where(old).limit(STEP_ROWS))]
    # A claim that was renewed meanwhile is not old any more.
    return connection.execute(delete(table).where(tuple_(*key).in_(some), old)).rowcount
