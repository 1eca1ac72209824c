"""The trace that the program is in, as headers of a message (W3C Trace Context), where OpenTelemetry is installed.

A message leaves the process later, by a relay that does not know the request which added it. So the headers have to
be in the row. What else a request carries (baggage) stays in the process: it may hold what the log's readers must not
see.
"""

import importlib
import importlib.util
from functools import cache
from typing import Any


def trace_headers() -> dict[str, str]:
    """Empty where there is no trace, or no OpenTelemetry."""
    propagator = _propagator()
    carrier: dict[str, str] = {}
    if propagator is not None:
        propagator.inject(carrier)
    return carrier


@cache
def _propagator() -> Any:
    if importlib.util.find_spec("opentelemetry") is None:
        return None
    try:
        module = importlib.import_module("opentelemetry.trace.propagation.tracecontext")
    except ImportError:
        return None
    return module.TraceContextTextMapPropagator()
