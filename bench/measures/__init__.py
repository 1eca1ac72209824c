"""One module per measure. What each one measures and why is in the docstring of its class, its targets are beside
it."""

from __future__ import annotations

from bench.measures.compaction import Compaction
from bench.measures.consume import Consume
from bench.measures.copy import Copy
from bench.measures.durable import DurableAcks
from bench.measures.footprint import Footprint
from bench.measures.groups import Groups
from bench.measures.idempotence import Idempotence
from bench.measures.latency import Latency
from bench.measures.measure import Measure
from bench.measures.produce import ProduceKilobyte, ProduceSmall
from bench.measures.recovery import Recovery
from bench.measures.transactions import Transactions

MEASURES: tuple[Measure, ...] = (
    Latency(),
    ProduceKilobyte(),
    ProduceSmall(),
    Consume(),
    DurableAcks(),
    Idempotence(),
    Footprint(),
    Recovery(),
    Transactions(),
    Copy(),
    Groups(),
    Compaction(),
)
