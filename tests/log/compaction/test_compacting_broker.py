"""A broker compacts by itself, beside its traffic, and every consumer comes to the result that it came to before."""

import threading
from collections.abc import Iterator

import pytest
from compacting import (
    COMPACTED,
    TOPIC,
    CompactingBroker,
    HeldThreads,
    Transactional,
    consumed,
    fill,
    offset_at,
    record,
)
from crc32c import crc32c
from histories import NOW_MS, last_values

from asking import Asker
from semel.log.broker.broker import Broker
from semel.log.broker.limits import Limits
from semel.log.storage.files import MemoryFile, MemoryFiles
from semel.wire.batch import CHECKED_FROM, CHECKSUM_POSITION, HEADER_BYTES, read_header
from semel.wire.errors import ErrorCode
from semel.wire.records import CODECS, Record, encode_batch
from semel.wire.steps import finish
from semel.wire.versions import DELETE_RECORDS, DELETE_TOPICS, PRODUCE

SECONDS_MAX = 30


@pytest.fixture
def broker() -> Iterator[CompactingBroker]:
    with CompactingBroker() as running:
        yield running


@pytest.fixture
def ask(broker: CompactingBroker) -> Iterator[Asker]:
    asker = Asker(broker.bootstrap)
    yield asker
    asker.close()


def test_the_last_record_of_each_key_is_left_and_nothing_else_changes_for_a_consumer(
    broker: CompactingBroker, ask: Asker
) -> None:
    ask.create(TOPIC, **COMPACTED)
    fill(ask)
    before = consumed(ask)
    broker.compact()
    after = consumed(ask)
    assert len(after) < len(before) / 2
    assert set(after) < set(before)
    assert last_values(after) == last_values(before)
    assert broker.metrics.compactions == 1
    assert broker.metrics.compaction_removed_records == len(before) - len(after)


def test_a_fetch_from_an_offset_that_is_gone_begins_with_the_next_batch(broker: CompactingBroker, ask: Asker) -> None:
    ask.create(TOPIC, **COMPACTED)
    fill(ask)
    broker.compact()
    left = [kept.offset for kept in consumed(ask)]
    for offset in range(left[-1] + 1):
        assert read_header(ask.fetch(TOPIC, offset).records).next_offset > offset
        assert [kept.offset for kept in consumed(ask, offset)] == [kept for kept in left if kept >= offset]


def test_a_topic_that_is_not_compacted_is_left_alone(broker: CompactingBroker, ask: Asker) -> None:
    ask.create(TOPIC, segment_bytes="1024")
    fill(ask)
    before = consumed(ask)
    broker.compact()
    assert consumed(ask) == before


def test_what_is_compacted_stays_however_old_it_grows(broker: CompactingBroker, ask: Asker) -> None:
    ask.create(TOPIC, **COMPACTED, retention_ms="1000", retention_bytes="0")
    ask.create("both", **{**COMPACTED, "cleanup_policy": "compact,delete"}, retention_ms="1000")
    for topic in (TOPIC, "both"):
        fill(ask, topic=topic)
    broker.compact()
    before = consumed(ask)
    broker.now_ms += 10_000
    broker.run(lambda inner: finish(inner.log.retain(inner.clock.now_ms())))
    assert consumed(ask) == before
    assert len(consumed(ask, broker.run(lambda i: i.log.state.partitions.all()[1].state.log_start), topic="both")) < 5


def test_records_of_a_topic_that_is_only_compacted_cannot_be_deleted(ask: Asker) -> None:
    ask.create(TOPIC, **COMPACTED)
    fill(ask)
    wanted = [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 3}]}]
    (answer,) = ask(DELETE_RECORDS, topics=wanted, timeout_ms=1000).topics[0].partitions
    assert answer.error_code == ErrorCode.POLICY_VIOLATION


def test_a_quiet_topic_is_compacted_when_a_record_has_waited_long_enough(broker: CompactingBroker, ask: Asker) -> None:
    ask.create(TOPIC, **{**COMPACTED, "segment_bytes": "1000000"}, max_compaction_lag_ms="5000")
    fill(ask)
    broker.now_ms += 4_999
    broker.compact()
    assert broker.metrics.compactions == 0
    broker.now_ms += 1
    broker.compact()
    assert broker.metrics.compactions == 1
    assert len(consumed(ask)) == 5
    fill(ask, rounds=1)
    assert len(consumed(ask)) == 5 + 10


def test_a_record_that_is_too_young_is_left_alone(broker: CompactingBroker, ask: Asker) -> None:
    ask.create(TOPIC, **COMPACTED, min_compaction_lag_ms="60000")
    fill(ask)
    before = consumed(ask)
    broker.now_ms += 59_999
    broker.compact()
    assert consumed(ask) == before
    broker.now_ms += 1
    broker.compact()
    assert len(consumed(ask)) < len(before)


def test_a_record_that_has_waited_too_long_is_compacted_however_little_is_new(
    broker: CompactingBroker, ask: Asker
) -> None:
    configs = {**COMPACTED, "min_cleanable_dirty_ratio": "1", "max_compaction_lag_ms": "60000"}
    ask.create(TOPIC, **configs)
    fill(ask)
    before = consumed(ask)
    broker.now_ms += 59_999
    broker.compact()
    assert consumed(ask) == before
    broker.now_ms += 1
    broker.compact()
    assert len(consumed(ask)) < len(before)


def test_a_consumer_that_has_read_half_of_what_a_pass_replaces_gets_the_rest_of_what_stays(
    broker: CompactingBroker, ask: Asker
) -> None:
    """The broker remembers where in a segment its next fetch begins, and another segment has that place."""
    ask.create(TOPIC, **{**COMPACTED, "segment_bytes": "4096"})
    for key in (b"a", b"b", b"c", b"d", *[b"a"] * 20):
        ask.produce(TOPIC, [record(key)])

    def read_one(running: Broker) -> int:
        topic = running.log.state.catalog.named(TOPIC)
        assert topic is not None
        partition = running.log.state.partitions.of(topic)[0]
        _, offset = partition.read(0, 1, partition.readable, whole_first_batch=True)
        assert offset < partition.segments[0].next_offset
        return offset

    offset = broker.run(read_one)
    before = broker.metrics.compactions
    broker.compact()
    assert broker.metrics.compactions > before
    assert [kept.key for kept in consumed(ask, offset)][:3] == [b"b", b"c", b"d"]


def test_little_that_is_new_is_left_until_there_is_more(broker: CompactingBroker, ask: Asker) -> None:
    ask.create(TOPIC, **{**COMPACTED, "min_cleanable_dirty_ratio": "0.5"})
    for number in range(30):
        ask.produce(TOPIC, [record(b"%d" % number)])
    broker.compact()
    assert broker.metrics.compactions == 1
    fill(ask, rounds=2)
    broker.compact()
    assert broker.metrics.compactions == 1
    fill(ask, rounds=10)
    broker.compact()
    assert broker.metrics.compactions == 2


def test_a_mark_of_deletion_goes_by_itself_when_its_time_is_up(broker: CompactingBroker, ask: Asker) -> None:
    ask.create(TOPIC, **COMPACTED, delete_retention_ms="1000")
    ask.produce(TOPIC, [record(b"a"), record(b"b")])
    ask.produce(TOPIC, [record(b"a", None)])
    for number in range(4):
        ask.produce(TOPIC, [record(b"other", b"%d" % number)] * 3)
    broker.compact()
    assert [(kept.offset, kept.key, kept.value is None) for kept in consumed(ask)][:2] == [
        (1, b"b", False),
        (2, b"a", True),
    ]
    broker.now_ms += 999
    broker.compact()
    assert broker.metrics.compactions == 1
    broker.now_ms += 1
    broker.compact()
    assert broker.metrics.compactions == 2
    assert [kept.offset for kept in consumed(ask)][:2] == [1, 11]


def test_a_mark_of_deletion_at_the_very_end_stays_and_a_consumer_comes_to_the_end(
    broker: CompactingBroker, ask: Asker
) -> None:
    ask.create(TOPIC, **COMPACTED, delete_retention_ms="0", max_compaction_lag_ms="5000")
    ask.produce(TOPIC, [record(b"a")])
    ask.produce(TOPIC, [record(b"a", None), record(b"b", None)])
    for _ in range(3):
        broker.now_ms += 5_000
        broker.compact()
        assert consumed(ask)[-1].offset == 2
    assert [kept.offset for kept in consumed(ask)] == [2]


def test_a_look_up_by_time_finds_the_first_record_that_is_left(broker: CompactingBroker, ask: Asker) -> None:
    ask.create(TOPIC, **COMPACTED)
    for number in range(10):
        ask.produce(
            TOPIC,
            [
                record(b"a", timestamp_ms=NOW_MS + 10 * number),
                record(b"%d" % number, None if number == 3 else b"1", timestamp_ms=NOW_MS + 10 * number + 5),
            ],
        )
    broker.compact()
    left = consumed(ask)
    assert left[0].offset == 1
    for time_ms in range(NOW_MS - 1, NOW_MS + 100):
        first = next(((kept.offset, kept.timestamp_ms) for kept in left if kept.timestamp_ms >= time_ms), (-1, -1))
        assert offset_at(ask, time_ms) == first
    assert offset_at(ask, -3) == (left[-1].offset, left[-1].timestamp_ms)


# What comes in


@pytest.mark.parametrize("codec", CODECS)
def test_records_without_a_key_are_refused_one_by_one(broker: CompactingBroker, ask: Asker, codec: str) -> None:
    ask.create(TOPIC, **COMPACTED)
    records = [record(b"a"), Record(b"no key"), record(b""), Record(None)]
    batch = bytes(encode_batch(records, codec=codec))
    data = [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}]
    for version in (7, 8, 9):
        answer = ask(PRODUCE, version, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)
        (refused,) = answer.responses[0].partition_responses
        assert refused.error_code == ErrorCode.INVALID_RECORD
        if version >= 8:
            assert [error.batch_index for error in refused.record_errors] == [1, 3]
    assert consumed(ask) == []
    ask.produce(TOPIC, [record(b"a"), record(b"")], codec=codec)
    assert len(consumed(ask)) == 2


def bomb(codec: str) -> bytes:
    return bytes(encode_batch([Record(b"0" * 1_000_000, key=b"a")], codec=codec))


def no_record() -> bytes:
    """A batch whose record goes on behind its end."""
    batch = encode_batch([Record(b"1", key=b"a")])
    batch[HEADER_BYTES] = 100
    batch[CHECKSUM_POSITION:CHECKED_FROM] = crc32c(memoryview(batch)[CHECKED_FROM:]).to_bytes(4, "big")
    return bytes(batch)


@pytest.mark.parametrize("batch", [*map(bomb, CODECS[1:]), no_record()], ids=[*CODECS[1:], "no record"])
def test_a_batch_that_could_never_be_compacted_is_refused(batch: bytes) -> None:
    with CompactingBroker(limits=Limits(compacted_batch_bytes_max=100_000)) as broker:
        ask = Asker(broker.bootstrap)
        ask.create(TOPIC, **COMPACTED)
        ask.create("plain")
        # Elsewhere a compressed batch stays closed.
        is_compressed = read_header(batch).codec != 0
        for topic, error in ((TOPIC, ErrorCode.INVALID_RECORD), ("plain", 0 if is_compressed else 87)):
            data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
            answer = ask(PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)
            assert answer.responses[0].partition_responses[0].error_code == error
        ask.close()


# What takes long to open: what becomes of it, and of its topic meanwhile.
LONG_TO_OPEN = {
    "it is stored": (4_000_000, None, ErrorCode.NONE),
    "it is refused": (8_000_000, None, ErrorCode.INVALID_RECORD),
    "its topic goes": (4_000_000, DELETE_TOPICS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
}


@pytest.mark.parametrize("what", LONG_TO_OPEN)
def test_others_are_served_while_a_batch_is_opened(what: str) -> None:
    size, deletion, error = LONG_TO_OPEN[what]
    batch = bytes(encode_batch([Record(b"0" * size, key=b"a")], codec="zstd"))
    threads = HeldThreads("semel-open")
    limits = Limits(compacted_batch_bytes_max=5_000_000)
    with (
        CompactingBroker(disk_threads=threads, limits=limits) as broker,
        Asker(broker.bootstrap) as one,
        Asker(broker.bootstrap) as other,
    ):
        one.create(TOPIC, **COMPACTED)
        other.create("other", **COMPACTED)
        data = [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}]
        answer = one.ask_later(PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)
        assert threads.has_a_job.wait(SECONDS_MAX)
        assert other.produce("other", [record(b"a")]) == 0
        if deletion is not None:
            other(deletion, 3, topic_names=[TOPIC], timeout_ms=1000)
        # It goes on with what is left to do there, and not before.
        assert broker.metrics.accepted_batches == 1
        broker.run(lambda _: threads.step())
        assert answer().responses[0].partition_responses[0].error_code == error


def test_a_client_that_is_gone_keeps_no_place_from_those_who_wait_to_have_theirs_opened() -> None:
    batch = bytes(encode_batch([Record(b"0" * 4_000_000, key=b"a")], codec="zstd"))
    data = [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}]
    threads = HeldThreads("semel-open")
    with CompactingBroker(disk_threads=threads) as broker, Asker(broker.bootstrap) as other:
        other.create(TOPIC, **COMPACTED)
        with Asker(broker.bootstrap) as one:
            one.ask_later(PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)
            assert threads.has_a_job.wait(SECONDS_MAX)
        answer = other.ask_later(PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)
        for _ in range(2):
            assert threads.has_a_job.wait(SECONDS_MAX)
            threads.has_a_job.clear()
            broker.run(lambda _: threads.step())
        assert answer().responses[0].partition_responses[0].error_code == 0


# Beside other things


def test_transactions_look_the_same_to_whoever_reads_what_is_committed(broker: CompactingBroker, ask: Asker) -> None:
    ask.create(TOPIC, **COMPACTED, delete_retention_ms="1000")
    one, two = Transactional(ask, "one"), Transactional(ask, "two")
    for number in range(12):
        one.send([record(b"a", b"%d" % number), record(b"b", b"%d" % number)])
        two.send([record(b"b", b"%d?" % number), record(b"c%d" % number)])
        one.end(number % 3 != 2)
        ask.produce(TOPIC, [record(b"plain", b"%d" % number)])
        two.end(number % 2 == 0)
    one.send([record(b"open")])
    before = consumed(ask, isolation=1)
    for _ in range(3):
        broker.compact()
        after = consumed(ask, isolation=1)
        assert last_values(after) == last_values(before)
        cleaned_until = broker.run(lambda inner: inner.log.state.partitions.all()[0].cleaned_until)
        keys = [kept.key for kept in after if kept.offset < cleaned_until]
        assert len(keys) == len(set(keys)) > 0
        broker.now_ms += 1000
    assert len(after) < len(before)
    one.end(False)
    assert last_values(consumed(ask, isolation=1)) == last_values(before)


def test_nothing_is_compacted_that_may_still_be_aborted(broker: CompactingBroker, ask: Asker) -> None:
    ask.create(TOPIC, **COMPACTED)
    producer = Transactional(ask, "one")
    producer.send([record(b"a", b"open")])
    fill(ask)
    before = consumed(ask)
    broker.compact()
    assert consumed(ask) == before
    producer.end(True)
    fill(ask, rounds=1)
    broker.compact()
    assert len(consumed(ask)) < len(before)


def test_what_is_compacted_survives_a_restart_and_a_kill(broker: CompactingBroker) -> None:
    ask = Asker(broker.bootstrap)
    ask.create(TOPIC, **COMPACTED, delete_retention_ms="1000")
    fill(ask)
    broker.compact()
    for end in (broker.stop, broker.kill, broker.stop):
        before = consumed(ask)
        ask.close()
        end()
        broker.start()
        ask = Asker(broker.bootstrap)
        after = consumed(ask)
        assert last_values(after) == last_values(before)
        fill(ask, rounds=1)
        broker.compact()
    assert len(consumed(ask)) < 12
    ask.close()


def test_records_that_come_while_others_are_compacted_are_all_there(broker: CompactingBroker, ask: Asker) -> None:
    ask.create(TOPIC, **COMPACTED)
    sent: dict[bytes, bytes] = {}

    def send() -> None:
        other = Asker(broker.bootstrap)
        for number in range(400):
            key = b"%d" % (number % 7)
            sent[key] = b"%d" % number
            other.produce(TOPIC, [record(key, sent[key], size=0), record(b"own %d" % number)])
        other.close()

    sender = threading.Thread(target=send)
    sender.start()
    while sender.is_alive():
        broker.compact()
        consumed(ask)
    sender.join()
    broker.compact()
    shown = last_values(consumed(ask))
    assert {key: shown[key].strip() for key in sent} == sent
    assert len(shown) == 400 + 7
    assert broker.metrics.compactions > 1


class Slipping(MemoryFiles):
    """From `slips` on a segment that is to be written anew cannot be: by a fault that is none of the disk's."""

    slips = False

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        if self.slips and create and path.startswith("topics/"):
            raise ValueError("a slip")
        return super().open(path, create=create)


def test_a_pass_that_fails_leaves_everything_as_it_was_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    files = Slipping()
    with CompactingBroker(files) as broker:
        ask = Asker(broker.bootstrap)
        ask.create(TOPIC, **COMPACTED)
        # So that there is something to be written of the first segments.
        ask.produce(TOPIC, [Record(b"kept", key=b"kept", timestamp_ms=NOW_MS)])
        fill(ask)
        before = consumed(ask)

        files.slips = True
        broker.compact()
        broker.compact()
        assert consumed(ask) == before
        ask.close()
    told = [message for entry in caplog.records if "compaction" in (message := entry.getMessage())]
    assert len(told) == 1
    assert "event=compaction_given_up" in told[0]


def test_a_broker_stops_in_the_middle_of_a_pass() -> None:
    files = MemoryFiles()
    with CompactingBroker(files) as broker:
        ask = Asker(broker.bootstrap)
        ask.create(TOPIC, **COMPACTED)
        fill(ask, rounds=40)
        before = last_values(consumed(ask))
        broker.run(lambda inner: inner.compactor.look())
        ask.close()
    with CompactingBroker(files) as broker:
        ask = Asker(broker.bootstrap)
        assert last_values(consumed(ask)) == before
        ask.close()


def test_keys_that_do_not_fit_the_table_are_compacted_in_several_rounds() -> None:
    with CompactingBroker(limits=Limits(compaction_key_bytes_max=210 * 12)) as broker:
        ask = Asker(broker.bootstrap)
        ask.create(TOPIC, **COMPACTED)
        for number in range(100):
            ask.produce(TOPIC, [record(b"%d" % (number * 3 % 40), b"%d" % number)])
        before = consumed(ask)
        broker.compact()
        assert broker.metrics.compactions > 3
        assert last_values(consumed(ask)) == last_values(before)
        assert len(consumed(ask)) < 46
        ask.close()


def test_a_topic_is_deleted_and_made_anew_beside_a_pass(broker: CompactingBroker, ask: Asker) -> None:
    for _ in range(5):
        ask.create(TOPIC, **COMPACTED)
        fill(ask, rounds=10)
        broker.run(lambda inner: inner.compactor.look())
        topics = [{"name": TOPIC, "topic_id": bytes(16)}]
        assert ask(DELETE_TOPICS, topics=topics, timeout_ms=1000).responses[0].error_code == 0
    broker.compact()
