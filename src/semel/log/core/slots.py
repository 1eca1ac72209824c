"""The slots of a journal in a shared store: which broker wrote each, and which slots a reader must skip or refuse.

The journal is a row of numbered slots in a store, and the store lets only one broker create each slot. A broker that
takes over creates the first missing slot, with an epoch that is one higher and an empty body: its fence. A broker
writes at most `DEPTH` slots at the same time. So the slots that its predecessor is still writing are the fence's own
and the `DEPTH` - 1 slots after it. These are closed: no reader reads them, and the new broker does not write to them.
So every acknowledged entry lies before the fence, and no entry that was not durable before the fence becomes part of
the journal.

Each slot has the digest of the head before it, so that one head vouches for all slots before it. And each names the
slot up to which all was known to be created when it was written. So a slot that was created and is gone, a hole, can be
told from one that was never created: a later head, or the lease, names a higher slot. A fence in a hole would replace
what was acknowledged there, so none may be created before somebody has looked for such a witness. Nothing here may read
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
    # All slots below this one were known to be created when the head was written. For a fence that is its own slot; a
    # broker that gives up what is lost names a higher one in its fence: the first that it closes. Nobody reads those
    # between.
    created_below: int
    body_bytes: int
    body_digest: bytes


class Evidence(NamedTuple):
    """Something that says that all slots below `created_below` were created."""

    created_below: int
    # The highest epoch that it names.
    epoch: int
    # The key of the object that says so.
    witness: str


def created_below_by_place(slot: int) -> int:
    """All slots below this one were created, because an object is in `slot`, whatever it contains: no broker writes
    more than `DEPTH` slots at the same time.
    """
    return slot - DEPTH + 1


def next_slot_after(head: SlotHead) -> int:
    """The slot that is read after the one with this head. Only a fence has no entries."""
    return head.slot + 1 if head.body_bytes else head.created_below + DEPTH


def replaced_a_slot(fence: SlotHead, behind: SlotHead) -> bool:
    """Whether an object behind a fence says that the first slot which the fence closes was created before the fence.
    Neither the fence's writer nor a broker that has read the fence writes to a closed slot; the first slot after these
    is for the fence's writer.
    """
    if behind.created_below <= fence.created_below:
        return False
    is_closed = behind.slot < fence.created_below + DEPTH
    return is_closed or (behind.epoch <= fence.epoch and behind.nonce != fence.nonce)


class History:
    """What a broker knows about the slots that it has read or written so far, in order."""

    __slots__ = ("_nonce", "created_below", "epoch", "fences", "given_up", "last", "next_slot", "position")

    def __init__(self) -> None:
        self.next_slot = 0
        self.epoch = 0
        self.position = 0
        # The digest of the last head.
        self.last = NOTHING_BEFORE
        # The slots of all fences, which are never deleted.
        self.fences: tuple[int, ...] = ()
        # The first and the last slot of each part of the journal that was given up. What is still there is not deleted.
        self.given_up: tuple[tuple[int, int], ...] = ()
        # All slots below this one are known to be created, except for closed ones.
        self.created_below = 0
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
        history.given_up = tuple((first, last) for first, last in record["given_up"])
        # A checkpoint counts only when everything before it is durable.
        history.created_below = history.next_slot
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
            "given_up": [list(part) for part in self.given_up],
            "nonce": self._nonce.hex(),
        }

    def fence(self, nonce: bytes, body_digest: bytes) -> SlotHead:
        """The head of the object with which a broker takes over, for the first missing slot."""
        slot = self.next_slot
        return SlotHead(slot, self.epoch + 1, nonce, self.last, self.position, slot, 0, body_digest)

    def fence_giving_up(self, nonce: bytes, body_digest: bytes, epoch: int, closed: int) -> SlotHead:
        """The same for a hole: what lies before slot `closed`, the first that it closes, is given up."""
        return SlotHead(self.next_slot, epoch, nonce, self.last, self.position, closed, 0, body_digest)

    def following(self, body_bytes: int, body_digest: bytes) -> SlotHead:
        """The head of the next object of the broker that wrote the last one."""
        known = self.created_below
        return SlotHead(
            self.next_slot, self.epoch, self._nonce, self.last, self.position, known, body_bytes, body_digest
        )

    def gave_up(self, slot: int) -> bool:
        """Whether this slot lies in a part of the journal that was given up."""
        return any(first <= slot <= last for first, last in self.given_up)

    def note_created(self, below: int) -> None:
        """Note that all slots below this one are created."""
        self.created_below = below

    def check(self, head: SlotHead) -> None:
        """Raise BrokenHistory if this cannot be the head of the next slot."""
        is_fence = head.epoch > self.epoch
        if head.slot != self.next_slot:
            raise BrokenHistory(f"slot {self.next_slot} contains the object of slot {head.slot}")
        if head.epoch < self.epoch:
            raise BrokenHistory(f"slot {head.slot} is of epoch {head.epoch}, after a fence of epoch {self.epoch}")
        if head.previous != self.last or head.position != self.position:
            raise BrokenHistory(f"slot {head.slot} does not follow the slot before it")
        gives_up = head.created_below > head.slot
        if is_fence and (head.body_bytes or (head.epoch != self.epoch + 1 and not gives_up)):
            raise BrokenHistory(f"slot {head.slot} is of epoch {head.epoch}, and no fence of that epoch came before it")
        if head.created_below < (head.slot if is_fence else created_below_by_place(head.slot)):
            raise BrokenHistory(f"slot {head.slot} was sent when slot {head.created_below} was not known to be created")
        if not is_fence and gives_up:
            raise BrokenHistory(f"slot {head.slot} gives up slots before slot {head.created_below}, and is no fence")
        if not is_fence and head.nonce != self._nonce:
            raise BrokenHistory(f"slot {head.slot} was written by another broker than the fence of epoch {self.epoch}")

    def take(self, head: SlotHead, digest: bytes) -> None:
        """Add the next slot, whose head has the digest `digest`. If it raises BrokenHistory, nothing has changed."""
        self.check(head)
        is_fence = head.epoch > self.epoch
        if is_fence:
            self.fences += (head.slot,)
            if head.created_below > head.slot:
                self.given_up += ((head.slot + 1, head.created_below),)
            self.next_slot = self.created_below = head.created_below + DEPTH
        else:
            self.next_slot += 1
        self.epoch = head.epoch
        self.position += head.body_bytes
        self.last = digest
        self._nonce = head.nonce
