"""The measure of many small durable writes. Each producer has one message in flight and a process of its own."""

from __future__ import annotations

from typing import ClassVar

from bench import clients
from bench.measures.measure import Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers.kafka import Kafka
from bench.peers.process import Contender
from bench.peers.semel import Semel
from bench.peers.tansu import Tansu

TOPIC = "durable"
PARTITIONS = 64
PRODUCERS = 8
VALUE_BYTES = 100
WARM_ROUNDS = 2


class DurableAcks(Measure):
    """Eight idempotent producers, each in a process of its own with one message in flight, spread over 64 partitions:
    many small writers who all need their message on disk. It is where one journal for everything pays, and where a log
    with a file per partition must sync them one by one."""

    name = "durable-acks"
    contenders: ClassVar[Contenders] = {
        "semel": lambda: Semel(durability="fsync"),
        "kafka flush": lambda: Kafka(flush_messages=1),
        "kafka": Kafka,
        "tansu": Tansu,
    }
    rows = (
        Row(
            "acks/s on 64 partitions, 8 producers, fsync (Kafka: flush.messages=1)",
            "acks_per_second",
            Target(Kind.RATIO_AT_LEAST, 3.0),
            kafka="kafka flush",
            tansu=None,
            reason="semel syncs once for many messages. The quicker the disk is, the less that saves, and the more of "
            "the time is the work for each message.",
        ),
        Row("the same, semel with fsync, Kafka without", "acks_per_second", Target(Kind.RATIO_ABOVE, 1.0)),
    )

    def run(self, broker: Contender, scale: Scale) -> Figures:
        broker.start()
        clients.create_topic(broker, TOPIC, PARTITIONS)
        count = scale.durable_messages_per_producer
        arguments = []
        for producer in range(PRODUCERS):
            # Every producer visits every partition, each from a start of its own.
            first = producer * PARTITIONS // PRODUCERS
            partitions = [(first + step) % PARTITIONS for step in range(PARTITIONS)]
            arguments.append((TOPIC, partitions, VALUE_BYTES, WARM_ROUNDS * PARTITIONS, count))
        load = clients.run(broker, clients.one_at_a_time, arguments)
        return {"acks_per_second": PRODUCERS * count / load.elapsed_seconds}
