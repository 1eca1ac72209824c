"""`semel users`: lists, adds and removes the users who can log in to a broker. With `--data` it works on the directory
of a broker that does not run, which is how the first user is added. A password is read from a file or from standard
input, and never from the command line, where every process of the machine could read it. This file must never print
one.
"""

import argparse
import getpass
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from semel.client import users as client
from semel.log.rules import ITERATIONS_MAX, ITERATIONS_MIN
from semel.ui.cli.cluster import add_bootstrap, cluster_at
from semel.ui.cli.data_directory import check_directory
from semel.ui.cli.display import print_table
from semel.ui.cli.errors import Failure
from semel.ui.cli.password_file import password_in
from semel.ui.cli.subcommands import add_subcommand, positive
from semel.wire.refusals import Refused
from semel.wire.scram import SALT_BYTES, Mechanism, credential_of, salted

if TYPE_CHECKING:
    from semel.log.at_rest import Log

EXAMPLE: Final = """  semel users add admin --data ./data < password.txt
  semel users list"""

_MECHANISMS: Final = {mechanism.sasl_name: mechanism for mechanism in Mechanism}


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, purpose: str) -> argparse.ArgumentParser:
        # With abbreviations argparse would take --password=... for --password-file, and would show the password in an
        # error.
        own = add_subcommand(actions, name, purpose, allow_abbrev=False)
        if name != "list":
            own.add_argument("name", metavar="NAME", help="the user's name")
            own.add_argument(
                "--mechanism",
                action="append",
                choices=_MECHANISMS,
                help="only this one (all; PLAIN takes the password of either)",
            )
        add_bootstrap(own)
        own.add_argument(
            "--data",
            metavar="DIR",
            help="the directory of a broker that does not run, for the first user; semel move takes it into a store",
        )
        return own

    action("list", "show every user, and how the user can log in")
    add = action("add", "add a user, or give a user another password, which is read from standard input")
    add.add_argument("--password-file", metavar="FILE", help="read the password from the first line of this file")
    add.add_argument(
        "--iterations",
        type=positive,
        default=client.ITERATIONS_DEFAULT,
        metavar="N",
        help=f"how often the password is hashed, {ITERATIONS_MIN} to {ITERATIONS_MAX} ({client.ITERATIONS_DEFAULT})",
    )
    action("remove", "remove a user; open connections of the user stay open")


def run(options: argparse.Namespace) -> int:
    if options.data:
        check_directory(
            options.data, f"the first user is added to a new directory, then semel move --from DIR --to {options.data}"
        )
    if options.action == "list":
        _list(options)
        return 0
    chosen = [_MECHANISMS[name] for name in options.mechanism or _MECHANISMS]
    if options.action == "add":
        if not ITERATIONS_MIN <= options.iterations <= ITERATIONS_MAX:
            raise Failure(f"--iterations takes {ITERATIONS_MIN} to {ITERATIONS_MAX}, not {options.iterations}")
        _add(options, _password(options.password_file), chosen)
        print(f"user {options.name} can log in by {_names(chosen)}")
    else:
        _remove(options, chosen)
        print(f"removed {options.name}")
    return 0


def _list(options: argparse.Namespace) -> None:
    mechanisms: Mapping[str, Mapping[Mechanism, int]]
    if options.data:
        with _directory(options.data) as log:
            users = log.state.users
            mechanisms = {
                user: {mechanism: held.iterations for mechanism, held in users.credentials(user).items()}
                for user in users
            }
    else:
        with cluster_at(options) as cluster:
            mechanisms = client.users_of(cluster)
    rows = [("USER", "MECHANISMS", "ITERATIONS")]
    for user, held in sorted(mechanisms.items()):
        rows.append((user, _names(list(held)), ", ".join(map(str, held.values()))))
    print_table(rows)


def _add(options: argparse.Namespace, password: str, chosen: list[Mechanism]) -> None:
    if not options.data:
        with cluster_at(options) as cluster:
            client.set_password(cluster, options.name, password, options.iterations, *chosen)
        return
    with _directory(options.data) as log:
        for mechanism in chosen:
            salt = secrets.token_bytes(SALT_BYTES)
            key = salted(mechanism, password, salt, options.iterations)
            credential = credential_of(mechanism, key, salt, options.iterations)
            log.commit(log.state.users.decide_set(options.name, mechanism, credential))


def _remove(options: argparse.Namespace, chosen: list[Mechanism]) -> None:
    if options.data:
        with _directory(options.data) as log:
            held = log.state.users.credentials(options.name)
            for mechanism in _held(options.name, held, chosen):
                log.commit(log.state.users.decide_remove(options.name, mechanism))
        return
    with cluster_at(options) as cluster:
        wanted = _held(options.name, client.users_of(cluster).get(options.name, {}), chosen)
        client.remove_user(cluster, options.name, *wanted)


def _held(user: str, held: Mapping[Mechanism, object], chosen: list[Mechanism]) -> list[Mechanism]:
    """The chosen mechanisms by which the user can log in."""
    wanted = [mechanism for mechanism in chosen if mechanism in held]
    if not wanted:
        raise Failure(f"there is no user {user!r}" + (f" for {_names(chosen)}" if held else ""))
    return wanted


@contextmanager
def _directory(data: str) -> "Iterator[Log]":
    """The log in a directory on which no broker runs; changes are durable when the block ends."""
    from semel.log.at_rest import Cached, Damaged, Log
    from semel.log.files import DiskFiles

    try:
        log = Log.open(DiskFiles(data), new_cluster_id=secrets.token_urlsafe(16))
    except BlockingIOError:
        raise Failure(f"{data} is in use by a broker; use --bootstrap instead of --data") from None
    except Cached as error:
        raise Failure(f"{error}: add users to the store's active broker, with --bootstrap") from None
    except Damaged as error:
        raise Failure(f"the data directory cannot be used: {error}") from None
    except OSError as error:
        raise Failure(f"{error.filename or data}: {error.strerror or error}") from None
    try:
        yield log
    except Refused as error:
        log.abandon()
        raise Failure(str(error)) from None
    except BaseException:
        log.abandon()
        raise
    log.close()


def _password(file: str | None) -> str:
    """The password: the first line of a file or of standard input; at a terminal the user is asked."""
    password = _typed() if file is None else password_in(file)
    if not password:
        raise Failure("the password is empty; write it to standard input, or pass --password-file FILE")
    return password


def _typed() -> str:
    try:
        password = getpass.getpass("password: ") if sys.stdin.isatty() else sys.stdin.readline()
    except OSError as error:
        raise Failure(f"standard input: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Failure("the password is not UTF-8") from None
    return password.rstrip("\r\n")


def _names(mechanisms: list[Mechanism]) -> str:
    return ", ".join(mechanism.sasl_name for mechanism in mechanisms)
