"""A small HTTP server for an operator's tools, of a broker and of what runs beside an application: it reads one request
from each connection, and has a function answer it.

It is simple on purpose: the number of connections and the size of a request are bounded, and each request has a
deadline. An answer ends its connection; a stream goes on until its client disconnects. Nothing that a client sends may
hold up or break the program that is asked.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import parse_qsl

from semel.log.places import THIS_MACHINE, Admission, Places
from semel.wire.hosts import is_loopback, shown_address

METRICS_PATH: Final = "/metrics"
LIVE_PATH: Final = "/live"
READY_PATH: Final = "/ready"
REQUEST_BYTES_MAX: Final = 8 * 1024
# Requests that are under way at once, and TLS handshakes. One address has half of these places: if it wants more, its
# oldest connection without a request is closed.
CONNECTIONS_MAX: Final = 16
# The places among these for clients on this machine.
CONNECTIONS_KEPT: Final = 2
# The deadline for a request to arrive and its answer to be taken, and for each event of a stream.
DEADLINE_SECONDS: Final = 10.0


class Request(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    # By name, in lower case.
    headers: dict[str, str]
    # The address of the client.
    peer: str


class HttpRefused(Exception):
    """Refuses a request with this answer."""

    def __init__(self, status: str, body: str, header: str = "") -> None:
        super().__init__(status)
        self.answer = response(status, body, header)


Stream: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Writes until the client disconnects."""
Answer: TypeAlias = Callable[[Request], Awaitable[bytes | Stream]]
Streams: TypeAlias = Callable[[], asyncio.StreamReaderProtocol]
Connection: TypeAlias = Callable[[], asyncio.BaseProtocol]


async def listen(
    answer: Answer,
    host: str,
    port: int,
    *,
    sealed: Callable[[Streams], Connection] = lambda plain: plain,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> asyncio.Server:
    """Listen; OSError if the port is not free. Close the returned server to stop. `sealed` puts TLS around a
    connection."""
    # Once a request is read, its connection is at work, and is never closed for another one.
    places: Places[asyncio.StreamWriter] = Places(
        CONNECTIONS_MAX, lambda _: False, kept=CONNECTIONS_KEPT, groups=(THIS_MACHINE,)
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            is_let_in, leaver = _admit(places, writer)
            if leaver is not None:
                leaver.transport.abort()
            if not is_let_in:
                return
            async with asyncio.timeout(deadline_seconds):
                answered = await _answered(answer, places, reader, writer)
                # Streams have a limit of their own.
                if not isinstance(answered, bytes):
                    places.leave(writer)
                else:
                    writer.write(answered)
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
            if not isinstance(answered, bytes):
                await answered(reader, writer)
        except (OSError, EOFError, TimeoutError, asyncio.CancelledError):
            # A task is cancelled if it still runs when the loop ends; some versions of asyncio would print that.
            pass
        finally:
            places.leave(writer)
            # Abort, because the client will not take the rest.
            writer.transport.abort()

    def streams() -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=REQUEST_BYTES_MAX), serve)

    return await asyncio.get_running_loop().create_server(sealed(streams), host, port)


def check_get(request: Request, paths: Collection[str]) -> None:
    """Refuse what is not a GET of one of these paths."""
    if request.path not in paths:
        raise HttpRefused("404 Not Found", f"{', '.join(paths)} are the only paths\n")
    if request.method != "GET":
        raise HttpRefused("405 Method Not Allowed", "only GET is allowed\n", "Allow: GET\r\n")


def probed(why_not: str, role: str) -> bytes:
    """What a probe is answered: why not, or 200 and the role in which the program works."""
    return response("503 Service Unavailable", f"{why_not}\n") if why_not else response("200 OK", f"{role}\n")


def response(status: str, body: str, header: str = "", content_type: str = "text/plain; charset=utf-8") -> bytes:
    content = body.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(content)}\r\n{header}"
    return f"{head}Connection: close\r\n\r\n".encode() + content


def _admit(places: Places[asyncio.StreamWriter], writer: asyncio.StreamWriter) -> Admission[asyncio.StreamWriter]:
    host, *_ = writer.get_extra_info("peername") or ("unknown",)
    return places.admit(writer, host, (THIS_MACHINE,) if is_loopback(host) else ())


async def _answered(
    answer: Answer, places: Places[asyncio.StreamWriter], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bytes | Stream:
    host, port, *_ = writer.get_extra_info("peername") or ("unknown", 0)
    try:
        request = await _read(reader, shown_address(host, port))
        if writer in places:
            places.note_heard(writer)
        return await answer(request)
    except HttpRefused as refused:
        return refused.answer


async def _read(reader: asyncio.StreamReader, peer: str) -> Request:
    headers: dict[str, str] = {}
    try:
        line = await reader.readuntil(b"\n")
        method, target, protocol = line.decode("ascii").split()
        # All headers must be read, or the client would see a connection error in place of the answer.
        size = len(line)
        while (line := await reader.readuntil(b"\n")).strip():
            size += len(line)
            if size > REQUEST_BYTES_MAX:
                raise HttpRefused("431 Request Header Fields Too Large", "too long\n")
            name, _, text = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = text.strip()
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
        raise HttpRefused("400 Bad Request", "this is not an HTTP request\n") from None
    if not protocol.startswith("HTTP/1."):
        raise HttpRefused("505 HTTP Version Not Supported", "HTTP/1.1 is required\n")
    path, _, query = target.partition("?")
    return Request(method, path, dict(parse_qsl(query, keep_blank_values=True)), headers, peer)
