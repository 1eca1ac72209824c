"""How the answers of one connection reach its socket: those that are ready leave in one write, and none waits for more.

A connection gets its bytes by hand, and its transport notes every write.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

import plain_messages as messages
from asking import topic_wanted
from profiled import profiled
from semel.log.broker.broker import Broker
from semel.log.broker.connection import Connection
from semel.log.broker.exchange import Buffer
from semel.log.broker.limits import Limits
from semel.wire.frames import SIZE_BYTES, parse_response_header
from semel.wire.records import Record, encode_batch
from semel.wire.versions import API_VERSIONS, CREATE_TOPICS, PRODUCE

SECONDS_MAX = 30
# One of them is for the digest of the segment, by which a checkpoint proves what it uploads.
CALLS_MAX = 120


class NotedWrites(asyncio.Transport):
    """The transport of a client that takes everything."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.writes: list[bytes] = []
        self.is_over = False
        self.written = asyncio.Event()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        assert not self.is_over
        self.writes.append(b"".join(list_of_data))
        self.written.set()

    def answered(self) -> list[int]:
        """The correlation ids of all answers so far."""
        numbers, left = [], memoryview(b"".join(self.writes))
        while left:
            size = SIZE_BYTES + int.from_bytes(left[:SIZE_BYTES])
            numbers.append(parse_response_header(API_VERSIONS, 0, left[SIZE_BYTES:size])[0])
            left = left[size:]
        return numbers

    def abort(self) -> None:
        self.is_over = True

    def close(self) -> None:
        self.is_over = True

    def is_closing(self) -> bool:
        return self.is_over

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Client:
    """A connection of a broker, with what it gets and gives."""

    def __init__(self, broker: Broker) -> None:
        self.transport = NotedWrites()
        self._connection = Connection(broker, broker.listeners[0])
        self._connection.connection_made(self.transport)

    def receive(self, *frames: bytes) -> None:
        """All these frames arrive at the same moment."""
        arrived = b"".join(frames)
        self._connection.get_buffer(len(arrived))[: len(arrived)] = arrived
        self._connection.buffer_updated(len(arrived))


def question(number: int) -> bytes:
    return messages.encode_request(API_VERSIONS, 0, number, None, messages.build_request(API_VERSIONS, 0))


def produce(number: int) -> bytes:
    batch = bytes(encode_batch([Record(b"x")]))
    data = [{"name": "orders", "partition_data": [{"index": 0, "records": batch}]}]
    fields: dict[str, Any] = {"transactional_id": None, "acks": -1, "timeout_ms": 1000, "topic_data": data}
    return messages.encode_request(PRODUCE, 9, number, None, messages.build_request(PRODUCE, 9, **fields))


def with_a_client(work: Callable[[Client], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with Broker(**settings) as broker:
            client = Client(broker)
            fields = {"topics": [topic_wanted("orders")], "timeout_ms": 1000, "validate_only": False}
            request = messages.build_request(CREATE_TOPICS, 5, **fields)
            client.receive(messages.encode_request(CREATE_TOPICS, 5, 0, None, request))
            await asyncio.wait_for(client.transport.written.wait(), SECONDS_MAX)
            client.transport.writes.clear()
            client.transport.written.clear()
            await work(client)

    asyncio.run(run())


def test_answers_to_requests_that_arrive_together_leave_in_one_write() -> None:
    async def work(client: Client) -> None:
        client.receive(question(1), produce(2), question(3))
        assert len(client.transport.writes) == 1
        assert client.transport.answered() == [1, 2, 3]

    with_a_client(work, durability="os")


def test_the_answer_to_a_lone_request_leaves_before_the_loop_goes_on() -> None:
    async def work(client: Client) -> None:
        for number in (1, 2):
            client.receive(produce(number))
            assert len(client.transport.writes) == number

    with_a_client(work, durability="os")


def test_answers_that_wait_for_the_same_sync_leave_in_one_write() -> None:
    async def work(client: Client) -> None:
        client.receive(produce(1), produce(2), produce(3))
        assert client.transport.writes == []
        await asyncio.wait_for(client.transport.written.wait(), SECONDS_MAX)
        assert len(client.transport.writes) == 1
        assert client.transport.answered() == [1, 2, 3]

    with_a_client(work, durability="fsync")


@pytest.mark.parametrize("invalid", [b"\xff" * 4, (10).to_bytes(4) + b"\x7f" * 10])
def test_requests_before_an_invalid_one_keep_their_answers(invalid: bytes) -> None:
    async def work(client: Client) -> None:
        client.receive(question(1), question(2), invalid)
        assert client.transport.answered() == [1, 2]
        assert client.transport.is_over

    with_a_client(work)


def test_more_requests_than_may_be_under_way_are_all_answered() -> None:
    async def work(client: Client) -> None:
        client.receive(*map(question, range(9)))
        assert client.transport.answered() == list(range(9))
        assert len(client.transport.writes) == 5

    with_a_client(work, durability="os", limits=Limits(requests_in_flight_max=2))


def test_a_lone_batch_takes_few_calls_of_functions() -> None:
    """A count that no busy machine changes. Whoever needs more of them raises it, and says what for."""

    async def work(client: Client) -> None:
        client.receive(produce(1))
        calls = 0

        def count(_: object, event: str, __: object) -> None:
            nonlocal calls
            calls += event == "call"

        request = produce(2)
        with profiled(count):
            client.receive(request)
        assert client.transport.answered() == [1, 2]
        assert calls <= CALLS_MAX

    with_a_client(work, durability="os")
