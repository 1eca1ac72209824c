"""The measures of producing as fast as one client can. A flood counts only if the broker then says it holds every
message."""

from __future__ import annotations

from typing import ClassVar

from bench import clients
from bench.measures.measure import GIGABYTE, MEGABYTE, MISSING, Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers.kafka import Kafka
from bench.peers.process import Contender
from bench.peers.semel import Semel
from bench.peers.tansu import Tansu

TOPIC = "flood"
PARTITIONS = 4
KILOBYTE = 1000
SMALL_BYTES = 100


def flood(broker: Contender, *, value_bytes: int, warm: int, count: int) -> tuple[clients.Load[int], int]:
    """Fill a fresh topic with `count` idempotent messages, after a warm-up of a topic of its own; returns also how many
    acknowledged messages the broker does not hold afterwards."""
    for topic, messages in ((f"{TOPIC}-warm", warm), (TOPIC, count)):
        clients.create_topic(broker, topic, PARTITIONS)
        load = clients.run(broker, clients.flood, [(topic, PARTITIONS, value_bytes, messages, True)])
    return load, load.results[0] - clients.count_stored(broker, TOPIC, PARTITIONS)


class ProduceKilobyte(Measure):
    """Produce 1 KB messages as fast as one idempotent client can, `acks=all`, librdkafka's own batching, 4 partitions.
    The broker's CPU per GB says what is left of the machine for everything else. Kafka leaves the fsync to the
    kernel, as it does by default; semel is shown both ways, and must win both ways."""

    name = "produce-1k"
    contenders: ClassVar[Contenders] = {
        "semel os": lambda: Semel(durability="os"),
        "semel fsync": lambda: Semel(durability="fsync"),
        "kafka": Kafka,
        "tansu": Tansu,
    }
    rows = (
        Row(
            "produce 1 KB, durability os, MB/s",
            "megabytes_per_second",
            Target(Kind.RATIO_AT_LEAST, 1.8),
            semel="semel os",
            decimals=1,
            reason="the client and the broker have two cores, and the client takes more than one of them.",
        ),
        Row(
            "the same, broker CPU seconds per GB",
            "cpu_seconds_per_gigabyte",
            Target(Kind.RATIO_AT_MOST, 0.25),
            semel="semel os",
            decimals=2,
            reason="half of semel's CPU goes into writing each batch twice, to its segment and to the journal.",
        ),
        Row(
            "produce 1 KB, semel with fsync, Kafka without, MB/s",
            "megabytes_per_second",
            Target(Kind.RATIO_AT_LEAST, 1.5),
            semel="semel fsync",
            decimals=1,
            reason="semel waits for the disk here, and Kafka does not; the first row compares like with like.",
        ),
        Row(
            "the same, broker CPU seconds per GB",
            "cpu_seconds_per_gigabyte",
            Target(Kind.RATIO_AT_MOST, 0.35),
            semel="semel fsync",
            decimals=2,
            reason="what the kernel does for a sync is in semel's CPU; the second row compares like with like.",
        ),
    )

    def run(self, broker: Contender, scale: Scale) -> Figures:
        broker.start()
        count, warm = scale.flood_bytes // KILOBYTE, scale.warm_bytes // KILOBYTE
        load, missing = flood(broker, value_bytes=KILOBYTE, warm=warm, count=count)
        sent_bytes = count * KILOBYTE
        return {
            "megabytes_per_second": sent_bytes / MEGABYTE / load.elapsed_seconds,
            "cpu_seconds_per_gigabyte": load.broker_cpu_seconds / (sent_bytes / GIGABYTE),
            "store_cpu_seconds_per_gigabyte": load.store_cpu_seconds / (sent_bytes / GIGABYTE),
            MISSING: missing,
        }


class ProduceSmall(Measure):
    """Produce 100 B messages as fast as one idempotent client can. Here the client is the limit for a good broker, so
    the broker's CPU per message tells more than the rate."""

    name = "produce-100b"
    contenders: ClassVar[Contenders] = {"semel": Semel, "kafka": Kafka, "tansu": Tansu}
    rows = (
        Row("produce 100 B, msg/s", "messages_per_second", Target(Kind.RATIO_AT_LEAST, 1.0)),
        Row(
            "the same, broker CPU seconds per million",
            "cpu_seconds_per_million",
            Target(Kind.RATIO_AT_MOST, 0.3),
            decimals=2,
            reason="semel checks and writes each batch of each message, and small messages come in small batches.",
        ),
    )

    def run(self, broker: Contender, scale: Scale) -> Figures:
        broker.start()
        count = scale.small_messages
        load, missing = flood(broker, value_bytes=SMALL_BYTES, warm=count // 4, count=count)
        return {
            "messages_per_second": count / load.elapsed_seconds,
            "cpu_seconds_per_million": load.broker_cpu_seconds / (count / 1_000_000),
            MISSING: missing,
        }
