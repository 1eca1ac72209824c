"""The worlds that are searched, and in which of them each rule that is left out must be missed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from failover.rules import RULES
from failover.search import Outcome, shortest, without
from failover.states import Size

# Clients ask in worlds of their own, because a question that may come at any time multiplies the states.
ASKED: Final = Size(writers=2, slots=6, depth=2, questions=1)
ASKED_AT_ANY_TIME: Final = Size(writers=2, slots=6, depth=2, checkpoints=0, questions=1, all_questions=True)
# An object goes that is needed.
REMOVED: Final = Size(writers=2, slots=6, depth=2, checkpoints=0, removals=1)
# Searched by the ordinary tests, in seconds.
SMALL: Final = (
    Size(writers=2, slots=6, depth=2),
    Size(writers=2, slots=6, depth=2, from_empty=True),
    Size(writers=2, slots=7, depth=3),
    ASKED,
    ASKED_AT_ANY_TIME,
    REMOVED,
)
# Searched by `make failover`, in minutes. A pipeline of four needs four entries to be full; with so many, more than a
# million states were seen in a minute, and no end.
LARGE: Final = (
    Size(writers=3, slots=7, depth=2, entries=1),
    Size(writers=2, slots=10, depth=4, entries=3),
    Size(writers=3, slots=7, depth=2, entries=1, questions=1),
    Size(writers=2, slots=10, depth=4, entries=3, questions=1),
    Size(writers=2, slots=6, depth=2, removals=1),
    Size(writers=2, slots=6, depth=2, checkpoints=0, removals=2),
    Size(writers=2, slots=6, depth=2, checkpoints=0, removals=1, from_empty=True),
    Size(writers=2, slots=7, depth=3, entries=3, checkpoints=0, removals=1),
    Size(writers=3, slots=6, depth=2, entries=1, checkpoints=0, removals=1),
)
# More than a writer may have under way shows only if it has more to send than that.
_WIDE: Final = Size(writers=2, slots=7, depth=2, entries=3)


def world_without(rule: str) -> Size:
    """The world in which leaving this rule out leads to something wrong."""
    if "proof" in rule:
        return ASKED
    if "hole" in rule or "name" in rule:
        return REMOVED
    return _WIDE if rule == "slots_wait_for_the_depth" else SMALL[0]


def omissions() -> Iterator[tuple[str, Outcome]]:
    """Each rule, and what the protocol comes to without it."""
    for rule in RULES:
        yield rule, shortest(world_without(rule), without(rule))
