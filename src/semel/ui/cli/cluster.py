"""The cluster that a command talks to: connects to the broker that the user names, and turns errors into `Failure`.

Commands use `semel.client.cluster`, which tries each request once. This file must never repeat a request that changes
something: only the command knows whether that is safe.
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, TypeVar

from semel.client.cluster import Cluster
from semel.client.errors import LogError, SettingsRefused
from semel.client.patience import Patience
from semel.client.settings import BOOTSTRAP as _BOOTSTRAP
from semel.client.settings import PREFIX, Address, ClientSettings, from_options
from semel.ui.cli.addresses import BOOTSTRAP_DEFAULT, broker_address
from semel.ui.cli.errors import Failure
from semel.ui.cli.settings_file import read_client_settings
from semel.ui.cli.subcommands import add_subcommand
from semel.wire.hosts import shown_address

T = TypeVar("T")

# How long to wait for an answer: the disk may be slow, and a fetch waits for records.
_ANSWER_MS_MAX: Final = 60_000
# How long a topic that was just created, or a coordinator, may take to become available.
_READY_MS_MAX: Final = 3_000


def add_bootstrap(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bootstrap", metavar="HOST:PORT", help=f"a broker of the cluster ({BOOTSTRAP_DEFAULT}, or what the file says)"
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="a client's settings for TLS and the login, as Kafka's own tools take them: properties, .json or .toml",
    )


def cluster_actions(
    parser: argparse.ArgumentParser, thing: str, what: str
) -> Callable[[str, str], argparse.ArgumentParser]:
    """Declares the actions of a command on a cluster by their names and purposes. Each takes a thing, except `list`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, purpose: str) -> argparse.ArgumentParser:
        own = add_subcommand(actions, name, purpose)
        if name != "list":
            own.add_argument(thing, metavar=thing.upper(), help=what)
        add_bootstrap(own)
        return own

    return action


@contextmanager
def cluster_at(options: argparse.Namespace) -> Iterator[Cluster]:
    """A context with the cluster that the options of `add_bootstrap` name. An error of the client in the block becomes
    a `Failure`.
    """
    try:
        with Cluster(client_settings(options)) as cluster:
            yield cluster
    except LogError as error:
        raise Failure(str(error)) from None


def client_settings(options: argparse.Namespace) -> ClientSettings:
    """The client settings of a command. An unknown setting is refused by its name."""
    return settings_for(options.bootstrap, options.command_config)


def settings_for(bootstrap: str | None, file: str | None) -> ClientSettings:
    """The settings in a file, if there is one, with the address of `bootstrap` if that is given."""
    named = {} if file is None else read_client_settings(file)
    if bootstrap is not None or _BOOTSTRAP not in named:
        addresses = (bootstrap or BOOTSTRAP_DEFAULT).split(",")
        named[_BOOTSTRAP] = ",".join(shown_address(*broker_address(address)) for address in addresses)
    try:
        settings = from_options({f"{PREFIX}{name}": str(value) for name, value in named.items()})
    except SettingsRefused as error:
        # In a file, settings do not have the prefix of Spark's options.
        reason = str(error).replace(f"option {PREFIX}", "setting ").replace(PREFIX, "")
        raise Failure(f"{file}: {reason}") from None
    return replace(settings, client_id="semel", request_timeout_ms=_ANSWER_MS_MAX)


def soon(cluster: Cluster, attempt: Callable[[], T]) -> T:
    """The result of a query about something that may have been created a moment ago: try again for a while."""
    return Patience(replace(cluster.settings, api_timeout_ms=_READY_MS_MAX)).patiently(attempt)


def coordinator_of(cluster: Cluster, name: str, kind: int) -> Address:
    return soon(cluster, lambda: cluster.coordinator(name, kind))
