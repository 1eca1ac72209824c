"""What an application calls where it has a connection and an event: claims in its own transaction, sync and async.

Nothing here commits, rolls back or begins. An error that leaves a block of `once` has to end the transaction, as it
does in `engine.begin()`: otherwise the claim would commit without its effect.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from uuid import UUID

from semel.database import AsyncGiven, Given, within, within_async
from semel.database.clock import Clock, now_ms
from semel.inbox import claims
from semel.inbox.identities import checked_consumer, checked_id, checked_version
from semel.inbox.outcomes import Outcome


@contextmanager
def once(
    given: Given,
    *,
    consumer: str,
    message_id: str | UUID,
    event_time_ms: int | None = None,
    clock: Clock = now_ms,
) -> Iterator[Outcome]:
    """Claim the event for this consumer; the block does the effect if the outcome is true.

    `event_time_ms` is when the event happened, where its id does not say so and the same time comes with each delivery.
    """
    asked = claims.claim_of(checked_consumer(consumer), checked_id(message_id), event_time_ms, clock())
    with within(given) as connection:
        outcome = claims.claim(connection, asked)
    yield outcome


@asynccontextmanager
async def once_async(
    given: AsyncGiven,
    *,
    consumer: str,
    message_id: str | UUID,
    event_time_ms: int | None = None,
    clock: Clock = now_ms,
) -> AsyncIterator[Outcome]:
    """`once` on an asynchronous connection or session."""
    asked = claims.claim_of(checked_consumer(consumer), checked_id(message_id), event_time_ms, clock())
    yield await within_async(given, lambda connection: claims.claim(connection, asked))


def claim_many(given: Given, consumer: str, ids: Iterable[str | UUID], *, clock: Clock = now_ms) -> set[str]:
    """Claim a batch in one statement; the answer are those ids that are due, as texts.

    An id that is in the batch twice is in the answer once: let the effects follow the answer and not the batch.
    """
    wanted = [checked_id(one) for one in ids]
    with within(given) as connection:
        return claims.claim_many(connection, checked_consumer(consumer), wanted, clock())


async def claim_many_async(
    given: AsyncGiven, consumer: str, ids: Iterable[str | UUID], *, clock: Clock = now_ms
) -> set[str]:
    """`claim_many` on an asynchronous connection or session."""
    wanted, name = [checked_id(one) for one in ids], checked_consumer(consumer)
    return await within_async(given, lambda connection: claims.claim_many(connection, name, wanted, clock()))


def next_version(
    given: Given,
    consumer: str,
    aggregate: str | UUID,
    version: int,
    *,
    first_version: int = 1,
    clock: Clock = now_ms,
) -> Outcome:
    """Claim the state number `version` of an aggregate: accepted if it follows the last one, else duplicate or gap."""
    asked = checked_version(aggregate, version)
    with within(given) as connection:
        return claims.claim_version(connection, checked_consumer(consumer), asked, first_version, clock())


async def next_version_async(
    given: AsyncGiven,
    consumer: str,
    aggregate: str | UUID,
    version: int,
    *,
    first_version: int = 1,
    clock: Clock = now_ms,
) -> Outcome:
    """`next_version` on an asynchronous connection or session."""
    asked, name = checked_version(aggregate, version), checked_consumer(consumer)
    return await within_async(
        given, lambda connection: claims.claim_version(connection, name, asked, first_version, clock())
    )
