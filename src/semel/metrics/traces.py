"""The program's current trace as headers of a message (W3C Trace Context), if OpenTelemetry is installed.

A relay sends a message later, and does not know the request that added it. So the headers have to be in the row. The
other context of a request (baggage) stays in the process: it may contain data that readers of the log must not see.
"""

import importlib
import importlib.util
from functools import cache
from typing import Any


def trace_headers() -> dict[str, str]:
    """The headers; none if there is no trace, or no OpenTelemetry."""
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
