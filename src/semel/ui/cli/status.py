"""`semel status URL`: shows which broker on a store is active, which are standbys and how far behind, and how much the
store holds.

It changes nothing, and asks no broker, so it works while all of them are down. The exit code is 1 if no broker is
active, for supervisors and checks.
"""

import argparse
import asyncio
import json
from typing import Final

from semel.log.status import Addresses, BrokenHistory, Standby, StoreStatus, status_of
from semel.log.stores import Store, StoreError, open_store
from semel.ui.cli.display import counted, printable, while_somebody_reads
from semel.ui.cli.errors import Failure
from semel.wire.hosts import shown_address

EXAMPLE: Final = """  semel status s3://bucket/prefix
  semel status file:///srv/semel --json"""

_MINUTE_SECONDS: Final = 60
_HOUR_SECONDS: Final = 3600


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", metavar="URL", help="the store, as semel serve --store takes it")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    try:
        store = open_store(options.store, may_be_new=False)
        status = asyncio.run(look(store))
    except (StoreError, BrokenHistory) as error:
        raise Failure(str(error)) from None
    with while_somebody_reads():
        if options.json:
            print(json.dumps(as_json(store.describe(), status)))
        else:
            lines = as_lines(store.describe(), status)
            width = max(len(what) for what, _ in lines)
            for what, state in lines:
                print(f"{what:{width}}  {printable(state)}")
    return 0 if status.is_active else 1


def brokers_of(url: str) -> list[str]:
    """A line for the active broker of a store, and for each standby. Raises StoreError, and BrokenHistory."""
    status = asyncio.run(look(open_store(url, may_be_new=False)))
    lines = as_lines(url, status)
    return [f"{what}  {state}" for what, state in lines if what in ("active", "standby")]


async def look(store: Store) -> StoreStatus:
    """The status of the store, which is closed."""
    try:
        return await status_of(store)
    finally:
        await store.close()


def as_lines(where: str, status: StoreStatus) -> list[tuple[str, str]]:
    """The status as lines: the subject and the text of each."""
    lines = [("store", f"{where}, cluster {status.cluster_id}")]
    lease = status.lease
    if lease is None:
        lines.append(("active", "no broker, and there never was one"))
    elif status.is_active:
        lines.append(("active", f"{_shown(lease.addresses)}, epoch {lease.epoch}"))
    else:
        how = "has stopped" if lease.is_released else "is silent"
        # A command that has moved the log here has no port.
        who = _shown(lease.addresses) if any(port for _, port in lease.addresses.values()) else "the move"
        lines.append(("active", f"nobody: {who} of epoch {lease.epoch} {how}"))
    lines += [("standby", _standby_shown(standby)) for standby in status.standbys] or [("standby", "none")]
    for name, part in status.contents.items():
        lines.append((name, f"{counted(part.objects, 'object')}, {part.size_bytes / 1e6:,.1f} MB"))
    puts, gets = status.idle_puts_per_day, status.idle_gets_per_day
    if status.is_active:
        lines.append(("calls", f"{puts:,} that write and {gets:,} that read a day, while no client does anything"))
    return lines


def _standby_shown(standby: Standby) -> str:
    where = _shown(standby.addresses)
    behind, since = f"{counted(standby.behind_bytes, 'byte')} behind", _time_shown(standby.seconds_ago)
    return f"{where}, silent for {since}, {behind} then" if standby.is_silent else f"{where}, was {behind} {since} ago"


def _shown(addresses: Addresses) -> str:
    """The address; of several addresses, each with the name of its listener."""
    if len(addresses) == 1:
        return shown_address(*next(iter(addresses.values())))
    return ", ".join(f"{name}={shown_address(*address)}" for name, address in addresses.items())


def _time_shown(seconds: float) -> str:
    if seconds < _MINUTE_SECONDS:
        return f"{seconds:.0f} s"
    return f"{seconds / _MINUTE_SECONDS:.0f} min" if seconds < _HOUR_SECONDS else f"{seconds / _HOUR_SECONDS:.0f} h"


def as_json(where: str, status: StoreStatus) -> dict[str, object]:
    """The status for a program."""
    lease = status.lease
    last = None if lease is None else {"epoch": lease.epoch, "addresses": addresses_shown(lease.addresses)}
    return {
        "store": where,
        "cluster_id": status.cluster_id,
        "active": last if status.is_active else None,
        "last_active": last,
        "standbys": [
            {
                "addresses": addresses_shown(standby.addresses),
                "behind_bytes": standby.behind_bytes,
                "seconds_ago": round(standby.seconds_ago, 3),
                "is_silent": standby.is_silent,
            }
            for standby in status.standbys
        ],
        "contents": {
            name: {"objects": part.objects, "bytes": part.size_bytes} for name, part in status.contents.items()
        },
        "idle_puts_per_day": status.idle_puts_per_day,
        "idle_gets_per_day": status.idle_gets_per_day,
    }


def addresses_shown(addresses: Addresses) -> dict[str, str]:
    """HOST:PORT by the name of the listener."""
    return {name: shown_address(*address) for name, address in addresses.items()}
