"""Counts reach prometheus_client, OpenTelemetry and hooks, and none of them can break what is counted."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

from semel.metrics import Count, hook
from semel.metrics.counters import CATALOG, Counter

# In a process of its own: what is registered once stays.
COUNTED: Final = """
import prometheus_client
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from semel.http.counters import CLAIMS, REAPED

reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
CLAIMS.add("replayed")
CLAIMS.add("replayed", by=2)
REAPED.add(by=7)
value = prometheus_client.REGISTRY.get_sample_value
print(*(value("semel_http_claims_total", {"outcome": one}) for one in ("replayed", "conflict")))
print(value("semel_http_keys_reaped_total"))
for each in reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics:
    print(each.name, [(dict(point.attributes), point.value) for point in each.data.data_points])
"""


def test_counts_reach_prometheus_and_opentelemetry() -> None:
    ran = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True)
    assert ran.stdout.splitlines() == [
        "3.0 0.0",
        "7.0",
        "semel_http_claims [({'outcome': 'replayed'}, 3)]",
        "semel_http_keys_reaped [({}, 7)]",
    ], ran.stderr


def test_a_hook_that_fails_costs_no_request_and_no_other_hook(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Count] = []

    def fail(count: Count) -> None:
        raise RuntimeError("statsd is away")

    take_off = [hook(fail), hook(seen.append)]
    counter = Counter("semel_test_hooks_total", "Of this test.", "consumer", outcomes=("accepted",))
    counter.add("billing", "accepted")
    for take in take_off:
        take()
    counter.add("billing", "accepted")
    CATALOG.pop(counter.name)
    assert seen == [Count("semel_test_hooks_total", {"consumer": "billing", "outcome": "accepted"}, 1)]
    [record] = caplog.records
    assert record.getMessage() == "semel_test_hooks_total could not be counted: RuntimeError: statsd is away"
