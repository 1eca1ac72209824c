"""The measure of consume-transform-produce: records and the offsets of their sources, in one transaction each time."""

from __future__ import annotations

from typing import ClassVar

from bench import clients
from bench.measures.measure import Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers.kafka import Kafka
from bench.peers.process import Broker
from bench.peers.semel import Semel
from bench.peers.tansu import Tansu
from bench.transactional_clients import copy_in_transactions

SOURCE = "source"
TARGET = "target"
PARTITIONS = 4
VALUE_BYTES = 1000
RECORDS_PER_TRANSACTION = 100


class Copy(Measure):
    """One process that reads 1 KB records in a group, writes them to another topic and commits both, 100 records in a
    transaction: the loop of a stream processor. All brokers run with their defaults; semel syncs, Kafka does not."""

    name = "copy"
    contenders: ClassVar[Contenders] = {"semel": Semel, "kafka": Kafka, "tansu": Tansu}
    rows = (
        Row(
            "consume-transform-produce, 100 records of 1 KB per transaction, records/s",
            "records_per_second",
            Target(Kind.RATIO_AT_LEAST, 2.0),
        ),
    )

    def run(self, broker: Broker, scale: Scale) -> Figures:
        broker.start()
        for topic in (SOURCE, TARGET):
            clients.create_topic(broker, topic, PARTITIONS)
        in_source = scale.copy_warm + scale.copy_records
        clients.run(broker, clients.flood, [(SOURCE, PARTITIONS, VALUE_BYTES, in_source, True)])
        arguments = (SOURCE, TARGET, RECORDS_PER_TRANSACTION, scale.copy_warm, scale.copy_records)
        load = clients.run(broker, copy_in_transactions, [arguments])
        return {"records_per_second": load.results[0] / load.elapsed_seconds}
