"""TxnOffsetCommit (28), versions 0 to 5: stores offsets of a group that take effect when a transaction is committed.

Until then they are pending. The producer must own its transactional id, and the group must be part of the transaction:
by AddOffsetsToTxn, or, since version 5, by this request. Since version 3 the request also names the member of the group
and its generation, and is refused if the generation has ended (KIP-447): so a consumer that has lost its partitions
cannot commit for the one that has them now.
"""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answer_in_steps, attempted, decoded, error_of
from semel.log.broker.apis.offset_commits import Asked, commit, committed, partition_names
from semel.log.broker.apis.transactional import check_timely, hanging_up_on_stragglers
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import READ_GROUP, READ_TOPIC, WRITE_TRANSACTIONAL_ID
from semel.log.broker.serving import Serving
from semel.log.core.entries import StoredOffset, TransactionalOffsets
from semel.log.core.groups.offsets import Committer
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused
from semel.wire.steps import Steps
from semel.wire.versions import TXN_OFFSET_COMMIT

API: Final = Api(
    TXN_OFFSET_COMMIT, (0, 5), rights=(WRITE_TRANSACTIONAL_ID, READ_GROUP, READ_TOPIC), standby=Here.NOT_COORDINATOR
)

_JOINS_FROM: Final = 5
_ABORTABLE_FROM: Final = 4

# The errors that clients of this API know. For a producer a member epoch of the new protocol is a generation.
_ERRORS: Final[dict[int, int]] = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.ILLEGAL_GENERATION,
}


@hanging_up_on_stragglers
def handle(broker: Serving, exchange: Exchange, body: memoryview) -> Steps[None]:
    request = yield from decoded(exchange, kafka.txn_offset_commit.TxnOffsetCommitRequest, body)

    def commit_some(offsets: list[StoredOffset]) -> int:
        if exchange.version < _JOINS_FROM:
            check_timely(broker, exchange, request.producer_id, "offsets")
        error = error_of(attempted(_commit, broker, exchange, request, offsets))
        if error == ErrorCode.PRODUCER_FENCED:
            broker.metrics.fenced_requests += 1
        return _ERRORS.get(error, error)

    rights = [(WRITE_TRANSACTIONAL_ID, request.transactional_id), (READ_GROUP, request.group_id)]
    api = kafka.txn_offset_commit
    asked = (Asked(item.name, item.partitions) for item in request.topics)
    errors = yield from committed(broker, exchange, asked, commit_some, api.TxnOffsetCommitResponsePartition, rights)
    topics = []
    for item, partitions in zip(request.topics, errors, strict=True):
        topics.append(api.TxnOffsetCommitResponseTopic(name=item.name, partitions=partitions))
        yield 1
    yield from answer_in_steps(exchange, api.TxnOffsetCommitResponse(topics=topics), after=broker.log.end)


def _commit(
    broker: Serving,
    exchange: Exchange,
    request: kafka.txn_offset_commit.TxnOffsetCommitRequest,
    offsets: list[StoredOffset],
) -> None:
    group, version = request.group_id, exchange.version
    if not group:
        raise Refused(ErrorCode.INVALID_GROUP_ID, "a group that takes part in transactions needs a name")
    entry = _decided(broker, version, request, offsets)
    who = Committer(
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        is_transactional=True,
        version=version,
        partitions=partition_names(offsets),
    )
    broker.log.state.groups.check_commit(group, who)
    broker.log.state.groups.check_offsets(group, offsets, request.producer_id)
    with broker.members.founding(group, exchange.address):
        commit(broker, entry)
    broker.transactions.note_grown(request.producer_id)
    if version < _JOINS_FROM:
        broker.transactions.note_heard(request.producer_id, exchange.connection_number, "offsets")
    broker.metrics.committed_offsets += len(offsets)


def _decided(
    broker: Serving, version: int, request: kafka.txn_offset_commit.TxnOffsetCommitRequest, offsets: list[StoredOffset]
) -> TransactionalOffsets:
    try:
        return broker.log.state.transaction_rules.decide_offsets(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.group_id,
            tuple(offsets),
            broker.clock.now_ms(),
            joins=version >= _JOINS_FROM,
        )
    except Refused as refused:
        if refused.error == ErrorCode.INVALID_TXN_STATE and version >= _ABORTABLE_FROM:
            raise Refused(ErrorCode.TRANSACTION_ABORTABLE, refused.message) from None
        raise
