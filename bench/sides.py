"""The sides of a measure: programs that stand beside each other on one database or one log, and take turns.
Nothing here may do for one side what it does not do for the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from bench.peers.process import Broker, port_is_open

Side = TypeVar("Side")


def take_turns(sides: Iterable[Side], turns: int) -> Iterator[tuple[int, Side]]:
    """The number of the turn, and who has it. Each side is the first as often as the others."""
    order = deque(sides)
    for turn in range(turns):
        for side in order:
            yield turn, side
        order.rotate()


class Program(Broker):
    """No broker, but a process as well watched as one: semel's, or a module of the bench."""

    def __init__(self, name: str, command: Sequence[str], *, port: int | None = None) -> None:
        super().__init__(port=port or 0)
        self.name = name
        self._command = command
        self._listens = port is not None

    def version(self) -> str:
        return self.name

    def install(self) -> None:
        """Nothing: it comes with semel or with the bench."""

    def prepare(self) -> None:
        """Nothing: the measure makes the tables, once for all sides."""

    def command(self) -> Sequence[str]:
        return self._command

    def is_ready(self) -> bool:
        """Where it does not listen, its first answer tells, and is waited for."""
        return not self._listens or port_is_open(self.port)
