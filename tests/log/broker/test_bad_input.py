"""Bad input against the real process: the right error or the end of the connection, and nobody else notices.

One process serves the whole file, with an honest producer beside it all the time. At the end it must be alive, must
have printed no traceback, and must hold every record of the honest one once and in order.
"""

import random
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from crc32c import crc32c

import plain_messages as messages
from asking import Asker, ConnectionEnded, at, topic_wanted
from semel.log.broker.apis import APIS
from semel.testing.served import ServedBroker
from semel.wire.batch import (
    CHECKED_FROM,
    CHECKSUM,
    CHECKSUM_POSITION,
    CODEC_SIGNATURES,
    CONTROL_BIT,
    HEADER_BYTES,
    MAGIC_POSITION,
    MAX_TIMESTAMP_POSITION,
    close_batch,
    read_header,
)
from semel.wire.errors import ErrorCode
from semel.wire.frames import parse_response_header
from semel.wire.records import decode_batches, encode_batch
from semel.wire.versions import (
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
)

COUNT_POSITION = 57
ATTRIBUTES_POSITION = 21
HUGE = 2**31 - 1


class HonestProducer(threading.Thread):
    """An idempotent producer that goes on the whole time and wants to hear nothing of what others do."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.sent = 0
        self.errors: list[str] = []
        self.offsets: list[int] = []
        self._enough = threading.Event()
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1, "log_level": 0}
        self._producer = Producer(settings | {"error_cb": lambda error: self.errors.append(str(error))})
        self.start()

    def run(self) -> None:
        while not self._enough.is_set():
            self._producer.produce("honest", str(self.sent).encode(), partition=0, callback=self._answered)
            self.sent += 1
            self._producer.poll(0.002)
        assert self._producer.flush(60) == 0

    def finish(self) -> None:
        self._enough.set()
        self.join()

    def _answered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
        self.offsets.append(message.offset() or 0)


def read_back(bootstrap: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "honest", "enable.auto.commit": False})
    consumer.assign([TopicPartition("honest", 0, 0)])
    values: list[bytes | None] = []
    while len(values) < count:
        message = consumer.poll(30)
        assert message is not None, "the consumer stands still"
        values.append(message.value())
    consumer.close()
    return values


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The process, with the honest one beside it; what both have to show is looked at when all tests are done."""
    with ServedBroker(tmp_path_factory.mktemp("data"), "--limit=topics_max=100", "--log-level=error") as broker:
        setup = Asker(broker.bootstrap)
        setup.create("honest")
        setup.create("payments")
        setup.close()
        honest = HonestProducer(broker.bootstrap)
        yield broker.bootstrap
        honest.finish()
        assert broker.exit_code is None, "the broker died"
        assert honest.errors == []
        assert honest.offsets == list(range(honest.sent))
        assert read_back(broker.bootstrap, honest.sent) == [str(number).encode() for number in range(honest.sent)]
    assert (broker.exit_code, broker.output) == (0, "")


@pytest.fixture
def ask(bootstrap: str) -> Iterator[Asker]:
    asker = Asker(bootstrap)
    yield asker
    asker.close()


def is_closed_by(asker: Asker, sent: bytes) -> bool:
    try:
        asker.post(sent)
        asker.read()
    except (ConnectionEnded, ConnectionResetError, BrokenPipeError):
        return True
    return False


def framed(api_key: int, version: int, body: bytes, *, flexible: bool = False) -> bytes:
    header = struct.pack(">hhih", api_key, version, 7, -1) + (b"\x00" if flexible else b"")
    return struct.pack(">i", len(header) + len(body)) + header + body


def produced(ask: Asker, batch: bytes | None, *, topic: str = "payments", partition: int = 0, version: int = 9) -> int:
    """The error code that a batch gets."""
    data = [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}]
    answer = ask(PRODUCE, version, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)
    return int(answer.responses[0].partition_responses[0].error_code)


def batch_with(position: int, value: bytes, *, checksum: bool = True) -> bytes:
    """A good batch in which some bytes are others, with the checksum that belongs to them or the old one."""
    batch = bytearray(encode_batch(at(1, 2, 3)))
    batch[position : position + len(value)] = value
    if checksum:
        CHECKSUM.pack_into(batch, CHECKSUM_POSITION, crc32c(memoryview(batch)[CHECKED_FROM:]))
    return bytes(batch)


# -- bytes that are no requests -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", id="http"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), id="tls"),
        pytest.param(b"\xff" * 1000, id="ones"),
        pytest.param(struct.pack(">i", HUGE), id="a size beyond the limit"),
        pytest.param(struct.pack(">i", -1), id="a negative size"),
        pytest.param(struct.pack(">i", -(2**31)), id="the most negative size"),
        pytest.param(struct.pack(">i", 0), id="an empty frame"),
        pytest.param(struct.pack(">i", 3) + b"abc", id="a frame without a header"),
        pytest.param(struct.pack(">ihhih", 10, METADATA, 1, 7, 1000), id="a client id longer than its frame"),
        pytest.param(struct.pack(">ihhih", 10, METADATA, 1, 7, -2), id="a client id of negative length"),
        pytest.param(framed(-1, 0, b""), id="a negative API key"),
        pytest.param(framed(999, 0, b""), id="an unknown API key"),
        pytest.param(framed(METADATA, -1, bytes(10)), id="a negative version"),
        pytest.param(framed(METADATA, 99, bytes(10), flexible=True), id="a version too high"),
        pytest.param(framed(PRODUCE, 2, bytes(20)), id="a Produce of old message formats"),
        pytest.param(framed(FETCH, 0, bytes(20)), id="a version too low"),
    ],
)
def test_what_is_no_request_ends_the_connection(ask: Asker, sent: bytes) -> None:
    assert is_closed_by(ask, sent)


COMPACT_HUGE = b"\xff\xff\xff\xff\x07"


@pytest.mark.parametrize(
    ("api_key", "version", "before"),
    [
        pytest.param(METADATA, 1, b"", id="Metadata"),
        pytest.param(METADATA, 12, b"", id="Metadata, compact"),
        pytest.param(PRODUCE, 3, struct.pack(">hhi", -1, -1, 1000), id="Produce"),
        pytest.param(PRODUCE, 9, b"\x00" + struct.pack(">hi", -1, 1000), id="Produce, compact"),
        pytest.param(FETCH, 4, struct.pack(">iiiib", -1, 0, 0, 1000, 0), id="Fetch"),
        pytest.param(FETCH, 12, struct.pack(">iiiibii", -1, 0, 0, 1000, 0, 0, -1), id="Fetch, compact"),
        pytest.param(LIST_OFFSETS, 1, struct.pack(">i", -1), id="ListOffsets"),
        pytest.param(CREATE_TOPICS, 2, b"", id="CreateTopics"),
        pytest.param(CREATE_TOPICS, 5, b"", id="CreateTopics, compact"),
    ],
)
def test_an_array_of_two_billion_in_a_tiny_frame_ends_the_connection(
    ask: Asker, api_key: int, version: int, before: bytes
) -> None:
    flexible = version in (5, 9, 12)
    count = COMPACT_HUGE if flexible else struct.pack(">i", HUGE)
    assert is_closed_by(ask, framed(api_key, version, before + count + bytes(8), flexible=flexible))


def test_a_frame_that_never_ends_holds_up_nobody(bootstrap: str, ask: Asker) -> None:
    """When it ends the connection is a matter of limits: see test_limits.py."""
    silent = Asker(bootstrap)
    silent.post(struct.pack(">ihh", 1000, PRODUCE, 9))
    assert produced(ask, bytes(encode_batch(at(1)))) == 0
    silent.close()


def test_a_request_may_come_one_byte_at_a_time(ask: Asker) -> None:
    ask._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in framed(API_VERSIONS, 0, b""):
        ask.post(bytes([byte]))
    correlation_id, body = parse_response_header(API_VERSIONS, 0, frame := ask.read())
    assert correlation_id == 7
    assert messages.decode_response(API_VERSIONS, 0, frame[body:]).error_code == 0


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_a_version_of_apiversions_that_is_too_high_is_answered_in_the_oldest_shape(ask: Asker, version: int) -> None:
    frame = ask.send(framed(API_VERSIONS, version, b"\x01\x01\x00", flexible=True))
    _, body = parse_response_header(API_VERSIONS, 0, frame)
    answer = messages.decode_response(API_VERSIONS, 0, frame[body:])
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    (own,) = answer.api_keys
    assert (own.api_key, own.min_version, own.max_version) == (API_VERSIONS, *APIS[API_VERSIONS].versions)


def test_requests_that_chance_has_changed_are_answered_or_end_their_connection(bootstrap: str, ask: Asker) -> None:
    """Seeded, so that a failure comes again."""
    chance = random.Random(7)
    batch = bytes(encode_batch(at(1, 2)))
    data = [{"name": "payments", "partition_data": [{"index": 0, "records": batch}]}]
    good = [
        messages.encode_request(
            PRODUCE,
            9,
            7,
            "chance",
            messages.build_request(PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data),
        ),
        framed(METADATA, 1, struct.pack(">i", -1)),
        framed(API_VERSIONS, 3, b"\x02a\x02b\x00", flexible=True),
        framed(FETCH, 4, struct.pack(">iiiib", -1, 0, 0, 1000, 0) + struct.pack(">i", 0)),
    ]
    port = int(bootstrap.rpartition(":")[2])
    for _ in range(400):
        frame = bytearray(chance.choice(good))
        for _ in range(chance.randint(1, 6)):
            frame[chance.randrange(4, len(frame))] = chance.randrange(256)
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.sendall(frame)
            # Whatever it asks for, no more comes from here, so that nothing is waited for.
            client.shutdown(socket.SHUT_WR)
            try:
                while client.recv(65536):
                    pass
            except ConnectionResetError:
                continue
    assert produced(ask, batch) == 0


# -- batches ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        pytest.param(None, ErrorCode.INVALID_RECORD, id="none"),
        pytest.param(b"", ErrorCode.INVALID_RECORD, id="empty"),
        pytest.param(bytes(5), ErrorCode.CORRUPT_MESSAGE, id="five bytes"),
        pytest.param(batch_with(MAGIC_POSITION, b"\x00"), ErrorCode.INVALID_RECORD, id="message format 0"),
        pytest.param(batch_with(MAGIC_POSITION, b"\x01"), ErrorCode.INVALID_RECORD, id="message format 1"),
        pytest.param(batch_with(HEADER_BYTES, b"!", checksum=False), ErrorCode.CORRUPT_MESSAGE, id="wrong checksum"),
        pytest.param(
            batch_with(ATTRIBUTES_POSITION, struct.pack(">h", CONTROL_BIT)), ErrorCode.INVALID_RECORD, id="control"
        ),
        pytest.param(batch_with(COUNT_POSITION, struct.pack(">i", 2)), ErrorCode.INVALID_RECORD, id="count too low"),
        pytest.param(batch_with(COUNT_POSITION, struct.pack(">i", 0)), ErrorCode.INVALID_RECORD, id="count of 0"),
        pytest.param(batch_with(COUNT_POSITION, struct.pack(">i", -1)), ErrorCode.INVALID_RECORD, id="count of -1"),
        pytest.param(bytes(encode_batch(at(1))) * 2, ErrorCode.INVALID_RECORD, id="two batches"),
        pytest.param(bytes(encode_batch(at(1)))[:-1], ErrorCode.CORRUPT_MESSAGE, id="shorter than it says"),
        pytest.param(batch_with(8, struct.pack(">i", HUGE)), ErrorCode.CORRUPT_MESSAGE, id="length too large"),
        pytest.param(batch_with(8, struct.pack(">i", -1)), ErrorCode.CORRUPT_MESSAGE, id="length negative"),
        pytest.param(
            batch_with(ATTRIBUTES_POSITION, struct.pack(">h", 7)), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, id="codec 7"
        ),
        pytest.param(
            bytes(encode_batch(at(1), producer_id=5, producer_epoch=0, base_sequence=-1)),
            ErrorCode.INVALID_RECORD,
            id="a producer without a sequence",
        ),
        *(
            pytest.param(
                batch_with(ATTRIBUTES_POSITION, struct.pack(">h", codec)),
                ErrorCode.CORRUPT_MESSAGE,
                id=f"garbage in codec {codec}",
            )
            for codec in CODEC_SIGNATURES
        ),
    ],
)
def test_a_batch_that_is_none_is_refused_with_its_error_and_nothing_is_written(
    ask: Asker, batch: bytes | None, error: int
) -> None:
    before = ask.fetch("payments").high_watermark
    assert produced(ask, batch) == error
    assert ask.fetch("payments").high_watermark == before


UNREADABLE = {
    "forty times 0xff": [b"\xff" * 40],
    "a record that goes on behind the batch": [b"\x64\x00\x00\x00\x01\x02v\x00"],
    "an offset out of place": [b"\x0e\x00\x00\x02\x01\x02v\x00"],
    "a key of length -2": [b"\x0e\x00\x00\x00\x03\x02v\x00"],
    "more headers than bytes": [b"\x0e\x00\x00\x00\x01\x02v\x7e"],
    "bytes behind the last record": [b"\x0e\x00\x00\x00\x01\x02v\x00", b"\x00" * 7],
}


@pytest.mark.parametrize("version", [3, 9])
@pytest.mark.parametrize("records", UNREADABLE.values(), ids=UNREADABLE)
def test_a_batch_that_no_reader_could_read_is_refused_and_its_readers_go_on(
    bootstrap: str, ask: Asker, records: list[bytes], version: int
) -> None:
    """Else whoever comes to it would end there, each time."""
    header = read_header(encode_batch(at(1)))
    before = ask.fetch("payments").high_watermark
    assert produced(ask, bytes(close_batch(header, b"".join(records))), version=version) == ErrorCode.INVALID_RECORD
    assert ask.fetch("payments").high_watermark == before
    assert produced(ask, bytes(encode_batch(at(1)))) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody", "log_level": 0})
    consumer.assign([TopicPartition("payments", 0, before)])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    assert (message.error(), message.offset()) == (None, before)


def test_the_record_that_no_reader_could_read_is_named(ask: Asker) -> None:
    good, bad = b"\x0e\x00\x00\x00\x01\x02v\x00", b"\x0e\x00\x00\x04\x01\x02v\x00"
    header = read_header(encode_batch(at(1, 1)))
    data = [{"name": "payments", "partition_data": [{"index": 0, "records": bytes(close_batch(header, good + bad))}]}]
    answer = ask(PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)
    (refused,) = answer.responses[0].partition_responses
    assert [(one.batch_index, one.batch_index_error_message) for one in refused.record_errors] == [
        (1, "its offset delta is 2")
    ]
    assert refused.error_message == "record 1 of the batch: its offset delta is 2"


@pytest.mark.parametrize("claimed_ms", [1, 10**12, -(2**62)])
def test_the_time_that_retention_trusts_is_that_of_the_records(ask: Asker, claimed_ms: int) -> None:
    """A client that says a batch is of the year 1970, or of 2001, has it deleted with its records' time, not with
    that; as in Apache Kafka."""
    lying = batch_with(MAX_TIMESTAMP_POSITION, struct.pack(">q", claimed_ms))
    before = ask.fetch("payments").high_watermark
    assert produced(ask, lying) == 0
    stored = read_header(ask.fetch("payments", offset=before).records)
    assert (stored.base_timestamp, stored.max_timestamp) == (1, 3)


def test_bits_of_the_attributes_that_mean_nothing_change_nothing(ask: Asker) -> None:
    """Apache Kafka accepts them as well."""
    batch = batch_with(ATTRIBUTES_POSITION, struct.pack(">h", -128))
    before = ask.fetch("payments").high_watermark
    assert produced(ask, batch) == 0
    (read,) = decode_batches(ask.fetch("payments", offset=before).records)
    assert len(read.records) == 3


def test_a_count_of_a_million_records_in_a_few_bytes_is_refused(ask: Asker) -> None:
    batch = bytearray(batch_with(COUNT_POSITION, struct.pack(">i", 10**6)))
    struct.pack_into(">i", batch, 23, 10**6 - 1)
    CHECKSUM.pack_into(batch, CHECKSUM_POSITION, crc32c(memoryview(batch)[CHECKED_FROM:]))
    assert produced(ask, bytes(batch)) == ErrorCode.INVALID_RECORD


def test_what_does_not_exist_is_unknown(ask: Asker) -> None:
    good = bytes(encode_batch(at(1)))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for partition in (1, 10**6, HUGE, -1):
        assert produced(ask, good, partition=partition) == unknown
        assert ask.fetch("payments", partition=partition).error_code == unknown
    assert produced(ask, good, topic="nowhere") == unknown
    assert ask.fetch("nowhere").error_code == unknown


@pytest.mark.parametrize("offset", [-1, -5, 10**12, 2**63 - 1, -(2**63)])
def test_an_offset_out_of_range_is_said_to_be_so(ask: Asker, offset: int) -> None:
    assert ask.fetch("payments", offset).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# -- topics -------------------------------------------------------------------------------------------------------

NOT_NAMES = ["", ".", "..", "a/b", "a b", "x" * 250, "naïve", "a\x00b", "../../etc/passwd", "a\nb", "💥"]


def created(ask: Asker, name: str, partitions: int = 1) -> int:
    (answer,) = ask(CREATE_TOPICS, topics=[topic_wanted(name, partitions)], timeout_ms=1000).topics
    return int(answer.error_code)


@pytest.mark.parametrize("name", NOT_NAMES)
def test_a_name_that_is_not_allowed_makes_no_topic(ask: Asker, name: str) -> None:
    assert created(ask, name) == ErrorCode.INVALID_TOPIC_EXCEPTION
    (described,) = ask(METADATA, 4, topics=[{"name": name}], allow_auto_topic_creation=True).topics
    assert described.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("partitions", [0, -2, 10**9, HUGE])
def test_a_number_of_partitions_that_is_none_makes_no_topic(ask: Asker, partitions: int) -> None:
    assert created(ask, "many", partitions) == ErrorCode.INVALID_PARTITIONS
    wanted = {"name": "payments", "count": partitions, "assignments": None}
    (answer,) = ask(CREATE_PARTITIONS, topics=[wanted], timeout_ms=1000, validate_only=False).results
    assert answer.error_code == ErrorCode.INVALID_PARTITIONS
    names = {topic.name for topic in ask(METADATA, 4, topics=None, allow_auto_topic_creation=False).topics}
    assert "many" not in names
