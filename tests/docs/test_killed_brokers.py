"""Kills the broker under every worker that a page shows, and starts it again where it was: each of them goes on by
itself, and does what came before and after exactly once.

Each worker is taken from its page as it stands, but for the broker's address.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from committed_records import committed_values, make_topic
from eventually import eventually
from semel.publish import Publisher, Receipt, Record
from semel.testing.served import ServedBroker

ROOT = Path(__file__).parent.parent.parent
SCRIPTS = Path(sys.executable).parent
ADDRESS = "127.0.0.1:9092"
# The broker is killed so many times: a client must not be lucky once.
KILLS = 2
# A worker that hangs does so for ever; one that goes on has backed off for some seconds.
SECONDS_MAX = 60.0


class Desk:
    """A folder with what a reader has saved and started there, and a broker that is killed."""

    def __init__(self, folder: Path, broker: ServedBroker, running: ExitStack) -> None:
        self.broker = broker
        self._folder = folder
        self._running = running
        self._producer: Any = Producer(
            {"bootstrap.servers": broker.bootstrap, "metadata.recovery.strategy": "none", "log_level": 0}
        )

    def save(self, page: str, word: str, name: str) -> None:
        """Keep the one block of a page that has this word in it."""
        text = (ROOT / page).read_text()
        [block] = [block for block in re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S) if word in block]
        (self._folder / name).write_text(block.replace(ADDRESS, self.broker.bootstrap))

    def python(self, *arguments: str) -> list[str]:
        return [sys.executable, *arguments]

    def semel(self, *arguments: str) -> list[str]:
        return [str(SCRIPTS / "semel"), *arguments]

    def run(self, command: list[str]) -> None:
        subprocess.run(command, cwd=self._folder, check=True, capture_output=True, timeout=120)

    def start(self, command: list[str]) -> None:
        """Let it go on until the test is over."""
        worker = subprocess.Popen(
            command, cwd=self._folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        )
        self._running.callback(worker.wait)
        self._running.callback(worker.kill)

    def open(self, publisher: Publisher) -> Publisher:
        return self._running.enter_context(publisher)

    def send(self, topic: str, value: str) -> None:
        self._producer.produce(topic, value)
        assert self._producer.flush(60) == 0

    def read(self, topic: str) -> list[str]:
        values = committed_values(self.broker.bootstrap, topic)
        return [value.decode() for value in values if isinstance(value, bytes)]

    def balance(self) -> int:
        """What the ledger has booked for anna."""
        with contextlib.closing(sqlite3.connect(self._folder / "ledger.db")) as ledger:
            return int(ledger.execute("SELECT cents FROM balances").fetchone()[0])


# How the worker's work is asked for, by a number, and what is there of it now.
Work = tuple[Callable[[int], None], Callable[[], list[str]]]


def orders_of(desk: Desk) -> Work:
    """Orders in one topic, and invoices in another."""
    for topic in ("orders", "invoices"):
        make_topic(desk.broker.bootstrap, topic)
    return lambda number: desk.send("orders", str(number)), lambda: desk.read("invoices")


def worker_of_exactly_once(desk: Desk) -> Work:
    desk.save("docs/how-to/exactly-once.md", "# billing.py", "billing.py")
    work = orders_of(desk)
    desk.start(desk.python("-c", f"import billing; billing.main({desk.broker.bootstrap!r}, 'billing-1')"))
    return work


def worker_on_aiokafka(desk: Desk) -> Work:
    desk.save("docs/how-to/exactly-once.md", "# async_billing.py", "async_billing.py")
    work = orders_of(desk)
    line = f"asyncio.run(async_billing.bill({desk.broker.bootstrap!r}, 0, float('inf')))"
    desk.start(desk.python("-c", f"import asyncio, async_billing; {line}"))
    return work


def ledger_of_the_inbox(desk: Desk) -> Work:
    desk.save("docs/tutorials/inbox.md", "if __name__", "accounts.py")
    desk.save("docs/tutorials/inbox.md", "inbox.run", "ledger.py")
    desk.run(desk.semel("schema", "inbox", "--database", "sqlite:///ledger.db"))
    desk.run(desk.python("accounts.py", "anna"))
    make_topic(desk.broker.bootstrap, "payments")
    desk.start(desk.python("ledger.py"))

    def pay(number: int) -> None:
        desk.send("payments", json.dumps({"id": f"p-{number}", "account": "anna", "cents": 10**number}))

    def booked() -> list[str]:
        # How often a payment was booked is one digit of the balance.
        return [f"p-{number}" for number, times in enumerate(reversed(str(desk.balance()))) for _ in range(int(times))]

    return pay, booked


def relay_of_the_outbox(desk: Desk) -> Work:
    desk.save("docs/tutorials/outbox.md", "outbox.add", "pay.py")
    desk.run(desk.semel("schema", "outbox", "--database", "sqlite:///till.db"))
    make_topic(desk.broker.bootstrap, "payments")
    desk.start(desk.semel("outbox", "run", "--database=sqlite:///till.db", f"--bootstrap={desk.broker.bootstrap}"))
    return lambda number: desk.run(desk.python("pay.py", "anna", str(number + 1))), lambda: desk.read("payments")


def publisher_of_the_guide(desk: Desk) -> Work:
    make_topic(desk.broker.bootstrap, "orders")
    publisher = desk.open(Publisher(desk.broker.bootstrap, name="orders"))

    def publish(number: int) -> None:
        assert publisher.publish(number, Record("orders", value=str(number))) is Receipt.ACCEPTED

    return publish, lambda: desk.read("orders")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with ExitStack() as running, ServedBroker(tmp_path / "log") as broker:
        yield Desk(tmp_path, broker, running)
        running.close()


@pytest.mark.parametrize(
    "worker",
    [
        worker_of_exactly_once,
        *(
            pytest.param(worker, marks=pytest.mark.slow)
            for worker in (worker_on_aiokafka, ledger_of_the_inbox, relay_of_the_outbox, publisher_of_the_guide)
        ),
    ],
)
def test_a_worker_as_shown_outlives_its_broker_and_does_each_thing_once(
    worker: Callable[[Desk], Work], desk: Desk
) -> None:
    ask, done = worker(desk)
    for number in range(KILLS + 1):
        ask(number)
        assert eventually(lambda so_far=number + 1: len(done()) == so_far, SECONDS_MAX), done()  # type: ignore[misc]
        if number < KILLS:
            desk.broker.kill()
            desk.broker.start()
    assert len(set(done())) == KILLS + 1
