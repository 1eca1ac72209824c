"""Gives the gauges to prometheus_client and OpenTelemetry, which read them at each scrape."""

import importlib.util
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from semel.database.errors import one_line
from semel.watch.gauges import GAUGES, UP, Gauge, figures

logger = logging.getLogger("semel.watch")


def register(engine: Engine) -> None:
    """Have prometheus_client and OpenTelemetry, if installed, query this database at each scrape. Call it once in a
    process, and in only one process for each database."""
    makers = {"prometheus_client": _with_prometheus, "opentelemetry": _with_opentelemetry}
    installed = [make for module, make in makers.items() if importlib.util.find_spec(module) is not None]
    if not installed:
        raise RuntimeError("nothing collects figures here: pip install 'semel[metrics]', or call semel.watch.gauges")
    for make in installed:
        make(engine)


def known(engine: Engine, names: Collection[str] = tuple(GAUGES)) -> list[Gauge]:
    """The gauges of these names, or only the one that says that the database is away."""
    try:
        return figures(engine, names)
    except SQLAlchemyError as error:
        logger.warning("the database was not asked what waits: %s", one_line(error))
        return [Gauge(UP, {}, 0)]


def _with_prometheus(engine: Engine) -> None:
    from prometheus_client import REGISTRY
    from prometheus_client.metrics_core import GaugeMetricFamily

    class Collector:
        def describe(self) -> Iterable[Any]:
            """Only the names: without this method, the registry would query the database for them on registration."""
            return [GaugeMetricFamily(name, text) for name, text in GAUGES.items()]

        def collect(self) -> Iterator[Any]:
            gauges = known(engine)
            for name, text in GAUGES.items():
                of_name = [gauge for gauge in gauges if gauge.name == name]
                family = GaugeMetricFamily(name, text, labels=tuple(of_name[0].labels) if of_name else ())
                for gauge in of_name:
                    family.add_metric(list(gauge.labels.values()), gauge.value)
                yield family

    REGISTRY.register(Collector())


def _with_opentelemetry(engine: Engine) -> None:
    from opentelemetry import metrics

    def observing(name: str) -> Callable[[Any], Iterator[Any]]:
        def observe(options: Any) -> Iterator[Any]:
            # OpenTelemetry reads each gauge by itself, so each queries only its own value.
            for gauge in known(engine, (name,)):
                if gauge.name == name:
                    yield metrics.Observation(gauge.value, gauge.labels)

        return observe

    meter = metrics.get_meter("semel")
    for name, text in GAUGES.items():
        meter.create_observable_gauge(name, [observing(name)], description=text)
