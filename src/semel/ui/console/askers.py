"""Asks blocking questions in a few threads: to the cluster, by a client for each thread, and to databases.

Errors are raised for the caller that waits for the answer, and a question is not asked if its caller no longer waits.
Nobody waits for the threads, which end with the process, because a broker or a database that does not answer would
delay the end.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Generic, NamedTuple, TypeVar

from semel.client.cluster import Cluster
from semel.client.settings import Address, ClientSettings
from semel.ui.console.broker_door import BrokerDoor

R = TypeVar("R")
T = TypeVar("T")

THREADS: Final = 4
# A page waits no longer than this for a broker: it shows the error, and asks again.
CONNECT_MS_MAX: Final = 3_000
ANSWER_MS_MAX: Final = 15_000


class View(NamedTuple):
    """The cluster, and the door of the broker, which knows more about it than the protocol tells."""

    cluster: Cluster
    door: BrokerDoor | None = None


_Report = Callable[[Any, BaseException | None], None]


class Askers(Generic[R]):
    """Threads, each with its own object from `make` that it asks."""

    def __init__(self, make: Callable[[], R]) -> None:
        self._make = make
        self._tasks: queue.SimpleQueue[tuple[Callable[[R], Any], _Report]] = queue.SimpleQueue()
        for number in range(THREADS):
            threading.Thread(target=self._work, name=f"semel-console-{number}", daemon=True).start()

    async def ask(self, question: Callable[[R], T]) -> T:
        """The answer to a question, which one of the threads asks."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def unless_given_up(resource: R) -> T | None:
            return None if future.cancelled() else question(resource)

        def settle(answer: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(answer)
            else:
                future.set_exception(error)

        def report(answer: Any, error: BaseException | None) -> None:
            # The loop may have ended meanwhile; then nobody waits for the answer.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, answer, error)

        self._tasks.put((unless_given_up, report))
        return await future

    def _work(self) -> None:
        resource = self._make()
        while True:
            self._work_on_one(resource)

    def _work_on_one(self, resource: R) -> None:
        """A function of its own, so that a thread that waits for the next question keeps no large answer."""
        question, report = self._tasks.get()
        try:
            answer = question(resource)
        except Exception as error:
            report(None, error)
        else:
            report(answer, None)


def askers_of(one: R) -> Askers[R]:
    """Askers of an object that all threads may ask at once."""
    return Askers(lambda: one)


def cluster_askers(settings: ClientSettings, door: BrokerDoor | None = None) -> Askers[View]:
    """Askers of the cluster, and of the broker's door, which knows more about it."""
    own = replace(
        settings,
        client_id="semel-console",
        connect_timeout_ms=min(settings.connect_timeout_ms, CONNECT_MS_MAX),
        request_timeout_ms=min(settings.request_timeout_ms, ANSWER_MS_MAX),
        fetch_wait_ms_max=0,
    )
    brokers: list[Address] = []
    return Askers(lambda: View(Cluster(own, brokers=brokers), door))
