"""The measures of semel with its log in a store beside three brokers of Apache Kafka: the loads of the measures of one
broker, with other contenders. It must never measure another load under the same name."""

from __future__ import annotations

from typing import ClassVar, Final

from bench.measures.contenders import ON_STORES, STORES, STORES_NOTE
from bench.measures.durable import DurableAcks
from bench.measures.latency import Latency
from bench.measures.measure import Contenders, Figures, Kind, Row, Scale, Target
from bench.measures.produce import ProduceKilobyte
from bench.measures.transactions import Transactions
from bench.peers.cluster import Cluster
from bench.peers.process import Contender
from bench.peers.semel_on_store import SemelOnStore
from bench.peers.stores import Postgres, Seaweed

SEAWEEDFS: Final = "semel seaweedfs"
POSTGRESQL: Final = "semel postgresql"
FOLLOWED: Final = " with a standby"
STORE_ON_THE_SAME_CORES: Final = (
    "the store has the same two cores, and takes more of them for a GB than all three brokers of Kafka."
)


class StoreFlood(ProduceKilobyte):
    """The flood of `produce-1k`: 1 KB messages as fast as one idempotent client can send them, `acks=all`, 4
    partitions. The CPU is that of all brokers: of Kafka's three, which each write everything, and of semel's one. What
    semel leaves to its store is in a row of its own: the CPU of all processes of that store, which write everything
    twice, once in the journal and once in a checkpoint, and PostgreSQL's two servers twice each. A standby reads all
    of it and applies it, so that a takeover is short; what it takes besides is in the last rows of each store."""

    name = "store-flood"
    contenders: ClassVar[Contenders] = {
        **ON_STORES,
        SEAWEEDFS + FOLLOWED: lambda: SemelOnStore(Seaweed, brokers=2),
        POSTGRESQL + FOLLOWED: lambda: SemelOnStore(Postgres, brokers=2),
    }
    rows = tuple(
        row
        for semel, where in STORES.items()
        for row in (
            Row(
                f"produce 1 KB {where}, MB/s",
                "megabytes_per_second",
                Target(Kind.RATIO_AT_LEAST, 1.0),
                semel=semel,
                tansu=None,
                decimals=1,
                reason=STORE_ON_THE_SAME_CORES,
            ),
            Row(
                "the same, CPU seconds per GB of the brokers",
                "cpu_seconds_per_gigabyte",
                Target(Kind.RATIO_AT_MOST, 0.5),
                semel=semel,
                tansu=None,
                decimals=2,
            ),
            Row(
                "the same, CPU seconds per GB of the store",
                "store_cpu_seconds_per_gigabyte",
                semel=semel,
                kafka=None,
                tansu=None,
                decimals=2,
            ),
            Row(
                f"produce 1 KB {where}, with a standby that follows, MB/s",
                "megabytes_per_second",
                semel=semel + FOLLOWED,
                tansu=None,
                decimals=1,
            ),
            Row(
                "the same, CPU seconds per GB of the brokers",
                "cpu_seconds_per_gigabyte",
                semel=semel + FOLLOWED,
                tansu=None,
                decimals=2,
            ),
        )
    )
    notes = (STORES_NOTE,)

    def run(self, broker: Contender, scale: Scale) -> Figures:
        figures = super().run(broker, scale)
        assert isinstance(broker, Cluster)
        # A standby that has ended would take no CPU.
        for member in broker.members:
            member.check_alive()
        return figures


class StoreAcks(DurableAcks):
    """The load of `durable-acks`: eight idempotent producers, each with one message in flight, spread over 64
    partitions. semel puts what has come meanwhile into one object of the store; Kafka's followers fetch all partitions
    of a broker in one request."""

    name = "store-acks"
    contenders = ON_STORES
    rows = tuple(
        Row(
            f"acks/s on 64 partitions, 8 producers, {where}",
            "acks_per_second",
            Target(Kind.RATIO_AT_LEAST, 1.0),
            semel=semel,
            tansu=None,
        )
        for semel, where in STORES.items()
    )
    notes = (STORES_NOTE,)


class StoreLatency(Latency):
    """The load of `latency`: one idempotent message of 100 B at a time. semel waits for one object of the store, Kafka
    for its followers. SeaweedFS has no target: what it takes for an object is what a message takes."""

    name = "store-latency"
    contenders = ON_STORES
    rows = (
        Row(
            "one idempotent message at a time on PostgreSQL, p50 us",
            "p50_us",
            Target(Kind.RATIO_AT_MOST, 1.5),
            semel=POSTGRESQL,
            tansu=None,
            reason="PostgreSQL and its standby sync, one after the other; Kafka's followers answer from memory.",
        ),
        Row("the same, p99 us", "p99_us", semel=POSTGRESQL, tansu=None),
        Row("one idempotent message at a time on SeaweedFS, p50 us", "p50_us", semel=SEAWEEDFS, tansu=None),
        Row("the same, p99 us", "p99_us", semel=SEAWEEDFS, tansu=None),
    )
    notes = (STORES_NOTE,)


class StoreTransactions(Transactions):
    """The load of `transactions`: one producer that begins, writes one record to each of four partitions, commits, and
    begins again. A transaction waits for the store twice, and in Kafka for several requests between the brokers."""

    name = "store-transactions"
    contenders = ON_STORES
    rows = tuple(
        row
        for semel, where in STORES.items()
        for row in (
            Row(
                f"transactions over 4 partitions {where}, p50 ms",
                "p50_ms",
                Target(Kind.RATIO_AT_MOST, 0.3),
                semel=semel,
                tansu=None,
                decimals=2,
            ),
            Row("the same, transactions/s", "rate", semel=semel, tansu=None),
        )
    )
    notes = (STORES_NOTE,)
