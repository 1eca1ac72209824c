"""The floor: an object that names the newest checkpoint, and says below which slot the journal may be deleted.

It is an authority, and only rises: the active broker replaces the floor that it has read, so a broker that was replaced
cannot put back an older one. A reader starts from the checkpoint that it names. What a reader found in a slot, or found
missing, counts if the floor, read afterwards, says that nothing from that slot on may be deleted.
"""

import json
from typing import Any, Final, NamedTuple

from semel.core.slots import BrokenHistory
from semel.store import Missing, Store

FLOOR_KEY: Final = "floor"


class Piece(NamedTuple):
    """A part of a checkpoint, as an object of its own."""

    key: str
    size: int
    digest: str


class Floor(NamedTuple):
    """What the object says."""

    # The epoch of the broker that has put it.
    epoch: int
    # The first slot that the checkpoint does not cover.
    slot: int
    # Slots below this one may be deleted, except for fences.
    deleted_below: int
    # The checkpoint; none at the very beginning.
    pieces: tuple[Piece, ...]

    def encode(self) -> bytes:
        """As it lies in the store."""
        return json.dumps(self._asdict()).encode()


# Before there is a checkpoint. The floor is there from the beginning, so that its loss can be told.
FIRST_FLOOR: Final = Floor(0, 0, 0, ())


def decode_floor(content: bytes) -> Floor:
    """The floor that was read; BrokenHistory if it is none."""
    try:
        fields: dict[str, Any] = json.loads(content)
        pieces = tuple(Piece(str(key), int(size), str(digest)) for key, size, digest in fields.pop("pieces"))
        return Floor(pieces=pieces, **{name: int(number) for name, number in fields.items()})
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise BrokenHistory(f"the object {FLOOR_KEY!r} is none of semel's: {error}") from None


async def read_floor(store: Store) -> tuple[Floor, str]:
    """The floor and its version. Raises BrokenHistory if it is gone, and Unsure."""
    try:
        content, version = await store.get(FLOOR_KEY)
    except Missing:
        raise BrokenHistory(f"{store.describe()}: the object {FLOOR_KEY!r} was there and is gone") from None
    return decode_floor(content), version
