"""What waits in the tables is shown as it is, to prometheus_client and to OpenTelemetry; a database that is away is a
figure and no failed scrape; every rule on the operator's page names a metric that there is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import prometheus_client
import pytest
from sqlalchemy import Engine, insert
from sqlalchemy.exc import OperationalError

from chapters import chapter
from semel import inbox, outbox, schema
from semel.database import engine_of
from semel.http.tables import keys
from semel.inbox.quarantine import Aside, Cause, State, move, put
from semel.metrics import Count, hook
from semel.metrics.counters import CATALOG
from semel.outbox.tables import quarantine
from semel.service.door import READY_GAUGE
from semel.testing.clock import Clock
from semel.watch import Gauge, gauges
from semel.watch.collectors import known
from semel.watch.gauges import GAUGES

PAGE: Final = chapter("watch", "Your application")


def shown(engine: Engine, clock: Clock) -> dict[str, float]:
    found = gauges(engine, clock)
    return {f"{one.name}{sorted(one.labels.values()) or ''}": one.value for one in found}


def test_each_figure_is_what_the_tables_hold(url: str) -> None:
    engine, clock = engine_of(url), Clock()
    assert shown(engine, clock) == {"semel_watch_up": 1}, "no tables, no figures"
    schema.make(engine)
    key: dict[str, Any] = {"scope": "anna", "fingerprint": "f", "token": 1, "expires_ms": clock.ms + 9}
    with engine.begin() as connection:
        for number, (lease_ms, status) in enumerate(((5, None), (-5, None), (5, 201))):
            connection.execute(
                insert(keys), {**key, "key": str(number), "lease_until_ms": clock.ms + lease_ms, "status": status}
            )
        outbox.add(connection, "orders", value="a", clock=lambda: clock.ms - 2_500)
        outbox.add(connection, "orders", value="b", clock=clock)
        connection.execute(insert(quarantine), {"number": 1, "reason": "too large", "refused_at_ms": 1})
        for number in range(3):
            put(connection, Aside("billing", f"id:{number}", Cause.FAILED, "poison", 1))
        move(connection, 1, State.HELD, State.DUE)
        move(connection, 2, State.HELD, State.DROPPED)
    assert shown(engine, clock) == {
        "semel_watch_up": 1,
        "semel_http_keys_in_flight": 1,
        "semel_outbox_waiting": 2,
        "semel_outbox_oldest_seconds": 2.5,
        "semel_outbox_quarantined": 1,
        "semel_inbox_quarantined['billing', 'due']": 1,
        "semel_inbox_quarantined['billing', 'held']": 1,
    }
    engine.dispose()


# In a process of its own: what is registered once stays.
SCRAPED: Final = """
import os
import sys
from prometheus_client import generate_latest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from semel import outbox, schema, watch
from semel.database import engine_of

reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
engine = engine_of(sys.argv[1])
watch.register(engine)
schema.make(engine)
with engine.begin() as connection:
    outbox.add(connection, "orders", value="a")
for line in generate_latest().decode().splitlines():
    if line.startswith(("semel_outbox_waiting", "semel_watch_up")):
        print(line)
for each in reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics:
    if each.name == "semel_outbox_waiting":
        print(each.name, [point.value for point in each.data.data_points])
engine.dispose()
os.rename(sys.argv[2], sys.argv[2] + ".moved")
os.mkdir(sys.argv[2])
print([line for line in generate_latest().decode().splitlines() if line.startswith("semel_watch_up")])
"""


def test_both_collectors_show_them_and_survive_a_database_that_is_away(tmp_path: Path) -> None:
    file = tmp_path / "app.db"
    command = [sys.executable, "-c", SCRAPED, f"sqlite:///{file}", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.stdout.splitlines() == [
        "semel_watch_up 1.0",
        "semel_outbox_waiting 1.0",
        "semel_outbox_waiting [1]",
        "['semel_watch_up 0.0']",
    ], ran.stderr


def test_the_figures_themselves_raise_what_the_database_says(tmp_path: Path) -> None:
    (tmp_path / "app.db").mkdir()
    away = engine_of(f"sqlite:///{tmp_path}/app.db")
    with pytest.raises(OperationalError):
        gauges(away)
    assert known(away) == [Gauge("semel_watch_up", {}, 0)], "as a collector gets them"


def test_verdicts_of_the_inbox_are_counted(url: str) -> None:
    engine = engine_of(url)
    schema.make(engine)
    counted: list[Count] = []
    take_off = hook(counted.append)
    with engine.begin() as connection:
        for _ in range(2):
            with inbox.once(connection, consumer="billing", message_id="p-1"):
                pass
        inbox.claim_many(connection, "billing", ["p-1", "p-2", "p-3"])
        inbox.next_version(connection, "billing", "account-7", 4)
    inbox.reap(engine, consumer="billing", clock=lambda: 2**52)
    take_off()
    engine.dispose()
    verdicts = [(one.labels.get("outcome"), one.by) for one in counted if one.name == "semel_inbox_claims_total"]
    assert verdicts == [("accepted", 1), ("duplicate", 1), ("accepted", 2), ("duplicate", 1), ("gap", 1)]
    assert [one.by for one in counted if one.name == "semel_inbox_claims_reaped_total"] == [3]


def test_the_page_names_each_metric_and_no_other() -> None:
    """Rules that can be copied are of use only if what they ask for is there."""
    named = set(re.findall(r"semel_[a-z_]+", PAGE))
    assert named == {*CATALOG, *GAUGES, READY_GAUGE}


def test_all_counters_and_figures_fit_into_one_registry() -> None:
    """Prometheus takes a counter's name without `_total` for its own, so no figure may have that name."""
    registry = prometheus_client.CollectorRegistry()
    for counter in CATALOG.values():
        prometheus_client.Counter(counter.name, counter.text, counter.labels, registry=registry)
    for name in (*GAUGES, READY_GAUGE):
        prometheus_client.Gauge(name, name, registry=registry)
