"""What the client promises while brokers come and go, topics are made anew, partitions move, and versions differ."""

import sys
import threading
import time
import uuid
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from asking import Asker
from relayed_cluster import KAFKA_2_0, KAFKA_2_8, KAFKA_4_0, RelayedCluster
from semel.client import (
    EARLIEST,
    LATEST,
    NO_ID,
    Isolation,
    LogClient,
    OffsetOutOfRange,
    Slice,
    Topic,
    TopicPartition,
    TopicRecreated,
    UnknownTopic,
    Unreachable,
    from_options,
    patience,
)
from semel.client.arrow import read_slice
from semel.testing.broker import FaultyBroker
from semel.wire.errors import ErrorCode
from semel.wire.records import Record
from semel.wire.versions import DELETE_RECORDS, DELETE_TOPICS, FETCH, VersionRange
from transacting import TransactionalProducer

COMMITTED = Isolation.READ_COMMITTED
UNCOMMITTED = Isolation.READ_UNCOMMITTED


def client_of(bootstrap: str, **options: object) -> LogClient:
    given = {f"kafka.{name.replace('_', '.')}": str(value) for name, value in options.items()}
    return LogClient(from_options({"kafka.bootstrap.servers": bootstrap, "kafka.retry.backoff.ms": "10", **given}))


def made(ask: Asker, name: str, records: int, partitions: int = 1, batches: int = 1) -> None:
    ask.create(name, partitions)
    for number in range(batches):
        ask.produce(name, [Record(b"%d-%d" % (number, i), timestamp_ms=1000 + i) for i in range(records)])


def values(client: LogClient, wanted: Slice, isolation: Isolation = COMMITTED) -> list[bytes]:
    read = list(read_slice(client, wanted, ["value"], isolation))
    return [row["value"] for batch in read for row in batch.to_pylist()]


def test_topics_are_found_by_name_and_by_pattern_and_missing_ones_are_absent(broker: FaultyBroker, ask: Asker) -> None:
    made(ask, "payments", 1, partitions=3)
    made(ask, "refunds", 1)
    with client_of(broker.bootstrap) as client:
        found = client.topics(["payments", "nothing"])
        assert found.keys() == {"payments"}
        assert found["payments"].partitions == 3
        assert found["payments"].id != NO_ID
        assert client.topics_matching("pay|fund").keys() == {"payments", "refunds"}
        assert client.topics_matching("^fund").keys() == set()
        assert client.topics([]) == {}
    assert broker.topics() == ["payments", "refunds"]


def test_offsets_are_those_of_the_ends_and_of_a_time(broker: FaultyBroker, ask: Asker) -> None:
    made(ask, "payments", 10, partitions=2)
    ask(
        DELETE_RECORDS,
        topics=[{"name": "payments", "partitions": [{"partition_index": 0, "offset": 4}]}],
        timeout_ms=1000,
    )
    full, empty = TopicPartition("payments", 0), TopicPartition("payments", 1)
    with client_of(broker.bootstrap) as client:
        assert client.offsets([full, empty], EARLIEST, COMMITTED) == {full: 4, empty: 0}
        assert client.offsets([full, empty], LATEST, COMMITTED) == {full: 10, empty: 0}
        assert client.offsets([full, empty], 1007, COMMITTED) == {full: 7, empty: None}
        assert client.offsets([], LATEST, COMMITTED) == {}


def steps_of(run: Callable[[], object]) -> int:
    """How many lines of the client are gone through, and of what Python makes for its dataclasses."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        nonlocal count
        if frame.f_code.co_filename not in (LogClient.offsets.__code__.co_filename, "<string>"):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


def test_twice_as_many_partitions_are_twice_the_work(broker: FaultyBroker, ask: Asker) -> None:
    names = [f"topic-{number}" for number in range(80)]
    for name in names:
        ask.create(name, 2)

    def steps(topic_count: int) -> int:
        # In another order than that of the answer, which has them by topics.
        wanted = [TopicPartition(name, partition) for partition in (0, 1) for name in names[:topic_count]]
        with client_of(broker.bootstrap) as client:
            # So that what is counted forgets them as well, as it does with all that it asks for again.
            client.topics(names[:topic_count])
            return steps_of(lambda: [client.topics(names[:topic_count]), client.offsets(wanted, LATEST, COMMITTED)])

    assert steps(80) < 2.2 * steps(40)


def test_the_end_of_what_is_committed_is_where_the_oldest_open_transaction_begins(
    broker: FaultyBroker, ask: Asker
) -> None:
    made(ask, "payments", 3)
    producer = TransactionalProducer(ask)
    producer.claim()
    producer.add("payments")
    producer.send("payments", "open")
    where = TopicPartition("payments", 0)
    with client_of(broker.bootstrap) as client:
        assert client.offsets([where], LATEST, COMMITTED) == {where: 3}
        assert client.offsets([where], LATEST, UNCOMMITTED) == {where: 4}


def test_aborted_records_are_left_out_of_what_is_read_committed(broker: FaultyBroker, ask: Asker) -> None:
    ask.create("payments")
    producer = TransactionalProducer(ask)
    producer.claim()
    for number, is_committed in enumerate([True, False, True, False]):
        producer.add("payments")
        producer.send("payments", f"{number}a")
        producer.send("payments", f"{number}b")
        producer.end(committed=is_committed, version=3)
    with client_of(broker.bootstrap) as client:
        topic = client.topics(["payments"])["payments"]
        assert values(client, Slice(topic, 0, 0, 12)) == [b"0a", b"0b", b"2a", b"2b"]
        assert values(client, Slice(topic, 0, 1, 8)) == [b"0b", b"2a", b"2b"]
        assert len(values(client, Slice(topic, 0, 0, 12), UNCOMMITTED)) == 8


def test_a_slice_is_cut_in_the_middle_of_its_batches_however_small_the_fetches(
    broker: FaultyBroker, ask: Asker
) -> None:
    made(ask, "payments", 10, batches=20)
    expected = [b"%d-%d" % (number, i) for number in range(20) for i in range(10)]
    with client_of(broker.bootstrap, max_partition_fetch_bytes=500) as client:
        topic = client.topics(["payments"])["payments"]
        assert values(client, Slice(topic, 0, 0, 200)) == expected
        assert values(client, Slice(topic, 0, 13, 187)) == expected[13:187]
        assert values(client, Slice(topic, 0, 5, 5)) == []


@pytest.mark.parametrize("versions", [KAFKA_2_0, KAFKA_2_8, KAFKA_4_0, {FETCH: VersionRange(4, 4)}])
def test_brokers_of_every_age_are_read_from(
    broker: FaultyBroker, ask: Asker, versions: dict[int, VersionRange]
) -> None:
    made(ask, "payments", 10, batches=3)
    with RelayedCluster(broker.bootstrap, versions=versions) as cluster, client_of(cluster.bootstrap) as client:
        topic = client.topics(["payments"])["payments"]
        where = TopicPartition("payments", 0)
        assert client.offsets([where], LATEST, COMMITTED) == {where: 30}
        assert len(values(client, Slice(topic, 0, 0, 30))) == 30
        assert cluster.asked[FETCH, min(versions[FETCH].max, 17)] > 0
        assert (topic.id == NO_ID) == (versions is KAFKA_2_0)


def test_the_newest_version_is_used_where_the_broker_is_semel(broker: FaultyBroker, ask: Asker) -> None:
    made(ask, "payments", 10)
    with RelayedCluster(broker.bootstrap) as cluster, client_of(cluster.bootstrap) as client:
        topic = client.topics(["payments"])["payments"]
        values(client, Slice(topic, 0, 0, 10))
        assert cluster.asked[FETCH, 17] == 1


def test_a_partition_that_moves_is_followed_to_its_new_leader_in_the_middle_of_a_slice(
    broker: FaultyBroker, ask: Asker
) -> None:
    made(ask, "payments", 10, batches=20)
    with (
        RelayedCluster(broker.bootstrap, brokers=3) as cluster,
        client_of(cluster.bootstrap, max_partition_fetch_bytes=500) as client,
    ):
        topic = client.topics(["payments"])["payments"]
        read = []
        for number, batch in enumerate(read_slice(client, Slice(topic, 0, 0, 200), ["offset"], COMMITTED)):
            read += batch.column(0).to_pylist()
            cluster.leader = number % 3
        assert read == list(range(200))
        cluster.leader = 2
        where = TopicPartition("payments", 0)
        assert client.offsets([where], LATEST, COMMITTED) == {where: 200}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    ],
)
def test_an_error_that_passes_is_waited_out(broker: FaultyBroker, ask: Asker, code: ErrorCode) -> None:
    made(ask, "payments", 10)
    with RelayedCluster(broker.bootstrap) as cluster, client_of(cluster.bootstrap) as client:
        cluster.fetch_errors = [code] * 3
        topic = client.topics(["payments"])["payments"]
        assert len(values(client, Slice(topic, 0, 0, 10))) == 10
        assert cluster.fetch_errors == []


def test_a_broker_that_dies_and_returns_in_the_middle_of_a_slice_is_waited_for(
    broker: FaultyBroker, ask: Asker
) -> None:
    made(ask, "payments", 10, batches=20)
    with client_of(broker.bootstrap, max_partition_fetch_bytes=500) as client:
        topic = client.topics(["payments"])["payments"]
        read = []
        for number, batch in enumerate(read_slice(client, Slice(topic, 0, 0, 200), ["offset"], COMMITTED)):
            read += batch.column(0).to_pylist()
            if number == 2:
                broker.kill()
                threading.Timer(0.2, broker.start).start()
        assert read == list(range(200))


def test_who_cannot_be_reached_is_named_when_the_time_is_up() -> None:
    with (
        client_of("127.0.0.1:1", default_api_timeout_ms=50) as client,
        pytest.raises(Unreachable, match=r"cannot connect to 127.0.0.1:1: Connection refused \(tried for 0 s"),
    ):
        client.topics(["payments"])


def test_the_second_bootstrap_server_is_asked_where_the_first_is_away(broker: FaultyBroker, ask: Asker) -> None:
    made(ask, "payments", 1)
    with client_of(f"127.0.0.1:1,{broker.bootstrap}") as client:
        assert client.topics(["payments"]).keys() == {"payments"}


def test_an_offset_that_is_gone_is_an_error_that_says_what_is_there(broker: FaultyBroker, ask: Asker) -> None:
    made(ask, "payments", 10)
    ask(
        DELETE_RECORDS,
        topics=[{"name": "payments", "partitions": [{"partition_index": 0, "offset": 4}]}],
        timeout_ms=1000,
    )
    with client_of(broker.bootstrap) as client:
        topic = client.topics(["payments"])["payments"]
        with pytest.raises(OffsetOutOfRange, match="it begins at 4 and ends at 10") as found:
            values(client, Slice(topic, 0, 2, 8))
        assert (found.value.log_start, found.value.log_end) == (4, 10)
        with pytest.raises(OffsetOutOfRange):
            values(client, Slice(topic, 0, 20, 30))


def test_records_that_do_not_come_are_an_error_when_the_time_is_up(broker: FaultyBroker, ask: Asker) -> None:
    made(ask, "payments", 10)
    with client_of(broker.bootstrap, default_api_timeout_ms=50, fetch_max_wait_ms=10) as client:
        topic = client.topics(["payments"])["payments"]
        with pytest.raises(Unreachable, match=r"gives no records from offset 10 on.*its end is 10 now"):
            values(client, Slice(topic, 0, 0, 15))


@pytest.mark.parametrize("versions", [None, KAFKA_2_8])
def test_a_topic_that_was_made_anew_is_told_from_the_one_that_was_planned(
    broker: FaultyBroker, ask: Asker, versions: dict[int, VersionRange] | None
) -> None:
    made(ask, "payments", 10)
    with RelayedCluster(broker.bootstrap, versions=versions) as cluster:
        with client_of(cluster.bootstrap) as planning:
            topic = planning.topics(["payments"])["payments"]
        ask(DELETE_TOPICS, 5, topic_names=["payments"], timeout_ms=1000)
        made(ask, "payments", 10)
        with client_of(cluster.bootstrap) as client, pytest.raises(TopicRecreated, match=str(topic.id)):
            values(client, Slice(topic, 0, 0, 10))


def test_a_topic_that_is_made_anew_while_it_is_read_is_noticed(broker: FaultyBroker, ask: Asker) -> None:
    made(ask, "payments", 10, batches=20)
    with client_of(broker.bootstrap, max_partition_fetch_bytes=500) as client:
        topic = client.topics(["payments"])["payments"]
        reading = read_slice(client, Slice(topic, 0, 0, 200), ["offset"], COMMITTED)
        next(reading)
        ask(DELETE_TOPICS, 5, topic_names=["payments"], timeout_ms=1000)
        made(ask, "payments", 10, batches=20)
        with pytest.raises(TopicRecreated):
            list(reading)


def test_what_was_never_there_is_an_unknown_topic(
    broker: FaultyBroker, ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "MISSING_SECONDS_MAX", 0.1)
    made(ask, "payments", 1)
    with client_of(broker.bootstrap) as client:
        with pytest.raises(UnknownTopic, match="no topic 'nothing'"):
            client.offsets([TopicPartition("nothing", 0)], LATEST, COMMITTED)
        with pytest.raises(UnknownTopic, match="topic 'payments' has no partition 7: its partitions are 0 to 0"):
            values(client, Slice(client.topics(["payments"])["payments"], 7, 0, 1))
        with pytest.raises(UnknownTopic, match="no topic 'gone'"):
            values(client, Slice(Topic("gone", uuid.uuid4(), 1), 0, 0, 1))


def test_a_reader_that_stops_early_leaves_a_client_that_can_be_used(broker: FaultyBroker, ask: Asker) -> None:
    made(ask, "payments", 10, batches=20)
    with client_of(broker.bootstrap, max_partition_fetch_bytes=500) as client:
        topic = client.topics(["payments"])["payments"]
        reading = read_slice(client, Slice(topic, 0, 0, 200), ["offset"], COMMITTED)
        assert next(reading).num_rows < 200
        assert client.topics(["payments"]) == {"payments": topic}
        reading.close()
        assert len(values(client, Slice(topic, 0, 0, 200))) == 200


def test_the_time_that_a_reader_takes_over_a_batch_is_not_held_against_the_brokers(
    broker: FaultyBroker, ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(ask, "payments", 10, batches=20)
    with (
        RelayedCluster(broker.bootstrap) as cluster,
        client_of(cluster.bootstrap, max_partition_fetch_bytes=500) as client,
    ):
        topic = client.topics(["payments"])["payments"]
        reading = read_slice(client, Slice(topic, 0, 0, 200), ["offset"], COMMITTED)
        read = next(reading).column(0).to_pylist()
        cluster.fetch_errors = [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NOT_LEADER_OR_FOLLOWER]
        at_work = time.monotonic
        monkeypatch.setattr(patience.time, "monotonic", lambda: at_work() + 3600)
        for batch in reading:
            read += batch.column(0).to_pylist()
        assert read == list(range(200))
        assert cluster.fetch_errors == []
