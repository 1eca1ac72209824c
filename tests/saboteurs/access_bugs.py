"""The planted bugs of access rules: what each breaks, where it is planted, and which tests must catch it."""

from typing import Final

from saboteurs.planting import Bug

_RULES: Final = ("tests/core/test_access.py",)
_DENIED: Final = ("tests/broker/apis/test_denied_clients.py",)
_LISTS: Final = ("tests/broker/apis/test_filtered_lists.py",)
_APIS: Final = ("tests/broker/apis/test_api_rights.py",)
_ACLS: Final = ("tests/broker/apis/test_acl_apis.py",)
_KEPT: Final = ("tests/storage/test_access_rules.py",)
_CACHED: Final = ("tests/storage/test_cached_parts.py",)

ACCESS_BUGS: Final[tuple[Bug, ...]] = (
    # -- the verdict ------------------------------------------------------------------------------------------------
    Bug(
        "a rule that denies is taken for one that allows",
        "semel.core.access:AccessRules.verdict",
        "Verdict(False, rule)",
        "Verdict(True, rule)",
        _RULES,
    ),
    Bug(
        "a prefix counts only for the resource that is called like it",
        "semel.core.access:_Rules.with_prefix_of",
        "name[:length]",
        "name",
        _RULES,
    ),
    Bug(
        "an answer is kept for ever",
        "semel.broker.guard:Guard._answer",
        "self._as_of != self._access.changes",
        "False",
        ("tests/broker/test_guard.py",),
    ),
    Bug(
        "the right to read does not imply the right to describe",
        "semel.core.access",
        "(operation, Operation.ALL, *_IMPLIED_BY.get(operation, ()))",
        "(operation, Operation.ALL)",
        _RULES,
    ),
    Bug(
        "who may not read may not describe either",
        "semel.core.access:AccessRules.verdict",
        "_DENIED_BY[operation]",
        "_ALLOWED_BY[operation]",
        _RULES,
    ),
    Bug(
        "rules for everybody count for nobody",
        "semel.core.access:AccessRules._about",
        "(asker.principal, EVERYBODY)",
        "(asker.principal,)",
        _RULES,
    ),
    Bug(
        "a rule for one address counts for all",
        "semel.core.access:_key",
        "rule.host",
        "EVERYTHING",
        _RULES,
    ),
    Bug(
        "a rule for all resources counts for one that is called *",
        "semel.core.access:_Rules.first",
        "(Pattern.LITERAL, EVERYTHING, operation)",
        "(Pattern.PREFIXED, EVERYTHING, operation)",
        _RULES,
    ),
    Bug(
        "a right to some topic ignores what is denied",
        "semel.core.access:AccessRules.allows_some",
        "not is_denied(pattern, name)",
        "True",
        _RULES,
    ),
    Bug(
        "a rule that was removed goes on deciding",
        "semel.core.access:AccessRules._remove",
        "alike.remove(rule)",
        "None",
        _RULES,
    ),
    Bug(
        "with one prefix all of its length are forgotten",
        "semel.core.access:_Rules.remove",
        "not self.prefix_lengths[len(rule.name)]",
        "True",
        _RULES,
    ),
    Bug(
        "an address written otherwise is another address",
        "semel.core.access:canonical_host",
        "str(ipv4 or address)",
        "host",
        _RULES,
    ),
    Bug(
        "a filter for a resource misses the rules with a prefix",
        "semel.core.access:RuleFilter._matches_name",
        "self.name.startswith(rule.name)",
        "False",
        _RULES,
    ),
    Bug(
        "there may be more rules than there is room for",
        "semel.core.access:AccessRules.decide_add",
        "len(self._rules) + len(new) > self._rules_max",
        "False",
        _RULES,
    ),
    # -- kept -------------------------------------------------------------------------------------------------------
    Bug(
        "a checkpoint leaves the rules out",
        "semel.core.state:State.begin_snapshot",
        "self.access.snapshot()",
        "[]",
        _KEPT,
    ),
    Bug(
        "a rule that was removed is back after a kill",
        "semel.core.access:AccessRules.apply",
        "self._add if isinstance(entry, AccessRulesAdded) else self._remove",
        "self._add",
        _KEPT,
    ),
    Bug(
        "a checkpoint has the rules of the one before it",
        "semel.core.access:AccessRules.apply",
        "self._part = None",
        "pass",
        _CACHED,
    ),
    Bug(
        "every checkpoint encodes all rules, users and quotas again",
        "semel.core.cached_part:CachedPart.encoded",
        "content = self._content = encode(content())",
        "content = encode(content())",
        _CACHED,
    ),
    # -- the guard --------------------------------------------------------------------------------------------------
    Bug(
        "a super user is one by name alone",
        "semel.broker.guard:Guard._decide",
        "asker.principal in self._super_users",
        'asker.principal.partition(":")[2] in self._super_users',
        (*_APIS, "-k", "super"),
    ),
    Bug(
        "everybody may change the rules",
        "semel.broker.apis.access_rules:_check",
        "broker.guard.check(exchange, right)",
        "None",
        _ACLS,
    ),
    Bug(
        "rules are kept where nobody obeys them",
        "semel.broker.apis.access_rules:_check",
        "not broker.guard.in_force",
        "False",
        _ACLS,
    ),
    Bug(
        "rules that allow come before those that deny",
        "semel.broker.apis.create_acls:handle",
        "lambda rule: rule.permission",
        "lambda rule: -rule.permission",
        _ACLS,
    ),
    Bug(
        "the operations that are shown are those of everybody",
        "semel.broker.guard:Guard.operations",
        "self.sees(exchange, Right(one, resource_type), name)",
        "True",
        _LISTS,
    ),
    # -- the APIs ---------------------------------------------------------------------------------------------------
    Bug(
        "every client may write to every topic",
        "semel.broker.apis.produce:_topic",
        'broker.guard.check(exchange, WRITE_TOPIC, name or "" if topic is None else topic.name)',
        "None",
        _DENIED,
    ),
    Bug(
        "every client may write in the transaction of another",
        "semel.broker.apis.produce:_check_owner",
        "broker.guard.check(exchange, WRITE_TRANSACTIONAL_ID, transactional_id)",
        "None",
        _DENIED,
    ),
    Bug(
        "every client may read every topic",
        "semel.broker.apis.fetch:_read",
        "broker.guard.allows(exchange, READ_TOPIC, name)",
        "True",
        _DENIED,
    ),
    Bug(
        "a list of all topics shows them all",
        "semel.broker.apis.metadata:_topics",
        "broker.guard.sees(exchange, DESCRIBE_TOPIC, topic.name)",
        "True",
        _LISTS,
    ),
    Bug(
        "asking for a topic makes it, with the right or without",
        "semel.broker.apis.metadata:_look_up",
        "broker.guard.check(exchange, CREATE_TOPIC, name)",
        "None",
        _DENIED,
    ),
    Bug(
        "a commit needs the group and no topic",
        "semel.broker.apis.offset_commits:_check_topic",
        "broker.guard.error(exchange, READ_TOPIC, name)",
        "ErrorCode.NONE",
        _DENIED,
    ),
    Bug(
        "a list of groups shows them all",
        "semel.broker.apis.list_groups:handle",
        "broker.guard.sees(exchange, DESCRIBE_CLUSTER)",
        "True",
        _LISTS,
    ),
    Bug(
        "every client gets a producer id",
        "semel.broker.apis.init_producer_id:_begin",
        "broker.guard.check_some(exchange, WRITE_TOPIC)",
        "None",
        ("tests/broker/apis/test_denied_clients.py::test_a_producer_id_needs_idempotent_write_or_write_on_any_topic",),
    ),
    Bug(
        "a transaction takes the partitions that it may and leaves the others",
        "semel.broker.apis.add_partitions_to_txn:_outcome",
        "broker.guard.error(exchange, WRITE_TOPIC, topic_name) if is_clients else ErrorCode.NONE",
        "ErrorCode.NONE",
        ("tests/broker/apis/test_denied_clients.py::test_a_transaction_takes_all_partitions_or_none",),
    ),
)
