"""librdkafka's own mock broker in a process of its own: it keeps nothing, checks nothing, and is here only to show what
the client can do at most when no broker holds it back. It is never compared with a broker."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from bench.peers.process import Broker

SCRIPT = """
import time
from confluent_kafka import Producer
producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "unused", "log_level": 0})
print("mock on", next(iter(producer.list_topics(timeout=10).brokers.values())).port, flush=True)
while True:
    time.sleep(3600)
"""

READY_LINE = re.compile(rb"mock on (\d+)")


class Mock(Broker):
    name = "mock"
    is_administered = False

    def version(self) -> str:
        return "librdkafka's mock broker"

    def install(self) -> None:
        """Nothing: it comes with the client."""

    def prepare(self) -> None:
        """Nothing: it has no configuration and keeps no data."""

    def command(self) -> Sequence[str]:
        return [sys.executable, "-c", SCRIPT]

    def is_ready(self) -> bool:
        ready = READY_LINE.search(self.log_since_spawn())
        if ready is not None:
            self.port = int(ready.group(1))
        return ready is not None
