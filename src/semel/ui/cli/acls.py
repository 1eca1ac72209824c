"""`semel acls`: the access rules of a cluster, semel's or Apache Kafka's, and which of them decides about a request."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterable
from typing import Any, Final

from semel.client import codes
from semel.client.cluster import Cluster
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
    checked,
)
from semel.ui.cli.cluster import add_bootstrap, cluster_at
from semel.ui.cli.display import counted, print_table, printable
from semel.ui.cli.errors import Failure
from semel.ui.cli.rights import PIECES, rights_of
from semel.ui.cli.subcommands import add_subcommand
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused

EXAMPLE: Final = """  semel acls add User:app read describe topic:orders
  semel acls add User:app read group:app- --prefixed
  semel acls add "User:*" write topic:orders --deny
  semel acls explain User:app write topic:orders
  semel acls for outbox User:relay --name shop --topic orders
  semel acls remove User:app read topic:orders"""

_CLUSTER: Final = "cluster"
_RESOURCES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "delegation-token": ResourceType.DELEGATION_TOKEN,
    "user": ResourceType.USER,
}
_OPERATIONS: Final = {
    operation.name.lower().replace("_", "-"): operation
    for operation in Operation
    if operation not in (Operation.UNKNOWN, Operation.ANY)
}


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, purpose: str) -> argparse.ArgumentParser:
        own = add_subcommand(actions, name, purpose)
        add_bootstrap(own)
        return own

    def rule(name: str, purpose: str) -> argparse.ArgumentParser:
        own = action(name, purpose)
        _add_principal(own)
        own.add_argument("operations", nargs="+", metavar="OPERATION", help=f"among {', '.join(_OPERATIONS)}")
        _add_resource(own)
        own.add_argument("--prefixed", action="store_true", help="all resources whose names begin with NAME")
        own.add_argument("--deny", action="store_true", help="deny it, even if other rules allow it")
        own.add_argument("--host", default=EVERYTHING, metavar="ADDRESS", help="only from this address (*, any)")
        return own

    rule("add", "add a rule for each of these operations")
    rule("remove", "remove the rules that the same words would add")
    listing = action("list", "show every rule, or those about a principal or a resource")
    listing.add_argument("--principal", metavar="TYPE:NAME", help="only rules that name this principal")
    listing.add_argument("--resource", metavar="TYPE:NAME", help="only rules that decide about this resource")
    explain = action("explain", "show whether a principal may do something, and which rule decides")
    _add_principal(explain)
    explain.add_argument("operation", metavar="OPERATION", help="the operation to check")
    _add_resource(explain)
    explain.add_argument("--host", default="", metavar="ADDRESS", help="the address that the client connects from")
    pieces = action("for", "show the rules that a piece of semel needs, as commands, or add them")
    pieces.add_argument("piece", choices=PIECES, metavar="PIECE", help=f"among {', '.join(PIECES)}")
    _add_principal(pieces)
    pieces.add_argument("--topic", action="append", default=[], help="a topic of its records; give it for each one")
    named = "; ".join(f"of {word}: {piece.name}" for word, piece in PIECES.items() if piece.name)
    pieces.add_argument("--name", help=named)
    pieces.add_argument("--group", help="of inbox: its consumer group; of source: kafka.group.id, if it is set")
    pieces.add_argument("--add", action="store_true", help="add the rules to the cluster")


def _add_principal(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("principal", metavar="TYPE:NAME", help="a principal, as User:app; User:* is everybody")


def _add_resource(parser: argparse.ArgumentParser) -> None:
    kinds = ", ".join(f"{kind}:NAME" for kind in _RESOURCES)
    parser.add_argument("resource", metavar="RESOURCE", help=f"{_CLUSTER}, or {kinds}; the name * is every one")


def run(options: argparse.Namespace) -> int:
    act: dict[str, Callable[[Cluster, argparse.Namespace], None]]
    act = {"add": _add, "remove": _remove, "list": _list, "explain": _explain, "for": _add_for}
    if options.action == "for" and not options.add:
        _show_for(options)
        return 0
    with cluster_at(options) as cluster:
        act[options.action](cluster, options)
    return 0


def _add(cluster: Cluster, options: argparse.Namespace) -> None:
    _add_rules(cluster, _rules_of(options))


def _add_for(cluster: Cluster, options: argparse.Namespace) -> None:
    _add_rules(cluster, [rule for each in _commands_for(options) for rule in _rules_of(each)])


def _show_for(options: argparse.Namespace) -> None:
    for each in _commands_for(options):
        _rules_of(each)
        words = [each.principal, *each.operations, each.resource, *(["--prefixed"] if each.prefixed else [])]
        print(f"semel acls add {shlex.join(words)}")


def _commands_for(options: argparse.Namespace) -> list[argparse.Namespace]:
    """What `semel acls add` would be told, in this order."""
    names = {key: value for key, value in (("name", options.name), ("group", options.group)) if value}
    try:
        rights = list(rights_of(PIECES[options.piece], options.topic, names))
    except KeyError as missing:
        raise Failure(f"the rules for {options.piece} need --{missing.args[0]}") from None
    shared = {"principal": options.principal, "host": EVERYTHING, "deny": False}
    return [
        argparse.Namespace(operations=right.operations, resource=right.resource, prefixed=right.is_prefixed, **shared)
        for right in rights
    ]


def _add_rules(cluster: Cluster, rules: list[AccessRule]) -> None:
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
        print(f"added: {_sentence(rule)}")


def _remove(cluster: Cluster, options: argparse.Namespace) -> None:
    rules = _rules_of(options)
    filters = [kafka.delete_acls.DeleteAclsFilter(**_as_filter(rule)) for rule in rules]
    answer = cluster.ask_controller(kafka.delete_acls.DeleteAclsRequest(filters=filters))
    missing = []
    for rule, result in zip(rules, answer.filter_results, strict=True):
        _check(result.error_code, result.error_message, "Alter")
        for removed in result.matching_acls:
            _check(removed.error_code, removed.error_message, "Alter")
        if result.matching_acls:
            print(f"removed: {_sentence(rule)}")
        else:
            missing.append(rule)
    if missing:
        raise Failure(f"there is no rule to remove: {'; '.join(map(_sentence, missing))}")


def _list(cluster: Cluster, options: argparse.Namespace) -> None:
    resource_type, name = _resource(options.resource) if options.resource else (ResourceType.ANY, None)
    pattern = Pattern.MATCH if options.resource else Pattern.ANY
    wanted = RuleFilter(resource_type, name, pattern, options.principal, None, Operation.ANY, Permission.ANY)
    rows = [("PRINCIPAL", "HOST", "PERMISSION", "OPERATION", "RESOURCE")]
    rows += [
        (rule.principal, rule.host, _word(Permission(rule.permission)), _word(Operation(rule.operation)), _shown(rule))
        for rule in sorted(_rules_meant(cluster, wanted))
    ]
    print_table(rows)


def _explain(cluster: Cluster, options: argparse.Namespace) -> None:
    """Find the verdict on the cluster's rules with semel's own code, which agrees with Apache Kafka."""
    operation, (resource_type, name) = _operation(options.operation), _resource(options.resource)
    anything = (None, None, Operation.ANY, Permission.ANY)
    rules = _rules_meant(cluster, RuleFilter(resource_type, name, Pattern.MATCH, *anything))
    access = AccessRules(len(rules))
    access.apply(AccessRulesAdded(tuple(rules)))
    asker = Asker(options.principal, options.host)
    verdict = access.verdict(asker, operation, resource_type, name)
    wish = f"{options.principal} {_word(operation)} {options.resource}"
    decided = f"no rule of {counted(len(rules), 'rule')} about {options.resource} allows it"
    if verdict.rule is not None:
        decided = f"by the rule: {_sentence(verdict.rule)}"
    print(printable(f"{'allowed' if verdict.is_allowed else 'denied'}: {wish}: {decided}"))
    if not options.host and any(rule.host != EVERYTHING for rule in rules):
        print("rules for single addresses were left out; give the client's address with --host")
    if not verdict.is_allowed:
        print("a super user of the broker may do it anyway")


def _rules_meant(cluster: Cluster, wanted: RuleFilter) -> list[AccessRule]:
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
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise Failure(f"this user may not do this, and needs the right {operation} on the cluster")
    if code:
        raise Failure(f"{message or 'the broker refuses'} ({codes.name_of(code)})")


def _rules_of(options: argparse.Namespace) -> list[AccessRule]:
    """The rules that the arguments describe, one for each operation."""
    resource_type, name = _resource(options.resource)
    pattern = Pattern.PREFIXED if options.prefixed else Pattern.LITERAL
    permission = Permission.DENY if options.deny else Permission.ALLOW
    return [
        _right(AccessRule(resource_type, name, pattern, options.principal, options.host, operation, permission))
        for operation in dict.fromkeys(map(_operation, options.operations))
    ]


def _right(rule: AccessRule) -> AccessRule:
    try:
        return checked(rule)
    except Refused as refused:
        raise Failure(refused.message) from None


def _resource(text: str) -> tuple[ResourceType, str]:
    if text == _CLUSTER:
        return ResourceType.CLUSTER, CLUSTER_NAME
    kind, colon, name = text.partition(":")
    if not colon or not name or kind not in _RESOURCES:
        kinds = _one_of(f"{known}:NAME" for known in _RESOURCES)
        raise Failure(f"{text!r} is not a resource: write {_CLUSTER}, {kinds}")
    return _RESOURCES[kind], name


def _operation(text: str) -> Operation:
    """The operation with this name, in any of the spellings of Kafka's tools: describe-configs, DescribeConfigs,
    DESCRIBE_CONFIGS.
    """
    plain = {name.replace("-", ""): operation for name, operation in _OPERATIONS.items()}
    operation = plain.get(text.lower().replace("-", "").replace("_", ""))
    if operation is None and (text == _CLUSTER or text.partition(":")[0] in _RESOURCES):
        raise Failure(
            f"{text!r} is a resource, and a command names one, at its end: give one command for each resource"
        )
    if operation is None:
        raise Failure(f"{text!r} is not an operation: choose {_one_of(_OPERATIONS)}")
    return operation


def _one_of(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}"


def _word(number: Operation | Permission) -> str:
    return number.name.lower().replace("_", "-")


def _shown(rule: AccessRule) -> str:
    """The resources of a rule: `topic:orders`, or `topic:ord...` for all whose names begin so."""
    if rule.resource_type == ResourceType.CLUSTER:
        return _CLUSTER
    kind = {resource_type: kind for kind, resource_type in _RESOURCES.items()}[ResourceType(rule.resource_type)]
    return f"{kind}:{rule.name}" + ("..." if rule.pattern == Pattern.PREFIXED else "")


def _sentence(rule: AccessRule) -> str:
    host = "any host" if rule.host == EVERYTHING else rule.host
    words = (_word(Permission(rule.permission)), rule.principal, _word(Operation(rule.operation)), _shown(rule))
    return printable(f"{' '.join(words)} from {host}")
