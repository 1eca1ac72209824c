"""Idempotent producing in sixty lines: a claim, its window, a fence. It answers like `semel lab --plain`:

    python examples/model/idempotence.py docs/examples/lab.txt

A producer numbers its records. For each producer, the log keeps the next number and the last five, because a client has
at most five requests in flight. That is the whole rule. The sixty lines leave out the purpose of the rest of semel:
after a crash, either both the claim and the record exist, or neither does.
"""

import shlex
import sys
from collections import deque
from dataclasses import dataclass, field


@dataclass
class Claims:
    """What the log knows about one producer in one place."""

    next_number: int = 0
    window: deque[int] = field(default_factory=lambda: deque(maxlen=5))


class Model:
    def __init__(self) -> None:
        self.records: list[str] = []
        self.claims: dict[str, dict[str, Claims]] = {}
        self.fenced: set[str] = set()

    def init(self, name: str) -> str:
        self.claims[name] = {}  # a new id, without a past
        self.fenced.discard(name)
        return "OK"

    def fence(self, name: str) -> str:
        self.fenced.add(name)
        return "OK"

    def produce(self, name: str, number: str, payload: str, place: str = "lab") -> str:
        claims = self.claims[name].setdefault(place, Claims())
        if name in self.fenced:
            return "ERROR: fenced"  # a successor has taken over
        if int(number) in claims.window:
            return "DUPLICATE"  # the answer was lost: give it again, and write nothing
        if int(number) != claims.next_number:
            return "ERROR: sequence gap"  # accepting it would lose the ones before it
        claims.next_number += 1
        claims.window.append(int(number))
        self.records.append(payload)
        return "OK"

    def answer(self, line: str) -> str:
        command, *arguments = shlex.split(line, comments=True) or [""]
        own = {"LOG_SIZE": str(len(self.records)), "RESTART": "OK", "": ""}
        return own[command] if command in own else str(getattr(self, command.lower())(*arguments))


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        print(*filter(None, map(Model().answer, file)), sep="\n")
