"""A key that is held by a lease, for handlers that call outside systems: no transaction is open while they do.

The lease is committed before the handler begins, a heartbeat prolongs it, and whoever comes after it ran out takes the
key over with a higher token. Every write of the holder proves its token first, so the late one writes nothing.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from sqlalchemy import Connection

from semel.http.answers import Answer
from semel.http.claims import (
    RETRY_AFTER_SECONDS,
    Accepted,
    Fenced,
    Name,
    Outcome,
    Running,
    claim,
    hold,
    keep,
    let_go,
)
from semel.http.fates import Fate
from semel.http.holding import Doing, Holder, InTransaction, NewTransaction
from semel.http.idempotency import Idempotency
from semel.http.steps import AsyncKey, Key

T = TypeVar("T")

# Two may fail before the lease runs out.
BEATS_IN_LEASE: Final = 3


class Leased:
    """The key is held by a row that says until when."""

    def __init__(self, idempotency: Idempotency, name: Name, fingerprint: str, new: NewTransaction) -> None:
        self._idempotency = idempotency
        self._name = name
        self._fingerprint = fingerprint
        self._new = new
        self._token = 0
        self._steps: Key | AsyncKey

    @property
    def connection(self) -> Any:
        raise RuntimeError(
            "a request with steps has no transaction of its own: take `step.connection()` inside of a step, whose "
            "result commits with what is done on it"
        )

    @property
    def steps(self) -> Key | AsyncKey:
        return self._steps

    @property
    def beat_seconds(self) -> float:
        return self._idempotency.lease_ms / BEATS_IN_LEASE / 1000

    def claim(self) -> Doing[Outcome]:
        outcome: Outcome = yield from self._briefly(self._claim)
        if isinstance(outcome, Accepted):
            kind = AsyncKey if self._idempotency.is_asynchronous else Key
            self._steps = kind(self._idempotency, self._name, self._token)
        return outcome

    def _claim(self, connection: Connection) -> Outcome:
        outcome = claim(connection, self._name, self._fingerprint, self._idempotency.lease_times(connection))
        if isinstance(outcome, Accepted):
            # Before the commit: who is cancelled in that has a lease to let go of, and hears nothing of it.
            self._token = outcome.token
        return outcome

    def settle(self, fate: Fate, status: int, answer: Answer | None) -> Doing[Outcome | None]:
        """Store the answer; what a step has done is done, so a fate can only say whether there is one."""
        if fate is Fate.FORGOTTEN:
            yield from self.let_go()
            return None
        try:
            yield from self._briefly(lambda connection: keep(connection, self._name, self._token, answer, status))
        except Fenced:
            return Running(RETRY_AFTER_SECONDS)
        self._token = 0
        return None

    def let_go(self) -> Doing[None]:
        if self._token:
            yield from self._briefly(lambda connection: let_go(connection, self._name, self._token))
            # Not before: who is cancelled in it is to do it again.
            self._token = 0

    def beat(self) -> Doing[None]:
        """Hold the key for another lease."""
        yield from self._briefly(
            lambda connection: hold(
                connection, self._name, self._token, self._idempotency.lease_times(connection).lease_until_ms
            )
        )

    def _briefly(self, work: Callable[[Connection], T]) -> Doing[T]:
        """In a transaction of its own."""
        transaction = self._new()
        try:
            done: T = yield transaction.start(work)
            yield transaction.commit()
        finally:
            yield transaction.roll_back()
        return done


def holder_of(idempotency: Idempotency, path: str, name: Name, fingerprint: str, new: NewTransaction) -> Holder:
    """A lease where the path is configured to have steps, else a transaction."""
    kind = Leased if idempotency.has_steps(path) else InTransaction
    return kind(idempotency, name, fingerprint, new)
