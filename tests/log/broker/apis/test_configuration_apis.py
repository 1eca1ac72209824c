"""Configurations are shown with where they come from, and changed all together or not at all."""

from pathlib import Path
from typing import Any

import pytest

from asking import Asker
from semel.log.broker.limits import Limits
from semel.log.core.configs import DEFINITIONS
from semel.testing.broker import FaultyBroker
from semel.wire.errors import ErrorCode
from semel.wire.versions import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG, GROUP_CONFIG = 1, 4, 5, 8
SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
# Those of share groups while none is set.
OF_SHARES = {
    "share.session.timeout.ms": ("45000", 5),
    "share.heartbeat.interval.ms": ("5000", 5),
    "share.record.lock.duration.ms": ("30000", 5),
    "share.delivery.count.limit": ("5", 5),
    "share.partition.max.record.locks": ("2000", 5),
    "share.auto.offset.reset": ("latest", 5),
    "share.isolation.level": ("read_uncommitted", 5),
    "share.renew.acknowledge.enable": ("true", 5),
}


def describe(
    ask: Asker, kind: int, name: str, keys: list[str] | None = None, *, explain: bool = False, version: int = 4
) -> Any:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    options = {"include_synonyms": explain, "include_documentation": explain}
    (described,) = ask(DESCRIBE_CONFIGS, version, resources=[resource], **options).results
    return described


def values(ask: Asker, name: str = "orders") -> dict[str, str]:
    """What is set on a topic."""
    shown = describe(ask, TOPIC, name).configs
    return {config.name: config.value for config in shown if config.config_source == TOPIC_CONFIG}


def replace(ask: Asker, name: str, *configs: tuple[str, str | None], kind: int = TOPIC, dry: bool = False) -> Any:
    changes = [{"name": key, "value": value} for key, value in configs]
    resource = {"resource_type": kind, "resource_name": name, "configs": changes}
    return ask(ALTER_CONFIGS, resources=[resource], validate_only=dry).responses[0]


def change(ask: Asker, name: str, *configs: tuple[str, int, str | None], kind: int = TOPIC, dry: bool = False) -> Any:
    changes = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in configs]
    resource = {"resource_type": kind, "resource_name": name, "configs": changes}
    return ask(INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=dry).responses[0]


def test_a_topic_shows_every_configuration_and_where_it_comes_from(ask: Asker) -> None:
    ask.create("orders", retention_ms="1000")
    shown = {config.name: config for config in describe(ask, TOPIC, "orders").configs}
    assert set(shown) == set(DEFINITIONS)
    assert (shown["retention.ms"].value, shown["retention.ms"].config_source) == ("1000", TOPIC_CONFIG)
    other = shown["segment.bytes"]
    assert (other.value, other.config_source) == (DEFINITIONS["segment.bytes"].default, DEFAULT_CONFIG)
    assert not any(config.read_only or config.is_sensitive for config in shown.values())
    assert all(config.synonyms == () and config.documentation is None for config in shown.values())


def test_synonyms_and_documentation_come_when_asked_for(ask: Asker) -> None:
    ask.create("orders", retention_ms="1000")
    shown = {config.name: config for config in describe(ask, TOPIC, "orders", explain=True).configs}
    assert [(synonym.value, synonym.source) for synonym in shown["retention.ms"].synonyms] == [
        ("1000", TOPIC_CONFIG),
        (DEFINITIONS["retention.ms"].default, DEFAULT_CONFIG),
    ]
    assert [synonym.source for synonym in shown["segment.bytes"].synonyms] == [DEFAULT_CONFIG]
    assert {name: config.documentation for name, config in shown.items()} == {
        name: definition.documentation for name, definition in DEFINITIONS.items()
    }
    assert {name: shown[name].config_type for name in ("segment.bytes", "retention.ms", "cleanup.policy")} == {
        "segment.bytes": 3,
        "retention.ms": 5,
        "cleanup.policy": 7,
    }


@pytest.mark.parametrize("keys", [None, []])
def test_no_keys_means_all(ask: Asker, keys: list[str] | None) -> None:
    ask.create("orders")
    assert len(describe(ask, TOPIC, "orders", keys).configs) == len(DEFINITIONS)


def test_only_the_keys_that_are_asked_for_and_known_are_shown(ask: Asker) -> None:
    ask.create("orders")
    assert [config.name for config in describe(ask, TOPIC, "orders", ["no.such", "retention.ms"]).configs] == [
        "retention.ms"
    ]


@pytest.mark.parametrize("name", ["", "1"])
def test_the_broker_shows_what_it_was_started_with(ask: Asker, name: str) -> None:
    shown = {config.name: config for config in describe(ask, BROKER, name, explain=True).configs}
    assert shown["node.id"].value == shown["broker.id"].value == "1"
    assert shown["auto.create.topics.enable"].value == "true"
    assert shown["num.partitions"].value == "1"
    assert shown["message.max.bytes"].value == DEFINITIONS["max.message.bytes"].default
    assert all(config.read_only and config.config_source == STATIC_BROKER_CONFIG for config in shown.values())
    assert all(config.documentation and config.config_type for config in shown.values())


def test_a_client_can_see_how_long_a_login_lasts() -> None:
    with FaultyBroker(limits=Limits(login_lifetime_ms=90_000)) as broker, Asker(broker.bootstrap) as ask:
        (shown,) = describe(ask, BROKER, "1", ["connections.max.reauth.ms"]).configs
    assert shown.value == "90000"


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "..", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "9", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (16, "g", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_has_no_configurations_says_so(ask: Asker, kind: int, name: str, error: ErrorCode) -> None:
    answer = describe(ask, kind, name)
    assert (answer.error_code, answer.configs) == (error, ())
    assert answer.error_message


def test_a_replacement_is_all_that_is_set_from_then_on(ask: Asker) -> None:
    ask.create("orders", retention_ms="1000", segment_ms="5")
    assert replace(ask, "orders", ("retention.ms", "2000")).error_code == 0
    assert values(ask) == {"retention.ms": "2000"}
    assert replace(ask, "orders").error_code == 0
    assert values(ask) == {}


def test_an_increment_leaves_what_it_does_not_name(ask: Asker) -> None:
    ask.create("orders", retention_ms="1000", segment_ms="5")
    assert change(ask, "orders", ("retention.ms", SET, "2000"), ("segment.ms", DELETE, None)).error_code == 0
    assert values(ask) == {"retention.ms": "2000"}
    assert change(ask, "orders", ("cleanup.policy", APPEND, "delete")).error_code == 0
    assert values(ask) == {"retention.ms": "2000", "cleanup.policy": "delete"}
    assert change(ask, "orders", ("cleanup.policy", SUBTRACT, "compact")).error_code == 0


def test_validating_changes_nothing(ask: Asker) -> None:
    ask.create("orders", retention_ms="1000")
    assert replace(ask, "orders", ("retention.ms", "2000"), dry=True).error_code == 0
    assert change(ask, "orders", ("retention.ms", SET, "2000"), dry=True).error_code == 0
    assert change(ask, "orders", ("retention.ms", SET, "soon"), dry=True).error_code == ErrorCode.INVALID_CONFIG
    assert values(ask) == {"retention.ms": "1000"}


@pytest.mark.parametrize(
    ("configs", "error"),
    [
        ([("no.such", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_increment_that_cannot_be_changes_nothing_at_all(
    ask: Asker, configs: list[tuple[str, int, str | None]], error: ErrorCode
) -> None:
    ask.create("orders", retention_ms="1000")
    answer = change(ask, "orders", ("segment.ms", SET, "5"), *configs)
    assert answer.error_code == error
    assert answer.error_message
    assert values(ask) == {"retention.ms": "1000"}


@pytest.mark.parametrize(
    ("configs", "error"),
    [
        ([("no.such", "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", "1"), ("retention.ms", "2")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_replacement_that_cannot_be_changes_nothing_at_all(
    ask: Asker, configs: list[tuple[str, str | None]], error: ErrorCode
) -> None:
    ask.create("orders", retention_ms="1000")
    assert replace(ask, "orders", ("segment.ms", "5"), *configs).error_code == error
    assert values(ask) == {"retention.ms": "1000"}


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [(TOPIC, "none", 3), (BROKER, "1", 42), (BROKER, "9", 42), (GROUP, "", 42), (16, "g", 42)],
)
def test_what_has_no_configurations_that_change_says_so(ask: Asker, kind: int, name: str, error: int) -> None:
    assert replace(ask, name, ("retention.ms", "1"), kind=kind).error_code == error
    assert change(ask, name, ("retention.ms", SET, "1"), kind=kind).error_code == error


def test_a_resource_named_twice_is_not_changed(ask: Asker) -> None:
    ask.create("orders")
    resource = {"resource_type": TOPIC, "resource_name": "orders", "configs": [{"name": "segment.ms", "value": "5"}]}
    (answer,) = ask(ALTER_CONFIGS, resources=[resource, resource], validate_only=False).responses
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert values(ask) == {}


def test_a_change_is_there_after_a_kill(ask: Asker, semel_broker: FaultyBroker) -> None:
    ask.create("orders")
    assert change(ask, "orders", ("retention.ms", SET, "2000")).error_code == 0
    semel_broker.kill()
    semel_broker.restart()
    again = Asker(semel_broker.bootstrap)
    assert values(again) == {"retention.ms": "2000"}
    again.close()


def group_values(ask: Asker, name: str = "tills") -> dict[str, tuple[str, int]]:
    """The value of each configuration of a group, and where it comes from."""
    return {config.name: (config.value, config.config_source) for config in describe(ask, GROUP, name).configs}


def test_a_group_shows_what_holds_for_it_whether_it_exists_or_not(ask: Asker) -> None:
    assert group_values(ask) == {SESSION: ("45000", DEFAULT_CONFIG), INTERVAL: ("5000", DEFAULT_CONFIG), **OF_SHARES}
    assert change(ask, "tills", (SESSION, SET, "50000"), kind=GROUP).error_code == 0
    assert group_values(ask) == {SESSION: ("50000", GROUP_CONFIG), INTERVAL: ("5000", DEFAULT_CONFIG), **OF_SHARES}
    (shown,) = describe(ask, GROUP, "tills", [SESSION], explain=True).configs
    assert [(synonym.value, synonym.source) for synonym in shown.synonyms] == [
        ("50000", GROUP_CONFIG),
        ("45000", DEFAULT_CONFIG),
    ]
    assert (shown.config_type, shown.read_only, bool(shown.documentation)) == (3, False, True)
    assert group_values(ask, "others")[SESSION] == ("45000", DEFAULT_CONFIG)
    assert replace(ask, "tills", (INTERVAL, "6000"), kind=GROUP).error_code == 0
    assert group_values(ask) == {SESSION: ("45000", DEFAULT_CONFIG), INTERVAL: ("6000", GROUP_CONFIG), **OF_SHARES}
    assert change(ask, "tills", (INTERVAL, SET, "7000"), kind=GROUP, dry=True).error_code == 0
    assert change(ask, "tills", (INTERVAL, DELETE, None), kind=GROUP).error_code == 0
    assert group_values(ask)[INTERVAL] == ("5000", DEFAULT_CONFIG)


@pytest.mark.parametrize(
    "configs",
    [
        [("streams.session.timeout.ms", "45000")],
        [("share.session.timeout.ms", "1000")],
        [("share.record.lock.duration.ms", "1")],
        [("share.delivery.count.limit", "11")],
        [("share.partition.max.record.locks", "99")],
        [("share.auto.offset.reset", "somewhere")],
        [("share.auto.offset.reset", "by_duration:PT")],
        [("share.isolation.level", "serializable")],
        [("retention.ms", "1")],
        [(SESSION, "44999")],
        [(SESSION, "60001")],
        [(INTERVAL, "4999")],
        [(INTERVAL, "15001")],
        [(SESSION, "soon")],
    ],
)
def test_a_group_takes_what_apache_kafka_would_and_nothing_else(ask: Asker, configs: list[tuple[str, str]]) -> None:
    answer = change(ask, "tills", *[(name, SET, value) for name, value in configs], kind=GROUP)
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert configs[0][0] in answer.error_message
    assert replace(ask, "tills", *configs, kind=GROUP).error_code == ErrorCode.INVALID_CONFIG
    assert all(source == DEFAULT_CONFIG for _, source in group_values(ask).values())


def test_a_session_is_longer_than_the_interval_of_heartbeats() -> None:
    limits = Limits(consumer_group_session_timeout_ms=6_000, consumer_group_heartbeat_interval_ms=5_000)
    with FaultyBroker(limits=limits) as broker, Asker(broker.bootstrap) as ask:
        assert change(ask, "tills", (SESSION, SET, "7000"), kind=GROUP).error_code == 0
        answer = change(ask, "tills", (INTERVAL, SET, "7000"), kind=GROUP)
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.INVALID_CONFIG,
            f"{SESSION} (7000) must be above {INTERVAL} (7000)",
        )


def test_what_is_set_on_a_group_outlives_the_group_a_kill_and_a_stop(tmp_path: Path) -> None:
    with FaultyBroker(tmp_path) as broker:
        for end in (broker.kill, broker.stop, broker.kill):
            with Asker(broker.bootstrap) as again:
                assert change(again, "tills", (SESSION, SET, "50000"), kind=GROUP).error_code == 0
            end()
            broker.start()
            with Asker(broker.bootstrap) as again:
                assert group_values(again)[SESSION] == ("50000", GROUP_CONFIG)


def test_no_more_groups_have_configurations_than_there_may_be() -> None:
    with FaultyBroker(limits=Limits(groups_max=1, group_name_bytes_max=5)) as broker, Asker(broker.bootstrap) as ask:
        assert change(ask, "tills", (SESSION, SET, "50000"), kind=GROUP).error_code == 0
        assert change(ask, "carts", (SESSION, SET, "50000"), kind=GROUP).error_code == ErrorCode.POLICY_VIOLATION
        assert change(ask, "baskets", (SESSION, SET, "50000"), kind=GROUP).error_code == ErrorCode.INVALID_GROUP_ID
        assert change(ask, "tills", (SESSION, DELETE, None), kind=GROUP).error_code == 0
        assert change(ask, "carts", (SESSION, SET, "50000"), kind=GROUP).error_code == 0
