"""`semel acls`: the access rules of a cluster, semel's or Apache Kafka's, and which of them decides about a request."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from typing import Final

from semel.client.cluster import Cluster
from semel.client.errors import SettingsRefused
from semel.log.rules import EVERYTHING, AccessRule, Asker, Operation, Pattern, Permission
from semel.ui.access_rules import (
    EVERY_RULE,
    OPERATIONS,
    RESOURCES,
    WHOLE_CLUSTER,
    add_rules,
    operation_in,
    remove_rules,
    resource_in,
    resources_of,
    rules_about,
    rules_in,
    rules_meant,
    sentence,
    verdict,
    word,
)
from semel.ui.cli.cluster import add_bootstrap, cluster_at
from semel.ui.cli.display import counted, print_table, printable
from semel.ui.cli.errors import Failure
from semel.ui.cli.rights import PIECES, rights_of
from semel.ui.cli.subcommands import add_subcommand

EXAMPLE: Final = """  semel acls add User:app read describe topic:orders
  semel acls add User:app read group:app- --prefixed
  semel acls add "User:*" write topic:orders --deny
  semel acls explain User:app write topic:orders
  semel acls for outbox User:relay --name shop --topic orders
  semel acls remove User:app read topic:orders"""


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, purpose: str) -> argparse.ArgumentParser:
        own = add_subcommand(actions, name, purpose)
        add_bootstrap(own)
        return own

    def rule(name: str, purpose: str) -> argparse.ArgumentParser:
        own = action(name, purpose)
        _add_principal(own)
        own.add_argument("operations", nargs="+", metavar="OPERATION", help=f"among {', '.join(OPERATIONS)}")
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
    kinds = ", ".join(f"{kind}:NAME" for kind in RESOURCES)
    parser.add_argument("resource", metavar="RESOURCE", help=f"{WHOLE_CLUSTER}, or {kinds}; the name * is every one")


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
    for rule in add_rules(cluster, rules):
        print(f"added: {printable(sentence(rule))}")


def _remove(cluster: Cluster, options: argparse.Namespace) -> None:
    rules = _rules_of(options)
    missing = dict.fromkeys(rules)
    for rule in remove_rules(cluster, rules):
        print(f"removed: {printable(sentence(rule))}")
        del missing[rule]
    if missing:
        raise Failure(f"there is no rule to remove: {printable('; '.join(map(sentence, missing)))}")


def _list(cluster: Cluster, options: argparse.Namespace) -> None:
    wanted = EVERY_RULE._replace(principal=options.principal)
    if options.resource:
        resource_type, name = resource_in(options.resource)
        wanted = wanted._replace(resource_type=resource_type, name=name, pattern=Pattern.MATCH)
    rows = [("PRINCIPAL", "HOST", "PERMISSION", "OPERATION", "RESOURCE")]
    rows += [
        (
            rule.principal,
            rule.host,
            word(Permission(rule.permission)),
            word(Operation(rule.operation)),
            resources_of(rule),
        )
        for rule in sorted(rules_meant(cluster, wanted))
    ]
    print_table(rows)


def _explain(cluster: Cluster, options: argparse.Namespace) -> None:
    """Find the verdict on the cluster's rules with semel's own code, which agrees with Apache Kafka."""
    operation, resource = operation_in(options.operation), resource_in(options.resource)
    rules = rules_about(cluster, *resource)
    found = verdict(rules, Asker(options.principal, options.host), operation, resource)
    wish = f"{options.principal} {word(operation)} {options.resource}"
    decided = f"no rule of {counted(len(rules), 'rule')} about {options.resource} allows it"
    if found.rule is not None:
        decided = f"by the rule: {sentence(found.rule)}"
    print(printable(f"{'allowed' if found.is_allowed else 'denied'}: {wish}: {decided}"))
    if not options.host and any(rule.host != EVERYTHING for rule in rules):
        print("rules for single addresses were left out; give the client's address with --host")
    if not found.is_allowed:
        print("a super user of the broker may do it anyway")


def _rules_of(options: argparse.Namespace) -> list[AccessRule]:
    """The rules that the arguments describe, one for each operation."""
    try:
        return rules_in(
            *(options.principal, options.operations, options.resource, options.host),
            is_prefixed=options.prefixed,
            is_denied=options.deny,
        )
    except SettingsRefused as refused:
        raise Failure(str(refused)) from None
