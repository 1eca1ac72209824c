"""Two brokers on one store, as processes, under real producers: whichever of them dies or stands still, what was
acknowledged is there once, and the clients go on by themselves.

They wait for leases to end, and start again on an address that nothing else may have taken meanwhile. So they are slow
tests; the same promises, with both brokers in the process of the test, are in tests/clients and tests/testing.
"""

import threading
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from asking import Asker, at
from eventually import eventually
from producing import deliver, transacted
from semel.testing.seaweedfs import SeaweedMissing, SeaweedServer
from semel.wire.errors import ErrorCode
from semel.wire.records import decode_batches, encode_batch
from semel.wire.versions import CREATE_TOPICS, DESCRIBE_CLUSTER, FIND_COORDINATOR, METADATA, OFFSET_FETCH, PRODUCE
from semel_command import semel_failure
from takeover_pair import SETTINGS, Pair, fresh_bucket, values_of

pytestmark = pytest.mark.slow


@pytest.fixture
def bucket_pair(tmp_path: Path) -> Iterator[Pair]:
    """The same on a bucket of a real SeaweedFS."""
    try:
        server = SeaweedServer()
    except SeaweedMissing as missing:
        pytest.skip(str(missing))
    try:
        pair = Pair(tmp_path, fresh_bucket(server))
        yield pair
        pair.end()
    finally:
        server.stop()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    pair.end()


def test_a_standby_says_who_is_active_and_where_it_is_and_refuses_the_rest(pair: Pair) -> None:
    _, _, port = pair.active.bootstrap.rpartition(":")
    brokers = [pair.active.bootstrap, pair.standby.bootstrap]
    assert eventually(lambda: named_at(pair.active.bootstrap) == brokers)
    with Asker(pair.active.bootstrap) as asker:
        asker.create("payments")
        asker.produce("payments", at(1))
    with Asker(pair.standby.bootstrap) as asker:

        def knows_topic() -> bool:
            metadata = asker(
                METADATA, 12, topics=None, allow_auto_topic_creation=True, include_topic_authorized_operations=False
            )
            assert [f"{broker.host}:{broker.port}" for broker in metadata.brokers] == brokers
            assert metadata.controller_id == metadata.brokers[0].node_id == 1
            return [topic.name for topic in metadata.topics] == ["payments"]

        assert eventually(knows_topic)
        (coordinator,) = asker(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["group"]).coordinators
        assert (coordinator.error_code, coordinator.port) == (0, int(port))
        described = asker(DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False)
        assert [f"{broker.host}:{broker.port}" for broker in described.brokers] == brokers
        assert described.controller_id == 1
        fetched = asker.fetch("payments")
        assert (fetched.error_code, fetched.records) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")
        data = [{"name": "payments", "partition_data": [{"index": 0, "records": bytes(encode_batch(at(1)))}]}]
        (produced,) = asker(PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data).responses
        assert produced.partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        (refused,) = asker(OFFSET_FETCH, 8, groups=[{"group_id": "group", "topics": None}], require_stable=True).groups
        assert refused.error_code == ErrorCode.NOT_COORDINATOR
        wanted = {"name": "more", "num_partitions": 1, "replication_factor": -1, "assignments": [], "configs": []}
        (created,) = asker(CREATE_TOPICS, topics=[wanted], timeout_ms=1000).topics
        assert created.error_code == ErrorCode.NOT_CONTROLLER


def named_at(bootstrap: str) -> list[str]:
    """The brokers that one of them names."""
    with Asker(bootstrap) as asker:
        fields = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
        return [f"{broker.host}:{broker.port}" for broker in asker(METADATA, 12, topics=[], **fields).brokers]


def test_the_time_on_standby_is_no_part_of_a_start(pair: Pair) -> None:
    assert pair.active.ready_seconds > 0
    pair.take_over("stop")
    assert pair.active.ready_seconds == 0


def test_an_idempotent_producer_goes_on_over_every_kind_of_takeover(pair: Pair) -> None:
    """Killed with its disk, stopped, and standing still until another has taken over: nothing lost, nothing twice."""
    producer = Producer({**SETTINGS, "bootstrap.servers": pair.bootstrap, "enable.idempotence": True})
    sent: list[bytes] = []
    acknowledged: list[bytes] = []
    over = threading.Event()

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        acknowledged.append(message.value() or b"")

    def send() -> None:
        while not over.is_set() and len(sent) < 20_000:
            value = b"%d" % len(sent)
            producer.produce("payments", value, callback=delivered)
            sent.append(value)
            producer.poll(0.002)

    sender = threading.Thread(target=send)
    sender.start()
    codes = []
    for how in ("kill", "stop", "pause"):
        before = len(acknowledged)
        assert eventually(lambda before=before: len(acknowledged) > before + 20), "the producer goes on"
        codes.append(pair.take_over(how))
    before = len(acknowledged)
    assert eventually(lambda: len(acknowledged) > before + 20), "the producer goes on"
    over.set()
    sender.join()
    assert producer.flush(60) == 0
    assert codes == [-9, 0, 3]
    assert "another broker has taken over" in pair.standby.output or pair.standby.is_standing_by
    assert acknowledged == sent
    assert values_of(pair.bootstrap, "payments") == sent


def test_a_bucket_is_all_that_two_machines_need_to_have_in_common(bucket_pair: Pair) -> None:
    settings = {**SETTINGS, "bootstrap.servers": bucket_pair.bootstrap, "enable.idempotence": True}
    producer = Producer(settings)
    sent: list[bytes] = []
    for how in ("kill", "pause", "stop"):
        values = [f"{how} {number}".encode() for number in range(20)]
        assert deliver(producer, "payments", values) == list(range(len(sent), len(sent) + 20))
        sent += values
        bucket_pair.take_over(how)
    assert values_of(bucket_pair.bootstrap, "payments") == sent


def test_a_transactional_producer_goes_on_and_every_transaction_is_there_as_a_whole(pair: Pair) -> None:
    producer = Producer(
        {**SETTINGS, "bootstrap.servers": pair.bootstrap, "transactional.id": "t", "compression.type": "none"}
    )
    producer.init_transactions(60)
    committed: list[bytes] = []
    hows = cycle(["kill", "pause", "stop"])
    for number in range(30):
        values = [b"%d.%d" % (number, part) for part in range(3)]
        in_the_middle = number % 10 == 5
        if write(producer, values, pair, next(hows) if in_the_middle else None):
            committed += values
    assert values_of(pair.bootstrap, "payments") == committed
    assert len(committed) > 60


def write(producer: Producer, values: list[bytes], pair: Pair, how: str | None) -> bool:
    """Whether these were committed together."""

    def produce() -> None:
        for value in values:
            producer.produce("payments", value)
        if how is not None:
            pair.take_over(how)

    return transacted(producer, produce, 60)


def test_five_batches_that_were_acknowledged_before_a_takeover_are_duplicates_after_it(pair: Pair) -> None:
    def pay(asker: Asker) -> list[int]:
        return [
            asker.produce("payments", at(1), producer_id=0, producer_epoch=0, base_sequence=sequence)
            for sequence in range(5)
        ]

    with Asker(pair.active.bootstrap) as asker:
        asker.create("payments")
        assert pay(asker) == [0, 1, 2, 3, 4]
    pair.take_over("kill")
    with Asker(pair.active.bootstrap) as asker:
        assert pay(asker) == [0, 1, 2, 3, 4]
        assert sum(len(batch.records) for batch in decode_batches(asker.fetch("payments").records)) == 5


def test_each_takeover_raises_the_leaders_epoch_and_the_number_of_the_broker(pair: Pair) -> None:
    with Asker(pair.active.bootstrap) as asker:
        asker.create("payments")
    pair.take_over("stop")
    with Asker(pair.active.bootstrap) as asker:
        metadata = asker(
            METADATA, 12, topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        (partition,) = metadata.topics[0].partitions
        assert (metadata.controller_id, partition.leader_id, partition.leader_epoch) == (2, 2, 2)


def test_a_store_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    message = semel_failure("serve", f"--data={tmp_path}/d", "--listen=127.0.0.1:0", f"--store=file://{tmp_path}/file")
    assert message.startswith("the store cannot be used: ")
