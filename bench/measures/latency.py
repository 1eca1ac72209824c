"""The measure of one message at a time. It waits for every acknowledgement; it must never keep two messages in
flight."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from statistics import median, quantiles
from typing import ClassVar

from bench import clients
from bench.measures.contenders import OF_EACH_DURABILITY, THE_CLIENT_ALONE
from bench.measures.measure import Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers.mock import Mock
from bench.peers.process import Contender

TOPIC = "single"
VALUE_BYTES = 100
SYNCED_BYTES = 4096


class Latency(Measure):
    """One idempotent message at a time: 100 B, `acks=all`, `linger.ms=0`, the next one sent when the last is
    acknowledged. It is what a request that must not be lost waits for. Kafka acknowledges from the page cache unless
    `flush.messages=1`, so each durability is compared with its own kind. The last rows are the client's own share,
    which is in every figure above them: the same client against librdkafka's mock broker, which keeps nothing; and the
    disk's, which is in each with a sync: 4 KiB of a file written over and synced, one after the other."""

    name = "latency"
    contenders: ClassVar[Contenders] = {**OF_EACH_DURABILITY, "mock": Mock}
    rows = (
        Row(
            "one idempotent message at a time, durability os, p50 us",
            "p50_us",
            Target(Kind.RATIO_AT_MOST, 0.5),
            semel="semel os",
            reason="the client alone, in the last rows, takes more than the target leaves for both.",
        ),
        Row("the same, p99 us", "p99_us", semel="semel os"),
        Row(
            "the same, broker CPU per message, us",
            "cpu_us",
            Target(Kind.VALUE_AT_MOST, 60),
            semel="semel os",
            reason="a third of it is the kernel's, for a message in and an answer out; the rest is Python, which has "
            "no second message in the same turn to share its work with.",
        ),
        Row(
            "one idempotent message at a time, fsync (Kafka: flush.messages=1), p50 us",
            "p50_us",
            Target(Kind.RATIO_AT_MOST, 0.5),
            semel="semel fsync",
            kafka="kafka flush",
            tansu=None,
            reason="the client alone and the disk alone, in the last rows, are most of the target; the rest is less "
            "than a message in Python takes, with a thread that syncs while the event loop serves others.",
        ),
        Row("the same, p99 us", "p99_us", semel="semel fsync", kafka="kafka flush", tansu=None),
        Row("the client alone, against a broker that keeps nothing, p50 us", "p50_us", **THE_CLIENT_ALONE),
        Row("the same, p99 us", "p99_us", **THE_CLIENT_ALONE),
        Row("the disk alone, one write and its sync, p50 us", "sync_us", **{**THE_CLIENT_ALONE, "tansu": None}),
    )

    def run(self, broker: Contender, scale: Scale) -> Figures:
        broker.start()
        if broker.is_administered:
            clients.create_topic(broker, TOPIC, 1)
        arguments = (TOPIC, [0], VALUE_BYTES, scale.single_warm, scale.single_messages)
        load = clients.run(broker, clients.one_at_a_time, [arguments])
        took_us = load.results[0]
        figures = {
            "p50_us": median(took_us),
            "p99_us": quantiles(took_us, n=100)[98],
            "cpu_us": load.broker_cpu_seconds * 1e6 / scale.single_messages,
        }
        if isinstance(broker, Mock):
            figures["sync_us"] = median(_syncs(scale.single_messages))
        return figures


def _syncs(count: int) -> Iterator[float]:
    """How long each takes, in microseconds, in the directory in which the brokers have theirs."""
    with tempfile.TemporaryFile() as file:
        descriptor, block = file.fileno(), b"x" * SYNCED_BYTES
        os.pwrite(descriptor, block, 0)
        os.fsync(descriptor)
        for _ in range(count):
            started = time.perf_counter()
            os.pwrite(descriptor, block, 0)
            os.fdatasync(descriptor)
            yield (time.perf_counter() - started) * 1e6
