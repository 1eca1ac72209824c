"""Authorization: the guard decides whether a client has the rights that an API needs.

The declaration of an API names them, and its handler asks the guard for each, with the name of the topic, the group or
the transactional id. The guard decides by the access rules of the log (`semel.log.core.access`). They are in
force if the broker asks its clients to log in, or was told to enforce them; otherwise every client has every right, as
in Apache Kafka without an authorizer. Super users have every right, whatever the rules say.

A handler asks again after every step, because a rule may have changed meanwhile. Nothing here may know an API.
"""

import logging
from collections.abc import Collection
from typing import Any, Final

from semel.log.broker.events import Events
from semel.log.broker.exchange import Exchange
from semel.log.broker.metrics import Metrics
from semel.log.broker.rights import DESCRIBE_CLUSTER, DESCRIBE_TOPIC, Right
from semel.log.core.access import (
    CLUSTER_NAME,
    AccessRules,
    Asker,
    Operation,
    Pattern,
    Permission,
    Principal,
    ResourceType,
)
from semel.log.core.entries import (
    AccessChange,
    AccessRule,
    AccessRulesAdded,
    AccessRulesRemoved,
    QuotasChanged,
    UserCredentialRemoved,
    UserCredentialSet,
)
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused
from semel.wire.scram import Mechanism

# The number of cached answers, for ten thousand clients. Without the cache asking would take a tenth of the time of a
# small batch. A longer name is not cached, because a client could fill the memory with such names.
ANSWERS_MAX: Final = 10_000
NAME_CHARACTERS_MAX: Final = 1_024
# The error code for a client that lacks a right.
# One entry may remove five hundred rules, and a call of an enumeration takes ten times as long.
_NAMES: Final = {kind: {one.value: one.name for one in kind} for kind in (Permission, Operation, ResourceType, Pattern)}
_ERRORS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
# The operations in the answer to a client that asks what it may do.
_SHOWN_OPERATIONS: Final = {
    ResourceType.TOPIC: (
        *(Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE),
        *(Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
    ),
    ResourceType.GROUP: (
        *(Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
    ),
    ResourceType.CLUSTER: (
        *(Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION),
        *(Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE),
    ),
}
# In the answer to a client that did not ask what it may do.
NOT_ASKED: Final = -(2**31)


class Guard:
    """Answers whether the client of a request has a right."""

    def __init__(
        self,
        access: AccessRules,
        *,
        in_force: bool,
        super_users: Collection[str],
        metrics: Metrics,
        events: Events,
    ) -> None:
        self.in_force = in_force
        self._access = access
        self._super_users = frozenset(super_users)
        self._metrics = metrics
        self._events = events
        # The cached answers, and the state of the rules (`AccessRules.changes`) for which they are right.
        self._answers: dict[tuple[Principal, str, Right, str | None], bool] = {}
        self._as_of = -1

    def allows(self, exchange: Exchange, right: Right, name: str = CLUSTER_NAME) -> bool:
        """Whether the client has this right. If not, that is counted and logged, because the client gets an error."""
        if self.sees(exchange, right, name):
            return True
        self._note(exchange, right, name)
        return False

    def check(self, exchange: Exchange, right: Right, name: str = CLUSTER_NAME) -> None:
        """Refused, with the error for this type of resource, unless the client has the right. The message does not name
        the resource: the request may have named another one, or an id.
        """
        if not self.allows(exchange, right, name):
            operation, resource = right.operation.name, right.resource_type.name
            message = f"{exchange.principal} from {exchange.client_host} lacks {operation} on a {resource}"
            raise Refused(_ERRORS[right.resource_type], message)

    def error(self, exchange: Exchange, right: Right, name: str = CLUSTER_NAME) -> int:
        """The same as an error code, which is 0 if the client has the right."""
        return ErrorCode.NONE if self.allows(exchange, right, name) else _ERRORS[right.resource_type]

    def sees(self, exchange: Exchange, right: Right, name: str = CLUSTER_NAME) -> bool:
        """The same if a client without the right gets no error, only a shorter answer."""
        if not self.in_force:
            return True
        return self._answer(exchange, right, name)

    @property
    def changes(self) -> int:
        """Rises when an access rule is added or removed."""
        return self._access.changes

    def viewer(self, principal: str, host: str) -> Asker | None:
        """The same for all clients for whom the same rules about topics hold; None for one that sees every topic."""
        if not self.in_force or principal in self._super_users:
            return None
        return self._access.alike(Asker(principal, host), ResourceType.TOPIC)

    def shows(self, viewer: Asker, topic_name: str) -> bool:
        """Whether the viewer may describe the topic of this name."""
        return self._access.allows(viewer, *DESCRIBE_TOPIC, topic_name)

    def owner_of_ids(self, exchange: Exchange) -> str | None:
        """The name to which the producer ids belong that this client asks for; None if no rules are in force, because
        then every client may write with every id.
        """
        return str(exchange.principal) if self.in_force else None

    def note_foreign_id(self, exchange: Exchange, producer_id: int) -> None:
        """The client has sent a batch with a producer id that belongs to somebody else."""
        if self.in_force:
            self._metrics.access_denied += 1
            fields = {"operation": "WRITE", "resource": "PRODUCER_ID", "name": producer_id}
            self._tell(exchange, "access_denied", fields)

    def check_some(self, exchange: Exchange, right: Right) -> None:
        """Refused with the cluster's error unless the client has the right for at least one resource."""
        if self.in_force and not self._answer(exchange, right, None):
            self._note(exchange, right, "*")
            message = f"{exchange.principal} from {exchange.client_host} lacks {right.operation.name} on any"
            raise Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{message} {right.resource_type.name}")

    def operations(self, exchange: Exchange, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """What the client may do with a resource, as the bits of Kafka's authorized operations."""
        operations = _SHOWN_OPERATIONS[resource_type]
        return sum(1 << one for one in operations if self.sees(exchange, Right(one, resource_type), name))

    def cluster_operations(self, exchange: Exchange) -> int:
        """The same for the cluster; none for a client that may not describe it."""
        return self.operations(exchange, ResourceType.CLUSTER) if self.sees(exchange, DESCRIBE_CLUSTER) else 0

    def _answer(self, exchange: Exchange, right: Right, name: str | None) -> bool:
        """Whether the client has the right for the resource of this name, or for any; from the cache until a rule
        changes.
        """
        if self._as_of != self._access.changes:
            self._answers.clear()
            self._as_of = self._access.changes
        question = exchange.principal, exchange.client_host, right, name
        answer = self._answers.get(question)
        if answer is None:
            answer = self._decide(exchange, right, name)
            if name is None or len(name) <= NAME_CHARACTERS_MAX:
                if len(self._answers) >= ANSWERS_MAX:
                    self._answers.clear()
                self._answers[question] = answer
        return answer

    def _decide(self, exchange: Exchange, right: Right, name: str | None) -> bool:
        asker = Asker(str(exchange.principal), exchange.client_host)
        if asker.principal in self._super_users:
            return True
        if name is None:
            return self._access.allows_some(asker, *right)
        return self._access.allows(asker, *right, name)

    def _note(self, exchange: Exchange, right: Right, name: str) -> None:
        self._metrics.access_denied += 1
        operation, resource = right.operation.name, right.resource_type.name
        self._tell(exchange, "access_denied", {"operation": operation, "resource": resource, "name": name})

    def note_change(self, exchange: Exchange, entry: AccessChange) -> None:
        """The client has changed a rule, a user, or a quota. The event has no secret of the entry."""
        match entry:
            case AccessRulesAdded() | AccessRulesRemoved():
                event = "access_rules_added" if isinstance(entry, AccessRulesAdded) else "access_rules_removed"
                self._tell(exchange, event, {"rules": tuple(map(_in_words, entry.rules))})
            case UserCredentialSet() | UserCredentialRemoved():
                change = "set" if isinstance(entry, UserCredentialSet) else "removed"
                fields = {"user": entry.user, "mechanism": Mechanism(entry.mechanism).sasl_name, "password": change}
                self._tell(exchange, "users_changed", fields)
            case QuotasChanged():
                names = {kind: "<default>" if name is None else name for kind, name in entry.entity}
                self._tell(exchange, "quotas_changed", {"entity": names, "quotas": entry.quotas})

    def note_administration(self, exchange: Exchange, change: str, name: str, **fields: object) -> None:
        """The client has changed a topic or a group, which is nothing to warn of."""
        self._tell(exchange, "administration", {"change": change, "name": name, **fields}, logging.INFO)

    def _tell(self, exchange: Exchange, event: str, fields: dict[str, Any], level: int = logging.WARNING) -> None:
        request: dict[str, Any] = {"client": exchange.client_id, "api": exchange.api_key}
        who: dict[str, Any] = {"peer": exchange.peer, "principal": str(exchange.principal)}
        self._events.tell(level, event, **who, **request, **fields)


def _in_words(rule: AccessRule) -> dict[str, str]:
    """A rule by the names of its numbers, as a request that is denied is told."""
    return {
        "permission": _NAMES[Permission][rule.permission],
        "principal": rule.principal,
        "operation": _NAMES[Operation][rule.operation],
        "resource": _NAMES[ResourceType][rule.resource_type],
        "name": rule.name,
        "pattern": _NAMES[Pattern][rule.pattern],
        "host": rule.host,
    }
