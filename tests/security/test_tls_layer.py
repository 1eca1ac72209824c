"""The TLS layer alone, on a transport of the test: what TLS itself sends does not pile up."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

from semel.broker.tls import RECEIVED_BYTES, UNASKED_BYTES_MAX, TlsLayer
from semel.testing.certificates import Authority


class Socket:
    """What a socket's transport does, with as many bytes ahead of it as the test says."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.bytes_ahead = 0
        self.is_aborted = False

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.bytes_ahead

    def is_closing(self) -> bool:
        return self.is_aborted

    def write(self, data: bytes) -> None:
        self.sent += data

    def abort(self) -> None:
        self.is_aborted = True


class Plain:
    """The connection on top, which keeps what it gets."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.refusal = ""
        self._buffer = memoryview(bytearray(1024))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        pass

    def handshake_done(self, certificate: bytes | None) -> None:
        pass

    def handshake_failed(self, reason: str) -> None:
        self.refusal = reason

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]


def test_a_client_that_takes_nothing_of_what_tls_answers_is_sent_away(tmp_path: Path) -> None:
    """One that asks for new keys again and again, and reads no answer, would have the broker keep them all."""
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("broker", "localhost"))
    plain, lower = Plain(), Socket()
    secured: Any = plain
    transport: Any = lower
    layer = TlsLayer(secured, context, memoryview(bytearray(RECEIVED_BYTES)))
    layer.connection_made(transport)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    trust = ssl.create_default_context(cafile=authority.file)
    client = trust.wrap_bio(incoming, outgoing, server_hostname="localhost")

    def pass_on() -> None:
        incoming.write(bytes(lower.sent))
        lower.sent.clear()
        data = outgoing.read()
        layer.get_buffer(-1)[: len(data)] = data
        layer.buffer_updated(len(data))

    for _ in range(2):
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            pass_on()
    client.write(b"one")
    lower.bytes_ahead = UNASKED_BYTES_MAX
    pass_on()
    assert not lower.is_aborted
    client.write(b"two")
    lower.bytes_ahead = UNASKED_BYTES_MAX + 1
    pass_on()
    assert bytes(plain.received) == b"onetwo"
    assert lower.is_aborted
    assert "does not read" in plain.refusal
