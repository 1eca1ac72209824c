"""The spans of OpenTelemetry around what semel does, and the current trace as headers of a message (W3C Trace Context).

Only the API is used, and the application brings the SDK: while it has set up none, a span costs one look, and makes
nothing. A relay sends a message later, and does not know the request that added it, so the headers have to be in the
row. The other context of a request (baggage) stays in the process: it may contain data that readers of the log must not
see. A span must never change what happens.
"""

import importlib
import importlib.util
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache, lru_cache
from typing import Any, Final

TRACEPARENT: Final = "traceparent"
# What an SDK keeps of a span.
LINKS_MAX: Final = 128
NO_SPAN: Final = nullcontext()


def trace_headers() -> dict[str, str]:
    """The headers; none if there is no trace, or no OpenTelemetry."""
    propagator = _propagator()
    carrier: dict[str, str] = {}
    if propagator is not None:
        propagator.inject(carrier)
    return carrier


def is_on() -> bool:
    """Whether the program has set up an SDK."""
    trace = _trace()
    return trace is not None and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def span(
    name: str, kind: str, attributes: Mapping[str, Any], parent: str | None = None, links: Iterable[str] = ()
) -> AbstractContextManager[Any]:
    """A span for a block. Without an SDK, the block gets None and nothing is made. `parent` and `links` are values of
    the header traceparent; without one the span belongs to the program's current span."""
    if not is_on():
        return NO_SPAN
    trace = _trace()
    context = None if parent is None else _propagator().extract({TRACEPARENT: parent})
    found = [trace.Link(context) for link in links if (context := _context_of(link)).is_valid] if links else None
    begin: Any = _tracer(trace.get_tracer_provider()).start_as_current_span
    opened: AbstractContextManager[Any] = begin(
        name, context, kind=trace.SpanKind[kind], attributes=dict(attributes), links=found
    )
    return opened


def link(of: Any, traceparent: str | None) -> None:
    """Link a span with the one that has done the work."""
    if of is not None and traceparent is not None and (context := _context_of(traceparent)).is_valid:
        of.add_link(context)


def note(name: str, value: str) -> None:
    """Set an attribute of the program's current span, which may be that of another library."""
    if is_on():
        _trace().get_current_span().set_attribute(name, value)


def _context_of(traceparent: str) -> Any:
    return _trace().get_current_span(_propagator().extract({TRACEPARENT: traceparent})).get_span_context()


@lru_cache(maxsize=2)
def _tracer(provider: Any) -> Any:
    return provider.get_tracer("semel")


@cache
def _trace() -> Any:
    return _module("opentelemetry.trace")


@cache
def _propagator() -> Any:
    module = _module("opentelemetry.trace.propagation.tracecontext")
    return None if module is None else module.TraceContextTextMapPropagator()


def _module(name: str) -> Any:
    if importlib.util.find_spec("opentelemetry") is None:
        return None
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
