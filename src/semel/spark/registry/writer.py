"""`to_registry`: a column becomes values that Confluent's deserializers read, under a version of a subject."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.types import BinaryType, StructField, StructType

from semel.spark.columns_by_number import map_in_arrow
from semel.spark.dedup.parameters import column as named
from semel.spark.registry import json_schema
from semel.spark.registry.avro import parsed
from semel.spark.registry.client import Registered, RegistryRefused, about, registry_at
from semel.spark.registry.encoder import check
from semel.spark.registry.frames import ToAvro
from semel.spark.registry.reader import LATEST
from semel.spark.versions import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def to_registry(
    df: DataFrame,
    url: str,
    *,
    subject: str,
    column: str = "value",
    schema: str | int = LATEST,
    register: bool = False,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The rows with the values in `column` replaced by the bytes that Confluent's deserializers read: Avro or JSON,
    after the id of a version of `subject`. Null stays null.

    `schema` is the newest version (`"latest"`), the number of a version, or the text of a schema, which has to be
    registered already, unless `register=True`. Fields go by their names. A column without a field, a required field
    without a column, and a type that the field does not hold are refused when the query is made; a row with a value
    that the schema does not allow ends the query. `options` are those of `from_registry`.
    """
    named(df, "column", column)
    registry = registry_at(url, options or {})
    if isinstance(schema, str) and schema != LATEST:
        kind = json_schema.kind_of_text(schema)
        chosen = Registered(registry.id_of(subject, schema, kind, register=register), 0, kind, (schema,))
    else:
        chosen = registry.version(subject, registry.latest(subject) if schema == LATEST else int(schema))
    if chosen.kind not in ("AVRO", "JSON"):
        raise RegistryRefused(f"subject {subject} has schemas of {chosen.kind}: Avro is supported, and JSON Schema")
    with about(subject, chosen):
        if chosen.kind == "JSON":
            return json_schema.write(df, column, chosen)
        check(parsed(chosen.texts), arrow_schema(df.schema, "UTC").field(df.columns.index(column)).type)
    fields = [StructField(column, BinaryType()) if field.name == column else field for field in df.schema.fields]
    return map_in_arrow(df, ToAvro(column, chosen), StructType(fields))
