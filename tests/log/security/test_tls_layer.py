"""The TLS layer alone, on a transport of the test: what it hands on, and that what TLS itself sends does not pile
up."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

from semel.log.broker.tls import RECEIVED_BYTES, UNASKED_BYTES_MAX, TlsLayer
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
        self.sizes: list[int] = []
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
        self.sizes.append(nbytes)
        self.received += self._buffer[:nbytes]


class Pair:
    """A client of TLS, and the layer of a broker that has shaken hands with it."""

    def __init__(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*authority.issue("broker", "localhost"))
        self.plain, self.lower = Plain(), Socket()
        secured: Any = self.plain
        transport: Any = self.lower
        self.layer = TlsLayer(secured, context, memoryview(bytearray(RECEIVED_BYTES)))
        self.layer.connection_made(transport)
        self._incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        trust = ssl.create_default_context(cafile=authority.file)
        self.client = trust.wrap_bio(self._incoming, self.outgoing, server_hostname="localhost")
        for _ in range(2):
            try:
                self.client.do_handshake()
            except ssl.SSLWantReadError:
                self.pass_on()
        self.pass_on()

    def pass_on(self, more: bytes = b"") -> None:
        """What either has sent reaches the other; `more` comes after what the client has sent."""
        self._incoming.write(bytes(self.lower.sent))
        self.lower.sent.clear()
        data = self.outgoing.read() + more
        self.layer.get_buffer(-1)[: len(data)] = data
        self.layer.buffer_updated(len(data))


def test_a_client_that_takes_nothing_of_what_tls_answers_is_sent_away(tmp_path: Path) -> None:
    """One that asks for new keys again and again, and reads no answer, would have the broker keep them all."""
    pair = Pair(tmp_path)
    pair.client.write(b"one")
    pair.lower.bytes_ahead = UNASKED_BYTES_MAX
    pair.pass_on()
    assert not pair.lower.is_aborted
    pair.client.write(b"two")
    pair.lower.bytes_ahead = UNASKED_BYTES_MAX + 1
    pair.pass_on()
    assert bytes(pair.plain.received) == b"onetwo"
    assert pair.lower.is_aborted
    assert "does not read" in pair.plain.refusal


def test_records_that_come_together_are_handed_on_together_as_far_as_there_is_space(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    records = [bytes([number]) * 300 for number in range(10)]
    for record in records:
        pair.client.write(record)
    pair.pass_on()
    assert pair.plain.received == b"".join(records)
    assert pair.plain.sizes == [1024, 1024, 952]


def test_what_came_before_bytes_that_are_no_tls_is_handed_on(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.client.write(b"a whole request")
    pair.pass_on(b"GET / HTTP/1.1\r\n\r\n")
    assert pair.plain.received == b"a whole request"
    assert pair.plain.refusal
    assert pair.lower.is_aborted
