"""Two `semel serve` on one store, for tests in which one of them takes over from the other."""

import asyncio
import shutil
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from semel.log.store import open_store
from semel.testing.seaweedfs import SeaweedServer
from semel.testing.served import ServedBroker, ServeFailed

# A broker that was killed is given up after this. A broker that a busy machine keeps from running must not be.
LEASE_SECONDS = 5
# The exit code of a broker that was overtaken: its supervisor starts it again.
FENCED = 3
SETTINGS = {"log_level": 0, "retry.backoff.ms": 20, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50}


def fresh_bucket(server: SeaweedServer) -> str:
    """The URL of a part of a bucket that is there, which SeaweedFS makes when something is put into it."""
    asyncio.run(open_store(server.url("bucket/made")).create("made", b""))
    return server.url("bucket/prefix")


class Pair:
    """The active broker, and the one that stands by."""

    def __init__(self, directory: Path, store: str = "", *, lease_seconds: int = LEASE_SECONDS) -> None:
        self._directory = directory
        self._lease_seconds = lease_seconds
        # When the last takeover was over, by the monotonic clock.
        self.taken_over = 0.0
        self.store = store or f"file://{directory}/store"
        self._numbers = count()
        self._disks: dict[ServedBroker, Path] = {}
        self.active = self.fresh().start()
        self.standby = self.fresh().start()
        assert (self.active.is_standing_by, self.standby.is_standing_by) == (False, True)

    def fresh(self) -> ServedBroker:
        """A broker that has never seen the log."""
        disk = self._directory / f"disk{next(self._numbers)}"
        broker = ServedBroker(disk, f"--store={self.store}", f"--lease-seconds={self._lease_seconds}")
        self._disks[broker] = disk
        return broker

    @property
    def bootstrap(self) -> str:
        """The addresses of both, for clients."""
        return f"{self.active.bootstrap},{self.standby.bootstrap}"

    def take_over(self, how: str, meanwhile: Callable[[], object] = lambda: None) -> int:
        """Have the standby take over; answer how the other one ended. It is back as the standby then, and if it was
        killed, with an empty disk, unless only the process was ("crash"). If it is "lost", it stays away, and another
        broker at another address is the standby. `meanwhile` is called as soon as the active one is gone."""
        gone = self.active
        if how in ("kill", "crash", "lost"):
            gone.kill()
            if how != "crash":
                shutil.rmtree(self._disks[gone])
        elif how == "stop":
            gone.terminate()
        else:
            gone.pause()
        meanwhile()
        self._wait_until_active()
        self.taken_over = time.monotonic()
        if how == "pause":
            gone.resume()
        code = gone.wait()
        self.active, self.standby = self.standby, self.fresh() if how == "lost" else gone
        _supervised(self.standby, self.standby.start)
        assert self.standby.is_standing_by
        return code

    def _wait_until_active(self) -> None:
        _supervised(self.standby, self.standby.wait_until_active)
        if self.standby.is_standing_by:
            # It was started again, and stands by.
            self._wait_until_active()

    def end(self) -> None:
        for broker in (self.standby, self.active):
            broker.kill()


def _supervised(broker: ServedBroker, wait: Callable[[], object]) -> None:
    """Start the broker again if it ends with code 3, as a supervisor does: on a busy machine, two checkpoints may have
    followed while it read the journal.
    """
    try:
        wait()
    except ServeFailed:
        if broker.wait() != FENCED:
            raise
        broker.start()


def values_of(bootstrap: str, topic: str) -> list[bytes]:
    """What a consumer of committed records reads, in its order."""
    consumer = Consumer({**SETTINGS, "bootstrap.servers": bootstrap, "group.id": "reader"})
    partition = TopicPartition(topic, 0, 0)
    consumer.assign([partition])
    _, end = consumer.get_watermark_offsets(partition, timeout=30)
    values: list[bytes] = []
    try:
        while consumer.position([partition])[0].offset < end:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                values.append(message.value() or b"")
        return values
    finally:
        consumer.close()
