"""Schemas of a registry: what Confluent's serializers wrote becomes columns, and columns become what their
deserializers read.

The driver asks the registry when a query is made; tasks know the schemas. A value is never changed on the way without a
word: what a type does not hold is refused.
"""

from semel.spark.registry.reader import from_registry
from semel.spark.registry.writer import to_registry

__all__ = ["from_registry", "to_registry"]
