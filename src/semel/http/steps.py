"""Recovery points: a step of a handler that is finished is not done again, whichever process goes on after a crash.

A step's result commits before the next step begins, and with whatever was done on its connection. What is called
outside gets a key derived from caller, key and step: should we die between the call and our commit, the call is made
again under the same key. A holder that has lost the lease writes nothing.
"""

import asyncio
import json
import logging
from types import TracebackType
from typing import Any, Final, Self

from sqlalchemy import Connection

from semel.database.keys import derived_key
from semel.database.procedures import Procedure, drive, drive_async
from semel.http.claims import Name, begin_step, finish_step, finished_step, hold
from semel.http.counters import REPEATED
from semel.http.idempotency import Idempotency
from semel.http.transactions import LoopTransaction, Transaction, confirmed

logger = logging.getLogger("semel.http")

# Names are part of a row's key, and of the program's text.
STEP_CHARACTERS_MAX: Final = 255


class KeySteps:
    """The key of one request."""

    def __init__(self, idempotency: Idempotency, name: Name, token: int) -> None:
        self.idempotency = idempotency
        self.name = name
        self.token = token
        self.inside: str | None = None

    def derived_key(self, step: str) -> str:
        """The key for the call that this step makes: the same in every try, and in no other request."""
        return derived_key(self.name.scope, self.name.key, step)

    def hold(self, connection: Connection) -> None:
        """Prove the token, which also prolongs the lease."""
        hold(connection, self.name, self.token, self.idempotency.lease_times(connection).lease_until_ms)


class Key(KeySteps):
    """In a synchronous handler: `with key.step("charge") as step:`."""

    def step(self, name: str, *, unkeyed: bool = False) -> "Step":
        """`unkeyed` says that its call takes no key, and so may be made twice: then this is noted and told."""
        return Step(self, name, self.idempotency.transaction(), unkeyed)


class AsyncKey(KeySteps):
    """On an asynchronous engine: `async with key.step("charge") as step:`."""

    def step(self, name: str, *, unkeyed: bool = False) -> "AsyncStep":
        """`unkeyed` says that its call takes no key, and so may be made twice: then this is noted and told."""
        return AsyncStep(self, name, self.idempotency.loop_transaction(), unkeyed)


class AnyStep:
    """`first` says whether it has to be done; `result` is what it came to, as JSON can say it. `is_in_doubt` says of an
    unkeyed step that it is to be done, and that an earlier attempt may have done it already."""

    def __init__(self, key: KeySteps, name: str, transaction: Transaction | LoopTransaction, unkeyed: bool) -> None:
        if not 1 <= len(name) <= STEP_CHARACTERS_MAX:
            raise ValueError(f"the name of a step has 1 to {STEP_CHARACTERS_MAX} characters")
        self._key = key
        self._name = name
        self._result: Any = None
        self._transaction = transaction
        self._is_open = False
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
            # A holder that is late learns it here, before it calls another system.
            self._key.hold(connection)
            result = finished_step(connection, self._key.name, self._name)
            if self._unkeyed and result is None:
                self.is_in_doubt = not begin_step(connection, self._key.name, self._name)
            return result

        if self._key.inside is not None:
            raise RuntimeError(f"step {self._name!r} begins inside of step {self._key.inside!r}: end that one first")
        try:
            result_json: str | None = yield self._transaction.start(look)
            yield self._transaction.commit()
        finally:
            yield self._transaction.roll_back()
        self.first = result_json is None
        self._result = None if result_json is None else json.loads(result_json)
        self._key.inside = self._name
        if self.is_in_doubt:
            REPEATED.add(self._name)
            logger.warning(
                "step %r of key %r takes no key and began before: what it calls may now happen a second time",
                self._name,
                self._key.name.key,
            )

    def _open(self) -> Procedure[Any]:
        self._check_first()
        if not self._is_open:
            yield self._transaction.start(self._key.hold)
            self._is_open = True
        return self._transaction.handle

    def _leave(self, error: BaseException | None) -> Procedure[None]:
        try:
            if error is None and self.first:
                yield from self._finish()
        finally:
            self._key.inside = None
            yield self._transaction.roll_back()

    def _finish(self) -> Procedure[None]:
        result = json.dumps(self._result)
        yield from self._open()

        def finish(connection: Connection) -> None:
            # Again, since a lease that began with the transaction may be over when it ends.
            self._key.hold(connection)
            finish_step(connection, self._key.name, self._name, result, has_begun=self._unkeyed)

        yield self._transaction.commit(finish)
        if self._key.idempotency.confirms:
            yield from confirmed(self._key.name, self._transaction, self._is_finished)

    def _is_finished(self, connection: Connection) -> bool:
        return finished_step(connection, self._key.name, self._name) is not None


class Step(AnyStep):
    """A step in a synchronous handler."""

    def connection(self) -> Any:
        """What is done on it commits with this step's result."""
        return drive(self._open())

    def __enter__(self) -> Self:
        if _is_in_loop():
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
        """What is done on it commits with this step's result."""
        return await drive_async(self._open())

    async def __aenter__(self) -> Self:
        await drive_async(self._enter())
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await drive_async(self._leave(error))


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
