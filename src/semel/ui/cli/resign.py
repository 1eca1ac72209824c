"""`semel resign URL`: has the active broker of a store hand over to a standby, and says who is active then.

It asks the store and no broker, so it works where clients cannot reach the active broker and the broker reaches the
store. It must never end a broker: the one that resigns is a standby afterwards.
"""

import argparse
import asyncio
from typing import Final

from semel.log.status import Addresses, BrokenHistory, StaysActive, have_resign
from semel.log.stores import StoreError, open_store
from semel.ui.cli.display import printable, while_somebody_reads
from semel.ui.cli.errors import Failure
from semel.wire.hosts import shown_address

EXAMPLE: Final = "  semel resign s3://bucket/prefix"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", metavar="URL", help="the store, as semel serve --store takes it")


def run(options: argparse.Namespace) -> int:
    try:
        line = asyncio.run(_resign(options.store))
    except (StoreError, BrokenHistory) as error:
        raise Failure(str(error)) from None
    except StaysActive as error:
        raise Failure(f"{options.store}: {error}") from None
    with while_somebody_reads():
        print(printable(line))
    return 0


async def _resign(url: str) -> str:
    store = open_store(url, may_be_new=False)
    try:
        former, lease = await have_resign(store)
    finally:
        await store.close()
    return f"{_shown(former)} has resigned; {_shown(lease.addresses)} is active, epoch {lease.epoch}"


def _shown(addresses: Addresses) -> str:
    """The address of the first listener, as the broker says it is standing by or ready."""
    return shown_address(*next(iter(addresses.values())))
