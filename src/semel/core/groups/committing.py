"""What a request to commit offsets says about its sender, in a form for both group protocols.

The group's machine decides whether that is true, and whether to accept the commit. Nothing here knows a group.
"""

from collections.abc import Collection
from dataclasses import dataclass

from semel.core.entries import PartitionName


@dataclass(frozen=True, slots=True)
class Committer:
    """The member and the instance that a request names, and its generation or member epoch (-1: it names no member).

    `version` is the version of the request. `partitions` are those whose offsets it commits, or None if the group must
    not look at them.
    """

    member_id: str
    instance_id: str | None
    generation_or_epoch: int
    is_transactional: bool
    version: int
    partitions: Collection[PartitionName] | None = None
