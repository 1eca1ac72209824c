"""Prints for all commands: tables, findings, counts, times, bytes that are no text, and texts that strangers chose.

A text that a stranger has chosen, such as an id, must never break lines or send commands to a terminal.
"""

import base64
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, NamedTuple

from semel.ui.cli.errors import Failure

NOTHING: Final = "-"
LINE_END: Final = "\n"
# Where nobody says how wide the terminal is.
_COLUMNS: Final = 80


class Mark(StrEnum):
    GOOD = "ok"
    # Only parts of semel need it, or it works, but not well.
    WANTING = "--"
    # semel does not work without it.
    BAD = "!!"


class Finding(NamedTuple):
    """What `semel doctor` found, and advice for what is missing."""

    mark: Mark
    what: str
    state: str
    remedy: str = ""


def terminal_columns() -> int:
    """How wide the terminal is. `shutil` would say so, too, and imports three modules for archives first."""
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _COLUMNS
    except (OSError, ValueError, AttributeError):
        # No terminal.
        return _COLUMNS


def print_table(rows: Sequence[Sequence[str]], *, right: bool = False) -> None:
    """Print rows, the first of which has the names of the columns. `right` aligns all columns except the first to the
    right, as for figures.
    """
    rows = [[*map(printable, row)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if right and place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def print_findings(findings: Sequence[Finding]) -> int:
    """Print the findings; return the exit code: 1 if something is missing that the broker needs."""
    width = max(len(finding.what) for finding in findings)
    with while_somebody_reads():
        for mark, what, state, remedy in findings:
            print(f"{mark}  {what:{width}}  {state}" + (f": {remedy}" if remedy else ""))
    return 1 if any(finding.mark is Mark.BAD for finding in findings) else 0


def tell(line: str) -> None:
    """Print a line of a server, which goes on although nobody can read it, because a pipe is closed or a disk full:
    otherwise a standby would end at its takeover, and a console would let nobody in.
    """
    try:
        print(line, flush=True)
    except BrokenPipeError:
        drop_output()
    except OSError:
        # There may be space again for the next line.
        pass


@contextlib.contextmanager
def while_somebody_reads() -> Iterator[None]:
    """A context for the output of a command whose exit code is its answer: it stays the same if the reader of the
    output goes away, as `head` does.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()


def drop_output() -> None:
    """Write the rest of the output to nowhere, or Python would report at its end that nobody takes it."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_confirmed(question: str, unasked: str) -> bool:
    """Whether the person at the terminal says yes; where nobody sits at one, a `Failure` with `unasked`."""
    if not sys.stdin.isatty():
        raise Failure(unasked)
    print(f"{question} [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def counted(number: int, one: str, several: str | None = None) -> str:
    """A number with its unit."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def printable(text: str, *, keep: str = "") -> str:
    """The text with every character escaped that is not printable, except those in `keep`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def time_shown(at_ms: int | None) -> str:
    """A time to the second, in UTC. A number that no calendar has, as a producer may write one, stays a number."""
    if at_ms is None:
        return NOTHING
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"


def as_field(name: str, data: bytes | None) -> dict[str, str | None]:
    """A JSON field with the text; bytes that are not text are in Base64, under a name that says so."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
