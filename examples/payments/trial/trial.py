"""One trial from its beginning to its end: the load, the kills in the middle of it, and the wait for the last event."""

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
# How long the last event may take from its transaction into the ledger, all restarts included.
DRAIN_SECONDS_MAX: Final = 90.0
# How long a kill waits for a payment to arrive; if none arrives, it strikes all the same.
ARRIVE_SECONDS_MAX: Final = 10.0
LOOK_EVERY_SECONDS: Final = 0.02
TIDY_SECONDS_MAX: Final = 10.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a trial."""

    steps: Sequence[Step]
    clients: Clients
    # For each payment how many events tell of it.
    events: Counter[str]
    # Payer, payee and amount of each payment.
    payments: dict[str, tuple[str, str, int]]
    books: Books
    # What the API showed to Prometheus at the end.
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
    """Goes through the steps: requests side by side, and kills in the middle of them."""

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
            # The others only ended because of it.
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
        """All of them run, and requests are on their way: strike when a payment has just arrived at the other end."""
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
    """Wait until each payment has an event and the ledger is through with them all, or the time is up."""
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
    """The figures when nothing waits any more, or when the time is up: the relay tidies up after the last event."""
    deadline = time.monotonic() + TIDY_SECONDS_MAX
    while True:
        figures = await clients.figures()
        if not figures.get("semel_outbox_waiting") or time.monotonic() > deadline:
            return figures
        await asyncio.sleep(LOOK_EVERY_SECONDS)
