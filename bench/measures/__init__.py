"""One module per measure. What each one measures and why is in the docstring of its class, its targets are beside
it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Final, NamedTuple

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


class Area(NamedTuple):
    """What one section of docs/BENCHMARKS.md is about, and the measures in it, in the order of their rows."""

    title: str
    measures: tuple[Measure, ...]


# By the name that the command line has for each, in the order of the page.
AREAS: Final[Mapping[str, Area]] = {
    "broker": Area(
        "The broker",
        (
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
    ),
    "transactions": Area("Transactions, groups and compaction", (Transactions(), Copy(), Groups(), Compaction())),
    "security": Area("TLS, logins, access rules and floods by strangers", (Tls(), Logins(), AccessChecks(), Floods())),
    "store": Area(
        "A log in a store",
        (StoreFlood(), StoreAcks(), StoreLatency(), StoreTransactions(), SlowStore(), LocalJournal()),
    ),
    "takeover": Area("Takeovers and new machines", (Takeover(), NewMachine())),
    "spark": Area("Spark", (SparkSource(), SparkSql(), SparkSink(), Audit(), SparkLatency(), SparkDedup())),
    "applications": Area("The pieces for applications", (Inbox(), Http(), Outbox())),
}
MEASURES: Final[tuple[Measure, ...]] = tuple(chain.from_iterable(area.measures for area in AREAS.values()))
