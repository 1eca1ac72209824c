"""`semel backup`: copies the log in a store into another store, while brokers use it; the next time what is new."""

import argparse
import asyncio
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from semel.ui.cli.display import counted, printable
from semel.ui.cli.errors import Failure
from semel.ui.cli.progress import Progress

if TYPE_CHECKING:
    from semel.log.store_logs import BackedUp

EXAMPLE: Final = """  semel backup --from s3://bucket/log --to s3://elsewhere/log
  semel backup --from file:///mnt/backup/log --to s3://bucket/restored"""
_IN_A_DIRECTORY: Final = (
    "is a directory. Copy it while its broker is stopped, or take a snapshot of its file system; a log in a store "
    "(semel move --from {} --to file:///...) can be backed up while brokers use it"
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--from", dest="source", required=True, metavar="URL", help="the store that brokers use")
    parser.add_argument(
        "--to", dest="target", required=True, metavar="URL", help="an empty store, or one with a backup of the same log"
    )


def run(options: argparse.Namespace) -> int:
    for place in (options.source, options.target):
        if "://" not in place:
            raise Failure(f"{place} {_IN_A_DIRECTORY.format(place)}")
    try:
        backup = asyncio.run(_copy(options.source, options.target))
    except OSError as error:
        raise Failure(f"{error.filename or options.target}: {error.strerror or error}") from None
    catalog = backup.found.examined.state.catalog
    what = f"{counted(len(catalog), 'topic')}, {counted(catalog.partition_count, 'partition')}"
    size, copied = (number / 1e6 for number in (backup.size_bytes, backup.copied_bytes))
    print(f"backed up {what}, {size:.1f} MB, of which {copied:.1f} MB are new; every byte was compared with its digest")
    if backup.moment_ms:
        moment = datetime.fromtimestamp(backup.moment_ms / 1000, UTC)
        print(f"it has everything that was acknowledged before {moment:%Y-%m-%d %H:%M:%S} UTC")
    else:
        print(f"it has all that is in {printable(options.source)}, which does not say of which time that is")
    for line in backup.lost:
        print(f"LOST  {printable(line)}")
    return 1 if backup.lost else 0


async def _copy(source_url: str, target_url: str) -> "BackedUp":
    from semel.log.status import BrokenHistory
    from semel.log.store_logs import back_up
    from semel.log.stores import StoreError, open_store

    progress = Progress("copied")
    source, target = open_store(source_url), open_store(target_url)
    try:
        return await back_up(source, target, int(time.time() * 1000), progress.show)
    except (BrokenHistory, StoreError) as error:
        raise Failure(str(error)) from None
    finally:
        progress.end()
        await source.close()
        await target.close()
