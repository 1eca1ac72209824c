"""Declares commands, and the numbers that they take. A command's purpose is both its line in the list of commands and
the first line of its help.
"""

import argparse
from typing import Any, Final

from semel.ui.cli.display import terminal_columns

# More than anybody waits. Python's own waits end with an error from some hundred years on.
SECONDS_MAX: Final = 1_000_000_000


class Help(argparse.RawDescriptionHelpFormatter):
    """The same as argparse's, which imports `shutil` to ask how wide the terminal is. A parser makes one for each of
    its arguments, even if nobody asks for help.
    """

    def __init__(self, prog: str, **more: Any) -> None:
        # As argparse has it.
        super().__init__(prog, **{"width": terminal_columns() - 2, **more})


def add_subcommand(
    parsers: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, purpose: str, **more: Any
) -> argparse.ArgumentParser:
    """Add a command; `more` are further arguments of `add_parser`."""
    return parsers.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.", **more)


def count(text: str) -> int:
    """A whole number from 0 on, as an option takes it."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def seconds(text: str) -> float:
    """A time that a program can wait, as an option takes it."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to {SECONDS_MAX}")
    return value


def positive(text: str) -> int:
    """A whole number from 1 on, as an option takes it."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)
