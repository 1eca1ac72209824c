"""One member of a consumer group (KIP-848): its subscription, the partitions it may read, and its way to its target.

A member is in one of three states. A member that must give up partitions stays in its epoch until it has done so
(`UNREVOKED`). A member whose target has partitions that another member has not given up yet is already in the target's
epoch, and gets those partitions when they are free (`UNRELEASED`). A member that has its whole target is `STABLE`. A
partition becomes free only when its member has said that it no longer reads it, so two members are never allowed to
read the same partition.

Nothing here knows the group, except which partitions are free.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain
from typing import Any, Final

from semel.log.core.entries import ConsumerPosition, ConsumerSubscription, HeldSpan, PartitionName
from semel.log.core.groups.partitions import NOTHING, Partitions
from semel.wire.refusals import (
    FENCED_MEMBER_EPOCH,
    GROUP_MAX_SIZE_REACHED,
    ILLEGAL_GENERATION,
    STALE_MEMBER_EPOCH,
    Refused,
)

# The limit of members of a group of the new protocol, and of a share group.
_LIMITS: Final = "group_members_max, or share_group_members_max"
STABLE: Final = 0
UNREVOKED: Final = 1
UNRELEASED: Final = 2

# The epoch in the heartbeat of a member that joins.
JOIN_EPOCH: Final = 0
# The epoch of a static member that has left for a while.
AWAY_EPOCH: Final = -2

# The time to give up partitions until the member has sent its own; it must send one when it joins.
REBALANCE_TIMEOUT_MS_DEFAULT: Final = 300_000

# The partitions of a member, by the epoch since which it has held them.
Since = Mapping[int, Partitions]


class Member:
    """A member. Only the group's `apply` changes its stored state; its deadlines are in memory only."""

    __slots__ = (
        "has_lost_connection",
        "held",
        "held_since",
        "position",
        "revoke_deadline_ms",
        "revoking",
        "revoking_since",
        "session_deadline_ms",
        "subscription",
    )

    def __init__(self, subscription: ConsumerSubscription) -> None:
        self.subscription = subscription
        self.position = ConsumerPosition(subscription.member_id, 0, 0, STABLE, (), ())
        # The partitions in `position`, as sets.
        self.held_since: Since = {}
        self.revoking_since: Since = {}
        self.held = NOTHING
        self.revoking = NOTHING
        # The end of its session; None before its first heartbeat.
        self.session_deadline_ms: int | None = None
        # Whether its session was shortened because its connection was closed.
        self.has_lost_connection = False
        # The time by which it must have given up the partitions that were revoked.
        self.revoke_deadline_ms: int | None = None

    @property
    def member_id(self) -> str:
        return self.subscription.member_id

    @property
    def epoch(self) -> int:
        return self.position.epoch

    @property
    def is_classic(self) -> bool:
        """Whether it speaks the classic protocol."""
        return self.subscription.classic_session_timeout_ms >= 0

    def move(self, position: ConsumerPosition, at_ms: int) -> None:
        self.position = position
        self.held_since = _since(position.held)
        self.revoking_since = _since(position.revoking)
        self.held = Partitions.union(self.held_since.values())
        self.revoking = Partitions.union(self.revoking_since.values())
        self.revoke_deadline_ms = None
        if position.state == UNREVOKED:
            self.revoke_deadline_ms = at_ms + self.subscription.rebalance_timeout_ms

    def hear(self, session_timeout_ms: int, now_ms: int) -> None:
        """Begin its session again. A member of the classic protocol has the session timeout that it asked for."""
        self.session_deadline_ms = now_ms + self._session_ms(session_timeout_ms)
        self.has_lost_connection = False

    def lose_connection(self, session_timeout_ms: int, session_percent: int, now_ms: int) -> None:
        """Shorten its session to this percentage. A static member may be restarting, and keeps its whole session."""
        if self.session_deadline_ms is None or self.subscription.instance_id is not None:
            return
        deadline_ms = now_ms + self._session_ms(session_timeout_ms) * session_percent // 100
        if deadline_ms < self.session_deadline_ms:
            self.session_deadline_ms = deadline_ms
            self.has_lost_connection = True

    def _session_ms(self, session_timeout_ms: int) -> int:
        return self.subscription.classic_session_timeout_ms if self.is_classic else session_timeout_ms

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Whether it has its whole target of this epoch."""
        return self.position.state == STABLE and self.epoch == target_epoch

    def has_had_all(self, partitions: Collection[PartitionName], epoch: int) -> bool:
        """Whether the member has held these partitions since that epoch or before. A partition that it must give up
        counts until it has done so.
        """
        if epoch > self.epoch or self.is_classic:
            return False
        since = chain(self.held_since.items(), self.revoking_since.items())
        own = Partitions.union(those for first_epoch, those in since if first_epoch <= epoch)
        return all(name in own for name in partitions)

    @property
    def deadline_ms(self) -> int | None:
        """The earlier of its deadlines: then it is removed."""
        return min((at for at in (self.session_deadline_ms, self.revoke_deadline_ms) if at is not None), default=None)


def new_subscription(member_id: str, instance_id: str | None) -> ConsumerSubscription:
    """The subscription of a member that has not sent one yet."""
    return ConsumerSubscription(member_id, instance_id, None, "", "", REBALANCE_TIMEOUT_MS_DEFAULT, (), "", None)


def check_count(before: Member | None, count: int, count_max: int) -> None:
    """Refused if a group of `count` members has no place for a new one. `before` is the member itself, or the static
    one that it replaces.
    """
    if before is None and count >= count_max:
        raise Refused(GROUP_MAX_SIZE_REACHED, f"the group has {count} members, no more are allowed ({_LIMITS})")


def check_current(member: Member, epoch: int) -> None:
    """Refused unless this is the member's epoch."""
    if epoch != member.epoch:
        error = ILLEGAL_GENERATION if member.is_classic else STALE_MEMBER_EPOCH
        raise Refused(error, f"member '{member.member_id}' is in epoch {member.epoch}, not {epoch}")


def check_epoch(member: Member, epoch: int, owned: Partitions | None) -> None:
    """Refused unless this is the member's epoch, or the one before it if the member may have missed one answer."""
    if epoch in (JOIN_EPOCH, member.epoch):
        return
    missed_one = epoch == member.position.previous_epoch and epoch < member.epoch
    if not (missed_one and owned is not None and owned <= member.held):
        raise Refused(
            FENCED_MEMBER_EPOCH,
            f"member '{member.member_id}' is in epoch {member.epoch}, not {epoch}: it must give up all partitions",
        )


def check_said_epoch(member: Member, position: ConsumerPosition, said_epoch: int) -> None:
    """Refused if this position drops partitions because of a heartbeat from before the member's current epoch.

    Kafka accepts such a heartbeat. But a list of the partitions that the member read in an earlier epoch cannot show
    whether it has given up those that it got in the current one.
    """
    if said_epoch in (JOIN_EPOCH, member.epoch) or position is member.position:
        return
    if not member.held | member.revoking <= partitions_of(position):
        raise Refused(
            FENCED_MEMBER_EPOCH,
            f"member '{member.member_id}' is in epoch {member.epoch}, not {said_epoch}: it must give up all partitions",
        )


def subscription_from(fields: Iterable[Any]) -> ConsumerSubscription:
    """A subscription from an entry or a checkpoint, with tuples again where JSON has made lists."""
    subscription = ConsumerSubscription(*fields)
    return subscription._replace(
        topic_names=tuple(subscription.topic_names),
        classic_protocols=tuple([(name, metadata) for name, metadata in subscription.classic_protocols]),
    )


def position_from(fields: Iterable[Any]) -> ConsumerPosition:
    """A position from an entry or a checkpoint, likewise."""
    position = ConsumerPosition(*fields)
    return position._replace(
        held=tuple([HeldSpan(*span) for span in position.held]),
        revoking=tuple([HeldSpan(*span) for span in position.revoking]),
    )


def target_from(spans: Iterable[Iterable[int]]) -> Partitions:
    """A target from an entry or a checkpoint, likewise."""
    return Partitions.back_from((number, begin, end) for number, begin, end in spans)


def next_position(
    member: Member,
    target: Partitions,
    target_epoch: int,
    free_of: Callable[[Partitions], Partitions],
    owned: Partitions | None,
    wanted: Callable[[], frozenset[int]],
) -> ConsumerPosition:
    """A member's position after a heartbeat. `owned` are the partitions that it says it reads; None if it does not say.

    `wanted` returns the topics that it subscribes to: while it gives up partitions, no others are revoked, except those
    of topics to which it no longer subscribes.
    """
    position = member.position
    if position.state == STABLE and position.epoch == target_epoch:
        return position
    if position.state == UNREVOKED and _still_reads(owned, member.revoking):
        own = member.held.within(wanted())
        held_since = _common(member.held_since, own)
        to_revoke = _joined(_common(member.held_since, member.held - own), member.revoking_since)
        return _moved(position, position.epoch, UNREVOKED, held_since, to_revoke)
    own = member.held & target
    held_since = _common(member.held_since, own)
    if _still_reads(owned, member.held - own):
        return _moved(position, position.epoch, UNREVOKED, held_since, _common(member.held_since, member.held - own))
    missing = target - own
    # Partitions that the member itself has just given up are free as well, because no other member can hold them.
    ready = missing & member.revoking | free_of(missing)
    held_since = _joined(held_since, {target_epoch: ready})
    return _moved(position, target_epoch, STABLE if ready == missing else UNRELEASED, held_since, {})


def _common(since: Since, partitions: Partitions) -> Since:
    return {epoch: those & partitions for epoch, those in since.items()}


def _joined(one: Since, other: Since) -> Since:
    return {epoch: one.get(epoch, NOTHING) | other.get(epoch, NOTHING) for epoch in one.keys() | other.keys()}


def _still_reads(owned: Partitions | None, revoking: Partitions) -> bool:
    """Whether the member may still read one of these, according to its heartbeat."""
    return bool(revoking) and (owned is None or not owned.isdisjoint(revoking))


def _moved(
    position: ConsumerPosition,
    epoch: int,
    state: int,
    held: Since,
    revoking: Since,
) -> ConsumerPosition:
    """The new position; the same object if nothing changes."""
    new_position = ConsumerPosition(
        position.member_id, epoch, position.epoch, state, held_spans(held), held_spans(revoking)
    )
    return position if new_position._replace(previous_epoch=position.previous_epoch) == position else new_position


def held_spans(since: Since) -> tuple[HeldSpan, ...]:
    """Partitions in the form for entries: equal partitions give equal spans in equal order."""
    spans = [
        HeldSpan(number, begin, end, epoch) for epoch, those in since.items() for number, begin, end in those.spans()
    ]
    return tuple(sorted(spans))


def partitions_of(position: ConsumerPosition) -> Partitions:
    """All partitions that a member in this position may read or must give up."""
    return Partitions.of_spans((number, begin, end) for number, begin, end, _ in (*position.held, *position.revoking))


def _since(spans: Iterable[HeldSpan]) -> Since:
    of_epoch: dict[int, list[tuple[int, int, int]]] = {}
    for number, begin, end, epoch in spans:
        of_epoch.setdefault(epoch, []).append((number, begin, end))
    return {epoch: Partitions.of_spans(those) for epoch, those in of_epoch.items()}
