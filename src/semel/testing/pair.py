"""Two brokers on one store, for tests of code that has to go on when the second one takes over.

    with BrokerPair() as pair:
        my_code_that_books_a_payment(pair.bootstrap)
        pair.take_over()                                # the active broker dies with its disk
        my_code_that_books_a_payment(pair.bootstrap)
        assert len(pair.active.log("payments")) == 2

Both live in this process, and the store in its memory. This must never let two brokers be active: what it hastens is
the end of a lease whose holder is gone.
"""

import asyncio
import contextlib
from typing import Any, Final, Literal, Self

from semel.broker.broker import Broker
from semel.replica.lease import LEASE_KEY
from semel.storage.files import MemoryFiles
from semel.store import Missing
from semel.testing.broker import FaultyBroker
from semel.testing.stores import MemoryStore

# A takeover takes a fraction of a second; on a busy machine it may take many.
_TAKEOVER_SECONDS_MAX: Final = 120.0


class BrokerPair:
    """An active broker and one that stands by, from `start` to `stop` or as long as the `with` block lasts.

    Use it from one thread; the code under test may run in others meanwhile.
    """

    def __init__(self, **settings: Any) -> None:
        """`settings` are those of `Broker`, for both."""
        self._store = MemoryStore()
        self._active = _Member(store=self._store, **settings)
        self._standby = _Member(store=self._store, **settings)
        self._bootstrap = ""

    @property
    def bootstrap(self) -> str:
        """What clients put into `bootstrap.servers`: the addresses of both, the same over all takeovers."""
        return self._bootstrap

    @property
    def active(self) -> FaultyBroker:
        """The broker that is active now, with its faults and its log."""
        return self._active

    @property
    def standby(self) -> FaultyBroker:
        """The broker that stands by now."""
        return self._standby

    def take_over(self, how: Literal["kill", "stop"] = "kill") -> None:
        """Kill the active broker, with its disk, or stop it as SIGTERM does. Return when the other one is active and
        this one stands by, at its address and on an empty disk."""
        gone = self._active
        if how == "kill":
            gone.kill()
            # It cannot come back, so nobody has to wait for the end of its lease.
            with contextlib.suppress(Missing):
                self._store.objects.delete(LEASE_KEY)
        else:
            gone.stop()
        self._standby.wait_until_active()
        self._active, self._standby = self._standby, gone
        gone.start()

    def start(self) -> Self:
        """Return when one broker is active and the other one stands by."""
        self._active.start()
        try:
            self._standby.start()
        except BaseException:
            self._active.stop()
            raise
        self._bootstrap = f"{self._active.bootstrap},{self._standby.bootstrap}"
        return self

    def stop(self) -> None:
        """Stop both."""
        self._standby.stop()
        self._active.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Member(FaultyBroker):
    """One of the two. Each life of it begins with an empty disk."""

    def wait_until_active(self) -> None:
        """Raises what ended the broker instead."""

        async def wait() -> None:
            broker = self._broker
            events = (broker.activated, broker.failed)
            done, _ = await asyncio.wait(events, timeout=_TAKEOVER_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                raise TimeoutError(f"the standby has not taken over in {_TAKEOVER_SECONDS_MAX:g} s")
            for event in done:
                event.result()

        self._call(wait())

    def _make_broker(self) -> Broker:
        self._files = MemoryFiles()
        return super()._make_broker()
