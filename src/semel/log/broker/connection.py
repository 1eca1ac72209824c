"""One client's connection: frames in, answers out, in the order in which the requests came.

The connection receives bytes into a buffer of its own, and handlers work on views of it; such a view is valid until the
handler is done. A long request takes several turns of the event loop, and the next one of the same connection waits
meanwhile. A handler answers through its `Exchange`, at once or later, and may name a position up to which the journal
must be durable before the answer is sent. Answers are sent in the order of the requests, so one that waits holds back
those after it.

The connection stops reading from a client that does not read its answers, has too many requests under way, or has to
wait because of a quota. An invalid request ends the connection, because it is unknown where the next request begins.
"""

import asyncio
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Protocol, cast

from semel.log.broker.clock import Clock
from semel.log.broker.declaration import Api
from semel.log.broker.exchange import HANGING_UP, Buffer, Exchange, Parked
from semel.log.broker.journal_pump import JournalPump
from semel.log.broker.limits import Limits
from semel.log.broker.metrics import Metrics
from semel.log.broker.receive_buffer import ReceiveBuffer, ReceiveMemory
from semel.log.broker.turns import Turns
from semel.log.core.access import ANONYMOUS, Principal
from semel.log.core.shares import address_of
from semel.log.security.listeners import Listener
from semel.log.security.login import Login, check_login
from semel.log.security.names import NoName
from semel.wire.errors import ProtocolError
from semel.wire.frames import SIZE_BYTES, frame_size, parse_request_header

# The first field of every request.
API_KEY: Final = struct.Struct(">h")

# With more unsent bytes than this, in the socket's buffer or waiting for their turn, the connection stops reading.
UNSENT_BYTES_HIGH: Final = 1024 * 1024
# Up to this many unsent bytes are counted every few seconds only, and not with every answer.
UNSENT_BYTES_NOTED: Final = 4 * 1024
# A connection that was silent for this long, and waits for no answer, is closed if its place is needed.
RESTING_SECONDS: Final = 10.0
# How much a client must send or take to count as making progress: one byte a minute does not.
PROGRESS_BYTES: Final = 64 * 1024


class Doors(Protocol):
    """What a connection reports about the TLS and the login of its client."""

    def note_known(self, connection: "Connection") -> None: ...
    def principal_of(self, certificate: bytes | None) -> Principal: ...
    def tls_failed(self, connection: "Connection", reason: str) -> None: ...


class Connections(Protocol):
    """The connections of the broker, this one among them."""

    # A client has connected; False if it must not stay.
    def enter(self, connection: "Connection") -> bool: ...
    def leave(self, connection: "Connection") -> None: ...
    # It has sent its first request.
    def note_heard(self, connection: "Connection") -> None: ...
    # It has sent an invalid request.
    def break_off(self, connection: "Connection", error: ProtocolError) -> None: ...


class Throttle(Protocol):
    """Measures how much a client uses."""

    @property
    def keys(self) -> Mapping[str, int]:
        """The quotas that are set; empty if none is."""

    def charge(self, exchange: Exchange, key: str | None, amount: float) -> int: ...


class Host(Protocol):
    """The broker, as a connection sees it."""

    apis: Mapping[int, Api]
    limits: Limits
    metrics: Metrics
    clock: Clock
    turns: Turns
    pump: JournalPump
    receive_memory: ReceiveMemory

    @property
    def doors(self) -> Doors: ...

    @property
    def throttle(self) -> Throttle: ...

    @property
    def connections(self) -> Connections: ...

    # The bytes of answers of all connections that clients have not taken yet.
    unsent_bytes: int

    def serve(self, exchange: Exchange, body: memoryview, done: Callable[[], None]) -> None:
        """Have a handler answer a request; call `done` when the next request may begin."""


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one socket."""

    def __init__(self, host: Host, listener: Listener, login: Login | None = None) -> None:
        """Before the `login` is done, if there is one, only its requests are served."""
        self._is_shaking_hands = listener.protocol.uses_tls
        self._certified: Principal = ANONYMOUS
        self.host = host
        self.listener = listener
        self.login = login
        self._frame_bytes_max = host.limits.frame_bytes_max if login is None else host.limits.login_frame_bytes_max
        self.began_ms = host.clock.steady_ms()
        self._transport: asyncio.Transport | None = None
        self._buffer = ReceiveBuffer(host.receive_memory, lambda: self._processing or self._has_to_wait, self._process)
        self._exchanges: deque[Exchange] = deque()
        self._writing_paused = False
        self._reading_paused = False
        self._processing = False
        # A request is being served in several turns of the event loop, or other connections go first.
        self._has_to_wait = False
        self._serving = True
        # Nothing is read, because its client has to wait.
        self._muted = False
        self._finished = False
        self.was_referred = self.is_of_a_standby = False
        self._parked: dict[Parked, None] = {}
        # Whether requests of this turn of the event loop have answers that are not sent yet.
        self._has_answers = False
        # The bytes of answers not yet written to the socket: earlier answers go first, or the journal must be durable.
        self._held_bytes = 0
        self._unsent_bytes = 0
        self._frames_served = 0
        self._bytes_since_progress = 0
        self.last_progress_at = host.clock.uptime()
        self.peer = ""
        self.client_host = ""
        # The address to charge, which several clients may share; for IPv6 it is the network.
        self.address = ""
        # Later connections have higher numbers.
        self.number = 0

    # -- what the event loop calls ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}" if isinstance(address, tuple) else "local"
        self.client_host = address[0] if isinstance(address, tuple) else "local"
        self.address = address_of(self.client_host)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH)
        if self.host.connections.enter(self):
            self.host.receive_memory.join(self._buffer, self.address)
        else:
            self._transport.abort()
            self._transport = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._note_unsent()
        if not self._has_to_wait:
            self._buffer.release()
        self._exchanges.clear()
        for parked in list(self._parked):
            parked.give_up()
        self.host.pump.forget(self)
        self.host.receive_memory.leave(self._buffer)
        self.host.connections.leave(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer.free()

    def buffer_updated(self, nbytes: int) -> None:
        buffer = self._buffer
        was_empty = buffer.begin == buffer.end
        frames_served = self._frames_served
        buffer.end += nbytes
        self._bytes_since_progress += nbytes
        self.host.metrics.bytes_in += nbytes
        self._process()
        if was_empty or frames_served != self._frames_served or self._bytes_since_progress >= PROGRESS_BYTES:
            self._note_progress()

    def eof_received(self) -> bool:
        """The client will send nothing more, and has usually disconnected: answer its waiting requests at once."""
        self._finished = True
        self.hurry()
        return bool(self._exchanges)

    def park(self, parked: Parked) -> None:
        """Until `unpark`, call `parked` when the connection is lost, or when the client stops sending."""
        if self.is_lost:
            parked.give_up()
            return
        self._parked[parked] = None
        if self._finished:
            asyncio.get_running_loop().call_soon(self.hurry)

    def unpark(self, parked: Parked) -> None:
        self._parked.pop(parked, None)

    def hurry(self) -> None:
        for parked in list(self._parked):
            parked.answer_now()

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._note_unsent()
        self._update_reading()

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._note_unsent()
        self._note_progress()
        self._process()

    # -- requests -----------------------------------------------------------------------------------------------

    def _process(self) -> None:
        """Serve every request that has arrived completely, as far as the limits allow."""
        if self._processing:
            return
        self._processing = True
        may_serve = False
        try:
            may_serve = self._serve_frames()
        except ProtocolError as error:
            self._break_off(error)
        finally:
            self._processing = False
        if self._has_answers:
            self.send_answers()
        self._read_if(may_serve and not self._buffer.is_too_small)
        if self._finished:
            self._close_if_answered()

    def _serve_frames(self) -> bool:
        """Return whether the next request may be served as soon as it is complete."""
        turns, buffer = self.host.turns, self._buffer
        pieces, frames_served = turns.pieces, self._frames_served
        while self._transport is not None and (self._may_serve() or self._may_serve_after_sending()):
            if turns.pieces - pieces >= turns.pieces_per_turn or (
                self._frames_served > frames_served and self.is_unknown
            ):
                # There were many short requests, or one of a client that has not logged in: let other connections go
                # first.
                self._has_to_wait = True
                asyncio.get_running_loop().call_soon(self._go_on)
                return False
            available = buffer.end - buffer.begin
            if available < SIZE_BYTES:
                buffer.fit(SIZE_BYTES)
                return True
            size = frame_size(buffer.bytes, buffer.begin, self._frame_bytes_max) + SIZE_BYTES
            if available < size:
                self._check_size(size, available)
                buffer.fit(size)
                return True
            frame = buffer.take(size)[SIZE_BYTES:]
            if not self._frames_served:
                self.host.connections.note_heard(self)
            self._frames_served += 1
            self._serve(frame)
        return False

    def _serve(self, frame: memoryview) -> None:
        exchange = Exchange(self, parse_request_header(frame), self.host.apis)
        if self.login is not None:
            check_login(self.login, exchange.api_key, exchange.is_of_a_login, self.host.clock.steady_ms())
            if self._frames_served > self.host.limits.login_requests_max and not self.login.is_over:
                raise ProtocolError(f"more than {self.host.limits.login_requests_max} requests before a login")
        self._exchanges.append(exchange)
        self._has_to_wait = True
        self.host.serve(exchange, frame[exchange.header_bytes :], self._go_on)

    def handshake_done(self, certificate: bytes | None) -> None:
        """TLS is established; `certificate` is the client's, if it has shown one."""
        self._is_shaking_hands = False
        try:
            self._certified = self.host.doors.principal_of(certificate)
        except (NoName, ValueError) as error:
            self.host.connections.break_off(self, ProtocolError(f"the client's certificate: {error}"))
            return
        if not self.is_unknown:
            self.host.doors.note_known(self)

    def handshake_failed(self, reason: str) -> None:
        """The TLS handshake failed."""
        self.host.doors.tls_failed(self, reason)

    def note_login(self) -> None:
        """The client is logged in now."""
        self._frame_bytes_max = self.host.limits.frame_bytes_max
        self.host.doors.note_known(self)

    @property
    def is_lost(self) -> bool:
        """Whether its client cannot be answered any more."""
        return self._transport is None

    @property
    def principal(self) -> Principal:
        return self._certified if self.login is None else self.login.principal

    @property
    def is_unknown(self) -> bool:
        """Whether TLS is not established yet, or the client must still log in."""
        return self._is_shaking_hands or (self.login is not None and not self.login.is_over)

    def _go_on(self) -> None:
        self._has_to_wait = False
        if self._transport is None:
            self._buffer.release()
        if not self._processing:
            self._process()

    def _check_size(self, size: int, available: int) -> None:
        """Refuse a large request, as soon as its API is known, if its API has no requests of this size."""
        if size > self.host.limits.small_request_bytes_max and available >= SIZE_BYTES + API_KEY.size:
            api_key = API_KEY.unpack_from(self._buffer.bytes, self._buffer.begin + SIZE_BYTES)[0]
            if api_key not in self.host.apis or not self.host.apis[api_key].may_be_large:
                raise ProtocolError(f"a request of {size} bytes for API {api_key}")

    def _may_serve(self) -> bool:
        return (
            self._serving
            and not self._has_to_wait
            and not self._muted
            and not self._writing_paused
            and len(self._exchanges) < self.host.limits.requests_in_flight_max
            and self._held_bytes < UNSENT_BYTES_HIGH
        )

    def _may_serve_after_sending(self) -> bool:
        """Whether only unsent answers kept the next request waiting."""
        if not self._has_answers:
            return False
        self.send_answers()
        return self._may_serve()

    def mute(self) -> None:
        """Begin no more requests, and read none, until `unmute`; those under way are answered."""
        self._muted = True
        if not self._processing:
            self._update_reading()

    def unmute(self) -> None:
        self._muted = False
        # From the loop, and not from within the caller, which may be in the middle of something else.
        asyncio.get_running_loop().call_soon(self._process)

    def _update_reading(self) -> None:
        self._read_if(self._may_serve() and not self._buffer.is_too_small)

    def _read_if(self, reads: bool) -> None:
        """Read from the socket exactly when there is space in the buffer and the next request may be served."""
        transport = self._transport
        if reads is not self._reading_paused or transport is None or transport.is_closing():
            return
        self._reading_paused = not reads
        if reads:
            # The pause was the broker's, so it does not count against the client.
            self._note_progress()
            transport.resume_reading()
        else:
            transport.pause_reading()

    def _note_progress(self) -> None:
        self.last_progress_at = self.host.clock.uptime()
        self._bytes_since_progress = 0

    # -- answers ------------------------------------------------------------------------------------------------

    def note_answer(self, exchange: Exchange) -> None:
        """One of the requests has its answer."""
        self._held_bytes += exchange.answer_bytes
        pump = self.host.pump
        if exchange.is_to_be_proved:
            exchange.proof = pump.prove(exchange.after)
        if exchange.after > pump.settled:
            pump.sync_soon()
        if self._processing:
            # The answers to all requests that have arrived leave together.
            self._has_answers = True
        else:
            self.send_answers()

    def throttle(self, exchange: Exchange, key: str | None, amount: float) -> int:
        """How long the client has to wait because of this amount; the broker does not read from it for that time."""
        throttle = self.host.throttle
        return throttle.charge(exchange, key, amount) if throttle.keys else 0

    def send_answers(self) -> None:
        """Send the first answers in the queue, as far as their changes are durable: all in one write."""
        self._has_answers = False
        transport = self._transport
        if transport is None:
            return
        pump, metrics = self.host.pump, self.host.metrics
        exchanges = self._exchanges
        held_bytes = self._held_bytes
        ready: list[Buffer] = []
        has_sent = hangs_up = False
        while exchanges:
            exchange = exchanges[0]
            answer = exchange.answer
            if answer is None:
                break
            if exchange.after > pump.settled or exchange.proof > pump.proved:
                pump.wait(self)
                break
            if answer is HANGING_UP:
                hangs_up = True
                break
            exchanges.popleft()
            metrics.observe_latency(exchange.api_key, time.perf_counter() - exchange.received_at)
            self._held_bytes -= exchange.answer_bytes
            ready += answer
            has_sent = True
        if ready:
            transport.writelines(ready)
        if hangs_up:
            transport.close()
        metrics.bytes_out += held_bytes - self._held_bytes
        if held_bytes + self._unsent_bytes > UNSENT_BYTES_NOTED:
            self._note_unsent()
        if has_sent and (self._reading_paused or self._finished) and not self._processing:
            # A limit may no longer apply. Serve on from the event loop, and not from within the caller.
            asyncio.get_running_loop().call_soon(self._process)

    def _note_unsent(self) -> None:
        unsent_bytes = 0
        if self._transport is not None:
            unsent_bytes = self._held_bytes + self._transport.get_write_buffer_size()
        self.host.unsent_bytes += unsent_bytes - self._unsent_bytes
        self._unsent_bytes = unsent_bytes

    # -- ending -------------------------------------------------------------------------------------------------

    @property
    def is_stalled(self) -> bool:
        """Whether the client has stopped in the middle of a request or of an answer."""
        owes_bytes = len(self._buffer) > 0 and not self._reading_paused
        return self._writing_paused or owes_bytes

    def look(self) -> None:
        """Note whether the client has taken some of its answers; called from time to time."""
        unsent_bytes = self._unsent_bytes
        self._note_unsent()
        if unsent_bytes - self._unsent_bytes >= PROGRESS_BYTES:
            self._note_progress()

    @property
    def is_waiting(self) -> bool:
        """Whether the broker owes the client an answer."""
        return bool(self._exchanges)

    @property
    def is_resting(self) -> bool:
        """Whether the client was silent for long, and waits for no answer."""
        return not self.is_waiting and self.host.clock.uptime() - self.last_progress_at >= RESTING_SECONDS

    def stop_serving(self) -> None:
        """Serve no more requests; those under way are still answered."""
        self._serving = False
        self._update_reading()

    def finish(self) -> None:
        """The same, and the connection ends with the last answer."""
        self.stop_serving()
        self._finished = True

    def refuse(self, error: ProtocolError) -> None:
        """The client has sent bytes that are not a request, so it is unknown where the next request begins."""
        self.stop_serving()
        self._break_off(error)

    def _break_off(self, error: ProtocolError) -> None:
        # The requests before the invalid one keep their answers.
        if self._has_answers:
            self.send_answers()
        self.host.connections.break_off(self, error)

    def close(self) -> None:
        """Close the connection when the socket's buffer is sent."""
        if self._transport is not None:
            self._transport.close()

    def _close_if_answered(self) -> None:
        if not self._exchanges and not self._writing_paused:
            self.close()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()
