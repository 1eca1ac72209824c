"""How much waits in the tables of the application kit: for a scrape by prometheus_client, OpenTelemetry, or your own.

    semel.watch.register(engine)                  # once, in one process for each database
    prometheus_client.start_http_server(9100)

What happens is counted where it happens (`semel.metrics`); what waits is in the database, and is asked there when a
collector asks. This room only reads, and must never fail a scrape: a database that is away is a figure, too.
"""

import importlib.util

if importlib.util.find_spec("sqlalchemy") is None:
    raise ImportError("semel.watch needs SQLAlchemy, which is missing: pip install 'semel[app,metrics]'")

from semel.watch.collectors import register
from semel.watch.gauges import Gauge, gauges

__all__ = ["Gauge", "gauges", "register"]
