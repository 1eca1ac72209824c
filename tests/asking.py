"""A client of one connection that asks one thing at a time, and the few records that its questions are about."""

import asyncio
import select
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar
from uuid import UUID

import plain_messages as messages
from semel.log.broker.apis import APIS
from semel.wire.frames import parse_response_header
from semel.wire.records import Record, encode_batch
from semel.wire.versions import CREATE_TOPICS, FETCH, PRODUCE

if TYPE_CHECKING:
    from semel.log.broker.broker import Broker

T = TypeVar("T")

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
NEWEST = {key: api.versions.max for key, api in APIS.items()}


class ConnectionEnded(Exception):
    """The broker ended the connection instead of answering."""


class Asker:
    """Call it with an API and a version to get the answer."""

    def __init__(self, bootstrap: str, *, source: str = "") -> None:
        """`source` is the address to connect from, where it matters."""
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30, source_address=(source, 0))
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, api_key: int, version: int | None = None, /, **values: object) -> Any:
        """The answer to a request with these fields, in the newest version unless another one is given."""
        return self.ask_later(api_key, NEWEST[api_key] if version is None else version, **values)()

    def ask_later(self, api_key: int, version: int, /, **values: object) -> Callable[[], Any]:
        """Send a request; call what is returned to wait for its answer."""
        self._correlation_id = number = self._correlation_id + 1
        request = messages.build_request(api_key, version, **values)
        self.post(messages.encode_request(api_key, version, number, "asker", request))

        def answer() -> Any:
            frame = self.read()
            correlation_id, body = parse_response_header(api_key, version, frame)
            assert correlation_id == number
            return messages.decode_response(api_key, version, frame[body:])

        return answer

    def send(self, frame: bytes) -> bytes:
        """The frame that comes in return for this one, without its size."""
        self.post(frame)
        return self.read()

    def post(self, frame: bytes) -> None:
        """Send a frame, and leave the answer for later."""
        self._socket.sendall(frame)

    def read(self) -> bytes:
        """Wait for the next frame."""
        return self._receive(int.from_bytes(self._receive(4)))

    def has_answer(self) -> bool:
        """Whether a part of an answer has come."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def create(self, name: str, partitions: int = 1, **configs: str) -> Any:
        """Make a topic that must not be there yet."""
        (created,) = self(CREATE_TOPICS, topics=[topic_wanted(name, partitions, **configs)], timeout_ms=1000).topics
        assert created.error_code == 0, created.error_message
        return created

    def produce(self, topic: str, records: list[Record], partition: int = 0, **options: Any) -> int:
        """Append one batch and answer its base offset."""
        batch = bytes(encode_batch(records, **options))
        data = [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}]
        answer = self(PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)
        (appended,) = answer.responses[0].partition_responses
        assert appended.error_code == 0, appended.error_message
        return int(appended.base_offset)

    def fetch(self, topic: str | UUID, offset: int = 0, *, version: int = 12, **options: Any) -> Any:
        """What one partition gives."""
        (answer,) = self(FETCH, version, **fetch_fields(topic, offset, **options)).responses
        (found,) = answer.partitions
        return found

    def stop_sending(self) -> None:
        """Say that no more requests will come; answers may."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()

    def _receive(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            piece = self._socket.recv(size - len(received))
            if not piece:
                raise ConnectionEnded
            received += piece
        return received


def topic_wanted(name: str, partitions: int = 1, **configs: str) -> dict[str, Any]:
    """The fields of a topic in CreateTopics; a configuration's dots are written as underscores."""
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": -1,
        "assignments": [],
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }


def fetch_fields(
    topic: str | UUID,
    offset: int = 0,
    *,
    partition: int = 0,
    isolation_level: int = READ_UNCOMMITTED,
    bytes_max: int = 1_000_000,
    wait_ms: int = 0,
) -> dict[str, Any]:
    """The fields of a Fetch of one partition, outside of a session."""
    key = "topic" if isinstance(topic, str) else "topic_id"
    wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": bytes_max}
    wanted |= {"current_leader_epoch": -1, "last_fetched_epoch": -1, "log_start_offset": -1}
    return {
        "replica_id": -1,
        "max_wait_ms": wait_ms,
        "min_bytes": 1,
        "max_bytes": 1_000_000,
        "isolation_level": isolation_level,
        "session_id": 0,
        "session_epoch": -1,
        "rack_id": "",
        "forgotten_topics_data": [],
        "topics": [{key: getattr(topic, "bytes", topic), "partitions": [wanted]}],
    }


def at(*times_ms: int) -> list[Record]:
    """Records of these times."""
    return [Record(b"value", timestamp_ms=time_ms) for time_ms in times_ms]


async def asking(broker: "Broker", work: Callable[[Asker], T]) -> T:
    """What a client gets from the broker, which serves meanwhile."""

    def run() -> T:
        with Asker(broker.bootstrap) as asker:
            return work(asker)

    return await asyncio.to_thread(run)
