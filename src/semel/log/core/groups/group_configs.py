"""The configurations that may be set on a single group, in place of the broker's settings.

As in Apache Kafka a group need not exist to have configurations, they stay when it is deleted, and those of consumer
groups and of share groups may be set on the same name. The broker refuses the configurations of Kafka Streams groups by
name, because it has no such groups. `assigned_group.py` and `share_partition.py` act upon the configurations; nothing
here may depend on whether the group has members.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from semel.log.core.configs import Choice, Definition, InvalidConfig, Number, Reset
from semel.log.core.groups.assigned_group import MemberRules
from semel.log.core.groups.share_partition import ShareRules
from semel.log.core.values import value

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
SHARE_SESSION_TIMEOUT: Final = "share.session.timeout.ms"
SHARE_HEARTBEAT_INTERVAL: Final = "share.heartbeat.interval.ms"
_LOCK: Final = "share.record.lock.duration.ms"
_DELIVERIES: Final = "share.delivery.count.limit"
_LOCKS: Final = "share.partition.max.record.locks"
_RESET: Final = "share.auto.offset.reset"
_ISOLATION: Final = "share.isolation.level"
_RENEW: Final = "share.renew.acknowledge.enable"
_COMMITTED: Final = "read_committed"

# Apache Kafka's default bounds (group.consumer.min.session.timeout.ms and the like). `_number` widens them to include
# the broker's own setting.
_SESSION_MS: Final = range(45_000, 60_000)
_HEARTBEAT_MS: Final = range(5_000, 15_000)
_LOCK_MS: Final = range(15_000, 60_000)
_DELIVERIES_BOUNDS: Final = range(2, 10)
_LOCKS_BOUNDS: Final = range(100, 4_000)


@value
class GroupRules:
    """The broker's settings for groups: the members of consumer groups, those of share groups, and shared records."""

    consumers: MemberRules
    sharers: MemberRules
    shares: ShareRules


def definitions(rules: GroupRules) -> Mapping[str, Definition]:
    """The configurations of a group; the default of each is the broker's setting."""
    consumers, sharers, shares = rules.consumers, rules.sharers, rules.shares
    silence, beat = "How long a member may be silent.", "How often a member is told to send a heartbeat."
    all_definitions: tuple[Definition, ...] = (
        _number(SESSION_TIMEOUT, consumers.session_timeout_ms, _SESSION_MS, silence),
        _number(HEARTBEAT_INTERVAL, consumers.heartbeat_interval_ms, _HEARTBEAT_MS, beat),
        _number(SHARE_SESSION_TIMEOUT, sharers.session_timeout_ms, _SESSION_MS, silence),
        _number(SHARE_HEARTBEAT_INTERVAL, sharers.heartbeat_interval_ms, _HEARTBEAT_MS, beat),
        _number(_LOCK, shares.lock_ms, _LOCK_MS, "How long a consumer holds a record that it does not acknowledge."),
        _number(_DELIVERIES, shares.deliveries_max, _DELIVERIES_BOUNDS, "How often a record is delivered at most."),
        _number(_LOCKS, shares.locks_max, _LOCKS_BOUNDS, "How many records of a partition are in flight at most."),
        Reset(_RESET, shares.reset, "Where the group begins in a partition that it has not read before."),
        Choice(
            _ISOLATION,
            "string",
            _COMMITTED if shares.committed_only else "read_uncommitted",
            (_COMMITTED, "read_uncommitted"),
            "Whether the group gets only records of committed transactions, and those of none.",
        ),
        Choice(
            _RENEW, "boolean", _word(shares.may_renew), ("true", "false"), "Whether a consumer may renew its locks."
        ),
    )
    return {definition.name: definition for definition in all_definitions}


def check(configs: Mapping[str, str], rules: GroupRules) -> None:
    """InvalidConfig if these contradict each other. Each by itself is valid."""
    for session, interval, together in (
        (SESSION_TIMEOUT, HEARTBEAT_INTERVAL, consumers_with(rules, configs)),
        (SHARE_SESSION_TIMEOUT, SHARE_HEARTBEAT_INTERVAL, sharers_with(rules, configs)),
    ):
        if together.session_timeout_ms <= together.heartbeat_interval_ms:
            raise InvalidConfig(
                f"{session} ({together.session_timeout_ms}) must be above {interval} ({together.heartbeat_interval_ms})"
            )


def consumers_with(rules: GroupRules, configs: Mapping[str, str]) -> MemberRules:
    """The rules for the members of a consumer group on which `configs` are set."""
    return _members_with(rules.consumers, configs, SESSION_TIMEOUT, HEARTBEAT_INTERVAL)


def sharers_with(rules: GroupRules, configs: Mapping[str, str]) -> MemberRules:
    """The same for a share group."""
    return _members_with(rules.sharers, configs, SHARE_SESSION_TIMEOUT, SHARE_HEARTBEAT_INTERVAL)


def _members_with(rules: MemberRules, configs: Mapping[str, str], session: str, interval: str) -> MemberRules:
    if not configs:
        return rules
    return replace(
        rules,
        session_timeout_ms=int(configs.get(session, rules.session_timeout_ms)),
        heartbeat_interval_ms=int(configs.get(interval, rules.heartbeat_interval_ms)),
    )


def shares_with(rules: GroupRules, configs: Mapping[str, str]) -> ShareRules:
    """The rules for the records of a share group on which `configs` are set."""
    shares = rules.shares
    if not configs:
        return shares
    return ShareRules(
        deliveries_max=int(configs.get(_DELIVERIES, shares.deliveries_max)),
        locks_max=int(configs.get(_LOCKS, shares.locks_max)),
        lock_ms=int(configs.get(_LOCK, shares.lock_ms)),
        may_renew=configs.get(_RENEW, _word(shares.may_renew)) == "true",
        reset=configs.get(_RESET, shares.reset),
        committed_only=configs.get(_ISOLATION) == _COMMITTED if _ISOLATION in configs else shares.committed_only,
    )


def _number(name: str, default: int, bounds: range, documentation: str) -> Number:
    return Number(name, "int", str(default), min(bounds.start, default), max(bounds.stop, default), documentation)


def _word(truth: bool) -> str:
    return "true" if truth else "false"
