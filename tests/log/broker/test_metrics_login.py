"""Who asks for the metrics logs in with the whole name and password, over TLS, and shows no certificate."""

import asyncio
import base64
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from asking_over_tls import tls_socket
from semel.log.broker.broker import Broker
from semel.log.broker.certificates import ClientAuth, TlsSettings
from semel.log.broker.metrics_server import serve_metrics
from semel.log.security.listeners import Listener, SecurityProtocol
from semel.log.small_http import CONNECTIONS_MAX
from semel.testing.certificates import Authority
from semel.wire.basic import BasicLogin

LOGIN = BasicLogin("prometheus", "a long password: with a colon")


def status(connected: socket.socket, credentials: str | None) -> int:
    header = ""
    if credentials is not None:
        header = f"Authorization: Basic {base64.b64encode(credentials.encode()).decode()}\r\n"
    with connected:
        connected.sendall(f"GET /metrics HTTP/1.1\r\nHost: localhost\r\n{header}\r\n".encode())
        return int(connected.recv(65_536).split()[1])


def beside_a_broker(tls: TlsSettings, scenario: Callable[[str], None]) -> None:
    """Run a scenario in a thread while the event loop serves a broker and its metrics."""

    async def serve() -> None:
        listeners = [Listener("SEALED", SecurityProtocol.SSL)]
        async with Broker(listeners=listeners, tls=tls) as broker:
            server = await serve_metrics(broker, "127.0.0.1", 0, login=LOGIN, tls=broker.doors.tls_context)
            port = server.sockets[0].getsockname()[1]
            await asyncio.to_thread(scenario, f"localhost:{port}")
            server.close()

    asyncio.run(serve())


def test_only_the_whole_name_and_password_are_good_and_no_certificate_is_asked_for(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("broker", "localhost")
    tls = TlsSettings(*files, client_auth=ClientAuth.REQUIRED, client_authority=authority.file)
    right = f"{LOGIN.name}:{LOGIN.password}"

    def scenario(address: str) -> None:
        for wrong in (None, "", ":", f"{LOGIN.name}:", right[:-1], right + "x", right.upper(), right.partition(":")[2]):
            assert status(tls_socket(address, authority), wrong) == 401
        assert status(tls_socket(address, authority), right) == 200

    beside_a_broker(tls, scenario)


def test_over_tls_who_asks_is_answered_however_many_connections_are_silent(tmp_path: Path) -> None:
    """They are silent before the handshake, or after it."""
    authority = Authority(tmp_path)

    def scenario(address: str) -> None:
        place = "127.0.0.1", int(address.rpartition(":")[2])
        with ExitStack() as held:
            for host in (f"127.0.0.{number}" for number in range(1, 4)):
                for _ in range(CONNECTIONS_MAX):
                    held.enter_context(tls_socket(address, authority, source=host))
                    held.enter_context(socket.create_connection(place, 30, source_address=(host, 0)))
            assert status(tls_socket(address, authority), f"{LOGIN.name}:{LOGIN.password}") == 200

    beside_a_broker(TlsSettings(*authority.issue("broker", "localhost")), scenario)
