"""One member of a consumer group (KIP-848): what it said of itself, what it may read, and its way to its target.

The way has three states. A member that has to give up partitions is told so and stays in its epoch until it has
(`UNREVOKED`). A member whose target has partitions that another has not given up yet is in the target's epoch already,
and gets those partitions when they are free (`UNRELEASED`). A member that has its whole target is `STABLE`. A partition
becomes free only when its member has said that it no longer reads it, so two members never may read one partition.

Nothing here knows the group, except for which member holds which partition.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain
from typing import Any, Final

from semel.core.entries import ConsumerPosition, ConsumerSubscription, HeldSpan, PartitionName
from semel.core.groups.partitions import NOTHING, Partitions
from semel.core.refusals import FENCED_MEMBER_EPOCH, ILLEGAL_GENERATION, STALE_MEMBER_EPOCH, Refused

STABLE: Final = 0
UNREVOKED: Final = 1
UNRELEASED: Final = 2

# The epoch of a member that joins, whatever it has been.
JOIN_EPOCH: Final = 0
# The epoch of a static member that has left for a while.
AWAY_EPOCH: Final = -2

# How long a member may take to give up partitions if it does not say; members that join have to say it.
REBALANCE_TIMEOUT_MS_DEFAULT: Final = 300_000

# The partitions of a member by the epoch since which they are its own.
Since = Mapping[int, Partitions]


class Member:
    """A member as it is. Only the group's `apply` changes what is kept of it; deadlines are soft."""

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
        # The same, to look things up in.
        self.held_since: Since = {}
        self.revoking_since: Since = {}
        self.held = NOTHING
        self.revoking = NOTHING
        # When it will have been silent for too long; None before its first heartbeat.
        self.session_deadline_ms: int | None = None
        # Whether it was given less than its session because the connection over which it spoke is gone.
        self.has_lost_connection = False
        # When it will have taken too long to give up the partitions that were revoked.
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
        """Shorten its session to this share. A static member may be restarting, and keeps its whole session."""
        if self.session_deadline_ms is None or self.subscription.instance_id is not None:
            return
        deadline_ms = now_ms + self._session_ms(session_timeout_ms) * session_percent // 100
        if deadline_ms < self.session_deadline_ms:
            self.session_deadline_ms = deadline_ms
            self.has_lost_connection = True

    def _session_ms(self, session_timeout_ms: int) -> int:
        return self.subscription.classic_session_timeout_ms if self.is_classic else session_timeout_ms

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Whether it has all that this target gives it."""
        return self.position.state == STABLE and self.epoch == target_epoch

    def has_had_all(self, partitions: Collection[PartitionName], epoch: int) -> bool:
        """Whether these have been the member's since that epoch or before. Partitions that it has to give up count
        until it has given them up.
        """
        if epoch > self.epoch or self.is_classic:
            return False
        since = chain(self.held_since.items(), self.revoking_since.items())
        own = Partitions.union(those for first_epoch, those in since if first_epoch <= epoch)
        return all(name in own for name in partitions)

    @property
    def deadline_ms(self) -> int | None:
        """When it will have to be fenced, unless it does something before."""
        return min((at for at in (self.session_deadline_ms, self.revoke_deadline_ms) if at is not None), default=None)


def new_subscription(member_id: str, instance_id: str | None) -> ConsumerSubscription:
    """What is known of a member before it has said anything."""
    return ConsumerSubscription(member_id, instance_id, None, "", "", REBALANCE_TIMEOUT_MS_DEFAULT, (), "", None)


def check_current(member: Member, epoch: int) -> None:
    """Refused unless this is the member's epoch."""
    if epoch != member.epoch:
        error = ILLEGAL_GENERATION if member.is_classic else STALE_MEMBER_EPOCH
        raise Refused(error, f"member '{member.member_id}' is in epoch {member.epoch}, not {epoch}")


def check_epoch(member: Member, epoch: int, owned: Partitions | None) -> None:
    """Refused if the member is not where it says to be, unless all that happened is that it missed one answer."""
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

    Kafka believes such a heartbeat. But a list of what the member read in an earlier epoch cannot show whether it has
    given up what it got in the current one.
    """
    if said_epoch in (JOIN_EPOCH, member.epoch) or position is member.position:
        return
    if not member.held | member.revoking <= partitions_of(position):
        raise Refused(
            FENCED_MEMBER_EPOCH,
            f"member '{member.member_id}' is in epoch {member.epoch}, not {said_epoch}: it must give up all partitions",
        )


def subscription_from(fields: Iterable[Any]) -> ConsumerSubscription:
    """A subscription as it was, whichever kinds of sequences a journal or a checkpoint has made of it."""
    subscription = ConsumerSubscription(*fields)
    return subscription._replace(
        topic_names=tuple(subscription.topic_names),
        classic_protocols=tuple([(name, metadata) for name, metadata in subscription.classic_protocols]),
    )


def position_from(fields: Iterable[Any]) -> ConsumerPosition:
    """A position as it was, likewise."""
    position = ConsumerPosition(*fields)
    return position._replace(
        held=tuple([_span_from(*span) for span in position.held]),
        revoking=tuple([_span_from(*span) for span in position.revoking]),
    )


def _span_from(number: int, begin: int, end_or_epoch: int, epoch: int | None = None) -> HeldSpan:
    # A version before this one named each partition by itself.
    if epoch is None:
        return HeldSpan(number, begin, begin + 1, end_or_epoch)
    return HeldSpan(number, begin, end_or_epoch, epoch)


def target_from(spans: Iterable[Iterable[int]]) -> Partitions:
    """A target as it was, likewise."""
    # A version before this one named each partition by itself.
    return Partitions.of_spans((number, begin, *(end or (begin + 1,))) for number, begin, *end in spans)


def next_position(
    member: Member,
    target: Partitions,
    target_epoch: int,
    free_of: Callable[[Partitions], Partitions],
    owned: Partitions | None,
    wanted: Callable[[], frozenset[int]],
) -> ConsumerPosition:
    """Where a member is after a heartbeat. `owned` is what it says it reads, None if the heartbeat does not say.

    `wanted` answers the topics it asks for: while it gives up partitions, no further ones are revoked, except those of
    topics that it does not want any more.
    """
    position = member.position
    if position.state == STABLE and position.epoch == target_epoch:
        return position
    if position.state == UNREVOKED and _still_reads(owned, member.revoking):
        kept = member.held.within(wanted())
        held_since = _common(member.held_since, kept)
        to_revoke = _joined(_common(member.held_since, member.held - kept), member.revoking_since)
        return _moved(position, position.epoch, UNREVOKED, held_since, to_revoke)
    kept = member.held & target
    held_since = _common(member.held_since, kept)
    if _still_reads(owned, member.held - kept):
        return _moved(position, position.epoch, UNREVOKED, held_since, _common(member.held_since, member.held - kept))
    missing = target - kept
    # What the member itself has just given up is free as well: there is one owner at a time.
    ready = missing & member.revoking | free_of(missing)
    held_since = _joined(held_since, {target_epoch: ready})
    return _moved(position, target_epoch, STABLE if ready == missing else UNRELEASED, held_since, {})


def _common(since: Since, partitions: Partitions) -> Since:
    return {epoch: those & partitions for epoch, those in since.items()}


def _joined(one: Since, other: Since) -> Since:
    return {epoch: one.get(epoch, NOTHING) | other.get(epoch, NOTHING) for epoch in one.keys() | other.keys()}


def _still_reads(owned: Partitions | None, revoking: Partitions) -> bool:
    """Whether a member has not given these up yet, by what it says; it may not have said so."""
    return bool(revoking) and (owned is None or not owned.isdisjoint(revoking))


def _moved(
    position: ConsumerPosition,
    epoch: int,
    state: int,
    held: Since,
    revoking: Since,
) -> ConsumerPosition:
    """The new position; the very same object if nothing changes."""
    moved = ConsumerPosition(position.member_id, epoch, position.epoch, state, held_spans(held), held_spans(revoking))
    return position if moved._replace(previous_epoch=position.previous_epoch) == position else moved


def held_spans(since: Since) -> tuple[HeldSpan, ...]:
    """The same as entries have it: the same spans, in the same order, for the same partitions."""
    spans = [
        HeldSpan(number, begin, end, epoch) for epoch, those in since.items() for number, begin, end in those.spans()
    ]
    return tuple(sorted(spans))


def partitions_of(position: ConsumerPosition) -> Partitions:
    """All that a member in this position may read, or has to give up."""
    return Partitions.of_spans((number, begin, end) for number, begin, end, _ in (*position.held, *position.revoking))


def _since(spans: Iterable[HeldSpan]) -> Since:
    of_epoch: dict[int, list[tuple[int, int, int]]] = {}
    for number, begin, end, epoch in spans:
        of_epoch.setdefault(epoch, []).append((number, begin, end))
    return {epoch: Partitions.of_spans(those) for epoch, those in of_epoch.items()}
