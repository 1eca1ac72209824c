"""The measure of one client beside another that asks for as much as it may. Both sides have the same broker at the same
time; it must never count what the hostile one gets done."""

from __future__ import annotations

from statistics import quantiles
from typing import ClassVar

from bench import clients
from bench.hostile_clients import committing
from bench.measures.measure import Contenders, Figures, Measure, Row, Scale
from bench.peers.kafka import Kafka
from bench.peers.process import Broker
from bench.peers.semel import Semel

SINGLE = "single"
MANY = "many"
PARTITIONS = 5_000
VALUE_BYTES = 100


class Hostile(Measure):
    """One idempotent message at a time as in `latency`, first with the broker to itself, then beside somebody who
    commits the offsets of 5,000 partitions in each request and has five such requests under way, always. Kafka takes
    no more of them in one request. What a stranger asks for must not be what the others wait for."""

    name = "hostile"
    contenders: ClassVar[Contenders] = {"semel": lambda: Semel(durability="os"), "kafka": Kafka}
    rows = (
        Row("one message at a time with the broker to itself, p99 us", "alone_p99_us", tansu=None),
        Row("the same beside commits of 5,000 partitions at once, p99 us", "beside_p99_us", tansu=None),
        Row("which is so many times as long", "ratio", tansu=None, decimals=1),
        Row("the longest one beside them, us", "beside_most_us", tansu=None),
    )

    def run(self, broker: Broker, scale: Scale) -> Figures:
        broker.start()
        clients.create_topic(broker, SINGLE, 1)
        clients.create_topic(broker, MANY, PARTITIONS)
        alone = self._took_us(broker, scale.single_warm, scale.single_messages)
        with committing(broker, MANY, PARTITIONS):
            beside = self._took_us(broker, 1, scale.single_messages)
        alone_p99_us, beside_p99_us = (quantiles(took_us, n=100)[98] for took_us in (alone, beside))
        return {
            "alone_p99_us": alone_p99_us,
            "beside_p99_us": beside_p99_us,
            "ratio": beside_p99_us / alone_p99_us,
            "beside_most_us": max(beside),
        }

    def _took_us(self, broker: Broker, warm: int, count: int) -> list[float]:
        arguments = (SINGLE, [0], VALUE_BYTES, warm, count)
        return list(clients.run(broker, clients.one_at_a_time, [arguments]).results[0])
