"""`semel move`: moves a whole log from a directory into a store, or back, while no broker uses it; or from a running
broker into another cluster, such as Apache Kafka.
"""

import argparse
import asyncio
import os
import re
import sys
from typing import TYPE_CHECKING, Final

from semel.ui.cli.display import counted, printable
from semel.ui.cli.errors import Failure

if TYPE_CHECKING:
    from semel.log.store_logs import Moved

EXAMPLE: Final = """  semel move --from ./data --to s3://bucket/prefix
  semel move --from s3://bucket/prefix --to ./data
  semel move --from 127.0.0.1:9092 --to kafka1:9092,kafka2:9092"""

# One broker, or several, separated by commas; `kafka:` before the first one says that this is a cluster.
_CLUSTER: Final = re.compile(r"(?:kafka:(?=[^,]+:))?((?:[^/,\s]+:\d+)(?:,[^/,\s]+:\d+)*)")


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--from",
        dest="source",
        required=True,
        metavar="DIR|URL|HOST:PORT",
        help="where the log is: a directory, a store, or a running broker",
    )
    add(
        "--to",
        dest="target",
        required=True,
        metavar="URL|DIR|HOST:PORT",
        help="the target: an empty store, a directory, or another cluster",
    )
    for side, what in (("from", "the broker"), ("to", "the other cluster")):
        add(
            f"--{side}-config",
            metavar="FILE",
            help=f"a client's settings for {what}: TLS and the login, as Kafka's own tools take them",
        )


def run(options: argparse.Namespace) -> int:
    clusters = [_CLUSTER.fullmatch(place) for place in (options.source, options.target)]
    if clusters[0] is not None and clusters[1] is not None:
        return _move_between(clusters[0][1], clusters[1][1], options.from_config, options.to_config)
    if any(clusters):
        raise Failure(
            "the log of a running broker can only be moved into another cluster, HOST:PORT; stop the broker to move "
            "its directory or its store"
        )
    if options.from_config or options.to_config:
        raise Failure("--from-config and --to-config are for clusters, HOST:PORT")
    return _move_at_rest(options)


def _move_between(source: str, target: str, source_config: str | None, target_config: str | None) -> int:
    from semel.client import LogClient, LogError
    from semel.ui.cli.cluster import settings_for
    from semel.ui.cli.progress import Progress
    from semel.ui.transfer.move import Move

    settings = settings_for(source, source_config), settings_for(target, target_config)
    progress = Progress("copied", unit="M records")

    def say(line: str) -> None:
        progress.end()
        print(f"semel: {printable(line)}", file=sys.stderr, flush=True)

    try:
        with (
            LogClient(settings[0], address_is_new=True) as old,
            LogClient(settings[1], address_is_new=True) as new,
        ):
            moved = Move(old, new, say, progress.show).run()
    except LogError as error:
        raise Failure(str(error)) from None
    finally:
        progress.end()
    what = f"{counted(moved.topics, 'topic')}, {counted(moved.partitions, 'partition')}"
    if moved.was_moved_before:
        print(f"moved before: {what}, the offsets of {counted(moved.groups, 'group')}; nothing was changed")
        return 0
    print(f"moved {what}, {counted(moved.records, 'record')}, the offsets of {counted(moved.groups, 'group')}")
    print("compared record by record: 0 lost, 0 doubled, 0 out of order")
    print(f"start producers and groups with bootstrap.servers={target}, and none with {source}")
    return 0


def _move_at_rest(options: argparse.Namespace) -> int:
    from semel.log.at_rest import Damaged
    from semel.log.status import BrokenHistory
    from semel.log.stores import StoreError

    source, target = options.source, options.target
    if ("://" in source) == ("://" in target):
        raise Failure(
            "name a directory and a store: --from ./data --to s3://bucket/prefix, or the other way round; "
            "or two clusters, each as HOST:PORT"
        )
    directory = source if "://" in target else target
    if directory == source and not os.path.isdir(directory):
        raise Failure(f"{directory}: no broker has kept a log there")
    try:
        moved = asyncio.run(_into(source, target) if directory == source else _out_of(source, target))
    except (BrokenHistory, Damaged, StoreError) as error:
        raise Failure(str(error)) from None
    except BlockingIOError:
        raise Failure(f"{directory} is in use by a broker: stop it first") from None
    except OSError as error:
        raise Failure(f"{error.filename or directory}: {error.strerror or error}") from None
    what = f"{counted(moved.topics, 'topic')}, {counted(moved.partitions, 'partition')}"
    print(f"moved {what}, {moved.size_bytes / 1e6:.1f} MB; every byte was compared with its digest at its new place")
    if directory == source:
        print(f"start brokers with --data {directory} --store URL: the directory is a cache of the store now")
    else:
        print(f"start a broker with --data {directory}, and no broker on the store: the two logs would diverge")
    return 0


async def _into(data: str, url: str) -> "Moved":
    from semel.log.files import DiskFiles
    from semel.log.store_logs import move_to_store
    from semel.log.stores import open_store

    store = open_store(url)
    try:
        return await move_to_store(DiskFiles(data), store)
    finally:
        await store.close()


async def _out_of(url: str, data: str) -> "Moved":
    from semel.log.files import DiskFiles
    from semel.log.store_logs import move_from_store
    from semel.log.stores import open_store

    store = open_store(url)
    try:
        return await move_from_store(store, DiskFiles(data), _note_active)
    finally:
        await store.close()


def _note_active(address: str) -> None:
    print(
        f"a broker is active at {address}, or was not stopped cleanly: copying its records, and waiting for its end",
        flush=True,
    )
