"""What has configurations is listed type by type: who has the right sees all names, in the order of Apache Kafka."""

import pytest

from asking import Asker
from guarded import CLUSTER, DENIED_CLUSTER, GuardedBroker, rule
from semel.log.core.access import CLUSTER_NAME, Operation
from semel.testing.pair import BrokerPair
from semel.wire.errors import ErrorCode
from semel.wire.versions import INCREMENTAL_ALTER_CONFIGS, LIST_CONFIG_RESOURCES

REQUEST: dict[str, list[int]] = {"resource_types": []}
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def listed(ask: Asker, *types: int) -> list[tuple[int, str]]:
    answer = ask(LIST_CONFIG_RESOURCES, 1, resource_types=types)
    assert answer.error_code == 0
    return [(resource.resource_type, resource.resource_name) for resource in answer.config_resources]


def set_session(ask: Asker, group: str, *, operation: int = 0) -> None:
    change = {"name": "consumer.session.timeout.ms", "config_operation": operation, "value": "50000"}
    resource = {"resource_type": GROUP, "resource_name": group, "configs": [change]}
    (changed,) = ask(INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=False).responses
    assert changed.error_code == 0


def test_no_types_means_all_of_them(ask: Asker) -> None:
    ask.create("orders")
    ask.create("payments")
    set_session(ask, "billing")
    topics = [(TOPIC, "orders"), (TOPIC, "payments")]
    assert listed(ask) == [(GROUP, "billing"), (BROKER_LOGGER, "1"), (BROKER, "1"), *topics]


@pytest.mark.parametrize("types", [(TOPIC,), (GROUP, BROKER), (BROKER_LOGGER,), (CLIENT_METRICS,), (TOPIC, TOPIC)])
def test_only_the_types_that_are_asked_for_are_listed_each_once(ask: Asker, types: tuple[int, ...]) -> None:
    ask.create("orders")
    set_session(ask, "billing")
    everything = listed(ask)
    assert listed(ask, *types) == [resource for resource in everything if resource[0] in types]


def test_a_group_is_listed_while_configurations_are_set_on_it(ask: Asker) -> None:
    set_session(ask, "billing")
    assert listed(ask, GROUP) == [(GROUP, "billing")]
    set_session(ask, "billing", operation=1)
    assert listed(ask, GROUP) == []


def test_a_type_that_nobody_knows_is_refused_and_nothing_is_listed(ask: Asker) -> None:
    ask.create("orders")
    for types in ([TOPIC, 3], [0], [-1], [1]):
        answer = ask(LIST_CONFIG_RESOURCES, 1, resource_types=types)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert answer.config_resources == ()


def test_the_first_version_lists_subscriptions_to_metrics_and_there_are_none(ask: Asker) -> None:
    ask.create("orders")
    answer = ask(LIST_CONFIG_RESOURCES, 0)
    assert answer.error_code == 0
    assert answer.config_resources == ()


def test_a_client_that_may_not_describe_the_cluster_s_configurations_is_refused_in_each_version(
    broker: GuardedBroker, admin: Asker, stranger: Asker
) -> None:
    admin.create("orders")
    for version in (0, 1):
        answer = stranger(LIST_CONFIG_RESOURCES, version, **REQUEST)
        assert (answer.error_code, answer.config_resources) == (DENIED_CLUSTER, ())
    broker.add(rule(CLUSTER, CLUSTER_NAME, Operation.DESCRIBE_CONFIGS))
    assert (TOPIC, "orders") in listed(stranger)


def test_the_brokers_are_the_active_one_and_its_standbys() -> None:
    with BrokerPair() as pair, Asker(pair.active.bootstrap) as ask:
        nodes = [name for _, name in listed(ask, BROKER)]
        assert len(nodes) == len(set(nodes)) == 2
