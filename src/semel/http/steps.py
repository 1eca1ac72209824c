"""The steps of a request with a key: `semel.steps` records them, and the key's lease says whose they are."""

from sqlalchemy import Connection

from semel.http.claims import hold, title_of
from semel.http.counters import REPEATED, Tally
from semel.http.idempotency import Idempotency
from semel.steps.recorded import AsyncStep, Recording, Step
from semel.steps.records import Fenced, Name
from semel.steps.transactions import NewTransaction


class KeySteps(Recording):
    """The key of one request, which has steps."""

    def __init__(
        self, idempotency: Idempotency, name: Name, token: int, tally: Tally, new: NewTransaction, beat: NewTransaction
    ) -> None:
        super().__init__(name, title_of(name), idempotency.lease_ms, new, beat, confirms=idempotency.confirms)
        self.idempotency = idempotency
        self.token = token
        self.tally = tally

    def hold(self, connection: Connection) -> None:
        """A late holder is counted here, because most frameworks turn the error into an answer."""
        try:
            hold(connection, self.name, self.token, self.idempotency.lease_term)
        except Fenced:
            self.tally.count("fenced")
            raise

    def count_doubt(self, step: str) -> None:
        REPEATED.add(step)


class Key(KeySteps):
    """For a synchronous handler: `with key.step("charge") as step:`."""

    def step(self, name: str, *, unkeyed: bool = False) -> Step:
        """`unkeyed` says that its call takes no key, and so may be made twice; then a warning and a counter say so."""
        return Step(self, name, unkeyed)


class AsyncKey(KeySteps):
    """For an asynchronous engine: `async with key.step("charge") as step:`."""

    def step(self, name: str, *, unkeyed: bool = False) -> AsyncStep:
        """`unkeyed` says that its call takes no key, and so may be made twice; then a warning and a counter say so."""
        return AsyncStep(self, name, unkeyed)


def steps_of(idempotency: Idempotency, name: Name, token: int, tally: Tally, beat: NewTransaction) -> Key | AsyncKey:
    """For handlers in threads, or for coroutines on an asynchronous engine."""
    if idempotency.is_asynchronous:
        return AsyncKey(idempotency, name, token, tally, idempotency.loop_transaction, beat)
    return Key(idempotency, name, token, tally, idempotency.transaction, beat)
