"""Recorded steps: a finished step is not done again after a crash, in any process. `rules.py` has the rule.

A step's result commits before the next step begins, together with the changes on its connection. A call to another
system gets a key derived from the request or workflow and the step: if the process dies between the call and the
commit, the next attempt makes the call under the same key. A holder that has lost the lease writes nothing.
"""

import json
import logging
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Final, Self

from sqlalchemy import Connection

from semel.database.effects import Work, driver_of
from semel.database.keys import derived_key
from semel.database.procedures import Procedure, drive, drive_async, is_in_loop
from semel.database.writers import file_of, note_writer
from semel.steps.records import Name, begin_step, finish_step, noted_step
from semel.steps.rules import check_name, check_order, standing
from semel.steps.transactions import LoopTransaction, NewTransaction, Transaction, briefly, confirmed

logger = logging.getLogger("semel.steps")

# Two heartbeats may fail before the lease runs out.
BEATS_IN_LEASE: Final = 3
# A beat that is due while a step has a transaction open comes after it: this often in the time of a beat it looks.
LOOKS_IN_BEAT: Final = 10


class Recording(ABC):
    """What has steps, for its holder: one request with a key, or one run of a workflow. `new` makes the transactions of
    its steps, and `new_beat` those of its heartbeat. `confirms` says that one may end without a commit and without an
    error."""

    def __init__(
        self, name: Name, title: str, lease_ms: int, new: NewTransaction, new_beat: NewTransaction, *, confirms: bool
    ) -> None:
        self.name = name
        self.title = title
        self.lease_ms = lease_ms
        self.new = new
        self._new_beat = new_beat
        self.confirms = confirms
        self.inside: str | None = None
        # The steps that this attempt is done with. One that has failed is not, and may be tried again.
        self.done: set[str] = set()
        # Whether a step has its transaction open. Then nobody else can take over, whatever the lease says.
        self.is_locked = False

    @abstractmethod
    def hold(self, connection: Connection) -> None:
        """Check that this holder still is one, and prolong its lease; raise Fenced if not."""

    @abstractmethod
    def count_doubt(self, step: str) -> None:
        """A step is executed although an earlier attempt may have done it."""

    def look(self, connection: Connection, step: str) -> str | None:
        """The row of a step that is to begin. A late holder fails here, before it calls another system."""
        self.hold(connection)
        return noted_step(connection, self.name, step)

    def derived_key(self, step: str) -> str:
        """The key for the call that this step makes: the same in every attempt, and different for everybody else."""
        return derived_key(self.name.scope, self.name.key, step)

    @property
    def beat_seconds(self) -> float:
        return self.lease_ms / BEATS_IN_LEASE / 1000

    def beat(self) -> Procedure[float]:
        """Hold on for another lease, and return the seconds to the next beat. While a step has a transaction open,
        nobody else can take over, and a beat would wait for it in a transaction of its own."""

        def hold(connection: Connection) -> bool:
            # The step may have begun while this transaction waited for its turn.
            if self.is_locked:
                return False
            self.hold(connection)
            return True

        has_held = not self.is_locked and (yield from briefly(self._new_beat, hold))
        return self.beat_seconds if has_held else self.beat_seconds / LOOKS_IN_BEAT


class AnyStep:
    """`first` says whether the step has to be done; `result` is its result, as a value that JSON can hold.
    `is_in_doubt` says that the step has to be done although an earlier attempt, without a key, may have done it
    already."""

    def __init__(self, recording: Recording, name: str, unkeyed: bool) -> None:
        check_name(name)
        self._recording = recording
        self._name = name
        self._result: Any = None
        self._transaction: Transaction | LoopTransaction = recording.new()
        self._is_open = False
        self._is_handed_over = False
        self._is_worked_on = False
        self._work = Work(lambda: self._is_worked_on)
        self._unkeyed = unkeyed
        self.first = False
        self.is_in_doubt = False
        self.derived_key = recording.derived_key(name)

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
            noted = self._recording.look(connection, self._name)
            if self._unkeyed and noted is None:
                begin_step(connection, self._recording.name, self._name)
            return noted

        check_order(self._name, self._recording.inside, self._recording.done)
        try:
            noted: str | None = yield self._transaction.start(look)
            yield self._transaction.commit()
        finally:
            yield self._transaction.roll_back()
        self.first, self.is_in_doubt, self._result = standing(noted)
        if not self.first:
            self._recording.done.add(self._name)
        self._recording.inside = self._name
        # What happens in a step that may be made twice may be written twice.
        if self.first and not self._unkeyed:
            self._is_worked_on = True
            self._work.begin()
        if self.is_in_doubt:
            self._recording.count_doubt(self._name)
            logger.warning(
                "step %r of %s began before, and its call took no key: what it calls may now happen a second time",
                self._name,
                self._recording.title,
            )

    def _open(self) -> Procedure[Any]:
        self._check_first()
        if not self._is_open:
            try:
                yield self._transaction.start(self._hold_open)
            except BaseException:
                self._recording.is_locked = False
                raise
            self._is_open = True
            self._is_handed_over = True
            note_writer(self._work.file, lambda: self._is_handed_over and self._transaction.is_open)
        # After the end of the step this is refused.
        return self._transaction.handle

    def _hold_open(self, connection: Connection) -> None:
        self._work.driver, self._work.file = driver_of(connection), file_of(connection)
        self._recording.is_locked = True
        self._recording.hold(connection)

    def _leave(self, error: BaseException | None) -> Procedure[None]:
        self._is_worked_on = False
        self._work.end()
        try:
            if error is None and self.first:
                self._work.check()
                yield from self._finish()
        finally:
            self._recording.inside = None
            try:
                yield self._transaction.roll_back()
            finally:
                self._recording.is_locked = False

    def _finish(self) -> Procedure[None]:
        recording, result = self._recording, json.dumps(self._result)
        yield from self._open()
        self._is_handed_over = False

        def finish(connection: Connection) -> None:
            # Again, because a lease that began with the transaction may have run out meanwhile.
            recording.hold(connection)
            finish_step(connection, recording.name, self._name, result)

        yield self._transaction.commit(finish)
        if recording.confirms:
            yield from confirmed(recording.title, self._transaction, self._is_finished)
        # As every later attempt gets it: a tuple is a list there.
        self._result = json.loads(result)
        recording.done.add(self._name)

    def _is_finished(self, connection: Connection) -> bool:
        return bool(noted_step(connection, self._recording.name, self._name))


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
