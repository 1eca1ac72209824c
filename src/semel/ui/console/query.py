"""The query of a URL and the types of its parameters. An invalid value is refused with the name of its parameter."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeVar

from semel.ui.console.http import PageRefused

TEXT_MAX: Final = 1_000
# The longest name that Kafka's protocol carries: its length is a signed number of 16 bits.
NAME_BYTES_MAX: Final = (1 << 15) - 1
NUMBER_MAX: Final = (1 << 63) - 1

T = TypeVar("T")


class Query:
    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def __str__(self) -> str:
        return repr(sorted(self._values.items()))

    def without(self, names: Collection[str]) -> dict[str, str]:
        """The parameters except these."""
        return {name: value for name, value in self._values.items() if name not in names}

    def text(self, name: str, default: str | None = None, *, text_max: int = TEXT_MAX) -> str:
        value = self._values.get(name, default)
        if value is None:
            raise PageRefused(400, f"{name} is missing")
        if len(value) > text_max:
            raise PageRefused(400, f"{name} has at most {text_max} characters")
        return value

    def name(self, parameter: str) -> str:
        """The name of a group or a transactional id, which may be as long as the protocol allows."""
        value = self.text(parameter, text_max=NAME_BYTES_MAX)
        if len(value.encode()) > NAME_BYTES_MAX:
            raise PageRefused(400, f"{parameter} has at most {NAME_BYTES_MAX} bytes")
        return value

    def number(self, name: str, default: int | None = None, *, least: int = 0, most: int = NUMBER_MAX) -> int:
        value = self._values.get(name, "" if default is None else str(default)).strip()
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 19 or not least <= int(value) <= most:
            raise PageRefused(400, f"{name} is a whole number from {least} to {most}")
        return int(value)

    def page_of(self, rows: Sequence[T], size: int) -> tuple[Sequence[T], dict[str, int]]:
        """The rows on the page that the query names, and the page's figures: all rows, its number, and all pages."""
        page = self.number("page", 1, least=1)
        about = {"count": len(rows), "page": page, "pages": max(-(-len(rows) // size), 1)}
        return rows[(page - 1) * size : page * size], about

    def has(self, name: str) -> bool:
        """Whether the parameter is given and not empty: an empty field of a form counts as missing."""
        return bool(self._values.get(name, "").strip())
