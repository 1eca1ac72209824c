"""What the commands have in common that run beside an application: `semel outbox run` and its like."""

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from semel.ui.cli.addresses import BOOTSTRAP_DEFAULT
from semel.ui.cli.display import printable
from semel.ui.cli.errors import Failure

if TYPE_CHECKING:
    import logging

    from sqlalchemy import Engine
    from sqlalchemy.orm import sessionmaker

    from semel.service.life import Service
    from semel.settings import Role

BOOTSTRAP: Final = "bootstrap.servers"


def add_kafka(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--bootstrap", metavar="HOST:PORT", help=f"a broker of the cluster ({BOOTSTRAP_DEFAULT})")
    add(
        "--config",
        metavar="FILE",
        help="further settings of the client: properties, JSON or TOML, by librdkafka's names",
    )


def kafka_of(options: argparse.Namespace, role: "Role") -> dict[str, Any]:
    """The settings of a client in this role."""
    from semel.ui.cli.settings_file import read_settings_file

    settings: dict[str, Any] = {}
    if options.config is not None:
        by_role = read_settings_file(options.config).by_role
        found = by_role.get(role, by_role.get(None))
        if found is None:
            # Its address and its login are those of the other role, too: without them this would go to another cluster.
            [other] = by_role
            raise Failure(f"{options.config}: its settings are for a {other} only, and this command is a {role}")
        settings |= found
    if options.bootstrap:
        settings[BOOTSTRAP] = options.bootstrap
    settings.setdefault(BOOTSTRAP, BOOTSTRAP_DEFAULT)
    return settings


def imported(module: str) -> dict[str, Any]:
    """The names in a module of the application, which may be in the present directory."""
    sys.path.insert(0, os.getcwd())
    try:
        return vars(importlib.import_module(module))
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise Failure(f"there is no module {module!r} here, nor where Python looks for modules") from error


def add_sessions(parser: argparse.ArgumentParser, what: str) -> None:
    """For code of the application that may get a session in place of a connection."""
    parser.add_argument(
        "--sessions",
        metavar="MODULE:NAME",
        help=f"the sessionmaker of the application: {what} like its own, on --database",
    )


def database_of(options: argparse.Namespace, engine: "Engine") -> "Engine | sessionmaker[Any]":
    """The engine, or a sessionmaker that makes the application's sessions on it."""
    if options.sessions is None:
        return engine
    from sqlalchemy.orm import sessionmaker

    module, _, name = options.sessions.partition(":")
    made = imported(module).get(name) if module and name else None
    if not isinstance(made, sessionmaker):
        raise Failure(f"--sessions {options.sessions}: that is no sessionmaker; name one as MODULE:NAME")
    return sessionmaker(**{**made.kw, "class_": made.class_, "bind": engine})


@contextlib.contextmanager
def serving(
    service: "Service",
    name: str,
    what: str,
    options: argparse.Namespace,
    engine: "Engine",
    formatter: "logging.Formatter | None" = None,
) -> Iterator[float]:
    """The block runs the service; it gets the grace time."""
    from semel.database.engines import place_of
    from semel.service import life
    from semel.service.options import ServiceRefused, options_of

    try:
        chosen = options_of(vars(options))
        what = printable(f"{what}; database {place_of(engine)}")
        with life.serving(service, name, what, chosen, engine=engine, stream=sys.stderr, formatter=formatter):
            yield chosen.grace_seconds
    except ServiceRefused as error:
        raise Failure(str(error)) from error


def add_every(parser: argparse.ArgumentParser) -> None:
    """For a reaper, which a timer of the system may run as well."""
    from semel.service.options import add_options
    from semel.ui.cli.subcommands import seconds

    parser.add_argument(
        "--every", type=seconds, metavar="SECONDS", help="go on as a service that does this every so many seconds"
    )
    add_options(parser)


def reap(options: argparse.Namespace, engine: "Engine", what: str, work: Callable[[], str]) -> int:
    """Do this once and print what it says; or again and again, if the user wants a service."""
    if options.every is None:
        print(work())
        return 0
    from semel.service.repeated import Repeated

    service = Repeated(work, options.every)
    with serving(service, "reaper", what, options, engine):
        service.run()
    return 0
