"""semel with its log in a store: one broker, or two of which one stands by. Started like the peers, with the address of
the store and no other option."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Final, Self

from bench import clients
from bench.peers.cluster import Cluster
from bench.peers.process import Broker
from bench.peers.semel import Semel
from bench.peers.stores import StoreServer

LATENCY_SECONDS: Final = 0.02


class SemelOnStore(Cluster):
    name = "semel"

    def __init__(self, open_server: Callable[[], StoreServer], *, brokers: int = 1) -> None:
        self._open_server = open_server
        self._brokers = brokers
        self._server: StoreServer | None = None
        self._gone: list[Broker] = []

    def version(self) -> str:
        return Semel().version()

    def install(self) -> None:
        Semel().install()

    def start(self) -> Self:
        self._server = self._open_server()
        for _ in range(self._brokers):
            self.members = [*self.members, self.on_a_new_machine().start()]
        return self

    def stop(self) -> None:
        for broker in (*self.members, *self._gone):
            broker.stop()
        if self._server is not None:
            self._server.stop()
            self._server = None

    @property
    def url(self) -> str:
        assert self._server is not None
        return self._server.url

    def store_cpu_seconds(self) -> float:
        assert self._server is not None
        return self._server.cpu_seconds()

    def on_a_new_machine(self) -> Semel:
        """A broker with an empty disk, which was not started yet."""
        return Semel(store=self.url)

    def replace(self) -> Semel:
        """Stop the active broker, and start another one with an empty disk."""
        (gone,) = self.members
        gone.shut_down()
        self._gone.append(gone)
        newcomer = self.on_a_new_machine()
        self.members = [newcomer]
        return newcomer.start()

    def create_topic_to_lose(self, topic: str) -> Broker:
        clients.create_topic(self, topic, 1)
        return self.leader_of(topic)

    def restore(self, member: Broker) -> None:
        """It stands by when it has started."""
        member.start()


class SemelOnSlowStore(Semel):
    """A broker on the double of `semel.testing`, which is in the memory of its process. Each call takes up to 20 ms on
    its way there and up to 20 ms back, so 20 ms on average."""

    def command(self) -> Sequence[str]:
        return [sys.executable, "-c", _ON_SLOW_STORE, str(self.port), str(self.directory / "data")]


_ON_SLOW_STORE: Final = f"""
import signal, sys
import semel
from semel.testing.stores import FaultyStore

store = FaultyStore(latency_seconds={LATENCY_SECONDS})
with semel.broker(sys.argv[2], port=int(sys.argv[1]), store=store) as broker:
    print("semel ready on", broker.bootstrap, "in 0.0 s", flush=True)
    signal.sigwait([signal.SIGTERM])
"""
