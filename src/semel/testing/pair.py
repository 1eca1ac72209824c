"""Two brokers on one store, to test code that has to go on when the second broker takes over.

    with BrokerPair() as pair:
        my_code_that_books_a_payment(pair.bootstrap)
        pair.take_over()                                # the active broker dies with its disk
        my_code_that_books_a_payment(pair.bootstrap)
        assert len(pair.active.log("payments")) == 2

Both brokers run in this process, and the store is in its memory. Two brokers must never be active at the same time:
only the lease of a broker that was killed is ended early.
"""

import asyncio
import contextlib
from collections.abc import Collection
from typing import Any, Final, Literal, Self

from semel.log.brokers import Broker
from semel.log.doubles import LEASE_KEY
from semel.log.files import MemoryFiles
from semel.log.stores import Missing
from semel.testing.broker import FaultyBroker
from semel.testing.stores import MemoryStore
from semel.wire.hosts import shown_address

# A takeover takes a fraction of a second; on a busy machine it may take many seconds.
_TAKEOVER_SECONDS_MAX: Final = 120.0
_PAUSE_SECONDS: Final = 0.01


class BrokerPair:
    """An active broker and a standby, from `start` to `stop` or for the `with` block.

    Use it from one thread; the code under test may run in others meanwhile.
    """

    def __init__(self, **settings: Any) -> None:
        """`settings` are those of `Broker`, for both."""
        self._settings = settings
        self._store = MemoryStore()
        self._active = _Member(store=self._store, **settings)
        self._standby = _Member(store=self._store, **settings)
        self._bootstrap = ""

    @property
    def bootstrap(self) -> str:
        """The addresses of both brokers, for clients' `bootstrap.servers`; takeovers do not change them."""
        return self._bootstrap

    @property
    def active(self) -> FaultyBroker:
        """The broker that is active now, with its faults and its log."""
        return self._active

    @property
    def standby(self) -> FaultyBroker:
        """The broker that is the standby now."""
        return self._standby

    def take_over(self, how: Literal["kill", "stop"] = "kill", *, comes_back: bool = True) -> None:
        """Kill the active broker and its disk, or stop it as SIGTERM does. Returns when the other one is active, and
        this one is the standby at its old address, with an empty disk; or when the other one is alone, if this one does
        not come back.
        """
        gone = self._active
        if how == "kill":
            gone.kill()
            # The killed broker cannot come back, so nobody has to wait for the end of its lease.
            with contextlib.suppress(Missing):
                self._store.objects.delete(LEASE_KEY)
        else:
            gone.stop()
        self._standby.wait_until_active()
        self._active, self._standby = self._standby, gone
        if comes_back:
            gone.start()
            self._active.wait_until_named(gone)

    def join(self) -> None:
        """After a takeover from which no broker came back: another one stands by now, at an address of its own."""
        self._standby = _Member(store=self._store, **self._settings)
        self._standby.start()
        self._active.wait_until_named(self._standby)

    def start(self) -> Self:
        """Start both; returns when one is active, and names the other one to clients as the standby."""
        self._active.start()
        try:
            self._standby.start()
            self._active.wait_until_named(self._standby)
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
    """One of the two. Each start begins with an empty disk."""

    def wait_until_active(self) -> None:
        """Wait for the takeover; raises the error if the broker fails instead."""

        async def wait() -> None:
            broker = self._broker
            events = (broker.activated, broker.failed)
            done, _ = await asyncio.wait(events, timeout=_TAKEOVER_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                raise TimeoutError(f"the standby has not taken over in {_TAKEOVER_SECONDS_MAX:g} s")
            for event in done:
                event.result()

        self._call(wait())

    def wait_until_named(self, standby: FaultyBroker) -> None:
        """Wait until this active broker has read where the standby is: by itself it looks only now and then."""

        async def wait() -> None:
            async with asyncio.timeout(_TAKEOVER_SECONDS_MAX):
                while standby.bootstrap not in self._named:
                    await self._broker.role.finds_standby()
                    await asyncio.sleep(_PAUSE_SECONDS)

        self._call(wait())

    @property
    def _named(self) -> Collection[str]:
        role, listener = self._broker.role, self._broker.listeners[0]
        return [shown_address(*address) for address in role.standbys_at(listener).values()]

    def _make_broker(self) -> Broker:
        self._files = MemoryFiles()
        return super()._make_broker()
