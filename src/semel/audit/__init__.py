"""Checks that everything that was sent arrived once: first by counts and sums of keyed hashes, then by ids.

    verdict = semel.audit.audit("semel://127.0.0.1:9092/payments?id=key", ["parquet:/data/payments?id=event_id"])
    assert verdict.is_clean, verdict.sinks[0].lost.listed

An audit reads and never writes, starts no Spark, and needs little memory, however many rows there are.
"""

import importlib.util
from collections.abc import Mapping, Sequence

if importlib.util.find_spec("numpy") is None or importlib.util.find_spec("pyarrow") is None:
    raise ImportError("semel.audit needs numpy and pyarrow, and one is missing: pip install 'semel[audit]'")

from semel.audit.addresses import place
from semel.audit.errors import AuditFailed
from semel.audit.places import Place
from semel.audit.places.given import Given
from semel.audit.places.together import Together
from semel.audit.run import Plan, Progress, run
from semel.audit.spark_engine import on_spark
from semel.audit.totals import Total, TotalsVerdict, WrongTotal, compare_totals
from semel.audit.verdict import LISTED_DEFAULT, Counted, Finding, Findings, SinkVerdict, Verdict, WindowCount

__all__ = [
    "AuditFailed",
    "Counted",
    "Finding",
    "Findings",
    "Given",
    "Place",
    "SinkVerdict",
    "Total",
    "TotalsVerdict",
    "Verdict",
    "WindowCount",
    "WrongTotal",
    "audit",
    "audit_totals",
    "on_spark",
]


def audit(
    source: str | Place,
    sinks: str | Place | Sequence[str | Place | tuple[str | Place, ...]],
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
    count_without_id: bool = False,
    progress: Progress = lambda what, done, total: None,
) -> Verdict:
    """Compare every sink with the source. Each is an address as for `semel audit`, or `Given`, the program's ids;
    a tuple of them among the sinks counts as one sink, such as a table and its quarantine.

    The verdict names up to `limit` ids of each kind of finding; its counts are exact. With `once`, an id that the
    source has several times is expected once in each window and with each amount. The same `key` gives exactly the same
    sums again. From two million rows on, the audit uses several processes, unless `processes` sets their number: a
    script that audits so many rows needs `if __name__ == "__main__"`, like every script that starts processes. `client`
    has the settings for reading topics, by the names of Kafka or librdkafka; the options of an address override them.
    Rows without an id make a verdict not clean; with `count_without_id` each sink has to have as many as the source.
    """
    settings = client or {}
    all_sinks = [sinks] if isinstance(sinks, str) or not isinstance(sinks, Sequence) else sinks
    plan = Plan(window_ms, since_ms, before_ms, once, limit, buckets, key, processes, count_without_id)
    return run(_place(source, settings), [_place(sink, settings) for sink in all_sinks], plan, progress)


def audit_totals(
    source: str | Place,
    sink: str | Place,
    *,
    count: str | None = None,
    window_ms: int | None = None,
    limit: int = LISTED_DEFAULT,
    client: Mapping[str, object] | None = None,
) -> TotalsVerdict:
    """Compare an aggregate with the rows that it is of: `source` has the rows, `sink` a row for each total.

    On both sides `id` is the key, `time` the event's time or the beginning of the window, and `amount` what is summed;
    `count` is the column of the sink that counts rows. Memory grows with the number of totals.
    """
    settings = client or {}
    return compare_totals(
        _place(source, settings), _place(sink, settings), count=count, window_ms=window_ms, limit=limit
    )


def _place(where: str | Place | tuple[str | Place, ...], client: Mapping[str, object]) -> Place:
    if isinstance(where, tuple):
        return Together([_place(one, client) for one in where])
    return place(where, client) if isinstance(where, str) else where
