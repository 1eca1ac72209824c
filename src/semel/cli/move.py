"""`semel move`: a whole log from a directory into a store of objects, or back, while no broker is at work on it."""

import argparse
import asyncio
import os
from typing import TYPE_CHECKING, Final

from semel.cli.display import counted
from semel.cli.errors import Failure

if TYPE_CHECKING:
    from semel.replica.move import Moved

EXAMPLE: Final = """  semel move --from ./data --to s3://bucket/prefix
  semel move --from s3://bucket/prefix --to ./data"""


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--from", dest="source", required=True, metavar="DIR|URL", help="where the log is: a directory, or a store")
    add("--to", dest="target", required=True, metavar="URL|DIR", help="where it goes: an empty store, or a directory")


def run(options: argparse.Namespace) -> int:
    from semel.core.slots import BrokenHistory
    from semel.storage.journal import Damaged
    from semel.store import StoreError

    source, target = options.source, options.target
    if ("://" in source) == ("://" in target):
        raise Failure("name a directory and a store: --from ./data --to s3://bucket/prefix, or the other way round")
    directory = source if "://" in target else target
    if directory == source and not os.path.isdir(directory):
        raise Failure(f"{directory}: no broker has kept a log there")
    try:
        moved = asyncio.run(_into(source, target) if directory == source else _out_of(source, target))
    except (BrokenHistory, Damaged, StoreError) as error:
        raise Failure(str(error)) from None
    except BlockingIOError:
        raise Failure(f"{directory} is in use by a broker") from None
    except OSError as error:
        raise Failure(f"{error.filename or directory}: {error.strerror or error}") from None
    what = f"{counted(moved.topics, 'topic')}, {counted(moved.partitions, 'partition')}"
    print(f"moved {what}, {moved.size_bytes / 1e6:.1f} MB; every byte was compared with its digest at its new place")
    if directory == source:
        print(f"start brokers with --data {directory} --store URL: the directory is a cache of the store now")
    else:
        print(f"start a broker with --data {directory}, and none on the store: it would go on apart from this one")
    return 0


async def _into(data: str, url: str) -> "Moved":
    from semel.replica.move import move_to_store
    from semel.storage.files import DiskFiles
    from semel.store import open_store

    store = open_store(url)
    try:
        return await move_to_store(DiskFiles(data), store)
    finally:
        await store.close()


async def _out_of(url: str, data: str) -> "Moved":
    from semel.replica.move import move_from_store
    from semel.storage.files import DiskFiles
    from semel.store import open_store

    store = open_store(url)
    try:
        return await move_from_store(store, DiskFiles(data), _note_active)
    finally:
        await store.close()


def _note_active(address: str) -> None:
    print(f"a broker is active at {address}, or was a moment ago: waiting until it has stopped", flush=True)
