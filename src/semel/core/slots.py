"""The slots of a journal in a shared store: which broker wrote each, and which slots a reader must skip or refuse.

The journal is a row of numbered slots in a store, and the store lets only one broker create each slot. A broker that
takes over creates the first missing slot, with an epoch that is one higher and an empty body: its fence. A broker
writes at most `DEPTH` slots at the same time. So the slots that its predecessor is still writing are the fence's own
and the `DEPTH` - 1 slots after it. These are closed: no reader reads them, and the new broker does not write to them.
So every acknowledged entry lies before the fence, and no entry that was not durable before the fence becomes part of
the journal.

Each slot has the digest of the head before it, so that one head vouches for all slots before it. Nothing here may read
or write a store.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

# How many slots a broker may write at the same time. All brokers on a store must agree on it, because readers rely on
# it to skip closed slots.
DEPTH: Final = 4
DIGEST_BYTES: Final = 16
NONCE_BYTES: Final = 16
NOTHING_BEFORE: Final = bytes(DIGEST_BYTES)


class BrokenHistory(Exception):
    """A slot cannot follow those before it: the store lost or changed something. The one-line message says what."""


class SlotHead(NamedTuple):
    """The fields in front of a slot's body."""

    slot: int
    epoch: int
    # Random, chosen by the writing process: it distinguishes two processes that both believe that they have the same
    # epoch.
    nonce: bytes
    # The digest of the head of the slot before it, not counting closed slots.
    previous: bytes
    # How many bytes of entries all slots before it have together.
    position: int
    body_bytes: int
    body_digest: bytes


class History:
    """What a broker knows about the slots that it has read or written so far, in order."""

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
        """The history from a result of `to_record`."""
        history = cls()
        history.next_slot = record["next_slot"]
        history.epoch = record["epoch"]
        history.position = record["position"]
        history.last = bytes.fromhex(record["last"])
        history.fences = tuple(record["fences"])
        history._nonce = bytes.fromhex(record["nonce"])
        return history

    def to_record(self) -> dict[str, Any]:
        """The history as of now, as values that JSON can hold."""
        return {
            "next_slot": self.next_slot,
            "epoch": self.epoch,
            "position": self.position,
            "last": self.last.hex(),
            "fences": list(self.fences),
            "nonce": self._nonce.hex(),
        }

    def fence(self, nonce: bytes, body_digest: bytes) -> SlotHead:
        """The head of the object with which a broker takes over, for the first missing slot."""
        return SlotHead(self.next_slot, self.epoch + 1, nonce, self.last, self.position, 0, body_digest)

    def following(self, body_bytes: int, body_digest: bytes) -> SlotHead:
        """The head of the next object of the broker that wrote the last one."""
        return SlotHead(self.next_slot, self.epoch, self._nonce, self.last, self.position, body_bytes, body_digest)

    def check(self, head: SlotHead) -> None:
        """Raise BrokenHistory if this cannot be the head of the next slot."""
        is_fence = head.epoch > self.epoch
        if head.slot != self.next_slot:
            raise BrokenHistory(f"slot {self.next_slot} contains the object of slot {head.slot}")
        if head.epoch < self.epoch:
            raise BrokenHistory(f"slot {head.slot} is of epoch {head.epoch}, after a fence of epoch {self.epoch}")
        if head.previous != self.last or head.position != self.position:
            raise BrokenHistory(f"slot {head.slot} does not follow the slot before it")
        if is_fence and (head.body_bytes or head.epoch != self.epoch + 1):
            raise BrokenHistory(f"slot {head.slot} is of epoch {head.epoch}, and no fence of that epoch came before it")
        if not is_fence and head.nonce != self._nonce:
            raise BrokenHistory(f"slot {head.slot} was written by another broker than the fence of epoch {self.epoch}")

    def take(self, head: SlotHead, digest: bytes) -> None:
        """Add the next slot, whose head has the digest `digest`. If it raises BrokenHistory, nothing has changed."""
        self.check(head)
        is_fence = head.epoch > self.epoch
        if is_fence:
            self.fences += (head.slot,)
        self.next_slot += DEPTH if is_fence else 1
        self.epoch = head.epoch
        self.position += head.body_bytes
        self.last = digest
        self._nonce = head.nonce
