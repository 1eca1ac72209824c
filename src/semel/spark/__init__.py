"""The pipeline: each record of the log becomes exactly one row, on any Spark cluster, from semel or Apache Kafka.

`spark.readStream.format("semel")` and `df.writeStream.format("semel")` need no import of this package; it holds what
these formats do not offer. The claim of a sink is (sink, batch), and it commits with the rows. This room may read the
wire format and use the rules of producers, and must depend on nothing else of the broker.
"""

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if importlib.util.find_spec("pyspark") is None:
    raise ImportError("semel.spark needs PySpark, which is missing: pip install 'semel[spark]'")

if TYPE_CHECKING:
    from semel.spark.dedup import accepted, dedup, dedup_by_id, dedup_by_version, quarantined
    from semel.spark.errors import error_of
    from semel.spark.lanes.assignment import lanes
    from semel.spark.lanes.log_sink import log_sink
    from semel.spark.registry import from_registry, to_registry
    from semel.spark.session import session
    from semel.spark.tables.delta_sink import delta_sink
    from semel.spark.tables.fan_out import fan_out
    from semel.spark.tables.iceberg_sink import iceberg_sink
    from semel.spark.tables.sql_sink import sql_sink

__all__ = [
    "accepted",
    "dedup",
    "dedup_by_id",
    "dedup_by_version",
    "delta_sink",
    "error_of",
    "fan_out",
    "from_registry",
    "iceberg_sink",
    "lanes",
    "log_sink",
    "quarantined",
    "session",
    "sql_sink",
    "to_registry",
]

# The module of each name. A module is imported when its name is used, because every process that Spark starts to plan
# or to read imports this package and needs none of these names.
_HOMES: Final = {
    "accepted": "semel.spark.dedup",
    "dedup": "semel.spark.dedup",
    "dedup_by_id": "semel.spark.dedup",
    "dedup_by_version": "semel.spark.dedup",
    "delta_sink": "semel.spark.tables.delta_sink",
    "error_of": "semel.spark.errors",
    "fan_out": "semel.spark.tables.fan_out",
    "from_registry": "semel.spark.registry",
    "iceberg_sink": "semel.spark.tables.iceberg_sink",
    "lanes": "semel.spark.lanes.assignment",
    "log_sink": "semel.spark.lanes.log_sink",
    "quarantined": "semel.spark.dedup",
    "session": "semel.spark.session",
    "sql_sink": "semel.spark.tables.sql_sink",
    "to_registry": "semel.spark.registry",
}


class _Face(ModuleType):
    """Some functions have the same name as their package; without this class, importing the package would replace the
    function."""

    def __getattr__(self, name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        # It says which Spark is too old, before anything else fails there.
        importlib.import_module("semel.spark.versions")
        return getattr(importlib.import_module(_HOMES[name]), name)

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Face
