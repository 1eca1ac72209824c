"""How fast the client can flood a broker that keeps nothing and decides nothing. It is printed below the table, so that
nobody takes the client's limit for a broker's."""

from __future__ import annotations

from bench import clients
from bench.measures.measure import MEGABYTE, Scale
from bench.peers.process import Broker

PARTITIONS = 4
KILOBYTE = 1000
SMALL_BYTES = 100


def describe(mock: Broker, scale: Scale) -> str:
    """Run the loads of the table on librdkafka's mock broker; one sentence with the figures."""
    mock.start()
    large_rate = _messages_per_second(mock, KILOBYTE, scale.flood_bytes // KILOBYTE)
    small_rate = _messages_per_second(mock, SMALL_BYTES, scale.small_messages)
    return (
        "The client alone, against librdkafka's mock broker, which keeps nothing:"
        f" {large_rate * KILOBYTE / MEGABYTE:,.0f} MB/s of 1 KB messages, {small_rate:,.0f} msg/s of 100 B."
    )


def _messages_per_second(mock: Broker, value_bytes: int, count: int) -> float:
    load = clients.run(mock, clients.flood, [(f"limit-{value_bytes}", PARTITIONS, value_bytes, count, True)])
    return count / load.elapsed_seconds
