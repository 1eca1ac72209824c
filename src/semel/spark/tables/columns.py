"""The SQL type for each type of Spark, and how values are converted before they leave Spark.

A column of a type that is missing here is refused by its name, and never written as something else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import types as spark_types

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Exact types, not their subclasses: a type that is not listed is refused.
POSTGRES_TYPES: dict[type[spark_types.DataType], str] = {
    spark_types.BooleanType: "boolean",
    spark_types.ByteType: "smallint",
    spark_types.ShortType: "smallint",
    spark_types.IntegerType: "integer",
    spark_types.LongType: "bigint",
    spark_types.FloatType: "real",
    spark_types.DoubleType: "double precision",
    spark_types.StringType: "text",
    spark_types.VarcharType: "text",
    spark_types.CharType: "text",
    spark_types.BinaryType: "bytea",
    spark_types.DecimalType: "numeric({precision},{scale})",
    spark_types.DateType: "date",
    spark_types.TimestampType: "timestamp with time zone",
    spark_types.TimestampNTZType: "timestamp without time zone",
    spark_types.ArrayType: "jsonb",
    spark_types.MapType: "jsonb",
    spark_types.StructType: "jsonb",
}
SQLITE_TYPES: dict[type[spark_types.DataType], str] = {
    **dict.fromkeys(POSTGRES_TYPES, "TEXT"),
    spark_types.BooleanType: "INTEGER",
    spark_types.ByteType: "INTEGER",
    spark_types.ShortType: "INTEGER",
    spark_types.IntegerType: "INTEGER",
    spark_types.LongType: "INTEGER",
    spark_types.FloatType: "REAL",
    spark_types.DoubleType: "REAL",
    spark_types.BinaryType: "BLOB",
    # It has no exact decimal: text keeps all digits, a number would not.
    spark_types.DecimalType: "TEXT",
}
MYSQL_TYPES: dict[type[spark_types.DataType], str] = {
    **POSTGRES_TYPES,
    **dict.fromkeys((spark_types.StringType, spark_types.VarcharType, spark_types.CharType), "longtext"),
    # A FLOAT would be shown with six digits.
    **dict.fromkeys((spark_types.FloatType, spark_types.DoubleType), "double"),
    **dict.fromkeys((spark_types.TimestampType, spark_types.TimestampNTZType), "datetime(6)"),
    **dict.fromkeys((spark_types.ArrayType, spark_types.MapType, spark_types.StructType), "json"),
    spark_types.BinaryType: "longblob",
}
TIMESTAMPS = (spark_types.TimestampType, spark_types.TimestampNTZType)
# In JSON, timestamps are text. By default Spark cuts them off after the millisecond, and writes them in the session's
# zone.
JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
NESTED = (spark_types.ArrayType, spark_types.MapType, spark_types.StructType)


def types_of(schema: spark_types.StructType, types: dict[type[spark_types.DataType], str]) -> dict[str, str]:
    """The SQL type of each column, by its name."""
    names = schema.fieldNames()
    doubled = [name for name in names if names.count(name) > 1]
    if doubled:
        raise ValueError(f"the rows have two columns {doubled[0]!r}: rename one, or leave it out (columns=...)")
    return {field.name: type_of(field, types) for field in schema.fields}


def type_of(field: spark_types.StructField, types: dict[type[spark_types.DataType], str]) -> str:
    kind = field.dataType
    sql_type = types.get(type(kind))
    if sql_type is None:
        raise ValueError(
            f"column {field.name!r} is of type {kind.simpleString()}, which no SQL type here stands for: cast it, or "
            "leave it out (columns=...)"
        )
    if isinstance(kind, spark_types.DecimalType):
        return sql_type.format(precision=kind.precision, scale=kind.scale)
    return sql_type


def in_hexadecimal(column: Column) -> Column:
    """Bytes as digits, as PostgreSQL writes them."""
    from pyspark.sql import functions as f

    return f.concat(f.lit("\\x"), f.hex(column))


def travelling(rows: DataFrame, binary: Callable[[Column], Column] | None = None) -> DataFrame:
    """The rows with each nested value as JSON, and each binary value converted by `binary`."""
    from pyspark.sql import functions as f

    def travels(field: spark_types.StructField) -> Column:
        column = rows[f"`{field.name.replace('`', '``')}`"]
        if isinstance(field.dataType, NESTED):
            return f.to_json(column, JSON_OPTIONS).alias(field.name)
        if isinstance(field.dataType, spark_types.BinaryType) and binary is not None:
            return binary(column).alias(field.name)
        return column

    return rows.select([travels(field) for field in rows.schema.fields])
