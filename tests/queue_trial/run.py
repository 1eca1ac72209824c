"""`make queue`: the queue of docs/how-to/queue.md, whose consumers and broker are killed together, again and again.

    PYTHONPATH=tests python -m queue_trial.run [--messages N] [--consumers N] [--kills N] [--takeovers N] [--seed N]

Each message stores a row, without a key that would refuse a second one, and one row in thirty fails at first. In the
end each message must have one row, or lie in the quarantine. `--takeovers` is for two brokers on a store. Exit code 1
if an effect is missing or took place twice. SEMEL_FIGURES names a file that gets the figures as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from sqlalchemy import text

from semel.database import engine_of
from semel.inbox import metadata
from semel.testing.served import ServedBroker
from takeovers.trial import FaultyPair, faulty_pair

PAGE: Final = Path(__file__).parents[2] / "docs/how-to/queue.md"
PARTITIONS: Final = 4
# The most that a broker allows: a message may be in flight at many kills.
DELIVERIES_MAX: Final = 10
FAILING_SHARE: Final = 1 / 30
# Between two kills, so that in the meantime something gets done.
PEACE_SECONDS: Final = 2.0
# Nothing was booked for this time: something is held for ever.
STUCK_SECONDS: Final = 180.0


class Report(NamedTuple):
    """The figures of one trial."""

    messages: int
    booked: int
    doubled: int
    missing: int
    put_aside: int
    consumers_killed: int
    brokers_killed: int
    seconds: float

    @property
    def is_right(self) -> bool:
        return not self.doubled and not self.missing


def write_page(directory: Path) -> None:
    """The programs that the page shows."""
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        if name := re.match(r"# (\w+\.py)$", block, re.MULTILINE):
            (directory / name[1]).write_text(block)


def work(bootstrap: str, database: str, number: int) -> None:
    """One consumer, which does what the page shows until it is killed."""
    import worker  # type: ignore[import-not-found]

    worker.LAST = DELIVERIES_MAX
    chance = Random(f"{number}/{os.getpid()}")

    def book(connection, message):  # type: ignore[no-untyped-def]
        event = {"event": json.loads(message.value)["id"]}
        connection.execute(text("INSERT INTO bookings VALUES (:event)"), event)
        if chance.random() < FAILING_SHARE:
            raise OSError("made up")

    worker.worker(bootstrap, engine_of(database), book, lambda: True)


class Consumers:
    """The consumers, and the supervisor that starts those that have ended."""

    def __init__(self, count: int, directory: Path, database: str) -> None:
        path = os.pathsep.join([str(directory), *sys.path])
        self._environment = {**os.environ, "PYTHONPATH": path}
        self._database = database
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * count
        self._errors = (directory / "consumers.log").open("ab")
        self.killed = 0

    def start(self, bootstrap: str) -> None:
        for number, process in enumerate(self._processes):
            if process is None or process.poll() is not None:
                command = [sys.executable, "-m", "queue_trial.run", "--work", bootstrap, self._database, str(number)]
                self._processes[number] = subprocess.Popen(command, env=self._environment, stderr=self._errors)

    def kill(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            process = self._processes[number]
            if process is not None:
                process.kill()
                process.wait()
                self.killed += 1

    def stop(self) -> None:
        self.kill(range(len(self._processes)))
        self._errors.close()


def run_trial(
    directory: Path, messages: int, consumers: int, kills: int, broker: ServedBroker | FaultyPair, seed: int
) -> Report:
    """Kill the broker so often, each time together with some consumers, while they work off these messages."""
    chance = Random(seed)
    database = f"sqlite:///{directory}/queue.db"
    engine = engine_of(database)
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE bookings (event TEXT)"))
    write_page(directory)
    _begin(directory, broker.bootstrap, messages)
    sharers = Consumers(consumers, directory, database)

    def count(query: str) -> int:
        with engine.begin() as connection:
            return int(connection.scalar(text(query)))

    def booked() -> int:
        return count("SELECT count(DISTINCT event) FROM bookings")

    def put_aside() -> int:
        return count("SELECT count(*) FROM semel_inbox_quarantine")

    began = time.monotonic()
    killed = 0
    last, last_at = -1, began
    sharers.start(broker.bootstrap)
    try:
        while (done := booked() + put_aside()) < messages:
            threading.Event().wait(PEACE_SECONDS)
            if done != last:
                last, last_at = done, time.monotonic()
            elif time.monotonic() - last_at > STUCK_SECONDS:
                break
            # So that the kills are spread over the messages.
            if killed < kills and done >= messages * killed // kills:
                sharers.kill(chance.sample(range(consumers), chance.randint(0, consumers // 2)))
                broker.kill()
                broker.start()
                killed += 1
                print(f"{done} of {messages} messages, {killed} of {kills} kills", flush=True)
            sharers.start(broker.bootstrap)
    finally:
        sharers.stop()
    total = count("SELECT count(*) FROM bookings")
    return Report(
        messages,
        booked(),
        total - booked(),
        messages - booked() - put_aside(),
        put_aside(),
        sharers.killed - consumers,
        killed,
        time.monotonic() - began,
    )


def _begin(directory: Path, bootstrap: str, messages: int) -> None:
    """The topic with all messages, and the configurations of the group."""
    from semel import settings

    sys.path.insert(0, str(directory))
    import share_group  # type: ignore[import-not-found]

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("payments", PARTITIONS)])["payments"].result(60)
    group = settings.exactly_once("confluent").share_group
    share_group.configure(bootstrap, "billing", {**group, "share.delivery.count.limit": DELIVERIES_MAX})
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(messages):
        while True:
            try:
                producer.produce("payments", json.dumps({"id": f"event {number}"}))
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--work"]:
        work(arguments[1], arguments[2], int(arguments[3]))
        return 0
    parser = argparse.ArgumentParser(prog="make queue", description="A queue whose consumers and broker are killed.")
    parser.add_argument("--messages", type=int, default=20_000, metavar="N", help="how many jobs there are (20000)")
    parser.add_argument("--consumers", type=int, default=8, metavar="N", help="how many consumers there are (8)")
    parser.add_argument("--kills", type=int, default=30, metavar="N", help="kills of a broker on a disk (30)")
    parser.add_argument("--takeovers", type=int, default=10, metavar="N", help="faults of two brokers on a store (10)")
    parser.add_argument("--seed", type=int, default=7, metavar="N", help="the seed of what is killed (7)")
    options = parser.parse_args(arguments)
    figures = {}
    for name, kills in (("disk", options.kills), ("store", options.takeovers)):
        if not kills:
            continue
        with ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="semel-queue-")))
            broker: ServedBroker | FaultyPair
            if name == "disk":
                broker = stack.enter_context(ServedBroker(directory / "data"))
            else:
                broker = stack.enter_context(faulty_pair(directory, None))
            report = run_trial(directory, options.messages, options.consumers, kills, broker, options.seed)
        figures[name] = report
        print(f"-- {name}")
        for field, figure in report._asdict().items():
            print(f"{field.replace('_', ' '):<20} {figure:.0f}")
    if path := os.environ.get("SEMEL_FIGURES"):
        Path(path).write_text(json.dumps({name: report._asdict() for name, report in figures.items()}))
    return 0 if all(report.is_right for report in figures.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
