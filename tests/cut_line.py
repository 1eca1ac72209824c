"""A line between a broker and its store, which can be cut: a TCP proxy whose bytes vanish without a word, as behind a
firewall that was changed; which refuses connections; which answers late; or which loses half of the connections' bytes.

    with CutLine("127.0.0.1", 8333) as line:
        broker = ServedBroker(disk, f"--store={line.through(url)}")
        line.set("vanish")
"""

import asyncio
import threading
from contextlib import suppress
from random import Random
from typing import Final, Literal, Self
from urllib.parse import parse_qs, quote, urlsplit

State = Literal["passes", "vanishes", "refuses", "late", "half"]
STATES: Final[tuple[State, ...]] = ("vanishes", "refuses", "late", "half")
LATE_SECONDS: Final = 20.0
_READ_BYTES: Final = 1 << 16


class CutLine:
    """The line to the store at this URL, from `start` to `stop` or for the `with` block."""

    def __init__(self, url: str, seed: int = 0) -> None:
        self._url = url
        parts = urlsplit(url)
        if parts.scheme == "s3":
            parts = urlsplit(parse_qs(parts.query)["endpoint"][0])
        assert parts.port is not None
        self._target = (parts.hostname or "127.0.0.1", parts.port)
        self._random = Random(seed)
        self._state: State = "passes"
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0

    @property
    def url(self) -> str:
        """The URL of the store through this line."""
        host, port = self._target
        if self._url.startswith("s3:"):
            return self._url.replace(quote(f"{host}:{port}", safe=""), quote(f"{host}:{self.port}", safe=""))
        return self._url.replace(f"{host}:{port}", f"{host}:{self.port}")

    def set(self, state: State) -> None:
        """From now on, until the next call."""
        asyncio.run_coroutine_threadsafe(self._set(state), self._loop).result()

    def start(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._set("refuses"), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- in the thread of the line ------------------------------------------------------------------------------

    async def _listen(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self._server = server
        self.port = server.sockets[0].getsockname()[1]

    async def _set(self, state: State) -> None:
        before, self._state = self._state, state
        if state == "refuses" and before != "refuses":
            self._server.close()
            for writer in list(self._open):
                writer.transport.abort()
        elif before == "refuses" and state != "refuses":
            await self._listen()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            up_reader, up_writer = await asyncio.open_connection(*self._target)
            self._open.add(up_writer)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pass(reader, up_writer, may_be_late=False))
                    group.create_task(self._pass(up_reader, writer, may_be_late=True))
            finally:
                up_writer.transport.abort()
                self._open.discard(up_writer)
        except* OSError:
            pass
        finally:
            writer.transport.abort()
            self._open.discard(writer)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, may_be_late: bool) -> None:
        is_cut = False
        while data := await reader.read(_READ_BYTES):
            # A stream that has lost bytes never passes any again, as if all of them were lost from there on.
            is_cut |= self._state == "vanishes" or (
                self._state == "half" and not may_be_late and self._random.random() < 0.5
            )
            if self._state == "late" and may_be_late:
                await asyncio.sleep(LATE_SECONDS)
            if not is_cut:
                writer.write(data)
                await writer.drain()
        with suppress(OSError):
            writer.write_eof()
