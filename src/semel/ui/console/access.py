"""Access: the users that can log in to the cluster, its access rules, and the plans of their changes.

What the console's login may not see is a line in its place, and hides nothing else. No answer and no plan may ever
contain a password.
"""

from collections.abc import Callable
from typing import Any, Final

from semel.client import users
from semel.client.cluster import Cluster
from semel.client.errors import AuthenticationFailed, RefusedByBroker
from semel.log.rules import EVERYTHING, AccessRule, Asker, Operation, Pattern, Permission, ResourceType
from semel.ui.access_rules import (
    EVERY_RULE,
    add_rules,
    remove_rules,
    resource_of,
    rules_about,
    rules_in,
    rules_meant,
    sentence,
    verdict,
    word,
)
from semel.ui.cli.display import counted
from semel.ui.console.commands import command
from semel.ui.console.http import PageRefused
from semel.ui.console.plans import PASSWORD, Plan
from semel.ui.console.query import Query
from semel.wire.scram import Mechanism

ROWS_MAX: Final = 100

Answer = dict[str, Any]


def everybody(cluster: Cluster, query: Query) -> Answer:
    """The users and the access rules that have a text in them."""
    wanted = query.text("find", "").strip().lower()
    return {
        "users": _unless_refused(lambda: _users(cluster, wanted)),
        "rules": _unless_refused(lambda: _rules(cluster, wanted, query)),
    }


def _unless_refused(ask: Callable[[], Answer]) -> Answer:
    try:
        return ask()
    except (AuthenticationFailed, RefusedByBroker) as error:
        return {"error": str(error)}


def _users(cluster: Cluster, wanted: str) -> Answer:
    found = [(user, held) for user, held in sorted(users.users_of(cluster).items()) if wanted in user.lower()]
    return {
        "count": len(found),
        "users": [{"user": user, "mechanisms": [one.sasl_name for one in held]} for user, held in found[:ROWS_MAX]],
    }


def _rules(cluster: Cluster, wanted: str, query: Query) -> Answer:
    found = [rule for rule in sorted(rules_meant(cluster, EVERY_RULE)) if wanted in sentence(rule).lower()]
    shown, about = query.page_of(found, ROWS_MAX)
    return {
        **about,
        "rules": [
            {
                "principal": rule.principal,
                "operations": word(Operation(rule.operation)),
                "resource": resource_of(rule),
                "prefixed": "1" if rule.pattern == Pattern.PREFIXED else "",
                "permission": word(Permission(rule.permission)),
                "host": rule.host,
            }
            for rule in shown
        ],
    }


# -- plans -------------------------------------------------------------------------------------------------------------


def add_rule(cluster: Cluster, query: Query) -> Plan:
    """Add access rules, one for each operation."""
    rules = _rules_asked(query)
    about = _about(cluster, rules)
    if all(rule in about for rule in rules):
        raise PageRefused(400, f"the cluster has this already: {'; '.join(map(sentence, rules))}")

    def do() -> str:
        return f"Added: {'; '.join(map(sentence, add_rules(cluster, rules)))}."

    return _plan(query, "add", rules, about, [*about, *(rule for rule in rules if rule not in about)], do)


def remove_rule(cluster: Cluster, query: Query) -> Plan:
    """Remove access rules."""
    rules = _rules_asked(query)
    about = _about(cluster, rules)
    if not any(rule in about for rule in rules):
        raise PageRefused(400, f"there is no such rule any more: {'; '.join(map(sentence, rules))}")

    def do() -> str:
        return f"Removed: {'; '.join(map(sentence, remove_rules(cluster, rules)))}."

    return _plan(query, "remove", rules, about, [rule for rule in about if rule not in rules], do)


def _rules_asked(query: Query) -> list[AccessRule]:
    operations = query.text("operations").replace(",", " ").split()
    if not operations:
        raise PageRefused(400, "operations are missing")
    return rules_in(
        *(query.text("principal").strip(), operations, query.text("resource").strip()),
        query.text("host", "").strip() or EVERYTHING,
        is_prefixed=query.has("prefixed"),
        is_denied=query.text("permission", "allow") == "deny",
    )


def _about(cluster: Cluster, rules: list[AccessRule]) -> list[AccessRule]:
    return sorted(rules_about(cluster, ResourceType(rules[0].resource_type), rules[0].name))


def _plan(
    query: Query,
    verb: str,
    rules: list[AccessRule],
    before: list[AccessRule],
    after: list[AccessRule],
    do: Callable[[], str],
) -> Plan:
    def verdict_by(about: list[AccessRule], rule: AccessRule) -> str:
        asker = Asker(rule.principal, "" if rule.host == EVERYTHING else rule.host)
        resource = ResourceType(rule.resource_type), rule.name
        return "allowed" if verdict(about, asker, Operation(rule.operation), resource).is_allowed else "denied"

    first = rules[0]
    flags = [
        *(["--prefixed"] if first.pattern == Pattern.PREFIXED else []),
        *(["--deny"] if first.permission == Permission.DENY else []),
        *([] if first.host == EVERYTHING else [f"--host={first.host}"]),
    ]
    operations = [word(Operation(rule.operation)) for rule in rules]
    return Plan(
        do,
        title=f"{verb.title()} {counted(len(rules), 'access rule')} of {first.principal}?",
        button=f"{verb.title()} it" if len(rules) == 1 else f"{verb.title()} them",
        columns=("Rule", f"{first.principal} now", "Then"),
        rows=[(sentence(rule), verdict_by(before, rule), verdict_by(after, rule)) for rule in rules],
        says=("A super user of the broker may do everything, whatever the rules say.",),
        seen=before,
        command=command("acls", verb, *flags, first.principal, *operations, name=resource_of(first)),
    )


def set_password(cluster: Cluster, query: Query) -> Plan:
    """Add a user, or give one another password."""
    user = query.text("user").strip()
    held = users.users_of(cluster).get(user)

    def do() -> str:
        password = query.text(PASSWORD, "")
        if not password:
            raise PageRefused(400, "nothing was done: the password is empty")
        users.set_password(cluster, user, password, users.ITERATIONS_DEFAULT, *Mechanism)
        return f"User {user} can log in with this password."

    return Plan(
        do,
        title=f"Add user {user}?" if held is None else f"Give user {user} another password?",
        button="Add the user" if held is None else "Change the password",
        columns=("Mechanism", "Iterations now", "Then"),
        rows=[(one.sasl_name, (held or {}).get(one, "none"), users.ITERATIONS_DEFAULT) for one in Mechanism],
        says=() if held is None else ("Connections that were opened with the former password stay open.",),
        asks_password=True,
        command=command("users", "add", name=user),
    )


def remove_user(cluster: Cluster, query: Query) -> Plan:
    """No longer let a user log in."""
    user = query.text("user")
    held = users.users_of(cluster).get(user)
    if held is None:
        raise PageRefused(400, f"there is no user {user!r}")

    def do() -> str:
        users.remove_user(cluster, user, *held)
        return f"User {user} is removed."

    return Plan(
        do,
        title=f"Remove user {user}?",
        button="Remove the user",
        warns=(
            "The user can no longer log in. Connections that are open stay open, and so do the user's access rules.",
        ),
        seen=sorted(held.items()),
        typed=user,
        command=command("users", "remove", name=user),
    )
