"""TLS on a connection: a layer between the socket, with encrypted bytes, and the connection, which sees plain ones.

`TlsLayer` is a protocol for the socket's transport, and a transport for the connection. The event loop's own layer
would report a client only after its handshake, and would hold a buffer of 256 KB for each client from the start. This
one reports the client at once, so that strangers are counted and limited. It receives into one buffer that all
connections share, and encrypts at most `ENCRYPTED_BYTES_HIGH` ahead of the socket, a slice at a time. It must never see
a request.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, Protocol, cast

Buffer = bytes | bytearray | memoryview

# The receive buffer of all connections: it is emptied before the next one receives. A connection that has stopped
# reading holds at most as many bytes that are not decrypted yet.
RECEIVED_BYTES: Final = 64 * 1024
# The most encrypted bytes ahead of the socket; the rest waits unencrypted.
ENCRYPTED_BYTES_HIGH: Final = 256 * 1024
# More than answers ever put ahead of the socket. Only TLS itself can have written that much, for a client that asks for
# new keys again and again and reads nothing.
UNASKED_BYTES_MAX: Final = 1024 * 1024
# The size of a slice. Buffers smaller than a TLS record are joined.
_SLICE_BYTES: Final = 128 * 1024
_RECORD_BYTES: Final = 16 * 1024

# The fatal alert protocol_version.
_NO_TLS_ALERT: Final = bytes((0x15, 3, 1, 0, 2, 2, 70))


class Secured(Protocol):
    """The connection on top of the layer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def get_buffer(self, sizehint: int) -> memoryview: ...

    def buffer_updated(self, nbytes: int) -> None: ...

    def eof_received(self) -> bool: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def handshake_done(self, certificate: bytes | None) -> None:
        """TLS is established; `certificate` is the client's, in DER, if it has shown one."""

    def handshake_failed(self, reason: str) -> None:
        """The TLS handshake failed. The layer ends the connection."""


class TlsLayer(asyncio.BufferedProtocol):
    """The TLS of one connection."""

    def __init__(self, secured: Secured, context: ssl.SSLContext, shared: memoryview) -> None:
        """`shared` is the receive buffer of all layers of an event loop."""
        self._secured = secured
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._shared = shared
        self._transport: asyncio.Transport
        self._is_established = False
        self._is_lost = False
        self._is_closing = False
        self._has_ended = False
        # Whether the connection has stopped reading for now.
        self._reading_paused = False
        self._decrypting = False
        # Plain bytes to encrypt when the socket has taken those before them.
        self._waiting: deque[Buffer] = deque()
        self._waiting_bytes = 0
        self._bytes_high = 0
        self._writing_paused = False
        self._socket_is_full = False

    # -- what the socket's transport calls ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=ENCRYPTED_BYTES_HIGH)
        self._secured.connection_made(cast(asyncio.BaseTransport, self))

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._waiting.clear()
        self._waiting_bytes = 0
        self._secured.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._shared

    def buffer_updated(self, nbytes: int) -> None:
        self._incoming.write(self._shared[:nbytes])
        if self._is_established or self._shake_hands():
            self._decrypt()

    def eof_received(self) -> bool:
        if not self._is_established:
            return False
        return self._end()

    def pause_writing(self) -> None:
        self._socket_is_full = True

    def resume_writing(self) -> None:
        self._socket_is_full = False
        self._encrypt()

    # -- what comes in ------------------------------------------------------------------------------------------------

    def _shake_hands(self) -> bool:
        """Go on with the handshake; return whether it is over."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            # OpenSSL sends an alert, except if the bytes are not TLS at all; then this sends one.
            if self._outgoing.pending:
                self._flush()
            else:
                self._transport.write(_NO_TLS_ALERT)
            self._secured.handshake_failed(_reason(error))
            self._transport.close()
            return False
        self._is_established = True
        self._flush()
        self._secured.handshake_done(self._tls.getpeercert(binary_form=True))
        return not self._is_lost and not self._transport.is_closing()

    def _decrypt(self) -> None:
        """Decrypt the bytes that have arrived for the connection, unless it has stopped reading."""
        if self._decrypting:
            return
        self._decrypting = True
        try:
            has_more = True
            while has_more and not (
                self._reading_paused or self._is_lost or self._has_ended or self._transport.is_closing()
            ):
                has_more = self._decrypt_into(self._secured.get_buffer(-1))
            # TLS itself may have to answer, for example to a change of keys.
            self._flush()
            if self._transport.get_write_buffer_size() > UNASKED_BYTES_MAX:
                self._secured.handshake_failed("the client changes its keys and does not read the answers")
                self._transport.abort()
        finally:
            self._decrypting = False

    def _decrypt_into(self, buffer: memoryview) -> bool:
        """Decrypt as many records into the buffer of the connection as there are and it has space for, since it takes
        longer to look at a buffer than to decrypt a record. Return whether there may be more.
        """
        tls, incoming, count, error = self._tls, self._incoming, 0, None
        has_more, has_ended = len(buffer) > 0, False
        try:
            while has_more and count < len(buffer):
                read = cast(int, tls.read(len(buffer) - count, cast(Any, buffer[count:])))
                count += read
                has_ended = not read
                has_more = not has_ended and bool(incoming.pending or tls.pending())
        except ssl.SSLWantReadError:
            has_more = False
        except ssl.SSLError as failed:
            error, has_more = failed, False
        if count:
            self._secured.buffer_updated(count)
        if error is not None:
            self._secured.handshake_failed(_reason(error))
            self._transport.abort()
        elif has_ended and not self._is_lost and not self._end():
            self.close()
        return has_more

    def _end(self) -> bool:
        """The client will send nothing more; return whether the connection still has answers to send."""
        if self._has_ended:
            return True
        self._has_ended = True
        return self._secured.eof_received()

    # -- the transport that the connection sees -----------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int) -> None:
        self._bytes_high = high

    def get_write_buffer_size(self) -> int:
        return self._waiting_bytes + self._transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        self._reading_paused = True
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._reading_paused = False
        # From the event loop, and not from within the caller, which is serving a request.
        asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._reading_paused or self._is_lost or self._transport.is_closing():
            return
        self._decrypt()
        if not self._reading_paused and not self._transport.is_closing():
            self._transport.resume_reading()

    def write(self, data: Buffer) -> None:
        self.writelines((data,))

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        for buffer in buffers:
            if len(buffer):
                self._waiting.append(buffer)
                self._waiting_bytes += len(buffer)
        self._encrypt()

    def is_closing(self) -> bool:
        return self._is_closing or self._transport.is_closing()

    def close(self) -> None:
        """Close the connection when everything written is sent."""
        self._is_closing = True
        self._encrypt()

    def abort(self) -> None:
        self._is_closing = True
        self._transport.abort()

    # -- what goes out ------------------------------------------------------------------------------------------------

    def _encrypt(self) -> None:
        """Encrypt waiting bytes, as many as the socket takes."""
        if self._is_lost or self._transport.is_closing():
            return
        while self._waiting and not self._socket_is_full:
            piece = self._next_piece()
            try:
                self._tls.write(piece)
            except ssl.SSLError:
                self._transport.abort()
                return
            self._flush()
        if self._is_closing and not self._waiting:
            self._say_goodbye()
            return
        unsent_bytes = self.get_write_buffer_size()
        if not self._writing_paused and unsent_bytes > self._bytes_high:
            self._writing_paused = True
            self._secured.pause_writing()
        elif self._writing_paused and unsent_bytes <= self._bytes_high // 4:
            self._writing_paused = False
            self._secured.resume_writing()

    def _next_piece(self) -> Buffer:
        """A slice of the first buffer, or several small buffers joined, which make one TLS record in place of many."""
        first = self._waiting.popleft()
        if len(first) > _SLICE_BYTES:
            view = memoryview(first)
            self._waiting.appendleft(view[_SLICE_BYTES:])
            first = view[:_SLICE_BYTES]
        elif len(first) < _RECORD_BYTES and self._waiting:
            piece = bytearray(first)
            while self._waiting and len(piece) + len(self._waiting[0]) <= _RECORD_BYTES:
                piece += self._waiting.popleft()
            first = piece
        self._waiting_bytes -= len(first)
        return first

    def _flush(self) -> None:
        if self._outgoing.pending and not self._transport.is_closing():
            self._transport.write(self._outgoing.read())

    def _say_goodbye(self) -> None:
        if self._is_established:
            # Without waiting for the client's close_notify.
            with _tolerant():
                self._tls.unwrap()
            self._flush()
        self._transport.close()


def _tolerant() -> Any:
    import contextlib

    return contextlib.suppress(ssl.SSLError)


def _reason(error: ssl.SSLError) -> str:
    return str(error.reason or error)
