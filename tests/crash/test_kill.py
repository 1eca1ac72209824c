"""Real processes and a real `kill -9`, in the middle of a burst, over and over on the same directory.

It proves that no acknowledged batch lives in the memory of the process alone, and that a restart knows all that it has
to know. It proves nothing about a loss of power, since the page cache outlives the process: the matrix does that.
SEMEL_KILL_ROUNDS, 15 by default, is how often; SEMEL_KILL_SEED replays a run as far as the machine lets it.
"""

import os
import random
import socket
import threading
from collections import Counter, deque
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import plain_messages as messages
from ledger import NOW_MS
from semel.testing.served import ServedBroker
from semel.wire.batch import place, read_header
from semel.wire.frames import parse_response_header
from semel.wire.records import Record, encode_batch
from semel.wire.sequences import WINDOW_BATCHES
from semel.wire.versions import CREATE_TOPICS, FETCH, INIT_PRODUCER_ID, PRODUCE

ROUNDS = int(os.environ.get("SEMEL_KILL_ROUNDS", "15"))
SEED = int(os.environ.get("SEMEL_KILL_SEED", "20260301"))
TOPIC = "orders"
# Three producers; two of them share a partition.
PARTITIONS = (0, 0, 1)
VERSIONS = {PRODUCE: 9, FETCH: 11, INIT_PRODUCER_ID: 4, CREATE_TOPICS: 5}


class Connection:
    """Requests and answers, in order; OSError when the broker is gone."""

    def __init__(self, broker: ServedBroker) -> None:
        host, _, port = broker.bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._answers = self._socket.makefile("rb")

    def send(self, api_key: int, **values: object) -> None:
        version = VERSIONS[api_key]
        request = messages.build_request(api_key, version, **values)
        self._socket.sendall(messages.encode_request(api_key, version, 1, "kill", request))

    def receive(self, api_key: int) -> Any:
        size = self._answers.read(4)
        frame = self._answers.read(int.from_bytes(size)) if len(size) == 4 else b""
        if not frame or len(frame) < int.from_bytes(size):
            raise ConnectionError("the broker is gone")
        _, start = parse_response_header(api_key, VERSIONS[api_key], frame)
        return messages.decode_response(api_key, VERSIONS[api_key], frame[start:])

    def ask(self, api_key: int, **values: object) -> Any:
        self.send(api_key, **values)
        return self.receive(api_key)

    def send_batch(self, partition: int, sent: bytearray) -> None:
        partitions = [{"index": partition, "records": bytes(sent)}]
        topics = [{"name": TOPIC, "partition_data": partitions}]
        self.send(PRODUCE, transactional_id=None, acks=-1, timeout_ms=5000, topic_data=topics)

    def receive_offset(self) -> int:
        (answer,) = self.receive(PRODUCE).responses[0].partition_responses
        assert answer.error_code == 0, answer
        return int(answer.base_offset)

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


class Known(NamedTuple):
    """A batch that was acknowledged, and the offset it was given."""

    sent: bytearray
    offset: int


class Sender:
    """An idempotent producer as clients are: five batches in flight, and after a failure all of them again."""

    def __init__(self, connection: Connection, partition: int, chance: random.Random) -> None:
        answer = connection.ask(
            INIT_PRODUCER_ID, transactional_id=None, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1
        )
        self.producer_id = int(answer.producer_id)
        self.partition = partition
        self.known: list[Known] = []
        self.in_flight: deque[bytearray] = deque()
        self._chance = chance
        self._sequence = 0

    def next_batch(self) -> bytearray:
        count = self._chance.randrange(1, 4)
        size = self._chance.choice((100, 150, 400, 3000))
        records = [Record(b"%08d" % self._sequence * (size // 8), timestamp_ms=NOW_MS)] * count
        made = encode_batch(records, producer_id=self.producer_id, producer_epoch=0, base_sequence=self._sequence)
        self._sequence += count
        return made

    def send_again(self, connection: Connection) -> int:
        """What was in flight, then everything that may still be repeated; answers how much of it was there before."""
        for sent in self.in_flight:
            connection.send_batch(self.partition, sent)
        for _ in range(len(self.in_flight)):
            self._receive(connection)
        repeated = self.known[-WINDOW_BATCHES:]
        for sent, _ in repeated:
            connection.send_batch(self.partition, sent)
        for known in repeated:
            assert connection.receive_offset() == known.offset, "a retry got another offset than the original"
        return len(repeated)

    def burst(self, connection: Connection, acknowledged: "Gauge") -> None:
        """Produce until the broker is gone."""
        try:
            while True:
                while len(self.in_flight) < WINDOW_BATCHES:
                    self.in_flight.append(self.next_batch())
                    connection.send_batch(self.partition, self.in_flight[-1])
                self._receive(connection)
                acknowledged.add()
        except OSError:
            connection.close()

    def _receive(self, connection: Connection) -> None:
        offset = connection.receive_offset()
        self.known.append(Known(self.in_flight.popleft(), offset))


class Gauge:
    """Counts acknowledgements and says when there are enough."""

    def __init__(self, enough: int) -> None:
        self.reached = threading.Event()
        self._left = enough
        self._mutex = threading.Lock()

    def add(self) -> None:
        with self._mutex:
            self._left -= 1
            if self._left == 0:
                self.reached.set()


def stored(connection: Connection, partition: int) -> list[bytes]:
    """Every batch of a partition, byte for byte."""
    found: list[bytes] = []
    offset = 0
    while True:
        partitions = [
            {
                "partition": partition,
                "current_leader_epoch": -1,
                "fetch_offset": offset,
                "last_fetched_epoch": -1,
                "log_start_offset": -1,
                "partition_max_bytes": 1 << 20,
            }
        ]
        answer = connection.ask(
            FETCH,
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic": TOPIC, "partitions": partitions}],
            forgotten_topics_data=[],
            rack_id="",
        )
        records = answer.responses[0].partitions[0].records
        if not records:
            return found
        at = 0
        while at < len(records):
            header = read_header(records, at)
            found.append(records[at : at + header.batch_bytes])
            at += header.batch_bytes
            offset = header.next_offset


@pytest.mark.timeout(60 + 5 * ROUNDS)
def test_whenever_the_process_is_killed_every_acknowledged_batch_is_there_once(
    tmp_path: Path, fired: Counter[str], judged: Counter[str]
) -> None:
    chance = random.Random(SEED)
    with ServedBroker(tmp_path) as broker:
        connection = Connection(broker)
        topic = {"name": TOPIC, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
        (made,) = connection.ask(CREATE_TOPICS, topics=[topic], timeout_ms=5000, validate_only=False).topics
        assert made.error_code == 0
        senders = [Sender(connection, partition, chance) for partition in PARTITIONS]
        assert len({sender.producer_id for sender in senders}) == len(senders)
        connection.close()
        broker.kill()

    for _ in range(ROUNDS):
        with ServedBroker(tmp_path) as broker:
            gauge = Gauge(chance.randrange(1, 400))
            threads = []
            for sender in senders:
                connection = Connection(broker)
                fired["retries answered as duplicates after a kill -9"] += sender.send_again(connection)
                threads.append(threading.Thread(target=sender.burst, args=(connection, gauge), daemon=True))
            for thread in threads:
                thread.start()
            assert gauge.reached.wait(30), "the broker acknowledged too little"
            broker.kill()
            for thread in threads:
                thread.join(30)
            fired["kill -9"] += 1

    with ServedBroker(tmp_path) as broker:
        connection = Connection(broker)
        for sender in senders:
            sender.send_again(connection)
        found = {partition: stored(connection, partition) for partition in set(PARTITIONS)}
        connection.close()
    for sender in senders:
        mine = [data for data in found[sender.partition] if read_header(data).producer_id == sender.producer_id]
        for known in sender.known:
            place(known.sent, read_header(known.sent), known.offset)
        assert mine == [bytes(known.sent) for known in sender.known]
        judged["acknowledged batches found once, each at its offset, after every kill -9"] += len(mine)
    assert sum(map(len, found.values())) == sum(len(sender.known) for sender in senders)
