"""Which rows fit a Delta table, and which tables the sink cannot write into; makes a table that is missing.

Nothing here may let rows into a table that promises what nobody checks for each row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from semel.spark.tables.delta_claims import Location
from semel.spark.tables.files import COMMITS_MAX

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql.types import StructType

# The types that Spark writes into a directory's name as Delta expects them, whatever the session's settings are.
PARTITION_TYPES = {"string", "boolean", "byte", "short", "integer", "long", "date"}
# The property that says how long a table keeps application transactions; without it, it keeps them for good.
FORGETTING = "delta.setTransactionRetentionDuration"
# Promises of a table that a writer has to check for each row, which this sink does not do.
PROMISES = ("delta.invariants", "delta.generationExpression", "delta.identity.start")


def opened(where: Location, rows: StructType, partition_by: Sequence[str], *, add_columns: bool) -> DeltaTable:
    """The table as it is now, with the columns that were to be added; raises if the rows do not fit it."""
    from deltalake import DeltaTable, Schema
    from deltalake.exceptions import TableNotFoundError

    wanted = optional(json.loads(rows.json()))
    try:
        # `DeltaTable.create` alone would do as well, but takes twice the time and memory if the table exists.
        table = where.table()
    except TableNotFoundError:
        schema = Schema.from_json(json.dumps(wanted))
        options = {**where.options}
        table = DeltaTable.create(
            where.uri, schema, mode="ignore", partition_by=[*partition_by], storage_options=options
        )
    check_table(table, where, partition_by)
    if add_columns:
        table = with_columns(table, where, wanted)
    has = json.loads(table.schema().to_json())
    types = {field["name"]: field["type"] for field in wanted["fields"]}
    check_types(where, types, {field["name"]: optional(field["type"]) for field in has["fields"]})
    for name in partition_by:
        if name not in types:
            raise ValueError(f"partition_by=... names {name!r}, and the rows have no such column: {', '.join(types)}")
        if str(types[name]) not in PARTITION_TYPES:
            raise ValueError(f"column {name!r} is {types[name]}: partition by a string, a number or a date made of it")
    return table


def with_columns(table: DeltaTable, where: Location, wanted: dict[str, Any]) -> DeltaTable:
    """The table with the columns that it lacked. They are added in a commit of their own, and stay if the batch
    fails."""
    from deltalake import Schema
    from deltalake.exceptions import CommitFailedError, DeltaError

    for _ in range(COMMITS_MAX):
        has = {field.name for field in table.schema().fields}
        new = [field for field in Schema.from_json(json.dumps(wanted)).fields if field.name not in has]
        if not new:
            break
        try:
            table.alter.add_columns(new)
        except (CommitFailedError, DeltaError):
            # Another writer may have added them.
            if {field.name for field in where.table().schema().fields} == has:
                raise
        table = where.table()
    return table


def check_table(table: DeltaTable, where: Location, partition_by: Sequence[str]) -> None:
    """Raises if this sink cannot write into the table, whatever the rows are."""
    check_promises(table, json.loads(table.schema().to_json()))
    check_kept(table, where)
    partitions = table.metadata().partition_columns
    if partitions != [*partition_by]:
        raise ValueError(
            f"{where} is partitioned by {listed(partitions)}, and partition_by is {listed(partition_by)}: "
            "name the columns of the table"
        )


def listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def check_types(where: Location, rows: Mapping[str, Any], table: Mapping[str, Any]) -> None:
    """Refuses rows that have a column more than the table, or one of another type. A column that only the table has is
    null in these rows, as in SQL."""
    for name, kind in rows.items():
        if name not in table:
            field = f"deltalake.Field({name!r}, {kind!r})" if isinstance(kind, str) else "deltalake.Field(...)"
            raise ValueError(
                f"{where} has no column {name!r}: it has {listed([*table])}. Nothing was written. Add it "
                f"(add_columns=True, or DeltaTable(...).alter.add_columns({field})), or leave it out (columns=...)"
            )
        if kind != table[name]:
            raise ValueError(
                f"column {name!r} is {type_name(kind)} in the rows and {type_name(table[name])} in {where}. Nothing "
                "was written. Cast it (columns=...)"
            )


def type_name(kind: Any) -> str:
    return kind if isinstance(kind, str) else json.dumps(kind)


def optional(kind: Any) -> Any:
    """The type with everything nullable, because a later batch may lack what the first one had; and without
    metadata."""
    if isinstance(kind, list):
        return [optional(inner) for inner in kind]
    if not isinstance(kind, dict):
        return kind
    loose = {"nullable": True, "containsNull": True, "valueContainsNull": True, "metadata": {}}
    return {name: loose.get(name, optional(inner)) for name, inner in kind.items()}


def check_promises(table: DeltaTable, schema: dict[str, Any]) -> None:
    configuration = table.metadata().configuration
    promised = [key for key in configuration if key.startswith("delta.constraints.")]
    promised += [key for field in schema["fields"] for key in PROMISES if key in field["metadata"]]
    promised += [f"{field['name']} NOT NULL" for field in schema["fields"] if not field["nullable"]]
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        promised.append("delta.columnMapping.mode")
    if promised:
        raise ValueError(
            f"the table promises what this sink does not check for each row: {', '.join(promised)}. Drop these, or "
            f"write into another table than {table.table_uri}"
        )


def check_kept(table: DeltaTable, where: Location) -> None:
    """Refuses a table that forgets claims after some time: a sink that was idle for longer would take its last batch
    for new."""
    forgets_after = table.metadata().configuration.get(FORGETTING)
    if forgets_after is not None:
        raise ValueError(
            f"{where} has {FORGETTING}={forgets_after}, and would forget the claim of a sink that is idle for that "
            f"time: remove the property"
        )
