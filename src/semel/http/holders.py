"""Holds a key from its claim to its answer: with a transaction, or with a lease while the handler calls other systems.

The code is written once for coroutines and threads, as procedures. A claimed key is always released in the end.

A lease is for handlers that call other systems: no transaction is open meanwhile. The lease is committed before the
handler begins, and a heartbeat prolongs it, in a task or a thread that always ends with the handler. A request that
comes after the lease ran out takes the key over with a higher token. Every write of the holder checks its token first,
so a late holder writes nothing.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import InvalidRequestError

from semel.database.effects import Work, driver_of
from semel.database.errors import is_conflict, is_passing
from semel.database.procedures import Procedure
from semel.database.refusals import NotInTransaction, TransactionBroken, WaitsForItself, WrittenElsewhere, told_of_end
from semel.database.writers import file_of, writing
from semel.http.answers import (
    ANSWER_NOT_KEPT,
    DATABASE_BUSY,
    PAYLOAD_DIFFERS,
    STILL_RUNNING,
    Answer,
    Fate,
    RequestRefused,
)
from semel.http.claims import (
    RETRY_AFTER_SECONDS,
    Accepted,
    Differs,
    Duplicate,
    KeyState,
    Running,
    claim,
    is_kept,
    keep,
    release,
    title_of,
)
from semel.http.counters import Tally
from semel.http.idempotency import Idempotency
from semel.http.places import Request, note_place
from semel.http.steps import AsyncKey, Key, steps_of
from semel.retries.backoff import is_no_answer
from semel.steps.heartbeat import Lease
from semel.steps.records import Fenced, Name
from semel.steps.transactions import NewTransaction, NotCommitted, briefly, confirmed

# -- a transaction -----------------------------------------------------------------------------------------------------


T = TypeVar("T")


class Holder(Protocol):
    """Holds one key."""

    idempotency: Idempotency
    request: Request
    tally: Tally

    @property
    def lease(self) -> Lease | None:
        """What a heartbeat has to prolong; None if a transaction holds the key."""

    @property
    def was_asked(self) -> bool:
        """Whether the handler has asked for what commits with the key."""

    @property
    def connection(self) -> Any: ...
    @property
    def steps(self) -> Any: ...
    def executing(self) -> AbstractContextManager[None]:
        """The handler runs in this context."""

    def written_elsewhere(self, fate: Fate) -> WrittenElsewhere | None:
        """What the handler has written beside the key, or would still write there after an answer with this fate."""

    def ended_early(self, error: Exception | None = None) -> TransactionBroken | None:
        """Why the handler failed, if it has ended its transaction and gone on; `error` is what it raised."""

    def claim(self) -> Procedure[KeyState]: ...
    def settle(self, fate: Fate, status: int, answer: Answer | None) -> Procedure[KeyState | None]:
        """End with an answer, or None if it cannot be kept. Returns the state of the key if this holder has lost it."""

    def release(self) -> Procedure[None]:
        """Release the key for the next attempt, if it was not settled."""


class InTransaction:
    """The transaction in which the handler works holds the key: no other request sees the row before it has its
    answer."""

    def __init__(
        self, idempotency: Idempotency, request: Request, name: Name, fingerprint: str, new: NewTransaction
    ) -> None:
        self.idempotency = idempotency
        self.request = request
        self._name = name
        self._fingerprint = fingerprint
        self._transaction = new()
        self.tally = Tally()
        self._token = 0
        self._was_asked = False
        self._is_executing = False
        self._work = Work(lambda: self._is_executing and self._transaction.is_open)
        self._work.fail = self._tell_if_late

    def _tell_if_late(self, error: WrittenElsewhere) -> None:
        if not self._is_executing and self._work.refused is None:
            self.idempotency.tell_of_late_effect(self.request, error)

    @property
    def lease(self) -> None:
        return None

    @property
    def was_asked(self) -> bool:
        return self._was_asked or self.idempotency.is_used_by_others(self._transaction)

    @property
    def connection(self) -> Any:
        self._was_asked = True
        return self._transaction.handle

    @property
    def steps(self) -> Any:
        raise RuntimeError("this request has no steps, because no pattern of `steps=(...)` matches its path")

    def claim(self) -> Procedure[KeyState]:
        self.idempotency.enter(self._name, self)
        outcome: KeyState = yield self._transaction.start(self._claim)
        if isinstance(outcome, Accepted):
            self._token = outcome.token
        else:
            yield from self.release()
        return outcome

    def _claim(self, connection: Connection) -> KeyState:
        self._work.driver, self._work.file = driver_of(connection), file_of(connection)
        return claim(connection, self._name, self._fingerprint, self.idempotency.term)

    @contextlib.contextmanager
    def executing(self) -> Iterator[None]:
        self._is_executing = True
        self._work.begin()
        try:
            with told_of_end(lambda: self._transaction.is_over), writing(self._work.file, self._work.is_open):
                yield
        finally:
            self._work.end()

    def written_elsewhere(self, fate: Fate) -> WrittenElsewhere | None:
        if fate is not Fate.FORGOTTEN:
            with contextlib.suppress(WrittenElsewhere):
                self._work.check()
        return self._work.refused

    def ended_early(self, error: Exception | None = None) -> TransactionBroken | None:
        refusal = self._transaction.refusal
        if refusal is None and isinstance(error, InvalidRequestError) and self._transaction.is_over:
            # In its own words SQLAlchemy refuses what comes after a rollback.
            return TransactionBroken()
        return error if refusal is None and isinstance(error, TransactionBroken) else refusal

    def settle(self, fate: Fate, status: int, answer: Answer | None) -> Procedure[KeyState | None]:
        # What is begun from here on, such as a look at what was committed, is of this holder.
        self._is_executing = False
        if fate is Fate.FORGOTTEN:
            yield from self.release()
            return None
        if fate is Fate.UNDONE:
            # The claim is rolled back with the effect, so another request may claim the key first now. Then its answer
            # counts, and this request has done nothing.
            yield self._transaction.roll_back()
            outcome = yield from self._claim_again()
            if not isinstance(outcome, Accepted):
                return outcome
        term = self.idempotency.term
        yield self._transaction.commit(
            lambda connection: keep(connection, self._name, self._token, answer, status, term)
        )
        if self.idempotency.confirms:
            yield from confirmed(
                title_of(self._name),
                self._transaction,
                lambda connection: is_kept(connection, self._name, self._token),
            )
        self.idempotency.leave(self._name, self)
        return None

    def _claim_again(self) -> Procedure[KeyState]:
        try:
            return (yield from self.claim())
        except Exception as error:
            if not is_conflict(error):
                raise
        yield from self.release()
        return Running(RETRY_AFTER_SECONDS)

    def release(self) -> Procedure[None]:
        self._is_executing = False
        try:
            yield self._transaction.roll_back()
        finally:
            self.idempotency.leave(self._name, self)


def claimed(holder: Holder) -> Procedure[Answer | None]:
    """Claim the key. None if the request has to be executed; otherwise the answer for the client."""
    try:
        outcome = yield from holder.claim()
    except RequestRefused as refused:
        holder.tally.count("conflict")
        return refused.answer
    except BaseException as error:
        yield from holder.release()
        if is_conflict(error):
            return RequestRefused(DATABASE_BUSY, "Other transactions were in its way; try again.", 1).answer
        # Its handler has not begun, so nothing was done under the claim.
        if isinstance(error, Exception) and (is_passing(error) or is_no_answer(error)):
            return holder.idempotency.tell_of_absence(holder.request, error)
        raise
    return None if isinstance(outcome, Accepted) else _counted(holder, outcome)


def settled(holder: Holder, fate: Fate, status: int, answer: Answer | None) -> Procedure[Answer | None]:
    """Settle the request. None if its answer may be sent; otherwise the answer that the client gets instead."""
    early = holder.ended_early()
    beside = holder.written_elsewhere(fate) or (early if status >= 500 else None)
    if beside is not None:
        return (yield from refusal(holder, beside))
    if fate is Fate.KEPT and not holder.was_asked:
        try:
            holder.idempotency.tell_of_unasked(holder.request, status)
        except RequestRefused as refused:
            yield from holder.release()
            holder.tally.count("forgotten")
            return refused.answer
    try:
        outcome = yield from holder.settle(fate, status, answer)
    except Exception as error:
        # SQLite's driver knows that nothing is open any more; other databases say so at the commit.
        over = TransactionBroken() if isinstance(error, NotInTransaction) else error
        ended = early or holder.ended_early(over) or (over if isinstance(over, NotCommitted) else None)
        if ended is None:
            raise
        return (yield from refusal(holder, ended))
    if outcome is None:
        holder.tally.count("forgotten" if fate is Fate.FORGOTTEN else "accepted")
        return None
    return _counted(holder, outcome)


def refusable(holder: Holder, error: Exception) -> Exception | None:
    """Why the client of a handler that has raised this gets a refusal; None if it gets what its server makes of it."""
    beside = holder.written_elsewhere(Fate.FORGOTTEN) or holder.ended_early(error)
    return error if beside is None and isinstance(error, WaitsForItself) else beside


def refusal(holder: Holder, error: Exception) -> Procedure[Answer]:
    """Release the key of a handler that has written beside it, or has ended its transaction. Returns the answer for its
    client."""
    yield from holder.release()
    holder.tally.count("forgotten")
    return holder.idempotency.tell_of_refusal(holder.request, error)


@contextlib.contextmanager
def tallied(holder: Holder) -> Iterator[None]:
    """Count a request that ends without being settled: its handler raises, or does not answer."""
    try:
        yield
    except BaseException as error:
        holder.tally.count("fenced" if isinstance(error, Fenced) else "forgotten")
        note_place(error, holder.request)
        raise
    holder.tally.count("forgotten")


def _counted(holder: Holder, outcome: KeyState) -> Answer:
    kinds = {Running: "conflict", Differs: "mismatch"}
    holder.tally.count(kinds.get(type(outcome), "replayed"))
    return answer_to(outcome)


_ENDED_BY_HANDLER: Final = (
    "Its handler has committed the transaction of the key itself, before its answer was known, so nobody can tell how "
    "much was done: look for its effect."
)


def answer_to(outcome: KeyState) -> Answer:
    """The answer to a request that is not executed."""
    match outcome:
        case Duplicate(answer, ttl_ms) if answer is not None:
            return answer.replayed(ttl_ms)
        case Duplicate(is_settled=False):
            return RequestRefused(ANSWER_NOT_KEPT, _ENDED_BY_HANDLER).answer
        case Duplicate():
            return RequestRefused(ANSWER_NOT_KEPT, "Its answer was a stream, or too large to be kept.").answer
        case Running(seconds):
            return RequestRefused(STILL_RUNNING, "It is still running; ask again for its answer.", seconds).answer
        case Differs():
            return RequestRefused(PAYLOAD_DIFFERS, "Its method, path, query or body differs; use a new key.").answer
        case Accepted():
            raise AssertionError("a request that is accepted is executed")


# -- a lease -----------------------------------------------------------------------------------------------------------


class Leased:
    """A row holds the key, and says until when."""

    def __init__(
        self, idempotency: Idempotency, request: Request, name: Name, fingerprint: str, new: NewTransaction
    ) -> None:
        self.idempotency = idempotency
        self.request = request
        self._name = name
        self._fingerprint = fingerprint
        self._new = new
        self.tally = Tally()
        self._token = 0
        self._steps: Key | AsyncKey
        self.was_asked = False

    @property
    def lease(self) -> Lease:
        return self._steps

    @property
    def connection(self) -> Any:
        raise RuntimeError(
            "a request with steps has no transaction of its own: take `step.connection()` inside of a step, whose "
            "result commits with what is done on it"
        )

    @property
    def steps(self) -> Key | AsyncKey:
        self.was_asked = True
        return self._steps

    def claim(self) -> Procedure[KeyState]:
        outcome: KeyState = yield from self._briefly(self._claim)
        if isinstance(outcome, Accepted):
            self._steps = steps_of(self.idempotency, self._name, self._token, self.tally, self._new)
        return outcome

    def _claim(self, connection: Connection) -> KeyState:
        outcome = claim(connection, self._name, self._fingerprint, self.idempotency.lease_term)
        if isinstance(outcome, Accepted):
            # Set before the commit, so that a task that is cancelled during the commit also releases the lease.
            self._token = outcome.token
        return outcome

    def settle(self, fate: Fate, status: int, answer: Answer | None) -> Procedure[KeyState | None]:
        """Store the answer. What the steps have done stays, so the fate only decides whether the answer is kept."""
        if fate is Fate.FORGOTTEN:
            yield from self.release()
            return None
        term = self.idempotency.lease_term
        try:
            yield from self._briefly(lambda connection: keep(connection, self._name, self._token, answer, status, term))
        except Fenced:
            self.tally.count("fenced")
            return Running(RETRY_AFTER_SECONDS)
        self._token = 0
        return None

    def release(self) -> Procedure[None]:
        if self._token:
            yield from self._briefly(lambda connection: release(connection, self._name, self._token))
            # Only now, because a task that is cancelled during the release has to repeat it.
            self._token = 0

    def written_elsewhere(self, fate: Fate) -> None:
        """Each step looks for itself."""

    def ended_early(self, error: Exception | None = None) -> TransactionBroken | None:
        return error if isinstance(error, TransactionBroken) else None

    def executing(self) -> AbstractContextManager[None]:
        """No transaction is open but those of the steps, which say so themselves."""
        return contextlib.nullcontext()

    def _briefly(self, work: Callable[[Connection], T]) -> Procedure[T]:
        return briefly(self._new, work)


def holder_of(idempotency: Idempotency, request: Request, name: Name, fingerprint: str, new: NewTransaction) -> Holder:
    """A lease if the path is configured to have steps, otherwise a transaction."""
    kind = Leased if idempotency.has_steps(request.path) else InTransaction
    return kind(idempotency, request, name, fingerprint, new)
