"""The requests to a classic group, the answers, and what one step of the group asks its caller to do.

Plain values, so that the rules in `classic` can be tried without a connection: a request that waits is a token of the
caller's, and the caller finds in a `Step` everything that it has to do.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from semel.core import refusals
from semel.core.entries import ClassicGroupChanged
from semel.core.groups.classic_members import Member, Waiter

NO_GENERATION: Final = -1
NO_MEMBER_ID: Final = ""


@dataclass(frozen=True, slots=True)
class ClassicRules:
    """How large a group may be, and how long things may take."""

    members_max: int
    group_bytes_max: int
    session_timeout_min_ms: int
    session_timeout_max_ms: int
    initial_rebalance_delay_ms: int
    new_member_join_timeout_ms: int
    lost_connection_session_percent: int


class JoinRequest(NamedTuple):
    """A client wants to become a member, or to stay one. `new_member_id` is the id of a client that has none yet."""

    member_id: str
    new_member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: Mapping[str, bytes]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    # Whether the client, if it has no id, is told one and has to come back with it.
    requires_known_id: bool
    # Whether the client understands that it leads without having to assign.
    may_skip_assignment: bool

    @property
    def brought_bytes(self) -> int:
        """About what a member takes that says this."""
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
    """A member asks for its assignment; the leader brings the assignments of all."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]


class Leaver(NamedTuple):
    """The member that leaves, by its id, or a static one by its instance id alone, as administrators do it."""

    member_id: str
    instance_id: str | None


class JoinedMember(NamedTuple):
    """What the leader is told about each member."""

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
    """What an operator may want to know."""

    name: str
    reason: str


class Proposal(NamedTuple):
    """An entry to be committed, and what follows when it is applied, or when it could not be kept."""

    entry: ClassicGroupChanged
    kept: Callable[[], None]
    refused: Callable[[], None]


@dataclass(slots=True)
class Step:
    """The result of one request, or of time that passed."""

    now_ms: int
    answers: list[tuple[Waiter, JoinAnswer | SyncAnswer]] = field(default_factory=list)
    proposal: Proposal | None = None
    events: list[Event] = field(default_factory=list)
    # For each leaver, in their order, the error; `NONE` for a member that has left.
    left: list[int] = field(default_factory=list)
    # The ids that are no longer members'.
    gone: list[str] = field(default_factory=list)

    def answer(self, waiter: Waiter, answer: JoinAnswer | SyncAnswer) -> None:
        self.answers.append((waiter, answer))

    def dismiss(self, member: Member, error: int) -> None:
        """Answer every request of the member that waits with this error."""
        if member.join_waiter is not None:
            # Without an id it asks for a new one.
            member_id = NO_MEMBER_ID if error == refusals.UNKNOWN_MEMBER_ID else member.member_id
            self.answer(member.join_waiter, JoinAnswer(error, member_id))
        if member.sync_waiter is not None:
            self.answer(member.sync_waiter, SyncAnswer(error))
        member.join_waiter = member.sync_waiter = None

    def tell(self, name: str, reason: str) -> None:
        self.events.append(Event(name, reason))
