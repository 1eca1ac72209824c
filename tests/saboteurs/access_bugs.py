"""The planted bugs of access rules: what each breaks, where it is planted, and which tests must catch it."""

from typing import Final

from saboteurs.planting import Bug

_RULES: Final = ("tests/log/core/test_access.py",)
_DENIED: Final = ("tests/log/broker/apis/test_denied_clients.py",)
_LISTS: Final = ("tests/log/broker/apis/test_filtered_lists.py",)
_APIS: Final = ("tests/log/broker/apis/test_api_rights.py",)
_ACLS: Final = ("tests/log/broker/apis/test_acl_apis.py",)
_KEPT: Final = ("tests/log/storage/test_access_rules.py",)
_CACHED: Final = ("tests/log/storage/test_cached_parts.py",)
_NUMBERS: Final = ("tests/log/broker/apis/test_own_numbers.py",)
_OWNERS: Final = ("tests/log/core/test_producer_ids.py",)
_SEEN: Final = ("tests/log/broker/apis/test_seen_topics.py",)
_SHOWN: Final = ("tests/log/broker/apis/test_shown_names.py",)

ACCESS_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "nobody is told that the offsets of a group were reset",
        "semel.log.core.groups.group:Group.is_left",
        "self.machine is not None and self.machine.is_empty",
        "False",
        ("tests/log/broker/test_security_log.py", "-k", "sets_the_offsets"),
    ),
    # -- the exchange -------------------------------------------------------------------------------------------------
    # -- the verdict ------------------------------------------------------------------------------------------------
    Bug(
        "a rule that denies is taken for one that allows",
        "semel.log.core.access:AccessRules.verdict",
        "Verdict(False, rule)",
        "Verdict(True, rule)",
        _RULES,
    ),
    Bug(
        "a prefix counts only for the resource that is called like it",
        "semel.log.core.access:_Rules.with_prefix_of",
        "name[:length]",
        "name",
        _RULES,
    ),
    Bug(
        "a list of what has configurations leaves out the types that nobody knows, and says nothing",
        "semel.log.broker.apis.list_config_resources:handle",
        "not wanted.issubset(known)",
        "False",
        ("tests/log/broker/apis/test_list_config_resources.py",),
    ),
    Bug(
        "an answer is kept for ever",
        "semel.log.broker.guard:Guard._answer",
        "self._as_of != self._access.changes",
        "False",
        ("tests/log/broker/test_guard.py",),
    ),
    Bug(
        "the right to read does not imply the right to describe",
        "semel.log.core.access",
        "(operation, Operation.ALL, *_IMPLIED_BY.get(operation, ()))",
        "(operation, Operation.ALL)",
        _RULES,
    ),
    Bug(
        "who may not read may not describe either",
        "semel.log.core.access:AccessRules.verdict",
        "_DENIED_BY[operation]",
        "_ALLOWED_BY[operation]",
        _RULES,
    ),
    Bug(
        "rules for everybody count for nobody",
        "semel.log.core.access:AccessRules._about",
        "(asker.principal, EVERYBODY)",
        "(asker.principal,)",
        _RULES,
    ),
    Bug(
        "a rule for one address counts for all",
        "semel.log.core.access:_key",
        "rule.host",
        "EVERYTHING",
        _RULES,
    ),
    Bug(
        "a rule for all resources counts for one that is called *",
        "semel.log.core.access:_Rules.first",
        "(Pattern.LITERAL, EVERYTHING, operation)",
        "(Pattern.PREFIXED, EVERYTHING, operation)",
        _RULES,
    ),
    Bug(
        "a right to some topic ignores what is denied",
        "semel.log.core.access:AccessRules.allows_some",
        "not is_denied(pattern, name)",
        "True",
        _RULES,
    ),
    Bug(
        "a rule that was removed goes on deciding",
        "semel.log.core.access:AccessRules._remove",
        "alike.remove(rule)",
        "None",
        _RULES,
    ),
    Bug(
        "with one prefix all of its length are forgotten",
        "semel.log.core.access:_Rules.remove",
        "not self.prefix_lengths[len(rule.name)]",
        "True",
        _RULES,
    ),
    Bug(
        "an address written otherwise is another address",
        "semel.log.core.access:canonical_host",
        "str(ipv4 or address)",
        "host",
        _RULES,
    ),
    Bug(
        "a filter for a resource misses the rules with a prefix",
        "semel.log.core.access:RuleFilter._matches_name",
        "self.name.startswith(rule.name)",
        "False",
        _RULES,
    ),
    Bug(
        "there may be more rules than there is room for",
        "semel.log.core.access:AccessRules.decide_add",
        "len(self._rules) + len(new) > self._rules_max",
        "False",
        _RULES,
    ),
    # -- kept -------------------------------------------------------------------------------------------------------
    Bug(
        "a checkpoint leaves the rules out",
        "semel.log.core.state:State.begin_snapshot",
        "self.access.snapshot()",
        "[]",
        _KEPT,
    ),
    Bug(
        "a rule that was removed is back after a kill",
        "semel.log.core.access:AccessRules.apply",
        "self._add if isinstance(entry, AccessRulesAdded) else self._remove",
        "self._add",
        _KEPT,
    ),
    Bug(
        "a checkpoint has the rules of the one before it",
        "semel.log.core.access:AccessRules.apply",
        "self._part = None",
        "pass",
        _CACHED,
    ),
    Bug(
        "every checkpoint encodes all rules, users and quotas again",
        "semel.log.core.cached_part:CachedPart.encoded",
        "content = self._content = encode(content())",
        "content = encode(content())",
        _CACHED,
    ),
    # -- the guard --------------------------------------------------------------------------------------------------
    Bug(
        "a super user is one by name alone",
        "semel.log.broker.guard:Guard._decide",
        "asker.principal in self._super_users",
        'asker.principal.partition(":")[2] in self._super_users',
        (*_APIS, "-k", "super"),
    ),
    Bug(
        "everybody may change the rules",
        "semel.log.broker.apis.access_rules:_check",
        "broker.guard.check(exchange, right)",
        "None",
        _ACLS,
    ),
    Bug(
        "rules are kept where nobody obeys them",
        "semel.log.broker.apis.access_rules:_check",
        "not broker.guard.in_force",
        "False",
        _ACLS,
    ),
    Bug(
        "rules that allow come before those that deny",
        "semel.log.broker.apis.create_acls:handle",
        "lambda rule: rule.permission",
        "lambda rule: -rule.permission",
        _ACLS,
    ),
    Bug(
        "the operations that are shown are those of everybody",
        "semel.log.broker.guard:Guard.operations",
        "self.sees(exchange, Right(one, resource_type), name)",
        "True",
        _LISTS,
    ),
    # -- the APIs ---------------------------------------------------------------------------------------------------
    Bug(
        "every client may write to every topic",
        "semel.log.broker.apis.produce:_topic",
        'broker.guard.check(exchange, WRITE_TOPIC, name or "" if topic is None else topic.name)',
        "None",
        _DENIED,
    ),
    Bug(
        "nobody is told of a batch in the transaction of another",
        "semel.log.broker.apis.produce:_check_owner",
        "broker.guard.check(exchange, WRITE_TRANSACTIONAL_ID, transactional_id)",
        "None",
        ("tests/log/broker/test_security_log.py", "-k", "transaction_of_another"),
    ),
    Bug(
        "every client may read every topic",
        "semel.log.broker.apis.harvest:_read",
        "broker.guard.allows(exchange, READ_TOPIC, name)",
        "True",
        _DENIED,
    ),
    Bug(
        "a list of all topics shows them all",
        "semel.log.broker.apis.metadata:_topics",
        "broker.guard.sees(exchange, DESCRIBE_TOPIC, topic.name)",
        "True",
        _LISTS,
    ),
    Bug(
        "asking for a topic makes it, with the right or without",
        "semel.log.broker.apis.metadata:_look_up",
        "broker.guard.check(exchange, CREATE_TOPIC, name)",
        "None",
        _DENIED,
    ),
    Bug(
        "a commit needs the group and no topic",
        "semel.log.broker.apis.offset_commits:_check_topic",
        "broker.guard.error(exchange, READ_TOPIC, name)",
        "ErrorCode.NONE",
        _DENIED,
    ),
    Bug(
        "a list of groups shows them all",
        "semel.log.broker.apis.list_groups:handle",
        "broker.guard.sees(exchange, DESCRIBE_CLUSTER)",
        "True",
        _LISTS,
    ),
    Bug(
        "every client gets a producer id",
        "semel.log.broker.apis.init_producer_id:_begin",
        "broker.guard.check_some(exchange, WRITE_TOPIC)",
        "None",
        (
            "tests/log/broker/apis/test_denied_clients.py::test_a_producer_id_needs_idempotent_write_or_write_on_any_topic",
        ),
    ),
    Bug(
        "a transaction takes the partitions that it may and leaves the others",
        "semel.log.broker.apis.add_partitions_to_txn:_outcome",
        "broker.guard.error(exchange, WRITE_TOPIC, topic_name) if is_clients else ErrorCode.NONE",
        "ErrorCode.NONE",
        ("tests/log/broker/apis/test_denied_clients.py::test_a_transaction_takes_all_partitions_or_none",),
    ),
    # -- a number is no right ---------------------------------------------------------------------------------------
    Bug(
        "a producer writes into the transaction of another, under its own transactional id",
        "semel.log.core.batch_checks:_check_own",
        "owner.transactional_id == who.transactional_id",
        "True",
        _NUMBERS,
    ),
    Bug(
        "a principal takes the next sequence number of another's producer",
        "semel.log.core.batch_checks:_check_own",
        "who.principal in (None, state.producer_ids.owner_of(producer_id))",
        "True",
        _NUMBERS,
    ),
    Bug(
        "to name a transactional id is enough to use its producer id",
        "semel.log.broker.apis.produce:_named",
        "broker.guard.sees(exchange, WRITE_TRANSACTIONAL_ID, transactional_id)",
        "True",
        _NUMBERS,
    ),
    Bug(
        "the number of a duplicate is looked at before its owner",
        "semel.log.core.batch_checks:judge_batch",
        "sender.who is not None and header.producer_id != NO_PRODUCER",
        "sender.who is not None and holder.state.producers.get(header.producer_id) is None",
        _NUMBERS,
    ),
    Bug(
        "all idempotent producers have ids of nobody",
        "semel.log.broker.apis.init_producer_id:_begin",
        "owner or NOBODY",
        "NOBODY",
        _NUMBERS,
    ),
    Bug(
        "nobody is told of a batch with the id of another",
        "semel.log.broker.guard:Guard.note_foreign_id",
        'self._tell(exchange, "access_denied", fields)',
        "None",
        _NUMBERS,
    ),
    Bug(
        "a checkpoint forgets whose the producer ids are",
        "semel.log.core.producer_ids:ProducerIds.snapshot",
        "(number, *known)",
        "(number, NOBODY, known.reserved_until)",
        _OWNERS,
    ),
    Bug(
        "the range of ids that was forgotten is the one that was used last",
        "semel.log.core.producer_ids:ProducerIds.apply",
        "self._ranges.pop(number, None)",
        "None",
        _OWNERS,
    ),
    Bug(
        "two owners of producer ids get the same range",
        "semel.log.core.producer_ids:ProducerIds.apply",
        "self._ranges_taken = max(self._ranges_taken, number + 1)",
        "None",
        _OWNERS,
    ),
    Bug(
        "ids from before a topic was deleted and from after it are in one block",
        "semel.log.core.producer_ids:ProducerIds.apply",
        "self._next.clear()",
        "None",
        _OWNERS,
    ),
    # -- what nobody may see ----------------------------------------------------------------------------------------
    Bug(
        "an expression stands for topics that its member may not see",
        "semel.log.core.groups.consumer_topics:WantedTopics.of",
        "self.viewer(subscription)",
        "None",
        _SEEN,
    ),
    Bug(
        "an expression stands for the same topics when a rule has changed",
        "semel.log.core.groups.consumer_topics:WantedTopics.changes",
        "self.sight.changes",
        "0",
        _SEEN,
    ),
    Bug(
        "a group does not notice that two members have lost and gained a topic",
        "semel.log.core.groups.consumer_topics:WantedTopics.digest_of",
        "(wanted, sorted(seen)) if seen else wanted",
        "wanted",
        _SEEN,
    ),
    Bug(
        "who speaks for the member of another sees what that may see",
        "semel.log.core.groups.consumer_topics:WantedTopics._wish",
        "self.viewer(subscription)",
        "None",
        _SEEN,
    ),
    Bug(
        "a rule for one address makes no difference to what an expression stands for",
        "semel.log.core.access:AccessRules.alike",
        "hosts[0] if hosts else EVERYTHING",
        "EVERYTHING",
        _SEEN,
    ),
    Bug(
        "a refusal names the topic that a client knows by its id",
        "semel.log.broker.guard:Guard.check",
        'f"{exchange.principal} from {exchange.client_host} lacks {operation} on a {resource}"',
        'f"{exchange.principal} from {exchange.client_host} lacks {operation} on {resource} {name}"',
        _SHOWN,
    ),
    Bug(
        "the name of a hidden topic comes with the refusal of a name that collides with it",
        "semel.log.core.topics:Catalog.decide_create",
        """f"topic '{name}' differs from an existing topic in '.' and '_' only\"""",
        """f"topic '{name}' differs from '{other.name}' in '.' and '_' only\"""",
        _SHOWN,
    ),
    Bug(
        "the members of a classic group are shown with topics that the client may not see",
        "semel.log.broker.apis.describe_groups:_leave_out_unseen",
        "broker.guard.sees(exchange, DESCRIBE_TOPIC, name)",
        "True",
        _SHOWN,
    ),
    Bug(
        "the members of a consumer group are shown with topics that the client may not see",
        "semel.log.broker.apis.lookup:names_seen",
        "broker.guard.sees(exchange, DESCRIBE_TOPIC, name)",
        "True",
        _SHOWN,
    ),
    Bug(
        "a guessed name for the id of a hidden topic is confirmed",
        "semel.log.broker.apis.delete_topics:_delete",
        "(name, topic_id) in twice",
        "_name_of(broker, (name, topic_id)) in twice",
        _SHOWN,
    ),
    Bug(
        "a fetch session is anybody's who knows its number",
        "semel.log.broker.sessions:FetchSessions.resolve",
        "session.owner != principal",
        "False",
        _SHOWN,
    ),
    Bug(
        "what a client may do is remembered for all hosts",
        "semel.log.broker.guard:Guard._answer",
        "(exchange.principal, exchange.client_host, right, name)",
        "(exchange.principal, right, name)",
        ("tests/log/broker/test_guard.py",),
    ),
    Bug(
        "a topic without a name and an id ends the connection of its client with a traceback",
        "semel.log.broker.apis.metadata:_name_or_id",
        "name is None and version < _NO_NAME_FROM",
        "False",
        ("tests/log/broker/apis/test_topic_apis.py", "-k", "neither_a_name"),
    ),
)
