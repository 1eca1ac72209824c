"""Which columns of MySQL and MariaDB keep a value of Spark as it is, and which texts they compare byte by byte.

Even in strict mode the server rounds, cuts off spaces, and takes `a` for `A`, without a word. So this module lists what
is known to keep a value, and everything else is refused before a row is written. Nothing here may let a value pass that
comes out of the table as another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import types as spark_types

from semel.spark.tables.columns import MYSQL_TYPES, types_of

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

# What all columns of an index may have together, and how much of that a number or a time takes at most.
_INDEX_BYTES_MAX: Final = 3072
_OTHER_BYTES_MAX: Final = 32
_CHARACTER_BYTES_MAX: Final = 4

_SHORT_TEXTS: Final = ("varchar",)
_LONG_TEXTS: Final = ("tinytext", "text", "mediumtext", "longtext")
_BYTES: Final = ("varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_INTEGERS: Final = ("tinyint", "smallint", "mediumint", "int", "bigint")
_FLOAT_DIGITS: Final = {"float": 6, "double": 15}
_FLOAT_BITS: Final = {"float": 24, "double": 53}
_BIT_LENGTHS: Final[Mapping[type[DataType], int]] = {
    spark_types.BooleanType: 1,
    spark_types.ByteType: 8,
    spark_types.ShortType: 16,
    spark_types.IntegerType: 32,
    spark_types.LongType: 64,
}
_TEXTS: Final = (spark_types.StringType, spark_types.VarcharType, spark_types.CharType)
_NESTED: Final = (spark_types.ArrayType, spark_types.MapType, spark_types.StructType)
_MICROSECONDS: Final = 6
# How the names of collations end that compare byte by byte, spaces at the end included.
_BYTEWISE: Final = ("_nopad_bin", "_0900_bin")


@dataclass(frozen=True)
class Column:
    """A column of the table, as the server describes it."""

    name: str
    kind: str
    declared: str
    characters_max: int | None = None
    bytes_max: int | None = None
    scale: int | None = None
    fraction: int | None = None
    collation: str | None = None
    is_needed: bool = False
    """Whether it refuses null, or would put something else in its place."""

    is_generated: bool = False
    """Whether the server computes it."""

    @property
    def is_text(self) -> bool:
        return self.kind in (*_SHORT_TEXTS, *_LONG_TEXTS)

    @property
    def is_bytewise(self) -> bool:
        return self.collation is None or self.collation.endswith(_BYTEWISE)


def table_types(schema: StructType, key: Iterable[str], collation: str) -> dict[str, str]:
    """The types of a table that the sink makes. A text or bytes in a key have a length, because an index has one."""
    texts = f"CHARACTER SET utf8mb4 COLLATE {collation}"
    types = types_of(schema, MYSQL_TYPES)
    long = [name for name in types if name in key and types[name] in ("longtext", "longblob")]
    others = sum(1 for name in types if name in key and name not in long)
    for name in long:
        bytes_max = (_INDEX_BYTES_MAX - others * _OTHER_BYTES_MAX) // len(long)
        is_text = types[name] == "longtext"
        types[name] = f"varchar({bytes_max // _CHARACTER_BYTES_MAX})" if is_text else f"varbinary({bytes_max})"
    return {
        name: f"{type_} {texts}" if type_ == "longtext" or type_.startswith("varchar") else type_
        for name, type_ in types.items()
    }


def staging_types(schema: StructType, collation: str) -> dict[str, str]:
    """Those of the rows, whatever the table has: the values arrive there as they are."""
    types = types_of(schema, {**MYSQL_TYPES, **dict.fromkeys(_NESTED, "longtext")})
    texts = f" CHARACTER SET utf8mb4 COLLATE {collation}"
    return {name: type_ + texts * (type_ == "longtext") for name, type_ in types.items()}


def schema_of(types: Mapping[str, str]) -> StructType:
    """The types of Spark whose values such columns keep."""
    kinds = {"bigint": spark_types.LongType(), "datetime(6)": spark_types.TimestampNTZType()}
    text = spark_types.StringType()
    return spark_types.StructType(
        [spark_types.StructField(name, kinds.get(type_, text)) for name, type_ in types.items()]
    )


def check_columns(table: str, schema: StructType, columns: Mapping[str, Column]) -> None:
    """Raises if a column of the table could change a value that is written into it."""
    for field in schema.fields:
        column = columns.get(field.name)
        if column is not None and not keeps(field.dataType, column):
            raise ValueError(
                f"column {field.name!r} is {field.dataType.simpleString()} in the rows and {column.declared} in "
                f"{table}, where MySQL and MariaDB may change a value or refuse all: give the column a type that keeps "
                "it, or cast the rows (columns=...)"
            )


def check_key(table: str, key: Iterable[str], columns: Mapping[str, Column], collation: str) -> None:
    """Raises if the table takes two keys for one that are not."""
    for name in key:
        column = columns[name]
        if not column.is_bytewise:
            raise ValueError(
                f"key column {name!r} of {table} is compared by {column.collation}, which takes different texts for "
                f"one: ALTER TABLE {table} MODIFY {name} {column.declared} CHARACTER SET utf8mb4 COLLATE {collation}"
            )


def keeps(kind: DataType, column: Column) -> bool:
    """Whether each value of this type is in the column afterwards as it was, or is refused."""
    if column.kind in _FLOAT_DIGITS and column.scale is not None:
        # double(10,2) rounds.
        is_kept = False
    elif type(kind) in _BIT_LENGTHS:
        bits = _BIT_LENGTHS[type(kind)]
        is_kept = column.kind in (*_INTEGERS, "decimal") or bits <= _FLOAT_BITS.get(column.kind, 0)
    elif isinstance(kind, spark_types.DecimalType):
        is_exact = column.kind == "decimal" and kind.scale <= (column.scale or 0)
        is_whole = column.kind in _INTEGERS and kind.scale == 0
        is_kept = is_exact or is_whole or kind.precision <= _FLOAT_DIGITS.get(column.kind, 0)
    elif isinstance(kind, spark_types.FloatType):
        is_kept = column.kind in _FLOAT_DIGITS
    elif isinstance(kind, spark_types.DoubleType):
        is_kept = column.kind == "double"
    elif isinstance(kind, _TEXTS):
        is_kept = column.is_text or column.kind in (*_BYTES, "json")
    elif isinstance(kind, _NESTED):
        is_kept = column.is_text or column.kind == "json"
    elif isinstance(kind, spark_types.BinaryType):
        is_kept = column.kind in _BYTES
    elif isinstance(kind, spark_types.DateType):
        is_kept = column.kind in ("date", "datetime")
    else:
        kinds = ("datetime", "timestamp") if isinstance(kind, spark_types.TimestampType) else ("datetime",)
        is_kept = column.kind in kinds and column.fraction == _MICROSECONDS
    return is_kept
