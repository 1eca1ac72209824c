"""`semel reset`: deletes all that a streaming query has made, so that it starts over as a new one.

First it shows all of it, and asks. The sinks come first and the checkpoint last: if the command dies in between, a
sink refuses the query, and the command can be run again. It must never delete what it has not shown, nor a directory
that is neither a checkpoint nor a Delta table.
"""

import argparse
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from semel.ui.cli.databases import opened
from semel.ui.cli.display import counted, is_confirmed, print_table, printable
from semel.ui.cli.errors import Failure

EXAMPLE: Final = """  semel reset --checkpoint shop-orders --sink "sqlite:///shop.db/orders" \\
              --sink "semel://127.0.0.1:9092/alerts?sink_id=alerts"

sinks:
  sqlite:FILE/TABLE, postgresql://USER@HOST/DATABASE/TABLE, mysql:// or mariadb://USER@HOST/DATABASE/TABLE
                                            the rows of the table and of its quarantine, and the claim; the table
                                            stays. sink_id=... and claims_table=... as in sql_sink
  delta:DIR                                 the table, and its quarantine
  semel://HOST:PORT/TOPIC?sink_id=NAME      the topic, and the sink's progress topic"""

_CLAIMS_TABLE: Final = "semel_batches"
_PROGRESS: Final = "semel-progress-"
_QUARANTINE: Final = "_quarantine"
# What Spark writes into every checkpoint before the first batch.
_OF_A_CHECKPOINT: Final = ("metadata", "offsets")
_OF_A_DELTA_TABLE: Final = ("_delta_log",)
_KINDS: Final = {"checkpoint": "checkpoint of a query", "delta": "Delta table"}
_OF_A_DATABASE: Final = frozenset(("sink_id", "claims_table"))
_OPTIONS: Final = {
    **dict.fromkeys(("sqlite", "postgresql", "mysql", "mariadb"), _OF_A_DATABASE),
    "delta": frozenset[str](),
    "semel": frozenset(("sink_id",)),
}


def _nothing() -> None:
    """What deletes something that is not there, or that goes with something else."""


@dataclass(frozen=True)
class _Made:
    """Something that the query has made, and what deletes it."""

    name: str
    holds: str
    delete: Callable[[], object] = _nothing


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", required=True, metavar="DIR", help="the query's checkpointLocation")
    parser.add_argument(
        "--sink", action="append", default=[], metavar="ADDRESS", help="where it writes; may be given several times"
    )
    parser.add_argument(
        "--command-config", metavar="FILE", help="a client's settings for TLS and the login, for sinks into topics"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(options: argparse.Namespace) -> int:
    made = [one for address in options.sink for one in _made_in(address, options.command_config)]
    made += _directory(Path(options.checkpoint.removeprefix("file://")), "checkpoint", _OF_A_CHECKPOINT)
    print_table([(printable(one.name), one.holds) for one in made])
    question = "Delete all of it? The query must not run."
    if not options.yes and not is_confirmed(question, "deleting cannot be undone; stop the query, and pass --yes"):
        print("kept")
        return 0
    for one in made:
        one.delete()
    print("deleted: when the query starts, it begins at startingOffsets, with batch 0")
    return 0


def _made_in(address: str, config: str | None) -> Iterator[_Made]:
    parts = urlsplit(address)
    options = dict(parse_qsl(parts.query))
    kind = parts.scheme.partition("+")[0]
    if kind not in _OPTIONS:
        raise Failure(f"{address!r} is no sink: a sink begins with {', '.join(f'{scheme}:' for scheme in _OPTIONS)}")
    unknown = sorted(options.keys() - _OPTIONS[kind])
    if unknown:
        raise Failure(f"{address!r}: a sink of {kind} has no option {unknown[0]}")
    place = unquote(parts.path)
    if kind == "delta":
        yield from _directory(Path(place), "delta", _OF_A_DELTA_TABLE)
        yield from _directory(Path(place + _QUARANTINE), "delta", _OF_A_DELTA_TABLE)
        return
    before, _, name = place.rpartition("/")
    if not name or (kind == "semel" and not options.get("sink_id")):
        raise Failure(f"{address!r} says too little: write sqlite:FILE/TABLE, or semel://HOST:PORT/TOPIC?sink_id=NAME")
    if kind == "semel":
        yield from _topics(parts.netloc, [name, _PROGRESS + options["sink_id"]], config)
        return
    # As the sinks have it: three slashes before a relative path of SQLite, or none.
    before = before.removeprefix("/") if address.startswith("sqlite:///") else before
    url = f"sqlite:///{before}" if kind == "sqlite" else f"{parts.scheme}://{parts.netloc}{before}"
    yield from _tables(url, f"{kind}:{before}/", name, options)


def _tables(url: str, where: str, table: str, options: dict[str, str]) -> Iterator[_Made]:
    """The rows and the claim of one sink are deleted in one transaction."""
    from sqlalchemy import inspect, text

    of_sink = "WHERE sink_id = :sink"
    wanted = {table: "", table + _QUARANTINE: of_sink, options.get("claims_table", _CLAIMS_TABLE): of_sink}
    bound = {"sink": options.get("sink_id", table)}
    there: dict[str, str] = {}
    with opened(url) as engine, engine.connect() as connection:
        quote = connection.dialect.identifier_preparer.quote_identifier
        for name, condition in wanted.items():
            schema, _, own = name.rpartition(".")
            if inspect(connection).has_table(own, schema=schema or None):
                there[name] = f"FROM {'.'.join(map(quote, name.split('.', 1)))} {condition}"
        counts = {
            name: connection.execute(text(f"SELECT count(*) {rows}"), bound if wanted[name] else {}).scalar_one()
            for name, rows in there.items()
        }

    def delete() -> None:
        with opened(url) as engine, engine.begin() as connection:
            for name, rows in there.items():
                connection.execute(text(f"DELETE {rows}"), bound if wanted[name] else {})

    for name in wanted:
        if name in there:
            what = "row" if name in (table, table + _QUARANTINE) else "claim"
            yield _Made(where + name, counted(counts[name], what), delete if name == next(iter(there)) else _nothing)
        elif name != table + _QUARANTINE:
            yield _Made(where + name, "is not there")


def _topics(bootstrap: str, names: list[str], config: str | None) -> Iterator[_Made]:
    from semel.client import admin
    from semel.client.cluster import Cluster
    from semel.client.errors import LogError
    from semel.client.places import EARLIEST, LATEST
    from semel.client.topics import offsets_of, partitions_of
    from semel.ui.cli.cluster import settings_for

    settings = settings_for(bootstrap, config)

    def delete(name: str) -> None:
        with Cluster(settings) as cluster:
            admin.delete_topic(cluster, name)

    try:
        with Cluster(settings) as cluster:
            found = cluster.topics(names)
            sizes = {
                name: sum(offsets_of(cluster, partitions_of(topic), LATEST).values())
                - sum(offsets_of(cluster, partitions_of(topic), EARLIEST).values())
                for name, topic in found.items()
            }
    except LogError as error:
        raise Failure(str(error)) from None
    for name in names:
        if name in sizes:
            yield _Made(f"topic {name}", counted(sizes[name], "offset"), partial(delete, name))
        else:
            yield _Made(f"topic {name}", "is not there")


def _directory(path: Path, kind: str, marks: tuple[str, ...]) -> Iterator[_Made]:
    if not path.exists():
        if not path.name.endswith(_QUARANTINE):
            yield _Made(f"{kind} {path}", "is not there")
        return
    missing = [mark for mark in marks if not (path / mark).exists()]
    if missing:
        raise Failure(f"{path} is no {_KINDS[kind]}, and nothing was deleted: it has no {missing[0]}")
    files = sum(1 for file in path.rglob("*") if file.is_file())
    yield _Made(f"{kind} {path}", counted(files, "file"), partial(shutil.rmtree, path))
