"""The floor: an object that names the newest checkpoint, and says below which slot the journal may be deleted.

It is an authority, and only rises: the active broker replaces the floor that it has read, so a broker that was replaced
cannot put back an older one. A reader starts from the checkpoint that it names. A reader may trust what it found in a
slot, or that the slot was missing, only if the floor, read afterwards, says that nothing from that slot on may be
deleted.
"""

from typing import Final, NamedTuple

from semel.log.core.slots import BrokenHistory
from semel.log.replica.record import UNREADABLE, decode_record, encode_record
from semel.log.store import Missing, Store

FLOOR_KEY: Final = "floor"


_WAY_ON: Final = "It names the newest checkpoint, without which nothing can be read: put it back and start again"


class Piece(NamedTuple):
    """A part of a checkpoint, in its own object."""

    key: str
    size: int
    digest: str


class Floor(NamedTuple):
    """The content of the object."""

    # The epoch of the broker that has written it.
    epoch: int
    # The first slot that the checkpoint does not cover.
    slot: int
    # Slots below this one may be deleted, except for fences.
    deleted_below: int
    # The checkpoint; None at the very beginning.
    pieces: tuple[Piece, ...]

    def encode(self) -> bytes:
        """The bytes of the object."""
        return encode_record(FLOOR_KEY, self._asdict())


# The floor before the first checkpoint. It exists from the beginning, so that its loss is noticed.
FIRST_FLOOR: Final = Floor(0, 0, 0, ())


def decode_floor(content: bytes) -> Floor:
    """The floor in these bytes; BrokenHistory if they are not a floor."""
    try:
        fields = decode_record(FLOOR_KEY, content)
        pieces = tuple(Piece(str(key), int(size), str(digest)) for key, size, digest in fields.pop("pieces"))
        return Floor(pieces=pieces, **{name: int(number) for name, number in fields.items()})
    except UNREADABLE as error:
        raise BrokenHistory(f"the object {FLOOR_KEY!r} is damaged, or none of semel's: {error}. {_WAY_ON}") from None


async def read_floor(store: Store) -> tuple[Floor, str]:
    """The floor and its version. Raises BrokenHistory if it is gone, and Unsure."""
    try:
        content, version = await store.get(FLOOR_KEY)
    except Missing:
        raise BrokenHistory(f"{store.describe()}: the object {FLOOR_KEY!r} was there and is gone. {_WAY_ON}") from None
    return decode_floor(content), version
