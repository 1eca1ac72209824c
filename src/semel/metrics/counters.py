"""The counters, and the sinks that they go to: prometheus_client, OpenTelemetry, hooks.

Each counter looks for its sinks at its first count. So a program with neither library pays for one lookup, and a
program may import semel before it sets up OpenTelemetry. Values of labels are names that the program chose (a consumer,
a step, an outcome), never a key or an id, so the number of series stays small.
"""

import importlib.util
import logging
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

logger = logging.getLogger("semel.metrics")


class Count(NamedTuple):
    """One count, as a hook gets it."""

    name: str
    """The name of the counter, such as `semel_http_claims_total`."""
    labels: dict[str, str]
    by: int


Hook: TypeAlias = Callable[[Count], object]

_hooks: list[Hook] = []
_mutex: Final = threading.Lock()


def hook(called: Hook) -> Callable[[], None]:
    """Call `called` with each count, in the thread that makes it. Returns a function that removes the hook. An error of
    a hook is only logged."""
    with _mutex:
        _hooks.append(called)

    def take_off() -> None:
        with _mutex:
            _hooks.remove(called)

    return take_off


class Counter:
    """A counter of semel's. `outcomes` are the values of its last label, `outcome`. If that is its only label, its
    series in prometheus_client begin at 0, because an alarm on a rate does not see a series that begins at 1."""

    def __init__(self, name: str, text: str, *labels: str, outcomes: tuple[str, ...] = ()) -> None:
        self.name = name
        self.text = text
        self.outcomes = outcomes
        self.labels = (*labels, "outcome") if outcomes else labels
        CATALOG[name] = self
        self._sinks: tuple[Hook, ...] | None = None

    def add(self, *values: str, by: int = 1) -> None:
        if by == 0:
            return
        count = Count(self.name, dict(zip(self.labels, values, strict=True)), by)
        for sink in (*self._made_sinks(), *_hooks):
            try:
                sink(count)
            except Exception as error:
                logger.warning("%s could not be counted: %s: %s", self.name, type(error).__name__, error)

    def _made_sinks(self) -> tuple[Hook, ...]:
        with _mutex:
            if self._sinks is None:
                self._sinks = tuple(made for make in (_prometheus, _opentelemetry) if (made := make(self)) is not None)
            return self._sinks


CATALOG: Final[dict[str, Counter]] = {}


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _prometheus(counter: Counter) -> Hook | None:
    if not _is_there("prometheus_client"):
        return None
    import prometheus_client

    try:
        series = prometheus_client.Counter(counter.name, counter.text, counter.labels)
    except ValueError as error:
        # Another library's counter has this name; semel continues without its own.
        logger.warning("%s is not in prometheus_client: %s", counter.name, error)
        return None
    if counter.labels == ("outcome",):
        for outcome in counter.outcomes:
            series.labels(outcome)

    def sink(count: Count) -> None:
        (series.labels(**count.labels) if count.labels else series).inc(count.by)

    return sink


def _opentelemetry(counter: Counter) -> Hook | None:
    if not _is_there("opentelemetry.metrics"):
        return None
    from opentelemetry import metrics

    # OpenTelemetry's exporters add `_total` themselves where they need it.
    made: Any = metrics.get_meter("semel").create_counter(counter.name.removesuffix("_total"), description=counter.text)
    return lambda count: made.add(count.by, count.labels)
