"""How SQLite changes a value that it stores in a column of a user's own table, by the column's affinity.

A column whose type has `INT`, `NUM`, `DEC` or the like in its name turns texts that look like numbers into numbers:
`007` becomes 7, and a long decimal becomes a floating-point number with other digits. If that could change a value, the
batch is refused before a row is written. Nothing here may let a value pass that comes out of the table as another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import types as spark_types

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

# The digits of a decimal that a floating-point number keeps.
REAL_DIGITS_MAX: Final = 15
_WORDS: Final = (
    ("INTEGER", ("INT",)),
    ("TEXT", ("CHAR", "CLOB", "TEXT")),
    ("BLOB", ("BLOB",)),
    ("REAL", ("REAL", "FLOA", "DOUB")),
)
_NUMBERS: Final = ("INTEGER", "REAL", "NUMERIC")
_TEXTS: Final = (spark_types.StringType, spark_types.VarcharType, spark_types.CharType)


def affinity_of(declared: str) -> str:
    """The affinity of a declared type, by SQLite's rules in their order (https://sqlite.org/datatype3.html, 3.1)."""
    if not declared:
        return "BLOB"
    names = (name for name, words in _WORDS if any(word in declared.upper() for word in words))
    return next(names, "NUMERIC")


def check_affinities(table: str, schema: StructType, declared: Mapping[str, str]) -> None:
    """Raises if a column of the table would change a value that is written into it. `declared` has the types of the
    columns."""
    for field in schema.fields:
        type_name = declared[field.name]
        change = _change(field.dataType, affinity_of(type_name))
        if change is not None:
            raise ValueError(
                f"column {field.name!r} is {field.dataType.simpleString()} in the rows and {type_name or 'untyped'} in "
                f"{table}, where SQLite {change[0]}: {change[1]}"
            )


def _change(kind: DataType, affinity: str) -> tuple[str, str] | None:
    """What SQLite would do to the values, and the remedy; None if it changes none."""
    if isinstance(kind, spark_types.DecimalType):
        if affinity in _NUMBERS and kind.precision > REAL_DIGITS_MAX:
            return (
                f"keeps {REAL_DIGITS_MAX} digits of a decimal",
                f"make the column TEXT, or cast to a decimal of {REAL_DIGITS_MAX} digits at most",
            )
    elif isinstance(kind, _TEXTS):
        if affinity in _NUMBERS:
            return "makes a number of a text that looks like one (007 is 7)", "make the column TEXT, or cast"
    elif isinstance(kind, spark_types.LongType):
        if affinity == "REAL":
            return "makes a floating-point number of it", "make the column INTEGER, or cast"
    elif isinstance(kind, spark_types.DoubleType) and affinity == "TEXT":
        return f"keeps {REAL_DIGITS_MAX} digits of it, as text", "make the column REAL, or cast"
    return None
