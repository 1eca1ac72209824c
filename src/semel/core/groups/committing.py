"""Who says to commit offsets for a group: what a request says of its sender, in the words of both protocols.

Whether that is so, and whether the group takes it, is for its machine to say; nothing here knows a group.
"""

from collections.abc import Collection
from dataclasses import dataclass

from semel.core.entries import PartitionName


@dataclass(frozen=True, slots=True)
class Committer:
    """What is said: member and instance, a generation or epoch that is -1 for who is no member, and by which request.

    `version` is the request's; `partitions` are those it brings offsets of, or None where that is not to count.
    """

    member_id: str
    instance_id: str | None
    generation_or_epoch: int
    is_transactional: bool
    version: int
    partitions: Collection[PartitionName] | None = None
