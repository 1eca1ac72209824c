"""`from_registry`: values that a serializer of Confluent's wrote become a column with the fields of their schema.

The schema of the reader makes the column, and each version of the subject is compared with it before a row is read: a
version whose values the column would not hold is refused then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from semel.spark.columns_by_number import map_in_arrow
from semel.spark.counts import counted
from semel.spark.dedup.parameters import column as named
from semel.spark.registry import json_schema
from semel.spark.registry.avro import parsed
from semel.spark.registry.client import Registered, RegistryRefused, about, registry_at
from semel.spark.registry.decoder import decoder
from semel.spark.registry.frames import RAW, REASON, FromAvro
from semel.spark.tables.bad_rows import checked_choice
from semel.spark.tables.file_rows import column_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LATEST: Final = "latest"
# Where a record is from, if the rows say so.
_PLACE: Final = ("topic", "partition", "offset")


def from_registry(
    df: DataFrame,
    url: str,
    *,
    subject: str,
    column: str = "value",
    schema: str | int = LATEST,
    without: Sequence[str] = (),
    on_bad_row: str = "fail",
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The rows with the bytes in `column` replaced by what they say: values of Avro or JSON Schema, each after the id
    of a version of `subject` (usually the topic's name and `-value`).

    `schema` is that of the reader, which makes the column: the newest version (`"latest"`), the number of a version, or
    its text. A version that has a field which the reader's schema lacks, or a type that its type does not hold, is
    refused when the query is made; `without` names fields that may be left out. The registry is asked then, too: a
    version that is registered later is unknown until the query starts again.

    A value without an id, with an id that is unknown, or whose bytes do not fit its version ends the query, and the
    error names its place. With `on_bad_row="quarantine"` it is null, and two more columns say why (`reason`) and what
    the bytes are (`raw`); for all other rows these are null. `options` are `basic.auth.user.info`, `bearer.auth.token`,
    `ssl.ca.location`, `ssl.certificate.location`, `ssl.key.location`, `ssl.key.password`, `timeout` in seconds (10) and
    `max.retries` (3).
    """
    checked_choice(on_bad_row)
    check_columns(df, column)
    registry = registry_at(url, options or {})
    versions = registry.versions(subject)
    newest = {version.version: version for version in versions}
    kind = kind_of(versions, subject)
    if schema == LATEST:
        schema = registry.latest(subject)
    if isinstance(schema, int) and schema not in newest:
        raise RegistryRefused(f"subject {subject} has no version {schema}, only {', '.join(map(str, newest))}")
    reader = newest[schema] if isinstance(schema, int) else Registered(-1, 0, kind, (schema,))
    read = _from_avro if kind == "AVRO" else json_schema.read
    rows = read(df, column, subject, versions, reader, tuple(without))
    return _judged(rows, column, on_bad_row)


def kind_of(versions: Sequence[Registered], subject: str) -> str:
    """The kind of all schemas of a subject; raises unless they are of one kind that can be read."""
    kinds = sorted({version.kind for version in versions})
    if kinds not in (["AVRO"], ["JSON"]):
        raise RegistryRefused(
            f"subject {subject} has schemas of {' and '.join(kinds) or 'no kind'}: Avro is supported, and JSON Schema; "
            "for Protobuf take the bytes from the sixth on, and Spark's from_protobuf"
        )
    return kinds[0]


def check_columns(df: DataFrame, column: str) -> None:
    named(df, "column", column)
    if df.schema[column].dataType.typeName() != "binary":
        raise ValueError(f"column={column!r} is {df.schema[column].dataType.simpleString()}: it has to be binary")
    taken = [name for name in df.columns if name in (REASON, RAW)]
    if taken:
        raise ValueError(f"the column {taken[0]!r} is one that from_registry adds: rename it before")


def _from_avro(
    df: DataFrame,
    column: str,
    subject: str,
    versions: Sequence[Registered],
    reader: Registered,
    without: tuple[str, ...],
) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    wanted = parsed(reader.texts)
    for version in versions:
        with about(subject, version):
            decoder(parsed(version.texts), wanted, without)
    value = StructField(column, from_arrow_type(wanted.type))
    fields = [value if field.name == column else field for field in df.schema.fields]
    added = [StructField(REASON, StringType()), StructField(RAW, BinaryType())]
    task = FromAvro(column, subject, tuple(versions), reader.texts, without)
    return map_in_arrow(df, task, StructType([*fields, *added]))


def _judged(rows: DataFrame, column: str, on_bad_row: str) -> DataFrame:
    from pyspark.sql import functions as f

    if on_bad_row == "quarantine":
        counts = {"accepted": f"{REASON} IS NULL", "undecodable": f"{REASON} IS NOT NULL"}
        return counted(rows, f"registry.{column}", counts) if rows.isStreaming else rows
    place: list[Column] = []
    if all(name in rows.columns for name in _PLACE):
        topic, partition, offset = (f.col(name).cast("string") for name in _PLACE)
        place = [topic, f.lit("-"), partition, f.lit(", offset "), offset, f.lit(": ")]
    remedy = (
        ". Start the query again if the schema was registered since, or have such rows marked (on_bad_row='quarantine')"
    )
    refusal = f.raise_error(f.concat(*place, f.col(REASON), f.lit(remedy)))
    value = column_of(column)
    checked = f.when(f.col(REASON).isNotNull(), refusal.cast(rows.schema[column].dataType)).otherwise(value)
    return rows.withColumn(column, checked).drop(REASON, RAW)
