"""A TCP proxy in front of a Kafka broker that injects faults between it and its clients.

    with ChaosProxy(broker.bootstrap) as proxy:
        producer = Producer({"bootstrap.servers": proxy.bootstrap, "enable.idempotence": True})
        proxy.arm(Fault.DROP_ACK)

It runs in its own thread, forwards whole frames, and knows the request of each answer. In answers it replaces the
addresses of brokers by its own, with one listener for each broker of a cluster, so that clients keep using the proxy.
It must never change a message in any other way: its faults are those of networks.

TLS passes through. The proxy then sees TLS records, but not the requests and answers in them: faults strike TLS
records, a lost acknowledgement is any lost answer, and the broker itself has to advertise the proxy's address.
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections import Counter, deque
from typing import Final, NamedTuple, Self

from semel.chaos.addresses import Address, UnreadableAnswer, addresses_in, has_addresses, replace_addresses
from semel.chaos.plan import ON_ACKS, ON_ANSWERS, ON_REQUESTS, Fault, FaultPlan

PRODUCE: Final = 0
# Bytes that would make a larger frame count as no frame.
FRAME_BYTES_MAX: Final = 256 * 1024 * 1024
# How many bytes of a dribbled message are sent one at a time; the rest follows at once, or a large one would take
# minutes.
DRIBBLE_BYTES_MAX: Final = 512
# With this linger time of 0, closing a socket resets its connection.
_NO_LINGER: Final = struct.pack("ii", 1, 0)

# The types of TLS records. No frame of Kafka's protocol is so large that its size begins with one of these bytes.
_TLS_RECORDS: Final = range(0x14, 0x18)
_TLS_DATA: Final = 0x17
_TLS_HEADER: Final = struct.Struct(">BHH")

_SIZE: Final = struct.Struct(">i")
SIZE_BYTES: Final = _SIZE.size
_REQUEST_HEADER: Final = struct.Struct(">hhi")
_REQUEST_BYTES: Final = SIZE_BYTES + _REQUEST_HEADER.size


def _is_tls(frame: bytes) -> bool:
    return frame[0] in _TLS_RECORDS


def _is_tls_data(frame: bytes) -> bool:
    """Whether it is a TLS record with data. In TLS 1.3 the end of the handshake looks the same."""
    return frame[0] == _TLS_DATA


class _Request(NamedTuple):
    """The parts of a forwarded request that are needed for its answer."""

    api_key: int
    version: int
    correlation_id: int


class _Broken(Exception):
    """A fault has ended the connection."""


class ChaosProxy:
    """A proxy before `target` ("HOST:PORT"); from `start` to `stop`, or as long as the `with` block lasts."""

    def __init__(
        self,
        target: str,
        plan: FaultPlan | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        advertise: str | None = None,
    ) -> None:
        """`advertise` is the name or address by which clients reach `host`, if it is another one."""
        target_host, _, target_port = target.rpartition(":")
        self._target: Address = (target_host.strip("[]"), int(target_port))
        self.plan = plan or FaultPlan()
        self._host = host
        self._port = port
        self._advertised = advertise or host
        self._connections = 0
        # The proxy's own address for each broker's address.
        self._fronts: dict[Address, Address] = {}
        self._opening = asyncio.Lock()
        self._passing = asyncio.Event()
        self._passing.set()
        self._end_of_hang: asyncio.TimerHandle | None = None
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread | None = None

    @property
    def bootstrap(self) -> str:
        """The address for clients' `bootstrap.servers`."""
        # An address of IPv6 is in brackets, or its last part would be taken for the port.
        host = f"[{self._advertised}]" if ":" in self._advertised else self._advertised
        return f"{host}:{self._port}"

    @property
    def fired(self) -> Counter[Fault]:
        """How many faults have struck, by kind."""
        return Counter(self.plan.fired)

    @property
    def connections(self) -> int:
        """How many connections clients have made."""
        return self._connections

    def arm(self, fault: Fault, times: int = 1) -> None:
        """Let the fault strike the next `times` messages that it can strike."""
        self.plan.arm(fault, times)

    def start(self) -> Self:
        """Start the proxy; returns when clients can connect. Raises an error if it cannot listen."""
        started = threading.Event()
        failures: list[BaseException] = []

        def run() -> None:
            loop = self._loop = asyncio.new_event_loop()
            try:
                loop.run_until_complete(self._listen(self._target, self._port))
            except BaseException as error:
                failures.append(error)
                loop.close()
                return
            finally:
                started.set()
            for planned in self.plan.timed:
                loop.call_later(
                    planned.after_seconds or 0, self.plan.arm, planned.fault, planned.times, planned.api_key
                )
            loop.run_forever()
            loop.run_until_complete(self._end())
            loop.close()

        thread = threading.Thread(target=run, name="semel-chaos", daemon=True)
        thread.start()
        started.wait()
        if failures:
            thread.join()
            raise failures[0]
        self._thread = thread
        self._port = self._fronts[self._target][1]
        return self

    def stop(self) -> None:
        """End all connections and stop listening."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- in the proxy's own thread ------------------------------------------------------------------------------

    async def _listen(self, target: Address, port: int) -> None:
        def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._connections += 1
            relay = _Relay(self, self._connections, reader, writer)
            task = asyncio.create_task(relay.run(target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        server = await asyncio.start_server(serve, self._host, port)
        self._servers.append(server)
        self._fronts[target] = (self._advertised, server.sockets[0].getsockname()[1])

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        # Repeated, because a client that has just been accepted gets its task only now.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        self._servers.clear()
        self._fronts.clear()

    async def fronts_of(self, targets: list[Address]) -> dict[Address, Address]:
        """The proxy's own addresses for these brokers; starts a listener for a new broker."""
        async with self._opening:
            for target in targets:
                # An answer with an error has no valid port.
                if target not in self._fronts and target[1] > 0:
                    await self._listen(target, 0)
        return self._fronts

    def hang(self) -> None:
        """Hold back all messages of all connections for the time of the hang; another call starts that time again."""
        if self._end_of_hang is not None:
            self._end_of_hang.cancel()
        self._passing.clear()
        self._end_of_hang = self._loop.call_later(self.plan.hang_ms / 1000, self._passing.set)

    async def passing(self) -> None:
        """Wait until no hang holds messages back."""
        await self._passing.wait()


class _Relay:
    """One client's connection, and the one to the broker that belongs to it."""

    def __init__(
        self, proxy: ChaosProxy, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._proxy = proxy
        self._plan = proxy.plan
        # One for each direction, because otherwise the faults of the answers would depend on when the requests came.
        self._request_chance = self._plan.chance(2 * number)
        self._answer_chance = self._plan.chance(2 * number + 1)
        self._client_reader = reader
        self._client_writer = writer
        self._broker_reader: asyncio.StreamReader
        self._broker_writer: asyncio.StreamWriter | None = None
        # In the order of the requests, which is also the order of the answers.
        self._requests: deque[_Request] = deque()

    async def run(self, target: Address) -> None:
        try:
            self._broker_reader, self._broker_writer = await asyncio.open_connection(*target)
            directions = [asyncio.create_task(self._pass_requests()), asyncio.create_task(self._pass_answers())]
            try:
                # A client that has closed its side still gets its answers; if the broker closes its side, or a fault
                # strikes, both end.
                done, _ = await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
                if directions[0] in done and directions[0].exception() is None:
                    self._broker_writer.write_eof()
                    await directions[1]
            finally:
                for direction in directions:
                    direction.cancel()
                await asyncio.gather(*directions, return_exceptions=True)
        except (OSError, _Broken, asyncio.IncompleteReadError, UnreadableAnswer):
            pass
        finally:
            self._close()

    async def _pass_requests(self) -> None:
        while (frame := await self._read_frame(self._client_reader)) is not None:
            assert self._broker_writer is not None
            is_whole = len(frame) >= _REQUEST_BYTES and not _is_tls(frame)
            request = _Request(*_REQUEST_HEADER.unpack_from(frame, SIZE_BYTES)) if is_whole else None
            api_key = None if request is None else request.api_key
            if not _is_tls(frame) or _is_tls_data(frame):
                self._plan.count_request(api_key)
            fault = self._plan.draw(self._request_chance, ON_REQUESTS, api_key)
            if fault is Fault.HANG:
                self._proxy.hang()
            await self._proxy.passing()
            if fault is Fault.RESET:
                self._reset()
            if fault is Fault.CUT:
                part = self._request_chance.randint(0, len(frame))
                await self._write(self._broker_writer, frame[:part])
                raise _Broken
            if request is not None:
                self._requests.append(request)
            await self._pass_on(self._broker_writer, frame, fault)

    async def _pass_answers(self) -> None:
        while (frame := await self._read_frame(self._broker_reader)) is not None:
            await self._proxy.passing()
            request = None if _is_tls(frame) else self._request_of(frame)
            api_key = None if request is None else request.api_key
            possible = ON_ACKS if api_key == PRODUCE or _is_tls_data(frame) else ON_ANSWERS
            fault = self._plan.draw(self._answer_chance, possible, api_key)
            if fault is Fault.DROP_ACK:
                self._reset()
            if request is not None and has_addresses(request.api_key):
                frame = await self._lead_to_proxy(request, frame)
            if fault is Fault.TRUNCATE:
                await self._write(self._client_writer, frame[: self._answer_chance.randint(1, len(frame) - 1)])
                raise _Broken
            if fault is Fault.DELAY:
                await asyncio.sleep(self._answer_chance.uniform(0, self._plan.delay_ms_max) / 1000)
            await self._pass_on(self._client_writer, frame, fault)

    def _request_of(self, frame: bytes) -> _Request | None:
        """The request of this answer; requests without an answer (acks=0) are skipped."""
        correlation_id = _SIZE.unpack_from(frame, SIZE_BYTES)[0] if len(frame) >= SIZE_BYTES + _SIZE.size else None
        while self._requests:
            request = self._requests.popleft()
            if request.correlation_id == correlation_id:
                return request
        return None

    async def _lead_to_proxy(self, request: _Request, frame: bytes) -> bytes:
        answer = frame[SIZE_BYTES:]
        fronts = await self._proxy.fronts_of(addresses_in(request.api_key, request.version, answer))
        answer = replace_addresses(request.api_key, request.version, answer, fronts)
        return _SIZE.pack(len(answer)) + answer

    async def _read_frame(self, reader: asyncio.StreamReader) -> bytes | None:
        """The next frame with its size, or the next record of TLS; None at the end of the stream."""
        try:
            prefix = await reader.readexactly(SIZE_BYTES)
        except asyncio.IncompleteReadError as end:
            if end.partial:
                raise
            return None
        if _is_tls(prefix):
            header = prefix + await reader.readexactly(_TLS_HEADER.size - SIZE_BYTES)
            return header + await reader.readexactly(_TLS_HEADER.unpack(header)[2])
        size = _SIZE.unpack(prefix)[0]
        if not 0 <= size <= FRAME_BYTES_MAX:
            raise _Broken
        return prefix + await reader.readexactly(size)

    async def _pass_on(self, writer: asyncio.StreamWriter, frame: bytes, fault: Fault | None) -> None:
        begun = 0
        if fault is Fault.DRIBBLE:
            begun = min(len(frame), DRIBBLE_BYTES_MAX)
            for position in range(begun):
                await self._write(writer, frame[position : position + 1])
                await asyncio.sleep(0)
        await self._write(writer, frame[begun:])

    async def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        await writer.drain()

    def _reset(self) -> None:
        for writer in (self._client_writer, self._broker_writer):
            if writer is not None:
                with contextlib.suppress(OSError):
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
                writer.transport.abort()
        raise _Broken

    def _close(self) -> None:
        for writer in (self._client_writer, self._broker_writer):
            if writer is not None:
                writer.close()
