"""What CreateAcls, DescribeAcls and DeleteAcls share: when they are served, and how rules and filters look in them.

As in Apache Kafka without an authorizer, these requests are refused if the rules are not in force: otherwise an
administrator would believe that a stored rule protects something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from semel.log.broker.apis.answers import attempted
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import Right
from semel.log.broker.serving import Serving
from semel.log.core.access import Operation, Pattern, Permission, ResourceType, RuleFilter, canonical_host
from semel.log.core.entries import AccessRule, AccessRulesAdded, AccessRulesRemoved
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused
from semel.wire.steps import APPEND_PIECES, Steps

# A few milliseconds for one entry.
RULES_PER_ENTRY_MAX: Final = 500

T = TypeVar("T")


def refusal(broker: Serving, exchange: Exchange, right: Right) -> Refused | None:
    """Why a request is not served; None if it is served."""
    return attempted(_check, broker, exchange, right)


def _check(broker: Serving, exchange: Exchange, right: Right) -> None:
    broker.guard.check(exchange, right)
    if not broker.guard.in_force:
        message = "this broker enforces no access rules: give a listener a login, or start it with --access-rules"
        raise Refused(ErrorCode.SECURITY_DISABLED, message)


def changed(
    broker: Serving,
    exchange: Exchange,
    rules: Iterable[AccessRule],
    decide: Callable[[Iterable[AccessRule]], AccessRulesAdded | AccessRulesRemoved | None],
) -> Steps[dict[AccessRule, Refused | None]]:
    """Commit what `decide` makes of these rules, some in each entry, and return the refusal of each rule."""

    def commit(some: Sequence[AccessRule]) -> None:
        entry = decide(some)
        if entry is not None:
            broker.runtime.commit(entry)
            broker.guard.note_change(exchange, entry)

    outcomes: dict[AccessRule, Refused | None] = {}
    for some in _parted(list(rules), RULES_PER_ENTRY_MAX):
        outcome = attempted(commit, some)
        outcomes |= dict.fromkeys(some, outcome)
        yield APPEND_PIECES + len(some)
    return outcomes


def _parted(items: list[T], at_once: int) -> Iterator[list[T]]:
    for first in range(0, len(items), at_once):
        yield items[first : first + at_once]


def filter_of(item: kafka.describe_acls.DescribeAclsRequest | kafka.delete_acls.DeleteAclsFilter) -> RuleFilter:
    """The filter that a request names; refused if it has a number that does not exist."""
    rule_filter = RuleFilter(
        item.resource_type_filter,
        item.resource_name_filter,
        item.pattern_type_filter,
        item.principal_filter,
        None if item.host_filter is None else canonical_host(item.host_filter),
        item.operation,
        item.permission_type,
    )
    is_valid = (
        rule_filter.resource_type in _RESOURCE_TYPES
        and rule_filter.pattern in _PATTERNS
        and rule_filter.operation in _OPERATIONS
        and rule_filter.permission in _PERMISSIONS
    )
    if not is_valid:
        raise Refused(ErrorCode.INVALID_REQUEST, "the filter has a type, an operation or a permission that is unknown")
    return rule_filter


_RESOURCE_TYPES: Final = frozenset(ResourceType) - {ResourceType.UNKNOWN}
_PATTERNS: Final = frozenset(Pattern) - {Pattern.UNKNOWN}
_OPERATIONS: Final = frozenset(Operation) - {Operation.UNKNOWN}
_PERMISSIONS: Final = frozenset(Permission) - {Permission.UNKNOWN}
