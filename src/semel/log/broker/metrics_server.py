"""A small HTTP server for an operator's tools: /metrics for Prometheus, /decisions, a stream of verdicts,
/producers?topic=NAME, the batches that each partition of a topic would recognise as duplicates, and /shares?group=NAME,
the records that a share group has in flight. For what runs the broker, /live says whether to leave it running, and
/ready whether it can do something for clients.

It is simple on purpose: the number of connections and the size of a request are bounded, and each request has a
deadline. An answer ends its connection; only /decisions, a stream of server-sent events, goes on until its client
disconnects. Nothing that a client sends may hold up or break the broker.

A client logs in with the name and the password that the operator has set, if there are any (Basic, RFC 7617), over TLS
with the broker's certificate if the operator wants that. Decisions and windows name topics and producers: without a
login, they are sent only to clients on this machine, unless the operator trusts the network; and never to a page in a
browser, even if the name of its site resolves to this machine (DNS rebinding). /live and /ready need no login, because
many a supervisor has none; without one they give no reason.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from semel.log.broker.broker import Broker
from semel.log.broker.decisions import SUBSCRIPTIONS_MAX, Subscription, event_of
from semel.log.broker.exposition import CONTENT_TYPE, exposition
from semel.log.broker.readiness import why_not_ready
from semel.log.broker.sealed_streams import SealedStreams
from semel.log.broker.shared_records import shared_records
from semel.log.broker.windows import windows
from semel.log.places import THIS_MACHINE, Admission, Places
from semel.wire.basic import BasicLogin
from semel.wire.hosts import is_loopback, is_own_host
from semel.wire.refusals import Refused

METRICS_PATH: Final = "/metrics"
DECISIONS_PATH: Final = "/decisions"
WINDOWS_PATH: Final = "/producers"
SHARES_PATH: Final = "/shares"
LIVE_PATH: Final = "/live"
READY_PATH: Final = "/ready"
PATHS: Final = (METRICS_PATH, DECISIONS_PATH, WINDOWS_PATH, SHARES_PATH, LIVE_PATH, READY_PATH)
REQUEST_BYTES_MAX: Final = 8 * 1024
# Requests that are under way at once, and TLS handshakes. One address has half of these places: if it wants more, its
# oldest connection without a request is closed.
CONNECTIONS_MAX: Final = 16
# The places among these for clients on this machine.
CONNECTIONS_KEPT: Final = 2
# The deadline for a request to arrive and its answer to be taken, and for each event of a stream.
DEADLINE_SECONDS: Final = 10.0
# The decisions within this time share an event: people read no faster.
GATHER_SECONDS: Final = 0.1
# The same while all batches are accepted, which is most of the time: the broker then sends half as many events.
CALM_GATHER_SECONDS: Final = 0.2
# After this time without a decision, an empty event is sent: otherwise a lost connection would go unnoticed.
QUIET_SECONDS_MAX: Final = 15.0

_STREAM_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
)


class _Request(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    # By name, in lower case.
    headers: dict[str, str]


class _HttpRefused(Exception):
    """Refuses a request with this answer."""

    def __init__(self, status: str, body: str, header: str = "") -> None:
        super().__init__(status)
        self.answer = _response(status, body, header)


async def serve_metrics(
    broker: Broker,
    host: str,
    port: int,
    *,
    login: BasicLogin | None = None,
    tls: Callable[[], ssl.SSLContext] | None = None,
    insecure: bool = False,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> asyncio.Server:
    """Listen; OSError if the port is not free. Close the returned server to stop. With `insecure` other machines, too,
    may ask for decisions without a login. `tls` returns the context for a new connection.
    """
    tells_decisions = insecure or is_loopback(host) or login is not None
    names = {host, *(name for one in broker.listeners for name in (one.host, one.reached_at[0]))}
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
                subscription = await _answer(reader, writer)
                # Streams have a limit of their own.
                if subscription is not None:
                    places.leave(writer)
                else:
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
            if subscription is not None:
                try:
                    await _stream(broker, subscription, reader, writer, deadline_seconds)
                finally:
                    broker.decisions.unsubscribe(subscription)
        except (OSError, EOFError, TimeoutError, asyncio.CancelledError):
            # A task is cancelled if it still runs when the loop ends; some versions of asyncio would print that.
            pass
        finally:
            places.leave(writer)
            # Abort, because the client will not take the rest.
            writer.transport.abort()

    async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Subscription | None:
        """Answer a request; return the subscription if a stream of decisions is to follow."""
        try:
            request = await _read(reader)
            if writer in places:
                places.note_heard(writer)
            is_known = login is None or login.is_in(request.headers)
            if request.path in (LIVE_PATH, READY_PATH) and request.method == "GET":
                writer.write(_probed(broker, request.path, says_why=is_known))
                return None
            if not is_known:
                _tell_refused(broker, writer)
                raise _HttpRefused("401 Unauthorized", "log in\n", 'WWW-Authenticate: Basic realm="semel"\r\n')
            if request.path not in PATHS:
                raise _HttpRefused("404 Not Found", f"{', '.join(PATHS)} are the only paths\n")
            if request.method != "GET":
                raise _HttpRefused("405 Method Not Allowed", "only GET is allowed\n", "Allow: GET\r\n")
            if request.path == METRICS_PATH:
                writer.write(_response("200 OK", exposition(broker), content_type=CONTENT_TYPE))
                return None
            if not tells_decisions:
                raise _HttpRefused(
                    "403 Forbidden", "without a login or --insecure, only this machine may read decisions\n"
                )
            _check_asker(request.headers, names)
            if request.path == WINDOWS_PATH:
                writer.write(_told(broker, request.query, "topic", windows))
                return None
            if request.path == SHARES_PATH:
                writer.write(_told(broker, request.query, "group", shared_records))
                return None
            subscription = broker.decisions.subscribe()
            if subscription is None:
                raise _HttpRefused(
                    "503 Service Unavailable",
                    f"{SUBSCRIPTIONS_MAX} clients read decisions, no more are allowed\n",
                )
            return subscription
        except _HttpRefused as refused:
            writer.write(refused.answer)
            return None

    def streams() -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=REQUEST_BYTES_MAX), serve)

    connection: Callable[[], asyncio.BaseProtocol] = streams
    if tls is not None:
        limits: dict[str, Any] = {"handshakes_max": CONNECTIONS_MAX, "deadline_seconds": deadline_seconds}
        connection = SealedStreams(streams, tls, partial(_tell_no_tls, broker), **limits)
    return await asyncio.get_running_loop().create_server(connection, host, port)


def _admit(places: Places[asyncio.StreamWriter], writer: asyncio.StreamWriter) -> Admission[asyncio.StreamWriter]:
    host, *_ = writer.get_extra_info("peername") or ("unknown",)
    return places.admit(writer, host, (THIS_MACHINE,) if is_loopback(host) else ())


def _tell_no_tls(broker: Broker, peer: str, reason: str) -> None:
    broker.metrics.refused_handshakes += 1
    broker.events.tell(logging.WARNING, "tls_refused", peer=peer, reason=reason)


def _tell_refused(broker: Broker, writer: asyncio.StreamWriter) -> None:
    host, port, *_ = writer.get_extra_info("peername") or ("unknown", 0)
    broker.metrics.refused_logins += 1
    reason = "the metrics: no name and password, or wrong ones"
    broker.events.tell(logging.WARNING, "login_refused", peer=f"{host}:{port}", user="", reason=reason)


async def _read(reader: asyncio.StreamReader) -> _Request:
    headers: dict[str, str] = {}
    try:
        line = await reader.readuntil(b"\n")
        method, target, protocol = line.decode("ascii").split()
        # All headers must be read, or the client would see a connection error in place of the answer.
        size = len(line)
        while (line := await reader.readuntil(b"\n")).strip():
            size += len(line)
            if size > REQUEST_BYTES_MAX:
                raise _HttpRefused("431 Request Header Fields Too Large", "too long\n")
            name, _, text = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = text.strip()
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
        raise _HttpRefused("400 Bad Request", "this is not an HTTP request\n") from None
    if not protocol.startswith("HTTP/1."):
        raise _HttpRefused("505 HTTP Version Not Supported", "HTTP/1.1 is required\n")
    path, _, query = target.partition("?")
    return _Request(method, path, dict(parse_qsl(query, keep_blank_values=True)), headers)


def _probed(broker: Broker, path: str, *, says_why: bool) -> bytes:
    why_not = why_not_ready(broker) if path == READY_PATH or broker.failed.done() else ""
    if why_not:
        return _response("503 Service Unavailable", f"{why_not}\n" if says_why else "no\n")
    return _response("200 OK", "active\n" if broker.role.may_serve else "standby\n")


def _told(broker: Broker, query: dict[str, str], name: str, tell: Callable[[Broker, str, int], bytes]) -> bytes:
    """What is told about the thing that the query has under this name."""
    first = query.get("first", "0")
    if not (first.isascii() and first.isdigit() and len(first) < 10):
        raise _HttpRefused("400 Bad Request", "first must be the number of a partition\n")
    if not broker.role.is_active:
        raise _HttpRefused("503 Service Unavailable", "this broker stands by: ask the active one\n")
    try:
        body = tell(broker, query.get(name, ""), int(first))
    except Refused as refused:
        raise _HttpRefused("404 Not Found", f"{refused.message}\n") from None
    return _response("200 OK", body.decode(), content_type="application/json")


def _check_asker(headers: dict[str, str], names: Collection[str]) -> None:
    """Refuse a page in a browser. A browser sends an Origin or Sec-Fetch header for a page of another site; and if the
    site's own name resolves to this machine, it sends that name as the Host.
    """
    if "origin" in headers or headers.get("sec-fetch-site", "none") != "none":
        raise _HttpRefused("403 Forbidden", "a page in a browser may not read decisions\n")
    if not is_own_host(headers.get("host", ""), names):
        advice = "ask for its address, or for a name from --listen, --advertise or --metrics\n"
        raise _HttpRefused("421 Misdirected Request", f"this broker does not have that name: {advice}")


async def _stream(
    broker: Broker,
    subscription: Subscription,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    deadline_seconds: float,
) -> None:
    """Write events until the client disconnects. A client that does not take them loses decisions, and is disconnected
    after the deadline.
    """
    # With this limit, drain returns only when the kernel has all bytes.
    writer.transport.set_write_buffer_limits(0)
    writer.write(_STREAM_HEAD)
    going = asyncio.create_task(_end_with(subscription, reader))
    try:
        while not subscription.has_ended:
            writer.write(event_of(subscription.take()))
            async with asyncio.timeout(deadline_seconds):
                await writer.drain()
            await asyncio.sleep(GATHER_SECONDS)
            await subscription.wait(CALM_GATHER_SECONDS - GATHER_SECONDS, others_only=True)
            await subscription.wait(QUIET_SECONDS_MAX)
    finally:
        going.cancel()


async def _end_with(subscription: Subscription, reader: asyncio.StreamReader) -> None:
    """End the subscription when the client sends anything, or, as is usual, disconnects."""
    try:
        await reader.read(1)
    except OSError:
        pass
    finally:
        subscription.end()


def _response(status: str, body: str, header: str = "", content_type: str = "text/plain; charset=utf-8") -> bytes:
    content = body.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(content)}\r\n{header}"
    return f"{head}Connection: close\r\n\r\n".encode() + content
