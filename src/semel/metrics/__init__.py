"""The counters of the application kit: verdicts on claims, quarantined messages, deleted claims, and retries.

    prometheus_client.start_http_server(9100)        # that is all: semel's counters are in its registry
    semel.metrics.hook(lambda count: statsd.incr(count.name, count.by))

Counts go to prometheus_client and to OpenTelemetry if they are installed (`pip install 'semel[metrics]'`), and to each
hook. A count must never raise: a payment does not fail because it could not be counted.
"""

from semel.metrics.counters import Count, hook

__all__ = ["Count", "hook"]
