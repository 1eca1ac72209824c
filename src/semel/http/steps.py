"""Recovery points: a finished step of a handler is not done again after a crash, in any process.

A step's result commits before the next step begins, together with the changes on its connection. A call to another
system gets a key derived from caller, key and step: if the process dies between the call and the commit, the next
attempt makes the call under the same key. A holder that has lost the lease writes nothing.
"""

import json
import logging
from types import TracebackType
from typing import Any, Final, Self

from sqlalchemy import Connection

from semel.database.effects import Work, driver_of
from semel.database.keys import derived_key
from semel.database.procedures import Procedure, drive, drive_async, is_in_loop
from semel.database.writers import file_of, note_writer
from semel.http.claims import STEP_BEGUN, Fenced, Name, begin_step, finish_step, finished_step, hold, noted_step
from semel.http.counters import REPEATED, Tally
from semel.http.idempotency import Idempotency
from semel.http.transactions import LoopTransaction, Transaction, confirmed

logger = logging.getLogger("semel.http")

# The limit for names, which are part of a row's primary key.
STEP_CHARACTERS_MAX: Final = 255


class KeySteps:
    """The key of one request, which has steps."""

    def __init__(self, idempotency: Idempotency, name: Name, token: int, tally: Tally) -> None:
        self.idempotency = idempotency
        self.name = name
        self.token = token
        self.tally = tally
        self.inside: str | None = None
        # The steps that this request is done with. One that has failed is not, and may be tried again.
        self.done: set[str] = set()
        # Whether a step has its transaction open. Then nobody else can take the key over, whatever the lease says.
        self.is_locked = False

    def derived_key(self, step: str) -> str:
        """The key for the call that this step makes: the same in every attempt, and different in every other
        request."""
        return derived_key(self.name.scope, self.name.key, step)

    def hold(self, connection: Connection) -> None:
        """Check that this holder still has the key, and prolong the lease. A late holder is counted here, because most
        frameworks turn the error into an answer."""
        try:
            hold(connection, self.name, self.token, self.idempotency.lease_term)
        except Fenced:
            self.tally.count("fenced")
            raise


class Key(KeySteps):
    """For a synchronous handler: `with key.step("charge") as step:`."""

    def step(self, name: str, *, unkeyed: bool = False) -> "Step":
        """`unkeyed` says that its call takes no key, and so may be made twice; then a warning and a counter say so."""
        return Step(self, name, self.idempotency.transaction(), unkeyed)


class AsyncKey(KeySteps):
    """For an asynchronous engine: `async with key.step("charge") as step:`."""

    def step(self, name: str, *, unkeyed: bool = False) -> "AsyncStep":
        """`unkeyed` says that its call takes no key, and so may be made twice; then a warning and a counter say so."""
        return AsyncStep(self, name, self.idempotency.loop_transaction(), unkeyed)


class AnyStep:
    """`first` says whether the step has to be done; `result` is its result, as a value that JSON can hold.
    `is_in_doubt` says that the step has to be done although an earlier attempt, without a key, may have done it
    already."""

    def __init__(self, key: KeySteps, name: str, transaction: Transaction | LoopTransaction, unkeyed: bool) -> None:
        if not 1 <= len(name) <= STEP_CHARACTERS_MAX:
            raise ValueError(f"the name of a step has 1 to {STEP_CHARACTERS_MAX} characters")
        self._key = key
        self._name = name
        self._result: Any = None
        self._transaction = transaction
        self._is_open = False
        self._is_handed_over = False
        self._is_worked_on = False
        self._work = Work(lambda: self._is_worked_on)
        self._unkeyed = unkeyed
        self.first = False
        self.is_in_doubt = False
        self.derived_key = key.derived_key(name)

    @property
    def result(self) -> Any:
        return self._result

    @result.setter
    def result(self, result: Any) -> None:
        self._check_first()
        self._result = result

    def _check_first(self) -> None:
        if not self.first:
            raise RuntimeError(
                f"step {self._name!r} was finished before: check `step.first`, and do the work only if it is true"
            )

    def _enter(self) -> Procedure[None]:
        def look(connection: Connection) -> str | None:
            # A late holder fails here, before it calls another system.
            self._key.hold(connection)
            noted = noted_step(connection, self._key.name, self._name)
            # Also if the call takes a key now: it took none then, so the other side would not know it again.
            self.is_in_doubt = noted == STEP_BEGUN
            if self._unkeyed and noted is None:
                begin_step(connection, self._key.name, self._name)
            return noted or None

        if self._key.inside is not None:
            raise RuntimeError(f"step {self._name!r} begins inside of step {self._key.inside!r}: end that one first")
        if self._name in self._key.done:
            raise RuntimeError(
                f"this request has a step {self._name!r} already, so a second one would get the result of the first "
                f"and never be done: give it a name of its own, such as {self._name + '-2'!r}; in a loop, put the id "
                "of the item into the name"
            )
        try:
            result_json: str | None = yield self._transaction.start(look)
            yield self._transaction.commit()
        finally:
            yield self._transaction.roll_back()
        self.first = result_json is None
        if not self.first:
            self._key.done.add(self._name)
        self._result = None if result_json is None else json.loads(result_json)
        self._key.inside = self._name
        # What happens in a step that may be made twice may be written twice.
        if self.first and not self._unkeyed:
            self._is_worked_on = True
            self._work.begin()
        if self.is_in_doubt:
            REPEATED.add(self._name)
            logger.warning(
                "step %r of key %r began before, and its call took no key: what it calls may now happen a second time",
                self._name,
                self._key.name.key,
            )

    def _open(self) -> Procedure[Any]:
        self._check_first()
        if not self._is_open:
            try:
                yield self._transaction.start(self._hold_open)
            except BaseException:
                self._key.is_locked = False
                raise
            self._is_open = True
            self._is_handed_over = True
            note_writer(self._work.file, lambda: self._is_handed_over and self._transaction.is_open)
        # After the end of the step this is refused.
        return self._transaction.handle

    def _hold_open(self, connection: Connection) -> None:
        self._work.driver, self._work.file = driver_of(connection), file_of(connection)
        self._key.is_locked = True
        self._key.hold(connection)

    def _leave(self, error: BaseException | None) -> Procedure[None]:
        self._is_worked_on = False
        self._work.end()
        try:
            if error is None and self.first:
                self._work.check()
                yield from self._finish()
        finally:
            self._key.inside = None
            try:
                yield self._transaction.roll_back()
            finally:
                self._key.is_locked = False

    def _finish(self) -> Procedure[None]:
        result = json.dumps(self._result)
        yield from self._open()
        self._is_handed_over = False

        def finish(connection: Connection) -> None:
            # Again, because a lease that began with the transaction may have run out meanwhile.
            self._key.hold(connection)
            finish_step(connection, self._key.name, self._name, result)

        yield self._transaction.commit(finish)
        if self._key.idempotency.confirms:
            yield from confirmed(self._key.name, self._transaction, self._is_finished)
        self._key.done.add(self._name)

    def _is_finished(self, connection: Connection) -> bool:
        return finished_step(connection, self._key.name, self._name) is not None


class Step(AnyStep):
    """A step in a synchronous handler."""

    def connection(self) -> Any:
        """A connection whose changes commit with this step's result."""
        return drive(self._open())

    def __enter__(self) -> Self:
        if is_in_loop():
            raise RuntimeError("this step would hold up all other requests: in a coroutine, configure an AsyncEngine")
        drive(self._enter())
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        drive(self._leave(error))


class AsyncStep(AnyStep):
    """A step in a coroutine."""

    async def connection(self) -> Any:
        """A connection whose changes commit with this step's result."""
        return await drive_async(self._open())

    async def __aenter__(self) -> Self:
        await drive_async(self._enter())
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await drive_async(self._leave(error))
