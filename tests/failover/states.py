"""What a state of the model of the replicated journal consists of: the slots of the store, its floor and its lease, and
what each writer knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple


@dataclass(frozen=True)
class Size:
    """How large the world is."""

    writers: int = 3
    slots: int = 7
    depth: int = 2
    # What each writer sends at most.
    entries: int = 2
    checkpoints: int = 1
    # How often each writer is asked for something that it knows, at most.
    questions: int = 0
    # Whether all questions are asked, or only those whose answer would be out of date. No other answer can be wrong.
    all_questions: bool = False
    # Whether the first writer has to put up a fence as well; otherwise it is active from the beginning.
    from_empty: bool = False
    # How many objects are removed that are needed, at most.
    removals: int = 0


class Object(NamedTuple):
    """What lies in a slot of the journal. The writer's number stands for its nonce."""

    epoch: int
    writer: int
    kind: str
    # Of an entry, its name.
    value: int
    # All slots below this one were known to be created when it was sent; 0 in worlds in which nothing is removed.
    created_below: int = 0


FENCE: Final = "fence"
ENTRY: Final = "entry"


class Checkpoint(NamedTuple):
    """The state as of a slot; `floor` names one, and the model takes its content to lie there, too."""

    # How many slots it covers: everything below this slot may be deleted, but for fences.
    covers: int
    epoch: int
    log: tuple[int, ...]
    # Where a recovery reads on.
    read_on: int
    # The fences of the history: slot and writer.
    fences: tuple[tuple[int, int], ...]


class UnderWay(NamedTuple):
    """A create whose answer has not left yet."""

    slot: int
    object: Object
    settled: bool


class Question(NamedTuple):
    """A client asks for something that a writer knows, and gets no answer yet."""

    # The slot that the writer would have sent next.
    slot: int
    # Whether somebody had acknowledged more than the writer, whose answer shows what it has acknowledged itself.
    is_outdated: bool


IDLE: Final = "idle"
READING: Final = "reading"
FENCING: Final = "fencing"
CHECKING: Final = "checking"
ACTIVE: Final = "active"
FENCED: Final = "fenced"


class Writer(NamedTuple):
    """One life of a broker."""

    phase: str
    epoch: int = 0
    # Every entry that it knows, in order, and how many of them it has acknowledged or found durable.
    log: tuple[int, ...] = ()
    acknowledged: int = 0
    # While it reads, the slot to be read next; while it is active, the first slot that is not settled.
    position: int = 0
    # What it has read there, before it looked at the floor.
    has_read: Object | str | None = None
    fence_slot: int = 0
    next_slot: int = 0
    under_way: tuple[UnderWay, ...] = ()
    # The checkpoint that was taken last, for the floor.
    taken: Checkpoint | None = None
    entries: int = 0
    checkpoints: int = 0
    question: Question | None = None
    # When all slots below this one are settled, it is proved that nobody had taken over when the question came.
    proof: int | None = None
    questions: int = 0
    # Whether an answer has left that was out of date when its question came.
    has_lied: bool = False
    # All that it ever put on the wire.
    sent: tuple[tuple[int, Object], ...] = ()
    fences: tuple[tuple[int, int], ...] = ()


MISSING: Final = "missing"


class World(NamedTuple):
    """A state of the model."""

    slots: tuple[Object | None, ...]
    floor: Checkpoint
    writers: tuple[Writer, ...]
    # Up to which slot all was created when the lease was written last.
    lease: int = 0
    # The objects that were removed, and their slots.
    removed: tuple[tuple[int, Object], ...] = ()


class Lie(Exception):
    """The store shows something that the protocol says cannot be."""
