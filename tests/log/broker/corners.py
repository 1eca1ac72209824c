"""The corners of limits that multiply, by the names that `tools/products.py` has for them."""

from collections.abc import Callable
from typing import Final, NamedTuple


class Corner(NamedTuple):
    """What is done in one turn at a size, and the size at which all limits are reached."""

    build: Callable[[int], Callable[[], object]]
    small: int
    at_limits: int


CORNERS: Final[dict[str, Corner]] = {}


def corner(name: str, *, small: int, at_limits: int) -> Callable[[Callable[[int], Callable[[], object]]], None]:
    def note(build: Callable[[int], Callable[[], object]]) -> None:
        CORNERS[name] = Corner(build, small, at_limits)

    return note
