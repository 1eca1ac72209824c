"""One trial from beginning to end: the load, the kills in the middle of it, and the wait for the last event."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from payments.trial import books
from payments.trial.books import Books
from payments.trial.clients import Clients
from payments.trial.databases import Databases
from payments.trial.plan import Kill, Request, Step
from payments.trial.processes import Process
from payments.trial.stage import GROUP, PARTITIONS, TOPIC, Service
from payments.trial.topic import Topic

AT_A_TIME: Final = 32
SAY_EVERY_SECONDS: Final = 2.0
# How long the last event may take from its transaction to the ledger, including all restarts.
DRAIN_SECONDS_MAX: Final = 90.0
# How long a kill waits for a payment to arrive; if none arrives, it happens all the same.
ARRIVE_SECONDS_MAX: Final = 10.0
LOOK_EVERY_SECONDS: Final = 0.02
TIDY_SECONDS_MAX: Final = 10.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a trial."""

    steps: Sequence[Step]
    clients: Clients
    # For each payment, the number of its events.
    events: Counter[str]
    # Payer, payee and amount of each payment.
    payments: dict[str, tuple[str, str, int]]
    books: Books
    # The metrics that the API exposed to Prometheus at the end.
    figures: dict[str, float]
    processes: Sequence[Process]
    seconds: float


async def run(steps: Sequence[Step], seed: int, databases: Databases, directory: Path, say: Say) -> Outcome:
    began = time.monotonic()
    service = Service(databases, directory)
    async with service.running():
        say("broker, API, relay and ledger are up")
        clients = Clients(f"http://{service.address}", seed)
        try:
            await _Load(service, clients, steps, say).run()
            say("all requests are done; now the last events have to arrive")
            events = await _drained(service)
            figures = await _figures(clients)
        finally:
            await clients.close()
    with databases.seen() as connection:
        accepted, found = books.accepted(connection), books.read(connection)
    seconds = time.monotonic() - began
    return Outcome(steps, clients, events, accepted, found, figures, list(service.processes.values()), seconds)


class _Load:
    """Executes the steps: requests in parallel, and kills in the middle of them."""

    def __init__(self, service: Service, clients: Clients, steps: Sequence[Step], say: Say) -> None:
        self._service = service
        self._clients = clients
        self._steps = steps
        self._say = say
        self._slots = asyncio.Semaphore(AT_A_TIME)
        self._done = 0

    async def run(self) -> None:
        saying = asyncio.create_task(self._say_how_far())
        killing = asyncio.create_task(asyncio.sleep(0))
        try:
            async with asyncio.TaskGroup() as tasks:
                for step in self._steps:
                    if isinstance(step, Kill):
                        await killing
                        await self._service.working()
                        killing = tasks.create_task(self._kill(step))
                    else:
                        await self._slots.acquire()
                        tasks.create_task(self._send(step))
        except ExceptionGroup as failed:
            # The other tasks ended only because of the first error.
            raise failed.exceptions[0] from None
        finally:
            saying.cancel()

    async def _send(self, request: Request) -> None:
        try:
            await self._clients.send(request)
            self._done += 1
        finally:
            self._slots.release()

    async def _kill(self, kill: Kill) -> None:
        """All processes run, and requests are in flight: kill the process shortly after a payment has arrived in the
        ledger."""
        await self._arrival()
        await asyncio.sleep(kill.after_seconds)
        self._service.processes[kill.victim].kill()
        self._say(f"kill -9 {kill.victim}")

    async def _arrival(self) -> None:
        deadline = time.monotonic() + ARRIVE_SECONDS_MAX
        booked = self._booked()
        while True:
            await asyncio.sleep(LOOK_EVERY_SECONDS)
            if self._booked() != booked or time.monotonic() > deadline:
                return

    def _booked(self) -> int:
        with self._service.databases.seen() as connection:
            return books.entries(connection)

    async def _say_how_far(self) -> None:
        total = sum(isinstance(step, Request) for step in self._steps)
        while True:
            await asyncio.sleep(SAY_EVERY_SECONDS)
            counts = self._clients.counts
            self._say(
                f"{self._done:,} of {total:,} requests done, {counts.retries:,} retries, {counts.replays:,} replays; "
                f"{self._booked() // 2:,} booked"
            )


async def _drained(service: Service) -> Counter[str]:
    """Wait until each payment has an event and the ledger has consumed them all, or the time is over."""
    with service.databases.seen() as connection:
        payments = books.accepted(connection).keys()
    topic = Topic(service.bootstrap, TOPIC, PARTITIONS, GROUP)
    deadline = time.monotonic() + DRAIN_SECONDS_MAX
    try:
        while time.monotonic() < deadline:
            await asyncio.to_thread(topic.read_on)
            if topic.events.keys() >= payments and await asyncio.to_thread(topic.is_consumed):
                break
            await asyncio.sleep(LOOK_EVERY_SECONDS)
    finally:
        await asyncio.to_thread(topic.close)
    return topic.events


async def _figures(clients: Clients) -> dict[str, float]:
    """The metrics when no message waits any more, or when the time is over: the relay deletes the last messages a
    little later."""
    deadline = time.monotonic() + TIDY_SECONDS_MAX
    while True:
        figures = await clients.figures()
        if not figures.get("semel_outbox_waiting") or time.monotonic() > deadline:
            return figures
        await asyncio.sleep(LOOK_EVERY_SECONDS)
