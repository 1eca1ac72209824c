"""Over which connection each member of a group was heard last: the kernel ends those of a process that was killed.

A member is on record with one connection, the last; it is forgotten with the member and with the connection, so there
is never more of it than there are members. This file must never decide what a lost connection means.
"""

from typing import NamedTuple


class MemberName(NamedTuple):
    """A member of a group, whichever protocol the group speaks."""

    group: str
    member_id: str


class MemberConnections:
    """The connections by their numbers, and the members that were heard over them last."""

    def __init__(self) -> None:
        self._connection_of: dict[MemberName, int] = {}
        # In the order in which they were heard, so that the same events have the same outcome.
        self._members_of: dict[int, dict[MemberName, None]] = {}

    def __len__(self) -> int:
        return len(self._connection_of)

    def note(self, member: MemberName, connection_number: int) -> None:
        """A member was heard."""
        if self._connection_of.get(member) == connection_number:
            return
        self.forget(member)
        self._connection_of[member] = connection_number
        self._members_of.setdefault(connection_number, {})[member] = None

    def forget(self, member: MemberName) -> None:
        """It is no member any more."""
        connection_number = self._connection_of.pop(member, None)
        if connection_number is not None:
            members = self._members_of[connection_number]
            del members[member]
            if not members:
                del self._members_of[connection_number]

    def end(self, connection_number: int) -> list[MemberName]:
        """The connection is gone: who was heard over it last."""
        members = list(self._members_of.pop(connection_number, ()))
        for member in members:
            del self._connection_of[member]
        return members
