"""The figures and the probes of a program that runs beside an application, in a thread of their own.

/metrics has what prometheus_client has, with the rows that wait in the database. /live answers as long as the process
does; /ready asks the program itself, and says why not. A database that hangs must never hang the probes: they wait for
a bounded time, and share the question that is under way.
"""

import asyncio
import contextlib
import importlib.util
import logging
import os
import threading
from collections.abc import Callable
from typing import Any, Final, Self

from sqlalchemy import Engine

from semel.database.errors import kind_of, one_line
from semel.log.small_http import LIVE_PATH, METRICS_PATH, READY_PATH, Request, check_get, listen, probed, response
from semel.service.options import ServiceRefused
from semel.wire.hosts import shown_address

READY_GAUGE: Final = "semel_service_ready"
PATHS: Final = (METRICS_PATH, LIVE_PATH, READY_PATH)
# A probe of Kubernetes gives up after a second, unless it is told another time; a scrape of Prometheus after ten.
ANSWER_SECONDS_MAX: Final = 5.0

logger: Final = logging.getLogger("semel.service")


class Door:
    """Listens from `start` to `stop`."""

    def __init__(
        self, name: str, address: tuple[str, int], role: Callable[[], str], why_not_ready: Callable[[], str]
    ) -> None:
        if importlib.util.find_spec("prometheus_client") is None:
            raise ServiceRefused("--metrics needs prometheus_client, which is missing: pip install 'semel[metrics]'")
        self._name = name
        self._host, self._port = address
        self._role = role
        self._asked = why_not_ready
        self._under_way: dict[Callable[[], str], asyncio.Future[str]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="semel-door", daemon=True)

    def start(self, engine: Engine | None) -> Self:
        self._thread.start()
        try:
            listening = listen(self._answer, self._host, self._port)
            self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result()
        except (OSError, UnicodeError) as error:
            self._end()
            number = error.errno if isinstance(error, OSError) else None
            reason = os.strerror(number) if number and number > 0 else error
            place = shown_address(self._host, self._port)
            raise ServiceRefused(f"cannot listen on {place}: {reason}: choose another port, or 0 for any") from None
        self._register(engine)
        return self

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._end()

    @property
    def shown(self) -> str:
        """The address with the port that it got."""
        return shown_address(self._host, self._server.sockets[0].getsockname()[1])

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _register(self, engine: Engine | None) -> None:
        from prometheus_client import Gauge

        from semel.watch import register

        # The application may show these figures already, in a process that has several such programs.
        with contextlib.suppress(ValueError):
            text = "1, or 0 while this program cannot do its work as it should: /ready says why."
            ready = Gauge(READY_GAUGE, text, ("service",))
            ready.labels(self._name).set_function(lambda: not self._why_not())
        if engine is not None:
            with contextlib.suppress(ValueError):
                register(engine)

    async def _answer(self, request: Request) -> bytes:
        check_get(request, PATHS)
        if request.path == LIVE_PATH:
            return probed("", "live")
        try:
            if request.path == READY_PATH:
                return probed(await self._soon(self._why_not), self._role())
            return response("200 OK", await self._soon(_exposition), content_type=_content_type())
        except TimeoutError:
            return probed(f"no answer within {ANSWER_SECONDS_MAX:g} s: the database hangs, or this machine is slow", "")

    def _why_not(self) -> str:
        try:
            return self._asked()
        except Exception as error:
            # Not its text: that may have rows or a password, and a probe has no login.
            logger.warning("/ready was not answered: %s: %s", type(error).__name__, one_line(error))
            return kind_of(error)

    async def _soon(self, ask: Callable[[], str]) -> str:
        """The answer of a function that may block; in a daemon thread, so that no answer holds up the process's end."""
        future = self._under_way.get(ask)
        if future is None or future.done():
            future = self._under_way[ask] = self._loop.create_future()
            threading.Thread(target=self._ask, args=(ask, future), name="semel-probe", daemon=True).start()
        return await asyncio.wait_for(asyncio.shield(future), ANSWER_SECONDS_MAX)

    def _ask(self, ask: Callable[[], str], future: "asyncio.Future[str]") -> None:
        said: Any
        answer: Callable[[Any], None]
        try:
            said, answer = ask(), future.set_result
        except Exception as error:
            said, answer = error, future.set_exception
        # The loop may have ended meanwhile.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(answer, said)


def _exposition() -> str:
    from prometheus_client import generate_latest

    return generate_latest().decode()


def _content_type() -> str:
    from prometheus_client import CONTENT_TYPE_LATEST

    return CONTENT_TYPE_LATEST
