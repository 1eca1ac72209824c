"""The measure of one small transaction after another. It waits for every commit; it must never keep two transactions
under way."""

from __future__ import annotations

from statistics import median
from typing import ClassVar

from bench import clients
from bench.measures.contenders import OF_EACH_DURABILITY, THE_CLIENT_ALONE
from bench.measures.measure import Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers.mock import Mock
from bench.peers.process import Contender
from bench.transactional_clients import transactions_one_at_a_time

TOPIC = "transactions"
PARTITIONS = 4
VALUE_BYTES = 100
MOSTLY_THE_CLIENT = "the client's own share, in the last row, is most of semel's time, so no broker reaches the target."


class Transactions(Measure):
    """One producer that begins, writes one record of 100 B to each of four partitions, commits, and begins again. It is
    what exactly-once costs a program that handles one event at a time. Kafka commits to the page cache unless
    `flush.messages=1`, so each durability is compared with its own kind. The last row is the client's own share, which
    is in every figure above it: the same client against librdkafka's mock broker, which keeps nothing."""

    name = "transactions"
    contenders: ClassVar[Contenders] = {**OF_EACH_DURABILITY, "mock": Mock}
    rows = (
        Row(
            "transactions/s, 4 partitions, durability os",
            "rate",
            Target(Kind.RATIO_AT_LEAST, 3.0),
            semel="semel os",
            reason=MOSTLY_THE_CLIENT,
        ),
        Row(
            "the same, p50 ms",
            "p50_ms",
            Target(Kind.RATIO_AT_MOST, 0.45),
            semel="semel os",
            decimals=2,
            reason=MOSTLY_THE_CLIENT,
        ),
        Row(
            "the same, broker CPU per transaction, ms",
            "cpu_ms",
            Target(Kind.RATIO_AT_MOST, 0.07),
            semel="semel os",
            decimals=2,
            reason="each request of a transaction is decoded, decided on and answered in Python.",
        ),
        Row(
            "transactions/s, 4 partitions, fsync (Kafka: flush.messages=1)",
            "rate",
            semel="semel fsync",
            kafka="kafka flush",
            tansu=None,
        ),
        Row("the same, p50 ms", "p50_ms", semel="semel fsync", kafka="kafka flush", tansu=None, decimals=2),
        Row("the client alone, against a broker that keeps nothing, p50 ms", "p50_ms", **THE_CLIENT_ALONE, decimals=2),
    )

    def run(self, broker: Contender, scale: Scale) -> Figures:
        broker.start()
        if broker.is_administered:
            clients.create_topic(broker, TOPIC, PARTITIONS)
        arguments = (TOPIC, PARTITIONS, VALUE_BYTES, scale.transactions_warm, scale.transactions)
        load = clients.run(broker, transactions_one_at_a_time, [arguments])
        return {
            "rate": scale.transactions / load.elapsed_seconds,
            "p50_ms": median(load.results[0]),
            "cpu_ms": load.broker_cpu_seconds * 1e3 / scale.transactions,
        }
