"""How PostgreSQL changes a value that it stores in a column of a user's own table, by the column's type.

PostgreSQL refuses a value that does not fit, unless it can round it or cut it off: 1.005 in a `numeric(10,2)` becomes
1.01, a timestamp in a `date` loses its hours, a long in a `real` its last digits. If a column's type could change a
value, the batch is refused before a row is written. Nothing here may let a value pass that comes out of the table as
another one. Only for a `varchar(n)` each value is checked, when it is staged, because nearly all values fit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import types as spark_types

from semel.spark.tables.statements import quoted

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_NUMERIC: Final = re.compile(r"numeric\((\d+),(-?\d+)\)")
_PRECISE_MOMENT: Final = re.compile(r"timestamp(\(6\))? with(out)? time zone")
# The only types that respect the time zone in a text.
_ZONED_MOMENT: Final = re.compile(r"timestamp(\(6\))? with time zone")
_MOMENT: Final = re.compile(r"timestamp\b.*|date|time\b.*")
# Spark knows times that are earlier than any of PostgreSQL's.
_EARLIEST_MICROSECONDS: Final = -210_866_803_200_000_000
_MONEY: Final = "money"
# The digits after the point in nearly every locale of a server.
_MONEY_SCALE: Final = 2
_LENGTH_MAX: Final = re.compile(r"character varying\((\d+)\)")
# The name of a constraint of the staging table.
_LIMIT: Final = re.compile(r"semel column (\d+): (.*)")
_CUT: Final = {"name": "keeps the first 63 bytes of a text", '"char"': "keeps the first byte of a text"}
_LENGTH: Final = re.compile(r"character(?! varying).*")
# The digits of a decimal that each type keeps.
_FLOAT_DIGITS: Final = {"real": 6, "double precision": 15}
_BIT_LENGTHS: Final[Mapping[type[DataType], int]] = {
    spark_types.ByteType: 8,
    spark_types.ShortType: 16,
    spark_types.IntegerType: 32,
    spark_types.LongType: 64,
}
# The bits of a whole number that each type keeps.
_FLOAT_BITS: Final = {"real": 24, "double precision": 53}
_TEXTS: Final = (spark_types.StringType, spark_types.VarcharType, spark_types.CharType)
_MOMENTS: Final = (spark_types.TimestampType, spark_types.TimestampNTZType)
_FLOATS: Final = (spark_types.FloatType, spark_types.DoubleType)


def check_columns(table: str, schema: StructType, declared: Mapping[str, str]) -> None:
    """Raises if a column of the table would change a value that is written into it. `declared` has the types of the
    existing columns, as PostgreSQL writes them."""
    for field in schema.fields:
        type_name = declared.get(field.name)
        change = None if type_name is None else _change(field.dataType, type_name)
        if change is not None:
            raise ValueError(
                f"column {field.name!r} is {field.dataType.simpleString()} in the rows and {type_name} in {table}, "
                f"where PostgreSQL {change}: give the column a type that keeps it, or cast the rows (columns=...)"
            )


def staging_types(types: Mapping[str, str], below: Mapping[str, str], counted: Iterable[str]) -> dict[str, str]:
    """The types of the staging table: as in the table, except for a text of limited length, because PostgreSQL would
    cut off the last spaces of a text that is too long, and for the times that are `counted` as microseconds since 1970.
    `below` has the base types of domains."""
    staged = dict(types)
    for number, (name, type_name) in enumerate(types.items(), 1):
        limited = _LENGTH_MAX.fullmatch(below.get(name, type_name))
        if limited is not None:
            fits = f"char_length({quoted(name)}) <= {limited[1]}"
            staged[name] = _limited("text", number, f"over {limited[1]} characters", fits)
        elif name in counted:
            fits = f"{quoted(name)} >= {_EARLIEST_MICROSECONDS}"
            staged[name] = _limited("bigint", number, "before 4714-11-24 BC, where its times begin", fits)
    return staged


def _limited(type_name: str, number: int, reason: str, condition: str) -> str:
    return f"{type_name} CONSTRAINT {quoted(f'semel column {number}: {reason}')} CHECK ({condition})"


def limit_of(constraint: str) -> tuple[int, str] | None:
    """The number of the column that such a constraint limits, and what is said of a value outside; None if it is
    another constraint."""
    found = _LIMIT.fullmatch(constraint)
    return None if found is None else (int(found[1]), found[2])


def _change(kind: DataType, type_name: str) -> str | None:
    """What PostgreSQL would do to the values; None if it changes none, or refuses those that do not fit."""
    numeric = _NUMERIC.fullmatch(type_name)
    if numeric is not None or type_name == _MONEY:
        return _rounding(kind, int(numeric[2]) if numeric is not None else _MONEY_SCALE)
    if type_name in _FLOAT_DIGITS:
        return _loss(kind, type_name)
    if isinstance(kind, _MOMENTS) and _MOMENT.fullmatch(type_name) and not _PRECISE_MOMENT.fullmatch(type_name):
        return "keeps a part of a moment"
    if isinstance(kind, _TEXTS) and _MOMENT.fullmatch(type_name) and not _ZONED_MOMENT.fullmatch(type_name):
        return "keeps a part of the moment in a text"
    if isinstance(kind, _TEXTS) and _LENGTH.fullmatch(type_name):
        return "fills up a text with spaces"
    if isinstance(kind, _TEXTS):
        return _CUT.get(type_name)
    return None


def _rounding(kind: DataType, scale: int) -> str | None:
    has_more_digits = isinstance(kind, spark_types.DecimalType) and kind.scale > scale
    may_have_more = isinstance(kind, (*_FLOATS, *_TEXTS))
    if has_more_digits or may_have_more or (type(kind) in _BIT_LENGTHS and scale < 0):
        return f"rounds to {scale} digits after the point"
    return None


def _loss(kind: DataType, type_name: str) -> str | None:
    if isinstance(kind, spark_types.DecimalType) and kind.precision > _FLOAT_DIGITS[type_name]:
        return f"keeps {_FLOAT_DIGITS[type_name]} digits of a decimal"
    if _BIT_LENGTHS.get(type(kind), 0) > _FLOAT_BITS[type_name]:
        return "makes a floating-point number of it"
    if isinstance(kind, _TEXTS) or (isinstance(kind, spark_types.DoubleType) and type_name == "real"):
        return f"keeps {_FLOAT_DIGITS[type_name]} digits of it"
    return None
