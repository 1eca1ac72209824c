"""Who asks for the metrics logs in with the whole name and password, over TLS, and shows no certificate."""

import asyncio
import base64
import socket
from collections.abc import Callable
from pathlib import Path

from asking_over_tls import tls_socket
from semel.log.broker.broker import Broker
from semel.log.broker.certificates import ClientAuth, TlsSettings
from semel.log.broker.metrics_server import serve_metrics
from semel.log.security.listeners import Listener, SecurityProtocol
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
