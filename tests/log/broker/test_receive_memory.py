"""The memory for large requests is shared, and a request that never ends keeps nobody else waiting.

The bytes arrive here in an order that the test chooses; in test_limits.py real sockets choose it.
"""

import asyncio
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from semel.log.broker.receive_buffer import ReceiveBuffer, ReceiveMemory

# Sizes are counted in these.
KILOBYTE = 1024
LIMIT = 4 * 1024 * KILOBYTE


class Client:
    """A client, and the connection that puts what arrives from it into its buffer."""

    def __init__(self, memory: ReceiveMemory, address: str = "the client") -> None:
        self.buffer = ReceiveBuffer(memory, is_in_use=lambda: False, try_again=self._go_on)
        self._memory = memory
        memory.join(self.buffer, address)
        self._request_size = 0
        self._unread_size = 0
        self._has_ended = False
        self.served = 0

    def begin(self, size: int) -> "Client":
        """Send all of a request but its last byte."""
        self._request_size, self._unread_size, self._has_ended = size, size - 1, False
        self._go_on()
        return self

    def end(self) -> None:
        """Send its last byte, which may have to wait for the ones before it."""
        self._unread_size += not self._has_ended
        self._has_ended = True
        self._go_on()

    def leave(self) -> None:
        self.buffer.release()
        self._memory.leave(self.buffer)

    @property
    def waits(self) -> bool:
        return self.buffer.is_too_small

    @property
    def is_idle(self) -> bool:
        return not self._request_size

    def _go_on(self) -> None:
        buffer = self.buffer
        buffer.fit(self._request_size)
        while self._unread_size and not buffer.is_too_small:
            arrived = min(self._unread_size, len(buffer.free()))
            self._unread_size -= arrived
            buffer.end += arrived
            if len(buffer) == self._request_size:
                buffer.take(self._request_size)
                self._request_size = 0
                self.served += 1
            buffer.fit(self._request_size)


def test_a_request_beyond_the_limit_takes_no_space_from_the_others() -> None:
    memory = ReceiveMemory(LIMIT)
    endless = Client(memory, "greedy").begin(LIMIT - 1)
    assert memory.beyond is endless.buffer
    assert not endless.waits
    honest = Client(memory, "honest").begin(LIMIT // 2)
    assert not honest.waits


def test_requests_that_never_end_leave_space_for_other_addresses() -> None:
    memory = ReceiveMemory(LIMIT)
    endless = [Client(memory, "greedy").begin(1500 * KILOBYTE) for _ in range(8)]
    assert any(client.waits for client in endless)
    honest = Client(memory, "honest").begin(900 * KILOBYTE)
    assert not honest.waits


def test_half_of_the_memory_is_for_whoever_comes_first() -> None:
    memory = ReceiveMemory(LIMIT)
    clients = [Client(memory).begin(1000 * KILOBYTE) for _ in range(2)]
    assert not any(client.waits for client in clients)
    assert memory.beyond is None


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, str, int]]:
    size = st.integers(1, LIMIT // KILOBYTE + 100).map(lambda kilobytes: kilobytes * KILOBYTE)
    return draw(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["go on", "go on", "leave"]), size), max_size=40))


@given(histories())
def test_whatever_clients_do_the_limit_holds_and_whoever_ends_a_request_is_served(
    history: list[tuple[int, str, int]],
) -> None:
    """A client begins a request, ends it, or leaves; at each step one at most is beyond the limit, and somebody can
    always go on. When all end theirs, all are served, and nothing stays taken.
    """

    async def run() -> None:
        memory = ReceiveMemory(LIMIT)
        clients = [Client(memory, f"address {number % 3}") for number in range(6)]
        begun = Counter[Client]()
        for number, act, size in history:
            client = clients[number]
            if act == "leave":
                client.leave()
                clients[number] = Client(memory, client.buffer.address)
            elif client.is_idle:
                client.begin(size)
                begun[client] += 1
            else:
                client.end()
            await asyncio.sleep(0)
            check(memory, clients)
        for client in clients:
            if not client.is_idle:
                client.end()
        # One turn of the loop for each that may have to wait for the one before it.
        for _ in clients:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert [client.served for client in clients] == [begun[client] for client in clients]
        assert not any(client.waits for client in clients)
        assert memory.beyond is None
        for client in clients:
            client.leave()
        assert (memory.taken_bytes, memory._of_address) == (0, {})

    asyncio.run(run())


def check(memory: ReceiveMemory, clients: list[Client]) -> None:
    by_address = Counter[str]()
    for client in clients:
        by_address[client.buffer.address] += client.buffer.large_bytes
    assert memory._of_address == +by_address
    assert memory.taken_bytes == by_address.total()
    beyond = 0 if memory.beyond is None else memory.beyond.large_bytes
    assert memory.taken_bytes - beyond <= LIMIT
    assert memory.beyond is not None or not any(client.waits for client in clients), "they wait for each other"
