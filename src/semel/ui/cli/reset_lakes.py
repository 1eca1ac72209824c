"""What `semel reset` deletes of tables of files: Delta tables in a directory or an object store, and Iceberg tables.

The claim of a sink lies in its table, so the whole table goes. It must never go if another sink has a claim in it: then
it has that sink's rows, too.
"""

import json
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from semel.ui.cli.display import counted
from semel.ui.cli.errors import Failure

QUARANTINE: Final = "_quarantine"
MISSING: Final = "is not there"
# How the names of claims begin in a Delta table, and in an Iceberg table; a branch comes after an @.
_DELTA: Final = "semel-sink-"
_ICEBERG: Final = "semel.sink."
_PARTS: Final = ("/query", "/digest", "/attempt", "/version")
_LOG: Final = "_delta_log"


def nothing() -> None:
    """What deletes something that is not there, or that goes with something else."""


@dataclass(frozen=True)
class Made:
    """Something that the query has made, and what deletes it."""

    name: str
    holds: str
    delete: Callable[[], object] = nothing
    queries: Sequence[str] = ()
    """The queries of the claims that are in it."""


def below(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The options that begin so, without that."""
    return {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}


def refuse_others(table: str, sinks: Collection[str], sink: str) -> None:
    others = sorted(set(sinks) - {sink})
    if others:
        raise Failure(
            f"{table} holds rows of {', '.join(map(repr, others))}, and nothing was deleted. If that is your sink, say "
            "so by sink_id=...; otherwise delete the rows of your sink yourself, and give it a new sink_id, because "
            "the table keeps the old claim"
        )


# -- Delta --------------------------------------------------------------------------------------------------------


def delta(place: str, storage: Mapping[str, str], sink: str, query: str | None) -> Iterator[Made]:
    """A Delta table, and its quarantine."""
    is_store = "://" in place
    for where in (place, place + QUARANTINE):
        name = f"delta:{where}"
        try:
            files = _in_store(where, storage) if is_store else _in_directory(where)
            paths = _paths(files)
            logged = [path for path in paths if path.startswith(_LOG)]
            # The entries of the log follow each other by name, so the newest claim of each sink comes last.
            claims = {name: number for path in logged for name, number in _claims(files, path)}
            queries = _queries(claims, sink, query)
        except ModuleNotFoundError as missing:
            raise Failure(f"{name}: {missing.name} is missing: pip install 'semel[delta]'") from None
        except (ImportError, OSError, ValueError) as error:
            raise Failure(f"{name}: {' '.join(str(error).split())}") from None
        refuse_others(name, {one for one in claims if not one.endswith(_PARTS)}, sink)
        if paths and not logged:
            raise Failure(f"{where} is no Delta table, and nothing was deleted: it has no {_LOG}")
        delete = partial(_delete, files, paths) if is_store else partial(shutil.rmtree, where)
        if paths:
            yield Made(name, counted(len(paths), "file"), delete, queries)
        elif where == place:
            yield Made(name, MISSING)


def _in_directory(place: str) -> Any:
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    return SubTreeFileSystem(str(Path(place).absolute()), LocalFileSystem())


def _in_store(place: str, storage: Mapping[str, str]) -> Any:
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import PyFileSystem

    return PyFileSystem(DeltaStorageHandler(place, {**storage}))


def _paths(files: Any) -> list[str]:
    """All files, those of the log last: what is left of a table whose deletion was cut short still has a log. A store
    may keep an empty object for a directory."""
    from pyarrow.fs import FileSelector, FileType

    found = files.get_file_info(FileSelector("", allow_not_found=True, recursive=True))
    directories = {one.path for one in found if one.type == FileType.Directory}
    paths = [one.path for one in found if one.type == FileType.File and one.path not in directories]
    return sorted(paths, key=lambda path: (path.startswith(_LOG), path))


def _queries(claims: Mapping[str, int], sink: str, query: str | None) -> Sequence[str]:
    """Delta keeps numbers, so of another query nobody knows more."""
    number = claims.get(f"{sink}/query")
    if number is None or query is None:
        return ()
    from semel.spark.tables.delta_claims import number_of

    return (query if number == number_of(query) else f"number {number} (this one is {number_of(query)})",)


def _claims(files: Any, path: str) -> Iterator[tuple[str, int]]:
    """What the claims in this file of the log consist of, without the beginning of their names."""
    import pyarrow.parquet

    with files.open_input_file(path) as file:
        if path.endswith(".parquet"):
            opened = pyarrow.parquet.ParquetFile(file)
            has_any = "txn" in opened.schema_arrow.names
            noted = opened.read(columns=["txn"])["txn"].to_pylist() if has_any else []
        elif path.endswith(".json"):
            noted = [json.loads(line).get("txn") for line in file.read().splitlines() if b'"txn"' in line]
        else:
            noted = []
    for one in noted:
        if one and one["appId"].startswith(_DELTA):
            yield one["appId"].removeprefix(_DELTA), one["version"]


def _delete(files: Any, paths: Collection[str]) -> None:
    for path in paths:
        files.delete_file(path)


# -- Iceberg ------------------------------------------------------------------------------------------------------


def iceberg(table: str, options: Mapping[str, str]) -> Iterator[Made]:
    """An Iceberg table with its files, and its quarantine."""
    sink = options.get("sink_id", "semel")
    if not table.rpartition(".")[0]:
        raise Failure(f"iceberg:{table} names no table: write iceberg:NAMESPACE.TABLE")
    if "@" in sink:
        raise Failure(
            f"iceberg:{table}: this command deletes a whole table, and no branch of it: remove the branch yourself, "
            "and give the sink a new sink_id, because the table keeps the old claim"
        )
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError:
        raise Failure("pyiceberg is missing: pip install 'semel[iceberg]'") from None
    try:
        catalog = load_catalog(options.get("catalog", "default"), **below(options, "catalog."))
        there = {name: catalog.load_table(name) for name in (table, table + QUARANTINE) if catalog.table_exists(name)}
    except Exception as error:
        # Each catalog has errors of its own: those of its database, of HTTP, of its cloud. What has no address is told
        # to use an option of pyiceberg's own command.
        told = " ".join(str(error).replace("--uri", "catalog.uri=...").split())
        raise Failure(f"iceberg:{table}: {told}") from None
    for name, found in there.items():
        noted = [*found.properties, *(key for one in found.metadata.snapshots for key in _summary(one))]
        sinks = {key.removeprefix(_ICEBERG) for key in noted if key.startswith(_ICEBERG)}
        refuse_others(f"iceberg:{name}", sinks, sink)
        rows = int(_summary(found.current_snapshot()).get("total-records", 0))
        queries = _queries_noted(found, _ICEBERG + sink)
        yield Made(f"iceberg:{name}", counted(rows, "row"), partial(catalog.purge_table, name), queries)
    if table not in there:
        yield Made(f"iceberg:{table}", MISSING)


def _queries_noted(table: Any, key: str) -> Sequence[str]:
    """The query of the newest claim: the property has it, and a snapshot where somebody has removed the property."""
    noted = [*(_summary(one).get(key) for one in table.metadata.snapshots), table.properties.get(key)]
    newest = [text for text in noted if text][-1:]
    try:
        return [str(json.loads(text)["query"]) for text in newest]
    except (ValueError, KeyError, TypeError):
        raise Failure(f"{key} holds a claim that is none of a sink, and nothing was deleted: {newest}") from None


def _summary(snapshot: Any) -> dict[str, str]:
    return {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties
