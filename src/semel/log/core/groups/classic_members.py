"""The members of a classic group, their leader, and the protocols that all of them support.

For each protocol that it supports, a member sends metadata that only clients understand; the leader gets the metadata
of all members and answers with an assignment for each. A member also holds opaque tokens for its waiting requests,
which the caller will answer. This file must never decide when something happens: `classic` does that.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from semel.log.core.entries import StoredMember

# The memory that a member takes besides the bytes it sent, and that each of its protocols takes.
MEMBER_BYTES: Final = 1024
PROTOCOL_BYTES: Final = 256

# A token for a request that waits for its answer. The rules give it back with the answer, and do nothing else with it.
Waiter = object


class Member:
    """One member, with what it said in its last JoinGroup."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "has_lost_connection",
        "instance_id",
        "is_new",
        "join_waiter",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "stored",
        "sync_waiter",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Mapping[str, bytes],
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        # In the member's order of preference. Only `Members` changes this.
        self.protocols = protocols
        self.assignment = b""
        # Whether the member does not know its generation yet, so that it cannot send heartbeats.
        self.is_new = False
        self.join_waiter: Waiter | None = None
        self.sync_waiter: Waiter | None = None
        # The end of its session.
        self.deadline_ms = 0
        # Whether its session was shortened because its connection was closed.
        self.has_lost_connection = False
        # What the last proposed entry says about it.
        self.stored: StoredMember | None = None

    @classmethod
    def restored(cls, stored: StoredMember, protocol: str) -> "Member":
        """A member from an entry, which has only the protocol that was selected."""
        return cls(
            stored.member_id,
            stored.instance_id,
            stored.client_id,
            stored.client_host,
            stored.rebalance_timeout_ms,
            stored.session_timeout_ms,
            {protocol: stored.subscription},
        )

    def to_store(self, protocol: str, assignment: bytes) -> StoredMember:
        self.stored = StoredMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.protocols.get(protocol, b""),
            assignment,
        )
        return self.stored

    def take_assignment(self, stored: StoredMember) -> None:
        """Take the assignment in an entry. Only before the member is added to `Members`, which count its bytes."""
        self.assignment = stored.assignment

    @property
    def is_timed(self) -> bool:
        """Whether its session can expire. A member that waits for an answer of the broker need not send anything."""
        return self.is_new or not self.is_waiting

    @property
    def is_waiting(self) -> bool:
        """Whether the broker owes it an answer."""
        return self.join_waiter is not None or self.sync_waiter is not None

    @property
    def size_bytes(self) -> int:
        return self.brought_bytes + len(self.assignment)

    @property
    def brought_bytes(self) -> int:
        """The same without the assignment."""
        ids = (self.member_id, self.instance_id or "", self.client_id)
        return MEMBER_BYTES + sum(map(len, ids)) + protocols_bytes(self.protocols)


def protocols_bytes(protocols: Mapping[str, bytes]) -> int:
    return sum(PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in protocols.items())


class Members:
    """The members of one group, in the order in which they joined."""

    def __init__(self) -> None:
        self.leader: str | None = None
        # About how much memory they take.
        self.size_bytes = 0
        self._members: dict[str, Member] = {}
        self._of_instance: dict[str, Member] = {}
        # How many members support each protocol.
        self._supporters: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def of_instance(self, instance_id: str) -> Member | None:
        """The static member of this instance id."""
        return self._of_instance.get(instance_id)

    def add(self, member: Member) -> None:
        """Add a member. The first one becomes the leader."""
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._of_instance[member.instance_id] = member
        self._support(member)
        self.size_bytes += member.size_bytes
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: Member) -> None:
        del self._members[member.member_id]
        if member.instance_id is not None:
            del self._of_instance[member.instance_id]
        self._withdraw(member)
        self.size_bytes -= member.size_bytes
        if self.leader == member.member_id:
            self.leader = next(iter(self._members), None)

    def replace(self, old: Member, new: Member) -> None:
        """A static member goes on under a new member id. It stays the leader if it was the leader."""
        led = self.leader == old.member_id
        self.remove(old)
        self.add(new)
        if led:
            self.leader = new.member_id

    def change_protocols(self, member: Member, protocols: Mapping[str, bytes]) -> None:
        self._withdraw(member)
        self.size_bytes += protocols_bytes(protocols) - protocols_bytes(member.protocols)
        member.protocols = protocols
        self._support(member)

    def _support(self, member: Member) -> None:
        self._supporters.update(member.protocols.keys())

    def _withdraw(self, member: Member) -> None:
        for name in member.protocols:
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    @property
    def waiting_to_join(self) -> int:
        return sum(member.join_waiter is not None for member in self)

    def all_know_one_of(self, protocols: Mapping[str, bytes]) -> bool:
        """Whether every member supports one of these protocols."""
        return any(self._supporters[name] == len(self) for name in protocols)

    def select_protocol(self) -> str:
        """The most preferred of the protocols that all members support; in a tie, the choice of the first member."""
        candidates = {name for name, count in self._supporters.items() if count == len(self)}
        votes: Counter[str] = Counter()
        for member in self:
            votes[next(name for name in member.protocols if name in candidates)] += 1
        return votes.most_common(1)[0][0]

    def elect_leader(self) -> bool:
        """Make sure that the leader is a member that waits to join; False if none waits."""
        if self.leader is not None and self._members[self.leader].join_waiter is not None:
            return True
        candidate = next((member.member_id for member in self if member.join_waiter is not None), None)
        self.leader = candidate or self.leader
        return candidate is not None
