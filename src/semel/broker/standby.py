"""The answers of a standby broker: it names the active broker, and refuses everything else.

After such an error a client sends Metadata or FindCoordinator again, gets the address of the active broker, and goes on
there. Nothing here may change anything.
"""

from typing import Final

from semel.broker.exchange import Exchange
from semel.broker.refusal import refusal
from semel.core.steps import Steps
from semel.wire import messages, versions
from semel.wire.errors import ErrorCode

# The APIs that a standby answers as the active broker would, with the active broker's address.
ANSWERED: Final = frozenset(
    (
        *(versions.API_VERSIONS, versions.METADATA, versions.FIND_COORDINATOR, versions.DESCRIBE_CLUSTER),
        *(versions.SASL_HANDSHAKE, versions.SASL_AUTHENTICATE),
    )
)
_LEADERS: Final = frozenset(
    (
        *(versions.PRODUCE, versions.FETCH, versions.LIST_OFFSETS, versions.OFFSET_FOR_LEADER_EPOCH),
        *(versions.DELETE_RECORDS, versions.DESCRIBE_PRODUCERS),
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


def refused_by_a_standby(exchange: Exchange, body: memoryview) -> Steps[None]:
    """Answer that this is not the right broker for anything in the request."""
    api_key, version = exchange.api_key, exchange.version
    request = yield from messages.decode_request_in_steps(api_key, version, body)
    if api_key == versions.PRODUCE and request.acks == 0:
        # There is no other way to make the client look for the leader.
        exchange.reply_by_hanging_up()
        return
    if api_key == versions.INIT_PRODUCER_ID and request.transactional_id is None:
        # Without a transactional id any broker may answer, so the client would not look for a coordinator.
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    elif api_key in _LEADERS:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif api_key in _COORDINATORS:
        error = ErrorCode.NOT_COORDINATOR
    else:
        error = ErrorCode.NOT_CONTROLLER
    fields = refusal(api_key, version, request, error)
    encoded = yield from messages.encode_response_in_steps(api_key, version, exchange.correlation_id, fields)
    exchange.reply((encoded,))
