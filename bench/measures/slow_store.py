"""The measure of a store that is far away. The store is a double in the memory of the broker's process, so it must
never be compared with a broker that stores anything."""

from __future__ import annotations

from statistics import median
from typing import ClassVar, Final

from bench import clients
from bench.measures.measure import MEGABYTE, MISSING, Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.measures.produce import KILOBYTE, flood
from bench.peers.process import Contender
from bench.peers.semel_on_store import SemelOnSlowStore
from bench.transactional_clients import transactions_one_at_a_time

PRODUCERS: Final = 32
PARTITIONS: Final = 4
VALUE_BYTES: Final = 100


class SlowStore(Measure):
    """The flood of `produce-1k`, and then 32 producers at once, each with one transaction after another as in
    `transactions`, on a store that answers in 20 ms, which is what the quicker buckets take. The store is the double of
    `semel.testing`: each call takes up to 20 ms to get there, and its answer up to 20 ms. What it shows is that the
    time of one call is not the time of each change: up to four objects are under way at once, and each has all that has
    come meanwhile. The double is in the broker's process and takes CPU time there; Kafka has nothing that compares."""

    name = "slow-store"
    contenders: ClassVar[Contenders] = {"semel": SemelOnSlowStore}
    rows = (
        Row(
            "produce 1 KB on a store that answers in 20 ms, MB/s",
            "megabytes_per_second",
            Target(Kind.VALUE_AT_LEAST, 60),
            kafka=None,
            tansu=None,
            decimals=1,
        ),
        Row("transactions/s of 32 producers over 4 partitions each on it", "rate", kafka=None, tansu=None),
        Row("the same, p50 ms", "p50_ms", kafka=None, tansu=None, decimals=1),
    )

    def run(self, broker: Contender, scale: Scale) -> Figures:
        broker.start()
        count, warm = scale.flood_bytes // KILOBYTE, scale.warm_bytes // KILOBYTE
        flooded, missing = flood(broker, value_bytes=KILOBYTE, warm=warm, count=count)
        # A producer's transactional id is the name of its topic.
        topics = [f"transactions-{number}" for number in range(PRODUCERS)]
        for topic in topics:
            clients.create_topic(broker, topic, PARTITIONS)
        each = scale.transactions // PRODUCERS + 1, scale.transactions // 4
        load = clients.run(
            broker, transactions_one_at_a_time, [(topic, PARTITIONS, VALUE_BYTES, *each) for topic in topics]
        )
        return {
            "megabytes_per_second": count * KILOBYTE / MEGABYTE / flooded.elapsed_seconds,
            "rate": PRODUCERS * each[1] / load.elapsed_seconds,
            "p50_ms": median(took_ms for one in load.results for took_ms in one),
            MISSING: missing,
        }
