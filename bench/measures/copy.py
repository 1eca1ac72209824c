"""The measure of consume-transform-produce: records and the offsets of their sources, in one transaction each time. It
must never show a pause of the client as the work of a broker."""

from __future__ import annotations

from statistics import median
from typing import ClassVar, Final

from bench import clients
from bench.measures.measure import Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers.kafka import Kafka
from bench.peers.process import Broker
from bench.peers.semel import Semel
from bench.peers.tansu import Tansu
from bench.transactional_clients import copy_in_transactions

SOURCE = "source"
PARTITIONS = 4
VALUE_BYTES = 1000
RECORDS_PER_TRANSACTION = 100
# How long the client waits before it repeats a request: as it comes, and as short as it can be set.
BACKOFFS_MS: Final = {"as_it_comes": 100, "impatient": 1}


class Copy(Measure):
    """One process that reads 1 KB records in a group, writes them to another topic and commits both, 100 records in a
    transaction: the loop of a stream processor. All brokers run with their defaults; semel syncs, Kafka does not.
    Kafka's coordinator answers the end of a transaction before it has written all markers. Until it has, it refuses
    the next AddOffsetsToTxn (CONCURRENT_TRANSACTIONS), and librdkafka repeats that after `retry.backoff.ms`, 100 ms by
    default. This pause of the client is nearly all of the time that a transaction on Kafka takes. So the loop runs
    twice on each broker: with librdkafka's defaults, which is what its users get, and with a backoff of 1 ms, which
    the target is about. The broker's CPU has no pause in it."""

    name = "copy"
    contenders: ClassVar[Contenders] = {"semel": Semel, "kafka": Kafka, "tansu": Tansu}
    rows = (
        Row(
            "consume-transform-produce, 100 records of 1 KB per transaction, records/s",
            "records_per_second_as_it_comes",
        ),
        Row("the same, p50 ms of a transaction", "p50_ms_as_it_comes", decimals=2),
        Row(
            "the same with a backoff of 1 ms, records/s",
            "records_per_second_impatient",
            Target(Kind.RATIO_AT_LEAST, 2.0),
            reason="most of the time of a transaction is the client's own: Tansu, which keeps everything in memory, "
            "saves little of what semel takes.",
        ),
        Row("the same, p50 ms of a transaction", "p50_ms_impatient", decimals=2),
        Row("the same, broker CPU per transaction, ms", "cpu_ms_impatient", decimals=2),
    )

    def run(self, broker: Broker, scale: Scale) -> Figures:
        broker.start()
        clients.create_topic(broker, SOURCE, PARTITIONS)
        in_source = scale.copy_warm + scale.copy_records
        clients.run(broker, clients.flood, [(SOURCE, PARTITIONS, VALUE_BYTES, in_source, True)])
        figures: dict[str, float] = {}
        for patience, backoff_ms in BACKOFFS_MS.items():
            target = f"target-{backoff_ms}"
            clients.create_topic(broker, target, PARTITIONS)
            arguments = (SOURCE, target, RECORDS_PER_TRANSACTION, scale.copy_warm, scale.copy_records, backoff_ms)
            load = clients.run(broker, copy_in_transactions, [arguments])
            [took_ms] = load.results
            figures[f"records_per_second_{patience}"] = scale.copy_records / load.elapsed_seconds
            figures[f"p50_ms_{patience}"] = median(took_ms)
            figures[f"cpu_ms_{patience}"] = load.broker_cpu_seconds * 1e3 / len(took_ms)
        return figures
