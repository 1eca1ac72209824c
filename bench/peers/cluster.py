"""Several brokers that are one cluster for their clients: counted together, and stopped together. A measure may end one
of them, and has the cluster made whole again afterwards."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final, TypeVar

from bench.peers.process import READY_TIMEOUT_SECONDS, Broker, BrokerFailed, Contender
from semel.client.cluster import TRANSACTION
from semel.client.cluster import Cluster as Client
from semel.client.patience import Patience
from semel.client.places import TopicPartition
from semel.client.settings import Address, from_options

T = TypeVar("T")
_LOOK_SECONDS: Final = 0.05


class Cluster(Contender):
    """`members` are its brokers, all of which run while no measure has ended one."""

    members: Sequence[Broker] = ()

    @property
    def bootstrap(self) -> str:
        return ",".join(member.bootstrap for member in self.members)

    def cpu_seconds(self) -> float:
        """The CPU time of the members that run."""
        return sum(member.cpu_seconds() for member in self.members if member.is_running)

    @abstractmethod
    def create_topic_to_lose(self, topic: str) -> Broker:
        """Make a topic of one partition; returns the broker that leads it, which the caller is about to end."""

    @abstractmethod
    def restore(self, member: Broker) -> None:
        """Start a broker again that has ended; returns when any of the brokers could be lost."""

    def leader_of(self, topic: str) -> Broker:
        """The broker that leads partition 0."""
        return self._asked(lambda client: client.leader_of(TopicPartition(topic, 0)))

    def id_coordinated_by(self, member: Broker, prefix: str) -> str:
        """A transactional id, which begins with the prefix, whose coordinator is this broker."""
        for number in count():
            name = f"{prefix}-{number}"
            if self._asked(lambda client, name=name: client.coordinator(name, TRANSACTION)) is member:
                return name
        raise AssertionError("there are more names")

    def _asked(self, question: Callable[[Client], Address]) -> Broker:
        settings = from_options({"kafka.bootstrap.servers": self.bootstrap})
        with Client(settings) as client:
            _, port = Patience(settings).patiently(lambda: question(client))
        return next(member for member in self.members if member.port == port)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_SECONDS
        while not condition():
            for member in self.members:
                member.check_alive()
            if time.monotonic() > deadline:
                raise BrokerFailed(f"{self.name} is not whole after {READY_TIMEOUT_SECONDS:.0f} s")
            time.sleep(_LOOK_SECONDS)
