"""What the tests of the outbox share: relays that end with their test, an effect, and waiting for the thing itself."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sqlalchemy import Column, Engine, MetaData, String, Table

from cluster_under_test import CLIENT
from eventually import SECONDS_MAX
from semel import outbox
from semel.outbox import Relay
from semel.outbox.bell import FALLBACK_SECONDS
from semel.outbox.relay import BATCH_BYTES_MAX
from semel.publish import Publisher

orders = Table("orders", MetaData(), Column("name", String(99), primary_key=True))


class Running:
    """A relay in a thread of its own."""

    def __init__(self, relay: Relay, *, stands_by: bool = False) -> None:
        self.relay = relay
        self._stands_by = stands_by
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Wait until it ends by itself."""
        self._thread.join(SECONDS_MAX)
        assert not self._thread.is_alive()

    def stop(self) -> None:
        self.relay.stop()
        self.end()

    def _run(self) -> None:
        try:
            # A shard that goes on when its relay has returned would reach into the next test.
            self.relay.run(stands_by=self._stands_by, stop_seconds=SECONDS_MAX)
        except BaseException as error:
            self.error = error


class Relays:
    """Makes relays for the engine of the test."""

    def __init__(self, engine: Engine, bootstrap: str) -> None:
        self._engine = engine
        self._bootstrap = bootstrap
        self._running: list[Running] = []

    def make(
        self,
        *,
        publisher: type[Publisher] = Publisher,
        bytes_max: int = BATCH_BYTES_MAX,
        fallback_seconds: float = FALLBACK_SECONDS,
        **options: Any,
    ) -> Relay:
        relay = Relay(self._engine, {"bootstrap.servers": self._bootstrap, **CLIENT}, **options)
        relay._make_publisher = publisher
        relay._size = relay._size._replace(bytes_max=bytes_max)
        relay._fallback_seconds = fallback_seconds
        return relay

    def run(self, *, stands_by: bool = False, **options: Any) -> Running:
        self._running.append(Running(self.make(**options), stands_by=stands_by))
        return self._running[-1]

    def drain(self, **options: Any) -> int:
        """What one relay finds and publishes."""
        return self.make(**options).drain()

    def stop(self) -> None:
        for running in self._running:
            running.stop()


def add(engine: Engine, topic: str, *values: str, key: str | None = "k") -> None:
    """In a transaction of its own."""
    with engine.begin() as connection:
        for value in values:
            outbox.add(connection, topic, key, value)


def count_batches(engine: Engine) -> int:
    """How many are known to be in the log; their numbers are dense, so the last one tells."""
    with engine.connect() as connection:
        return sum(shard.batches for shard in outbox.status(connection).shards)


def count_waiting(engine: Engine) -> int:
    with engine.connect() as connection:
        return outbox.status(connection).waiting


class Killed(BaseException):
    """As if the process had ended there."""


def die_over_a_batch(relays: Relays, *, before: bool, **options: Any) -> None:
    """A relay whose process ends at its first batch, before that is published or after."""

    class Dying(Publisher):
        def publish(self, number: int, *records: Any) -> Any:
            if not before:
                super().publish(number, *records)
            raise Killed

    with pytest.raises(Killed):
        relays.drain(publisher=Dying, **options)
