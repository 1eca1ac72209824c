"""What a measure is: contenders, one run, and the rows of the table that its figures fill, each with its target beside
it. A measure does not know rounds, medians or how the table looks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from bench.peers.process import Contender

Figures = Mapping[str, float]
"""What one run of one contender gave, by the name of the metric."""

Contenders = Mapping[str, Callable[[], Contender]]
"""How to make each contender, by its label: a peer and the setting it runs with."""

MISSING = "missing_messages"
"""A metric of every measure that writes and then counts: messages acknowledged and not there. The table names them."""

GIGABYTE = 1_000_000_000
MEGABYTE = 1_000_000


class Kind(Enum):
    RATIO_AT_MOST = "<= {} x"
    RATIO_AT_LEAST = ">= {} x"
    RATIO_ABOVE = "> {} x"
    EXCESS_AT_MOST = "<= + {}"
    VALUE_AT_MOST = "<= {}"
    VALUE_AT_LEAST = ">= {}"


@dataclass(frozen=True)
class Target:
    """What must hold: semel's figure over Kafka's, or above it, or semel's figure alone."""

    kind: Kind
    bound: float

    def holds(self, semel: float, kafka: float | None) -> bool | None:
        """None when Kafka's figure is needed and missing."""
        if self.kind is Kind.VALUE_AT_MOST:
            return semel <= self.bound
        if self.kind is Kind.VALUE_AT_LEAST:
            return semel >= self.bound
        if kafka is None:
            return None
        if self.kind is Kind.RATIO_AT_MOST:
            return semel <= self.bound * kafka
        if self.kind is Kind.EXCESS_AT_MOST:
            return semel <= kafka + self.bound
        if self.kind is Kind.RATIO_AT_LEAST:
            return semel >= self.bound * kafka
        return semel > self.bound * kafka

    def __str__(self) -> str:
        return self.kind.value.format(f"{self.bound:.10g}")


@dataclass(frozen=True)
class Row:
    """One line of the table: a metric, and which contender stands in which column. No contender, no figure. Where one
    run has the figures of both, Kafka's column has a metric of its own."""

    title: str
    metric: str
    target: Target | None = None
    semel: str = "semel"
    kafka: str | None = "kafka"
    tansu: str | None = "tansu"
    decimals: int = 0
    kafka_metric: str | None = None
    # Why semel misses the target. It is printed only on a page on which it does.
    reason: str = ""

    @classmethod
    def beside(
        cls,
        title: str,
        metric: str,
        peer_metric: str,
        target: Target | None = None,
        *,
        decimals: int = 0,
        reason: str = "",
    ) -> Row:
        """Both figures come out of one run, as where both need the same log or the same database."""
        peer = {"kafka": "semel", "kafka_metric": peer_metric, "tansu": None}
        return cls(title, metric, target, **peer, decimals=decimals, reason=reason)


@dataclass(frozen=True)
class Scale:
    """How much one run does. `QUICK` is for finding out whether the bench works; its figures mean nothing."""

    flood_bytes: int
    warm_bytes: int
    small_messages: int
    single_messages: int
    single_warm: int
    durable_messages_per_producer: int
    footprint_bytes: int
    recovery_bytes: int
    compaction_bytes: int
    idempotence_pairs: int
    idempotence_bytes: int
    transactions: int
    transactions_warm: int
    copy_records: int
    copy_warm: int
    spark_small_rows: int
    spark_kilobyte_rows: int
    spark_sql_rows: int
    audit_ids: int
    spark_micro_batches: int
    spark_dedup_rows: int
    inbox_turns: int
    inbox_events: int
    http_turns: int
    http_requests: int
    outbox_turns: int
    outbox_transactions: int
    outbox_messages: int
    outbox_singles: int
    takeovers: int
    store_bytes: int


FULL = Scale(
    flood_bytes=1 * GIGABYTE,
    warm_bytes=256 * MEGABYTE,
    small_messages=5_000_000,
    single_messages=5_000,
    single_warm=5_000,
    durable_messages_per_producer=1_000,
    footprint_bytes=2 * GIGABYTE,
    recovery_bytes=1 * GIGABYTE,
    compaction_bytes=1 * GIGABYTE,
    idempotence_pairs=6,
    idempotence_bytes=500 * MEGABYTE,
    transactions=1_000,
    transactions_warm=300,
    copy_records=50_000,
    copy_warm=10_000,
    spark_small_rows=4_000_000,
    spark_kilobyte_rows=800_000,
    spark_sql_rows=1_000_000,
    audit_ids=100_000_000,
    spark_micro_batches=60,
    spark_dedup_rows=1_000_000,
    inbox_turns=20,
    inbox_events=250,
    http_turns=20,
    http_requests=100,
    outbox_turns=5,
    outbox_transactions=2_000,
    outbox_messages=20_000,
    outbox_singles=25,
    takeovers=10,
    store_bytes=10 * GIGABYTE,
)

QUICK = Scale(
    flood_bytes=50 * MEGABYTE,
    warm_bytes=10 * MEGABYTE,
    small_messages=200_000,
    single_messages=200,
    single_warm=50,
    durable_messages_per_producer=30,
    footprint_bytes=50 * MEGABYTE,
    recovery_bytes=50 * MEGABYTE,
    compaction_bytes=100 * MEGABYTE,
    idempotence_pairs=1,
    idempotence_bytes=50 * MEGABYTE,
    transactions=50,
    transactions_warm=10,
    copy_records=2_000,
    copy_warm=1_000,
    spark_small_rows=50_000,
    spark_kilobyte_rows=20_000,
    spark_sql_rows=10_000,
    audit_ids=200_000,
    spark_micro_batches=10,
    spark_dedup_rows=64_000,
    inbox_turns=3,
    inbox_events=50,
    http_turns=2,
    http_requests=20,
    outbox_turns=1,
    outbox_transactions=100,
    outbox_messages=1_000,
    outbox_singles=5,
    takeovers=1,
    store_bytes=150 * MEGABYTE,
)


class Measure(ABC):
    """One measure. Its docstring says what it measures and why; it is printed in the generated document."""

    name: ClassVar[str]
    rows: ClassVar[tuple[Row, ...]]
    contenders: ClassVar[Contenders]
    notes: ClassVar[tuple[str, ...]] = ()
    # The highest number of rounds; None if there is no limit.
    rounds_max: ClassVar[int | None] = None

    @abstractmethod
    def run(self, broker: Contender, scale: Scale) -> Figures:
        """One run on a contender that is installed and not started; the caller stops it, whatever happens. A measure
        that needs more than every contender has names what it needs."""
