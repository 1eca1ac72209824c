"""GET /metrics over HTTP, for Prometheus: one request, one answer, end of connection.

It is a door for an operator's tool, so it is small rather than able: a bounded number of connections, a bounded
request, a deadline. It must never hold up or break the broker, whatever is sent to it.
"""

import asyncio
from typing import Final

from semel.broker.broker import Broker
from semel.broker.exposition import CONTENT_TYPE, exposition

PATH: Final = "/metrics"
REQUEST_BYTES_MAX: Final = 8 * 1024
CONNECTIONS_MAX: Final = 16
# For a request to come in and for its answer to be taken.
DEADLINE_SECONDS: Final = 10.0


async def serve_metrics(
    broker: Broker, host: str, port: int, *, deadline_seconds: float = DEADLINE_SECONDS
) -> asyncio.Server:
    """Listen; OSError if the port cannot be had. Close what is returned to stop."""
    open_connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_connections
        open_connections += 1
        try:
            if open_connections > CONNECTIONS_MAX:
                return
            async with asyncio.timeout(deadline_seconds):
                writer.write(await _answer(broker, reader))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError):
            pass
        finally:
            open_connections -= 1
            # At once: what has not been taken by now will not be waited for.
            writer.transport.abort()

    return await asyncio.start_server(serve, host, port, limit=REQUEST_BYTES_MAX)


async def _answer(broker: Broker, reader: asyncio.StreamReader) -> bytes:
    try:
        request = await reader.readuntil(b"\n")
        method, target, protocol = request.decode("ascii").split()
        # The headers do not matter, but have to be read, or the end of the connection would look like an error.
        headers = len(request)
        while (line := await reader.readuntil(b"\n")).strip():
            headers += len(line)
            if headers > REQUEST_BYTES_MAX:
                return _response("431 Request Header Fields Too Large", "too long\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
        return _response("400 Bad Request", "this is no HTTP request\n")
    if not protocol.startswith("HTTP/1."):
        return _response("505 HTTP Version Not Supported", "HTTP/1.1 is spoken here\n")
    if target.partition("?")[0] != PATH:
        return _response("404 Not Found", f"{PATH} is all there is\n")
    if method != "GET":
        return _response("405 Method Not Allowed", "GET it\n", "Allow: GET\r\n")
    return _response("200 OK", exposition(broker), content_type=CONTENT_TYPE)


def _response(status: str, body: str, header: str = "", content_type: str = "text/plain; charset=utf-8") -> bytes:
    content = body.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(content)}\r\n{header}"
    return f"{head}Connection: close\r\n\r\n".encode() + content
