"""The measure of what idempotence costs the broker. Both sides run on one broker, in turn; it must never compare two
brokers."""

from __future__ import annotations

from typing import ClassVar

from bench import clients
from bench.measures.measure import GIGABYTE, Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers.process import Broker
from bench.peers.semel import Semel

PARTITIONS = 4
VALUE_BYTES = 1000


class Idempotence(Measure):
    """The same flood of 1 KB messages with idempotence on and off, in turn on one broker, and what the broker's CPU per
    GB differs by. Exactly once must cost nothing, or people turn it off. Only semel runs: the target
    is its own."""

    name = "idempotence"
    contenders: ClassVar[Contenders] = {"semel": Semel}
    rows = (
        Row(
            "idempotence on against off, 1 KB, broker CPU, %",
            "overhead_percent",
            Target(Kind.VALUE_AT_MOST, 2.0),
            kafka=None,
            tansu=None,
            decimals=1,
        ),
    )

    def run(self, broker: Broker, scale: Scale) -> Figures:
        broker.start()
        self._cpu_seconds(broker, "warm", scale.warm_bytes, idempotent=True)
        spent = {True: 0.0, False: 0.0}
        for pair in range(scale.idempotence_pairs):
            # On-off, then off-on: a broker that gets slower as it fills must not pass for the cost of one side.
            for idempotent in (True, False) if pair % 2 == 0 else (False, True):
                topic = f"pair-{pair}-{'on' if idempotent else 'off'}"
                spent[idempotent] += self._cpu_seconds(broker, topic, scale.idempotence_bytes, idempotent=idempotent)
        sent_gigabytes = scale.idempotence_pairs * scale.idempotence_bytes / GIGABYTE
        return {
            "overhead_percent": 100 * (spent[True] / spent[False] - 1),
            "cpu_seconds_per_gigabyte_on": spent[True] / sent_gigabytes,
        }

    def _cpu_seconds(self, broker: Broker, topic: str, flood_bytes: int, *, idempotent: bool) -> float:
        clients.create_topic(broker, topic, PARTITIONS)
        arguments = (topic, PARTITIONS, VALUE_BYTES, flood_bytes // VALUE_BYTES, idempotent)
        cpu_seconds = clients.run(broker, clients.flood, [arguments]).broker_cpu_seconds
        clients.delete_topic(broker, topic)
        return cpu_seconds
