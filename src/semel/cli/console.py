"""`semel console`: pages in a browser that show a cluster as it is now.

It prints an address to open, which lets one browser in, and after that one for the next. It serves this machine alone
unless it is told otherwise, and must never change anything unless it was started with `--allow-changes`.
"""

import argparse
import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING, Final

from semel.cli.addresses import Address, broker_address, listening_address
from semel.cli.cluster import add_bootstrap, client_settings
from semel.cli.databases import warn_of_password
from semel.cli.errors import Failure
from semel.security.hosts import is_loopback

if TYPE_CHECKING:
    from semel.client.settings import ClientSettings
    from semel.console.claims import Databases

EXAMPLE: Final = """  semel console --bootstrap 127.0.0.1:9092
  semel console --command-config client.properties --allow-changes"""

LISTEN_DEFAULT: Final = "127.0.0.1:8080"


def configure(parser: argparse.ArgumentParser) -> None:
    add_bootstrap(parser)
    parser.add_argument(
        "--listen",
        default=LISTEN_DEFAULT,
        metavar="HOST:PORT",
        help=f"where a browser finds the console; port 0 picks a free one ({LISTEN_DEFAULT})",
    )
    parser.add_argument(
        "--database",
        action="append",
        default=[],
        metavar="URL",
        help="show what waits in an application's tables, any number of times: sqlite:///FILE or postgresql://HOST/NAME",
    )
    parser.add_argument(
        "--decisions",
        metavar="HOST:PORT",
        help="show each verdict on a batch as it falls: the address at which the broker serves its metrics",
    )
    parser.add_argument(
        "--allow-changes",
        action="store_true",
        help="let the pages change things, such as abort a transaction, with the rights of the console's login",
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="serve other machines: what they see and the address that lets them in cross the network in the clear",
    )


def run(options: argparse.Namespace) -> int:
    host, port = listening_address(options.listen)
    if not is_loopback(host) and not options.insecure:
        raise Failure(
            f"{options.listen} can be reached from other machines, and the console speaks no TLS: tunnel to it with "
            "ssh -L, or say --insecure"
        )
    settings = client_settings(options)
    for url in options.database:
        warn_of_password(url)
    decisions = broker_address(options.decisions) if options.decisions else None
    asyncio.run(_serve(host, port, settings, _databases(options.database), decisions, options.allow_changes))
    return 0


def _databases(urls: list[str]) -> "Databases | None":
    if not urls:
        return None
    try:
        from semel.console.claims import Databases

        return Databases(urls)
    except ImportError as missing:
        needs = "--database needs what an application needs: pip install 'semel[app,postgres]'"
        raise Failure(f"{needs} ({missing})") from missing
    except ValueError as error:
        raise Failure(str(error)) from error


async def _serve(
    host: str,
    port: int,
    settings: "ClientSettings",
    databases: "Databases | None",
    decisions: Address | None,
    allow_changes: bool,
) -> None:
    from semel.console.server import Console

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    console = Console(
        host, port, settings, databases=databases, decisions=decisions, allow_changes=allow_changes, tell=_tell
    )
    try:
        await console.start()
    except OSError as error:
        raise Failure(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    try:
        await stop.wait()
    finally:
        with contextlib.suppress(OSError):
            await console.stop()


def _tell(line: str) -> None:
    print(line, flush=True)
