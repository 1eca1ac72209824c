"""Rows into a Delta table, each batch once: Spark writes the files, and one commit adds them together with the claim.

The executors write Parquet into a directory of the attempt, inside the table; no commit contains it yet, so no reader
sees it. The driver reads the sizes, never the rows. The claim is a few of Delta's application transactions. The library
stores them but does not enforce them: so a commit here succeeds only as the very next version after the one whose claim
was read, and otherwise the claim is judged again. A claim counts only while the version that committed it is part of
what the table is: `RESTORE` takes rows away and leaves the claim.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import is_remote

from semel.spark.claims import Batch, BatchRefused, Outcome
from semel.spark.tables.bad_rows import bad_row, checked_choice, log_aside, quarantine_of
from semel.spark.tables.claims import TableClaim, claim_of, judge
from semel.spark.tables.database import Rule
from semel.spark.tables.delta_rows import as_row, judge_quarantined, quarantined, reasons
from semel.spark.tables.output_modes import check_output
from semel.spark.tables.sink import EVERYTHING, Choice, Sink

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from deltalake.transaction import AddAction
    from pyspark.sql import DataFrame, SparkSession

# Each failed commit means that another writer of the same table committed first.
COMMITS_MAX = 1000
# Spark's name for the directory of rows whose partition column is null or empty: Delta treats both as null.
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
# The types that Spark writes into a directory's name as Delta expects them, whatever the session's settings are.
PARTITION_TYPES = {"string", "boolean", "byte", "short", "integer", "long", "date"}
# Delta needs timestamps in Parquet's own type, not in the 96 bits of old Spark; and Spark must not convert them to an
# old calendar.
PARQUET_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
# The commit of the table says that the files are complete, so Spark need not write a `_SUCCESS` file.
NO_MARK = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
APP_ID_PREFIX = "semel-sink-"
# How to begin again where `accept_after` is refused.
AFRESH = (
    "delete the rows from there on (DeltaTable.delete), and give the sink a new sink_id: the table keeps the old claim"
)
# The property that says how long a table keeps application transactions; without it, it keeps them for good.
FORGETTING = "delta.setTransactionRetentionDuration"
# Promises of a table that a writer has to check for each row, which this sink does not do.
PROMISES = ("delta.invariants", "delta.generationExpression", "delta.identity.start")


class DeltaSink(Sink):
    def __init__(
        self,
        path: Path,
        partition_by: tuple[str, ...],
        sink_id: str,
        choice: Choice = EVERYTHING,
        accept_after: str | None = None,
        quarantine: Path | None = None,
        add_columns: bool = False,
    ) -> None:
        self.name = f"delta:{path}:{sink_id}"
        self.path = path
        self.partition_by = partition_by
        self.sink_id = sink_id
        self.choice = choice
        self.accept_after = accept_after
        self.quarantine = quarantine
        self.add_columns = add_columns

    def write(self, rows: DataFrame, batch: Batch) -> Outcome:
        check_output(self.name, "append", batch)
        rows = self.choice.of(rows)
        claim = numbered(claim_of(batch))
        rule = partial(judge, self.name, claim=claim, accept_after=self.accept_after, state=batch.state, afresh=AFRESH)
        bad = None if self.quarantine is None else reasons(rows, self.partition_by)
        if self.quarantine is None or bad is None:
            return self.append(rows, claim, rule)
        if rule(standing(self.opened(rows), self.sink_id)) is Outcome.DUPLICATE:
            return Outcome.DUPLICATE
        aside = quarantined(rows, bad, self.sink_id, batch.query_id, batch.batch_id)
        if count := aside.count():
            # With a claim of its own, which a replay finds.
            keeper = DeltaSink(self.quarantine, (), self.sink_id)
            keeper.append(aside, claim, partial(judge_quarantined, claim=claim))
            log_aside(self.name, batch, count, self.quarantine)
        return self.append(rows.where(bad.isNull()), claim, rule)

    def opened(self, rows: DataFrame) -> DeltaTable:
        return opened(self.path, rows, self.partition_by, add_columns=self.add_columns)

    def append(self, rows: DataFrame, claim: TableClaim, rule: Rule) -> Outcome:
        """Writes the rows into new files, and adds these to the table in one commit with the claim."""
        table = self.opened(rows)
        if rule(standing(table, self.sink_id)) is Outcome.DUPLICATE:
            return Outcome.DUPLICATE
        attempt = secrets.randbits(62)
        directory = self.path / f"semel-{claim.batch_id}-{attempt:016x}"
        try:
            added = written(rows, self.path, directory, self.partition_by)
        except Exception as error:
            # Spark names neither the row nor the column.
            bad = reasons(rows, self.partition_by)
            if bad is None or not (found := rows.where(bad.isNotNull()).select(bad, as_row(rows)).head(1)):
                raise
            raise bad_row(str(self.path), *found[0]) from error
        for _ in range(COMMITS_MAX):
            if rule(standing(table, self.sink_id)) is Outcome.DUPLICATE:
                # It may be this very attempt, whose commit succeeded although it seemed to fail: then its files are
                # needed.
                if table.transaction_version(app_ids(self.sink_id)[-1]) == attempt:
                    return Outcome.ACCEPTED
                shutil.rmtree(directory)
                return Outcome.DUPLICATE
            if committed(table, added, self.claimed(table, claim, attempt)):
                return Outcome.ACCEPTED
            table = self.opened(rows)
        raise RuntimeError(
            f"{COMMITS_MAX} commits to {self.path} were lost to other writers. Nothing was written: start the query "
            "again when fewer of them write"
        )

    def claimed(self, table: DeltaTable, claim: TableClaim, attempt: int) -> CommitProperties:
        from deltalake import CommitProperties, Transaction

        versions = (claim.batch_id, int(claim.query_id), int(claim.digest), attempt)
        noted = dict(zip(app_ids(self.sink_id), versions, strict=True))
        # The commit succeeds as this version, or not at all.
        noted[version_app_id(self.sink_id)] = table.version() + 1
        return CommitProperties(
            app_transactions=[Transaction(app_id, version) for app_id, version in noted.items()],
            # In a retry the library would check for conflicts by its own rules, and not for our claim.
            max_commit_retries=0,
        )


def delta_sink(
    path: str | Path,
    *,
    partition_by: Sequence[str] | str = (),
    columns: Sequence[str] = (),
    where: str | None = None,
    on_bad_row: str = "fail",
    add_columns: bool = False,
    sink_id: str | None = None,
    accept_after: str | None = None,
) -> DeltaSink:
    """A sink that appends to the Delta table at `path`, made if it is missing, with the package `deltalake`.

    The driver and all executors have to see `path` as the same directory, on one machine or on a shared file system. A
    path on an object store is refused. `where` chooses which rows are written, and `columns` what of them, as
    expressions of Spark's SQL; without them, all rows and all columns. A row that the table cannot have ends the
    query, or is written into the table `<path>_quarantine` with `on_bad_row="quarantine"`. A new column is refused, or
    added to the table with `add_columns=True`. The batch is claimed in the table itself, under
    `sink_id`, or "semel". `accept_after` lets one batch follow that was refused: the refusal says which value.
    """
    try:
        import deltalake
    except ImportError as error:
        raise ImportError("a sink into Delta needs deltalake: pip install 'semel[delta]'") from error
    scheme = urlsplit(str(path)).scheme
    if scheme not in ("", "file"):
        raise ValueError(f"a Delta sink writes to a directory that driver and executors share, not to {scheme}://")
    partitions = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    directory = Path(str(path).removeprefix("file://")).absolute()
    check_path(directory)
    # With Spark Connect another machine writes the rows, and may have the directory alone.
    if not is_remote() and (directory / "_delta_log").is_dir():
        check_table(deltalake.DeltaTable(directory), directory, partitions)
    quarantine = Path(quarantine_of(str(directory))) if checked_choice(on_bad_row) == "quarantine" else None
    choice = Choice(tuple(columns), where)
    return DeltaSink(directory, partitions, sink_id or "semel", choice, accept_after, quarantine, add_columns)


def check_path(directory: Path) -> None:
    """Refuses a path with a literal `%20` or the like. The library follows links, and decodes what it finds."""
    real = str(directory.resolve())
    if unquote(real) != real:
        raise ValueError(f"deltalake would read {real} as another path, {unquote(real)}: choose a path without %XX")


def numbered(claim: TableClaim) -> TableClaim:
    """The claim as numbers, because an application transaction of Delta is a number."""
    return TableClaim(str(number_of(claim.query_id)), claim.batch_id, str(number_of(claim.digest)))


def number_of(text: str) -> int:
    """60 bits, so that it is positive in every signed 64-bit type."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:15], 16)


def app_ids(sink: str) -> tuple[str, str, str, str]:
    """The application transactions of one claim. All of them change in the same commit."""
    name = f"{APP_ID_PREFIX}{sink}"
    return name, f"{name}/query", f"{name}/digest", f"{name}/attempt"


def held(table: DeltaTable, sink: str) -> TableClaim | None:
    """The sink's claim, if all its parts exist: one alone is not ours."""
    batch_id, query, digest, attempt = map(table.transaction_version, app_ids(sink))
    return (
        None if batch_id is None or None in (query, digest, attempt) else TableClaim(str(query), batch_id, str(digest))
    )


def version_app_id(sink: str) -> str:
    """The application transaction that says which version of the table committed the claim."""
    return f"{APP_ID_PREFIX}{sink}/version"


def standing(table: DeltaTable, sink: str) -> TableClaim | None:
    """The last claim whose rows the table still has, as far as its log tells. `RESTORE` to an older version keeps newer
    application transactions, so the claim of that older version counts."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    while True:
        claim = held(table, sink)
        if claim is None:
            return None
        restored = restored_below(table, table.transaction_version(version_app_id(sink)) or 0)
        if restored is None:
            return claim
        try:
            table = DeltaTable(table.table_uri, version=restored)
        except DeltaError as error:
            raise BatchRefused(
                f"{table.table_uri} was restored to version {restored}, which is older than batch {claim.batch_id} of "
                f"sink {sink!r}, and nobody can tell which batches it has: its log no longer has that version "
                f"({error}). Look which rows are missing, write them, and go on under a new sink_id"
            ) from None


def restored_below(table: DeltaTable, version: int) -> int | None:
    """The version to which the table was taken back, if that was a version before this one, and nothing has brought
    this one back since. The log is read from the newest entry on, and what a restore has left out is passed over.
    """
    newest = table.version()
    for entry in table.history(newest - version) if newest > version else []:
        if version < entry["version"] <= newest and entry["operation"] == "RESTORE":
            newest = restored_version(table, entry["operationParameters"])
            if newest < version:
                return newest
    return None


def restored_version(table: DeltaTable, parameters: Mapping[str, str]) -> int:
    """The version that a restore names, by its number or by a time."""
    if (number := parameters.get("version")) is not None:
        return int(number)
    from deltalake import DeltaTable

    found = DeltaTable(table.table_uri)
    time = parameters.get("datetime") or parameters.get("timestamp") or ""
    found.load_as_version(datetime.fromtimestamp(int(time) / 1000, UTC) if time.isdigit() else time)
    return int(found.version())


def opened(path: Path, rows: DataFrame, partition_by: Sequence[str], *, add_columns: bool = False) -> DeltaTable:
    """The table as it is now, with the columns that were to be added; raises if the rows do not fit it."""
    from deltalake import DeltaTable, Schema
    from deltalake.exceptions import TableNotFoundError

    wanted = optional(json.loads(rows.schema.json()))
    try:
        # `DeltaTable.create` alone would do as well, but takes twice the time and memory if the table exists.
        table = DeltaTable(path)
    except TableNotFoundError:
        schema = Schema.from_json(json.dumps(wanted))
        table = DeltaTable.create(path, schema, mode="ignore", partition_by=[*partition_by])
    check_table(table, path, partition_by)
    if add_columns:
        table = with_columns(table, path, wanted)
    has = json.loads(table.schema().to_json())
    types = {field["name"]: field["type"] for field in wanted["fields"]}
    check_types(path, types, {field["name"]: optional(field["type"]) for field in has["fields"]})
    for name in partition_by:
        if name not in types:
            raise ValueError(f"partition_by=... names {name!r}, and the rows have no such column: {', '.join(types)}")
        if str(types[name]) not in PARTITION_TYPES:
            raise ValueError(f"column {name!r} is {types[name]}: partition by a string, a number or a date made of it")
    return table


def with_columns(table: DeltaTable, path: Path, wanted: dict[str, Any]) -> DeltaTable:
    """The table with the columns that it lacked. They are added in a commit of their own, and stay if the batch
    fails."""
    from deltalake import DeltaTable, Schema
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
            if {field.name for field in DeltaTable(path).schema().fields} == has:
                raise
        table = DeltaTable(path)
    return table


def check_table(table: DeltaTable, path: Path, partition_by: Sequence[str]) -> None:
    """Raises if this sink cannot write into the table, whatever the rows are."""
    check_promises(table, json.loads(table.schema().to_json()))
    check_kept(table, path)
    partitions = table.metadata().partition_columns
    if partitions != [*partition_by]:
        raise ValueError(
            f"{path} is partitioned by {listed(partitions)}, and partition_by is {listed(partition_by)}: "
            "name the columns of the table"
        )


def listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def check_types(path: Path, rows: Mapping[str, Any], table: Mapping[str, Any]) -> None:
    """Refuses rows that have a column more than the table, or one of another type. A column that only the table has is
    null in these rows, as in SQL."""
    for name, kind in rows.items():
        if name not in table:
            field = f"deltalake.Field({name!r}, {kind!r})" if isinstance(kind, str) else "deltalake.Field(...)"
            raise ValueError(
                f"{path} has no column {name!r}: it has {listed([*table])}. Nothing was written. Add it "
                f"(add_columns=True, or DeltaTable(...).alter.add_columns({field})), or leave it out (columns=...)"
            )
        if kind != table[name]:
            raise ValueError(
                f"column {name!r} is {type_name(kind)} in the rows and {type_name(table[name])} in {path}. Nothing was "
                "written. Cast it (columns=...)"
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


def check_kept(table: DeltaTable, path: Path) -> None:
    """Refuses a table that forgets claims after some time: a sink that was idle for longer would take its last batch
    for new."""
    forgets_after = table.metadata().configuration.get(FORGETTING)
    if forgets_after is not None:
        raise ValueError(
            f"{path} has {FORGETTING}={forgets_after}, and would forget the claim of a sink that is idle for that "
            f"time: remove the property"
        )


def written(rows: DataFrame, root: Path, directory: Path, partition_by: Sequence[str]) -> list[AddAction]:
    """Has the executors write the files, and returns the action that adds each of them. Spark puts a file into the
    directory only if it accepts the result of its task; a directory that a crash leaves is in no commit, and `vacuum`
    removes it."""
    try:
        with parquet_settings(rows.sparkSession):
            rows.write.options(**NO_MARK).partitionBy(*partition_by).parquet(str(directory))
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    added = [add_action(path, root, directory) for path in files_of(directory, partition_by)]
    return [action for action in added if action is not None]


def files_of(directory: Path, partition_by: Sequence[str]) -> list[Path]:
    """The files that lie where the job's commit puts them, in one directory for each partition's value. A file
    elsewhere was left by an attempt that came too late; another attempt has written its rows."""
    paths = sorted(directory.rglob("[!._]*.parquet"))
    wanted = [*partition_by]
    return [
        path for path in paths if [partition_of(name)[0] for name in path.relative_to(directory).parts[:-1]] == wanted
    ]


def add_action(path: Path, root: Path, directory: Path) -> AddAction | None:
    from deltalake.transaction import AddAction
    from pyarrow import parquet

    count = parquet.read_metadata(path).num_rows
    if not count:
        path.unlink()
        return None
    status = path.stat()
    return AddAction(
        path=str(path.relative_to(root)),
        size=status.st_size,
        partition_values=dict(map(partition_of, path.relative_to(directory).parts[:-1])),
        modification_time=status.st_mtime_ns // 1_000_000,
        data_change=True,
        stats=json.dumps({"numRecords": count}),
    )


def committed(table: DeltaTable, added: list[AddAction], properties: CommitProperties) -> bool:
    """Adds the files as the next version of the table. False if another writer made that version."""
    from deltalake.exceptions import CommitFailedError

    partition_by = table.metadata().partition_columns
    try:
        table.create_write_transaction([*added], "append", table.schema(), partition_by, commit_properties=properties)
    except CommitFailedError:
        return False
    return True


def partition_of(directory: str) -> tuple[str, str | None]:
    """Parses `name=value`, as Spark names a directory."""
    name, _, value = directory.partition("=")
    return unquote(name), None if value == NULL_PARTITION else unquote(value)


@contextmanager
def parquet_settings(session: SparkSession) -> Iterator[None]:
    """Resets the settings afterwards: a micro-batch has its own session, but a caller of `write` may use one that
    others share."""
    before = {name: str(session.conf.get(name)) for name in PARQUET_SETTINGS}
    try:
        for name, value in PARQUET_SETTINGS.items():
            session.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            session.conf.set(name, value)
