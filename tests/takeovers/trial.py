"""The copy by transactions of `semel chaos copy`, on two brokers that share a store: workers are killed and, in turn,
the active broker is killed, loses its disk, stands still, stays away for good or is stopped, or the store is killed
and started.

Nothing acknowledged may be lost, doubled or out of order, and a reader of committed records sees the same on the way.
"""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient

from eventually import eventually
from semel.chaos.copy import CopyPlan, CopyReport, copy
from semel.chaos.topic_reader import CONNECTION, METADATA_MS, PATIENCE_SECONDS
from takeover_pair import Pair
from takeovers.servers import StoreServer

# What is done to the active broker: in words, and for the pair.
KINDS: Final = {
    "kill -9": "crash",
    "kill -9, disk wiped": "kill",
    "SIGSTOP, SIGCONT": "pause",
    "kill -9, away for good": "lost",
    "SIGTERM": "stop",
}
KILL_STORE: Final = "store killed"
# The store is away for longer than a lease, so nobody serves for a while.
STORE_AWAY_SECONDS: Final = 4.0
LEASE_SECONDS: Final = 3


class Takeover(NamedTuple):
    """One of them, and how long it took until the next broker was active."""

    kind: str
    seconds: float


class FaultyPair(Pair):
    """Two brokers on one store, as one broker that can be killed and comes back: each time something else happens."""

    def __init__(self, directory: Path, server: StoreServer | None, url: str) -> None:
        self._server = server
        self._kinds = cycle(KINDS if server is None else (*KINDS, KILL_STORE))
        self.store_kills = 0
        self.takeovers: list[Takeover] = []
        super().__init__(directory, url, lease_seconds=LEASE_SECONDS)

    def kill(self) -> None:
        """The next of the kinds of faults."""
        if self.standby.exit_code is not None:
            # It was overtaken, and a supervisor starts it again.
            self.standby.wait()
            self.standby.start()
        kind = next(self._kinds)
        if KINDS.get(kind) == "lost":
            self._have_clients_know_the_standby()
        began = time.monotonic()
        if kind == KILL_STORE:
            assert self._server is not None
            self._server.crash()
            threading.Event().wait(STORE_AWAY_SECONDS)
            self._server.start()
            self.store_kills += 1
            # Mostly it goes on. If the other one was faster it has ended, or ends with what it does next.
            return
        self.take_over(KINDS[kind])
        self.takeovers.append(Takeover(kind, self.taken_over - began))

    def _have_clients_know_the_standby(self) -> None:
        """They know it when they have asked after the active broker found it, and it may be all that they know."""
        admin = AdminClient({**CONNECTION, "bootstrap.servers": self.bootstrap})
        assert eventually(lambda: self.standby.bootstrap in _named_to(admin))
        threading.Event().wait(2 * METADATA_MS / 1000)

    def start(self) -> object:
        """It is back already."""
        return self


def _named_to(client: AdminClient) -> list[str]:
    """The addresses of the brokers in Metadata."""
    return [f"{broker.host}:{broker.port}" for broker in client.list_topics(timeout=PATIENCE_SECONDS).brokers.values()]


@contextmanager
def faulty_pair(directory: Path, open_server: Callable[[], StoreServer] | None) -> Iterator[FaultyPair]:
    """A pair on a fresh store of this kind; on a directory without one."""
    server = None if open_server is None else open_server()
    try:
        url = f"file://{directory}/store" if server is None else server.url
        pair = FaultyPair(directory, server, url)
        try:
            yield pair
        finally:
            pair.end()
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(directory / "store", ignore_errors=True)


def run_trial(pair: FaultyPair, records: int, takeovers: int, seed: int, note: Callable[[str], None]) -> CopyReport:
    """Copy so many records by two workers, with so many faults of the brokers and as many kills of each worker."""
    plan = CopyPlan(records, workers=2, transaction_records=100, kills=takeovers, seed=seed)
    return copy(pair, plan, note=note)
