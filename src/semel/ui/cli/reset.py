"""`semel reset`: deletes all that a streaming query has made, so that it starts over as a new one.

First it shows all of it, and asks. The sinks come first and the checkpoint last: if the command dies in between, a
sink refuses the query, and the command can be run again. It must never delete what it has not shown, nor a directory
that is neither a checkpoint nor a Delta table, nor rows of a sink that it was not told of, as far as a table says that;
nor a checkpoint whose query is not that of the sinks' claims.
"""

import argparse
import difflib
import json
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from semel.ui.cli.databases import opened
from semel.ui.cli.display import counted, is_confirmed, print_table, printable
from semel.ui.cli.errors import Failure
from semel.ui.cli.reset_lakes import MISSING, QUARANTINE, Made, below, delta, iceberg, nothing

if TYPE_CHECKING:
    from semel.client import Topic
    from semel.client.settings import ClientSettings

EXAMPLE: Final = """  semel reset --checkpoint shop-orders --sink "sqlite:///shop.db/orders" \\
              --sink "semel://127.0.0.1:9092/alerts?sink_id=alerts"

sinks:
  sqlite:FILE/TABLE, postgresql://USER@HOST/DATABASE/TABLE, mysql:// or mariadb://USER@HOST/DATABASE/TABLE
                                            the rows of the table and of its quarantine, and the claim; the table
                                            stays. sink_id=... and claims_table=... as in sql_sink
  delta:DIR, delta:s3://BUCKET/TABLE        the table, and its quarantine. sink_id=... as in delta_sink, and
                                            storage.NAME=... for each of its storage_options
  iceberg:NAMESPACE.TABLE?catalog=NAME      the table with its files, and its quarantine. sink_id=... as in
                                            iceberg_sink, and catalog.NAME=... for each of its settings
  semel://HOST:PORT/TOPIC?sink_id=NAME      the topic, and the sink's progress topic"""

_CLAIMS_TABLE: Final = "semel_batches"
_PROGRESS: Final = "semel-progress-"
# What Spark writes into every checkpoint before the first batch.
_OF_A_CHECKPOINT: Final = ("metadata", "offsets")
_IN_A_STORE: Final = "is in a store: delete it there yourself, after this"
_SERVERS: Final = ("postgresql", "mysql", "mariadb")
_OF_SQL: Final = ("sink_id", "claims_table")
# The options of each kind of sink, and how those begin of which there may be several. What a server's URL may have
# besides is the driver's.
_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "sqlite": _OF_SQL,
    **dict.fromkeys(_SERVERS, (*_OF_SQL, "")),
    "delta": ("sink_id", "storage."),
    "iceberg": ("sink_id", "catalog", "catalog."),
    "semel": ("sink_id",),
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", required=True, metavar="DIR", help="the query's checkpointLocation")
    parser.add_argument(
        "--sink", action="append", default=[], metavar="ADDRESS", help="where it writes; may be given several times"
    )
    parser.add_argument(
        "--command-config", metavar="FILE", help="a client's settings for TLS and the login, for sinks into topics"
    )
    parser.add_argument(
        "--already-gone",
        action="store_true",
        help="also if a sink has no claim of this query or no table, as after a reset that was cut short",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(options: argparse.Namespace) -> int:
    place = options.checkpoint.removeprefix("file://").removeprefix("file:")
    checkpoint, query = list(_checkpoint(place)), _query_of(place)
    sinks = [list(_made_in(address, options.command_config, query)) for address in options.sink]
    if query:
        for sink in sinks:
            _check_claim(sink, place, query, options.already_gone)
    made = [one for found in (*sinks, checkpoint) for one in found]
    print_table([(printable(one.name), one.holds) for one in made])
    question = "Delete all of it? The query must not run."
    if not options.yes and not is_confirmed(question, "deleting cannot be undone; stop the query, and pass --yes"):
        print("kept")
        return 0
    for one in made:
        one.delete()
    afterwards = "" if made[-1].holds != _IN_A_STORE else "and its checkpoint is gone, "
    print(f"deleted: when the query starts, {afterwards}it begins at startingOffsets, with batch 0")
    return 0


def _check_claim(sink: Sequence[Made], checkpoint: str, query: str, already_gone: bool) -> None:
    for one in sink:
        for other in one.queries:
            if other != query:
                raise Failure(
                    f"{one.name} has the claim of query {other}, and {checkpoint} is of query {query}: nothing was "
                    f"deleted. If the sink is right and the checkpoint of its query is lost, delete {checkpoint} "
                    "yourself, and run this again"
                )
    has_claim = any(one.queries for one in sink)
    if not already_gone and (not has_claim or sink[0].holds == MISSING):
        lacks = MISSING if has_claim else f"has no claim of query {query}, of which {checkpoint} is"
        raise Failure(
            f"{sink[0].name} {lacks}, and nothing was deleted: is the sink's name right? A sink that keeps its claim "
            "refuses the query without its checkpoint. If the sink has not written its first batch yet, or it is all "
            "gone already, as after a reset that was cut short, pass --already-gone"
        )


def _made_in(address: str, config: str | None, query: str | None) -> Iterator[Made]:
    parts = urlsplit(address)
    options = dict(parse_qsl(parts.query))
    kind = parts.scheme.partition("+")[0]
    if kind not in _OPTIONS:
        close = difflib.get_close_matches(kind, _OPTIONS, n=1)
        known_as = ", ".join(f"{scheme}:" for scheme in _OPTIONS)
        raise Failure(
            f"{address!r} is no sink{f'; was {close[0]}: meant?' if close else f': a sink begins with {known_as}'}"
        )
    known = _OPTIONS[kind]
    for option in options:
        if option not in known and not any(option.startswith(one) for one in known if one.endswith(".") or not one):
            raise Failure(f"{address!r}: a sink of {kind} has no option {option}")
    place = unquote(parts.path)
    if kind == "delta":
        yield from delta(place, below(options, "storage."), options.get("sink_id", "semel"), query)
        return
    if kind == "iceberg":
        yield from iceberg(place, options)
        return
    before, _, name = place.rpartition("/")
    if not name or (kind == "semel" and not options.get("sink_id")):
        raise Failure(f"{address!r} says too little: write sqlite:FILE/TABLE, or semel://HOST:PORT/TOPIC?sink_id=NAME")
    if kind == "semel":
        yield from _topics(parts.netloc, name, options["sink_id"], config)
        return
    # As the sinks have it: three slashes before a relative path of SQLite, or none.
    before = before.removeprefix("/") if address.startswith("sqlite:///") else before
    rest = urlencode({name: value for name, value in options.items() if name not in _OF_SQL}, quote_via=quote)
    is_file = kind == "sqlite"
    url = f"sqlite:///{before}" if is_file else f"{parts.scheme}://{parts.netloc}{quote(before)}?{rest}"
    # Without a password, so that it can be pasted where a table is audited or read.
    user, at, host = parts.netloc.rpartition("@")
    where = f"{kind}:" if is_file else f"{kind}://{user.partition(':')[0]}{at}{host}"
    yield from _tables(url, f"{where}{before}/", name, options)


def _tables(url: str, where: str, table: str, options: dict[str, str]) -> Iterator[Made]:
    """The rows and the claim of one sink are deleted in one transaction."""
    from sqlalchemy import inspect, text

    of_sink = "WHERE sink_id = :sink"
    claims = options.get("claims_table", _CLAIMS_TABLE)
    wanted = {table: "", table + QUARANTINE: of_sink, claims: of_sink}
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
        found = connection.execute(text(f"SELECT query_id {there[claims]}"), bound) if claims in there else ()
        queries = tuple(str(query) for (query,) in found if query)

    def delete() -> None:
        with opened(url) as engine, engine.begin() as connection:
            for name, rows in there.items():
                connection.execute(text(f"DELETE {rows}"), bound if wanted[name] else {})

    for name in wanted:
        if name in there:
            what, held = ("claim", queries) if name == claims else ("row", ())
            yield Made(
                where + name, counted(counts[name], what), delete if name == next(iter(there)) else nothing, held
            )
        elif name != table + QUARANTINE:
            yield Made(where + name, MISSING)


def _topics(bootstrap: str, topic: str, sink: str, config: str | None) -> Iterator[Made]:
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

    progress = _PROGRESS + sink
    names = [topic, progress]
    queries: Sequence[str] = ()
    try:
        with Cluster(settings) as cluster:
            found = cluster.topics(names)
            sizes = {
                name: sum(offsets_of(cluster, partitions_of(topic), LATEST).values())
                - sum(offsets_of(cluster, partitions_of(topic), EARLIEST).values())
                for name, topic in found.items()
            }
        if sizes.get(progress):
            queries = _queries_in(settings, found[progress], sink)
    except LogError as error:
        raise Failure(str(error)) from None
    for name in names:
        if name in sizes:
            own = queries if name == progress else ()
            yield Made(f"semel://{bootstrap}/{name}", counted(sizes[name], "offset"), partial(delete, name), own)
        else:
            yield Made(f"semel://{bootstrap}/{name}", MISSING)


def _queries_in(settings: "ClientSettings", progress: "Topic", sink: str) -> Sequence[str]:
    """The queries that the lanes have written last."""
    try:
        from semel.client import LogClient
        from semel.spark.lanes.progress import peek_marker
    except ImportError as missing:
        raise Failure(f"to read the claims of a sink into a topic: {missing}") from None
    with LogClient(settings) as client:
        markers = [peek_marker(client, progress, lane, sink) for lane in range(progress.partitions)]
    return sorted({marker.newest.query_id for marker in markers if marker is not None})


def _query_of(place: str) -> str | None:
    """The query of a checkpoint that is there."""
    try:
        return str(json.loads(Path(place, "metadata").read_text())["id"])
    except OSError:
        return None
    except (ValueError, KeyError, TypeError):
        raise Failure(f"{place} is no checkpoint of a query, and nothing was deleted: its metadata has no id") from None


def _checkpoint(place: str) -> Iterator[Made]:
    path = Path(place)
    if urlsplit(place).scheme:
        yield Made(f"checkpoint {place}", _IN_A_STORE)
        return
    if not path.exists():
        yield Made(f"checkpoint {path}", MISSING)
        return
    missing = [mark for mark in _OF_A_CHECKPOINT if not (path / mark).exists()]
    if missing:
        raise Failure(f"{path} is no checkpoint of a query, and nothing was deleted: it has no {missing[0]}")
    files = sum(1 for file in path.rglob("*") if file.is_file())
    yield Made(f"checkpoint {path}", counted(files, "file"), partial(shutil.rmtree, path))
