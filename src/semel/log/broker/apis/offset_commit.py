"""OffsetCommit (8), versions 2 to 10: stores how far a group has read, partition by partition.

A member of the group must name the current generation; otherwise a consumer that has lost its partitions could
overwrite the offsets of the consumer that has them now. A client that is not a member may commit while the group has no
members: consumers that assign partitions themselves do so, and tools that reset a group. The answer is sent when the
offsets are durable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted, error_of
from semel.log.broker.apis.offset_commits import Asked, commit, committed, partition_names
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import READ_GROUP, READ_TOPIC
from semel.log.broker.serving import Serving
from semel.log.core.entries import PartitionName, StoredOffset
from semel.log.core.groups.offsets import DEFAULT_RETENTION, CommittedOffset, Committer
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused
from semel.wire.steps import Steps
from semel.wire.versions import OFFSET_COMMIT

API: Final = Api(OFFSET_COMMIT, (2, 10), rights=(READ_GROUP, READ_TOPIC), standby=Here.NOT_COORDINATOR)

# Clients of older versions do not know GROUP_ID_NOT_FOUND.
_GROUP_NOT_FOUND_FROM = 9
_BY_ID_FROM = 10
# The versions in which a client says for how long its offsets are to be kept.
_WITH_RETENTION = range(2, 5)
# When somebody sets the offsets of a group, the event has this many of them.
TOLD_MAX: Final = 10


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.offset_commit.OffsetCommitRequest
) -> Steps[kafka.offset_commit.OffsetCommitResponse]:
    def commit_some(offsets: list[StoredOffset]) -> int:
        return error_of(attempted(_commit, broker, exchange, request, offsets))

    api = kafka.offset_commit
    by_id = exchange.version >= _BY_ID_FROM
    asked = (Asked(item.topic_id if by_id else item.name, item.partitions) for item in request.topics)
    rights = [(READ_GROUP, request.group_id)]
    errors = yield from committed(broker, exchange, asked, commit_some, api.OffsetCommitResponsePartition, rights)
    topics = []
    for item, partitions in zip(request.topics, errors, strict=True):
        topics.append(api.OffsetCommitResponseTopic(name=item.name, topic_id=item.topic_id, partitions=partitions))
        yield 1
    return api.OffsetCommitResponse(topics=topics)


def _commit(
    broker: Serving,
    exchange: Exchange,
    request: kafka.offset_commit.OffsetCommitRequest,
    offsets: list[StoredOffset],
) -> None:
    groups, version = broker.log.state.groups, exchange.version
    who = Committer(
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        is_transactional=False,
        version=version,
        partitions=partition_names(offsets),
    )
    try:
        groups.check_commit(request.group_id, who)
    except Refused as refused:
        if refused.error == ErrorCode.GROUP_ID_NOT_FOUND and version < _GROUP_NOT_FOUND_FROM:
            raise Refused(ErrorCode.ILLEGAL_GENERATION, refused.message) from None
        raise
    group = groups.named(request.group_id)
    before = (
        {}
        if group is None or not group.is_left
        else {one: group.offsets.committed.get(one) for one in who.partitions or ()}
    )
    broker.groups.hear(exchange, request.group_id, request.member_id)
    has_wish = exchange.version in _WITH_RETENTION
    retention_ms = request.retention_time_ms if has_wish else DEFAULT_RETENTION
    entry = groups.decide_commit(request.group_id, offsets, broker.clock.now_ms(), retention_ms=retention_ms)
    with broker.members.founding(request.group_id, exchange.address):
        commit(broker, entry)
    broker.metrics.committed_offsets += len(offsets)
    _tell_of_reset(broker, exchange, request.group_id, offsets, before)


def _tell_of_reset(
    broker: Serving,
    exchange: Exchange,
    group: str,
    offsets: list[StoredOffset],
    before: Mapping[PartitionName, CommittedOffset | None],
) -> None:
    """Somebody has moved offsets of a group whose members have left. Apache Kafka tells nobody. A group that never has
    members is committed for like that all the time, by consumers that choose their partitions themselves.
    """
    moved = [(one, before.get(PartitionName(one.number, one.partition))) for one in offsets] if before else []
    changes = [(one, old) for one, old in moved if old is None or old.offset != one.offset]
    if changes:
        catalog = broker.log.state.catalog
        first = [
            f"{'' if (topic := catalog.numbered(one.number)) is None else topic.name}:{one.partition} "
            f"from {'none' if old is None else old.offset} to {one.offset}"
            for one, old in changes[:TOLD_MAX]
        ]
        broker.guard.note_administration(
            exchange, "offsets_set", group, partitions=len(changes), first=", ".join(first)
        )
