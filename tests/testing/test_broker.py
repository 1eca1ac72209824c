"""What the embedded broker and the pytest plugin promise to people who test with them."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

import plain_messages as messages
import semel
from asking import Asker
from producing import deliver, idempotent_producer
from semel.log.broker.apis import APIS
from semel.log.broker.refusal import refusal
from semel.testing.broker import FaultyBroker
from semel.wire.errors import ErrorCode
from semel.wire.frames import parse_response_header
from semel.wire.messages import encode_response
from semel.wire.records import Record
from transacting import TransactionalProducer


def test_a_lost_ack_is_retried_and_stored_once(semel_broker: FaultyBroker) -> None:
    semel_broker.drop_acks(1)
    assert deliver(idempotent_producer(semel_broker), "payments", [b"100 EUR"]) == [0]
    assert [record.value for record in semel_broker.log("payments")] == [b"100 EUR"]


def test_two_lost_acks_in_a_row_change_nothing(semel_broker: FaultyBroker) -> None:
    semel_broker.drop_acks(2)
    offsets = deliver(idempotent_producer(semel_broker), "payments", [b"a", b"b", b"c"])
    assert offsets == [0, 1, 2]
    assert [record.value for record in semel_broker.log("payments")] == [b"a", b"b", b"c"]


def test_without_idempotence_a_lost_ack_books_twice(semel_broker: FaultyBroker) -> None:
    """The fault is real: a producer that does not number its batches is caught by it."""
    semel_broker.drop_acks(1)
    settings = {"bootstrap.servers": semel_broker.bootstrap, "log_level": 0, "retry.backoff.ms": 10, "linger.ms": 0}
    deliver(Producer(settings), "payments", [b"100 EUR"])
    assert [record.value for record in semel_broker.log("payments")] == [b"100 EUR"] * 2


def test_every_test_begins_without_topics(semel_broker: FaultyBroker) -> None:
    assert semel_broker.topics() == []


def test_what_was_acknowledged_is_there_after_a_kill(semel_broker: FaultyBroker) -> None:
    producer = idempotent_producer(semel_broker)
    deliver(producer, "payments", [b"before"])
    semel_broker.kill()
    semel_broker.restart()
    deliver(producer, "payments", [b"after"])
    stored = semel_broker.log("payments")
    assert [record.value for record in stored] == [b"before", b"after"]
    assert [record.sequence for record in stored] == [0, 1]


def test_an_answer_that_hangs_is_waited_for_and_not_doubled(semel_broker: FaultyBroker) -> None:
    semel_broker.hang(0.2)
    assert deliver(idempotent_producer(semel_broker), "payments", [b"slow"]) == [0]
    assert len(semel_broker.log("payments")) == 1


def test_the_log_shows_the_numbers_of_the_deduplication(semel_broker: FaultyBroker) -> None:
    deliver(idempotent_producer(semel_broker), "payments", [b"x"])
    (record,) = semel_broker.log("payments")
    assert (record.partition, record.offset, record.sequence, record.producer_epoch) == (0, 0, 0, 0)
    assert record.producer_id >= 1000


def test_the_log_shows_records_of_transactions_and_on_request_committed_ones_only(semel_broker: FaultyBroker) -> None:
    ask = Asker(semel_broker.bootstrap)
    ask.create("payments")
    producer = TransactionalProducer(ask)
    producer.claim()
    for value, committed in (("first", True), ("aborted", False), ("second", True)):
        producer.send("payments", value, version=12)
        producer.end(committed=committed, version=5)
    producer.send("payments", "open", version=12)
    ask.close()

    def values(**options: bool) -> list[bytes | None]:
        return [record.value for record in semel_broker.log("payments", **options)]

    assert values() == [b"first", b"aborted", b"second", b"open"]
    assert values(committed_only=True) == [b"first", b"second"]


def test_a_broker_on_a_directory_keeps_its_records(tmp_path: Path) -> None:
    with semel.broker(tmp_path) as broker:
        deliver(idempotent_producer(broker), "payments", [b"kept"])
    with FaultyBroker(tmp_path) as broker:
        assert [record.value for record in broker.log("payments")] == [b"kept"]


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    with semel.broker(tmp_path), pytest.raises(BlockingIOError):
        semel.broker(tmp_path).start()


def test_a_broker_lives_in_a_running_event_loop() -> None:
    async def scenario() -> list[int]:
        async with semel.Broker() as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 0})
            return await asyncio.to_thread(deliver, producer, "payments", [b"a", b"b"])

    assert asyncio.run(scenario()) == [0, 1]


def test_the_fixture_is_there_for_whoever_installs_semel(tmp_path: Path) -> None:
    (tmp_path / "test_users_own.py").write_text(
        "def test_mine(semel_broker):\n    assert semel_broker.bootstrap.startswith('127.0.0.1:')\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


OF_USERS = """
import pytest

def test_nothing_happened(semel_broker):
    semel_broker.drop_acks(2, api="EndTxn")

@pytest.mark.semel_broker(faults_must_happen=%s)
def test_nothing_had_to_happen(semel_broker):
    semel_broker.hang(1)
"""


@pytest.mark.parametrize("must_happen", [False, True])
def test_a_fault_that_never_happened_fails_the_test_that_wants_it(tmp_path: Path, must_happen: bool) -> None:
    """The setting is for all tests, and the marker for one."""
    (tmp_path / "test_users_own.py").write_text(OF_USERS % (not must_happen))
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nsemel_faults_must_happen = {must_happen}\n")
    command = [sys.executable, "-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    never = "2 x drop_acks of EndTxn" if must_happen else "1 x hang of Produce"
    assert f"faults that never happened: {never}" in done.stdout, done.stdout
    assert "2 passed, 1 error" in done.stdout


def test_faults_are_counted_when_they_happen_and_outlive_a_restart(semel_broker: FaultyBroker) -> None:
    semel_broker.drop_acks(2)
    semel_broker.hang(0.01, api="Metadata")
    assert semel_broker.fired == {}
    semel_broker.restart()
    assert semel_broker.unfired == {"drop_acks of Produce": 2, "hang of Metadata": 1}
    deliver(idempotent_producer(semel_broker), "payments", [b"100 EUR"])
    assert semel_broker.fired == {"drop_acks": 2, "hang": 1}
    assert semel_broker.unfired == {}


def test_a_fault_with_a_name_that_the_protocol_has_not_is_refused_with_the_nearest(semel_broker: FaultyBroker) -> None:
    with pytest.raises(ValueError, match="no API 'Endtxn'; do you mean 'EndTxn'"):
        semel_broker.drop_acks(api="Endtxn")
    with pytest.raises(ValueError, match="no error code 'REBALANCE_IN_PROGRES'; do you mean 'REBALANCE_IN_PROGRESS'"):
        semel_broker.fail("OffsetCommit", "REBALANCE_IN_PROGRES")
    with pytest.raises(ValueError, match=r"no API 'xyzzy'$"):
        semel_broker.hang(1, api="xyzzy")


def test_importing_semel_imports_no_broker() -> None:
    """The application pieces must not pay for a broker they do not use."""
    check = "import sys, semel; sys.exit('semel.log.broker.broker' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_a_topic_is_made_as_a_test_wants_it_and_holds_what_was_seeded(semel_broker: FaultyBroker) -> None:
    semel_broker.create_topic("orders", partitions=3, configs={"retention.ms": "60000"})
    semel_broker.seed("orders", "a", b"b", partition=2)
    semel_broker.seed("orders", Record(b"c", key=b"k"))
    stored = [(record.partition, record.offset, record.key, record.value) for record in semel_broker.log("orders")]
    assert stored == [(0, 0, b"k", b"c"), (2, 0, None, b"a"), (2, 1, None, b"b")]
    with pytest.raises(ValueError, match="no partition 3"):
        semel_broker.seed("orders", "d", partition=3)


def test_what_a_broker_refuses_by_order_is_refused_in_the_error_s_name_and_not_done(semel_broker: FaultyBroker) -> None:
    semel_broker.seed("orders", "a")
    semel_broker.fail("OffsetCommit", ErrorCode.GROUP_AUTHORIZATION_FAILED)
    consumer = Consumer({"bootstrap.servers": semel_broker.bootstrap, "group.id": "billing", "log_level": 0})
    place = TopicPartition("orders", 0, 1)
    with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
        consumer.commit(offsets=[place], asynchronous=False)
    assert consumer.committed([TopicPartition("orders", 0)])[0].offset < 0
    consumer.commit(offsets=[place], asynchronous=False)
    assert consumer.committed([TopicPartition("orders", 0)])[0].offset == 1
    consumer.close()


def test_each_api_s_refusal_can_be_sent_in_each_version() -> None:
    for api_key, api in APIS.items():
        for version in api.served:
            request = messages.build_request(api_key, version)
            answer = refusal(version, request, ErrorCode.UNKNOWN_SERVER_ERROR)
            encoded = memoryview(encode_response(answer, version, 7))[4:]
            _, body = parse_response_header(api_key, version, encoded)
            messages.decode_response(api_key, version, encoded[body:])


def test_a_refused_fetch_is_asked_for_again_and_a_refused_produce_too(semel_broker: FaultyBroker) -> None:
    semel_broker.create_topic("payments")
    semel_broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
    semel_broker.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", count=2)
    deliver(idempotent_producer(semel_broker), "payments", [b"100 EUR"])
    settings = {"bootstrap.servers": semel_broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "log_level": 0, "topic.metadata.refresh.fast.interval.ms": 10})
    consumer.assign([TopicPartition("payments", 0, 0)])
    [message] = consumer.consume(1, timeout=30)
    assert message.value() == b"100 EUR"
    consumer.close()
    assert len(semel_broker.log("payments")) == 1


def test_a_producer_is_told_the_error_that_the_test_chose(semel_broker: FaultyBroker) -> None:
    """And its connection is not closed over it, which it would take for a lost answer."""
    semel_broker.create_topic("payments")
    semel_broker.fail("Produce", "INVALID_RECORD")
    reports: list[str] = []
    producer = idempotent_producer(semel_broker)
    producer.produce("payments", b"100 EUR", on_delivery=lambda error, _: reports.append(error.name()))
    assert producer.flush(30) == 0
    assert reports == ["INVALID_RECORD"]


def test_a_member_whose_requests_are_refused_or_lost_joins_in_the_end(semel_broker: FaultyBroker) -> None:
    semel_broker.seed("orders", "a")
    for api in ("FindCoordinator", "JoinGroup", "SyncGroup"):
        semel_broker.fail(api, "COORDINATOR_LOAD_IN_PROGRESS")
    semel_broker.drop_acks(api="OffsetFetch")
    settings = {"bootstrap.servers": semel_broker.bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "log_level": 0, "retry.backoff.ms": 10, "reconnect.backoff.ms": 10})
    consumer.subscribe(["orders"])
    [message] = consumer.consume(1, timeout=30)
    assert message.value() == b"a"
    consumer.close()
