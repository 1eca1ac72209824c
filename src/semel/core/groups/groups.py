"""All groups there are.

A group is a name, the offsets it committed (`offsets.py`) and, while it has members or remembers having had them, one
of two machines: the classic protocol (`classic.py`) or the one of KIP-848 (`consumer.py`).
"""

from typing import Any

from semel.core.entries import GroupDeleted, OffsetsCommitted, OffsetsForgotten, TransactionalOffsets, TransactionEnded

GroupEntry = OffsetsCommitted | OffsetsForgotten | TransactionalOffsets | TransactionEnded | GroupDeleted


class Groups:
    """The groups, by name."""

    def apply(self, entry: GroupEntry) -> None:
        raise NotImplementedError

    def topic_deleted(self, number: int) -> None:
        """No group has an offset in this topic any more."""

    def snapshot(self) -> dict[str, Any]:
        return {}

    @classmethod
    def restore(cls, snapshot: dict[str, Any]) -> "Groups":
        return cls()
