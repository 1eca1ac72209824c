"""The decisions of a broker as it makes them, for the pages that show them: the counts, and the newest of each verdict.

A broker of semel streams them under /decisions at the address of its metrics. The console keeps one connection for all
pages that show them, and for a moment after the last page, so that the next page has the newest decisions at once.
Whatever the rate of events, a page gets a few complete answers a second. Nothing that the broker sends may ever end the
console.
"""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from itertools import chain
from typing import Any, Final

from semel.ui.console.broker_door import BrokerDoor
from semel.ui.console.history import History
from semel.ui.console.http import PageRefused, as_json, reason_of
from semel.ui.console.query import Query

OUTCOMES: Final = ("accepted", "duplicate", "gap", "fenced")
# For each verdict separately, so that a duplicate stays visible among ten thousand accepted batches.
NEWEST_MAX: Final = 50
# The broker sends at most ten events a second; with this pause, shorter than their distance, each is shown at once.
ANSWER_SECONDS_MIN: Final = 0.02
# The chart moves on even without new decisions.
ANSWER_SECONDS_MAX: Final = 1.0
# How long the console listens after the last page has gone, and how long it waits before it asks a silent broker again.
LINGER_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 1.0
# How long a question waits for the first event.
FIRST_SECONDS_MAX: Final = 5.0
# A broker that is silent for longer is gone: it sends something every 15 seconds.
QUIET_SECONDS_MAX: Final = 40.0
# An event has at most 950 decisions.
EVENT_BYTES_MAX: Final = 1024 * 1024

Beside = Callable[[], dict[str, Any]]


class DecisionFeed:
    """The decisions of one broker."""

    def __init__(
        self,
        door: BrokerDoor,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        linger_seconds: float = LINGER_SECONDS,
    ) -> None:
        self._door = door
        self._pause = pause
        self._linger_seconds = linger_seconds
        self._watchers = 0
        self._listening: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._error: str | None = None
        self._counts: dict[str, Any] | None = None
        self._left_out = 0
        self._newest: dict[str, deque[dict[str, Any]]] = {outcome: deque(maxlen=NEWEST_MAX) for outcome in OUTCOMES}
        # What happened to the records of share groups, the newest first.
        self._shared: deque[dict[str, Any]] = deque(maxlen=NEWEST_MAX)
        self._history = History(OUTCOMES)

    async def now(self, query: Query, beside: Beside = dict) -> dict[str, Any]:
        """The answer for a page; waits a moment for the first event. The result of `beside` is added to the answer."""
        wanted = _outcome_of(query)
        with self._watched():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FIRST_SECONDS_MAX):
                    while self._counts is None and self._error is None:
                        await self._changed.wait()
            if self._error is not None and not beside():
                raise PageRefused(502, self._error)
            return self._answer_with(wanted, beside)

    async def watch(self, query: Query, beside: Beside = dict) -> AsyncGenerator[bytes, None]:
        """The same, and a new answer after each event, or when the chart moves on."""
        wanted = _outcome_of(query)
        with self._watched():
            while True:
                changed = self._changed
                yield as_json(self._answer_with(wanted, beside))
                await self._pause(ANSWER_SECONDS_MIN)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ANSWER_SECONDS_MAX):
                        await changed.wait()

    def _answer_with(self, wanted: str, beside: Beside) -> dict[str, Any]:
        """An answer; the error of a missing broker does not hide the result of `beside`."""
        others = beside()
        if self._error is None:
            return {**self._answer(wanted), **others}
        return {**self._answer(wanted), **others, "trouble": self._error} if others else {"error": self._error}

    def stop(self) -> None:
        """Stop listening."""
        if self._listening is not None:
            self._listening.cancel()

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        self._watchers += 1
        if self._listening is None:
            self._listening = asyncio.create_task(self._keep_listening())
        try:
            yield
        finally:
            self._watchers -= 1
            asyncio.get_running_loop().call_later(self._linger_seconds, self._end_if_unwatched)

    def _end_if_unwatched(self) -> None:
        if not self._watchers and self._listening is not None:
            self._listening.cancel()
            self._listening = None
            self._forget()

    def _forget(self) -> None:
        """Forget all decisions: the console does not know what it has missed, and a restarted broker counts from one
        again.
        """
        self._counts, self._error, self._left_out = None, None, 0
        for newest in (*self._newest.values(), self._shared):
            newest.clear()
        self._history = History(OUTCOMES)

    def _answer(self, wanted: str) -> dict[str, Any]:
        newest = self._newest[wanted] if wanted else chain.from_iterable(self._newest.values())
        in_order = sorted(newest, key=lambda decision: decision["number"], reverse=True)
        return {
            "counts": self._counts,
            "left_out": self._left_out,
            "decisions": in_order[:NEWEST_MAX],
            "shared": list(self._shared),
            "history": self._history.drawn(_now()),
        }

    def _note_change(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _keep_listening(self) -> None:
        while True:
            try:
                await self._listen()
                self._error = "The broker has ended its stream of decisions."
            except (
                OSError,
                ValueError,
                LookupError,
                TypeError,
                AttributeError,
                ArithmeticError,
                RecursionError,
            ) as error:
                self._error = f"{self._door.place} does not tell its decisions: {reason_of(error)}"
            self._note_change()
            await self._pause(AGAIN_SECONDS)

    async def _listen(self) -> None:
        """Take the broker's events, until it closes the connection or sends something else."""
        host, port, _, tls = door = self._door
        reader, writer = await asyncio.open_connection(host, port, limit=EVENT_BYTES_MAX, ssl=tls)
        try:
            headers = "".join(f"{name}: {value}\r\n" for name, value in door.headers.items())
            writer.write(f"GET /decisions HTTP/1.1\r\n{headers}\r\n".encode())
            status = await _line(reader)
            while await _line(reader):
                pass
            if not status:
                raise ValueError("it ends before it has answered")
            if status.split()[1:2] != ["200"]:
                raise ValueError(f"it answers {status.partition(' ')[2]}: {await _line(reader)}")
            self._forget()
            while line := await _next(reader):
                if line.startswith(b"data:"):
                    self._take(json.loads(line[5:]))
        finally:
            writer.transport.abort()

    def _take(self, event: dict[str, Any]) -> None:
        for decision in event["decisions"]:
            # Pages are sorted by it, so a decision without a number would end every page.
            self._newest[decision["outcome"]].append({**decision, "number": int(decision["number"])})
        # Brokers of other builds may not tell of share groups.
        self._shared.extendleft(dict(one) for one in event.get("shared", ()))
        self._counts, self._error = event["counts"], None
        # Accepted batches do not count as left out: like the broker, the page lists only the newest of them.
        self._left_out += sum(event["left_out"][outcome] for outcome in OUTCOMES if outcome != "accepted")
        self._history.note(_now(), event["counts"])
        self._note_change()


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _line(reader: asyncio.StreamReader) -> str:
    return (await _next(reader)).decode(errors="replace").strip()


async def _next(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(QUIET_SECONDS_MAX):
        return await reader.readline()


def _outcome_of(query: Query) -> str:
    wanted = query.text("outcome", "")
    if wanted and wanted not in OUTCOMES:
        raise PageRefused(400, f"outcome is one of {', '.join(OUTCOMES)}")
    return wanted
