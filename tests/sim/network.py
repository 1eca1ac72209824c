"""A network in memory: connections that are slow, arrive in pieces, break in the middle, or are cut off for a while.

A connection is what TCP promises and no more: bytes arrive in order, if they arrive; whoever sent them does not learn
how many did. What was sent before a client gave up may arrive long after it has sent the same thing again elsewhere:
that is how requests are doubled and overtake one another. It must never lose bytes in the middle of a connection.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any, Final

from semel.testing.virtual_loop import VirtualLoop

# What is on its way to a client beyond this stops the broker from reading its requests.
UNTAKEN_BYTES_MAX: Final = 8 * 1024
RECEIVE_BYTES_MAX: Final = 16 * 1024
# Longer than a client waits for an answer, and short enough to arrive in the midst of what it does next.
HELD_BACK_S: Final = (1.6, 2.5)


@dataclass
class Weather:
    """How likely it is, for each piece that is sent, that something happens to it."""

    request_lost: float = 0.0
    answer_lost: float = 0.0
    cut_short: float = 0.0
    late: float = 0.0
    in_pieces: float = 0.0
    delay_s: float = 0.002
    late_s: float = 6.0


class Listener:
    """A port that somebody listens on; as much of an `asyncio.Server` as the broker uses."""

    def __init__(
        self, network: "Network", address: tuple[str, int], make_protocol: Callable[[], asyncio.BufferedProtocol]
    ) -> None:
        self._network = network
        self._address = address
        self.make_protocol = make_protocol
        # Of the process that listens.
        self.context = copy_context()
        self.sockets = (self,)

    async def start_serving(self) -> None:
        self._network.start_listening(self._address, self)

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def fileno(self) -> int:
        return 0

    def close(self) -> None:
        self._network.stop_listening(self._address, self)


class Network:
    """Who listens where, what the weather is, and which clients are cut off."""

    def __init__(self, loop: VirtualLoop, random: Random, fired: Counter[str]) -> None:
        self.loop = loop
        self.random = random
        self.fired = fired
        self.weather = Weather()
        self.cut_off: dict[str, float] = {}
        # Until when whatever a client sends takes longer than it has patience for.
        self.held_back: dict[str, float] = {}
        self._listening: dict[tuple[str, int], Listener] = {}
        self._ends: dict[End, None] = {}
        loop.network = self

    def listen(self, protocol_factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int) -> Listener:
        return Listener(self, (host, port), protocol_factory)

    def start_listening(self, address: tuple[str, int], listener: Listener) -> None:
        self._listening[address] = listener

    def stop_listening(self, address: tuple[str, int], listener: Listener) -> None:
        if self._listening.get(address) is listener:
            del self._listening[address]

    async def connect(self, client: str, protocol: asyncio.Protocol, host: str, port: int) -> "End":
        """A connection from `client`; ConnectionRefusedError where nobody listens."""
        await asyncio.sleep(self.delay_s() + self.cut_off_s(client))
        listening = self._listening.get((host, port))
        if listening is None:
            raise ConnectionRefusedError(f"nobody listens at {host}:{port}")
        near = End(self, client, host, Context())
        far = End(self, client, host, listening.context.copy(), is_server=True)
        near.other, far.other = far, near
        self._ends[near] = self._ends[far] = None
        near.protocol = protocol
        # The kernel takes a connection whether or not the process runs.
        self.loop.call_soon(far.accept, listening.make_protocol, context=far.context)
        near.protocol.connection_made(near)
        return near

    def power_off(self, host: str) -> None:
        """A broker's machine is gone: nothing leaves it any more, and its clients are told by and by."""
        for address in [address for address in self._listening if address[0] == host]:
            del self._listening[address]
        for end in [end for end in self._ends if end.is_server and end.host == host]:
            end.vanish()

    def delay_s(self) -> float:
        return self.random.expovariate(1 / self.weather.delay_s) if self.weather.delay_s else 0.0

    def cut_off_s(self, client: str) -> float:
        """How long nothing will pass to or from this client."""
        return max(self.cut_off.get(client, 0.0) - self.loop.time(), 0.0)

    def forget(self, end: "End") -> None:
        self._ends.pop(end, None)


class End(asyncio.Transport):
    """One end of a connection: what its protocol writes here arrives, with luck, at the other end's."""

    protocol: Any
    other: "End"

    def __init__(self, network: Network, client: str, host: str, context: Context, *, is_server: bool = False) -> None:
        """What comes in is handed over in this context: that of the process at this end."""
        super().__init__()
        self.client = client
        self.host = host
        self.context = context
        self.is_server = is_server
        self._network = network
        self._loop = network.loop
        # What comes in: when each piece may be handed over, and the piece; None is the end of it all.
        self._incoming: deque[tuple[float, bytes | None]] = deque()
        self._untaken_bytes = 0
        self._last_arrival = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._reading = True
        self._closing = False
        self._lost = False
        # It is lost, and its protocol will hear of it.
        self._breaking = False
        self._writing_paused = False
        self._high_bytes = UNTAKEN_BYTES_MAX

    def accept(self, make_protocol: Callable[[], asyncio.BufferedProtocol]) -> None:
        """The process at this end takes the connection, unless it is gone already."""
        if not self._lost:
            self.protocol = make_protocol()
            self.protocol.connection_made(self)

    # -- what a protocol may do ---------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self.client, 1) if name == "peername" else default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self._lost or self._breaking or not data:
            return
        self._send(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = min(high or UNTAKEN_BYTES_MAX, UNTAKEN_BYTES_MAX)

    def get_write_buffer_size(self) -> int:
        return self.other._untaken_bytes

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._await_arrival()

    def is_closing(self) -> bool:
        return self._closing or self._lost

    def close(self) -> None:
        """What was written still arrives, then the end of it."""
        if self._closing or self._lost:
            return
        self._closing = True
        self.other._arrive(None, self._network.delay_s())
        self._loop.call_soon(self._lose, None, context=self.context)

    def abort(self) -> None:
        if self._lost:
            return
        self._closing = True
        self._loop.call_soon(self._lose, None, context=self.context)
        self.other._break()

    # -- what the network does ----------------------------------------------------------------------------------

    def vanish(self) -> None:
        """This end is gone without a word of its own; what it has sent already may still arrive."""
        if not self._lost:
            self._lost = True
            self._incoming.clear()
            self._network.forget(self)
            self.other._break()

    def _send(self, data: bytes) -> None:
        network = self._network
        weather, random, fired = network.weather, network.random, network.fired
        delay_s = network.delay_s()
        if random.random() < (weather.answer_lost if self.is_server else weather.request_lost):
            fired["answer lost" if self.is_server else "request lost"] += 1
            self._break_both()
            return
        if random.random() < weather.cut_short:
            fired["cut short"] += 1
            self.other._arrive(data[: random.randrange(len(data))], delay_s)
            self._break_both()
            return
        if random.random() < weather.late:
            fired["late answer" if self.is_server else "late request"] += 1
            delay_s += random.uniform(0.5, weather.late_s)
        if not self.is_server and network.held_back.get(self.client, 0.0) > self._loop.time():
            fired["held back"] += 1
            delay_s += random.uniform(*HELD_BACK_S)
        if random.random() < weather.in_pieces:
            fired["in pieces"] += 1
            places = sorted({random.randrange(len(data)) for _ in range(random.randrange(1, 5))} | {0, len(data)})
            for begin, end in pairwise(places):
                self.other._arrive(data[begin:end], delay_s)
                delay_s = network.delay_s()
        else:
            self.other._arrive(data, delay_s)
        self._look_at_untaken()

    def _arrive(self, data: bytes | None, delay_s: float) -> None:
        if self._lost or self._breaking:
            return
        self._last_arrival = max(self._last_arrival, self._loop.time() + delay_s)
        self._incoming.append((self._last_arrival, data))
        self._untaken_bytes += len(data or b"")
        self._await_arrival()

    def _await_arrival(self) -> None:
        if self._timer is None and self._incoming and self._reading and not self._lost:
            at = max(self._incoming[0][0], self._loop.time() + self._network.cut_off_s(self.client))
            self._timer = self._loop.call_at(at, self._take, context=self.context)

    def _take(self) -> None:
        """Hand over what has arrived, as much as a real socket would in one go."""
        self._timer = None
        if self._network.cut_off_s(self.client) or not self._reading or self._lost:
            self._await_arrival()
            return
        _, data = self._incoming.popleft()
        if data is None:
            self._end()
            return
        self._untaken_bytes -= len(data)
        self.other._look_at_untaken()
        if self.is_server:
            view = self.protocol.get_buffer(-1)
            size = min(len(view), len(data), RECEIVE_BYTES_MAX)
            if size < len(data):
                self._incoming.appendleft((self._loop.time(), data[size:]))
                self._untaken_bytes += len(data) - size
            view[:size] = data[:size]
            self.protocol.buffer_updated(size)
        else:
            self.protocol.data_received(data)
        self._await_arrival()

    def _end(self) -> None:
        """The other end sends nothing more."""
        if not self.protocol.eof_received():
            self.close()

    def _look_at_untaken(self) -> None:
        """Have our protocol stop writing while too much is on its way, as a full socket buffer would."""
        if self._lost or not self.is_server:
            return
        untaken = self.other._untaken_bytes
        if untaken > self._high_bytes and not self._writing_paused:
            self._writing_paused = True
            self._network.fired["answers untaken"] += 1
            self.protocol.pause_writing()
        elif untaken <= self._high_bytes // 4 and self._writing_paused:
            self._writing_paused = False
            self._loop.call_soon(self._resume_writing, context=self.context)

    def _resume_writing(self) -> None:
        if not self._lost and not self._writing_paused:
            self.protocol.resume_writing()

    def _break_both(self) -> None:
        self._break()
        self.other._break()

    def _break(self) -> None:
        """This end learns, a little later, that the connection is no more; what is on its way arrives until then."""
        if self._breaking:
            return
        self._breaking = True
        delay_s = max(
            self._network.delay_s(), self._last_arrival - self._loop.time(), self._network.cut_off_s(self.client)
        )
        reset = ConnectionResetError("the connection was reset")
        self._loop.call_later(delay_s, self._lose, reset, context=self.context)

    def _lose(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = True
        self._incoming.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._network.forget(self)
        self.protocol.connection_lost(error)
