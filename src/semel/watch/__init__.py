"""How many rows wait in the tables of the application kit: for prometheus_client, OpenTelemetry, or your own collector.

    semel.watch.register(engine)                  # once, in one process for each database
    prometheus_client.start_http_server(9100)

Events are counted in the process where they happen (`semel.metrics`); the waiting rows are in the database, and are
counted there at each scrape. This room only reads, and must never fail a scrape: if the database is away, a gauge says
so.
"""

import importlib.util

if importlib.util.find_spec("sqlalchemy") is None:
    raise ImportError("semel.watch needs SQLAlchemy, which is missing: pip install 'semel[app,metrics]'")

from semel.watch.collectors import register
from semel.watch.gauges import Gauge, gauges

__all__ = ["Gauge", "gauges", "register"]
