"""The requests to a classic group, the answers, and the result of one step, which tells the caller what to do.

These are plain values, so that the rules in `classic` can be tested without a connection: an opaque token of the caller
stands for a waiting request, and a `Step` says everything that the caller must do.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from semel.log.core.entries import ClassicGroupChanged
from semel.log.core.groups.classic_members import Member, Waiter
from semel.wire import refusals
from semel.wire.refusals import Refused

NO_GENERATION: Final = -1
NO_MEMBER_ID: Final = ""


@dataclass(frozen=True, slots=True)
class ClassicRules:
    """The limits on the size of a group, and its timeouts."""

    members_max: int
    group_bytes_max: int
    session_timeout_min_ms: int
    session_timeout_max_ms: int
    initial_rebalance_delay_ms: int
    new_member_join_timeout_ms: int
    lost_connection_session_percent: int


class JoinRequest(NamedTuple):
    """A JoinGroup request. `new_member_id` is the id that the broker gives to a client without one."""

    member_id: str
    new_member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: Mapping[str, bytes]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    # Whether a client without an id gets MEMBER_ID_REQUIRED with an id, and must join again with it.
    requires_known_id: bool
    # Whether the client understands `skip_assignment`: it is the leader, but need not assign.
    may_skip_assignment: bool

    @property
    def brought_bytes(self) -> int:
        """About how much memory the member takes, without its assignment."""
        return self.as_member(self.member_id or self.new_member_id).brought_bytes

    def as_member(self, member_id: str) -> Member:
        return Member(
            member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.protocols,
        )


class SyncRequest(NamedTuple):
    """A SyncGroup request: a member asks for its assignment, and the leader sends the assignments of all."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]

    def check_protocol(self, protocol_type: str | None, protocol: str | None) -> None:
        """Refused if the member names another type or another protocol than these."""
        for expected, actual in ((self.protocol_type, protocol_type), (self.protocol, protocol)):
            if expected is not None and expected != actual:
                raise Refused(refusals.INCONSISTENT_GROUP_PROTOCOL, f"the protocol is {actual}, not {expected}")


class Leaver(NamedTuple):
    """A member to remove, named by its id, or a static member by its instance id alone, as admin clients do."""

    member_id: str
    instance_id: str | None


class JoinedMember(NamedTuple):
    """What the answer to the leader says about each member."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    error: int
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_MEMBER_ID
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class SyncAnswer(NamedTuple):
    error: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Event(NamedTuple):
    """A log event for the operator."""

    name: str
    reason: str


class Proposal(NamedTuple):
    """An entry to commit, and what to call when it is applied, or when it could not be committed."""

    entry: ClassicGroupChanged
    kept: Callable[[], None]
    refused: Callable[[], None]


@dataclass(slots=True)
class Step:
    """The result of one request, or of `pass_time`."""

    now_ms: int
    answers: list[tuple[Waiter, JoinAnswer | SyncAnswer]] = field(default_factory=list)
    proposal: Proposal | None = None
    events: list[Event] = field(default_factory=list)
    # The error code for each leaver, in their order; `NONE` for a member that has left.
    left: list[int] = field(default_factory=list)
    # The ids of the members that are no longer in the group.
    gone: list[str] = field(default_factory=list)

    def answer(self, waiter: Waiter, answer: JoinAnswer | SyncAnswer) -> None:
        self.answers.append((waiter, answer))

    def dismiss(self, member: Member, error: int) -> None:
        """Answer all waiting requests of the member with this error."""
        if member.join_waiter is not None:
            # Without an id in the answer, the client asks for a new one.
            member_id = NO_MEMBER_ID if error == refusals.UNKNOWN_MEMBER_ID else member.member_id
            self.answer(member.join_waiter, JoinAnswer(error, member_id))
        if member.sync_waiter is not None:
            self.answer(member.sync_waiter, SyncAnswer(error))
        member.join_waiter = member.sync_waiter = None

    def tell(self, name: str, reason: str) -> None:
        self.events.append(Event(name, reason))
