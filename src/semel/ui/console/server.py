"""Listens for browsers: reads one request from each connection, and writes its answer or its stream of events.

It does only what the console needs, with limits for the number of connections and the size of a request, and a deadline
for everything except a stream, which ends when the browser leaves. No request may ever end the console or print a
traceback.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from semel import __version__
from semel.client.settings import ClientSettings
from semel.log.places import THIS_MACHINE, Places
from semel.ui.console import sources
from semel.ui.console.askers import askers_of, cluster_askers
from semel.ui.console.broker_door import BrokerDoor
from semel.ui.console.decisions import DecisionFeed
from semel.ui.console.door import Door
from semel.ui.console.http import HEAD_BYTES_MAX, PageRefused, Response, head, in_time, read_request, refusal
from semel.ui.console.live import Live
from semel.ui.console.site import File, Site, Stream, mistake
from semel.wire.hosts import is_loopback, shown_address

if TYPE_CHECKING:
    from semel.ui.console.audits import Audits
    from semel.ui.console.claims import Databases
    from semel.ui.console.people import People
    from semel.ui.console.standbys import Stores
    from semel.ui.console.trial import Trial

# Requests that are under way at once. One address has half of these places: if it wants more, its oldest connection
# without a request is closed. A few are kept for browsers on this machine.
CONNECTIONS_MAX: Final = 128
CONNECTIONS_KEPT: Final = 6
# How many streams may be open. A browser opens at most six connections to a console.
STREAMS_MAX: Final = 48
# How many files may be read and sent at once, because each is in memory as a whole: as large as the largest record.
FILES_MAX: Final = 2
DEADLINE_SECONDS: Final = 30.0
_AGAIN: Final = ": try again"
# A browser has the deadline for each part of this size, so that a large file may take longer.
WRITTEN_BYTES: Final = 256 * 1024
# After this time without an event a comment is sent, so that no proxy closes the stream as dead.
QUIET_SECONDS_MAX: Final = 15.0


@dataclass(frozen=True)
class Contents:
    """What a console shows besides the cluster; None for parts without an option."""

    databases: "Databases | None" = None
    decisions: BrokerDoor | None = None
    audits: "Audits | None" = None
    stores: "Stores | None" = None
    trial: "Trial | None" = None
    people: "People | None" = None


class Console:
    """A console, which runs from `start` to `stop`. `tell` gets the lines for the person who started it."""

    def __init__(
        self,
        host: str,
        port: int,
        settings: ClientSettings,
        given: Contents | None = None,
        *,
        allow_changes: bool = False,
        tell: Callable[[str], None],
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self._host = host
        self._port = port
        self._settings = settings
        self._given = given or Contents()
        self._decisions = None if self._given.decisions is None else DecisionFeed(self._given.decisions)
        self._allow_changes = allow_changes
        self._tell = tell
        self._deadline_seconds = deadline_seconds
        # Once a request is read, its connection is at work, and is never closed for another one.
        self._places: Places[asyncio.StreamWriter] = Places(
            CONNECTIONS_MAX, lambda _: False, kept=CONNECTIONS_KEPT, groups=(THIS_MACHINE,)
        )
        self._streams = 0
        self._files = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._door: Door
        self._site: Site
        self._server: asyncio.Server

    async def start(self) -> None:
        """OSError if the port is not free."""
        self._server = await asyncio.start_server(self._serve, self._host, self._port, limit=HEAD_BYTES_MAX)
        self._port = self._server.sockets[0].getsockname()[1]
        given = self._given
        self._door = Door(self._host, self._port, allow_changes=self._allow_changes, people=given.people)
        about = {
            "bootstrap": [f"{host}:{port}" for host, port in self._settings.bootstrap],
            "has_databases": given.databases is not None,
            "has_decisions": given.decisions is not None,
            "has_audits": given.audits is not None,
            "has_store": given.stores is not None,
            "has_trial": given.trial is not None,
            "version": __version__,
        }
        self._site = Site(
            self._door, self._sources(), self._decisions, given.trial, Live(), about, self._tell_next, self._tell
        )
        self._tell(f"semel console on {self.address}")
        preparing = asyncio.create_task(self._site.prepare())
        self._tasks.add(preparing)
        preparing.add_done_callback(self._tasks.discard)

    def _sources(self) -> sources.Sources:
        given = self._given
        others: dict[str, Any] = {
            sources.DATABASES: given.databases,
            sources.AUDITS: given.audits,
            sources.STORE: given.stores,
            sources.TRIAL: given.trial,
        }
        return sources.Sources(
            {
                sources.CLUSTER: cluster_askers(self._settings, given.decisions),
                **{name: askers_of(one) for name, one in others.items() if one is not None},
            }
        )

    async def stop(self) -> None:
        self._server.close()
        if self._decisions is not None:
            self._decisions.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def address(self) -> str:
        """The address for the next browser."""
        # A browser cannot open an empty host, or the address of all networks.
        host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)
        place = f"http://{shown_address(host, self._port)}"
        return f"{place}/enter?token={self._door.token}" if self._given.people is None else f"{place}/"

    def _tell_next(self) -> None:
        self._tell(f"a browser was let in; for another one: {self.address}")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._converse(reader, writer)
        except (OSError, TimeoutError, asyncio.CancelledError):
            # The connection broke, or the console ends. Some versions of asyncio would print that this task was
            # cancelled.
            pass
        finally:
            self._places.leave(writer)
            self._tasks.discard(task)
            writer.transport.abort()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = await self._answer(reader, writer)
        if isinstance(answer, File):
            await self._send_file(answer, writer)
        if isinstance(answer, Response):
            await self._write(answer, writer)
        if isinstance(answer, Stream):
            # Streams have a limit of their own.
            self._places.leave(writer)
            self._streams += 1
            try:
                await _stream(answer, reader, writer)
            finally:
                self._streams -= 1

    async def _send_file(self, file: File, writer: asyncio.StreamWriter) -> None:
        if self._files >= FILES_MAX:
            busy = PageRefused(503, f"{FILES_MAX} files are being downloaded already: try again")
            await self._write(refusal(busy), writer)
            return
        self._files += 1
        try:
            await self._write(await self._read(file), writer)
        finally:
            self._files -= 1

    async def _read(self, file: File) -> Response:
        try:
            return await in_time(file.read(), self._deadline_seconds, _AGAIN)
        except PageRefused as refused:
            return refusal(refused)
        except Exception as error:
            return refusal(mistake(error))

    async def _write(self, response: Response, writer: asyncio.StreamWriter) -> None:
        writer.write(response.encoded_head())
        body = memoryview(response.body)
        for begin in range(0, len(body), WRITTEN_BYTES):
            async with asyncio.timeout(self._deadline_seconds):
                writer.write(body[begin : begin + WRITTEN_BYTES])
                await writer.drain()
        async with asyncio.timeout(self._deadline_seconds):
            writer.close()
            await writer.wait_closed()

    def _enter(self, writer: asyncio.StreamWriter) -> None:
        """Give a connection its place; another one may be closed for it. PageRefused if there is no place."""
        host = _peer_of(writer)
        is_let_in, leaver = self._places.admit(writer, host, (THIS_MACHINE,) if is_loopback(host) else ())
        if leaver is not None:
            leaver.transport.abort()
        if not is_let_in:
            raise PageRefused(503, "too many connections: close some pages of the console")

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Response | Stream | File | None:
        try:
            self._enter(writer)
            async with asyncio.timeout(self._deadline_seconds):
                request = await read_request(reader)
            if request is None:
                return None
            if writer in self._places:
                self._places.note_heard(writer)
            request = replace(request, peer=_peer_of(writer))
            answer = await in_time(self._site.answer(request), self._deadline_seconds, _AGAIN)
            if isinstance(answer, Stream) and self._streams >= STREAMS_MAX:
                raise PageRefused(503, f"{STREAMS_MAX} pages are live already: close some of them")
            return answer
        except PageRefused as refused:
            return refusal(refused)
        except (OSError, TimeoutError):
            raise
        except Exception as error:
            return refusal(mistake(error))


def _peer_of(writer: asyncio.StreamWriter) -> str:
    host, *_ = writer.get_extra_info("peername") or ("unknown",)
    return str(host)


async def _stream(stream: Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Write each answer as an event, until the browser leaves."""
    writer.write(head(200, {"Content-Type": "text/event-stream"}))
    writing = asyncio.ensure_future(_write_events(stream.answers(), writer))
    leaving = asyncio.ensure_future(_left(reader))
    try:
        await asyncio.wait((writing, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (writing, leaving):
            task.cancel()
        await asyncio.gather(writing, leaving, return_exceptions=True)


async def _left(reader: asyncio.StreamReader) -> None:
    while await reader.read(HEAD_BYTES_MAX):
        pass


async def _write_events(answers: AsyncGenerator[bytes, None], writer: asyncio.StreamWriter) -> None:
    upcoming: asyncio.Future[bytes] | None = None
    try:
        while True:
            upcoming = upcoming or asyncio.ensure_future(anext(answers))
            done, _ = await asyncio.wait((upcoming,), timeout=QUIET_SECONDS_MAX)
            if done:
                writer.write(b"data: " + upcoming.result() + b"\n\n")
                upcoming = None
            else:
                writer.write(b": nothing has changed\n\n")
            await writer.drain()
    finally:
        if upcoming is not None:
            upcoming.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await upcoming
        await answers.aclose()
