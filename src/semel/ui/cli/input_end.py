"""Ends a process with its parent: a parent that is killed sends no signal, but its end of this process's standard input
is closed.
"""

import argparse
import asyncio
import os
from collections.abc import Callable


def add_until_input_ends(parser: argparse.ArgumentParser) -> None:
    """A flag for a program that starts this one, not for a person."""
    parser.add_argument("--until-input-ends", action="store_true", help=argparse.SUPPRESS)


def when_input_ends(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    """Call `stop` when the other end of standard input is closed; input before that is ignored."""

    def read() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            stop()

    loop.add_reader(0, read)
