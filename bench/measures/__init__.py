"""One module per measure. What each one measures and why is in the docstring of its class, its targets are beside
it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Final

from bench.measures.audit import Audit
from bench.measures.compaction import Compaction
from bench.measures.consume import Consume
from bench.measures.copy import Copy
from bench.measures.durable import DurableAcks
from bench.measures.floods import Floods
from bench.measures.footprint import Footprint
from bench.measures.groups import Groups
from bench.measures.hostile import Hostile
from bench.measures.http import Http
from bench.measures.idempotence import Idempotence
from bench.measures.inbox import Inbox
from bench.measures.latency import Latency
from bench.measures.local_journal import LocalJournal
from bench.measures.locks import AccessChecks, Logins, Tls
from bench.measures.measure import Measure
from bench.measures.new_machine import NewMachine
from bench.measures.outbox import Outbox
from bench.measures.produce import ProduceKilobyte, ProduceSmall
from bench.measures.recovery import Recovery
from bench.measures.slow_store import SlowStore
from bench.measures.spark_dedup import SparkDedup
from bench.measures.spark_latency import SparkLatency
from bench.measures.spark_sink import SparkSink
from bench.measures.spark_source import SparkSource
from bench.measures.spark_sql import SparkSql
from bench.measures.starts import Starts
from bench.measures.stores import StoreAcks, StoreFlood, StoreLatency, StoreTransactions
from bench.measures.takeover import Takeover
from bench.measures.transactions import Transactions

# The measures of each page below docs, in the order of their rows.
PAGES: Final[Mapping[str, tuple[Measure, ...]]] = {
    "BENCHMARKS.md": (
        Latency(),
        Hostile(),
        ProduceKilobyte(),
        ProduceSmall(),
        Consume(),
        DurableAcks(),
        Idempotence(),
        Starts(),
        Footprint(),
        Recovery(),
    ),
    "BENCHMARKS-TRANSACTIONS.md": (Transactions(), Copy(), Groups(), Compaction()),
    "BENCHMARKS-SPARK.md": (SparkSource(), SparkSql(), SparkSink(), Audit(), SparkLatency(), SparkDedup()),
    "BENCHMARKS-APP.md": (Inbox(), Http(), Outbox()),
    "BENCHMARKS-LOCKS.md": (Tls(), Logins(), AccessChecks(), Floods()),
    "BENCHMARKS-STORE.md": (
        StoreFlood(),
        StoreAcks(),
        StoreLatency(),
        StoreTransactions(),
        SlowStore(),
        LocalJournal(),
    ),
    "BENCHMARKS-TAKEOVER.md": (Takeover(), NewMachine()),
}
MEASURES: Final[tuple[Measure, ...]] = tuple(chain.from_iterable(PAGES.values()))
