"""The meaning of brokers' error codes for a client: whether to retry, and the message for the user.

A code that a retry may mend becomes `Moved` or `UnknownTopic`; every other code becomes an error for the user, and so
must every unknown code.
"""

from typing import Final

from semel.client.errors import AuthenticationFailed, Fenced, LogError, RefusedByBroker, UnknownTopic
from semel.client.patience import Concluding, Moved
from semel.client.places import TopicPartition
from semel.wire.errors import ErrorCode

MOVED: Final = frozenset(
    (
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    )
)
UNKNOWN: Final = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    )
)
_FORBIDDEN: Final = frozenset(
    (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    )
)
NOT_COORDINATED: Final = frozenset(
    (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
)
_NEW_CLUSTER: Final = (
    ". On a new cluster look at transaction.state.log.replication.factor, which must not be more than there are brokers"
)
_ON_THE_CLUSTER: Final = " on the cluster"
_FENCING: Final = frozenset((ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED))


def check_partition(where: TopicPartition, code: int, message: str | None = None, *, operation: str) -> None:
    """Raise the error that a code about a partition means, if it is one. `operation` is Kafka's name for the right that
    the request needs.
    """
    if code == ErrorCode.NONE:
        return
    if code in MOVED:
        raise Moved(f"partition {where} is not served by its leader now ({name_of(code)})")
    if code in UNKNOWN:
        raise UnknownTopic(f"there is no partition {where.partition} of topic {where.topic!r}")
    raise refusal(f"partition {where}", code, message, right=f"{operation} on topic {where.topic!r}")


def check_coordinator(what: str, code: int, message: str | None = None, *, right: str) -> None:
    """Raise the error that a code means which comes from a coordinator, or from a broker that was asked for one."""
    if code == ErrorCode.NONE:
        return
    if code == ErrorCode.CONCURRENT_TRANSACTIONS:
        raise Concluding(f"{what}: the transaction before is still being ended")
    if code in NOT_COORDINATED or code in MOVED:
        look = _NEW_CLUSTER if code == ErrorCode.COORDINATOR_NOT_AVAILABLE else ""
        raise Moved(f"{what} is not served by its coordinator now ({name_of(code)}){look}")
    raise refusal(what, code, message, right=right)


def refusal(what: str, code: int, message: str | None = None, *, right: str) -> LogError:
    """The error for a code that no retry will mend. `right` is the right that the request needs, in Kafka's words."""
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED and not right.endswith(_ON_THE_CLUSTER):
        # A batch with a producer id is refused so.
        right = f"IdempotentWrite{_ON_THE_CLUSTER}"
    if code in _FENCING:
        return Fenced(f"{what}: another producer has claimed our transactional id ({name_of(code)})")
    if code in _FORBIDDEN:
        return AuthenticationFailed(f"{what}: this user may not use it, and needs the right {right} ({name_of(code)})")
    if code == ErrorCode.MESSAGE_TOO_LARGE:
        message = f"{message or 'the batch'}; set kafka.batch.size to less, or the topic's max.message.bytes to more"
    reason = (message or "the broker refuses").rstrip(".")
    # Some brokers name the subject in their message, and some do not.
    return RefusedByBroker(f"{reason if what in reason else f'{what}: {reason}'} ({name_of(code)})", code)


def name_of(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else f"error {code}"
