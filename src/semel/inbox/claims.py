"""The claim of an event: the functions that an application calls with its connection and an event, and their SQL.

There is no SELECT before the insert: the database's primary key decides. A second transaction with the same id waits at
the insert for the first one; it gets a duplicate if the first one commits, and is accepted if not. An old id is
compared with the floor after its insert, not before: if a transaction can insert an id that was claimed once, the
reaper has committed the deletion of that claim, and so the transaction sees the floor that the reaper committed before.

Nothing here begins, commits or rolls back a transaction. In a block of `once` whose effect is due, the caller may not
end the transaction either; and after an error has left the block, the transaction with the claim cannot be committed.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Final, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, delete, select

from semel.database import AsyncHandle, Handle, kept_open, kept_open_async, within, within_async
from semel.database.clock import Clock, now_ms
from semel.database.dialects import dialect_of, insert_new, is_new, per_dialect
from semel.database.effects import Work, work_on
from semel.inbox.counters import CLAIMS
from semel.inbox.events import Message, Outcome, checked_consumer, checked_id, time_of
from semel.inbox.quarantine import Aside, Cause, put, subject_of
from semel.inbox.reaper import FRESH_MS, NO_FLOOR_MS
from semel.inbox.tables import claims, floors
from semel.metrics.traces import TRACEPARENT, is_on, trace_headers


class EventClaim(NamedTuple):
    consumer: str
    message_id: str
    event_time_ms: int
    claimed_at_ms: int
    traceparent: str | None

    @property
    def is_fresh(self) -> bool:
        """Whether no floor can be above it. If the time is far in the future, a clock is wrong, maybe this one, so it
        is compared, too."""
        return abs(self.event_time_ms - self.claimed_at_ms) < FRESH_MS

    def is_stored(self, connection: Connection) -> bool:
        """Whether the claim is in this transaction: a rollback to a savepoint undoes it."""
        of_this = claims.c.consumer == self.consumer, claims.c.message_id == self.message_id
        return connection.scalar(select(claims.c.claimed_at_ms).where(*of_this)) is not None


def claim_of(consumer: str, message_id: str, event_time_ms: int | None, now_ms: int) -> EventClaim:
    """The time in an id is preferred to any other: it is the same in every delivery."""
    own_ms = time_of(message_id)
    known_ms = event_time_ms if own_ms is None else own_ms
    trace = trace_headers().get(TRACEPARENT) if is_on() else None
    return EventClaim(consumer, message_id, now_ms if known_ms is None else known_ms, now_ms, trace)


def trace_of(connection: Connection, consumer: str, message_id: str) -> str | None:
    """The span in which the event was claimed; None if it was in none."""
    of_this = claims.c.consumer == consumer, claims.c.message_id == message_id
    found: str | None = connection.scalar(select(claims.c.traceparent).where(*of_this))
    return found


# -- one -------------------------------------------------------------------------------------------------------------

_CLAIM: Final = insert_new(claims)


def claim(connection: Connection, new: EventClaim, message: Message | None = None) -> Outcome:
    """`message` is put aside if the time of the id is below the floor."""
    if not is_new(connection, _CLAIM, new._asdict()):
        return Outcome.DUPLICATE
    if new.is_fresh:
        return Outcome.ACCEPTED
    floor_ms = _floor_ms(connection, new.consumer)
    return _put_below(connection, new, floor_ms, message) if new.event_time_ms < floor_ms else Outcome.ACCEPTED


# -- many ------------------------------------------------------------------------------------------------------------

# Sorted by their ids, so that two transactions with the same ids insert them in the same order and cannot deadlock.
_CLAIM_EACH: Final = per_dialect(
    lambda dialect: dialect.insert_each(claims, ("consumer", "claimed_at_ms"), ("message_id", "event_time_ms"))
)


def claim_each(connection: Connection, consumer: str, ids: Iterable[str], now_ms: int) -> set[str]:
    """Claims all ids in one statement, and returns the new ones."""
    claims_by_id = {one: claim_of(consumer, one, None, now_ms) for one in sorted(set(ids))}
    if not claims_by_id:
        return set()
    rows = [(one.message_id, one.event_time_ms) for one in claims_by_id.values()]
    claim_all = _CLAIM_EACH[dialect_of(connection).name]
    first = claim_all(connection, {"consumer": consumer, "claimed_at_ms": now_ms}, rows)
    old = sorted(one for one in first if not claims_by_id[one].is_fresh)
    if old:
        floor_ms = _floor_ms(connection, consumer)
        for one in old:
            if claims_by_id[one].event_time_ms < floor_ms:
                _put_below(connection, claims_by_id[one], floor_ms, None)
                first.remove(one)
    return first


# -- the floor -------------------------------------------------------------------------------------------------------

_NO_FLOOR: Final = insert_new(floors)


def _floor_ms(connection: Connection, consumer: str) -> int:
    """The floor, locked until this transaction ends. With a snapshot from the beginning of the transaction (REPEATABLE
    READ and above), PostgreSQL refuses to lock a floor that was raised since, and does not return the old one."""
    statement = select(floors.c.floor_ms).where(floors.c.consumer == consumer).with_for_update(read=True)
    floor_ms = connection.scalar(statement)
    if floor_ms is None:
        # The row is made, so that there is one to lock.
        is_new(connection, _NO_FLOOR, {"consumer": consumer, "floor_ms": NO_FLOOR_MS})
        floor_ms = connection.scalar(statement)
    return NO_FLOOR_MS if floor_ms is None else int(floor_ms)


def _put_below(connection: Connection, new: EventClaim, floor_ms: int, message: Message | None) -> Outcome:
    """Replaces the claim, which the reaper would delete again, by a row in the quarantine."""
    connection.execute(delete(claims).where(claims.c.consumer == new.consumer, claims.c.message_id == new.message_id))
    reason = f"its time {new.event_time_ms} is before the floor {floor_ms}: nobody can tell whether it was done before"
    subject = subject_of(new.message_id)
    fresh = put(connection, Aside(new.consumer, subject, Cause.FLOOR, reason, new.claimed_at_ms, message=message))
    return Outcome.QUARANTINED if fresh else Outcome.DUPLICATE


# -- what an application calls -----------------------------------------------------------------------------------------


@contextmanager
def once(
    handle: Handle,
    *,
    consumer: str,
    message_id: str | UUID,
    event_time_ms: int | None = None,
    clock: Clock = now_ms,
) -> Iterator[Outcome]:
    """Claim the event for this consumer; the block has to do the effect if the outcome is true, and commits nothing.

    `event_time_ms` is when the event happened: pass it if the id does not contain the time and all deliveries have it.
    """
    new = claim_of(checked_consumer(consumer), checked_id(message_id), event_time_ms, clock())
    with within(handle) as connection:
        outcome = claim(connection, new)
    CLAIMS.add(consumer, outcome.value)
    with kept_open(handle, new.is_stored) if outcome else nullcontext():
        yield outcome


@asynccontextmanager
async def once_async(
    handle: AsyncHandle,
    *,
    consumer: str,
    message_id: str | UUID,
    event_time_ms: int | None = None,
    clock: Clock = now_ms,
) -> AsyncIterator[Outcome]:
    """`once` on an asynchronous connection or session."""
    new = claim_of(checked_consumer(consumer), checked_id(message_id), event_time_ms, clock())
    outcome = await within_async(handle, lambda connection: claim(connection, new))
    CLAIMS.add(consumer, outcome.value)
    async with kept_open_async(handle, new.is_stored) if outcome else nullcontext():
        yield outcome


def claim_many(handle: Handle, consumer: str, ids: Iterable[str | UUID], *, clock: Clock = now_ms) -> set[str]:
    """Claim a batch in one statement, and return the ids whose effects are due, as texts.

    An id that is in the batch twice is returned once: do the effects of the returned ids, and not of the batch.
    """
    checked_ids = [checked_id(one) for one in ids]
    with within(handle) as connection:
        first = claim_each(connection, checked_consumer(consumer), checked_ids, clock())
        work = work_on(connection)
    return _counted(consumer, checked_ids, first, work)


async def claim_many_async(
    handle: AsyncHandle, consumer: str, ids: Iterable[str | UUID], *, clock: Clock = now_ms
) -> set[str]:
    """`claim_many` on an asynchronous connection or session."""
    checked_ids, name = [checked_id(one) for one in ids], checked_consumer(consumer)
    first, work = await within_async(
        handle, lambda connection: (claim_each(connection, name, checked_ids, clock()), work_on(connection))
    )
    return _counted(consumer, checked_ids, first, work)


def _counted(consumer: str, ids: list[str], first: set[str], work: Work) -> set[str]:
    """An id below the floor counts as a duplicate here; it is in the quarantine."""
    if first:
        work.begin()
    CLAIMS.add(consumer, "accepted", by=len(first))
    CLAIMS.add(consumer, "duplicate", by=len(ids) - len(first))
    return first
