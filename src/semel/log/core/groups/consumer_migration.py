"""Members of the classic protocol in a consumer group, and the change of a group from one protocol to the other.

A group changes to the new protocol when the first member that speaks it joins, and back when the last such member has
left; in between it has members of both kinds. A classic member joins again whenever it would get another epoch: the
broker answers its heartbeat with REBALANCE_IN_PROGRESS, answers its JoinGroup at once, and tells it its partitions in
the answer to SyncGroup. The broker assigns for all; there is no leader. Everything else is as in `consumer`.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping

from semel.log.core.entries import (
    ClassicGroupChanged,
    ConsumerGroupChanged,
    ConsumerPosition,
    ConsumerSubscription,
    ConsumerTarget,
    MembersChanged,
    StoredMember,
)
from semel.log.core.groups.assigned_group import MemberRules
from semel.log.core.groups.classic_group import CONSUMER, ClassicGroup
from semel.log.core.groups.classic_members import Member as ClassicMember
from semel.log.core.groups.classic_steps import NO_MEMBER_ID, JoinAnswer, JoinRequest, Leaver, SyncAnswer, SyncRequest
from semel.log.core.groups.consumer import ConsumerGroup
from semel.log.core.groups.consumer_members import (
    JOIN_EPOCH,
    STABLE,
    UNRELEASED,
    UNREVOKED,
    Member,
    check_count,
    held_spans,
    new_subscription,
)
from semel.log.core.groups.consumer_protocol import (
    MemberSubscription,
    TopicPartitions,
    read_assignment,
    read_subscription,
    write_assignment,
)
from semel.log.core.groups.consumer_requests import are_too_many
from semel.log.core.groups.partitions import NOTHING, Partitions
from semel.log.core.topics import Catalog
from semel.wire.refusals import (
    FENCED_INSTANCE_ID,
    GROUP_ID_NOT_FOUND,
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_REQUEST,
    MEMBER_ID_REQUIRED,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    Refused,
)

# From one protocol to the other


def upgrade(classic: ClassicGroup, catalog: Catalog, rules: MemberRules, now_ms: int) -> ConsumerGroupChanged:
    """The entry that changes a classic group to the new protocol. Each member keeps its partitions."""
    if classic.protocol_type != CONSUMER:
        raise Refused(GROUP_ID_NOT_FOUND, f"the members of group '{classic.name}' are no consumers")
    if len(classic.members) > rules.members_max:
        raise Refused(GROUP_ID_NOT_FOUND, f"group '{classic.name}' has more than {rules.members_max} members")
    elsewhere = NOTHING
    subscriptions, targets, positions = [], [], []
    for member in classic.members:
        subscription, assigned = _brought(classic, member)
        held = partitions_of_topics(assigned, catalog) - elsewhere
        elsewhere |= held
        subscriptions.append(_as_subscription(member, subscription))
        targets.append(ConsumerTarget(member.member_id, tuple(held.spans())))
        since = held_spans({classic.generation: held})
        positions.append(ConsumerPosition(member.member_id, classic.generation, classic.generation, STABLE, since, ()))
    return ConsumerGroupChanged(
        classic.name,
        classic.generation,
        classic.generation,
        "",
        left=(),
        subscriptions=tuple(subscriptions),
        targets=tuple(targets),
        positions=tuple(positions),
        at_ms=now_ms,
    )


def _brought(classic: ClassicGroup, member: ClassicMember) -> tuple[MemberSubscription, TopicPartitions]:
    metadata = member.protocols.get(classic.protocol or "", next(iter(member.protocols.values()), b""))
    subscription = read_subscription(metadata)
    assigned = read_assignment(member.assignment)
    if subscription is None or assigned is None or are_too_many(subscription.topic_names):
        raise Refused(
            GROUP_ID_NOT_FOUND,
            f"the metadata or assignment of '{member.member_id}' in group '{classic.name}' cannot be used",
        )
    return subscription, assigned


def _as_subscription(member: ClassicMember, subscription: MemberSubscription) -> ConsumerSubscription:
    return new_subscription(member.member_id, member.instance_id)._replace(
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topic_names=tuple(sorted(set(subscription.topic_names))),
        classic_session_timeout_ms=member.session_timeout_ms,
        classic_protocols=_as_stored(member.protocols),
    )


def is_to_downgrade(group: ConsumerGroup) -> bool:
    """Whether the group has members, and all of them speak the classic protocol."""
    return bool(group.members) and all(member.is_classic for member in group.members.values())


def downgrade(name: str, group: ConsumerGroup, catalog: Catalog, now_ms: int) -> ClassicGroupChanged:
    """The entry that changes the group to the classic protocol; its members must then join again."""
    members = group.members.values()
    common = set.intersection(*({protocol for protocol, _ in m.subscription.classic_protocols} for m in members))
    first = next(iter(members)).subscription.classic_protocols
    protocol = next(name for name, _ in first if name in common)
    stored = [
        StoredMember(
            member.member_id,
            member.subscription.instance_id,
            member.subscription.client_id,
            member.subscription.client_host,
            member.subscription.rebalance_timeout_ms,
            member.subscription.classic_session_timeout_ms,
            b64decode(dict(member.subscription.classic_protocols)[protocol]),
            _assignment(group.target_of(member.member_id), catalog),
        )
        for member in members
    ]
    # With this generation, members that are up to date get REBALANCE_IN_PROGRESS and not ILLEGAL_GENERATION. The target
    # epoch counts too: perhaps only a member that has left had it, and no other generation may have its number.
    generation = max(group.target_epoch, *(member.epoch for member in members))
    # A generation without a leader means, even after a restart, that the members must join again.
    return ClassicGroupChanged(name, generation, CONSUMER, protocol, None, tuple(stored), now_ms)


# Requests of classic members


def decide_join(
    name: str, group: ConsumerGroup, request: JoinRequest, catalog: Catalog, rules: MemberRules, now_ms: int
) -> tuple[str, MembersChanged | None]:
    """The member's id, and what its JoinGroup changes."""
    member_id = request.member_id or request.new_member_id
    subscription = _readable(group, request)
    if not request.member_id and request.instance_id is None and request.requires_known_id:
        raise Refused(MEMBER_ID_REQUIRED, "a new member must join again with its id")
    before = _static_member(group, request) if request.instance_id is not None else group.members.get(member_id)
    check_count(before, len(group.members), rules.members_max)
    subscription_before = new_subscription(member_id, request.instance_id) if before is None else before.subscription
    subscription_now = subscription_before._replace(
        member_id=member_id,
        rack_id=subscription.rack_id or subscription_before.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=tuple(sorted(set(subscription.topic_names))),
        topic_regex="",
        classic_session_timeout_ms=request.session_timeout_ms,
        classic_protocols=_as_stored(request.protocols),
    )
    member = group.going_on_as(subscription_now, before)
    owned = partitions_of_topics(subscription.owned, catalog)
    return member_id, group.decide_step(name, member, subscription_now, owned, JOIN_EPOCH, catalog, now_ms)


def _readable(group: ConsumerGroup, request: JoinRequest) -> MemberSubscription:
    """The member's subscription; refused if the classic members have no protocol in common."""
    others = [
        {protocol for protocol, _ in member.subscription.classic_protocols}
        for member in group.members.values()
        if member.is_classic and member.member_id != request.member_id
    ]
    subscription = read_subscription(next(iter(request.protocols.values()), b""))
    known_to_all = set(request.protocols).intersection(*others)
    if request.protocol_type != CONSUMER or not known_to_all or subscription is None:
        raise Refused(INCONSISTENT_GROUP_PROTOCOL, "the group has no protocol that this member knows")
    if are_too_many(subscription.topic_names):
        raise Refused(INVALID_REQUEST, f"'{request.member_id}' asks for more topics than one member may")
    return subscription


def _static_member(group: ConsumerGroup, request: JoinRequest) -> Member | None:
    member = group.static_member(request.instance_id or "")
    if request.member_id == NO_MEMBER_ID:
        return member
    if member is None:
        raise Refused(UNKNOWN_MEMBER_ID, f"no member is instance '{request.instance_id}'")
    if member.member_id != request.member_id:
        raise Refused(FENCED_INSTANCE_ID, f"instance '{request.instance_id}' is now member '{member.member_id}'")
    return member


def join_answer(member: Member) -> JoinAnswer:
    """The answer to JoinGroup. No member leads, so no answer lists the other members."""
    protocol = member.subscription.classic_protocols[0][0]
    return JoinAnswer(NONE, member.member_id, member.epoch, CONSUMER, protocol)


def sync_answer(group: ConsumerGroup, request: SyncRequest, catalog: Catalog) -> SyncAnswer:
    """The answer to SyncGroup: the partitions that the member may read."""
    member = _member_of_generation(group, request.member_id, request.instance_id, request.generation)
    # This check comes first, because the request may name the protocol that was selected before the group changed.
    if group.epoch > member.epoch and member.position.state != UNREVOKED:
        raise Refused(REBALANCE_IN_PROGRESS, "the member has to join again")
    protocol = member.subscription.classic_protocols[0][0]
    request.check_protocol(CONSUMER, protocol)
    return SyncAnswer(NONE, CONSUMER, protocol, _assignment(member.held, catalog))


def check_heartbeat(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> None:
    """Refused if the member is in another generation, or has to join again to give up or get partitions."""
    # A client that has given up its member id has to join again, as in a classic group.
    instance_id = None if member_id == NO_MEMBER_ID else instance_id
    member = _member_of_generation(group, member_id, instance_id, generation)
    state = member.position.state
    gets_more = state == UNRELEASED and not group.waits_for_others(member)
    if member.epoch < group.epoch or state == UNREVOKED or gets_more:
        raise Refused(REBALANCE_IN_PROGRESS, "the member has to join again")


def leaving(group: ConsumerGroup, leaver: Leaver) -> str:
    """The id of the classic member that leaves, or of the static member if only its instance id is given."""
    if leaver.member_id == NO_MEMBER_ID and leaver.instance_id is not None:
        member = group.static_member(leaver.instance_id)
        if member is None:
            raise Refused(UNKNOWN_MEMBER_ID, f"no member is instance '{leaver.instance_id}'")
        return member.member_id
    return _classic_member(group, leaver.member_id, leaver.instance_id).member_id


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    if instance_id is not None:
        member = group.static_member(instance_id)
        if member is not None and member.member_id != member_id:
            raise Refused(FENCED_INSTANCE_ID, f"instance '{instance_id}' is now member '{member.member_id}'")
    member = group.member(member_id)
    if not member.is_classic:
        raise Refused(UNKNOWN_MEMBER_ID, f"'{member_id}' does not speak the classic protocol")
    return member


def _member_of_generation(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> Member:
    member = _classic_member(group, member_id, instance_id)
    if generation != member.epoch:
        raise Refused(ILLEGAL_GENERATION, f"member '{member_id}' is in generation {member.epoch}, not {generation}")
    return member


# Names and numbers


def partitions_of_topics(indexes_of: TopicPartitions, catalog: Catalog) -> Partitions:
    """Those of the named partitions that exist, by the numbers of their topics. A client may name any."""
    return Partitions.union(
        Partitions.of_indexes(topic.number, indexes, topic.partition_count)
        for name, indexes in indexes_of.items()
        if (topic := catalog.named(name)) is not None
    )


def _assignment(partitions: Partitions, catalog: Catalog) -> bytes:
    topics = [(catalog.numbered(number), indexes) for number, indexes in partitions.indexes()]
    return write_assignment([(topic.name, indexes) for topic, indexes in topics if topic is not None])


def _as_stored(protocols: Mapping[str, bytes]) -> tuple[tuple[str, str], ...]:
    return tuple([(name, b64encode(metadata).decode()) for name, metadata in protocols.items()])
