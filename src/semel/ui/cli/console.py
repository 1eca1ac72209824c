"""`semel console`: pages in a browser that show a cluster as it is now.

It prints an address that lets one browser in, and then another one for the next browser; or the people log in that
`semel console user` has added. By default it serves only this machine. It must never change anything unless it was
started with `--allow-changes`.
"""

import argparse
import asyncio
import contextlib
import getpass
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from semel.ui.cli.addresses import listening_address
from semel.ui.cli.broker_door import add_door, door_in
from semel.ui.cli.cluster import add_bootstrap, client_settings
from semel.ui.cli.databases import warn_of_password
from semel.ui.cli.display import printable, tell
from semel.ui.cli.errors import Failure
from semel.ui.cli.input_end import add_until_input_ends, when_input_ends
from semel.ui.cli.password_file import password_in
from semel.ui.cli.subcommands import add_subcommand
from semel.wire.hosts import is_loopback

if TYPE_CHECKING:
    from semel.client.settings import ClientSettings
    from semel.ui.console.claims import Databases
    from semel.ui.console.server import Contents
    from semel.ui.console.standbys import Stores

EXAMPLE: Final = """  semel console --bootstrap 127.0.0.1:9092
  semel console --command-config client.properties --allow-changes
  semel console --decisions 127.0.0.1:9464 --database sqlite:///app.db --audits ./audits
  semel console --trial ./trial-data --allow-changes
  semel console user add alice --users people.json --may-change"""

LISTEN_DEFAULT: Final = "127.0.0.1:8080"


def configure(parser: argparse.ArgumentParser) -> None:
    add_bootstrap(parser)
    parser.add_argument(
        "--listen",
        default=LISTEN_DEFAULT,
        metavar="HOST:PORT",
        help=f"the address of the console; port 0 picks a free one ({LISTEN_DEFAULT})",
    )
    parser.add_argument(
        "--database",
        action="append",
        default=[],
        metavar="URL",
        help="show what waits in an application's tables, any number of times: sqlite:///FILE or "
        "postgresql://HOST/NAME",
    )
    parser.add_argument(
        "--application",
        action="append",
        default=[],
        metavar="URL",
        help="show the replays of HTTP keys of an application, any number of times: where it serves its counters for "
        "Prometheus, http://HOST:PORT/metrics",
    )
    add_door(parser, "show each verdict on a batch at once: the address at which the broker serves its metrics")
    parser.add_argument(
        "--audits", metavar="DIR", type=Path, help="show the audits that semel audit --keep DIR has kept here"
    )
    parser.add_argument(
        "--store",
        metavar="URL",
        help="show which broker on this store is active, and which stand by, as semel status does",
    )
    parser.add_argument(
        "--trial",
        metavar="DIR",
        help="start a broker for tests on this directory, behind a faulty network with switches on a page",
    )
    parser.add_argument(
        "--users",
        metavar="FILE",
        type=Path,
        help="let the people in this file log in, which semel console user writes, instead of printing an address",
    )
    parser.add_argument(
        "--allow-changes",
        action="store_true",
        help="let the pages change things, such as abort a transaction, with the rights of the console's login",
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="serve other machines: the pages and the address that lets a browser in cross the network unencrypted",
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help='read flags from this file, as TOML: audits = "./audits"; flags on the command line override it',
    )
    add_until_input_ends(parser)
    things = parser.add_subparsers(dest="thing", metavar="[user]", title="the people who may log in")
    user = add_subcommand(things, "user", "add or remove a person who may log in to the console")
    actions = user.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = add_subcommand(actions, "add", "add a person, or change a person's password and end this person's sessions")
    add.add_argument("--may-change", action="store_true", help="let the person change things, not only look")
    add.add_argument(
        "--password-file", metavar="FILE", help="read the password from the first line of this file (ask for it)"
    )
    remove = add_subcommand(actions, "remove", "remove a person, and end this person's sessions")
    for own in (add, remove):
        own.add_argument("name", metavar="NAME")
        own.add_argument("--users", metavar="FILE", type=Path, required=True, help="the file with the people")


def run(options: argparse.Namespace) -> int:
    if options.thing == "user":
        return _change_people(options)
    host, port = listening_address(options.listen)
    if not is_loopback(host) and not options.insecure:
        raise Failure(
            f"{options.listen} can be reached from other machines, and the console speaks no TLS: tunnel to it with "
            f"ssh -L, or pass --insecure"
        )
    for url in options.database:
        warn_of_password(url)
    if options.trial and not options.allow_changes:
        raise Failure("the switches of --trial are changes: pass --allow-changes, too")
    with _given(options) as (given, settings):
        asyncio.run(_serve(host, port, settings, given, options))
    return 0


# A console imports each of these only if it is to show it: importing all would make every start longer by half.


def _stores(url: str) -> "Stores":
    from semel.ui.console.standbys import Stores

    return Stores(url)


@contextlib.contextmanager
def _given(options: argparse.Namespace) -> "Iterator[tuple[Contents, ClientSettings]]":
    """What the console shows, and how it connects to the cluster; a trial lasts as long as the context."""
    from semel.log.stores import StoreError
    from semel.ui.console.audits import Audits
    from semel.ui.console.broker_door import BrokerDoor
    from semel.ui.console.people import NoPeople, People
    from semel.ui.console.server import Contents

    try:
        given = Contents(
            databases=_databases(options.database, options.application),
            decisions=door_in(options),
            audits=Audits(options.audits) if options.audits else None,
            stores=_stores(options.store) if options.store else None,
            people=People(options.users) if options.users else None,
        )
    except (NoPeople, StoreError, ValueError) as error:
        raise Failure(str(error)) from None
    if not options.trial:
        yield given, client_settings(options)
        return
    from semel.testing.served import ServeFailed
    from semel.ui.console.trial import Trial

    try:
        trial = Trial(options.trial).start()
    except ServeFailed as failed:
        raise Failure(str(failed)) from None
    try:
        options.bootstrap = trial.bootstrap
        tell(f"clients connect to {trial.clients_bootstrap}, through the faulty network")
        yield replace(given, trial=trial, decisions=BrokerDoor(*trial.metrics_address)), client_settings(options)
    finally:
        trial.stop()


def _change_people(options: argparse.Namespace) -> int:
    from semel.ui.console import people

    try:
        if options.action == "remove":
            people.remove(options.users, options.name)
            print(f"{printable(options.name)} is removed")
        else:
            password = password_in(options.password_file) if options.password_file else _asked_password()
            people.add(options.users, options.name, password, may_change=options.may_change)
            rights = "may look and change things" if options.may_change else "may look"
            print(f"{printable(options.name)} {rights}")
    except people.NoPeople as error:
        raise Failure(str(error)) from None
    return 0


def _asked_password() -> str:
    if not sys.stdin.isatty():
        raise Failure("without a terminal, give the password with --password-file FILE")
    password = getpass.getpass("password: ")
    if getpass.getpass("again: ") != password:
        raise Failure("the two passwords differ")
    return password


def _databases(urls: list[str], applications: list[str]) -> "Databases | None":
    if not urls and not applications:
        return None
    try:
        from semel.ui.console.claims import Databases

        return Databases(urls, applications)
    except ImportError as missing:
        needs = "--database and --application need the packages for applications: pip install 'semel[app,postgres]'"
        raise Failure(f"{needs} ({missing})") from missing
    except ValueError as error:
        raise Failure(str(error)) from error


async def _serve(
    host: str, port: int, settings: "ClientSettings", given: "Contents", options: argparse.Namespace
) -> None:
    from semel.ui.console.server import Console

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if options.until_input_ends:
        when_input_ends(loop, stop.set)
    console = Console(
        host, port, settings, given, allow_changes=options.allow_changes, tell=lambda line: tell(printable(line))
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
