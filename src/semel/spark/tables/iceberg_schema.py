"""Which rows fit an Iceberg table, how one is made and widened, and which tables the sink cannot write into.

Nothing here may let rows into a table in which a reader would find other values than the rows have.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types as spark_types

from semel.spark.tables.delta_schema import listed
from semel.spark.tables.files import COMMITS_MAX
from semel.spark.tables.iceberg_claims import MAIN

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.transforms import Transform

# How a partition is written: `day(at)`, `bucket(16, account)`, or the name of a column alone.
BY_TIME: Final = re.compile(r"(year|month|day|hour)\((.+)\)")
BY_NUMBER: Final = re.compile(r"(bucket|truncate)\(\s*([0-9]+)\s*,\s*(.+)\)")
# Iceberg numbers the fields of partitions from here on.
FIRST_PARTITION_FIELD: Final = 1000
# In the first format no number tells which of two snapshots is the older one.
FORMAT_MIN: Final = 2
# The names of Iceberg's types; exact types of Spark, not their subclasses.
SIMPLE: Final[dict[type[spark_types.DataType], str]] = {
    spark_types.BooleanType: "BooleanType",
    spark_types.ByteType: "IntegerType",
    spark_types.ShortType: "IntegerType",
    spark_types.IntegerType: "IntegerType",
    spark_types.LongType: "LongType",
    spark_types.FloatType: "FloatType",
    spark_types.DoubleType: "DoubleType",
    spark_types.StringType: "StringType",
    spark_types.VarcharType: "StringType",
    spark_types.CharType: "StringType",
    spark_types.BinaryType: "BinaryType",
    spark_types.DateType: "DateType",
    spark_types.TimestampType: "TimestamptzType",
    spark_types.TimestampNTZType: "TimestampType",
}


def schema_of(rows: spark_types.StructType) -> Schema:
    """The columns of the rows as Iceberg's, all optional: a later batch may lack what the first one had."""
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

    names = rows.fieldNames()
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the rows have two columns {name!r}: rename one, or leave it out (columns=...)")
    numbers = itertools.count(1)
    # The columns come first, as Iceberg numbers them itself.
    numbered = [(next(numbers), field) for field in rows.fields]
    return Schema(*(NestedField(number, one.name, type_of(one, one.dataType, numbers)) for number, one in numbered))


def type_of(column: spark_types.StructField, kind: spark_types.DataType, numbers: Iterator[int]) -> Any:
    from pyiceberg import types

    if isinstance(kind, spark_types.ArrayType):
        element = next(numbers)
        return types.ListType(element, type_of(column, kind.elementType, numbers), element_required=False)
    if isinstance(kind, spark_types.MapType):
        key, value = next(numbers), next(numbers)
        inner = type_of(column, kind.keyType, numbers), type_of(column, kind.valueType, numbers)
        return types.MapType(key, inner[0], value, inner[1], value_required=False)
    if isinstance(kind, spark_types.StructType):
        numbered = [(next(numbers), field) for field in kind.fields]
        fields = (
            types.NestedField(number, one.name, type_of(column, one.dataType, numbers)) for number, one in numbered
        )
        return types.StructType(*fields)
    if isinstance(kind, spark_types.DecimalType):
        return types.DecimalType(kind.precision, kind.scale)
    if (name := SIMPLE.get(type(kind))) is None:
        raise ValueError(
            f"column {column.name!r} is of type {column.dataType.simpleString()}, which this sink has no type of "
            "Iceberg for: cast it, or leave it out (columns=...)"
        )
    return getattr(types, name)()


def opened(
    catalog: Catalog, name: str, branch: str, schema: Schema, partition_by: Sequence[str], *, add_columns: bool
) -> Table:
    """The table as it is now, with the columns that were to be added; raises if the rows do not fit it."""
    from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

    try:
        table = catalog.load_table(name)
    except NoSuchTableError:
        partitions = spec_of(schema, partition_by)
        catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
        try:
            table = catalog.create_table(name, schema, partition_spec=partitions)
        except TableAlreadyExistsError:
            table = catalog.load_table(name)
    check_table(table, name, branch, partition_by)
    if add_columns:
        table = with_columns(catalog, table, name, schema)
    check_columns(table.schema(), schema, name)
    check_partitions(table, schema, name)
    return table


def with_columns(catalog: Catalog, table: Table, name: str, wanted: Schema) -> Table:
    """The table with the columns that it lacked. They are added in a commit of their own, and stay if the batch
    fails."""
    from pyiceberg.exceptions import CommitFailedException

    for _ in range(COMMITS_MAX):
        has = {field.name for field in table.schema().fields}
        new = [field for field in wanted.fields if field.name not in has]
        if not new:
            break
        try:
            with table.update_schema() as update:
                for field in new:
                    update.add_column((field.name,), field.field_type)
        except CommitFailedException:
            # Another writer came first, and may have added them.
            pass
        table = catalog.load_table(name)
    return table


def check_table(table: Table, name: str, branch: str, partition_by: Sequence[str]) -> None:
    """Raises if this sink cannot write into the table, whatever the rows are."""
    if table.format_version < FORMAT_MIN:
        raise ValueError(
            f"{name} has format version {table.format_version}, in which nobody can tell whether it was rolled back: "
            f"raise the table property format-version to {FORMAT_MIN}"
        )
    refs = table.metadata.refs
    if branch != MAIN and (branch not in refs or refs[branch].snapshot_ref_type != "branch"):
        raise ValueError(
            f"{name} has no branch {branch!r}. Make it from the snapshot on which it is to stand: "
            f"table.manage_snapshots().create_branch(snapshot_id, {branch!r}).commit()"
        )
    has = [written_as(table.schema().find_column_name(one.source_id), one.transform) for one in table.spec().fields]
    wanted = [written_as(*parsed(text, table.schema())) for text in partition_by]
    if wanted and has != wanted:
        raise ValueError(
            f"{name} is partitioned by {listed(has)}, and partition_by is {listed(wanted)}: leave it out, "
            "and the sink writes as the table says"
        )


def check_columns(table: Schema, rows: Schema, name: str) -> None:
    """Refuses rows that have a column more than the table, or one of another type. A column that only the table has is
    null in these rows, as in SQL."""
    has = {field.name: field for field in table.fields}
    for field in rows.fields:
        if field.name not in has:
            raise ValueError(
                f"{name} has no column {field.name!r}: it has {listed([*has])}. Nothing was written. Add it "
                f"(add_columns=True, or table.update_schema().add_column({field.name!r}, ...)), or leave it out "
                "(columns=...)"
            )
        if (kind := shape(field.field_type)) != (there := shape(has[field.name].field_type)):
            raise ValueError(
                f"column {field.name!r} is {kind} in the rows and {there} in {name}. Nothing was written. Cast it "
                "(columns=...)"
            )
    names = {field.name for field in rows.fields}
    if missing := [field.name for field in table.fields if field.required and field.name not in names]:
        raise ValueError(f"{name} requires {listed(missing)}, and the rows have no such column. Nothing was written")


def check_partitions(table: Table, rows: Schema, name: str) -> None:
    """Refuses rows whose partition nobody could compute."""
    names = {field.name for field in rows.fields}
    for field in table.spec().fields:
        source = table.schema().find_column_name(field.source_id) or ""
        if source not in names:
            raise ValueError(
                f"{name} is partitioned by {source!r}, and the rows have no such column: {listed([*names])}"
            )
        kind = table.schema().find_type(field.source_id)
        check_exact(source, kind)
        try:
            field.transform.pyarrow_transform(kind)
        except (ImportError, ModuleNotFoundError) as error:
            raise ImportError(f"partitions by bucket and truncate need pyiceberg-core: {error}") from None
        except (NotImplementedError, ValueError) as error:
            raise ValueError(f"{name} is partitioned by {written_as(source, field.transform)}: {error}") from None


def spec_of(schema: Schema, partition_by: Sequence[str]) -> PartitionSpec:
    from pyiceberg.partitioning import PartitionField, PartitionSpec

    fields = []
    for number, text in enumerate(partition_by):
        source, transform = parsed(text, schema)
        kind = str(transform).partition("[")[0]
        # As Spark names them.
        name = source if kind == "identity" else f"{source}_{kind.replace('truncate', 'trunc')}"
        numbers = schema.find_field(source).field_id, FIRST_PARTITION_FIELD + number
        fields.append(PartitionField(*numbers, transform, name))
    return PartitionSpec(*fields)


def parsed(text: str, schema: Schema) -> tuple[str, Transform[Any, Any]]:
    """The column and what is taken of it. A column of this very name comes first."""
    from pyiceberg.transforms import IdentityTransform, parse_transform

    names = [field.name for field in schema.fields]
    source: str = text
    transform: Transform[Any, Any] = IdentityTransform()
    if text not in names and (found := BY_TIME.fullmatch(text)):
        source, transform = found[2], parse_transform(found[1])
    elif text not in names and (found := BY_NUMBER.fullmatch(text)):
        source, transform = found[3], parse_transform(f"{found[1]}[{found[2]}]")
    if source not in names:
        raise ValueError(
            f"partition_by=... names {source!r}, and there is no such column: {listed(names)}. It takes the name of a "
            "column, year(...), month(...), day(...), hour(...), bucket(16, ...) or truncate(4, ...)"
        )
    if not transform.can_transform(schema.find_type(schema.find_field(source).field_id)):
        kind = schema.find_field(source).field_type
        raise ValueError(f"partition_by={text!r}: {source!r} is {kind}, which has no such part")
    check_exact(source, schema.find_type(schema.find_field(source).field_id))
    return source, transform


def check_exact(source: str, kind: Any) -> None:
    """The library would write rows with 0.0 and -0.0 twice, and could not write one with NaN."""
    from pyiceberg.types import DoubleType, FloatType

    if isinstance(kind, FloatType | DoubleType):
        raise ValueError(
            f"column {source!r} is {kind}, which is no partition (0.0 and -0.0 are equal, and NaN is not equal to "
            "itself): partition by a string, a whole number or a date made of it"
        )


def written_as(source: str | None, transform: Transform[Any, Any]) -> str:
    """As `partition_by` has it."""
    name, _, number = str(transform).rstrip("]").partition("[")
    if name == "identity":
        return str(source)
    return f"{name}({number}, {source})" if number else f"{name}({source})"


def shape(kind: Any) -> str:
    """The type without Iceberg's numbers. What is required inside of it is a part of it: nobody checks it."""
    from pyiceberg.types import ListType, MapType, StructType

    def inner(required: bool, kind: Any) -> str:
        return f"{'required ' if required else ''}{shape(kind)}"

    if isinstance(kind, ListType):
        return f"list<{inner(kind.element_required, kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{shape(kind.key_type)}, {inner(kind.value_required, kind.value_type)}>"
    if isinstance(kind, StructType):
        return f"struct<{', '.join(f'{one.name}: {inner(one.required, one.field_type)}' for one in kind.fields)}>"
    return str(kind)
