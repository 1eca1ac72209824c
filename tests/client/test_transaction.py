"""What a transaction promises: all of it once or nothing, whatever happens to answers, leaders and rivals meanwhile."""

import threading
import time
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from transacted import NAME, TIMEOUT_MS, client_of, places, stored, write

from asking import Asker
from relayed_cluster import KAFKA_2_8, KAFKA_4_0, RelayedCluster
from semel.client import RefusedByBroker, TopicPartition, UnknownTopic, from_options, patience
from semel.client.arrow.encoding import Columns, encoded
from semel.client.cluster import GROUP
from semel.client.connection import Connection, ConnectionLost
from semel.client.errors import LogError
from semel.client.groups import Committed, committed
from semel.client.sender import Sender, requests_of
from semel.client.transaction import TookTooLong, Transaction
from semel.testing.broker import FaultyBroker
from semel.wire.errors import ErrorCode
from semel.wire.produce_client import PartitionBatch, PartitionProduced
from semel.wire.records import read_header
from semel.wire.versions import DELETE_TOPICS, FIND_COORDINATOR, INIT_PRODUCER_ID, PRODUCE, VersionRange

SETTINGS = from_options({"kafka.bootstrap.servers": "127.0.0.1:1"})


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_was_committed_is_there_once_and_in_order(broker: FaultyBroker, ask: Asker, codec: str) -> None:
    ask.create("payments", 3)
    # So small that nearly every batch is a request of its own, and the pipeline of requests fills up.
    with client_of(broker.bootstrap, max_request_size=1_000, compression_type=codec) as client:
        transaction = Transaction(client, NAME, TIMEOUT_MS)
        for number, where in enumerate(places(3)):
            write(transaction, where, range(100 * number, 100 * number + 100))
        assert stored(broker) == []
        transaction.commit()
    assert stored(broker) == list(range(300))


def test_lost_answers_double_nothing(broker: FaultyBroker, ask: Asker) -> None:
    ask.create("payments", 2)
    with client_of(broker.bootstrap, max_request_size=1_000) as client:
        transaction = Transaction(client, NAME, TIMEOUT_MS)
        for turn in range(10):
            broker.drop_acks(1)
            for number, where in enumerate(places(2)):
                write(transaction, where, range(1000 * number + 30 * turn, 1000 * number + 30 * turn + 30))
        transaction.commit()
    assert stored(broker) == [*range(300), *range(1000, 1300)]


def test_a_broker_that_dies_and_returns_has_everything_once(broker: FaultyBroker, ask: Asker) -> None:
    ask.create("payments")
    with client_of(broker.bootstrap, max_request_size=1_000) as client:
        transaction = Transaction(client, NAME, TIMEOUT_MS)
        write(transaction, *places(1), range(100))
        broker.kill()
        starting = threading.Timer(0.1, broker.start)
        starting.start()
        write(transaction, *places(1), range(100, 200))
        transaction.commit()
        starting.join()
    assert stored(broker) == list(range(200))


def test_a_leader_that_moves_takes_everything_once_and_in_order(broker: FaultyBroker, ask: Asker) -> None:
    ask.create("payments", 2)
    with (
        RelayedCluster(broker.bootstrap, brokers=3) as cluster,
        client_of(cluster.bootstrap, max_request_size=1_000) as client,
    ):
        transaction = Transaction(client, NAME, TIMEOUT_MS)
        for turn in range(9):
            cluster.leader = turn % 3
            for number, where in enumerate(places(2)):
                write(transaction, where, range(1000 * number + 30 * turn, 1000 * number + 30 * turn + 30))
        transaction.commit()
    assert stored(broker) == [*range(270), *range(1000, 1270)]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
@pytest.mark.parametrize("is_stored", [True, False])
def test_an_error_that_passes_is_waited_out_whether_the_batch_was_stored_or_not(
    broker: FaultyBroker, ask: Asker, code: ErrorCode, is_stored: bool
) -> None:
    ask.create("payments")
    with (
        RelayedCluster(broker.bootstrap) as cluster,
        client_of(cluster.bootstrap, max_request_size=1_000) as client,
    ):
        transaction = Transaction(client, NAME, TIMEOUT_MS)
        write(transaction, *places(1), range(50))
        cluster.stores_what_fails = is_stored
        cluster.produce_errors = [code] * 3
        write(transaction, *places(1), range(50, 200))
        transaction.commit()
        assert cluster.produce_errors == []
    assert stored(broker) == list(range(200))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            ErrorCode.MESSAGE_TOO_LARGE,
            "partition payments-0: the batch; set kafka.batch.size to less, or the topic's max.message.bytes to more (",
        ),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "partition payments-0: the broker refuses (OUT_OF_ORDER"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "partition payments-0: this user may not use it"),
        (ErrorCode.INVALID_TXN_STATE, "partition payments-0: the broker refuses (INVALID_TXN_STATE)"),
    ],
)
def test_an_error_that_stays_is_told_and_nothing_is_committed(
    broker: FaultyBroker, ask: Asker, code: ErrorCode, expected: str
) -> None:
    ask.create("payments")
    with RelayedCluster(broker.bootstrap) as cluster, client_of(cluster.bootstrap) as client:
        transaction = Transaction(client, NAME, TIMEOUT_MS)
        write(transaction, *places(1), range(50))
        cluster.stores_what_fails = True
        cluster.produce_errors = [code]
        with pytest.raises(LogError) as told:
            transaction.commit()
        transaction.abort()
    assert expected in str(told.value)
    assert stored(broker) == []
    assert not [record for record in broker.log("payments") if record.producer_epoch > 0]


@pytest.mark.parametrize("code", [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR])
def test_a_coordinator_that_is_busy_or_elsewhere_is_asked_again(
    broker: FaultyBroker, ask: Asker, code: ErrorCode
) -> None:
    ask.create("payments")
    with RelayedCluster(broker.bootstrap) as cluster, client_of(cluster.bootstrap) as client:
        cluster.coordinator_errors = [code] * 2
        transaction = Transaction(client, NAME, TIMEOUT_MS)
        cluster.coordinator_errors = [code] * 2
        write(transaction, *places(1), range(10))
        cluster.coordinator_errors = [code] * 2
        transaction.commit()
        assert cluster.coordinator_errors == []
    assert stored(broker) == list(range(10))


def test_a_transaction_that_takes_too_long_says_so(
    broker: FaultyBroker, ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask.create("payments")
    with client_of(broker.bootstrap) as client:
        transaction = Transaction(client, NAME, TIMEOUT_MS)
        write(transaction, *places(1), range(10))
        later = time.monotonic() + TIMEOUT_MS / 1000
        monkeypatch.setattr(time, "monotonic", lambda: later)
        with pytest.raises(TookTooLong, match=f"its transaction may take {TIMEOUT_MS} ms"):
            transaction.commit()
        transaction.abort()
    assert stored(broker) == []


def test_more_time_than_brokers_allow_is_refused(broker: FaultyBroker) -> None:
    with (
        client_of(broker.bootstrap) as client,
        pytest.raises(RefusedByBroker, match=r"its transaction\.max\.timeout\.ms"),
    ):
        Transaction(client, NAME, 1_000_000_000)


def test_a_topic_is_made_by_who_writes_to_it_where_the_broker_does_that(broker: FaultyBroker) -> None:
    with client_of(broker.bootstrap) as client:
        transaction = Transaction(client, NAME, TIMEOUT_MS)
        count = transaction.partition_count("payments")
        for where in places(count):
            write(transaction, where, range(where.partition, where.partition + 1))
        transaction.commit()
    assert stored(broker) == list(range(count))


def test_a_topic_that_nobody_makes_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "MISSING_SECONDS_MAX", 0.1)
    with FaultyBroker(auto_create_topics=False) as broker, client_of(broker.bootstrap) as client:
        transaction = Transaction(client, NAME, TIMEOUT_MS)
        with pytest.raises(UnknownTopic, match="no topic 'payments'"):
            transaction.partition_count("payments")


def test_a_topic_that_is_deleted_in_the_middle_is_an_error(
    broker: FaultyBroker, ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "MISSING_SECONDS_MAX", 0.1)
    ask.create("payments")
    with client_of(broker.bootstrap) as client:
        transaction = Transaction(client, NAME, TIMEOUT_MS)
        write(transaction, *places(1), range(10))
        ask(DELETE_TOPICS, 5, topic_names=["payments"], timeout_ms=1000)
        with pytest.raises(UnknownTopic):
            transaction.commit()
        transaction.abort()


@pytest.mark.parametrize("versions", [KAFKA_2_8, KAFKA_4_0, {PRODUCE: VersionRange(3, 7)}])
def test_brokers_of_every_age_are_written_to(
    broker: FaultyBroker, ask: Asker, versions: dict[int, VersionRange]
) -> None:
    ask.create("payments")
    with RelayedCluster(broker.bootstrap, versions=versions) as cluster, client_of(cluster.bootstrap) as client:
        transaction = Transaction(client, NAME, TIMEOUT_MS)
        write(transaction, *places(1), range(10))
        transaction.commit()
        announced = cluster.versions[PRODUCE].max
        assert cluster.asked[PRODUCE, min(announced, 11)] == 10
    assert stored(broker) == list(range(10))


class CountingConnection(Connection):
    """Takes every request, answers when it is asked, and counts how many are under way."""

    def __init__(self) -> None:
        self.under_way: list[Sequence[PartitionBatch]] = []
        self.most = 0
        self.is_broken = False

    def send_produce(self, asked: Sequence[PartitionBatch], transactional_id: str, timeout_ms: int) -> None:
        if self.is_broken:
            raise ConnectionLost("broken")
        self.under_way.append(asked)
        self.most = max(self.most, len(self.under_way))

    def has_answer(self) -> bool:
        return False

    def receive_produce(self) -> list[PartitionProduced]:
        if not self.under_way:
            raise ConnectionLost("broken")
        return [PartitionProduced(one.topic, one.partition, 0, 0, None) for one in self.under_way.pop(0)]


def test_no_more_is_under_way_than_a_broker_remembers() -> None:
    """Or a batch that is sent again could be taken for one that is new."""
    connection = CountingConnection()
    sender = Sender(connection, NAME, SETTINGS)
    for number in range(50):
        sender.take([PartitionBatch("t", 0, b"%d" % number)])
        sender.advance(wait_for_all=False)
    assert len(connection.under_way) == connection.most == 5
    sender.advance(wait_for_all=True)
    assert connection.under_way == list(sender.unanswered()) == []


def test_answers_that_came_before_a_connection_broke_are_heard() -> None:
    """A broker that was started again would refuse those batches: it remembers the last one alone."""
    connection = CountingConnection()
    sender = Sender(connection, NAME, SETTINGS)
    batches = [PartitionBatch("t", 0, b"%d" % number) for number in range(4)]
    sender.take(batches[:3])
    sender.advance(wait_for_all=False)
    connection.is_broken = True
    sender.take(batches[3:])
    with pytest.raises(ConnectionLost):
        sender.advance(wait_for_all=False)
    assert list(sender.unanswered()) == batches[3:]


def test_a_request_has_one_batch_of_a_partition_and_keeps_their_order() -> None:
    batches = [PartitionBatch("t", number % 3, b"%d" % number) for number in range(20)]
    requests = list(requests_of(batches, 1_000))
    assert [batch for request in requests for batch in request] == batches
    for request in requests:
        assert max(Counter(batch.partition for batch in request).values()) == 1


def test_the_numbers_of_records_go_on_from_batch_to_batch_and_begin_anew_where_they_end(
    broker: FaultyBroker, ask: Asker
) -> None:
    ask.create("payments")
    (where,) = places(1)
    # Three batches of four records each.
    three = list(encoded(Columns(pa.array([bytes(100)] * 12), None, np.full(12, 1_000)), 450))
    with client_of(broker.bootstrap) as client:
        transaction = Transaction(client, NAME, TIMEOUT_MS)
        transaction.join([where])
        for records in three:
            transaction.write(where, records)
        transaction.commit()
        numbered = [(record.offset, record.sequence) for record in broker.log("payments")]
        assert numbered == [(number, number) for number in range(12)]
        following = Transaction(client, NAME, TIMEOUT_MS)
        following.join([where])
        following._sequences[where] = 2**31 - 6
        for records in three:
            following.write(where, records)
        assert [read_header(one.batch).base_sequence for one in following._waiting] == [2**31 - 6, 2**31 - 2, 2]


def test_partitions_that_join_all_at_once_all_take_part(broker: FaultyBroker, ask: Asker) -> None:
    ask.create("payments", 3)
    ask.create("refunds", 2)
    joined = [*places(3), *places(2, "refunds")]
    with client_of(broker.bootstrap) as client:
        transaction = Transaction(client, NAME, TIMEOUT_MS)
        transaction.join(joined)
        for number, where in enumerate(joined):
            write(transaction, where, range(number, number + 1))
        transaction.commit()
    assert stored(broker) + stored(broker, "refunds") == list(range(5))


def test_a_partition_without_a_leader_keeps_nothing_of_the_others_from_coming_in_their_order(
    broker: FaultyBroker, ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask.create("payments", 2)
    first, second = places(2)
    with client_of(broker.bootstrap, max_request_size=1_000) as client:
        transaction = Transaction(client, NAME, TIMEOUT_MS)
        # More than are under way at once, so that some wait for their answers when the next ones are handed over.
        write(transaction, first, range(30))
        assert transaction._senders
        leader_of, without = client.cluster.leader_of, [second] * 2

        def no_leader_at_first(where: TopicPartition) -> tuple[str, int]:
            if where in without:
                without.remove(where)
                raise patience.Moved("no leader")
            return leader_of(where)

        monkeypatch.setattr(client.cluster, "leader_of", no_leader_at_first)
        transaction.join([second])
        for number in range(30, 60):
            write(transaction, first, range(number, number + 1))
            write(transaction, second, range(number, number + 1))
        transaction.commit()
    assert without == []
    assert stored(broker) == [*range(60), *range(30, 60)]


def test_a_leader_that_moves_before_the_last_answers_is_followed_at_once(
    broker: FaultyBroker, ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask.create("payments")
    waits: list[LogError] = []

    def wait(_: patience.Patience, reason: LogError) -> None:
        waits.append(reason)
        if len(waits) > 3:
            raise RefusedByBroker("asked too often")

    with RelayedCluster(broker.bootstrap, brokers=2) as cluster, client_of(cluster.bootstrap) as client:
        transaction = Transaction(client, NAME, TIMEOUT_MS)
        write(transaction, *places(1), range(3))
        assert client.cluster.leader_of(*places(1))[1] == cluster.ports[0]
        cluster.leader = 1
        monkeypatch.setattr(patience.Patience, "wait", wait)
        transaction.commit()
    assert len(waits) == 1
    assert stored(broker) == list(range(3))


def test_a_coordinator_that_is_elsewhere_is_looked_for_again(broker: FaultyBroker, ask: Asker) -> None:
    ask.create("payments")
    with RelayedCluster(broker.bootstrap) as cluster, client_of(cluster.bootstrap) as client:
        transaction = Transaction(client, NAME, TIMEOUT_MS)
        write(transaction, *places(1), range(10))
        assert cluster.asked[FIND_COORDINATOR, 3] == 1
        cluster.coordinator_errors = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR]
        transaction.commit()
        assert cluster.asked[FIND_COORDINATOR, 3] == 2


def test_who_asked_for_a_commit_claims_nothing_behind_it(broker: FaultyBroker, ask: Asker) -> None:
    """A commit is asked for once and for all: whether it has happened is found out by who comes next."""
    ask.create("payments")
    with RelayedCluster(broker.bootstrap) as cluster, client_of(cluster.bootstrap) as client:
        transaction = Transaction(client, NAME, TIMEOUT_MS)
        write(transaction, *places(1), range(10))
        cluster.coordinator_errors = [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
        with pytest.raises(LogError):
            transaction.commit()
        transaction.abort()
        assert cluster.asked[INIT_PRODUCER_ID, 4] == 1


class BreakingConnection(CountingConnection):
    """Breaks off in the middle of its third request, or says nothing of one partition."""

    def send_produce(self, asked: Sequence[PartitionBatch], transactional_id: str, timeout_ms: int) -> None:
        super().send_produce(asked, transactional_id, timeout_ms)
        if len(self.under_way) == 3:
            raise ConnectionLost("broken")

    def receive_produce(self) -> list[PartitionProduced]:
        return super().receive_produce()[:-1]


def test_what_a_sender_took_when_it_breaks_off_comes_back_in_its_order() -> None:
    batches = [PartitionBatch("t", 0, b"%d" % number) for number in range(6)]
    sender = Sender(BreakingConnection(), NAME, SETTINGS)
    sender.take(batches)
    with pytest.raises(ConnectionLost):
        sender.advance(wait_for_all=False)
    assert list(sender.unanswered()) == batches


def test_what_a_leader_does_not_speak_of_is_not_taken_for_written() -> None:
    batches = [PartitionBatch("t", partition, b"batch") for partition in range(2)]
    sender = Sender(BreakingConnection(), NAME, SETTINGS)
    sender.take(batches)
    with pytest.raises(ConnectionLost, match="did not answer for all"):
        sender.advance(wait_for_all=True)
    assert list(sender.unanswered()) == batches[1:]


def test_the_offsets_of_more_partitions_than_one_request_holds_are_all_committed(
    broker: FaultyBroker, ask: Asker
) -> None:
    """With those that are 0: a group that has none there may begin at the end."""
    every = {where: Committed(where.partition, None) for where in places(201)}
    ask.create("payments", 201)
    with client_of(broker.bootstrap) as client:
        transaction = Transaction(client, NAME, TIMEOUT_MS)
        write(transaction, *places(1), range(1))
        transaction.commit_offsets("billing", every)
        transaction.commit()
        found = committed(client.cluster, client.cluster.coordinator("billing", GROUP), "billing")
    assert {where: one.offset for where, one in found.items()} == {where: one.offset for where, one in every.items()}
