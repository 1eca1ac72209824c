"""What every simulated client stands on: a connection that asks and is answered, gives up, and tries again elsewhere.

Small, and nothing of a real client's cleverness: what it sends, when it gives up and what it sends again is decided by
those who use it. It must never hide a lost answer: `Unanswered` says that nobody knows what became of the request.
"""

import asyncio
from collections import deque
from typing import Any, Final

import plain_messages as messages
from semel.wire.errors import ErrorCode
from semel.wire.frames import SIZE_BYTES, parse_response_header
from semel.wire.versions import NAMES
from sim.world import World


class Unanswered(Exception):
    """The request may have been served, or not, or will be."""


class AnotherBroker(Unanswered):
    """The broker that was asked stands by, and has done nothing."""


# What only a broker says that is not the active one.
ELSEWHERE: Final = frozenset(
    {
        *(ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_CONTROLLER),
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


def is_elsewhere(answer: Any) -> bool:
    """Whether an error in an answer, however deep, says that another broker is the one to ask."""
    if isinstance(answer, tuple):
        return any(map(is_elsewhere, answer))
    for name in getattr(answer, "FIELDS", ()):
        inner = getattr(answer, name)
        if inner in ELSEWHERE if name.endswith("error_code") else is_elsewhere(inner):
            return True
    return False


class Wire(asyncio.Protocol):
    """One connection: requests out, answers in, in their order."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.is_open = False
        self._received = bytearray()
        self._waiting: deque[tuple[int, int, int, asyncio.Future[Any]]] = deque()
        self._correlation_id = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.is_open = True

    def post(self, api_key: int, version: int, values: dict[str, Any]) -> "asyncio.Future[Any]":
        """Send, and answer what will hold the answer."""
        self._correlation_id += 1
        request = messages.build_request(api_key, version, **values)
        frame = messages.encode_request(api_key, version, self._correlation_id, "sim", request)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._correlation_id, api_key, version, answer))
        self.transport.write(frame)
        return answer

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= SIZE_BYTES:
            end = SIZE_BYTES + int.from_bytes(self._received[:SIZE_BYTES], "big")
            if len(self._received) < end:
                return
            self._answered(bytes(self._received[SIZE_BYTES:end]))
            del self._received[:end]

    def _answered(self, frame: bytes) -> None:
        expected_id, api_key, version, answer = self._waiting.popleft()
        correlation_id, body = parse_response_header(api_key, version, frame)
        assert correlation_id == expected_id, "an answer to another question"
        if not answer.done():
            answer.set_result(messages.decode_response(api_key, version, frame[body:]))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        for _, _, _, answer in self._waiting:
            if not answer.done():
                answer.set_exception(Unanswered("the connection is lost"))
                # Looked at, or asyncio would complain where nobody waits for it any more.
                answer.exception()
        self._waiting.clear()


class Client:
    """Somebody at a place in the network, with one connection at a time."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.random = world.chance(name)
        self._wire: Wire | None = None
        # How long it waits for an answer.
        self._patience_s = world.chance(f"patience of {name}").choice(world.patiences_s)
        # Which of the brokers' addresses it tries.
        self._place = 0

    def note(self, what: str, **particulars: Any) -> None:
        self.world.note(self.name, what, **particulars)

    async def post(self, api_key: int, version: int, /, **values: Any) -> "asyncio.Future[Any]":
        """Send a request, on a new connection where there is none."""
        wire = self._wire
        if wire is None or not wire.is_open:
            wire = Wire()
            try:
                async with asyncio.timeout(self._patience_s):
                    await self.world.network.connect(self.name, wire, *self.world.addresses[self._place])
            except (ConnectionRefusedError, TimeoutError) as error:
                self._look_elsewhere()
                raise Unanswered(str(error)) from None
            self._wire = wire
        self.world.operations[NAMES[api_key]] += 1
        return wire.post(api_key, version, values)

    async def answer(self, answer: "asyncio.Future[Any]", patience_s: float = 0.0) -> Any:
        """Wait for an answer, but not for ever."""
        try:
            async with asyncio.timeout(max(patience_s, self._patience_s)):
                given = await answer
        except TimeoutError:
            self.world.fired["client gave up waiting"] += 1
            self.hang_up()
            self._look_elsewhere()
            raise Unanswered("no answer in time") from None
        except Unanswered:
            # A standby hangs up on what any broker may be asked.
            self._look_elsewhere()
            raise
        if len(self.world.addresses) > 1 and is_elsewhere(given):
            self.hang_up()
            self._look_elsewhere()
            raise AnotherBroker("it stands by")
        return given

    def _look_elsewhere(self) -> None:
        """Try the next address."""
        self._place = (self._place + 1) % len(self.world.addresses)

    async def ask(self, api_key: int, version: int, /, **values: Any) -> Any:
        """The answer to a request; `Unanswered` where none comes."""
        for _ in self.world.addresses[1:]:
            try:
                return await self.answer(await self.post(api_key, version, **values))
            except AnotherBroker:
                pass
        return await self.answer(await self.post(api_key, version, **values))

    async def insist(self, api_key: int, version: int, /, **values: Any) -> Any:
        """Ask until there is an answer; only for what may be done twice."""
        while True:
            try:
                return await self.ask(api_key, version, **values)
            except Unanswered:
                await self.pause()

    def hang_up(self) -> None:
        """Leave the connection: what is on its way may arrive yet, or not; the broker may hear of it, or not."""
        wire, self._wire = self._wire, None
        if wire is None or not wire.is_open:
            return
        how = self.random.random()
        if how < 0.5:
            wire.transport.close()
        elif how < 0.8:
            wire.transport.abort()
        else:
            self.world.fired["half-open connection"] += 1
            wire.is_open = False

    async def pause(self, mean_s: float = 0.1) -> None:
        await asyncio.sleep(self.random.expovariate(1 / mean_s))
