"""How a command is declared: what it is for is its line in the list of commands, and the first line of its own help."""

import argparse
from typing import Any


def add_subcommand(
    parsers: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, purpose: str, **more: Any
) -> argparse.ArgumentParser:
    """`more` is what `add_parser` takes besides."""
    return parsers.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.", **more)
