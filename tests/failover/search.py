"""Goes through every state that a model can reach, and shows the shortest way to one that must not be."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from failover.protocol import Protocol
from failover.rules import ALL_RULES, Rules
from failover.states import Lie, Size, World


@dataclass(frozen=True)
class Outcome:
    """What a search has seen."""

    states: int
    seconds: float
    # What is wrong in the first wrong state, and the steps that lead to it; nothing if all is well.
    violation: str = ""
    trace: tuple[str, ...] = ()

    def told(self) -> str:
        """For a person to read."""
        steps = "\n".join(f"  {number:2}. {step}" for number, step in enumerate(self.trace, start=1))
        return f"{steps}\n  -> {self.violation}"


def exhaust(size: Size, rules: Rules = ALL_RULES) -> Outcome:
    """Every state, none twice, deep first: that takes the least memory. Stops at the first that is wrong, and finds the
    shortest way to one then."""
    protocol, began = Protocol(size, rules), time.monotonic()
    first = protocol.beginning()
    # Of a state that was seen its hash stays: 64 bits of some million states are alike once in a million runs.
    seen = {hash(first)}
    waiting: list[World] = [first]
    while waiting:
        world = waiting.pop()
        try:
            for _, following in protocol.steps(world):
                number = hash(following)
                if number in seen:
                    continue
                seen.add(number)
                if protocol.violation(following):
                    return shortest(size, rules)
                waiting.append(following)
        except Lie:
            return shortest(size, rules)
    return Outcome(len(seen), time.monotonic() - began)


def shortest(size: Size, rules: Rules) -> Outcome:
    """Broad first, with the way to each state."""
    protocol, began = Protocol(size, rules), time.monotonic()
    first = protocol.beginning()
    came: dict[World, tuple[World, str] | None] = {first: None}
    waiting = deque([first])

    def found(wrong: str, world: World, *last: str) -> Outcome:
        trace = list(last)
        before = came[world]
        while before is not None:
            world, step = before
            trace.insert(0, step)
            before = came[world]
        return Outcome(len(came), time.monotonic() - began, wrong, tuple(trace))

    while waiting:
        world = waiting.popleft()
        try:
            for step, following in protocol.steps(world):
                if following in came:
                    continue
                came[following] = (world, step)
                if wrong := protocol.violation(following):
                    return found(wrong, following)
                waiting.append(following)
        except Lie as lie:
            return found(str(lie), world)
    return Outcome(len(came), time.monotonic() - began)


def reached(protocol: Protocol) -> Iterator[tuple[str, World]]:
    """Every step and the state behind it, once for each state."""
    waiting, seen = [protocol.beginning()], {protocol.beginning()}
    while waiting:
        for step, following in protocol.steps(waiting.pop()):
            yield step, following
            if following not in seen:
                seen.add(following)
                waiting.append(following)


def without(rule: str) -> Rules:
    """The protocol with this rule left out."""
    return replace(ALL_RULES, **{rule: False})
