"""Who holds a key from its claim to its answer: one transaction, or a lease while outside systems are called.

Written once for coroutines and for threads: each step is yielded and done by whoever drives it, `drive` for what is
done when it is yielded, `drive_async` for what has to be awaited. A key that was claimed is let go of in the end.
"""

from collections.abc import Callable, Generator
from typing import Any, Protocol, TypeAlias, TypeVar

from sqlalchemy import Connection

from semel.http.answers import Answer
from semel.http.claims import Accepted, Differs, Duplicate, Name, NotCommitted, Outcome, Running, claim, is_kept, keep
from semel.http.fates import Fate
from semel.http.idempotency import Idempotency
from semel.http.problems import ANSWER_NOT_KEPT, DATABASE_BUSY, PAYLOAD_DIFFERS, STILL_RUNNING, Refused
from semel.http.transactions import LoopTransaction, Transaction, is_busy

T = TypeVar("T")

# What yields each of its steps, and is sent what came of it.
Doing: TypeAlias = Generator[Any, Any, T]
NewTransaction: TypeAlias = Callable[[], Transaction | LoopTransaction]


def drive(doing: Doing[T]) -> T:
    """Each step is done by the time it is yielded."""
    try:
        done = next(doing)
        while True:
            done = doing.send(done)
    except StopIteration as end:
        result: T = end.value
        return result


async def drive_async(doing: Doing[T]) -> T:
    """Each step is a coroutine."""
    try:
        step = next(doing)
        while True:
            try:
                done = await step
            except BaseException as error:
                step = doing.throw(error)
            else:
                step = doing.send(done)
    except StopIteration as end:
        result: T = end.value
        return result


class Holder(Protocol):
    """Who holds one key."""

    @property
    def connection(self) -> Any: ...
    @property
    def steps(self) -> Any: ...
    def claim(self) -> Doing[Outcome]: ...
    def settle(self, fate: Fate, status: int, answer: Answer | None) -> Doing[Outcome | None]:
        """End it with an answer, None where that cannot be kept; an outcome where the key was not ours at the end."""

    def let_go(self) -> Doing[None]:
        """Leave the key to the next try, where it was not settled."""


class InTransaction:
    """The key is held by the transaction in which the handler works: nobody sees it before it has its answer."""

    def __init__(self, idempotency: Idempotency, name: Name, fingerprint: str, new: NewTransaction) -> None:
        self._idempotency = idempotency
        self._name = name
        self._fingerprint = fingerprint
        self._transaction = new()
        self._token = 0

    @property
    def connection(self) -> Any:
        return self._transaction.given

    @property
    def steps(self) -> Any:
        raise RuntimeError("this request has no steps, because no pattern of `steps=(...)` matches its path")

    def claim(self) -> Doing[Outcome]:
        self._idempotency.enter(self._name, self)
        outcome: Outcome = yield self._transaction.start(
            lambda connection: claim(connection, self._name, self._fingerprint, self._idempotency.times(connection))
        )
        if isinstance(outcome, Accepted):
            self._token = outcome.token
        else:
            yield from self.let_go()
        return outcome

    def settle(self, fate: Fate, status: int, answer: Answer | None) -> Doing[Outcome | None]:
        if fate is Fate.FORGOTTEN:
            yield from self.let_go()
            return None
        if fate is Fate.UNDONE:
            # The claim goes with the effect, so somebody may be quicker now: then his answer counts, ours did nothing.
            yield self._transaction.roll_back()
            outcome = yield from self.claim()
            if not isinstance(outcome, Accepted):
                return outcome
        yield self._transaction.commit(lambda connection: keep(connection, self._name, self._token, answer, status))
        if self._idempotency.confirms:
            yield from confirmed(
                self._name, self._transaction, lambda connection: is_kept(connection, self._name, self._token)
            )
        self._idempotency.leave(self._name, self)
        return None

    def let_go(self) -> Doing[None]:
        try:
            yield self._transaction.roll_back()
        finally:
            self._idempotency.leave(self._name, self)


def confirmed(
    name: Name, transaction: Transaction | LoopTransaction, is_there: Callable[[Connection], bool]
) -> Doing[None]:
    """Look, in another transaction, whether the one that has ended was committed."""
    try:
        was_committed = yield transaction.start(is_there)
    finally:
        yield transaction.roll_back()
    if not was_committed:
        raise NotCommitted(name)


def claimed(holder: Holder) -> Doing[Answer | None]:
    """Claim the key; None where the request is to be executed, else what the client gets."""
    try:
        outcome = yield from holder.claim()
    except Refused as refused:
        return refused.answer
    except BaseException as error:
        yield from holder.let_go()
        if is_busy(error):
            return Refused(DATABASE_BUSY, "Others have been writing for too long; ask again.", 1).answer
        raise
    return None if isinstance(outcome, Accepted) else answer_to(outcome)


def answer_to(outcome: Outcome) -> Answer:
    """What a client gets whose request is not executed."""
    match outcome:
        case Duplicate(answer) if answer is not None:
            return answer.replayed
        case Duplicate():
            return Refused(ANSWER_NOT_KEPT, "Its answer was a stream, or too large to be kept.").answer
        case Running(seconds):
            return Refused(STILL_RUNNING, "It runs in this moment; ask again for its answer.", seconds).answer
        case Differs():
            return Refused(PAYLOAD_DIFFERS, "Its method, path, query or body differ; take a new key.").answer
        case Accepted():
            raise AssertionError("a request that is accepted is executed")
