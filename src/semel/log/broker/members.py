"""Keeps track of the members of all groups, whichever protocol they speak.

It counts the memory of all members together, the groups that each address has put on record, and the connection that
each member used last, because the kernel closes the connections of a process that was killed. This file must never
decide what a lost connection means.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from semel.log.broker.runtime import Runtime
from semel.log.core.shares import Shares
from semel.wire.refusals import GROUP_MAX_SIZE_REACHED, Refused


class MemberName(NamedTuple):
    """A member of a group."""

    group: str
    member_id: str


class Members:
    """The members of all groups of one broker."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        # How many groups each address has put on record since the start; earlier groups are charged to no address.
        self._shares = Shares(runtime.limits.groups_max, "groups")
        # The memory of the members of each group.
        self._sizes: dict[str, int] = {}
        self._size_bytes = 0
        self._connection_of: dict[MemberName, int] = {}
        # In the order in which members were heard, so that a simulation is deterministic.
        self._members_of: dict[int, dict[MemberName, None]] = {}

    def tell(self, event: str, group: str, **fields: object) -> None:
        """Log and count an event of a group."""
        self._runtime.metrics.group_events[event] += 1
        self._runtime.events.tell(logging.INFO, event, error=None, group=group, **fields)

    @contextmanager
    def founding(self, group: str, address: str) -> Iterator[None]:
        """A context for a change that may put a group on record; Refused if this address has used up its share."""
        groups, now_ms = self._runtime.log.state.groups, self._runtime.clock.now_ms()
        horizon_ms = now_ms - self._runtime.limits.offsets_retention_ms
        is_new = groups.named(group) is None
        if is_new:
            self._shares.check(1, len(groups), address, horizon_ms)
        yield
        if is_new and groups.named(group) is not None:
            self._shares.charge(1, address, now_ms, horizon_ms)

    # -- memory -------------------------------------------------------------------------------------------------

    def check_growth(self, more_bytes: int) -> None:
        """Refuse a change with which the members of all groups together would take too much memory."""
        if more_bytes > 0 and self._size_bytes + more_bytes > self._runtime.limits.groups_bytes_max:
            raise Refused(GROUP_MAX_SIZE_REACHED, f"the members of all groups take {self._size_bytes} bytes")

    def note_size(self, group: str, size_bytes: int) -> None:
        """Note the size of this group's members now."""
        self._size_bytes += size_bytes - self._sizes.pop(group, 0)
        if size_bytes:
            self._sizes[group] = size_bytes

    # -- connections --------------------------------------------------------------------------------------------

    def note_heard(self, member: MemberName, connection_number: int) -> None:
        """A member was heard over this connection."""
        if self._connection_of.get(member) == connection_number:
            return
        self.forget(member)
        self._connection_of[member] = connection_number
        self._members_of.setdefault(connection_number, {})[member] = None

    def forget(self, member: MemberName) -> None:
        """Forget a member that has left."""
        connection_number = self._connection_of.pop(member, None)
        if connection_number is not None:
            members = self._members_of[connection_number]
            del members[member]
            if not members:
                del self._members_of[connection_number]

    def connection_lost(self, connection_number: int) -> list[MemberName]:
        """Forget a lost connection; return the members that used it last."""
        members = list(self._members_of.pop(connection_number, ()))
        for member in members:
            del self._connection_of[member]
        return members
