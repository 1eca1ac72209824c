"""The command line: one file for each command, imported only when that command is used.

A command's module has an `EXAMPLE`, `configure` to declare its arguments, and `run` to do the work and answer the exit
code: 0 when done, 1 when it failed, 2 when it was called wrongly. Whatever goes wrong is one line on standard error.
"""

import argparse
import contextlib
import importlib
import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

from semel import __version__
from semel.cli.errors import Failure

# The commands in the order in which a newcomer meets them, and what each is for. It stands here and not in the modules,
# so that `semel --help` need not import them all.
COMMANDS: Final = {
    "serve": "run the broker on a directory",
    "demo": "watch exactly-once survive lost answers, replays, gaps and kill -9",
    "topics": "list, create, describe and delete topics",
    "produce": "write lines to a topic, each exactly once",
    "tail": "read a topic, with the numbers its deduplication goes by",
    "groups": "list, describe, reset and delete consumer groups",
    "transactions": "list and describe transactions, and abort what nobody will end",
    "lab": "try the rules of idempotence and transactions at a prompt or from a file",
    "chaos": "lose, cut and kill while clients work, and count what arrived",
    "dump": "look into a data directory: journal, segments, producers",
    "doctor": "see what this machine has, what it lacks, and how to get it",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """What the `semel` script calls; ends the process."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # What a terminal cannot show is shown by its number: an answer must not fail on a letter.
            stream.reconfigure(errors="backslashreplace")
    # As an exception, so that what a command has made for itself, files and processes, ends with it.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.exit(_run(words))


def _run(words: list[str]) -> int:
    # A command is looked for before anything is parsed, so that only the one that is used is imported.
    name = words[0] if words and words[0] in COMMANDS else None
    parser = argparse.ArgumentParser(
        prog="semel", description="Exactly once, from the first request to the last row.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"semel {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command, purpose in COMMANDS.items():
        if command != name:
            commands.add_parser(command, help=purpose, add_help=False)
            continue
        module = importlib.import_module(f"semel.cli.{command}")
        own = commands.add_parser(
            command,
            help=purpose,
            description=f"{purpose[0].upper()}{purpose[1:]}.",
            epilog=f"example:\n{module.EXAMPLE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.configure(own)
        own.set_defaults(run=module.run)
    options = parser.parse_args(words)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except Failure as failure:
        print(f"semel: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone away; there is nobody left to tell.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code
