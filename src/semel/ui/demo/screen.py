"""What a user sees while the demo runs: growing bars on a terminal, and plain lines elsewhere.

It writes only to standard output. The demo must never have to wait for it.
"""

import shutil
import sys
from collections.abc import Sequence
from typing import Final

from semel.ui.demo.figures import COLUMNS, Row

BAR_CHARACTERS: Final = 28


class Screen:
    """Lines that `draw` replaces on a terminal."""

    def __init__(self, is_terminal: bool) -> None:
        self.is_terminal = is_terminal
        self._drawn = 0

    def draw(self, lines: Sequence[str]) -> None:
        """Write these lines over the last ones; without a terminal, do nothing."""
        if not self.is_terminal:
            return
        width = shutil.get_terminal_size().columns
        back = f"\x1b[{self._drawn}F" if self._drawn else ""
        sys.stdout.write(back + "".join(f"\x1b[K{line[: width - 1]}\n" for line in lines))
        sys.stdout.flush()
        self._drawn = len(lines)

    def say(self, line: str) -> None:
        """Write a line that stays: above the drawn lines, or at the end of the output."""
        if self._drawn:
            sys.stdout.write(f"\x1b[{self._drawn}F\x1b[J")
            self._drawn = 0
        print(line, flush=True)

    def leave(self) -> None:
        """Keep the drawn lines as they are."""
        self._drawn = 0


def bar(share: float) -> str:
    return f"[{'#' * round(min(max(share, 0.0), 1.0) * BAR_CHARACTERS):.<{BAR_CHARACTERS}}]"


def table(sections: Sequence[tuple[str, Sequence[Row]]]) -> list[str]:
    """The table, as lines."""
    name_width = max(len(row.name) for _, rows in sections for row in rows) + 2
    cells = [row.cells() for _, rows in sections for row in rows]
    widths = [max(len(head), *(len(row[column]) for row in cells)) for column, head in enumerate(COLUMNS)]
    # Columns of figures are aligned right; the last column is text.
    sides = [">"] * (len(COLUMNS) - 1) + ["<"]

    def line(name: str, row: Sequence[str]) -> str:
        shown = (f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True))
        return f"   {name:{name_width}}{'  '.join(shown)}".rstrip()

    lines = [line("", COLUMNS)]
    for section, rows in sections:
        lines.append(f" {section}")
        lines += [line(row.name, row.cells()) for row in rows]
    return lines
