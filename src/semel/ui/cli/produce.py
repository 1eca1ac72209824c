"""`semel produce`: writes lines as records, each exactly once, however often a connection breaks.

The command is an idempotent producer: it gets an id from the broker and numbers the records that it sends to each
partition. If an answer is lost, it sends the same batch again, byte for byte, with the same numbers, so that the broker
recognizes it. It sends a batch only after the one before was acknowledged. It must never give a batch new numbers,
because that would cause a duplicate.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final, Protocol, TypeVar

from semel.client import codes
from semel.client.cluster import Cluster
from semel.client.connection import ConnectionLost
from semel.client.errors import LogError
from semel.client.patience import Moved
from semel.client.places import Topic, TopicPartition
from semel.client.topics import partitions_of
from semel.ui.cli.cluster import add_bootstrap, cluster_at, soon
from semel.ui.cli.display import printable
from semel.ui.cli.errors import Ended, Failure
from semel.ui.cli.progress import Progress
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.records import Record, encode_batch

EXAMPLE: Final = """  seq 1000 | semel produce payments
  semel produce payments --key alice --file payments.jsonl"""

# All lines that are available, up to this size, become one batch: lines that a person types are sent one by one, and
# many lines of a file together.
BATCH_BYTES: Final = 256 * 1024
# Each record also has the key, and about so many bytes of its own. With them, lines that were read together may be more
# than a broker accepts in a batch.
_RECORD_BYTES: Final = 20
_SENT_BYTES_MAX: Final = 2 * BATCH_BYTES
# No broker accepts records of this size, so the command does not look for the end of a longer line.
LINE_BYTES_MAX: Final = 16 * 1024 * 1024
# How long the command repeats a batch before it gives up.
DELIVERY_SECONDS_MAX: Final = 120.0
_REQUEST_TIMEOUT_MS: Final = 30_000
_PAUSE_SECONDS: Final = 0.1
_PAUSE_SECONDS_MAX: Final = 2.0
_SEQUENCES: Final = 1 << 31

# The errors that may pass in a moment: the same batch is sent again.
_PASSING: Final = (codes.MOVED | codes.UNKNOWN | codes.NOT_COORDINATED) - {ErrorCode.UNKNOWN_SERVER_ERROR}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "topic", metavar="TOPIC", help="created if it does not exist and the broker creates topics automatically"
    )
    parser.add_argument("--key", metavar="K", help="the key of every record; it chooses the partition")
    parser.add_argument("--partition", type=int, metavar="P", help="the partition (by key; without a key all in turn)")
    parser.add_argument("--file", metavar="FILE", help="read the lines from here instead of standard input")
    add_bootstrap(parser)


def run(options: argparse.Namespace) -> int:
    try:
        descriptor = sys.stdin.fileno() if options.file is None else os.open(options.file, os.O_RDONLY)
        size = os.fstat(descriptor).st_size
    except OSError as error:
        raise Failure(f"{options.file or 'standard input'}: {error.strerror}") from None
    key = None if options.key is None else options.key.encode()
    with cluster_at(options) as cluster:
        producer = _Producer(cluster, options.topic, key, options.partition)
        progress = Progress(f"producing to {options.topic}", size)
        sent_bytes = 0
        try:
            for lines in read_lines(descriptor):
                producer.send(lines)
                sent_bytes += sum(map(len, lines)) + len(lines)
                progress.show(sent_bytes)
        except (Failure, LogError) as failure:
            raise Failure(f"{failure}; {producer.acknowledged} records before it are acknowledged") from None
        except Ended:
            progress.end()
            producer.report()
            raise
        progress.end()
    producer.report()
    return 0


def read_lines(descriptor: int) -> Iterator[list[bytes]]:
    """The lines as they arrive, without line ends; the last one may have no line end."""
    begun = b""
    while True:
        try:
            data = os.read(descriptor, BATCH_BYTES)
        except OSError as error:
            raise Failure(f"reading the lines: {error.strerror}") from None
        if not data:
            break
        *lines, begun = (begun + data).split(b"\n")
        if len(begun) > LINE_BYTES_MAX:
            raise Failure(f"a line of more than {LINE_BYTES_MAX} bytes is no record")
        if lines:
            yield lines
    if begun:
        yield [begun]


class _Answer(Protocol):
    @property
    def error_code(self) -> int: ...


A = TypeVar("A", bound=_Answer)


class _Producer:
    """An idempotent producer that has one batch in flight."""

    def __init__(self, cluster: Cluster, name: str, key: bytes | None, partition: int | None) -> None:
        self._cluster = cluster
        topic = soon(cluster, lambda: cluster.topic_to_write(name))
        self._topic = name
        self._key = key
        answer, _ = self._until_answered(
            lambda: cluster.ask_controller(
                kafka.init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            )
        )
        if answer.error_code:
            raise codes.refusal("a producer id", answer.error_code, right="IdempotentWrite on the cluster")
        self._id: int = answer.producer_id
        self._epoch: int = answer.producer_epoch
        self._partitions = self._choose(topic, partition)
        self._batches = 0
        self._sent_again = 0
        self._next_sequences = dict.fromkeys(self._partitions, 0)
        # First and last offset of this producer's records in each partition, and their number.
        self._written: dict[TopicPartition, tuple[int, int, int]] = {}

    def _choose(self, topic: Topic, partition: int | None) -> list[TopicPartition]:
        if partition is not None:
            where = TopicPartition(topic.name, partition)
            self._cluster.leader_of(where)
            return [where]
        if self._key is not None:
            return [TopicPartition(topic.name, partition_of(self._key, topic.partitions))]
        return partitions_of(topic)

    @property
    def acknowledged(self) -> int:
        return sum(count for _, _, count in self._written.values())

    def send(self, lines: list[bytes]) -> None:
        """Return when the broker has acknowledged these lines."""
        own_bytes = _RECORD_BYTES + len(self._key or b"")
        if len(lines) > 1 and sum(map(len, lines)) + own_bytes * len(lines) > _SENT_BYTES_MAX:
            self._send_in_halves(lines)
        else:
            self._send_batch(lines)

    def _send_in_halves(self, lines: list[bytes]) -> None:
        middle = len(lines) // 2
        self.send(lines[:middle])
        self.send(lines[middle:])

    def _send_batch(self, lines: list[bytes]) -> None:
        now_ms = time.time_ns() // 1_000_000
        where = self._partitions[self._batches % len(self._partitions)]
        first_sequence = self._next_sequences[where]
        batch = encode_batch(
            [Record(line, self._key, timestamp_ms=now_ms) for line in lines],
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=first_sequence,
        )
        answer, attempts = self._until_answered(lambda: self._ask(where, bytes(batch)))
        if answer.error_code == ErrorCode.MESSAGE_TOO_LARGE and len(lines) > 1 and attempts == 1:
            # Nothing was stored, so the numbers are free for smaller batches.
            self._send_in_halves(lines)
            return
        if answer.error_code:
            message = answer.error_message
            right = f"Write on topic {self._topic!r}"
            raise codes.refusal(f"partition {where}", answer.error_code, message, right=right)
        base_offset: int = answer.base_offset
        self._sent_again += attempts > 1
        self._batches += 1
        self._next_sequences[where] = (first_sequence + len(lines)) % _SEQUENCES
        first, _, count = self._written.get(where, (base_offset, 0, 0))
        self._written[where] = (first, base_offset + len(lines) - 1, count + len(lines))

    def _until_answered(self, ask: Callable[[], A]) -> tuple[A, int]:
        """Send the same request until the answer is final; return it, and how often the request was sent."""
        deadline = time.monotonic() + DELIVERY_SECONDS_MAX
        pause_seconds = _PAUSE_SECONDS
        attempts = 0
        while True:
            attempts += 1
            try:
                answer = ask()
                if answer.error_code not in _PASSING:
                    return answer, attempts
                trouble = codes.name_of(answer.error_code)
            except (ConnectionLost, Moved) as reason:
                trouble = str(reason)
            if time.monotonic() + pause_seconds > deadline:
                raise Failure(f"no answer in {DELIVERY_SECONDS_MAX:.0f} s, what was sent last may be there ({trouble})")
            if attempts == 1:
                print(f"semel: {printable(trouble)}; sending the same again", file=sys.stderr)
            # Another broker may be the partition's leader by now.
            self._cluster.close()
            self._cluster.forget(self._topic)
            time.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, _PAUSE_SECONDS_MAX)

    def _ask(self, where: TopicPartition, batch: bytes) -> kafka.produce.PartitionProduceResponse:
        api = kafka.produce
        partition = api.PartitionProduceData(index=where.partition, records=batch)
        topic = api.TopicProduceData(name=where.topic, partition_data=[partition])
        request = api.ProduceRequest(acks=-1, timeout_ms=_REQUEST_TIMEOUT_MS, topic_data=[topic])
        answer = self._cluster.ask(self._cluster.leader_of(where), request)
        return answer.responses[0].partition_responses[0]

    def report(self) -> None:
        """Print how many records were written, and their offsets."""
        count = self.acknowledged
        again = f", {self._sent_again} sent again" if self._sent_again else ""
        batches = f"{self._batches} batch{'' if self._batches == 1 else 'es'}{again}"
        print(
            f"{count} record{'' if count == 1 else 's'} acknowledged in {batches} (producer {self._id}/{self._epoch})"
        )
        for where, (first, last, written) in sorted(self._written.items()):
            print(f"  {where}: {written} up to offset {last}, from {first}")


def partition_of(key: bytes, partition_count: int) -> int:
    """The partition that Kafka's own clients choose for a key: murmur2 of its bytes."""
    return (_murmur2(key) & 0x7FFFFFFF) % partition_count


def _murmur2(data: bytes) -> int:
    multiplier = 0x5BD1E995
    digest = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * multiplier & 0xFFFFFFFF
        word = (word ^ word >> 24) * multiplier & 0xFFFFFFFF
        digest = digest * multiplier & 0xFFFFFFFF ^ word
    if whole < len(data):
        digest = (digest ^ int.from_bytes(data[whole:], "little")) * multiplier & 0xFFFFFFFF
    digest = (digest ^ digest >> 13) * multiplier & 0xFFFFFFFF
    return digest ^ digest >> 15
