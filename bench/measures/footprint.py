"""The measures of a broker that has just been started: time and memory. Nothing is warmed up here."""

from __future__ import annotations

import time
from typing import ClassVar

from bench import clients
from bench.measures.measure import MEGABYTE, Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers.kafka import Kafka
from bench.peers.process import Broker
from bench.peers.semel import Semel
from bench.peers.tansu import Tansu

FLOOD_TOPIC = "footprint"
PARTITIONS = 4
VALUE_BYTES = 1000
IDLE_SECONDS = 2.0


class Footprint(Measure):
    """How long a fresh broker takes from the start of its process to the first acknowledged message, how much memory it
    holds when idle, and how much after 2 GB went through. It is what a broker costs in a test suite and on a laptop.

    The first message is `acks=all` but not idempotent: librdkafka asks for a producer id on a timer of 0.5 s, which
    would be added to every broker's figure."""

    name = "footprint"
    contenders: ClassVar[Contenders] = {"semel": Semel, "kafka": Kafka, "tansu": Tansu}
    rows = (
        Row(
            "start to first ack, s",
            "first_ack_seconds",
            Target(Kind.VALUE_AT_MOST, 0.2),
            decimals=2,
            reason="most of it is Python's own start, the imports, and the client's first connection.",
        ),
        Row("idle RSS, MB", "idle_rss_megabytes", Target(Kind.VALUE_AT_MOST, 60)),
        Row("RSS after 2 GB, MB", "loaded_rss_megabytes", Target(Kind.VALUE_AT_MOST, 120)),
    )

    def run(self, broker: Broker, scale: Scale) -> Figures:
        broker.start(wait=False)
        first_ack_seconds = clients.first_ack(broker, "first", partitions=1) - broker.started_at
        time.sleep(IDLE_SECONDS)
        idle_rss_bytes = broker.rss_bytes()
        clients.create_topic(broker, FLOOD_TOPIC, PARTITIONS)
        messages = scale.footprint_bytes // VALUE_BYTES
        clients.run(broker, clients.flood, [(FLOOD_TOPIC, PARTITIONS, VALUE_BYTES, messages, True)])
        return {
            "first_ack_seconds": first_ack_seconds,
            "idle_rss_megabytes": idle_rss_bytes / MEGABYTE,
            "loaded_rss_megabytes": broker.rss_bytes() / MEGABYTE,
        }
