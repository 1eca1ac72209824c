"""The configurations that may be set on a single group of the new protocol, in place of the broker's settings.

As in Apache Kafka a group need not exist to have configurations, and they stay when it is deleted. The broker refuses
the configurations of share groups and of Kafka Streams groups by name, because it has no such groups. `consumer.py`
acts upon the configurations; nothing here may depend on whether the group has members.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from semel.log.core.configs import Definition, InvalidConfig, Number
from semel.log.core.groups.consumer import ConsumerRules

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"

# Apache Kafka's default bounds (group.consumer.min.session.timeout.ms and the like). `_number` widens them to include
# the broker's own setting.
_SESSION_MS: Final = range(45_000, 60_000)
_HEARTBEAT_MS: Final = range(5_000, 15_000)


def definitions(rules: ConsumerRules) -> Mapping[str, Definition]:
    """The configurations of a group; the default of each is the broker's setting."""
    return {
        SESSION_TIMEOUT: _number(
            SESSION_TIMEOUT, rules.session_timeout_ms, _SESSION_MS, "How long a member may be silent."
        ),
        HEARTBEAT_INTERVAL: _number(
            HEARTBEAT_INTERVAL,
            rules.heartbeat_interval_ms,
            _HEARTBEAT_MS,
            "How often a member is told to send a heartbeat.",
        ),
    }


def check(configs: Mapping[str, str], rules: ConsumerRules) -> None:
    """InvalidConfig if these contradict each other. Each by itself is valid."""
    together = rules_with(rules, configs)
    if together.session_timeout_ms <= together.heartbeat_interval_ms:
        raise InvalidConfig(
            f"{SESSION_TIMEOUT} ({together.session_timeout_ms}) must be above {HEARTBEAT_INTERVAL} "
            f"({together.heartbeat_interval_ms})"
        )


def rules_with(rules: ConsumerRules, configs: Mapping[str, str]) -> ConsumerRules:
    """The rules for a group on which `configs` are set."""
    if not configs:
        return rules
    return replace(
        rules,
        session_timeout_ms=int(configs.get(SESSION_TIMEOUT, rules.session_timeout_ms)),
        heartbeat_interval_ms=int(configs.get(HEARTBEAT_INTERVAL, rules.heartbeat_interval_ms)),
    )


def _number(name: str, default: int, bounds: range, documentation: str) -> Number:
    return Number(name, "int", str(default), min(bounds.start, default), max(bounds.stop, default), documentation)
