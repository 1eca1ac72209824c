"""Makes the key of a producer, an event or an aggregate: 128 bits of what the columns mean, not of how they are stored.

The state holds only keys, not names, and Spark's own check of the state sees no keys, only buckets. So a key must never
depend on anything that may change while the state stays, such as the width of a whole number or the time zone of the
session; everything else that would change it, such as the kind of each column, is pinned. Strangers may choose names,
so the hash must be one for which nobody can find two names with the same key: rows of the second would be called
duplicates of the first.
"""

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from semel.spark.dedup import parameters
from semel.spark.dedup.judge import CLAIM_PREFIX, KEY_HIGH, KEY_LOW

WHOLE_NUMBER: Final = "whole number"
TEXT: Final = "text"

_DIGEST: Final = f"{CLAIM_PREFIX}digest"
_SECOND_SEED: Final = 1
_HASH_BITS: Final = 256
_PLAIN_TEXT: Final = ("string", "string collate UTF8_BINARY")
# JSON has timestamps as text: exact, and independent of the session's time zone.
_JSON_OPTIONS: Final = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def kinds(df: DataFrame, names: Sequence[str]) -> dict[str, str]:
    """The kind that each of these columns has in a key. It must not change, or every key would change."""
    return {name: _kind(df.schema[name].dataType) for name in names}


def keyed(df: DataFrame, parameter: str, names: Sequence[str], needed: Sequence[str]) -> DataFrame:
    """The rows with both halves of the key of these columns. The key is null if one of the `needed` columns is null,
    because such a row makes no claim; in the key itself, a null differs from every value."""
    for name in names:
        parameters.column(df, parameter, name)
        reason = _unfit(df.schema[name].dataType)
        if reason:
            raise ValueError(f"{parameter}={name!r}: {reason}")
    values = [_as_bytes(parameters.column(df, parameter, name), df.schema[name].dataType) for name in names]
    named = values[0] if len(values) == 1 else F.concat(*map(_marked_off, values))
    # In a separate step, because Spark would otherwise compute the hash for each half.
    is_claim = reduce(and_, (parameters.column(df, parameter, name).isNotNull() for name in needed))
    hashed = df.select("*", F.when(is_claim, F.sha2(named, _HASH_BITS)).alias(_DIGEST))
    digest, is_there = F.col(_DIGEST), F.col(_DIGEST).isNotNull()
    return hashed.select(
        "*",
        F.when(is_there, F.xxhash64(digest)).alias(KEY_HIGH),
        F.when(is_there, F.xxhash64(F.lit(_SECOND_SEED), digest)).alias(KEY_LOW),
    ).drop(_DIGEST)


def _kind(type_: DataType) -> str:
    if isinstance(type_, IntegralType):
        return WHOLE_NUMBER
    return TEXT if isinstance(type_, (BinaryType, StringType)) else type_.simpleString()


def _as_bytes(column: Column, type_: DataType) -> Column:
    """Bytes that are equal for equal values of one kind, and differ for different values."""
    if isinstance(type_, BinaryType):
        return column
    if isinstance(type_, TimestampType):
        column = F.unix_micros(column)
    elif isinstance(type_, (FloatType, DoubleType)):
        # This makes -0.0 and 0.0, which are equal, the same bytes.
        column = column + F.lit(0.0)
    elif isinstance(type_, (ArrayType, StructType)):
        column = F.to_json(column, _JSON_OPTIONS)
    return column.cast("string").cast("binary")


def _marked_off(value: Column) -> Column:
    """The value after its length, so that the border between two values is part of the key."""
    marked = F.concat(F.length(value).cast("string").cast("binary"), F.lit(b":"), value)
    return F.coalesce(marked, F.lit(b"-"))


def _unfit(type_: DataType) -> str | None:
    """Why values of this type cannot name anything."""
    if isinstance(type_, MapType):
        return "a map has no order, and cannot name anything"
    if isinstance(type_, StringType) and type_.simpleString() not in _PLAIN_TEXT:
        return (
            f"a {type_.simpleString()} takes different texts for the same: name by what makes them one, as lower(...)"
        )
    if isinstance(type_, ArrayType):
        return _unfit(type_.elementType)
    if isinstance(type_, StructType):
        return next(filter(None, (_unfit(field.dataType) for field in type_.fields)), None)
    return None
