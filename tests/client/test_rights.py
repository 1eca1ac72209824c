"""Which right is missing: who may not do something on a cluster is told what to ask its owners for."""

from collections.abc import Callable

import numpy
import pytest

from asking import Asker
from logged_in import MECHANISM, BrokerOfUsers
from relayed_cluster import RelayedCluster
from secured import PASSWORD, login
from semel.client import LogClient, LogError, Slice, from_options, groups, users
from semel.client.admin import sizes_of
from semel.client.arrow import read_slice
from semel.client.arrow.encoding import Columns, column_of, encoded
from semel.client.cluster import Cluster
from semel.client.errors import AuthenticationFailed
from semel.client.places import TopicPartition
from semel.client.transaction import Transaction
from semel.log.core.access import Operation, ResourceType
from semel.publish import CursorRefused, Publisher
from semel.spark.lanes import progress
from semel.spark.lanes.lane import LaneFailed, LaneWriter
from semel.spark.lanes.progress import ProgressRefused
from semel.spark.lanes.protocol import LaneClaim
from semel.testing.broker import FaultyBroker
from semel.wire.errors import ErrorCode
from semel.wire.records import Record

TIMES = numpy.array([1000])


def client_of(cluster: RelayedCluster) -> LogClient:
    return LogClient(from_options({"kafka.bootstrap.servers": cluster.bootstrap, "kafka.retry.backoff.ms": "10"}))


def test_who_may_not_see_how_the_progress_topic_is_kept_is_refused_and_told_what_it_takes(
    broker: FaultyBroker,
) -> None:
    """For who does not look cannot know whether the broker forgets what was written."""
    with RelayedCluster(broker.bootstrap) as cluster, client_of(cluster) as client:
        progress.prepare(client.settings, "progress", 1, may_grow=False)
        cluster.configs_error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for _ in range(2):
            with pytest.raises(ProgressRefused, match="needs the right DescribeConfigs on topic 'progress'"):
                progress.prepare(client.settings, "progress", 1, may_grow=False)
        cluster.configs_error = None
        assert progress.prepare(client.settings, "progress", 1, may_grow=False).partitions == 1


def test_who_may_not_read_the_markers_of_a_sink_is_refused_before_its_first_batch(broker: FaultyBroker) -> None:
    """There is no marker to read yet: the first batch would be written, and each later one would fail."""
    with RelayedCluster(broker.bootstrap) as cluster, client_of(cluster) as client:
        cluster.fetch_errors = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        with pytest.raises(ProgressRefused, match=r"cannot be read: .* needs the right Read on topic 'progress'"):
            progress.prepare(client.settings, "progress", 1, may_grow=False)
        assert progress.prepare(client.settings, "progress", 1, may_grow=False).partitions == 1


def test_a_reader_is_told_which_right_it_lacks(broker: FaultyBroker, ask: Asker) -> None:
    ask.create("payments")
    ask.produce("payments", [Record(b"one", timestamp_ms=1000)])
    with RelayedCluster(broker.bootstrap) as cluster, client_of(cluster) as client:
        topic = client.topics(["payments"])["payments"]
        cluster.fetch_errors = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        with pytest.raises(LogError, match="needs the right Read on topic 'payments'"):
            list(read_slice(client, Slice(topic, 0, 0, 1), ["value"]))


def test_who_may_not_even_see_a_topic_is_told_what_it_takes_to_do_what_it_wants(
    broker: FaultyBroker, ask: Asker
) -> None:
    """And not that it may not see it: the right to do that is part of the right that is missing."""
    ask.create("payments")
    ask.create("refunds")
    with RelayedCluster(broker.bootstrap) as cluster, client_of(cluster) as client:
        topic = client.topics(["payments"])["payments"]
        client.topic_to_write("refunds")
        client.cluster.forget("payments")
        client.cluster.forget("refunds")
        cluster.topics_error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(LogError, match="needs the right Read on topic 'payments'"):
            list(read_slice(client, Slice(topic, 0, 0, 1), ["value"]))
        with pytest.raises(LogError, match="needs the right Write on topic 'orders'"):
            Transaction(client, "lane-0", 60_000).partition_count("orders")
        # Its leader is looked for again.
        with pytest.raises(LogError, match="needs the right Write on topic 'refunds'"):
            client.cluster.leader_of(TopicPartition("refunds", 0))


def test_a_lane_that_may_not_see_its_topic_needs_the_right_to_write_to_it(broker: FaultyBroker) -> None:
    with RelayedCluster(broker.bootstrap) as cluster, client_of(cluster) as client:
        place = progress.prepare(client.settings, "progress", 1, may_grow=False)
        cluster.topics_error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(LaneFailed, match="needs the right Write on topic 'payments'"):
            LaneWriter(client.settings, place, "payments", 60_000).write(LaneClaim("sink", 0, 1, "query", 0), [])


def test_a_writer_is_told_which_right_it_lacks(broker: FaultyBroker, ask: Asker) -> None:
    ask.create("payments")
    where = TopicPartition("payments", 0)
    with RelayedCluster(broker.bootstrap) as cluster, client_of(cluster) as client:
        cluster.coordinator_errors = [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
        with pytest.raises(LogError, match="needs the right Write on transactional id 'lane-0'"):
            Transaction(client, "lane-0", 60_000)
        transaction = Transaction(client, "lane-0", 60_000)
        cluster.coordinator_errors = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        with pytest.raises(LogError, match="needs the right Write on topic 'payments'"):
            transaction.join([where])
        transaction.join([where])
        [records] = encoded(Columns(column_of(b"one"), column_of(b"key"), TIMES), 1000)
        transaction.write(where, records)
        cluster.produce_errors = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        with pytest.raises(LogError, match="needs the right Write on topic 'payments'"):
            transaction.commit()


def test_a_publisher_is_told_which_right_it_lacks(broker: FaultyBroker) -> None:
    with RelayedCluster(broker.bootstrap) as cluster:
        cluster.configs_error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(CursorRefused, match="needs the right DescribeConfigs on it"):
            Publisher(cluster.bootstrap, "orders").__enter__()
        cluster.configs_error = None
        cluster.coordinator_errors = [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 9
        with pytest.raises(CursorRefused, match="needs the right Write on transactional id 'semel-publish-orders'"):
            Publisher(cluster.bootstrap, "orders").__enter__()


@pytest.mark.parametrize(
    ("asked", "right"),
    [
        (users.users_of, "Describe on the cluster"),
        (lambda cluster: users.set_password(cluster, "anna", PASSWORD, 4096, MECHANISM), "Alter on the cluster"),
        (lambda cluster: sizes_of(cluster, [TopicPartition("payments", 0)]), "Describe on the cluster"),
        (lambda cluster: members(cluster, "describe"), "Describe on group 'shop'"),
        (lambda cluster: members(cluster, "delete"), "Delete on group 'shop'"),
    ],
)
def test_an_administrator_is_told_which_right_is_missing(asked: Callable[[Cluster], object], right: str) -> None:
    options = {f"kafka.{name}": value for name, value in login(MECHANISM.sasl_name, "app", PASSWORD).items()}
    with BrokerOfUsers() as broker:
        broker.add_user("app", PASSWORD)
        broker.create_topic("payments")
        broker.allow("app", (ResourceType.TOPIC, "payments", Operation.DESCRIBE))
        settings = from_options({"kafka.bootstrap.servers": broker.bootstrap, **options})
        with Cluster(settings) as cluster, pytest.raises(AuthenticationFailed, match=f"needs the right {right}"):
            asked(cluster)


def members(cluster: Cluster, work: str) -> None:
    (broker,) = cluster.brokers()
    if work == "delete":
        groups.delete(cluster, broker, "shop")
    else:
        groups.members(cluster, broker, groups.Listed("shop", "classic", "Empty", broker))
