"""Apache Kafka as it is run where nothing may be lost: three nodes, three replicas, two of which have to be in sync.
All three are on this machine, and each is broker and controller. It must never be tuned beyond that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Self

from bench.peers.cluster import Cluster
from bench.peers.kafka import Kafka
from bench.peers.process import Broker
from semel.testing.ports import free_port

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, PartitionMetadata

NODES: Final = 3
REPLICATED: Final[Mapping[str, str]] = {
    "default.replication.factor": str(NODES),
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": str(NODES),
    "transaction.state.log.replication.factor": str(NODES),
    "transaction.state.log.min.isr": "2",
}


class KafkaCluster(Cluster):
    name = "kafka"
    replication_factor = NODES

    def __init__(self, *, loses_controller: bool = False) -> None:
        """The broker that a measure ends is the active controller as well, or never is."""
        self._loses_controller = loses_controller
        self.nodes = [Kafka(port=free_port(), node_id=number, properties=REPLICATED) for number in range(1, NODES + 1)]
        self.members = self.nodes
        for node in self.nodes:
            node.join(self.nodes)

    def version(self) -> str:
        return self.nodes[0].version()

    def install(self) -> None:
        self.nodes[0].install()

    def start(self) -> Self:
        for node in self.nodes:
            node.start(wait=False)
        for node in self.nodes:
            node.wait_ready()
        self.wait_for(self._has_all_brokers)
        return self

    def stop(self) -> None:
        """The data goes, so nobody waits until each node has handed over what it leads."""
        for node in self.nodes:
            node.kill()
        for node in self.nodes:
            node.stop()

    def create_topic_to_lose(self, topic: str) -> Broker:
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        controller_id = self._controller_id()
        first = next(node for node in self.nodes if (node.node_id == controller_id) == self._loses_controller)
        replicas = [first.node_id, *(node.node_id for node in self.nodes if node is not first)]
        admin = self._admin()
        admin.create_topics([NewTopic(topic, 1, replica_assignment=[replicas])])[topic].result(60)
        self.wait_for(self._is_whole)
        return first

    def restore(self, member: Broker) -> None:
        from confluent_kafka import ElectionType

        member.start()
        self.wait_for(self._is_in_sync)
        admin = self._admin()
        # Kafka does so by itself every five minutes.
        admin.elect_leaders(ElectionType.PREFERRED).result(60)
        self.wait_for(self._is_whole)

    def _has_all_brokers(self) -> bool:
        return len(self._admin().list_topics(timeout=10).brokers) == NODES

    def _is_in_sync(self) -> bool:
        return all(len(partition.isrs) == NODES for partition in self._partitions())

    def _is_whole(self) -> bool:
        """Whether all replicas are in sync, and the first of them leads, as after the first start."""
        return self._is_in_sync() and all(one.leader == one.replicas[0] for one in self._partitions())

    def _partitions(self) -> list[PartitionMetadata]:
        topics = self._admin().list_topics(timeout=10).topics.values()
        return [partition for topic in topics for partition in topic.partitions.values()]

    def _controller_id(self) -> int:
        """By what the nodes have written down of their last election."""
        elections = []
        for node in self.nodes:
            elected = json.loads((node.data_directory / "__cluster_metadata-0" / "quorum-state").read_text())
            elections.append((elected["leaderEpoch"], elected["leaderId"]))
        return int(max(elections)[1])

    def _admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
