"""The row of the log as a Spark schema: which columns a query gets, and whether their types are right.

A schema that the user gives (`.schema("value binary, offset long")`) chooses columns, in any order; a column that it
does not name is never decoded.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from semel.spark.source.errors import OptionRefused
from semel.spark.source.options import SourceOptions

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_KAFKAS: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
}
_HEADERS: Final[dict[str, DataType]] = {"headers": ArrayType(_HEADER)}
_PRODUCER: Final[dict[str, DataType]] = {
    "producer_id": LongType(),
    "producer_epoch": IntegerType(),
    "sequence": IntegerType(),
}
# All columns.
COLUMNS: Final = _KAFKAS | _HEADERS | _PRODUCER


def schema_of(options: SourceOptions) -> StructType:
    """The columns of a query that chooses none."""
    columns = _KAFKAS
    if options.includes_headers:
        columns = columns | _HEADERS
    if options.includes_producer:
        columns = columns | _PRODUCER
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def chosen_columns(schema: StructType) -> Sequence[str]:
    """The names of the columns of a schema, if all of them exist."""
    for field in schema.fields:
        if field.name not in COLUMNS:
            raise OptionRefused(f"there is no column {field.name}; there are {', '.join(COLUMNS)}")
        if field != StructField(field.name, COLUMNS[field.name]):
            needed = COLUMNS[field.name].simpleString()
            type_name = field.dataType.simpleString() + ("" if field.nullable else " not null")
            raise OptionRefused(f"column {field.name} is of type {needed}, and not {type_name}")
    return schema.fieldNames()
