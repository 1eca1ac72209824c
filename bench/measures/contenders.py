"""The contenders that several measures have: each broker at each durability, and semel on a store beside three brokers
of Kafka."""

from __future__ import annotations

from typing import Final

from bench.measures.measure import Contenders
from bench.peers.kafka import Kafka
from bench.peers.kafka_cluster import KafkaCluster
from bench.peers.semel import Semel
from bench.peers.semel_on_store import SemelOnStore
from bench.peers.stores import Postgres, Seaweed
from bench.peers.tansu import Tansu

OF_EACH_DURABILITY: Final[Contenders] = {
    "semel os": lambda: Semel(durability="os"),
    "semel fsync": lambda: Semel(durability="fsync"),
    "kafka": Kafka,
    "kafka flush": lambda: Kafka(flush_messages=1),
    "tansu": Tansu,
}
# The columns of a row with what the client takes against librdkafka's mock broker, which keeps nothing. No broker's
# figure can be below it, so it stands in each of them.
THE_CLIENT_ALONE: Final = {"semel": "mock", "kafka": "mock", "tansu": "mock"}
# Of Kafka, three brokers on this machine; of semel, one, because what it needs besides is in the store.
ON_STORES: Final[Contenders] = {
    "semel seaweedfs": lambda: SemelOnStore(Seaweed),
    "semel postgresql": lambda: SemelOnStore(Postgres),
    "kafka": KafkaCluster,
}
# The contenders of semel among them, and where each has its log.
STORES: Final = {"semel seaweedfs": "on SeaweedFS", "semel postgresql": "on PostgreSQL"}
STORES_NOTE: Final = (
    "Kafka has three brokers, replication 3 and min.insync.replicas=2, and leaves the sync to the kernel."
    f" {Seaweed.version()} is one process, which leaves it to the kernel, too; PostgreSQL and its synchronous standby"
    " sync. All of it is on this machine."
)
