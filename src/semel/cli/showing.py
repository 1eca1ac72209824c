"""How the commands show what they have found: tables, times, and bytes that are no text."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

NOTHING: Final = "-"


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """The first row is that of the names."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def time_shown(at_ms: int | None) -> str:
    """To the second, in UTC."""
    return NOTHING if at_ms is None else f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def hexadecimal(given: bytes | None) -> str | None:
    """What cannot be decoded is no text."""
    return None if given is None else given.hex()
