"""What a broker tells over HTTP: /metrics for Prometheus, /decisions, a stream of verdicts, /producers?topic=NAME, the
batches that each partition of a topic would recognise as duplicates, and /shares?group=NAME, the records that a share
group has in flight. For what runs the broker, /live says whether to leave it running, and /ready whether it can do
something for clients. `small_http` has the server and its limits.

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
from typing import Final

from semel.log.broker.broker import Broker
from semel.log.broker.decisions import SUBSCRIPTIONS_MAX, Subscription, event_of
from semel.log.broker.exposition import CONTENT_TYPE, exposition
from semel.log.broker.readiness import why_not_ready
from semel.log.broker.sealed_streams import SealedStreams
from semel.log.broker.shared_records import shared_records
from semel.log.broker.windows import windows
from semel.log.small_http import (
    CONNECTIONS_MAX,
    DEADLINE_SECONDS,
    LIVE_PATH,
    METRICS_PATH,
    READY_PATH,
    Connection,
    HttpRefused,
    Request,
    Stream,
    Streams,
    check_get,
    listen,
    probed,
    response,
)
from semel.wire.basic import BasicLogin
from semel.wire.hosts import is_loopback, is_own_host
from semel.wire.refusals import Refused

DECISIONS_PATH: Final = "/decisions"
WINDOWS_PATH: Final = "/producers"
SHARES_PATH: Final = "/shares"
PATHS: Final = (METRICS_PATH, DECISIONS_PATH, WINDOWS_PATH, SHARES_PATH, LIVE_PATH, READY_PATH)
# The decisions within this time share an event: people read no faster.
GATHER_SECONDS: Final = 0.1
# The same while all batches are accepted, which is most of the time: the broker then sends half as many events.
CALM_GATHER_SECONDS: Final = 0.2
# After this time without a decision, an empty event is sent: otherwise a lost connection would go unnoticed.
QUIET_SECONDS_MAX: Final = 15.0

_STREAM_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
)


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

    async def answer(request: Request) -> bytes | Stream:
        is_known = login is None or login.is_in(request.headers)
        if request.path in (LIVE_PATH, READY_PATH) and request.method == "GET":
            return _probed(broker, request.path, says_why=is_known)
        if not is_known:
            _tell_refused(broker, request.peer)
            raise HttpRefused("401 Unauthorized", "log in\n", 'WWW-Authenticate: Basic realm="semel"\r\n')
        check_get(request, PATHS)
        if request.path == METRICS_PATH:
            return response("200 OK", exposition(broker), content_type=CONTENT_TYPE)
        if not tells_decisions:
            raise HttpRefused("403 Forbidden", "without a login or --insecure, only this machine may read decisions\n")
        _check_asker(request.headers, names)
        if request.path == WINDOWS_PATH:
            return _told(broker, request.query, "topic", windows)
        if request.path == SHARES_PATH:
            return _told(broker, request.query, "group", shared_records)
        subscription = broker.decisions.subscribe()
        if subscription is None:
            raise HttpRefused(
                "503 Service Unavailable", f"{SUBSCRIPTIONS_MAX} clients read decisions, no more are allowed\n"
            )
        return partial(_stream, broker, subscription, deadline_seconds)

    def sealed(plain: Streams) -> Connection:
        if tls is None:
            return plain
        tell = partial(_tell_no_tls, broker)
        return SealedStreams(plain, tls, tell, handshakes_max=CONNECTIONS_MAX, deadline_seconds=deadline_seconds)

    return await listen(answer, host, port, sealed=sealed, deadline_seconds=deadline_seconds)


def _tell_no_tls(broker: Broker, peer: str, reason: str) -> None:
    broker.metrics.refused_handshakes += 1
    broker.events.tell(logging.WARNING, "tls_refused", peer=peer, reason=reason)


def _tell_refused(broker: Broker, peer: str) -> None:
    broker.metrics.refused_logins += 1
    reason = "the metrics: no name and password, or wrong ones"
    broker.events.tell(logging.WARNING, "login_refused", peer=peer, user="", reason=reason)


def _probed(broker: Broker, path: str, *, says_why: bool) -> bytes:
    why_not = why_not_ready(broker) if path == READY_PATH or broker.failed.done() else ""
    role = "active" if broker.role.may_serve else "standby"
    return probed(why_not if says_why or not why_not else "no", role)


def _told(broker: Broker, query: dict[str, str], name: str, tell: Callable[[Broker, str, int], bytes]) -> bytes:
    """What is told about the thing that the query has under this name."""
    first = query.get("first", "0")
    if not (first.isascii() and first.isdigit() and len(first) < 10):
        raise HttpRefused("400 Bad Request", "first must be the number of a partition\n")
    if not broker.role.is_active:
        raise HttpRefused("503 Service Unavailable", "this broker stands by: ask the active one\n")
    try:
        body = tell(broker, query.get(name, ""), int(first))
    except Refused as refused:
        raise HttpRefused("404 Not Found", f"{refused.message}\n") from None
    return response("200 OK", body.decode(), content_type="application/json")


def _check_asker(headers: dict[str, str], names: Collection[str]) -> None:
    """Refuse a page in a browser. A browser sends an Origin or Sec-Fetch header for a page of another site; and if the
    site's own name resolves to this machine, it sends that name as the Host.
    """
    if "origin" in headers or headers.get("sec-fetch-site", "none") != "none":
        raise HttpRefused("403 Forbidden", "a page in a browser may not read decisions\n")
    if not is_own_host(headers.get("host", ""), names):
        advice = "ask for its address, or for a name from --listen, --advertise or --metrics\n"
        raise HttpRefused("421 Misdirected Request", f"this broker does not have that name: {advice}")


async def _stream(
    broker: Broker,
    subscription: Subscription,
    deadline_seconds: float,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Write events until the client disconnects. A client that does not take them loses decisions, and is disconnected
    after the deadline.
    """
    going = asyncio.create_task(_end_with(subscription, reader))
    try:
        # With this limit, drain returns only when the kernel has all bytes.
        writer.transport.set_write_buffer_limits(0)
        writer.write(_STREAM_HEAD)
        while not subscription.has_ended:
            writer.write(event_of(subscription.take()))
            async with asyncio.timeout(deadline_seconds):
                await writer.drain()
            await asyncio.sleep(GATHER_SECONDS)
            await subscription.wait(CALM_GATHER_SECONDS - GATHER_SECONDS, others_only=True)
            await subscription.wait(QUIET_SECONDS_MAX)
    finally:
        going.cancel()
        broker.decisions.unsubscribe(subscription)


async def _end_with(subscription: Subscription, reader: asyncio.StreamReader) -> None:
    """End the subscription when the client sends anything, or, as is usual, disconnects."""
    try:
        await reader.read(1)
    except OSError:
        pass
    finally:
        subscription.end()
