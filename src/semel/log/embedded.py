"""A broker in a thread of its own, for programs that are not built on asyncio.

    with semel.broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

It is the same broker that `semel serve` runs. Everything here is called from outside the broker's thread; what has to
happen inside is handed over and waited for.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar

import uvloop

from semel.log.broker.broker import Broker
from semel.log.security.listeners import SecurityProtocol
from semel.log.storage.files import DiskFiles, Files, MemoryFiles
from semel.log.store import open_store
from semel.log.throwaway_login import Login, Security

T = TypeVar("T")


class EmbeddedBroker:
    """A broker that runs from `start` to `stop`, or as long as the `with` block lasts."""

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        files: Files | None = None,
        security: str = SecurityProtocol.PLAINTEXT,
        **settings: Any,
    ) -> None:
        """`data` is the directory of the log; without one it is in memory. `settings` are those of `Broker`.

        With a `store`, such as "s3://bucket/prefix" or "file:///dir", the log is there, and the directory is a cache;
        while another broker on the store is active, this one stands by.

        `files` takes the place of both, where a test wants a disk of its own making. With a `security` of "SSL",
        "SASL_PLAINTEXT" or "SASL_SSL" clients need `client_settings`: certificates and a user are made for this broker.
        """
        self._files: Files = files or (MemoryFiles() if data is None else DiskFiles(data))
        self._security = Security(security)
        if security != SecurityProtocol.PLAINTEXT:
            # It makes these itself; and brokers on one store would each make another password for the same user.
            if conflicting := sorted(settings.keys() & {*self._security.settings, "tls", "store"}):
                raise TypeError(f"security={security!r} cannot be combined with {' and '.join(conflicting)}")
            settings = {**settings, **self._security.settings}
        self._settings = settings
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._broker: Broker
        self._bootstrap = ""

    @property
    def bootstrap(self) -> str:
        """What clients put into `bootstrap.servers`."""
        return self._bootstrap

    @property
    def client_settings(self) -> dict[str, str]:
        """What a client of librdkafka needs, its address included; the pieces are in `login`."""
        return {"bootstrap.servers": self._bootstrap, **self._security.client_settings}

    @property
    def login(self) -> Login:
        """What a client needs to log in, for clients that call it by other names."""
        return self._security.login

    def start(self) -> Self:
        """Return when clients can connect. Raises what kept the broker from starting."""
        started: list[BaseException | None] = []
        ready = threading.Event()

        def report(error: BaseException | None) -> None:
            started.append(error)
            ready.set()

        self._thread = threading.Thread(target=self._run, args=(report,), name="semel-broker", daemon=True)
        self._thread.start()
        ready.wait()
        if started[0] is not None:
            self._thread.join()
            self._thread = None
            raise started[0]
        self._bootstrap = self._broker.bootstrap
        # After a restart the broker has the same addresses.
        self._settings["listeners"] = self._broker.listeners
        return self

    def stop(self) -> None:
        """Stop as `semel serve` does on SIGTERM: everything durable, nothing to replay."""
        self._end(lambda: self._broker.stop())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _make_broker(self) -> Broker:
        return Broker(files=self._files, **self._broker_settings())

    def _broker_settings(self) -> dict[str, Any]:
        """The settings of the next broker. A broker that stops closes its store, so each start opens the URL."""
        store = self._settings.get("store")
        return {**self._settings, "store": open_store(store)} if isinstance(store, str) else self._settings

    def _run(self, report: Callable[[BaseException | None], None]) -> None:
        loop = uvloop.new_event_loop()
        self._loop = loop
        try:
            try:
                self._broker = self._make_broker()
                loop.run_until_complete(self._broker.start())
                loop.run_until_complete(self._security.begin(self._broker))
            except BaseException as error:
                report(error)
                return
            loop.call_soon(report, None)
            loop.run_forever()
        finally:
            loop.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the broker's thread and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end(self, ending: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._thread is None:
            return
        self._call(ending())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._thread = None


def broker(data: Path | str | None = None, **settings: Any) -> EmbeddedBroker:
    """A broker for a `with` block, in memory or on a directory. `settings` are those of `semel.EmbeddedBroker`."""
    return EmbeddedBroker(data, **settings)
