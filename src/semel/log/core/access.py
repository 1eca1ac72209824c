"""The access rules (ACLs), and whether they allow what a client wants to do: the same verdict as Apache Kafka's.

A rule allows or denies one operation, by one principal, from one host, on the resources that its name stands for: a
literal name stands for the one resource with that name (`*`: for all), a prefixed name for all resources whose names
begin with it. The verdict is that of StandardAuthorizer in Kafka 4.3:

1. A rule that denies wins over every rule that allows.
2. What no rule allows is denied.
3. ALL stands for every operation. A rule that allows READ, WRITE, DELETE or ALTER also allows DESCRIBE, and one that
allows ALTER_CONFIGS also allows DESCRIBE_CONFIGS. A rule that denies READ does not deny DESCRIBE, and so on.
4. The principal `User:*` stands for everybody, the host `*` for every address.

`allows_some` is what a producer without a transactional id needs: is there any resource of this type for which the
operation is allowed? For that question the implied operations of point 3 do not count.

There may be a hundred thousand rules, and every request is checked. So rules are looked up by principal and host, and
within these by name and by each length that a prefix has. This file must never know which API needs which operation, or
who is a super user.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import IntEnum
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple

from semel.log.core.cached_part import CachedPart
from semel.log.core.entries import AccessRule, AccessRulesAdded, AccessRulesRemoved
from semel.wire.refusals import INVALID_REQUEST, POLICY_VIOLATION, Refused
from semel.wire.steps import Steps

# A rule takes half a kilobyte in memory, so all take 50 MB, and every checkpoint contains all of them.
RULES_MAX: Final = 100_000
# The longest name of a resource, principal or host, in UTF-8. Every other limit on such a name is lower.
TEXT_BYTES_MAX: Final = 1_024
# The name of the one resource of type CLUSTER.
CLUSTER_NAME: Final = "kafka-cluster"
EVERYTHING: Final = "*"
USER: Final = "User"
EVERYBODY: Final = "User:*"


class Principal(NamedTuple):
    """The name that the client of a connection has proved, such as `User:app`. Access rules do not ask how."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


# The principal of a client that has not logged in.
ANONYMOUS: Final = Principal(USER, "ANONYMOUS")


class ResourceType(IntEnum):
    """The kinds of resources that a rule can name."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Pattern(IntEnum):
    """How the name of a rule names resources. ANY and MATCH are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What a client does with a resource."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether a rule allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


# For each operation, the operations whose rules deny it, and those whose rules allow it.
_IMPLIED_BY: Final = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
_DENIED_BY: Final = {operation: (operation, Operation.ALL) for operation in Operation}
_ALLOWED_BY: Final = {operation: (operation, Operation.ALL, *_IMPLIED_BY.get(operation, ())) for operation in Operation}


class Asker(NamedTuple):
    """The principal that sends a request, such as `User:app`, and the address it comes from."""

    principal: str
    host: str


class Verdict(NamedTuple):
    """Whether a request is allowed, and the rule that decides; None if no rule decides."""

    is_allowed: bool
    rule: AccessRule | None


_NO_RULE: Final = Verdict(False, None)


class RuleFilter(NamedTuple):
    """Selects rules by the values of their fields. None and ANY match every value.

    The pattern MATCH selects all rules that apply to the resource called `name`: literal, prefixed, and `*`.
    """

    resource_type: int
    name: str | None
    pattern: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def matches(self, rule: AccessRule) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, rule.resource_type)
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (Operation.ANY, rule.operation)
            and self.permission in (Permission.ANY, rule.permission)
            and self._matches_name(rule)
        )

    def _matches_name(self, rule: AccessRule) -> bool:
        if self.pattern not in (Pattern.ANY, Pattern.MATCH, rule.pattern):
            return False
        if self.name is None or self.name == rule.name:
            return True
        if self.pattern != Pattern.MATCH:
            return False
        if rule.pattern == Pattern.PREFIXED:
            return self.name.startswith(rule.name)
        return rule.name == EVERYTHING


class _Rules:
    """Rules about one type of resources that are alike in principal, host and permission."""

    __slots__ = ("by_name", "prefix_lengths")

    def __init__(self) -> None:
        self.by_name: dict[tuple[int, str, int], AccessRule] = {}
        self.prefix_lengths: Counter[int] = Counter()

    def add(self, rule: AccessRule) -> None:
        self.by_name[rule.pattern, rule.name, rule.operation] = rule
        if rule.pattern == Pattern.PREFIXED:
            self.prefix_lengths[len(rule.name)] += 1

    def remove(self, rule: AccessRule) -> None:
        del self.by_name[rule.pattern, rule.name, rule.operation]
        if rule.pattern == Pattern.PREFIXED:
            self.prefix_lengths[len(rule.name)] -= 1
            if not self.prefix_lengths[len(rule.name)]:
                del self.prefix_lengths[len(rule.name)]

    def first(self, operations: tuple[int, ...], name: str) -> AccessRule | None:
        """A rule about the resource of this name and one of these operations."""
        for operation in operations:
            rule = self.by_name.get((Pattern.LITERAL, name, operation))
            rule = rule or self.with_prefix_of(operation, name)
            rule = rule or self.by_name.get((Pattern.LITERAL, EVERYTHING, operation))
            if rule is not None:
                return rule
        return None

    def with_prefix_of(self, operation: int, name: str) -> AccessRule | None:
        """A prefixed rule whose prefix begins the name `name`, so that it applies to every name that begins with
        `name`.
        """
        for length in self.prefix_lengths:
            if length <= len(name):
                rule = self.by_name.get((Pattern.PREFIXED, name[:length], operation))
                if rule is not None:
                    return rule
        return None


class AccessRules:
    """All rules."""

    def __init__(self, rules_max: int = RULES_MAX) -> None:
        self._rules_max = rules_max
        # In the order in which they were added.
        self._rules: dict[AccessRule, None] = {}
        self._alike: dict[tuple[int, str, str, int], _Rules] = {}
        # Rises when a rule is added or removed, so that a caller knows how long it may cache a verdict.
        self.changes = 0
        self._part: CachedPart | None = None

    def __len__(self) -> int:
        return len(self._rules)

    def __iter__(self) -> Iterator[AccessRule]:
        return iter(self._rules)

    def __contains__(self, rule: AccessRule) -> bool:
        return rule in self._rules

    # Deciding

    def decide_add(self, rules: Iterable[AccessRule]) -> AccessRulesAdded | None:
        """The entry that adds those of these rules that are new; None if all exist. All are results of `checked`."""
        new = dict.fromkeys(rule for rule in rules if rule not in self._rules)
        if len(self._rules) + len(new) > self._rules_max:
            raise Refused(
                POLICY_VIOLATION, f"there are {len(self._rules)} rules, no more are allowed (access_rules_max)"
            )
        return AccessRulesAdded(tuple(new)) if new else None

    def decide_remove(self, rules: Iterable[AccessRule]) -> AccessRulesRemoved | None:
        """The entry that removes those of these rules that exist; None if none of them exists."""
        old = dict.fromkeys(rule for rule in rules if rule in self._rules)
        return AccessRulesRemoved(tuple(old)) if old else None

    def matching(self, rule_filter: RuleFilter) -> Steps[list[AccessRule]]:
        """The rules that a filter selects. Rules that are added or removed while the search runs make no difference."""
        matching = []
        for count, rule in enumerate(list(self._rules)):
            if rule_filter.matches(rule):
                matching.append(rule)
            if count % 10 == 0:
                yield 1
        return matching

    # Applying

    def check(self, entry: AccessRulesAdded | AccessRulesRemoved) -> None:
        """ValueError for an entry that no broker writes: the journal is damaged, or semel did not write it."""
        for rule in entry.rules:
            resource_type, name, pattern, principal, host, operation, permission = rule
            numbers = (resource_type, pattern, operation, permission)
            if not (all(isinstance(number, int) for number in numbers) and isinstance(name, str)):
                raise ValueError(f"{rule} is no access rule")
            if not (isinstance(principal, str) and isinstance(host, str)):
                raise ValueError(f"{rule} is no access rule")

    def apply(self, entry: AccessRulesAdded | AccessRulesRemoved) -> None:
        """Apply an entry that `check` has accepted."""
        change = self._add if isinstance(entry, AccessRulesAdded) else self._remove
        for rule in entry.rules:
            change(AccessRule(*rule))
        self.changes += 1
        self._part = None

    def _add(self, rule: AccessRule) -> None:
        if rule not in self._rules:
            self._rules[rule] = None
            self._alike.setdefault(_key(rule), _Rules()).add(rule)

    def _remove(self, rule: AccessRule) -> None:
        if rule in self._rules:
            del self._rules[rule]
            alike = self._alike[_key(rule)]
            alike.remove(rule)
            if not alike.by_name:
                del self._alike[_key(rule)]

    # Asking

    def allows(self, asker: Asker, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether this principal may do this with the resource of this name."""
        return self.verdict(asker, operation, resource_type, name).is_allowed

    def verdict(self, asker: Asker, operation: Operation, resource_type: ResourceType, name: str) -> Verdict:
        """The same, with the rule that decides."""
        for rules in self._about(asker, resource_type, Permission.DENY):
            rule = rules.first(_DENIED_BY[operation], name)
            if rule is not None:
                return Verdict(False, rule)
        for rules in self._about(asker, resource_type, Permission.ALLOW):
            rule = rules.first(_ALLOWED_BY[operation], name)
            if rule is not None:
                return Verdict(True, rule)
        return _NO_RULE

    def allows_some(self, asker: Asker, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether this principal may do this with at least one resource of this type, existing or not."""
        operations = _DENIED_BY[operation]
        denying = self._about(asker, resource_type, Permission.DENY)
        allowing = self._about(asker, resource_type, Permission.ALLOW)
        everything = [(Pattern.LITERAL, EVERYTHING, operation_or_all) for operation_or_all in operations]
        if any(key in rules.by_name for rules in denying for key in everything):
            return False
        if any(key in rules.by_name for rules in allowing for key in everything):
            return True

        def is_denied(pattern: int, name: str) -> bool:
            return any(
                (pattern == Pattern.LITERAL and (pattern, name, operation_or_all) in rules.by_name)
                or rules.with_prefix_of(operation_or_all, name) is not None
                for rules in denying
                for operation_or_all in operations
            )

        return any(
            operation_or_all in operations and not is_denied(pattern, name)
            for rules in allowing
            for pattern, name, operation_or_all in rules.by_name
        )

    def alike(self, asker: Asker, resource_type: ResourceType) -> Asker:
        """The same for all askers about whom there are the same rules for this type of resource: without the name or
        the host, if no rule is about that.
        """
        host = canonical_host(asker.host)

        def is_named(principal: str, from_host: str) -> bool:
            keys = [(resource_type, principal, from_host, permission) for permission in _PERMISSIONS]
            return any(key in self._alike for key in keys)

        hosts = (host,) if any(is_named(name, host) for name in (asker.principal, EVERYBODY)) else ()
        names = any(is_named(asker.principal, from_host) for from_host in (*hosts, EVERYTHING))
        return Asker(asker.principal if names else EVERYBODY, hosts[0] if hosts else EVERYTHING)

    def _about(self, asker: Asker, resource_type: int, permission: Permission) -> list[_Rules]:
        """The rules of one permission that apply to this principal and host, or to everybody, or to every host."""
        host = canonical_host(asker.host)
        keys = (
            (resource_type, principal, from_host, permission)
            for principal in (asker.principal, EVERYBODY)
            for from_host in (host, EVERYTHING)
        )
        return [rules for key in keys if (rules := self._alike.get(key)) is not None]

    # Checkpoints

    def snapshot(self) -> CachedPart:
        """All rules."""
        if self._part is None:
            rules = list(self._rules)
            self._part = CachedPart(lambda: rules)
        return self._part

    def restore(self, snapshot: Iterable[Iterable[int | str]]) -> None:
        """Load the state in `snapshot` into new, empty rules."""
        for rule in snapshot:
            self._add(AccessRule(*rule))  # type: ignore[arg-type]
        self.changes += 1


def checked(rule: AccessRule) -> AccessRule:
    """The same rule in canonical form; refused if its fields are not valid."""
    if rule.resource_type not in _RESOURCE_TYPES:
        raise Refused(INVALID_REQUEST, f"a rule cannot have resource type {rule.resource_type}")
    if rule.pattern not in (Pattern.LITERAL, Pattern.PREFIXED):
        raise Refused(INVALID_REQUEST, f"pattern type {rule.pattern} is neither literal (3) nor prefixed (4)")
    if rule.operation not in _OPERATIONS:
        raise Refused(INVALID_REQUEST, f"a rule cannot have operation {rule.operation}")
    if rule.permission not in (Permission.DENY, Permission.ALLOW):
        raise Refused(INVALID_REQUEST, f"permission type {rule.permission} is neither deny (2) nor allow (3)")
    if not rule.name:
        raise Refused(INVALID_REQUEST, "a rule needs the name of a resource; * stands for all")
    if rule.resource_type == ResourceType.CLUSTER and rule.name != CLUSTER_NAME:
        raise Refused(INVALID_REQUEST, f"the only name for the cluster is {CLUSTER_NAME}")
    if ":" not in rule.principal:
        raise Refused(INVALID_REQUEST, "a principal is a type and a name with a colon in between, as in User:app")
    if any(len(text.encode()) > TEXT_BYTES_MAX for text in (rule.name, rule.principal, rule.host)):
        raise Refused(INVALID_REQUEST, f"names, principals and hosts have at most {TEXT_BYTES_MAX} bytes")
    return rule._replace(host=canonical_host(rule.host))


def canonical_host(host: str) -> str:
    """An IP address in canonical form, so that `::1` and `0:0:0:0:0:0:0:1` are one; any other text unchanged."""
    if ":" not in host:
        return host
    try:
        address = ip_address(host)
    except ValueError:
        return host
    ipv4 = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(ipv4 or address)


_RESOURCE_TYPES: Final = frozenset(ResourceType) - {ResourceType.UNKNOWN, ResourceType.ANY}
_PERMISSIONS: Final = (Permission.DENY, Permission.ALLOW)
_OPERATIONS: Final = frozenset(Operation) - {Operation.UNKNOWN, Operation.ANY}


def _key(rule: AccessRule) -> tuple[int, str, str, int]:
    return rule.resource_type, rule.principal, rule.host, rule.permission
