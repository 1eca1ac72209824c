"""The command line: one file for each command, imported only when that command is used.

A command's module has an `EXAMPLE`, `configure` to declare its arguments, and `run` to do the work and return the exit
code: 0 when done, 1 when it failed, 2 when it was called wrongly, 3 when another process has taken over. Every error is
one line on standard error.
"""

import argparse
import errno
import importlib
import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

from semel import __version__
from semel.ui.cli.display import LINE_END, drop_output, printable, terminal_columns
from semel.ui.cli.endings import Endings
from semel.ui.cli.errors import Failure
from semel.ui.cli.subcommands import Help, add_subcommand

# The commands in groups, with the purpose of each. They are listed here and not in the modules, so that `semel --help`
# need not import all modules.
GROUPS: Final = {
    "broker": {
        "serve": "run the broker on a directory",
        "topics": "list, create, describe and delete topics",
        "produce": "write lines to a topic, each exactly once",
        "tail": "read a topic, with the producer ids and sequence numbers of the records",
        "groups": "list, describe, reset and delete consumer groups",
        "users": "list, add and remove the users who can log in",
        "transactions": "list and describe transactions, and abort those whose producer is gone",
        "acls": "list, add and remove access rules, and show which rule decides about a request",
        "console": "show topics, records, transactions, producers and groups in a browser, as they are now",
        "top": "show in a terminal which topics grow, which groups lag, and what holds readers back, as it is now",
        "quotas": "list, set and remove quotas: how much of the broker a client may use",
        "dump": "look into a data directory: journal, segments, producers",
        "status": "show which broker on a store is active, which stand by, and how much the store holds",
        "resign": "have the active broker of a store hand over to a standby",
        "move": "move a whole log from a directory into an object store, or back, or from a broker to Apache Kafka",
        "backup": "copy the log in an object store into another one while brokers use it, and later what is new",
        "salvage": "read as much as can be proven of a damaged log into a new directory, and say what is lost",
        "repair": "go on without lost or damaged data that stops the broker's start, and keep a copy of what is left",
    },
    "application": {
        "settings": "print a client's settings for a delivery guarantee, and check a client's settings",
        "schema": "make the tables of outbox, inbox, HTTP keys and workflows in your database, check or print them",
        "outbox": "publish the messages that an application's transactions have added, and show the progress",
        "inbox": "have a function handle events, each once; show what was put aside, and retry or drop it",
        "http": "delete the HTTP keys that have expired",
        "steps": "run an application's workflows, show and cancel them, and have them go on",
    },
    "pipeline": {
        "audit": "check whether every sink has each event exactly once, and name lost and doubled ones",
        "reset": "have a streaming query start over: delete its checkpoint, rows, claims and topics",
    },
    "proof": {
        "demo": "send payments through a bad network, three ways, and on through Spark to the last row",
        "lab": "try the rules of idempotence and transactions at a prompt or from a file",
        "chaos": "lose, cut and kill while clients work, and count what arrived",
        "doctor": "show what this machine has, what it lacks, and how to get it",
    },
}
# The commands that can read flags from a file.
CONFIGURED: Final = ("serve", "console")
# A disk that is full or broken, which is no mistake of semel's.
_DISK_ERRORS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
COMMANDS: Final = {name: purpose for group in GROUPS.values() for name, purpose in group.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the `semel` script; ends the process."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A character that the terminal cannot show is printed as its number, because no output may fail on a
            # letter.
            stream.reconfigure(errors="backslashreplace")
    endings = Endings()
    try:
        code = _run(words)
    except Exception:
        # A C library that a signal interrupts may raise its own error instead of semel's.
        if not endings.struck:
            raise
        code = 128 + endings.struck[0]
    sys.exit(code)


def _open_closed_streams() -> None:
    """Open the null device as each standard stream that is closed, as by `>&-`. Python has no object for
    such a stream; and a file that is opened later would get its number, and with it what a library prints there.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            # This gets the lowest free number, which is the one that is closed.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            setattr(sys, name, open(number, mode, encoding="utf-8"))  # noqa: SIM115


def _listed() -> str:
    """The commands in their groups, with the purpose of each, as wide as the terminal."""
    import textwrap

    width, columns = max(map(len, COMMANDS)) + 6, max(terminal_columns(), 60)
    lines = []
    for group, commands in GROUPS.items():
        lines.append(f"{group}:")
        for name, purpose in commands.items():
            first = f"    {name}".ljust(width)
            lines += textwrap.wrap(purpose, columns, initial_indent=first, subsequent_indent=" " * width)
    return "\n".join([*lines, "", "`semel COMMAND --help` says what a command takes."])


def _run(words: list[str]) -> int:
    # The command is found before the arguments are parsed, so that only its module is imported.
    name = words[0] if words and words[0] in COMMANDS else None
    parser = argparse.ArgumentParser(
        prog="semel",
        description="Exactly once, from the first request to the last row.",
        epilog=_listed() if name is None else None,
        formatter_class=Help,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"semel {__version__}")
    if name is None:
        # Ends the process with a help, the version or an error. A parser for each command would take longer than the
        # rest of it.
        parser.usage = "semel [-h] [--version] COMMAND ..."
        parser.add_argument("command", metavar="COMMAND", choices=COMMANDS, help="one of the commands below")
        parser.parse_args(words)
        parser.error("the command has to be the first argument")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    module = importlib.import_module(f"semel.ui.cli.{name}")
    own = add_subcommand(
        commands,
        name,
        COMMANDS[name],
        epilog=f"example:\n{module.EXAMPLE}",
        formatter_class=Help,
        allow_abbrev=False,
    )
    module.configure(own)
    own.set_defaults(run=module.run)
    try:
        if name in CONFIGURED:
            from semel.ui.cli.flags_file import with_file

            words = [name, *with_file(own, words[1:])]
        options, unknown = parser.parse_known_args(words)
        if unknown:
            # By the command's own parser, whose usage says what it takes.
            own.error(f"unrecognized arguments: {' '.join(unknown)}")
        code: int = options.run(options)
        sys.stdout.flush()
    except Failure as failure:
        print(f"semel: {printable(str(failure), keep=LINE_END)}", file=sys.stderr)
        return failure.exit_code
    except UnicodeEncodeError as error:
        # The name of a file may have any bytes, but that of a user or a topic may not.
        if error.reason != "surrogates not allowed":
            raise
        print(f"semel: {printable(str(error.object))} is not UTF-8", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        # From Spark, which answers Ctrl-C in its own way where it runs in this process.
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # The program that read the output has ended, so no message can reach anybody.
        drop_output()
        return 1
    except OSError as error:
        if error.errno not in _DISK_ERRORS:
            raise
        # Most often where the output goes.
        print(f"semel: {error.filename or 'writing the output'}: {error.strerror}", file=sys.stderr)
        drop_output()
        return 1
    return code
