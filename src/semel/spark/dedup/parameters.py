"""Checks a user's arguments, and says in one sentence what is wrong with them. Nothing here looks at a row."""

import datetime
import re
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import DataType, IntegralType, TimestampType

from semel.spark.dedup.judge import CLAIM_PREFIX
from semel.spark.dedup.outcomes import EXPECTED, OUTCOME

BUCKETS_MAX: Final = 4096
"""Each bucket costs a call of Python in every batch that has rows for it; more buckets than this cost more than
everything else."""

_UNITS_MS: Final = {
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}


def duration_ms(name: str, value: str | datetime.timedelta) -> int:
    """A time such as "10 minutes"."""
    if isinstance(value, datetime.timedelta):
        duration = value // datetime.timedelta(milliseconds=1)
    else:
        match = re.fullmatch(r"\s*(\d+)\s*([a-z]+?)s?\s*", value.lower())
        if match is None or match[2] not in _UNITS_MS:
            raise ValueError(f"{name}={value!r} is no time: it takes a number and one of {', '.join(_UNITS_MS)}")
        duration = int(match[1]) * _UNITS_MS[match[2]]
    if duration <= 0:
        raise ValueError(f"{name}={value!r}: it has to be longer than nothing")
    return duration


def check_frame(df: DataFrame) -> None:
    """Refuses a DataFrame that has a column with the name of one that is added, or two columns of one name."""
    reserved = [name for name in df.columns if name in (OUTCOME, EXPECTED) or name.startswith(CLAIM_PREFIX)]
    if reserved:
        raise ValueError(f"the column {reserved[0]!r} is one that deduplication adds: rename it before")
    doubled = [name for name in df.columns if df.columns.count(name) > 1]
    if doubled:
        raise ValueError(f"there are two columns {doubled[0]!r}: rename one of them before")


def check_buckets(buckets: int) -> None:
    if not 1 <= buckets <= BUCKETS_MAX:
        raise ValueError(f"buckets={buckets}: it has to be 1 to {BUCKETS_MAX}")


def column(df: DataFrame, parameter: str, name: str) -> Column:
    if name not in df.columns:
        raise ValueError(f"{parameter}={name!r}: there is no such column; there are {', '.join(df.columns)}")
    return df["`" + name.replace("`", "``") + "`"]


def integer_column(df: DataFrame, parameter: str, name: str) -> Column:
    _check_type(df, parameter, name, IntegralType, "whole numbers")
    return column(df, parameter, name)


def time_column(df: DataFrame, parameter: str, name: str) -> Column:
    _check_type(df, parameter, name, TimestampType, "timestamps")
    return column(df, parameter, name)


def _check_type(df: DataFrame, parameter: str, name: str, wanted: type[DataType], expected: str) -> None:
    column(df, parameter, name)
    kind = df.schema[name].dataType
    if not isinstance(kind, wanted):
        raise ValueError(f"{parameter}={name!r}: it takes {expected}, and this column has {kind.simpleString()}")
