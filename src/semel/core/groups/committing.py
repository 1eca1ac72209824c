"""What a request to commit offsets says about its sender, in the words of both protocols.

Whether that is true, and whether the group takes the commit, is decided by the group's machine. Nothing here knows a
group.
"""

from collections.abc import Collection
from dataclasses import dataclass

from semel.core.entries import PartitionName


@dataclass(frozen=True, slots=True)
class Committer:
    """The member and the instance that a request names, its generation or epoch (-1 for no member), and its kind.

    `version` is the request's. `partitions` are those whose offsets it brings, or None if that must not count.
    """

    member_id: str
    instance_id: str | None
    generation_or_epoch: int
    is_transactional: bool
    version: int
    partitions: Collection[PartitionName] | None = None
