"""Java takes the bundles of `semel.settings` and works with them, and refuses what the check calls refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from semel import settings
from semel.settings import Bundle, Client, Cost, Role, Semantics, Setting

Run = Callable[..., str]

BUNDLES = [settings.bundle(semantics, Client.JAVA) for semantics in Semantics]
BUNDLES.append(settings.exactly_once(Client.JAVA, "billing-1"))

# One of each kind that could be refused, and its neighbours that are not.
PRODUCERS: list[dict[str, str]] = [
    {"acks": "1"},
    {"acks": "1", "enable.idempotence": "true"},
    {"acks": "2"},
    {"retries": "0"},
    {"retries": "0", "enable.idempotence": "true"},
    {"max.in.flight.requests.per.connection": "6"},
    {"max.in.flight.requests.per.connection": "6", "acks": "1"},
    {"transactional.id": "x", "acks": "1"},
    {"transactional.id": "x", "enable.idempotence": "false"},
    {"transactional.id": ""},
    {"delivery.timeout.ms": "30004", "linger.ms": "5"},
    {"delivery.timeout.ms": "30005", "linger.ms": "5"},
    {"delivery.timeout.ms": "30004", "retries": "0"},
    {"enable.idempotence": "yes"},
]
CONSUMERS: list[dict[str, str]] = [
    {"isolation.level": "read-committed"},
    {"auto.offset.reset": "error"},
    {"auto.offset.reset": "none"},
    {"session.timeout.ms": "400000"},
    {"heartbeat.interval.ms": "50000"},
]


def line_of(role: Role, config: dict[str, str]) -> str:
    return f"{role} {';'.join(f'{name}={value}' for name, value in config.items())}"


def outcomes(run_java: Run, bootstrap: str, topic: str, lines: list[str]) -> list[str]:
    printed = run_java("semel.Bundles", bootstrap, topic, input="\n".join(lines))
    return [line.partition(": ")[2] for line in printed.splitlines()]


def as_properties(lines: tuple[Setting, ...]) -> dict[str, str]:
    return {setting.name: str(setting.value) for setting in lines}


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda bundle: f"{bundle.semantics}-{len(bundle.producer)}")
def test_java_writes_and_reads_with_a_bundle(run_java: Run, bootstrap: str, topic: str, bundle: Bundle) -> None:
    lines = [line_of(role, as_properties(bundle.of(role))) for role in Role]
    assert outcomes(run_java, bootstrap, topic, lines) == ["written", "read"]


def test_java_refuses_what_is_called_refused(run_java: Run, bootstrap: str, topic: str) -> None:
    asked = [(Role.PRODUCER, config) for config in PRODUCERS] + [(Role.CONSUMER, config) for config in CONSUMERS]
    found = outcomes(run_java, bootstrap, topic, [line_of(role, config) for role, config in asked])
    refused = [
        any(conflict.cost is Cost.REFUSED for conflict in settings.check(config, client=Client.JAVA, role=role))
        for role, config in asked
    ]
    assert [outcome == "refused" for outcome in found] == refused
