"""Access rules in words, and the requests for them: what the commands and the console share.

A rule is written as a person says it: a principal, an operation, and a resource such as `topic:orders`. This file must
never print.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from semel.client import codes
from semel.client.cluster import Cluster
from semel.client.errors import SettingsRefused
from semel.log.rules import (
    CLUSTER_NAME,
    EVERYTHING,
    AccessRule,
    AccessRules,
    AccessRulesAdded,
    Asker,
    Operation,
    Pattern,
    Permission,
    ResourceType,
    RuleFilter,
    Verdict,
    checked,
)
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused

WHOLE_CLUSTER: Final = "cluster"
RESOURCES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "delegation-token": ResourceType.DELEGATION_TOKEN,
    "user": ResourceType.USER,
}
OPERATIONS: Final = {
    operation.name.lower().replace("_", "-"): operation
    for operation in Operation
    if operation not in (Operation.UNKNOWN, Operation.ANY)
}
EVERY_RULE: Final = RuleFilter(ResourceType.ANY, None, Pattern.ANY, None, None, Operation.ANY, Permission.ANY)


# -- requests ----------------------------------------------------------------------------------------------------------


def rules_meant(cluster: Cluster, wanted: RuleFilter) -> list[AccessRule]:
    """The rules of the cluster that a filter matches."""
    answer = cluster.ask_controller(kafka.describe_acls.DescribeAclsRequest(**_as_filter(wanted)))
    _check(answer.error_code, answer.error_message, "Describe")
    return [
        AccessRule(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            rule.principal,
            rule.host,
            rule.operation,
            rule.permission_type,
        )
        for resource in answer.resources
        for rule in resource.acls
    ]


def rules_about(cluster: Cluster, resource_type: ResourceType, name: str) -> list[AccessRule]:
    """The rules that decide about a resource, whatever principal they name."""
    return rules_meant(cluster, EVERY_RULE._replace(resource_type=resource_type, name=name, pattern=Pattern.MATCH))


def add_rules(cluster: Cluster, rules: Sequence[AccessRule]) -> Iterator[AccessRule]:
    """Add these rules; each is returned that was added, also if a later one is refused."""
    creations = [
        kafka.create_acls.AclCreation(
            resource_type=rule.resource_type,
            resource_name=rule.name,
            resource_pattern_type=rule.pattern,
            principal=rule.principal,
            host=rule.host,
            operation=rule.operation,
            permission_type=rule.permission,
        )
        for rule in rules
    ]
    answer = cluster.ask_controller(kafka.create_acls.CreateAclsRequest(creations=creations))
    for rule, result in zip(rules, answer.results, strict=True):
        _check(result.error_code, result.error_message, "Alter")
        yield rule


def remove_rules(cluster: Cluster, rules: Sequence[AccessRule]) -> Iterator[AccessRule]:
    """Remove these rules; each is returned that was there."""
    filters = [kafka.delete_acls.DeleteAclsFilter(**_as_filter(rule)) for rule in rules]
    answer = cluster.ask_controller(kafka.delete_acls.DeleteAclsRequest(filters=filters))
    for rule, result in zip(rules, answer.filter_results, strict=True):
        _check(result.error_code, result.error_message, "Alter")
        for one in result.matching_acls:
            _check(one.error_code, one.error_message, "Alter")
        if result.matching_acls:
            yield rule


def _as_filter(wanted: AccessRule | RuleFilter) -> dict[str, Any]:
    """The fields of a filter of the protocol; a rule is the filter that only it matches."""
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _check(code: int, message: str | None, operation: str) -> None:
    if code != ErrorCode.NONE:
        raise codes.refusal("the access rules", code, message, right=f"{operation} on the cluster")


# -- verdicts ----------------------------------------------------------------------------------------------------------


def verdict(
    rules: Sequence[AccessRule], asker: Asker, operation: Operation, resource: tuple[ResourceType, str]
) -> Verdict:
    """What these rules say, by semel's own code, which agrees with Apache Kafka."""
    access = AccessRules(len(rules))
    access.apply(AccessRulesAdded(tuple(rules)))
    return access.verdict(asker, operation, *resource)


# -- words -------------------------------------------------------------------------------------------------------------


def rules_in(
    principal: str, operations: Iterable[str], resource: str, host: str, *, is_prefixed: bool, is_denied: bool
) -> list[AccessRule]:
    """The rules that these words describe, one for each operation. Raises SettingsRefused."""
    resource_type, name = resource_in(resource)
    pattern = Pattern.PREFIXED if is_prefixed else Pattern.LITERAL
    permission = Permission.DENY if is_denied else Permission.ALLOW
    try:
        return [
            checked(AccessRule(resource_type, name, pattern, principal, host, operation, permission))
            for operation in dict.fromkeys(map(operation_in, operations))
        ]
    except Refused as refused:
        raise SettingsRefused(refused.message) from None


def resource_in(text: str) -> tuple[ResourceType, str]:
    if text == WHOLE_CLUSTER:
        return ResourceType.CLUSTER, CLUSTER_NAME
    kind, colon, name = text.partition(":")
    if not colon or not name or kind not in RESOURCES:
        kinds = _one_of(f"{known}:NAME" for known in RESOURCES)
        raise SettingsRefused(f"{text!r} is not a resource: write {WHOLE_CLUSTER}, {kinds}")
    return RESOURCES[kind], name


def operation_in(text: str) -> Operation:
    """The operation with this name, in any of the spellings of Kafka's tools: describe-configs, DescribeConfigs,
    DESCRIBE_CONFIGS.
    """
    plain = {name.replace("-", ""): operation for name, operation in OPERATIONS.items()}
    operation = plain.get(text.lower().replace("-", "").replace("_", ""))
    if operation is None and (text == WHOLE_CLUSTER or text.partition(":")[0] in RESOURCES):
        raise SettingsRefused(
            f"{text!r} is a resource, and a command names one, at its end: give one command for each resource"
        )
    if operation is None:
        raise SettingsRefused(f"{text!r} is not an operation: choose {_one_of(OPERATIONS)}")
    return operation


def _one_of(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}"


def word(number: Operation | Permission) -> str:
    return number.name.lower().replace("_", "-")


def resource_of(rule: AccessRule) -> str:
    """The resource of a rule, as a person writes it."""
    if rule.resource_type == ResourceType.CLUSTER:
        return WHOLE_CLUSTER
    kind = {resource_type: kind for kind, resource_type in RESOURCES.items()}[ResourceType(rule.resource_type)]
    return f"{kind}:{rule.name}"


def resources_of(rule: AccessRule) -> str:
    """The resources of a rule: `topic:orders`, or `topic:ord...` for all whose names begin so."""
    return resource_of(rule) + ("..." if rule.pattern == Pattern.PREFIXED else "")


def sentence(rule: AccessRule) -> str:
    host = "any host" if rule.host == EVERYTHING else rule.host
    words = (word(Permission(rule.permission)), rule.principal, word(Operation(rule.operation)), resources_of(rule))
    return f"{' '.join(words)} from {host}"
