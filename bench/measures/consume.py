"""The measure of reading. What is read was written by the same run and is in the page cache; it must never read from
a cold disk."""

from __future__ import annotations

from typing import ClassVar

from bench import clients
from bench.measures.measure import GIGABYTE, MEGABYTE, MISSING, Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers.kafka import Kafka
from bench.peers.process import Broker
from bench.peers.semel import Semel
from bench.peers.tansu import Tansu

TOPIC = "read"
PARTITIONS = 4
VALUE_BYTES = 1000
READS_COUNTED = 3


class Consume(Measure):
    """Read 1 KB messages from the beginning, `assign` without a group, from the page cache, three times after
    a first time that warms everything up. Reading is what a log does most often: once written, read many times. One
    client in Python takes about 1 GB/s with a core to itself, so the broker's CPU tells more than the rate."""

    name = "consume"
    contenders: ClassVar[Contenders] = {"semel": Semel, "kafka": Kafka, "tansu": Tansu}
    rows = (
        Row(
            "consume 1 KB, MB/s",
            "megabytes_per_second",
            Target(Kind.RATIO_AT_LEAST, 1.1),
            reason="the client is the limit.",
        ),
        Row(
            "the same, broker CPU seconds per GB",
            "cpu_seconds_per_gigabyte",
            Target(Kind.RATIO_AT_MOST, 1.5),
            decimals=2,
        ),
    )

    def run(self, broker: Broker, scale: Scale) -> Figures:
        broker.start()
        clients.create_topic(broker, TOPIC, PARTITIONS)
        messages = scale.flood_bytes // VALUE_BYTES
        arguments = (TOPIC, PARTITIONS, VALUE_BYTES, messages, True)
        acknowledged: int = clients.run(broker, clients.flood, [arguments]).results[0]
        stored = clients.count_stored(broker, TOPIC, PARTITIONS)
        reads = [
            clients.run(broker, clients.read_all, [(TOPIC, PARTITIONS, stored)]) for _ in range(1 + READS_COUNTED)
        ][1:]
        read_bytes = sum(read.results[0] for read in reads)
        return {
            "megabytes_per_second": read_bytes / MEGABYTE / sum(read.elapsed_seconds for read in reads),
            "cpu_seconds_per_gigabyte": sum(read.broker_cpu_seconds for read in reads) / (read_bytes / GIGABYTE),
            MISSING: acknowledged - stored,
        }
