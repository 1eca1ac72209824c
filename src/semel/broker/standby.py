"""The answers of a standby broker: it names the active broker and itself, reads what it has followed, lists no groups
and no transactions, and refuses everything else.

After such an error a client sends Metadata or FindCoordinator again, gets the address of the active broker, and goes on
there. Where a client would send the request to any broker, no error makes it choose another one, so the standby closes
the connection. Nothing here may change anything.
"""

from typing import Any, Final

from semel.broker.exchange import Exchange
from semel.broker.refusal import refusal
from semel.core.steps import Steps
from semel.wire import messages, versions
from semel.wire.errors import ErrorCode

# The APIs by which a client looks for the right broker.
QUESTIONS: Final = frozenset((versions.METADATA, versions.FIND_COORDINATOR, versions.DESCRIBE_CLUSTER))
# The APIs that a standby answers as the active broker would, with the active broker's address.
ANSWERED: Final = QUESTIONS | {versions.API_VERSIONS, versions.SASL_HANDSHAKE, versions.SASL_AUTHENTICATE}
# The APIs that any broker may be asked, and that a standby answers from what it has read.
READ_BY_A_STANDBY: Final = frozenset(
    (
        *(versions.DESCRIBE_CONFIGS, versions.DESCRIBE_ACLS, versions.DESCRIBE_TOPIC_PARTITIONS),
        *(versions.DESCRIBE_CLIENT_QUOTAS, versions.DESCRIBE_USER_SCRAM_CREDENTIALS, versions.DESCRIBE_QUORUM),
    )
)
_LEADERS: Final = frozenset(
    (
        *(versions.PRODUCE, versions.FETCH, versions.LIST_OFFSETS, versions.OFFSET_FOR_LEADER_EPOCH),
        *(versions.DELETE_RECORDS, versions.DESCRIBE_PRODUCERS, versions.ALTER_REPLICA_LOG_DIRS),
    )
)
_COORDINATORS: Final = frozenset(
    (
        *(versions.OFFSET_COMMIT, versions.OFFSET_FETCH, versions.OFFSET_DELETE, versions.JOIN_GROUP),
        *(versions.SYNC_GROUP, versions.HEARTBEAT, versions.LEAVE_GROUP, versions.DESCRIBE_GROUPS),
        *(versions.LIST_GROUPS, versions.DELETE_GROUPS, versions.CONSUMER_GROUP_HEARTBEAT),
        *(versions.CONSUMER_GROUP_DESCRIBE, versions.INIT_PRODUCER_ID, versions.ADD_PARTITIONS_TO_TXN),
        *(versions.ADD_OFFSETS_TO_TXN, versions.TXN_OFFSET_COMMIT, versions.END_TXN),
        *(versions.DESCRIBE_TRANSACTIONS, versions.LIST_TRANSACTIONS),
    )
)
_CONTROLLERS: Final = frozenset(
    (
        *(versions.CREATE_TOPICS, versions.DELETE_TOPICS, versions.CREATE_PARTITIONS, versions.ELECT_LEADERS),
        *(versions.ALTER_PARTITION_REASSIGNMENTS, versions.LIST_PARTITION_REASSIGNMENTS),
    )
)
# A client asks every broker for its own part of these lists, and a standby has none.
_LISTS: Final = frozenset((versions.LIST_GROUPS, versions.LIST_TRANSACTIONS, versions.DESCRIBE_LOG_DIRS))


def refused_by_a_standby(exchange: Exchange, body: memoryview, *, stands_by: bool) -> Steps[None]:
    """Answer that this is not the right broker for anything in the request. If it does not stand by, it is active and
    without a lease at the moment.
    """
    api_key, version = exchange.api_key, exchange.version
    request = yield from messages.decode_request_in_steps(api_key, version, body)
    error = ErrorCode.NONE if stands_by and api_key in _LISTS else _error_of(api_key, request)
    if error is None:
        exchange.reply_by_hanging_up()
        return
    fields = refusal(api_key, version, request, error)
    encoded = yield from messages.encode_response_in_steps(api_key, version, exchange.correlation_id, fields)
    exchange.reply((encoded,))


def _error_of(api_key: int, request: Any) -> ErrorCode | None:
    """The error after which the client looks for the right broker; None if none makes it do so."""
    if api_key == versions.PRODUCE and request.acks == 0:
        # The client reads no answer.
        return None
    if api_key == versions.INIT_PRODUCER_ID and request.transactional_id is None:
        # librdkafka would ask the broker that it is connected to again and again.
        return None
    if api_key in _LEADERS:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if api_key in _COORDINATORS:
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.NOT_CONTROLLER if api_key in _CONTROLLERS else None
