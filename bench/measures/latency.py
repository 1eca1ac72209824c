"""The measure of one message at a time. It waits for every acknowledgement; it must never keep two messages in
flight."""

from __future__ import annotations

from statistics import median, quantiles
from typing import ClassVar

from bench import clients
from bench.measures.contenders import OF_EACH_DURABILITY, THE_CLIENT_ALONE
from bench.measures.measure import Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers.mock import Mock
from bench.peers.process import Contender

TOPIC = "single"
VALUE_BYTES = 100
THE_CLIENTS_SHARE = "the client's own share, in the last rows, is in both figures."


class Latency(Measure):
    """One idempotent message at a time: 100 B, `acks=all`, `linger.ms=0`, the next one sent when the last is
    acknowledged. It is what a request that must not be lost waits for. Kafka acknowledges from the page cache unless
    `flush.messages=1`, so each durability is compared with its own kind. The last rows are the client's own share,
    which is in every figure above them: the same client against librdkafka's mock broker, which keeps nothing."""

    name = "latency"
    contenders: ClassVar[Contenders] = {**OF_EACH_DURABILITY, "mock": Mock}
    rows = (
        Row(
            "one idempotent message at a time, durability os, p50 us",
            "p50_us",
            Target(Kind.RATIO_AT_MOST, 0.5),
            semel="semel os",
            reason=THE_CLIENTS_SHARE,
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
            reason="beside the client's own share, one sync of the same disk is in both figures.",
        ),
        Row("the same, p99 us", "p99_us", semel="semel fsync", kafka="kafka flush", tansu=None),
        Row("the client alone, against a broker that keeps nothing, p50 us", "p50_us", **THE_CLIENT_ALONE),
        Row("the same, p99 us", "p99_us", **THE_CLIENT_ALONE),
    )

    def run(self, broker: Contender, scale: Scale) -> Figures:
        broker.start()
        if broker.is_administered:
            clients.create_topic(broker, TOPIC, 1)
        arguments = (TOPIC, [0], VALUE_BYTES, scale.single_warm, scale.single_messages)
        load = clients.run(broker, clients.one_at_a_time, [arguments])
        took_us = load.results[0]
        return {
            "p50_us": median(took_us),
            "p99_us": quantiles(took_us, n=100)[98],
            "cpu_us": load.broker_cpu_seconds * 1e6 / scale.single_messages,
        }
