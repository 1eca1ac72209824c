"""What a cluster is asked, how often, and whom: a change never twice, a question of whoever answers it."""

from collections.abc import Iterable, Iterator

import pytest

from asking import Asker
from plain_messages import build_request
from relayed_cluster import RelayedCluster
from semel.client import (
    AuthenticationFailed,
    ClientSettings,
    Isolation,
    LogError,
    RefusedByBroker,
    TopicPartition,
    UnknownTopic,
    admin,
    groups,
)
from semel.client.cluster import Cluster
from semel.client.connection import Connection, ConnectionLost, ConnectionRefused
from semel.client.places import Position
from semel.testing.broker import FaultyBroker
from semel.wire.errors import ErrorCode
from semel.wire.versions import CREATE_TOPICS, INIT_PRODUCER_ID, METADATA

CLAIM = {"transactional_id": None, "transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1}


def cluster_at(*ports: int) -> Cluster:
    return Cluster(ClientSettings(tuple(("127.0.0.1", port) for port in ports), connect_timeout_ms=1000))


def test_a_change_whose_answer_is_lost_is_sent_to_nobody_again(broker: FaultyBroker) -> None:
    """Only the caller knows whether a second attempt would do it twice, or say that it is done already."""
    with RelayedCluster(broker.bootstrap, brokers=2) as relayed, cluster_at(*relayed.ports) as cluster:
        relayed.answers_to_lose.update([CREATE_TOPICS, INIT_PRODUCER_ID])
        with pytest.raises(ConnectionLost):
            admin.create_topic(cluster, "payments", 1, {})
        with pytest.raises(ConnectionLost):
            cluster.ask_once(build_request(INIT_PRODUCER_ID, 4, **CLAIM))
        assert cluster.topics(["payments"]).keys() == {"payments"}
    assert [relayed.times_asked(api_key) for api_key in (CREATE_TOPICS, INIT_PRODUCER_ID)] == [1, 1]


def test_a_change_goes_to_the_first_broker_that_takes_a_connection(broker: FaultyBroker) -> None:
    with RelayedCluster(broker.bootstrap) as relayed, cluster_at(1, *relayed.ports) as cluster:
        assert cluster.ask_once(build_request(INIT_PRODUCER_ID, 4, **CLAIM)).error_code == 0


def test_a_question_goes_on_to_the_next_broker_where_one_gives_no_answer(broker: FaultyBroker, ask: Asker) -> None:
    ask.create("payments")
    with RelayedCluster(broker.bootstrap, brokers=2) as relayed, cluster_at(*relayed.ports) as cluster:
        relayed.answers_to_lose.update([METADATA])
        assert cluster.topics(["payments"]).keys() == {"payments"}


def test_an_address_may_be_wrong_only_until_somebody_has_answered_there(broker: FaultyBroker) -> None:
    settings = ClientSettings((("127.0.0.1", int(broker.bootstrap.rpartition(":")[2])),))
    with Cluster(settings, address_is_new=True) as cluster, Cluster(settings, address_is_new=True) as late:
        cluster.every_topic()
        broker.kill()
        cluster.close()
        with pytest.raises(ConnectionLost) as away:
            cluster.every_topic()
        assert not isinstance(away.value, ConnectionRefused)
        with pytest.raises(ConnectionRefused):
            late.every_topic()
        with Cluster(settings) as known, pytest.raises(ConnectionLost) as unreachable:
            known.every_topic()
        assert not isinstance(unreachable.value, ConnectionRefused)


class Expired(Connection):
    """Its login does not hold any more."""

    has_expired = True


def test_a_connection_whose_login_has_expired_is_closed_and_not_used_again(broker: FaultyBroker) -> None:
    """The broker would close it under the next request, whose answer is then lost."""
    with cluster_at(int(broker.bootstrap.rpartition(":")[2])) as cluster:
        (address,) = cluster.settings.bootstrap
        expired = Expired(address, cluster.settings)
        cluster.give_back(address, expired)
        leased = cluster.lease(address)
        assert leased is not expired
        assert leased.ask(build_request(INIT_PRODUCER_ID, 4, **CLAIM)).error_code == 0
        cluster.give_back(address, leased)
        assert cluster.lease(address) is leased
        leased.close()


class WithoutOffsets(Cluster):
    """Asks a broker that knows of no offset in any partition."""

    def offsets(
        self, partitions: Iterable[TopicPartition], at: Position, isolation: Isolation
    ) -> Iterator[tuple[TopicPartition, int | None]]:
        return ((where, None) for where in partitions)


@pytest.mark.parametrize("place", ["earliest", "latest", "7"])
def test_a_broker_that_knows_no_offset_is_one_line(place: str) -> None:
    with (
        WithoutOffsets(ClientSettings((("127.0.0.1", 1),))) as cluster,
        pytest.raises(LogError, match="does not say where payments-0 begins and ends"),
    ):
        groups.target(cluster, [TopicPartition("payments", 0)], place)


def test_a_topic_is_made_grown_described_and_deleted(broker: FaultyBroker, ask: Asker) -> None:
    with RelayedCluster(broker.bootstrap) as relayed, cluster_at(*relayed.ports) as cluster:
        assert admin.create_topic(cluster, "payments", 2, {"retention.ms": "60000"}) == 2
        admin.grow_topic(cluster, "payments", 3)
        assert cluster.topics(["payments"])["payments"].partitions == 3
        assert [one.value for one in admin.configs_of(cluster, "payments", ["retention.ms"])] == ["60000"]
        assert admin.producers_of(cluster, TopicPartition("payments", 2)) == []
        admin.delete_topic(cluster, "payments")
        assert cluster.topics(["payments"]) == {}


def test_a_refusal_has_its_code_or_names_the_right_that_is_missing(broker: FaultyBroker, ask: Asker) -> None:
    ask.create("payments")
    with RelayedCluster(broker.bootstrap) as relayed, cluster_at(*relayed.ports) as cluster:
        with pytest.raises(RefusedByBroker, match="'payments' exists already") as told:
            admin.create_topic(cluster, "payments", 1, {})
        assert told.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
        with pytest.raises(RefusedByBroker, match="INVALID_PARTITIONS"):
            admin.grow_topic(cluster, "payments", 1)
        with pytest.raises(UnknownTopic, match="there is no topic 'refunds'"):
            admin.delete_topic(cluster, "refunds")
        relayed.configs_error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(AuthenticationFailed, match="needs the right DescribeConfigs on topic 'payments'"):
            admin.configs_of(cluster, "payments", None)
