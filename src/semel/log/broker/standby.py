"""The answers of a standby broker: it names the active broker and itself, reads what it has followed, lists no groups
and no transactions, and refuses everything else.

After such an error a client sends Metadata or FindCoordinator again, gets the address of the active broker, and goes on
there. Where a client would send the request to any broker, no error makes it choose another one, so the standby closes
the connection. Nothing here may change anything.
"""

from enum import Enum
from typing import Any, Final, NamedTuple

from semel.log.broker.exchange import Exchange
from semel.log.broker.refusal import refusal
from semel.wire import messages, versions
from semel.wire.errors import ErrorCode
from semel.wire.steps import Steps


class Here(Enum):
    """What a standby does with a request that it does not forward."""

    SERVES = "answers as the active broker would, with the active broker's address"
    READS = "answers what it has read from the journal, a moment late"
    LISTS_NOTHING = "answers with an empty list, because a client puts the lists of all brokers together"
    NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
    NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
    NOT_CONTROLLER = ErrorCode.NOT_CONTROLLER
    HANGS_UP = "closes the connection, because a client would ask the same broker again after any error"


class Rule(NamedTuple):
    """What a standby does with the requests of one API."""

    here: Here
    # Whether it forwards them to the active broker, where nobody has to log in: as one who has not logged in.
    forwards: bool = False
    # Whether they ask which broker is active. A broker that hands over answers them when the next one is.
    asks_who: bool = False


# What a standby does with each API. `tests/log/broker/apis/test_standby_of_every_api.py` asks one about all of them.
RULES: Final[dict[int, Rule]] = {
    versions.API_VERSIONS: Rule(Here.SERVES),
    versions.SASL_HANDSHAKE: Rule(Here.SERVES),
    versions.SASL_AUTHENTICATE: Rule(Here.SERVES),
    versions.METADATA: Rule(Here.SERVES, forwards=True, asks_who=True),
    versions.FIND_COORDINATOR: Rule(Here.SERVES, asks_who=True),
    versions.DESCRIBE_CLUSTER: Rule(Here.SERVES, asks_who=True),
    # Any broker may be asked these.
    versions.DESCRIBE_TOPIC_PARTITIONS: Rule(Here.READS, forwards=True),
    versions.DESCRIBE_QUORUM: Rule(Here.READS, forwards=True),
    versions.DESCRIBE_CONFIGS: Rule(Here.READS, forwards=True),
    versions.ALTER_CONFIGS: Rule(Here.HANGS_UP, forwards=True),
    versions.INCREMENTAL_ALTER_CONFIGS: Rule(Here.HANGS_UP, forwards=True),
    versions.DESCRIBE_ACLS: Rule(Here.READS, forwards=True),
    versions.CREATE_ACLS: Rule(Here.HANGS_UP, forwards=True),
    versions.DELETE_ACLS: Rule(Here.HANGS_UP, forwards=True),
    versions.DESCRIBE_CLIENT_QUOTAS: Rule(Here.READS, forwards=True),
    versions.ALTER_CLIENT_QUOTAS: Rule(Here.HANGS_UP, forwards=True),
    versions.DESCRIBE_USER_SCRAM_CREDENTIALS: Rule(Here.READS, forwards=True),
    versions.ALTER_USER_SCRAM_CREDENTIALS: Rule(Here.HANGS_UP, forwards=True),
    # A partition's leader. Nothing is answered to a Produce with acks=0, so that closes the connection.
    versions.PRODUCE: Rule(Here.NOT_LEADER),
    versions.FETCH: Rule(Here.NOT_LEADER),
    versions.LIST_OFFSETS: Rule(Here.NOT_LEADER),
    versions.OFFSET_FOR_LEADER_EPOCH: Rule(Here.NOT_LEADER),
    versions.DELETE_RECORDS: Rule(Here.NOT_LEADER),
    versions.DESCRIBE_PRODUCERS: Rule(Here.NOT_LEADER),
    versions.ALTER_REPLICA_LOG_DIRS: Rule(Here.NOT_LEADER),
    versions.DESCRIBE_LOG_DIRS: Rule(Here.LISTS_NOTHING),
    # The coordinator of a group or of a transaction. InitProducerId without a transactional id has none: librdkafka
    # would ask the same broker again and again.
    versions.INIT_PRODUCER_ID: Rule(Here.NOT_COORDINATOR, forwards=True),
    versions.OFFSET_COMMIT: Rule(Here.NOT_COORDINATOR),
    versions.OFFSET_FETCH: Rule(Here.NOT_COORDINATOR),
    versions.OFFSET_DELETE: Rule(Here.NOT_COORDINATOR),
    versions.JOIN_GROUP: Rule(Here.NOT_COORDINATOR),
    versions.SYNC_GROUP: Rule(Here.NOT_COORDINATOR),
    versions.HEARTBEAT: Rule(Here.NOT_COORDINATOR),
    versions.LEAVE_GROUP: Rule(Here.NOT_COORDINATOR),
    versions.DESCRIBE_GROUPS: Rule(Here.NOT_COORDINATOR),
    versions.DELETE_GROUPS: Rule(Here.NOT_COORDINATOR),
    versions.LIST_GROUPS: Rule(Here.LISTS_NOTHING),
    versions.CONSUMER_GROUP_HEARTBEAT: Rule(Here.NOT_COORDINATOR),
    versions.CONSUMER_GROUP_DESCRIBE: Rule(Here.NOT_COORDINATOR),
    versions.ADD_PARTITIONS_TO_TXN: Rule(Here.NOT_COORDINATOR),
    versions.ADD_OFFSETS_TO_TXN: Rule(Here.NOT_COORDINATOR),
    versions.TXN_OFFSET_COMMIT: Rule(Here.NOT_COORDINATOR),
    versions.END_TXN: Rule(Here.NOT_COORDINATOR),
    versions.DESCRIBE_TRANSACTIONS: Rule(Here.NOT_COORDINATOR),
    versions.LIST_TRANSACTIONS: Rule(Here.LISTS_NOTHING),
    # The controller.
    versions.CREATE_TOPICS: Rule(Here.NOT_CONTROLLER),
    versions.DELETE_TOPICS: Rule(Here.NOT_CONTROLLER),
    versions.CREATE_PARTITIONS: Rule(Here.NOT_CONTROLLER),
    versions.ELECT_LEADERS: Rule(Here.NOT_CONTROLLER),
    versions.ALTER_PARTITION_REASSIGNMENTS: Rule(Here.NOT_CONTROLLER),
    versions.LIST_PARTITION_REASSIGNMENTS: Rule(Here.NOT_CONTROLLER),
}


def is_served_by_handlers(api_key: int, *, stands_by: bool) -> bool:
    """Whether the handler of this API may answer while this broker stands by, or is active and without a lease."""
    here = RULES[api_key].here
    return here is Here.SERVES or (here is Here.READS and stands_by)


def refused_by_a_standby(exchange: Exchange, body: memoryview, *, stands_by: bool) -> Steps[None]:
    """Answer that this is not the right broker for anything in the request. If it does not stand by, it is active and
    without a lease at the moment.
    """
    api_key, version = exchange.api_key, exchange.version
    request = yield from messages.decode_request_in_steps(api_key, version, body)
    error = _error_of(api_key, request, stands_by=stands_by)
    if error is None:
        exchange.reply_by_hanging_up()
        return
    fields = refusal(api_key, version, request, error)
    encoded = yield from messages.encode_response_in_steps(api_key, version, exchange.correlation_id, fields)
    exchange.reply((encoded,))


def _error_of(api_key: int, request: Any, *, stands_by: bool) -> ErrorCode | None:
    """The error after which the client looks for the right broker; None if none makes it do so."""
    if api_key == versions.PRODUCE and request.acks == 0:
        return None
    if api_key == versions.INIT_PRODUCER_ID and request.transactional_id is None:
        return None
    here = RULES[api_key].here
    if here is Here.LISTS_NOTHING and stands_by:
        return ErrorCode.NONE
    return here.value if isinstance(here.value, ErrorCode) else None
