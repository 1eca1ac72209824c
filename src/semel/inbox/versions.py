"""The claim of a version: version n of an aggregate is accepted once, and only after version n-1.

One row holds the last version of an aggregate, and the UPDATE itself compares it. Nothing here begins, commits or rolls
back a transaction.
"""

from typing import Final
from uuid import UUID

from sqlalchemy import Connection, bindparam, select, update

from semel.database import AsyncHandle, Handle, within, within_async
from semel.database.clock import Clock, now_ms
from semel.database.dialects import dialect_of, insert_new, is_new, per_dialect
from semel.database.effects import Work, work_on
from semel.inbox.counters import CLAIMS
from semel.inbox.events import Outcome, Version, checked_consumer, checked_version
from semel.inbox.tables import versions


def next_version(
    handle: Handle,
    consumer: str,
    aggregate: str | UUID,
    version: int,
    *,
    first_version: int = 1,
    clock: Clock = now_ms,
) -> Outcome:
    """Claim a version of an aggregate: accepted if it follows the last one, otherwise duplicate or gap."""
    target = checked_version(aggregate, version)
    with within(handle) as connection:
        outcome = claim_version(connection, checked_consumer(consumer), target, first_version, clock())
        work = work_on(connection)
    return _counted(consumer, outcome, work)


async def next_version_async(
    handle: AsyncHandle,
    consumer: str,
    aggregate: str | UUID,
    version: int,
    *,
    first_version: int = 1,
    clock: Clock = now_ms,
) -> Outcome:
    """`next_version` on an asynchronous connection or session."""
    target, name = checked_version(aggregate, version), checked_consumer(consumer)
    outcome, work = await within_async(
        handle,
        lambda connection: (claim_version(connection, name, target, first_version, clock()), work_on(connection)),
    )
    return _counted(consumer, outcome, work)


def _counted(consumer: str, outcome: Outcome, work: Work) -> Outcome:
    CLAIMS.add(consumer, outcome.value)
    if outcome:
        work.begin()
    return outcome


_FIRST: Final = insert_new(versions)
_NEXT: Final = (
    update(versions)
    .where(
        versions.c.consumer == bindparam("of_consumer"),
        versions.c.aggregate == bindparam("of_aggregate"),
        versions.c.version == bindparam("before"),
    )
    .values(version=bindparam("version"), claimed_at_ms=bindparam("claimed_at_ms"))
)
_LAST: Final = per_dialect(
    lambda dialect: dialect.current(
        select(versions.c.version).where(
            versions.c.consumer == bindparam("of_consumer"), versions.c.aggregate == bindparam("of_aggregate")
        )
    )
)


def claim_version(connection: Connection, consumer: str, target: Version, first_version: int, now_ms: int) -> Outcome:
    """Accept the version after the last one; for a new aggregate of this consumer, that is `first_version`. The
    statement itself compares."""
    whose = {"of_consumer": consumer, "of_aggregate": target.aggregate}
    if target.version == first_version:
        row = {"consumer": consumer, "claimed_at_ms": now_ms, **target._asdict()}
        if is_new(connection, _FIRST, row):
            return Outcome.ACCEPTED
    moved = connection.execute(
        _NEXT, {**whose, "before": target.version - 1, "version": target.version, "claimed_at_ms": now_ms}
    ).rowcount
    if moved:
        return Outcome.ACCEPTED
    last = connection.scalar(_LAST[dialect_of(connection).name], whose)
    return Outcome.DUPLICATE if last is not None and target.version <= last else Outcome.GAP
