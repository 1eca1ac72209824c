"""`semel settings`: prints a client's settings for a delivery guarantee, and checks a client's settings."""

import argparse
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from semel.settings import Client, Conflict, Role, Semantics, UnknownSettings, bundle, check
from semel.settings.clients import client_of
from semel.settings.formats import WRITTEN_FORMATS, write
from semel.ui.cli.display import while_somebody_reads
from semel.ui.cli.errors import Failure
from semel.ui.cli.settings_file import read_settings_file
from semel.ui.cli.subcommands import add_subcommand

EXAMPLE = "  semel settings exactly-once --client confluent\n  semel settings check producer.properties"

_PURPOSES: Final = {
    Semantics.AT_MOST_ONCE: "print the settings with which no record is stored twice, but a fault may lose records",
    Semantics.AT_LEAST_ONCE: "print the settings with which no record is lost, but a fault may store records twice",
    Semantics.EXACTLY_ONCE: "print the settings with which no record is lost or stored twice",
}


_STRICT_ORDER: Final = (
    "allow one request under way at a time, so that no batch overtakes one that the producer gives up"
)


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="about", metavar="|".join((*Semantics, "check")), required=True)
    for semantics, purpose in _PURPOSES.items():
        own = add_subcommand(commands, semantics.value, purpose)
        own.add_argument(
            "--client", choices=_words(Client), default=Client.CONFLUENT.value, help="the client (confluent)"
        )
        own.add_argument("--role", choices=_words(Role), help="for a producer or a consumer only (both)")
        own.add_argument("--format", choices=WRITTEN_FORMATS, help="the format to print (the usual one for the client)")
        if semantics is not Semantics.AT_MOST_ONCE:
            own.add_argument("--strict-order", action="store_true", help=_STRICT_ORDER)
        if semantics is Semantics.EXACTLY_ONCE:
            own.add_argument("--transactional-id", metavar="NAME", help="for a producer that writes in transactions")
    purpose = "name each conflict in a file of settings, and its cost; exit code 1 if there is one"
    own = add_subcommand(commands, "check", purpose)
    own.add_argument("file", metavar="FILE", help="properties, JSON or TOML, by the end of its name")
    own.add_argument(
        "--for",
        dest="semantics",
        choices=_words(Semantics),
        default=Semantics.EXACTLY_ONCE.value,
        help="the guarantee to check for (exactly-once)",
    )
    own.add_argument("--strict-order", action="store_true", help=_STRICT_ORDER)
    own.add_argument("--client", choices=_words(Client), help="the client (found by the names of the settings)")
    own.add_argument("--role", choices=_words(Role), help="the role (found by the names of the settings)")


def _words(choices: type[StrEnum]) -> list[str]:
    """The choices as plain strings, because argparse would print them as Python writes them."""
    return [choice.value for choice in choices]


def run(options: argparse.Namespace) -> int:
    if options.about == "check":
        return _check(options)
    made = bundle(
        options.about,
        options.client,
        getattr(options, "transactional_id", None),
        strict_order=getattr(options, "strict_order", False),
    )
    print(write(made, options.format, [Role(options.role)] if options.role else tuple(Role)))
    return 0


def _check(options: argparse.Namespace) -> int:
    try:
        conflicts = list(_conflicts(options))
    except UnknownSettings as error:
        option = f"--{error.argument} {'|'.join(error.choices)}"
        raise Failure(f"{options.file}: {error.problem}: say {option}") from error
    with while_somebody_reads():
        for conflict in conflicts:
            print(conflict)
        if not conflicts:
            print(f"no conflict with {options.semantics}")
    return 1 if conflicts else 0


def _conflicts(options: argparse.Namespace) -> Iterator[Conflict]:
    by_role, form = read_settings_file(options.file)
    for role, config in by_role.items():
        client = options.client or client_of(set(config), from_properties=form == "properties")
        yield from check(
            config,
            semantics=options.semantics,
            client=client,
            role=role or options.role,
            strict_order=options.strict_order,
        )
