"""The part of `semel demo log` in which orders become invoices, whoever is killed meanwhile, and a zombie wakes up.

The worker is `log_worker`, a process that stops at the one place where it hurts most, between its records and its
commit. What is done to it there is decided here; whether the promise held is judged by whoever reads the invoices.
"""

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Final

from semel.chaos.undisturbed import undisturbed
from semel.cli.demo.stage import CountedBroker, read
from semel.cli.errors import Failure

_FLUSH_SECONDS_MAX: Final = 20.0
# The transactions, counted from the first, in the middle of which somebody is killed, and who.
_KILLS: Final = {3: "worker", 8: "broker", 13: "worker", 18: "broker", 23: "worker"}


class Worker:
    """One life of the worker."""

    def __init__(self, bootstrap: str, orders: str, invoices: str, per_transaction: int) -> None:
        command = [sys.executable, "-m", "semel.cli.demo.log_worker", bootstrap, orders, invoices, str(per_transaction)]
        pipe = subprocess.PIPE
        # Ctrl-C is for the demo, which ends it.
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1, process_group=0)

    def stopped_at(self) -> str:
        """The place at which it waits now."""
        assert self.process.stdout is not None
        place = self.process.stdout.readline().strip()
        if not place:
            raise Failure(f"the worker ended by itself, with {self.process.wait()}")
        return place

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


class Billing:
    """Orders, invoices, and the workers that make the ones of the others."""

    ORDERS: Final = "orders"
    INVOICES: Final = "invoices"
    KILLS: Final = len(_KILLS)
    # What clients call it when somebody else goes by their transactional id, or by their name in the group.
    REFUSALS: Final = ("_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "FENCED_INSTANCE_ID")

    orders: Final = 3_000
    late_orders: Final = 200
    per_transaction: Final = 100

    def __init__(self, broker: CountedBroker) -> None:
        self.kills = 0
        self._broker = broker
        self._ordered = 0
        self._workers: list[Worker] = []

    def __enter__(self) -> "Billing":
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.kill()

    def expected(self) -> Counter[bytes]:
        """One invoice for each order there is."""
        return Counter(b"invoice for order %d" % number for number in range(self._ordered))

    def work_through_kills(self) -> Iterator[str]:
        """Have all orders billed; say what was done to whom as it happens."""
        self._order(self.orders)
        worker = self._hire()
        transactions = 0
        while (place := worker.stopped_at()) != "idle" or not self._is_all_billed():
            if place.startswith("written"):
                transactions += 1
                victim = _KILLS.get(transactions)
                if victim is not None:
                    self.kills += 1
                    yield f"kill -9 of the {victim} in transaction {transactions}, {place} and not committed"
                if victim == "worker":
                    self._dismiss(worker)
                    worker = self._hire()
                    continue
                if victim == "broker":
                    self._broker.note_counts()
                    self._broker.kill()
                    self._broker.start()
            elif place.startswith("refused"):
                raise Failure(f"the worker was {place}")
            worker.go_on()
        self._dismiss(worker)

    def wake_a_zombie(self) -> str:
        """What a worker hears that wakes up when another one has done its work."""
        self._order(self.late_orders)
        zombie = self._hire()
        self._until_written(zombie)
        zombie.process.send_signal(signal.SIGSTOP)
        successor = self._hire()
        while successor.stopped_at() != "idle" or not self._is_all_billed():
            successor.go_on()
        zombie.process.send_signal(signal.SIGCONT)
        zombie.go_on()
        place = zombie.stopped_at()
        return place.removeprefix("refused ")

    def invoices(self, *, committed: bool = True) -> Counter[bytes]:
        return read(self.INVOICES, self._broker.bootstrap, committed=committed)

    def _is_all_billed(self) -> bool:
        return self.invoices().total() >= self._ordered

    def _until_written(self, worker: Worker) -> None:
        while not worker.stopped_at().startswith("written"):
            worker.go_on()

    def _hire(self) -> Worker:
        with undisturbed():
            worker = Worker(self._broker.bootstrap, self.ORDERS, self.INVOICES, self.per_transaction)
            self._workers.append(worker)
        return worker

    def _dismiss(self, worker: Worker) -> None:
        worker.kill()
        self._workers.remove(worker)

    def _order(self, count: int) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._broker.bootstrap, "enable.idempotence": True, "linger.ms": 1})
        for number in range(self._ordered, self._ordered + count):
            producer.produce(self.ORDERS, b"order %d" % number)
        if producer.flush(_FLUSH_SECONDS_MAX):
            raise Failure("the orders could not be written")
        self._ordered += count
