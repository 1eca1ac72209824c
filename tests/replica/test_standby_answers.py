"""What a standby answers, now that Metadata names it: it disturbs no client, whatever that asks of any broker."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from asking import Asker, ConnectionEnded
from eventually import eventually
from semel.broker.broker import Broker
from semel.broker.role import STANDBY_IDS
from semel.testing.pair import BrokerPair
from semel.testing.ports import free_port
from semel.wire import versions
from semel.wire.errors import ErrorCode

# The type of a resource.
TOPIC = 2


@pytest.fixture
def pair() -> Iterator[BrokerPair]:
    """One that forwards, because nobody has to log in."""
    with BrokerPair(lease_seconds=1.0) as pair:
        yield pair


@pytest.fixture
def strict_pair() -> Iterator[BrokerPair]:
    """One whose standby answers by itself, because the active broker has to know who asks."""
    with BrokerPair(lease_seconds=1.0, access_rules=True, super_users=["User:ANONYMOUS"], insecure=True) as pair:
        yield pair


def metadata(ask: Asker, *names: str, creates: bool = True) -> Any:
    operations = {"include_cluster_authorized_operations": False, "include_topic_authorized_operations": False}
    topics = [{"name": name} for name in names]
    return ask(versions.METADATA, 8, topics=topics, allow_auto_topic_creation=creates, **operations)


def new_producer_id(ask: Asker) -> Any:
    fields = {"transactional_id": None, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    return ask(versions.INIT_PRODUCER_ID, 4, **fields)


def retention(ask: Asker, topic: str) -> Any:
    resource = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": ["retention.ms"]}
    (found,) = ask(
        versions.DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=False, include_documentation=False
    ).results
    return found


def set_retention(ask: Asker, topic: str, value: str) -> Any:
    configs = [{"name": "retention.ms", "config_operation": 0, "value": value}]
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": configs}
    (changed,) = ask(versions.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False).responses
    return changed


def names(bootstrap: str, standbys: list[str]) -> bool:
    """Whether this broker names these standbys, by the same ids in Metadata and DescribeCluster."""
    with Asker(bootstrap) as ask:
        brokers = metadata(ask).brokers
        described = ask(
            versions.DESCRIBE_CLUSTER, 2, include_cluster_authorized_operations=False, include_fenced_brokers=False
        ).brokers
    found = {broker.node_id: f"{broker.host}:{broker.port}" for broker in brokers if broker.node_id >= STANDBY_IDS}
    same = {each.broker_id: f"{each.host}:{each.port}" for each in described if each.broker_id >= STANDBY_IDS}
    return found == same and list(found.values()) == standbys


def test_a_standby_is_named_while_it_runs_and_one_that_was_lost_is_not(pair: BrokerPair) -> None:
    for number in range(3):
        assert eventually(lambda: names(pair.active.bootstrap, [pair.standby.bootstrap]))
        assert eventually(lambda: names(pair.standby.bootstrap, [pair.standby.bootstrap]))
        pair.take_over("kill" if number else "stop", comes_back=False)
        for _ in range(20):
            assert names(pair.active.bootstrap, []), "the note of the broker that was lost does not count"
        pair.join()


def test_a_standby_forwards_what_any_broker_may_be_asked(pair: BrokerPair) -> None:
    with Asker(pair.standby.bootstrap) as ask:
        for number in range(20):
            topic = f"payments-{number}"
            (made,) = metadata(ask, topic).topics
            assert (made.error_code, len(made.partitions)) == (0, 1)
            assert set_retention(ask, topic, str(1000 + number)).error_code == 0
            assert retention(ask, topic).configs[0].value == str(1000 + number)
            assert new_producer_id(ask).error_code == 0
    assert len(pair.active._broker.log.state.catalog) == 20


def test_a_standby_answers_by_itself_where_clients_have_to_log_in(strict_pair: BrokerPair) -> None:
    with Asker(strict_pair.active.bootstrap) as ask:
        ask.create("payments", **{"retention.ms": "1234"})
    with Asker(strict_pair.standby.bootstrap) as ask:
        assert eventually(lambda: metadata(ask, "payments", creates=False).topics[0].error_code == 0)
        assert retention(ask, "payments").configs[0].value == "1234"
        assert ask(versions.LIST_GROUPS, 4, states_filter=[]).error_code == ErrorCode.NONE
        with pytest.raises(ConnectionEnded):
            set_retention(ask, "payments", "1")
    with Asker(strict_pair.standby.bootstrap) as ask, pytest.raises(ConnectionEnded):
        new_producer_id(ask)
    with Asker(strict_pair.active.bootstrap) as ask:
        assert retention(ask, "payments").configs[0].value == "1234"


def test_a_client_that_goes_on_asking_a_standby_for_a_missing_topic_is_sent_away(strict_pair: BrokerPair) -> None:
    """It would ask for ever. Who hears of the active broker for the first time is told of it before."""
    with Asker(strict_pair.standby.bootstrap) as ask:
        answer = metadata(ask, "payments")
        assert answer.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert f"{answer.brokers[0].host}:{answer.brokers[0].port}" == strict_pair.active.bootstrap
        (missing,) = metadata(ask, "payments", creates=False).topics
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(ConnectionEnded):
            metadata(ask, "payments")
    with Asker(strict_pair.active.bootstrap) as ask:
        assert metadata(ask, "payments").topics[0].error_code == 0
    with Asker(strict_pair.standby.bootstrap) as ask:
        assert eventually(lambda: metadata(ask, "payments", creates=False).topics[0].error_code == 0)


def test_a_standby_answers_by_itself_when_the_active_broker_is_lost(pair: BrokerPair) -> None:
    """At once, and whether the active broker refuses to be reached or does not answer."""
    with Asker(pair.active.bootstrap) as ask:
        ask.create("payments")
    with Asker(pair.standby.bootstrap) as ask:
        assert metadata(ask, "payments").topics[0].error_code == 0
        pair.active.kill()
        assert eventually(lambda: metadata(ask, "payments", creates=False).topics[0].error_code == 0)
        answer = metadata(ask, "payments")
        assert f"{answer.brokers[-1].host}:{answer.brokers[-1].port}" == pair.standby.bootstrap


def test_a_standby_whose_active_broker_seems_to_be_itself_does_not_forward_for_ever() -> None:
    """As behind a network that leads the address of the active broker back."""

    async def scenario() -> None:
        port = free_port()
        pair = BrokerPair(lease_seconds=1.0)
        pair.start()
        try:
            connections = 0

            async def reach(host: str, port_asked: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
                nonlocal connections
                connections += 1
                return await asyncio.open_connection("127.0.0.1", port)

            standby = Broker(store=pair._store, lease_seconds=1.0, port=port, reach=reach)
            async with standby:

                def ask() -> None:
                    with Asker(f"127.0.0.1:{port}") as asker:
                        assert metadata(asker, "payments").topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE

                await asyncio.to_thread(ask)
            assert connections == 1
        finally:
            await asyncio.to_thread(pair.stop)

    asyncio.run(scenario())
