"""Whether all that was sent is where it belongs, once: counts and sums of keyed hashes first, then ids.

    verdict = semel.audit.audit("semel://127.0.0.1:9092/payments?id=key", ["parquet:/data/payments?id=event_id"])
    assert verdict.is_clean, verdict.sinks[0].lost.listed

An audit reads and never writes, starts no Spark, and holds little in memory however much there is.
"""

import importlib.util
from collections.abc import Mapping, Sequence

if importlib.util.find_spec("numpy") is None or importlib.util.find_spec("pyarrow") is None:
    raise ImportError("semel.audit needs numpy and pyarrow, and one is missing: pip install 'semel[audit]'")

from semel.audit.addresses import place
from semel.audit.errors import AuditFailed
from semel.audit.places import Place
from semel.audit.places.given import Given
from semel.audit.run import Plan, Progress, run
from semel.audit.spark_engine import on_spark
from semel.audit.verdict import LISTED_DEFAULT, Counted, Finding, Findings, SinkVerdict, Verdict, WindowCount

__all__ = [
    "AuditFailed",
    "Counted",
    "Finding",
    "Findings",
    "Given",
    "Place",
    "SinkVerdict",
    "Verdict",
    "WindowCount",
    "audit",
    "on_spark",
]


def audit(
    source: str | Place,
    sinks: str | Place | Sequence[str | Place],
    *,
    window_ms: int | None = None,
    since_ms: int | None = None,
    before_ms: int | None = None,
    once: bool = False,
    limit: int = LISTED_DEFAULT,
    buckets: int | None = None,
    key: str | None = None,
    processes: int | None = None,
    client: Mapping[str, object] | None = None,
    progress: Progress = lambda what, done, total: None,
) -> Verdict:
    """Compare every sink with the source. Each is an address as `semel audit` takes it, or the program's data, `Given`.

    For each kind of finding `limit` ids are named; counts are exact. With `once`, an id that the source has several
    times is expected once, in each window and with each amount that it was sent with. The same `key` repeats an audit
    to the bit. More than one process is used from two million rows on, unless `processes` says how many: a script that
    audits so much keeps its work behind `if __name__ == "__main__"`, as for everything that starts processes. `client`
    has the settings with which topics are read, by the names of Kafka or librdkafka; what an address says goes first.
    """
    settings = client or {}
    all_sinks = [sinks] if isinstance(sinks, str) or not isinstance(sinks, Sequence) else sinks
    plan = Plan(window_ms, since_ms, before_ms, once, limit, buckets, key, processes)
    return run(_place(source, settings), [_place(sink, settings) for sink in all_sinks], plan, progress)


def _place(where: str | Place, client: Mapping[str, object]) -> Place:
    return place(where, client) if isinstance(where, str) else where
