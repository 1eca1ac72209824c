"""The slots of a journal that several brokers may write to: who wrote what, and what a reader must not believe.

The journal is a row of numbered slots in a store that lets only one broker create each of them. A broker that takes
over creates the first slot that is missing, with an epoch that is one higher and an empty body: its fence. A broker
has `DEPTH` slots under way at most, so those that its predecessor still has under way end in the `DEPTH` - 1 slots
behind the fence. These are closed: nobody reads them, and the new broker does not write to them. So what was not
durable before the fence never becomes part of the journal, and what was acknowledged lies before it.

Each slot bears the digest of the head before it, so that one head stands for all that came before. Nothing here may
read or write a store.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

# Slots that a broker may have under way. Every broker on a store has the same number: the readers go by it.
DEPTH: Final = 4
DIGEST_BYTES: Final = 16
NONCE_BYTES: Final = 16
NOTHING_BEFORE: Final = bytes(DIGEST_BYTES)


class BrokenHistory(Exception):
    """A slot holds what cannot follow on those before it: the store lost or changed something. One line says what."""


class SlotHead(NamedTuple):
    """What a slot says of itself."""

    slot: int
    epoch: int
    # The writing process chose it: two that believe to have the same epoch differ in this.
    nonce: bytes
    # The digest of the head of the slot before it, closed ones left out.
    previous: bytes
    # How many bytes of entries the slots before it have.
    position: int
    body_bytes: int
    body_digest: bytes


class History:
    """What is known of the slots that were read or written so far, in their order."""

    __slots__ = ("_nonce", "epoch", "fences", "last", "next_slot", "position")

    def __init__(self) -> None:
        self.next_slot = 0
        self.epoch = 0
        self.position = 0
        # The digest of the last head.
        self.last = NOTHING_BEFORE
        # The slots of all fences, which are never deleted.
        self.fences: tuple[int, ...] = ()
        self._nonce = b""

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "History":
        """The history that `to_record` wrote down."""
        history = cls()
        history.next_slot = record["next_slot"]
        history.epoch = record["epoch"]
        history.position = record["position"]
        history.last = bytes.fromhex(record["last"])
        history.fences = tuple(record["fences"])
        history._nonce = bytes.fromhex(record["nonce"])
        return history

    def to_record(self) -> dict[str, Any]:
        """All of it, as of now, for JSON."""
        return {
            "next_slot": self.next_slot,
            "epoch": self.epoch,
            "position": self.position,
            "last": self.last.hex(),
            "fences": list(self.fences),
            "nonce": self._nonce.hex(),
        }

    def fence(self, nonce: bytes, body_digest: bytes) -> SlotHead:
        """The head of the object by which a broker takes over, in the first slot that is missing."""
        return SlotHead(self.next_slot, self.epoch + 1, nonce, self.last, self.position, 0, body_digest)

    def following(self, body_bytes: int, body_digest: bytes) -> SlotHead:
        """The head of the next object of the broker that wrote the last one."""
        return SlotHead(self.next_slot, self.epoch, self._nonce, self.last, self.position, body_bytes, body_digest)

    def take(self, head: SlotHead, digest: bytes) -> None:
        """The next slot has this head, whose digest is `digest`. Raises BrokenHistory, and is as before then."""
        is_fence = head.epoch > self.epoch
        if head.slot != self.next_slot:
            raise BrokenHistory(f"slot {self.next_slot} holds what was written for slot {head.slot}")
        if head.epoch < self.epoch:
            raise BrokenHistory(f"slot {head.slot} is of epoch {head.epoch}, behind a fence of epoch {self.epoch}")
        if head.previous != self.last or head.position != self.position:
            raise BrokenHistory(f"slot {head.slot} does not follow on the slot before it")
        if is_fence and (head.body_bytes or head.epoch != self.epoch + 1):
            raise BrokenHistory(f"slot {head.slot} is of epoch {head.epoch}, and no fence of that epoch came before it")
        if not is_fence and head.nonce != self._nonce:
            raise BrokenHistory(f"slot {head.slot} was written by another broker than the fence of epoch {self.epoch}")
        if is_fence:
            self.fences += (head.slot,)
        self.next_slot += DEPTH if is_fence else 1
        self.epoch = head.epoch
        self.position += head.body_bytes
        self.last = digest
        self._nonce = head.nonce
