"""asyncio's streams over TLS, for the metrics. They use the TLS layer of the Kafka listeners, which reports a client at
once.

The event loop's own TLS would report a client only after its handshake, so that clients in a handshake could not be
counted. Here each handshake has a deadline, and their number is limited. This file must never see a request.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, cast

from semel.log.broker.tls import RECEIVED_BYTES, TlsLayer
from semel.log.places import Places

_PLAIN_BYTES: Final = 16 * 1024


class SealedStreams:
    """Makes the protocols of one server."""

    def __init__(
        self,
        streams: Callable[[], asyncio.StreamReaderProtocol],
        context: Callable[[], ssl.SSLContext],
        note_refused: Callable[[str, str], None],
        *,
        handshakes_max: int,
        deadline_seconds: float,
    ) -> None:
        """`note_refused` is told the address of a client whose handshake failed, and the reason."""
        self.note_refused: Final = note_refused
        self.deadline_seconds: Final = deadline_seconds
        self._streams = streams
        self._context = context
        self._received = memoryview(bytearray(RECEIVED_BYTES))
        self._shaking_hands: Places[_Sealed] = Places(handshakes_max, lambda _: False)

    def __call__(self) -> TlsLayer:
        """The protocol of a new connection."""
        return TlsLayer(_Sealed(self, self._streams()), self._context(), self._received)

    def has_begun(self, connection: "_Sealed") -> bool:
        """A client has connected; False if there are too many in a handshake. Another one may be closed for it."""
        is_let_in, leaver = self._shaking_hands.admit(connection, connection.host)
        if leaver is not None:
            leaver.abort()
        return is_let_in

    def is_over(self, connection: "_Sealed") -> None:
        """Its handshake is over, or it has disconnected."""
        self._shaking_hands.leave(connection)


class _Sealed:
    """One connection: what the layer has decrypted goes to the streams."""

    def __init__(self, server: SealedStreams, streams: asyncio.StreamReaderProtocol) -> None:
        self._server = server
        self._streams = streams
        self._plain = memoryview(bytearray(_PLAIN_BYTES))
        self._transport: asyncio.Transport
        self._deadline: asyncio.TimerHandle | None = None
        self._is_established = False
        self.host = "unknown"
        self._port = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.host, self._port, *_ = transport.get_extra_info("peername") or ("unknown", 0)
        if self._server.has_begun(self):
            self._deadline = asyncio.get_running_loop().call_later(self._server.deadline_seconds, self._transport.abort)
        else:
            self._transport.abort()

    def handshake_done(self, certificate: bytes | None) -> None:
        self._end_handshake()
        self._is_established = True
        self._streams.connection_made(self._transport)

    def handshake_failed(self, reason: str) -> None:
        self._server.note_refused(f"{self.host}:{self._port}", reason)

    def abort(self) -> None:
        """Another client needs its place."""
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_handshake()
        if self._is_established:
            self._streams.connection_lost(exc)

    def _end_handshake(self) -> None:
        self._server.is_over(self)
        if self._deadline is not None:
            self._deadline.cancel()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._plain

    def buffer_updated(self, nbytes: int) -> None:
        self._streams.data_received(bytes(self._plain[:nbytes]))

    def eof_received(self) -> bool:
        return self._is_established and bool(self._streams.eof_received())

    def pause_writing(self) -> None:
        self._streams.pause_writing()

    def resume_writing(self) -> None:
        self._streams.resume_writing()
